"""Orders that no writer of ours sends, and on which all readers agree: PROTOCOL.md section 4."""

from __future__ import annotations

from conformance.authoring import Dict, Json, Trace, story


@story(legal=False)
def duplicates(trace: Trace) -> None:
    """Events that come again, numbers that jump, events after the end: nothing is counted twice."""
    run = trace.task("run_1").created().begin()
    trace.again(1)
    trace.again(2)
    message = run.message("msg_1")
    text = message.open_text()
    text.delta("ha ", "ha ")
    for line in (5, 6, 7, 8):  # the reconnect went back four events
        trace.again(line)
    text.delta("ha")
    trace.again(7)
    run.send("usage", usage={"output_tokens": 3})
    trace.again(len(trace.events))
    run.send("notice", message="once")
    trace.again(len(trace.events))
    trace.put(
        {
            "type": "task.text.done",
            "task_id": "run_1",
            "sequence_number": 20,
            "item_id": "msg_1",
            "output_index": 0,
            "block_index": 0,
            "item": {"type": "text", "text": "ha ha ha"},
        }
    )
    message.done()
    trace.put({"type": "task.hologram", "task_id": "run_1", "sequence_number": 19})
    run.completed()
    ended = trace.view()
    run.send("notice", message="too late")
    text.delta("!")
    run.failed("internal_error", "too late")
    run.message("msg_2")
    trace.task("run_1").created(input="too late")

    assert ended == {
        "task_id": "run_1",
        "status": "completed",
        "usage": {"calls": 1, "input_tokens": 0, "output_tokens": 3},
        "notices": [{"message": "once"}],
        "output": [
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "block_list": [{"type": "text", "text": "ha ha ha"}],
            }
        ],
    }
    assert trace.view() == ended
    assert [event["sequence_number"] for event in trace.events[-6:]] == [22, 23, 24, 25, 26, 27]


@story(legal=False, numbered=False)
def silent_tasks(trace: Trace) -> None:
    """Tasks without `task.created`: the first is the root, others need an open result."""
    root = trace.task("root")
    # The delta has nowhere to go, but its task exists from now on, without a status.
    root.send("text.delta", item_id="msg_0", output_index=0, block_index=0, delta="lost")
    only_root = trace.view()
    root.send("created", agent="too late")
    trace.task("other").created(agent="a second root")
    trace.task("orphan").created(parent_task_id="nobody", call_id="call_1")
    trace.task("stranger").send("notice", message="of a task without a place")
    root.result("fco_0", "call_1")
    child = trace.task("call_1")
    child.says("msg_0", "I was expected.")
    # Two results wait for one call, in two tasks: the later one gets the child.
    root.result("fco_1", "call_2")
    child.result("fco_1", "call_2")
    grandchild = trace.task("call_2")
    grandchild.begin()
    grandchild.says("msg_0", "I belong to call_1.")
    # Created by name, with no result that it could show in; there is one later on, closed.
    early = trace.task("early").created(parent_task_id="root", call_id="call_3")
    early.says("msg_0", "I was too early.")
    nowhere = trace.view()["output"]
    root.result("fco_2", "call_3").done()
    root.result("fco_3", "call_3")  # a second result of one call holds no task
    late = trace.task("late").created(parent_task_id="root", call_id="call_3")
    late.says("msg_0", "I am late.")
    root.begin()

    assert only_root == {"task_id": "root", "output": []}
    assert "I was too early." not in str(nowhere)
    message = {"type": "message", "id": "msg_0", "role": "assistant"}

    def message_of(words: str) -> Dict:
        return {**message, "block_list": [{"type": "text", "text": words}]}

    waiting = {"type": "tool_result", "status": "in_progress"}
    assert trace.view() == {
        "task_id": "root",
        "status": "in_progress",
        "output": [
            {
                **waiting,
                "id": "fco_0",
                "call_id": "call_1",
                "block_list": [
                    {**message_of("I was expected."), "task_id": "call_1"},
                    {
                        **waiting,
                        "id": "fco_1",
                        "call_id": "call_2",
                        "task_id": "call_1",
                        "block_list": [{**message_of("I belong to call_1."), "task_id": "call_2"}],
                    },
                ],
            },
            {**waiting, "id": "fco_1", "call_id": "call_2", "block_list": []},
            {
                "type": "tool_result",
                "id": "fco_2",
                "call_id": "call_3",
                "block_list": [
                    {**message_of("I was too early."), "task_id": "early"},
                    {**message_of("I am late."), "task_id": "late"},
                ],
            },
            {**waiting, "id": "fco_3", "call_id": "call_3", "block_list": []},
        ],
        "tasks": [
            {"task_id": "call_1", "parent_task_id": "root", "call_id": "call_1"},
            {
                "task_id": "call_2",
                "status": "in_progress",
                "parent_task_id": "call_1",
                "call_id": "call_2",
            },
            {
                "task_id": "early",
                "status": "queued",
                "parent_task_id": "root",
                "call_id": "call_3",
            },
            {
                "task_id": "late",
                "status": "queued",
                "parent_task_id": "root",
                "call_id": "call_3",
            },
        ],
    }


