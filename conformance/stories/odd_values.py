"""Legal streams with values that a reader may mistake for something else."""

from __future__ import annotations

from conformance.authoring import Trace, story


@story()
def proto_keys(trace: Trace) -> None:
    """Ids, keys and data that mean something to JavaScript and nothing here."""
    odd = {"__proto__": {"polluted": True}, "constructor": {"prototype": 1}, "toString": "x"}
    run = trace.task("__proto__").created(
        agent="constructor", thread_id="toString", input=odd, options=odd, metadata=odd
    )
    run.begin()
    run.whole_call("__proto__", "constructor", "hasOwnProperty", '{"__proto__":{"polluted":true}}')
    result = run.result("constructor", "constructor")
    child = run.child("constructor", agent="__proto__")
    child.says("__proto__", "__proto__")
    child.send("progress", call_id="__proto__", message="of no call")
    child.completed()
    result.block("data", data=odd, name="__proto__", id=1)
    result.done(brief=True, private={"provider": odd, "options": odd})
    run.send("progress", call_id="constructor", message="toString")
    request = {"id": "__proto__", "kind": "input", "schema": odd}
    run.send("input_required", requests=[request])
    run.send("input_received", request_id="__proto__", value=odd)
    run.send("structured_output.done", value=odd, name="__proto__")
    run.send("notice", message="valueOf", level="__proto__", data=odd)
    run.finish(run.step("__proto__"))
    run.send(
        "output_item.added", output_index=2, item={"type": "raw", "id": "toString", "raw": odd}
    )
    run.send("output_item.done", output_index=2, item={"type": "raw", "id": "toString", "raw": odd})
    run.completed()

    assert trace.view() == {
        "task_id": "__proto__",
        "status": "completed",
        "agent": "constructor",
        "thread_id": "toString",
        "input": odd,
        "options": odd,
        "metadata": odd,
        "structured_output": {"value": odd, "name": "__proto__"},
        "steps": [{"name": "__proto__", "depth": 0, "status": "completed"}],
        "notices": [{"message": "valueOf", "level": "__proto__", "data": odd}],
        "output": [
            {
                "type": "tool_call",
                "id": "__proto__",
                "call_id": "constructor",
                "name": "hasOwnProperty",
                "arguments": '{"__proto__":{"polluted":true}}',
                "started": True,
                "progress": {"message": "toString"},
            },
            {
                "type": "tool_result",
                "id": "constructor",
                "call_id": "constructor",
                "block_list": [
                    {
                        "type": "message",
                        "id": "__proto__",
                        "role": "assistant",
                        "block_list": [{"type": "text", "text": "__proto__"}],
                        "task_id": "constructor",
                    },
                    {"type": "data", "data": odd, "name": "__proto__", "id": 1},
                ],
            },
            {"type": "raw", "id": "toString", "raw": odd},
        ],
        "tasks": [
            {
                "task_id": "constructor",
                "status": "completed",
                "agent": "__proto__",
                "parent_task_id": "__proto__",
                "call_id": "constructor",
            }
        ],
    }


@story()
def defaults_spelt_out(trace: Trace) -> None:
    """A writer that sends every field, defaults and nulls included: the object leaves them out."""
    run = trace.task("run_1")
    trace.put(
        {
            "type": "task.created",
            "task_id": "run_1",
            "sequence_number": 1,
            "agent": None,
            "parent_task_id": None,
            "call_id": None,
            "input": None,
            "metadata": None,
            "reference_start": 1,
        }
    )
    run.begin()
    call = run.call(
        "fc_1", "call_1", "search", kind="function", executor="server", server_label=None
    )
    call.delta("{}")
    call.arguments_done()
    call.done(status="completed")
    result = run.result("fco_2", "call_1")
    result.block("file", url="/f", mime_type="application/octet-stream", name=None, id=None)
    result.block("text", text="found", id=1, annotations=[])
    result.done(status="completed", error=None)
    message = run.message("msg_3", phase=None)
    text = message.open_text(id=None)
    text.delta("found [^1]")
    citation = {"type": "url_citation", "url": "/", "start_index": 0, "end_index": 5, "title": ""}
    text.annotate(**citation)
    text.annotate(type="file_citation", file_id="f", filename="", index=None, start_index=None)
    text.done()
    message.done(status="completed")
    trace.put(
        {
            "type": "task.notice",
            "task_id": "run_1",
            "sequence_number": len(trace.events) + 1,
            "message": "hi",
            "level": "info",
            "call_id": None,
            "data": None,
        }
    )
    usage = {"model": None, "input_tokens": 0, "cached_input_tokens": 0, "cost": None}
    run.send("usage", usage=usage, item_id=None)
    run.send("attempt", attempt=2, reason="worker_lost", superseded=[])
    trace.put({"type": "task.progress", "task_id": "run_1", "call_id": None,
               "sequence_number": len(trace.events) + 1, "message": None})  # fmt: skip
    run.send("cancelled", reason=None)

    assert trace.view() == {
        "task_id": "run_1",
        "status": "cancelled",
        "attempt": 2,
        "usage": {"calls": 1, "input_tokens": 0, "output_tokens": 0},
        "notices": [{"message": "hi"}],
        "output": [
            {
                "type": "tool_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": "search",
                "arguments": "{}",
            },
            {
                "type": "tool_result",
                "id": "fco_2",
                "call_id": "call_1",
                "block_list": [
                    {"type": "file", "url": "/f"},
                    {"type": "text", "text": "found", "id": 1},
                ],
            },
            {
                "type": "message",
                "id": "msg_3",
                "role": "assistant",
                "block_list": [
                    {
                        "type": "text",
                        "text": "found [^1]",
                        "annotations": [
                            {"type": "url_citation", "url": "/", "start_index": 0, "end_index": 5},
                            {"type": "file_citation", "file_id": "f"},
                        ],
                    }
                ],
            },
        ],
    }
