"""What happens while a run lives: an agent works, its events are stored, clients follow.

agents       agent, agent_functions, loop, answer_check, limits, guardrails, memory, output_types,
             client_options, descriptions, time_limit, work_clock, arguments
sub-agents   sub_agents, sub_agent_answer, handoff
model calls  model_request, model_call, model_try, recordings, scripts
tools        tools, tool_values, tool_threads, tool_sources, function_tools, tool_schema,
             docstrings, json_schema, mcp_tools, tool_calls, call_writer, open_result, blobs
runs         run, runs, task, chain, inbox, input_checks, busy_thread, quota
workers      worker, claimed_run, recovery, takeover, watchdog, exits, failures, crash_points
the store    pipeline, store_retry, outage, retention
followers    follow, tail, fanout, opening, offload, wakeups
logs         log_fields, metrics, telemetry
"""