@story(legal=False)
def out_of_place(trace: Trace) -> None:
    """Events that do not fit: no `added`, an index that is taken, the wrong kind, a closed part."""
    run = trace.task("run_1").created().begin()

    def added(index: int, **item: object) -> None:
        run.send("output_item.added", output_index=index, item=item)

    def done(index: int, **item: object) -> None:
        run.send("output_item.done", output_index=index, item=item)

    def of(index: int, item_id: str, kind: str, **fields: Json) -> None:
        run.send(kind, item_id=item_id, output_index=index, **fields)

    def text(words: str, **fields: object) -> Dict:
        return {"type": "text", "text": words, **fields}

    # An item that comes whole, at an index that leaves a hole; the index is taken afterwards.
    done(3, type="message", id="msg_3", role="assistant", block_list=[text("whole")])
    added(3, type="message", id="msg_3b", role="assistant")
    done(3, type="message", id="msg_3", role="assistant", block_list=[text("again")])
    # An item that is added with something in it: its parts are closed, its arguments go on.
    added(1, type="tool_call", id="fc_1", call_id="call_1", name="search", arguments='{"a"')
    of(1, "fc_1", "tool_call_arguments.delta", delta=":1}")
    of(1, "fc_9", "tool_call_arguments.delta", delta="of another id")
    of(3, "msg_3", "tool_call_arguments.delta", delta="to a closed message")
    of(1, "fc_1", "tool_call_arguments.done", arguments='{"a":2}')
    of(1, "fc_1", "tool_call_arguments.delta", delta="too late")
    of(1, "fc_1", "tool_call_arguments.done", arguments="too late")
    done(1, type="message", id="fc_1", role="assistant")  # not the type that was added
    of(1, "fc_1", "tool_call.started")
    of(1, "fc_2", "tool_call.started")
    done(1, type="tool_call", id="fc_1", call_id="call_1", name="find")
    added(0, type="message", id="msg_0", role="assistant", block_list=[text("given")])
    of(0, "msg_0", "text.delta", block_index=0, delta=" closed")
    of(0, "msg_0", "text.delta", block_index=1, delta="missing")
    of(0, "msg_0", "text.added", block_index=2, item=text("begun, "))
    of(0, "msg_0", "text.added", block_index=2, item=text("taken"))
    of(0, "msg_0", "refusal.delta", block_index=2, delta="wrong kind")
    of(0, "msg_0", "refusal.done", block_index=2, item={"type": "refusal", "refusal": "wrong"})
    of(0, "msg_0", "image.delta", block_index=2, partial_image_index=0,
       item={"type": "image", "image_url": {"url": "/wrong"}})  # fmt: skip
    of(0, "msg_0", "reasoning_summary_item.added", summary_index=0, item=text("wrong kind"))
    of(0, "msg_0", "text.delta", block_index=2, delta="streamed")
    of(0, "msg_0", "text.done", block_index=1, item=text("came alone"))
    halfway = trace.view()["output"][0]["block_list"]
    of(0, "msg_0", "text.done", block_index=2, item=text("replaced"))
    of(0, "msg_0", "text.done", block_index=2, item=text("too late"))
    of(0, "msg_0", "text.added", block_index=3, item=text("dropped by the shorter list"))
    done(0, type="message", id="msg_0", role="assistant", block_list=[text("given"), text("2nd")])
    of(0, "msg_0", "text.done", block_index=4, item=text("too late"))
    # Blocks of a result stand as they arrived, those of a message by their index (as above). What
    # `done` leaves out is gone, but for the lists.
    added(5, type="tool_result", id="fco_5", call_id="call_1", block_list=[text("a"), text("b")])
    of(5, "fco_5", "text.added", block_index=4, item=text("e"))
    of(5, "fco_5", "data.done", block_index=3, item={"type": "data", "data": "d"})
    of(5, "fco_5", "text.delta", block_index=4, delta="E")
    done(5, type="tool_result", id="fco_5b", call_id="call_2")
    added(6, type="tool_call", id="fc_6", call_id="call_6", name="x", kind="mcp", status="failed")
    bare = trace.view()["output"][-1]
    done(6, type="tool_call", id="fc_6", call_id="call_6", name="x")
    run.send("progress", call_id="call_6", current=1)
    # The rest of a task's life.
    run.send("step.finished", step_index=0)
    run.send("step.started", step_index=4, name="fifth")
    run.send("step.started", step_index=0, name="first")
    run.send("step.started", step_index=0, name="taken")
    run.send("step.finished", step_index=0)
    run.send("step.finished", step_index=0)
    run.send("input_received", request_id="req_0")
    run.send("input_required", requests=[{"id": "req_1", "kind": "input"}])
    again = [{"id": "req_1", "kind": "approval"}, {"id": "req_2", "kind": "input"}]
    run.send("input_required", requests=again)
    run.send("input_received", request_id="req_1")
    run.send("reference.imported", reference_id=1, source_task_id="a", source_reference_id=1)
    run.send("reference.imported", reference_id=1, source_task_id="b", source_reference_id=2)
    run.send("agent.switched", agent="b")
    run.send("agent.switched", agent="b")
    run.send("structured_output.done", value="first", name="Draft")
    run.send("structured_output.done", value="last")
    run.send("attempt", attempt=7, reason="unknown", superseded=["msg_0", "nothing"])

    assert halfway == [text("given"), text("came alone"), text("begun, streamed")]
    assert trace.view() == {
        "task_id": "run_1",
        "status": "input_required",
        "agent": "b",
        "switches": [
            {"agent": "b", "output_index": 7},
            {"agent": "b", "output_index": 7, "from": "b"},
        ],
        "attempt": 7,
        "output": [
            {
                "type": "tool_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": "find",
                "arguments": '{"a":2}',
                "started": True,
            },
            {
                "type": "message",
                "id": "msg_3",
                "role": "assistant",
                "block_list": [text("whole")],
            },
            {
                "type": "tool_result",
                "id": "fco_5b",
                "call_id": "call_2",
                "block_list": [text("a"), text("b"), text("eE"), {"type": "data", "data": "d"}],
            },
            {
                "type": "tool_call",
                "id": "fc_6",
                "call_id": "call_6",
                "name": "x",
                "arguments": "",
                "progress": {"current": 1},
            },
        ],
        "structured_output": {"value": "last"},
        "requests": [{"id": "req_2", "kind": "input"}],
        "steps": [
            {"name": "first", "depth": 1, "status": "completed"},
            {"name": "fifth", "depth": 0, "status": "in_progress"},
        ],
        "imports": [{"reference_id": 1, "source_task_id": "a", "source_reference_id": 1}],
    }
    assert (bare["kind"], bare["status"]) == ("mcp", "in_progress")
    before_attempt = trace.view(after=len(trace.events) - 1)["output"][0]
    assert before_attempt == {
        "type": "message",
        "id": "msg_0",
        "role": "assistant",
        "block_list": [text("given"), text("2nd")],
    }
