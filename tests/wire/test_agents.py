"""The `agents` format: names, wrapping, isolation, tools, recovery and replay."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.core import events as ev
from tailrace.core.errors import InvalidCursor
from tailrace.core.events import AnyEvent, Event, recorded
from tailrace.core.fold import State
from tailrace.core.items import (
    InputRequest,
    Message,
    RawItem,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from tailrace.core.sse import SseParser
from tailrace.testing.wire_kit import as_recorded, encoded
from tailrace.wire.agents import FORMAT
from tailrace.wire.agents.events import EventReader, StreamGapEvent, StreamingToolContextEvent
from tailrace.wire.base import Frame, InsideEvents, ThreadFormat
from tailrace.wire.formats import FORMATS
from tests.traces import LOGS, Trace

Json = dict[str, Any]

INTERNAL = {
    "run_item_stream_event",
    "raw_response_event",
    "agent_updated_stream_event",
    "run_items_superseded_event",
}
DIRECT = {"notify_stream_event", "tool_stream_start_event", "tool_stream_end_event"}


def events_of(trace: Trace) -> list[AnyEvent]:
    return [event for event, _ in trace.events]


def trace_named(name: str) -> list[AnyEvent]:
    (found,) = (events_of(trace) for trace in LOGS if trace.name == name)
    return found


def bodies(frames: list[Frame]) -> list[Json]:
    found = []
    for frame in SseParser().feed(b"".join(frames)):
        body = json.loads(frame.data)
        assert frame.event == "message"
        assert body["type"] == body["event_type"]
        found.append(body)
    return found


def sent(events: list[AnyEvent]) -> list[Json]:
    return bodies([frame for each in encoded(FORMAT, events) for frame in each])


def opened(events: list[AnyEvent]) -> list[Json]:
    state = State()
    for event in events:
        state.absorb(event)
    return bodies(FORMAT.open(state)[1])


def log(*events: Event) -> list[AnyEvent]:
    """A run of these events, created and in progress before them."""
    whole = [ev.TaskCreated(task_id="r", agent="a"), ev.TaskInProgress(task_id="r"), *events]
    return [recorded(event, number) for number, event in enumerate(whole, 1)]


def call(index: int, call_id: str, **more: Any) -> list[Event]:
    ident = f"fc_{index}"
    made = {"id": ident, "call_id": call_id, "name": "look", **more}
    return [
        ev.OutputItemAdded(task_id="r", output_index=index, item=ToolCall(**made, arguments="")),
        ev.ArgumentsDone(task_id="r", item_id=ident, output_index=index, arguments="{}"),
        ev.OutputItemDone(task_id="r", output_index=index, item=ToolCall(**made, arguments="{}")),
    ]


def started(index: int) -> Event:
    return ev.ToolCallStarted(task_id="r", item_id=f"fc_{index}", output_index=index)


def of_type(found: list[Json], *types: str) -> list[Json]:
    return [one for one in found if one["type"] in types]


def unwrapped(found: list[Json]) -> dict[str, list[Json]]:
    """The internal events of each task, by the task's id; the run's own are under `""`."""
    tasks: dict[str, list[Json]] = {}
    for one in found:
        if one["type"] == "streaming_tool_context_event":
            tasks.setdefault(one["ancestry"][-1]["task_id"], []).append(one["internal_event"])
        elif one["type"] in INTERNAL:
            tasks.setdefault("", []).append(one)
    return tasks


# --- shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("trace", LOGS, ids=lambda trace: trace.name)
def test_an_event_of_a_sub_agent_is_wrapped_once_and_the_others_never(trace: Trace) -> None:
    for one in sent(events_of(trace)):
        if one["type"] == "streaming_tool_context_event":
            assert one["internal_event"]["type"] in INTERNAL
            assert one["internal_event"]["type"] == one["internal_event"]["event_type"]
            innermost = one["ancestry"][-1]
            assert one["tool_name"] == innermost["tool_name"]
            assert one["tool_call_id"] == innermost["tool_call_id"]
        else:
            assert one["type"] in INTERNAL | DIRECT


@pytest.mark.parametrize("trace", LOGS, ids=lambda trace: trace.name)
def test_the_raw_events_of_the_run_are_its_responses_stream(trace: Trace) -> None:
    events = events_of(trace)
    if any(isinstance(event, ev.TaskAttempt) and event.superseded for event in events):
        return
    wire = FORMATS["openai-responses"]
    frames = [frame for each in encoded(wire, events) for frame in each]
    data = [frame.data for frame in SseParser().feed(b"".join(frames))]
    expected = [json.loads(one) for one in data if one != "[DONE]"]
    own = of_type(unwrapped(sent(events)).get("", []), "raw_response_event")
    assert [{**one["data"], "sequence_number": 0} for one in own] == [
        {**one, "sequence_number": 0} for one in expected
    ]


@pytest.mark.parametrize("trace", LOGS, ids=lambda trace: trace.name)
def test_each_tool_that_starts_ends_once_by_the_end_of_its_run(trace: Trace) -> None:
    found = sent(events_of(trace))
    keys = {
        name: sorted(
            (len(one["ancestry"]), one["tool_call_id"], one["tool_name"])
            for one in of_type(found, f"tool_stream_{name}_event")
        )
        for name in ("start", "end")
    }
    last = events_of(trace)[-1]
    if isinstance(last, ev.TERMINAL) and not any(
        isinstance(event, ev.TaskAttempt) for event in events_of(trace)
    ):
        assert keys["start"] == keys["end"]


@pytest.mark.parametrize("trace", LOGS, ids=lambda trace: trace.name)
def test_a_client_that_joins_late_gets_the_run_items_that_count(trace: Trace) -> None:
    events = events_of(trace)

    def items(found: list[Json]) -> dict[str, list[Json]]:
        tasks = {}
        for task_id, internal in unwrapped(found).items():
            lost = of_type(internal, "run_items_superseded_event")
            taken_back = {ident for one in lost for ident in one["item_ids"]}
            made = [one["item"] for one in of_type(internal, "run_item_stream_event")]
            kept = [item for item in made if item["raw_item"]["id"] not in taken_back]
            tasks[task_id] = sorted(kept, key=json.dumps)
        return tasks

    assert items(opened(events)) == items(sent(events))


@pytest.mark.parametrize("trace", LOGS, ids=lambda trace: trace.name)
def test_every_frame_reads_as_a_typed_event(trace: Trace) -> None:
    frames = [frame for each in encoded(FORMAT, events_of(trace)) for frame in each]
    whole = b"".join(frames)
    reader = EventReader()
    found = [one for start in range(0, len(whole), 100) for one in reader.feed(whole[start:][:100])]
    assert [one.type for one in found] == [one["type"] for one in bodies(frames)]
    assert [one.event_type for one in found] == [one.type for one in found]


# --- sub-agents -----------------------------------------------------------------------------------


def test_ancestry_names_each_tool_from_the_run_to_the_innermost() -> None:
    events = trace_named("nested_agents")
    deepest = max(
        (one for one in sent(events) if one.get("ancestry")), key=lambda one: len(one["ancestry"])
    )
    assert len(deepest["ancestry"]) >= 2
    created = [event for event in events if isinstance(event, ev.TaskCreated)]
    parents = {event.task_id: event.parent_task_id for event in created}
    for outer, inner in zip(deepest["ancestry"], deepest["ancestry"][1:], strict=False):
        assert parents[inner["task_id"]] == outer["task_id"]
    assert deepest["ancestry"][0]["tool_name"]


def test_nothing_of_a_sub_agent_is_an_item_of_the_conversation() -> None:
    found = unwrapped(sent(trace_named("s0_subagent")))
    names = [one["name"] for one in of_type(found[""], "run_item_stream_event")]
    assert names == [
        "reasoning_item_created",
        "tool_called",
        "tool_output",
        "message_output_created",
    ]
    (output,) = (one["item"] for one in found[""] if one.get("name") == "tool_output")
    assert output["raw_item"]["type"] == "function_call_output"
    assert output["output"] == output["raw_item"]["output"]
    (child,) = (internal for task_id, internal in found.items() if task_id)
    assert child[0]["new_agent"] == {"name": "WeatherAgent"}
    assert child[-1]["data"]["type"] == "response.completed"


def test_a_handoff_says_who_speaks_and_who_made_each_item() -> None:
    events = log(
        *call(0, "c"),
        ev.AgentSwitched(task_id="r", agent="b"),
        *call(1, "d"),
        ev.AgentSwitched(task_id="r", agent="c"),
    )
    for found in (sent(events), opened(events)):
        spoke = [
            one["new_agent"]["name"] if "new_agent" in one else one["item"]["agent"]["name"]
            for one in of_type(found, "agent_updated_stream_event", "run_item_stream_event")
        ]
        assert spoke == ["a", "a", "b", "b", "c"]


# --- tools ----------------------------------------------------------------------------------------


def test_a_tool_starts_with_its_own_event_and_ends_with_its_result() -> None:
    result = ToolResult(id="o", call_id="c")
    events = log(
        *call(0, "c"),
        started(0),
        ev.OutputItemAdded(task_id="r", output_index=1, item=result),
        ev.OutputItemDone(task_id="r", output_index=1, item=result),
    )
    last = [(one["type"], one.get("status")) for one in sent(events)][-5:]
    assert ("tool_stream_start_event", None) in last
    assert ("tool_stream_end_event", "completed") in last
    assert len(of_type(sent(events), *DIRECT)) == 2
    assert [one["type"] for one in of_type(opened(events), *DIRECT)] == [
        "tool_stream_start_event",
        "tool_stream_end_event",
    ]


def test_a_tool_that_the_end_of_the_run_cuts_has_ended_incomplete() -> None:
    result = ToolResult(id="o", call_id="d")
    events = log(
        *call(0, "c"),
        started(0),
        *call(1, "d"),
        ev.OutputItemAdded(task_id="r", output_index=2, item=result),
        ev.TaskCancelled(task_id="r"),
    )
    ends = of_type(sent(events), "tool_stream_end_event")
    assert ends[0]["status"] == "incomplete"
    assert [one["tool_call_id"] for one in ends] == ["c", "d"]
    late = of_type(opened(events), "tool_stream_end_event")
    assert sorted(late, key=json.dumps) == sorted(ends, key=json.dumps)


def test_a_free_form_call_is_a_custom_tool_call_and_a_raw_item_is_nothing() -> None:
    raw = RawItem(id="x", source="openai_responses", raw={"type": "hologram"})
    events = log(
        *call(0, "c", kind="custom"),
        ev.OutputItemAdded(task_id="r", output_index=1, item=raw),
        ev.OutputItemDone(task_id="r", output_index=1, item=raw),
    )
    (item,) = (one["item"] for one in of_type(sent(events), "run_item_stream_event"))
    assert item["raw_item"] == {
        "type": "custom_tool_call",
        "id": "fc_0",
        "call_id": "c",
        "name": "look",
        "status": "completed",
        "input": "{}",
    }


# --- notices --------------------------------------------------------------------------------------


def test_notices_progress_and_questions_are_notifications() -> None:
    requests = [InputRequest(id="q", kind="input"), InputRequest(id="p", kind="input", message="?")]
    events = log(
        *call(0, "c"),
        started(0),
        ev.Notice(task_id="r", message="Hm.", level="warning", call_id="c", data={"x": 1}),
        ev.Progress(task_id="r", call_id="c", current=3, total=12),
        ev.Progress(task_id="r", message="half"),
        ev.TaskInputRequired(task_id="r", requests=requests),
    )
    live = of_type(sent(events), "notify_stream_event")
    assert [one["data"] for one in live] == [
        *("Hm.", "3/12", "half"),
        *("The run waits for people.", "?"),
    ]
    assert live[0] == {
        "type": "notify_stream_event",
        "event_type": "notify_stream_event",
        "data": "Hm.",
        "level": "warning",
        "details": {"x": 1},
        "progress": None,
        "request": None,
        "tool_name": "look",
        "tool_call_id": "c",
        "ancestry": [],
    }
    assert live[1]["progress"] == {"current": 3, "total": 12}
    assert live[3]["request"]["id"] == "q"
    opening = opened([*events[:4], *events[5:]])  # the call is still open
    assert opening[0]["type"] == "agent_updated_stream_event"
    late = of_type(opened(events), "notify_stream_event")
    assert sorted(late, key=json.dumps) == sorted(live, key=json.dumps)


def test_a_notice_of_a_sub_agent_is_not_wrapped_and_names_the_tool_around_it() -> None:
    result = ToolResult(id="o", call_id="c")
    events = log(
        *call(0, "c"),
        ev.OutputItemAdded(task_id="r", output_index=1, item=result),
        ev.TaskCreated(task_id="c", parent_task_id="r", call_id="c", agent="b"),
        ev.Notice(task_id="c", message="Hm."),
    )
    notice = sent(events)[-1]
    assert (notice["type"], notice["data"]) == ("notify_stream_event", "Hm.")
    assert (notice["tool_name"], notice["tool_call_id"]) == ("look", "c")
    assert notice["ancestry"] == [{"tool_name": "look", "tool_call_id": "c", "task_id": "c"}]


# --- recovery -------------------------------------------------------------------------------------


def lost(task_id: str = "r") -> list[Event]:
    """A kept reasoning, then a message that a lost worker cut, and the message after it."""
    kept, half, whole = (
        Reasoning(id="rs"),
        Message(id="m1", role="assistant"),
        Message(id="m2", role="assistant"),
    )
    cut = Message(id="m1", role="assistant", status="incomplete")
    place: Json = {"task_id": task_id, "item_id": "m2", "output_index": 2, "block_index": 0}
    return [
        ev.OutputItemAdded(task_id=task_id, output_index=0, item=kept),
        ev.OutputItemDone(task_id=task_id, output_index=0, item=kept),
        ev.OutputItemAdded(task_id=task_id, output_index=1, item=half),
        ev.OutputItemDone(task_id=task_id, output_index=1, item=cut),
        ev.TaskAttempt(task_id=task_id, attempt=2, reason="worker_lost", superseded=["m1"]),
        ev.OutputItemAdded(task_id=task_id, output_index=2, item=whole),
        ev.TextDone(**place, item=Text(text="Yes.")),
        ev.OutputItemDone(task_id=task_id, output_index=2, item=whole),
    ]


def test_a_lost_item_is_taken_back_and_the_response_begins_again_without_it() -> None:
    found = sent(log(*lost(), ev.TaskCompleted(task_id="r")))
    (taken,) = of_type(found, "run_items_superseded_event")
    assert taken["item_ids"] == ["m1"]
    raw = [one["data"] for one in of_type(found, "raw_response_event")]
    names = [one["type"] for one in raw]
    assert names.count("response.created") == 2
    again = names.index("response.created", 1)
    assert names[again - 1] == "response.failed"
    assert names[-1] == "response.completed"
    done = [one["item"]["id"] for one in raw[again:] if one["type"] == "response.output_item.done"]
    assert done == ["rs", "m2"]
    assert [item["id"] for item in raw[-1]["response"]["output"]] == ["rs", "m2"]


def test_an_attempt_that_takes_nothing_back_changes_nothing() -> None:
    attempt = ev.TaskAttempt(task_id="r", attempt=2, reason="worker_lost")
    assert sent(log(attempt)) == sent(log())


# --- streams of other writers ---------------------------------------------------------------------


def test_events_without_a_task_are_skipped_and_an_implied_run_is_shown() -> None:
    orphan = ev.TaskCreated(task_id="x", parent_task_id="nobody", sequence_number=1)
    assert sent([orphan]) == []
    result = ToolResult(id="o", call_id="c")
    implied = [ev.OutputItemDone(task_id="r", output_index=0, item=result)]
    found = [one["type"] for one in sent(list(implied))]
    assert found == [
        "agent_updated_stream_event",
        "raw_response_event",
        "tool_stream_start_event",
        "tool_stream_end_event",
        "run_item_stream_event",
    ]


def test_an_event_that_does_not_fit_begins_an_implied_run_only() -> None:
    delta = ev.TextDelta(task_id="r", item_id="m", output_index=0, block_index=0, delta="x")
    assert [one["type"] for one in sent([delta])] == ["agent_updated_stream_event"]


def test_a_sub_agent_that_names_no_call_is_inside_a_tool_without_a_name() -> None:
    events = log(ev.TaskCreated(task_id="k", parent_task_id="r", agent="b"))
    for found in (sent(events), opened(events)):
        (child,) = (one for one in found if "new_agent" in one.get("internal_event", ()))
        assert (child["tool_name"], child["tool_call_id"]) == ("", "k")


# --- cursors --------------------------------------------------------------------------------------


def test_a_gap_has_no_cursor_where_the_state_follows() -> None:
    state = State()
    assert FORMAT.gap(state, 1, "trimmed").startswith(b"id: 0\n")
    for event in log():
        state.absorb(event)
    gap = FORMAT.gap(state, 1, "trimmed")
    assert gap.startswith(b"data: ")
    (read,) = EventReader().feed(gap)
    assert read == StreamGapEvent(reason="trimmed")


def test_it_resumes_inside_events_and_streams_threads() -> None:
    assert isinstance(FORMAT, InsideEvents)
    assert isinstance(FORMAT, ThreadFormat)
    frames = [frame for each in encoded(FORMAT.in_thread(4), log()) for frame in each]
    assert frames[0].startswith(b"id: 4:1-1.1\n")
    assert FORMAT.in_thread(4).preamble() == b""
    assert FORMAT.preamble() == b"retry: 1000\n\n"
    assert FORMAT.at(State()).close("enough") == []


def test_it_resumes_inside_a_replay() -> None:
    first, second = as_recorded(log())
    before, after = State(), State()
    before.absorb(first.event)
    for one in (first, second):
        after.absorb(one.event)
    _, opening = FORMAT.open(after)
    assert opening[0].startswith(b"id: 1-2.o1\n")
    assert FORMAT.resume(before, second, FORMAT.cursor("1-2.o1"))[1] == opening[1:]
    with pytest.raises(InvalidCursor, match="has 3 frames"):
        FORMAT.resume(before, second, FORMAT.cursor("1-2.o3"))
    with pytest.raises(InvalidCursor):
        FORMAT.cursor("0.1")


def test_wrapped_events_are_typed_inside_too() -> None:
    frames = [frame for each in encoded(FORMAT, trace_named("s0_subagent")) for frame in each]
    wrapped = [
        one
        for one in EventReader().feed(b"".join(frames))
        if isinstance(one, StreamingToolContextEvent)
    ]
    assert {one.internal_event.type for one in wrapped} == INTERNAL - {"run_items_superseded_event"}
