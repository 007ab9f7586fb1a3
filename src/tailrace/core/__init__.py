"""What a run *is*: events, fold, references, errors, framing. Pure: no I/O, clock or chance.

events      events, items, codec, event_schema, ids, errors
the state   state, fold, transitions, rules, parts, bounds, pauses, closing, view, snapshot
writers     sink, writers, text_writers, tool_output
references  references, citations
JSON        values, tool_arguments, partial_json, json_pieces, openai_response
lines       sse, log_lines
URLs        data_url
"""
