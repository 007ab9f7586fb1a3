"""Agents: an `Agent` declares a model, instructions and tools; its loop does the work.

agents        agent, functions, descriptions
the loop      loop, tool_calls, answer_check, takeover
other agents  sub_agents, handoff
options       limits, time_limit, guardrails, memory, output_types, client_options, busy_thread,
              unknown_keywords
"""
