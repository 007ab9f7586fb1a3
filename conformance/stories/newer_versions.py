"""Streams of a newer version of the protocol, on which all readers agree: PROTOCOL.md section 4."""

from __future__ import annotations

from conformance.authoring import Dict, Trace, story


@story(legal=False)
def unknown_events(trace: Trace) -> None:
    """Events, items, blocks, annotations and fields of a newer version: kept, and never fatal.

    An unknown item is a raw item; everything else unknown is kept whole in `unknown`, also after
    the end, and creates no task. Unknown fields are ignored.
    """
    run = trace.task("run_1").created(shoe_size=43).begin()
    run.send("hologram.delta", delta="∴", nested={"a": [1, None]})
    trace.send("custom.thing", "call_404")
    beacon = {"type": "beacon", "id": "bcn_1", "frames": [], "status": "in_progress"}
    run.send("output_item.added", output_index=0, item=beacon)
    opened = trace.view()["output"]
    lit = {"type": "beacon", "id": "bcn_1", "frames": [1, {"x": None}], "status": "incomplete"}
    run.send("output_item.done", output_index=0, item=lit)
    nameless = {"type": "beacon", "status": "blinking"}
    run.send("output_item.done", output_index=1, item=nameless)
    known = {"type": "raw", "id": "raw_3", "raw": {"type": "x"}, "source": "elsewhere", "hue": 1}
    run.send("output_item.done", output_index=2, item=known)
    run.items = 3
    message = run.message("msg_4", mood="bright")
    text = {"type": "text", "text": "Hi.", "language": "en"}
    message.send("text.done", block_index=0, item=text, logprobs=[])
    message.lists["block_list"].append({"type": "text", "text": "Hi."})
    # Blocks and annotations without a meaning here: the event is kept, the message stays as it is.
    message.send("video.done", block_index=1, item={"type": "video", "url": "/v"})
    stranger = {"type": "hologram", "depth": 3}
    blocks = [{"type": "text", "text": "Hi."}, stranger]
    head = {"type": "message", "id": "msg_4", "role": "assistant"}
    run.send("output_item.done", output_index=3, item={**head, "block_list": blocks})
    part = message.open_text()
    part.delta("Bye.")
    message.send("text.annotation.added", block_index=1, annotation_index=0, annotation=stranger)
    part.send("done", item={**part.block, "annotations": [stranger]})
    still_open = trace.view()["output"][3]
    part.done()
    message.done()
    run.completed()
    run.send("hologram.done", finished=True)

    raw = {"type": "raw", "id": "bcn_1"}
    assert opened == [{**raw, "raw": beacon, "status": "in_progress"}]
    view = trace.view()
    texts = [{"type": "text", "text": "Hi."}, {"type": "text", "text": "Bye."}]
    assert still_open == {**head, "block_list": texts, "status": "in_progress"}
    assert view["output"] == [
        {**raw, "raw": lit, "status": "incomplete"},
        {"type": "raw", "id": "", "raw": nameless},
        {"type": "raw", "id": "raw_3", "raw": {"type": "x"}, "source": "elsewhere"},
        {**head, "block_list": texts},
    ]
    assert "shoe_size" not in view
    assert "tasks" not in view
    kept = [(event["type"], event["sequence_number"]) for event in view["unknown"]]
    assert kept == [
        ("task.hologram.delta", 3),
        ("custom.thing", 4),
        ("task.video.done", 11),
        ("task.output_item.done", 12),
        ("task.text.annotation.added", 15),
        ("task.text.done", 16),
        ("task.hologram.done", 20),
    ]
    assert view["unknown"][0] == trace.events[2]  # whole


@story(legal=False)
def new_executor(trace: Trace) -> None:
    """A call whose `executor` has no meaning here: its events are kept, and the run goes on."""
    run = trace.task("run_1").created().begin()
    call = {"type": "tool_call", "id": "fc_1", "call_id": "call_1", "name": "look"}
    run.send("output_item.added", output_index=0, item={**call, "executor": "edge"})
    place: Dict = {"item_id": "fc_1", "output_index": 0}
    run.send("tool_call_arguments.delta", **place, delta="{}")
    run.send("tool_call_arguments.done", **place, arguments="{}")
    done = {**call, "arguments": "{}", "executor": "edge"}
    run.send("output_item.done", output_index=0, item=done)
    run.items = 1
    run.says("msg_1", "Looked.")
    run.completed()

    view = trace.view()
    assert [item["id"] for item in view["output"]] == ["msg_1"]
    assert view["unknown"] == [trace.events[2], trace.events[5]]
    assert view["status"] == "completed"


@story(legal=False)
def new_request_kind(trace: Trace) -> None:
    """A request whose `kind` has no meaning here is kept; its task does not wait for it."""
    run = trace.task("run_1").created().begin()
    run.send("input_required", requests=[{"id": "r1", "kind": "vote", "message": "Which?"}])
    waiting = trace.view()
    run.send("input_received", request_id="r1", value="this")
    run.says("msg_1", "This.")
    run.completed()

    assert waiting["status"] == "in_progress"
    assert waiting["unknown"] == [trace.events[2]]
    assert "requests" not in waiting


@story(legal=False)
def new_item_status(trace: Trace) -> None:
    """An item that ends with a `status` without meaning here stays open until its task ends."""
    run = trace.task("run_1").created().begin()
    message = run.message("msg_1")
    message.text("Half.")
    done = {"type": "message", "id": "msg_1", "role": "assistant", "status": "paused"}
    run.send("output_item.done", output_index=0, item=done)
    still_open = trace.view()["output"][0]
    run.completed()

    assert still_open["status"] == "in_progress"
    view = trace.view()
    assert view["output"][0]["status"] == "incomplete"
    assert view["unknown"] == [trace.events[4]]


@story(legal=False)
def new_step_status(trace: Trace) -> None:
    """A step that ends with a `status` without meaning here stays open; its event is kept."""
    run = trace.task("run_1").created().begin()
    run.finish(run.step("search"), status="skipped")
    run.says("msg_1", "Found.")
    run.completed()

    view = trace.view()
    assert view["steps"] == [{"name": "search", "depth": 0, "status": "in_progress"}]
    assert view["unknown"] == [trace.events[3]]
    assert view["status"] == "completed"
