"""What happens while a run lives: an agent works, its events are stored, clients follow.

runs         start, find, answer and cancel runs
workers      claim a run, keep its lease, continue a run whose worker was lost
agents       `Agent`: its loop, its options, its sub-agents
tools        functions and MCP servers that a model may call
model_calls  a request to a model: checked, sent, tried again
tasks        `Task`: how an agent reads its input and writes its run
followers    read a run from a cursor to its end, for one client or for many
event_log    store events in batches before clients see them; wait for a store that is away
diagnostics  errors, log lines, metrics, spans and crash points

Imports go down this list only. Those who write a run and those who follow it meet in `runs`.
"""
