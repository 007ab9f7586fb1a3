"""What a run *is*: events, fold, references, errors, framing. Pure: no I/O, clock or chance.

events      events, items, codec, event_schema, ids, errors
the state   state, fold, transitions, rules, parts, text_limits, approval_pauses, closing_events,
            state_copy
its JSON    run_object, snapshot, stored_state
writers     event_sink, writers, text_writers, tool_output
references  references, citations
JSON        values, tool_arguments, partial_json, json_pieces, openai_response
lines       sse, log_lines
URLs        data_url
"""
