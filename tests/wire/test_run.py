"""The run envelope: its order on every trace, each field, and a cut between any two frames."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given

from tailrace.core import events as ev
from tailrace.core.errors import InvalidCursor
from tailrace.core.events import AnyEvent, Event, Recorded, recorded
from tailrace.core.fold import State
from tailrace.core.items import (
    Data,
    ErrorInfo,
    InputRequest,
    Message,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from tailrace.core.snapshot import restore, save
from tailrace.core.sse import SseParser
from tailrace.testing.strategies import WrittenRun, legal_runs
from tailrace.testing.wire_kit import as_recorded, encoded
from tailrace.wire.base import Cursor, Frame, InsideEvents, ThreadFormat
from tailrace.wire.frame_cursors import OPENING
from tailrace.wire.run import FORMAT, RunFormat
from tailrace.wire.run.events import RunFormatEvent
from tailrace.wire.run.outputs import SUMMARY_CHARACTERS
from tests.effort import CUTS, sample
from tests.traces import LOGS, Trace

READ: Any = RunFormatEvent


def events_of(trace: Trace) -> list[AnyEvent]:
    return [event for event, _ in trace.events]


def log(*events: Event) -> list[AnyEvent]:
    """A run of these events, created and in progress before them."""
    whole = [ev.TaskCreated(task_id="r", thread_id="t"), ev.TaskInProgress(task_id="r"), *events]
    return [recorded(event, number) for number, event in enumerate(whole, 1)]


def envelopes(frames: list[Frame]) -> list[dict[str, Any]]:
    """The data of the frames; `event:` is the type."""
    found = []
    for frame in SseParser().feed(b"".join(frames)):
        body = json.loads(frame.data)
        assert list(body) == ["type", "threadId", "runId", "data"]
        assert frame.event == body["type"]
        # All that is sent is in the types of /openapi.json.
        assert msgspec.to_builtins(msgspec.convert(body, READ)) == body
        found.append(body)
    return found


def envelopes_of(events: list[AnyEvent]) -> list[dict[str, Any]]:
    return envelopes([frame for each in encoded(FORMAT, events) for frame in each])


def types(events: list[AnyEvent]) -> list[str]:
    return [one["type"] for one in envelopes_of(events)]


def only(events: list[AnyEvent], kind: str) -> dict[str, Any]:
    """The data of the only event of a type."""
    (found,) = [one["data"] for one in envelopes_of(events) if one["type"] == kind]
    return dict(found)


def message(index: int, text: str, ident: str | None = None, **more: Any) -> list[Event]:
    """A message that comes in one block."""
    ident = ident or f"msg_{index}"
    block = Text(text=text)
    return [
        ev.OutputItemAdded(
            task_id="r",
            output_index=index,
            item=Message(id=ident, role="assistant", block_list=[]),
        ),
        ev.TextDone(task_id="r", item_id=ident, output_index=index, block_index=0, item=block),
        ev.OutputItemDone(
            task_id="r",
            output_index=index,
            item=Message(id=ident, role="assistant", block_list=[block], **more),
        ),
    ]


def call(index: int, arguments: str = "{}", **more: Any) -> list[Event]:
    added = ToolCall(id="fc", call_id="c", name="look", arguments="")
    done = ToolCall(id="fc", call_id="c", name="look", arguments=arguments, **more)
    return [
        ev.OutputItemAdded(task_id="r", output_index=index, item=added),
        ev.ArgumentsDone(task_id="r", item_id="fc", output_index=index, arguments=arguments),
        ev.OutputItemDone(task_id="r", output_index=index, item=done),
    ]


def result(index: int, blocks: list[Any], **more: Any) -> list[Event]:
    item = ToolResult(id="fco", call_id="c", block_list=blocks, **more)
    return [
        ev.OutputItemAdded(
            task_id="r",
            output_index=index,
            item=ToolResult(id="fco", call_id="c", block_list=[]),
        ),
        ev.OutputItemDone(task_id="r", output_index=index, item=item),
    ]


# --- order ----------------------------------------------------------------------------------------


def check_order(found: list[dict[str, Any]], *, ended: bool) -> None:
    """What every client may rely on, whatever the run does."""
    names = [one["type"] for one in found]
    assert names[0] == "run.started"
    assert names.count("run.started") == 1
    assert [name for name in names if name in ("run.finished", "run.error")] == (
        [names[-1]] if ended else []
    )
    steps: list[str] = []
    texts: dict[str, str] = {}
    open_texts: set[str] = set()
    calls: dict[str, str] = {}
    after = {"tool.args": "tool.start", "tool.end": "tool.args"}
    for one in found:
        kind, data = one["type"], one["data"]
        if kind == "step.start":
            steps.append(data["stepName"])
        elif kind == "step.finish":
            assert steps.pop() == data["stepName"]
        elif kind == "text.start":
            assert data["messageId"] not in texts
            texts[data["messageId"]] = ""
            open_texts.add(data["messageId"])
        elif kind == "text.delta":
            assert data["messageId"] in open_texts
            texts[data["messageId"]] += data["delta"]
        elif kind == "text.end":
            open_texts.remove(data["messageId"])
            assert set(data) == TEXT_END
            assert set(data["workerAgentOutput"]) >= WORKER_OUTPUT
        elif kind == "tool.start":
            calls[data["messageId"]] = kind
        elif kind in after:
            assert calls[data["messageId"]] == after[kind]
            calls[data["messageId"]] = kind
        elif kind == "tool.result":
            assert set(data["toolAgentOutput"]) == TOOL_OUTPUT
    if ended:
        assert not open_texts
        assert set(calls.values()) <= {"tool.end"}


TEXT_END = {
    *("messageId", "role", "stage", "workerAgentOutput"),
    *("model", "inputTokens", "outputTokens", "cost", "latencyMs"),
}
WORKER_OUTPUT = {"status", "answer", "key_points", "result_type", "suggested_actions", "error"}
TOOL_OUTPUT = {
    *("tool_name", "tool_call_id", "tool_call_args", "status"),
    *("result_summary", "ui_hints", "attachments"),
}


@pytest.mark.parametrize("trace", LOGS, ids=lambda trace: trace.name)
def test_the_order_holds_in_every_trace(trace: Trace) -> None:
    events = events_of(trace)
    state = State()
    for event in events:
        state.absorb(event)
        opened = envelopes(FORMAT.open(state)[1])
        root = state.root
        if root is not None:
            check_order(opened, ended=root.ended)
    assert root is not None
    check_order(envelopes_of(events), ended=root.ended)


@given(run=legal_runs(max_events=60))
def test_the_order_holds_in_random_runs(run: WrittenRun) -> None:
    events: list[AnyEvent] = [event for event, _ in run]
    state = State()
    for event in events:
        state.absorb(event)
    assert state.root is not None
    check_order(envelopes_of(events), ended=state.root.ended)


@pytest.mark.long(always=True)
@pytest.mark.parametrize("trace", LOGS, ids=lambda trace: trace.name)
def test_a_client_that_is_cut_between_any_two_frames_goes_on_there(trace: Trace) -> None:
    check_cuts(FORMAT, events_of(trace))
    check_cuts(FORMAT.in_thread(3), events_of(trace), "3:")


def check_cuts(wire: RunFormat, events: list[AnyEvent], ids: str = "") -> None:
    log = as_recorded(events)
    frames = [frame for each in encoded(wire, events) for frame in each]
    sent = list(enumerate(SseParser().feed(b"".join(frames)), 1))
    assert all(found.id.startswith(ids) for _, found in sent)
    for cut, found in sample(sent, CUTS // 2):
        assert go_on(wire, log, found.id.removeprefix(ids)) == frames[cut:]
    # The same inside the frames that bring a late joiner to a state.
    state = State()
    for place in range(0, len(log), max(1, len(log) // 5)):
        state = State()
        for one in log[:place]:
            state.absorb(one.event)
        encoder, opening = wire.open(state)
        rest = [frame for one in log[place:] for frame in encoder.encode(one)]
        for cut, found in enumerate(SseParser().feed(b"".join(opening)), 1):
            assert go_on(wire, log, found.id.removeprefix(ids)) == [*opening[cut:], *rest]


def go_on(wire: RunFormat, log: list[Recorded], text: str) -> list[Frame]:
    """What the server does with a cursor."""
    cursor = wire.cursor(text)
    state = State()
    for one in log[: cursor.seq - (0 if cursor.sub is None else 1)]:
        state.absorb(one.event)
    # Through bytes, as the store keeps it.
    state = restore(save(state, private=True))
    frames: list[Frame] = []
    if cursor.sub is None:
        encoder = wire.at(state)
    else:
        encoder, frames = wire.resume(state, log[cursor.seq - 1], cursor)
    return [*frames, *(frame for one in log[cursor.seq :] for frame in encoder.encode(one))]


# --- fields ---------------------------------------------------------------------------------------


def test_a_step_that_was_cut_says_so() -> None:
    events = log(
        ev.StepStarted(task_id="r", step_index=0, name="router"),
        ev.StepFinished(task_id="r", step_index=0, status="incomplete"),
        ev.TaskCompleted(task_id="r"),
    )
    assert only(events, "step.finish") == {"stepName": "router", "status": "incomplete"}


def test_the_end_of_a_text_waits_for_what_is_learnt_of_it() -> None:
    value = {"status": "partial_success", "answer": "short", "key_points": ["one", 2]}
    events = log(
        ev.StepStarted(task_id="r", step_index=0, name="router"),
        *message(0, "A long answer."),
        ev.Notice(task_id="r", message="nothing that moves it on"),
        ev.StructuredOutputDone(task_id="r", value=value),
        ev.TaskUsage(
            task_id="r",
            usage=Usage(model="m", input_tokens=3, output_tokens=4, cost=0.5, latency_ms=7),
        ),
        ev.StepFinished(task_id="r", step_index=0),
        ev.TaskCompleted(task_id="r"),
    )
    assert types(events) == [
        *("run.started", "step.start", "text.start", "text.delta", "text.end", "step.finish"),
        "run.finished",
    ]
    assert only(events, "text.end") == {
        "messageId": "msg_0",
        "role": "assistant",
        "stage": "router",
        "workerAgentOutput": {
            "status": "partial_success",
            "answer": "short",
            "key_points": ["one"],
            "result_type": "unknown",
            "suggested_actions": [],
            "error": None,
        },
        "model": "m",
        "inputTokens": 3,
        "outputTokens": 4,
        "cost": 0.5,
        "latencyMs": 7,
    }


@pytest.mark.parametrize(
    "next_one",
    [
        ev.StepStarted(task_id="r", step_index=0, name="s"),
        ev.TaskInputRequired(task_id="r", requests=[InputRequest(id="q", kind="input")]),
        ev.OutputItemAdded(
            task_id="r", output_index=1, item=Message(id="m", role="assistant", block_list=[])
        ),
        ev.TaskAttempt(task_id="r", attempt=2, reason="provider"),
        ev.TaskIncomplete(task_id="r", reason="max_output_tokens"),
    ],
)
def test_whatever_moves_the_run_on_ends_the_text_first(next_one: Event) -> None:
    before = types(log(*message(0, "x")))
    assert before[-1] == "text.delta"
    after = types(log(*message(0, "x"), next_one))
    assert after[len(before)] == "text.end"


def test_an_answer_without_structure_is_its_text_and_nothing_is_made_up() -> None:
    events = log(*message(0, "Hello."), ev.TaskCompleted(task_id="r"))
    found = only(events, "text.end")
    assert found["workerAgentOutput"] == {
        "status": "success",
        "answer": "Hello.",
        "key_points": [],
        "result_type": "unknown",
        "suggested_actions": [],
        "error": None,
    }
    used = ("model", "inputTokens", "outputTokens", "cost", "latencyMs")
    assert [found[name] for name in used] == [None] * 5
    assert [(one["threadId"], one["runId"]) for one in envelopes_of(events)] == [("t", "r")] * 5


@pytest.mark.parametrize("value", ["text", None, ["list"], {"status": "great", "answer": 5}])
def test_structured_output_of_another_shape_changes_nothing(value: Any) -> None:
    events = log(
        *message(0, "Hello."),
        ev.StructuredOutputDone(task_id="r", value=value),
        ev.TaskCompleted(task_id="r"),
    )
    output = only(events, "text.end")["workerAgentOutput"]
    assert (output["status"], output["answer"]) == ("success", "Hello.")
    assert "ui_hints" not in output


def test_an_output_is_rich_where_a_ui_mode_is_set() -> None:
    shown = {"ui_mode": "map", "ui_state": {}, "actions": []}
    for hints, expected in (
        ({"ui_hints": {"ui_mode": "map"}}, shown),
        ({"ui": {"ui_mode": "map"}}, shown),
        ({"ui_hints": {"ui_mode": "map"}, "ui": {"ui_mode": "list"}}, shown),
        ({"ui_hints": {"ui_mode": ""}, "ui": {"ui_mode": "map"}}, shown),
        ({"ui_hints": {"ui_mode": ""}}, None),
        ({"ui_hints": "map", "ui_mode": "map"}, None),
    ):
        value = {**hints, "error": {"code": "e", "message": "m", "secret": 1}}
        events = log(
            *message(0, "x"),
            ev.StructuredOutputDone(task_id="r", value=value),
            ev.TaskCompleted(task_id="r"),
        )
        output = only(events, "text.end")["workerAgentOutput"]
        assert output.get("ui_hints") == expected
        assert output["error"] == {"code": "e", "message": "m"}


@pytest.mark.parametrize(
    ("end", "status", "error", "last"),
    [
        (
            ev.TaskFailed(task_id="r", error=ErrorInfo(code="e", message="It broke.")),
            "failed",
            {"code": "e", "message": "It broke."},
            {"message": "It broke."},
        ),
        (
            ev.TaskCancelled(task_id="r", reason="Enough."),
            "failed",
            {"code": "cancelled", "message": "Enough."},
            {"message": "Enough."},
        ),
        (
            ev.TaskCancelled(task_id="r"),
            "failed",
            {"code": "cancelled", "message": "It was cancelled."},
            {"message": "It was cancelled."},
        ),
        (
            ev.TaskIncomplete(task_id="r", reason="max_output_tokens"),
            "partial_success",
            None,
            {"status": "incomplete", "reason": "max_output_tokens"},
        ),
    ],
)
def test_a_text_that_was_cut_says_so(
    end: Event, status: str, error: Any, last: dict[str, str]
) -> None:
    events = log(*message(0, "Half an ans", status="incomplete"), end)
    output = only(events, "text.end")["workerAgentOutput"]
    assert (output["status"], output["error"], output["answer"]) == (status, error, "Half an ans")
    assert envelopes_of(events)[-1]["data"] == last


def test_a_text_of_a_lost_attempt_is_sent_as_failed_and_another_text_follows() -> None:
    events = log(
        *message(0, "Half", status="incomplete"),
        ev.TaskAttempt(task_id="r", attempt=2, reason="worker_lost", superseded=["msg_0"]),
        *message(1, "Whole."),
        ev.TaskCompleted(task_id="r"),
    )
    outputs = [
        one["data"]["workerAgentOutput"]
        for one in envelopes_of(events)
        if one["type"] == "text.end"
    ]
    assert [(one["status"], one["answer"]) for one in outputs] == [
        ("failed", "Half"),
        ("success", "Whole."),
    ]
    assert outputs[0]["error"]["code"] == "interrupted"


def test_a_call_is_started_given_its_arguments_ended_and_answered() -> None:
    events = log(
        *call(0, '{"city":"Paris"}'),
        *result(1, [Text(text="Sunny."), Text(text="15C.")]),
        ev.TaskCompleted(task_id="r"),
    )
    assert types(events) == [
        *("run.started", "tool.start", "tool.args", "tool.end", "tool.result", "run.finished")
    ]
    place = {"messageId": "fc", "toolCallId": "c", "toolName": "look", "stage": "worker"}
    assert only(events, "tool.start") == place
    assert only(events, "tool.end") == place
    assert only(events, "tool.args") == {**place, "args": {"city": "Paris"}}
    assert only(events, "tool.result") == {
        **place,
        "toolAgentOutput": {
            "tool_name": "look",
            "tool_call_id": "c",
            "tool_call_args": {"city": "Paris"},
            "status": "success",
            "result_summary": "Sunny.\n15C.",
            "ui_hints": None,
            "attachments": None,
        },
    }


@pytest.mark.parametrize(
    ("arguments", "more", "expected"),
    [
        ("", {}, {}),
        ("[1]", {}, None),
        ('{"a":', {}, None),
        ('{"a":1}', {"status": "incomplete"}, None),
        ("[" * 5000, {}, None),
    ],
)
def test_arguments_are_an_object_or_nothing(
    arguments: str, more: dict[str, Any], expected: Any
) -> None:
    assert only(log(*call(0, arguments, **more)), "tool.args")["args"] == expected


def test_a_summary_is_cut_and_an_error_is_what_it_says() -> None:
    long = "x" * (SUMMARY_CHARACTERS + 1)
    output = only(log(*call(0), *result(1, [Text(text=long)])), "tool.result")["toolAgentOutput"]
    assert output["result_summary"] == "x" * (SUMMARY_CHARACTERS - 1) + "…"
    failed = result(1, [], status="failed", error=ErrorInfo(code="e", message="No."))
    output = only(log(*call(0), *failed), "tool.result")["toolAgentOutput"]
    assert (output["status"], output["result_summary"]) == ("failed", "No.")
    data = result(1, [Data(data={"a": [1]})])
    output = only(log(*call(0), *data), "tool.result")["toolAgentOutput"]
    assert output["result_summary"] == '{"a":[1]}'


@pytest.mark.parametrize("trace", LOGS, ids=lambda trace: trace.name)
def test_a_childs_text_never_mixes_into_the_runs(trace: Trace) -> None:
    state = State()
    for event in events_of(trace):
        state.absorb(event)
    assert state.root is not None
    own = {node.id for node in state.root.items.values()}
    found = envelopes_of(events_of(trace))
    assert {one["data"]["messageId"] for one in found if "messageId" in one["data"]} <= own


def test_the_message_of_a_child_is_the_summary_of_its_call() -> None:
    trace = next(trace for trace in LOGS if trace.name == "s0_subagent")
    output = only(events_of(trace), "tool.result")["toolAgentOutput"]
    assert output["result_summary"] == (
        "The weather in Paris is sunny with a temperature of 15C.[^1]"
    )


def test_a_refusal_is_text_too() -> None:
    place: dict[str, Any] = {"task_id": "r", "item_id": "m", "output_index": 0, "block_index": 0}
    item = Message(id="m", role="assistant", block_list=[])
    events = log(
        ev.OutputItemAdded(task_id="r", output_index=0, item=item),
        ev.RefusalAdded(**place, item=Refusal(refusal="I ")),
        ev.RefusalDelta(**place, delta="can't."),
        ev.RefusalDone(**place, item=Refusal(refusal="I can't.")),
    )
    deltas = [one["data"]["delta"] for one in envelopes_of(events) if one["type"] == "text.delta"]
    assert deltas == ["I ", "can't."]


# --- logs of other writers ------------------------------------------------------------------------


def foreign(*events: Event) -> list[str]:
    """The types of the events for a foreign log."""
    return types([recorded(event, number) for number, event in enumerate(events, 1)])


def test_what_came_only_with_an_items_end_is_sent_then() -> None:
    _, _, done = message(0, "All at once.")
    assert foreign(done) == ["run.started", "text.start", "text.delta"]
    added, _, done = message(0, "At the end.")
    assert foreign(added, done) == ["run.started", "text.start", "text.delta"]
    assert foreign(call(0)[2]) == ["run.started", "tool.start", "tool.args", "tool.end"]
    assert foreign(result(0, [])[1]) == ["run.started", "tool.result"]
    empty = ev.OutputItemDone(
        task_id="r", output_index=0, item=Message(id="m", role="assistant", block_list=[])
    )
    assert foreign(added, empty) == ["run.started", "text.start"]


def test_what_the_end_of_a_run_cuts_is_ended_with_it() -> None:
    added, _, _ = message(1, "")
    assert foreign(call(0)[0], added, ev.TaskCompleted(task_id="r")) == [
        *("run.started", "tool.start", "text.start", "tool.args", "tool.end", "text.end"),
        "run.finished",
    ]


def test_what_does_not_fit_is_not_sent() -> None:
    assert foreign(ev.StepFinished(task_id="r", step_index=4)) == ["run.started"]
    stranger = ev.TaskInProgress(task_id="stranger")
    assert foreign(ev.TaskCreated(task_id="r"), stranger) == ["run.started"]
    orphan = ev.TaskCreated(task_id="c", parent_task_id="nobody")
    assert foreign(orphan) == []
    assert FORMAT.open(State())[1] == []


# --- cursors and gaps -----------------------------------------------------------------------------


def test_a_cursor_is_read() -> None:
    assert FORMAT.cursor("0") == Cursor(0)
    assert FORMAT.cursor("7-14") == Cursor(14, epoch=7)
    assert FORMAT.cursor("7-14.2") == Cursor(14, sub=2, epoch=7)
    assert FORMAT.cursor("7-14.o2") == Cursor(14, sub=OPENING + 2, epoch=7)
    assert isinstance(FORMAT, InsideEvents)
    assert isinstance(FORMAT, ThreadFormat)


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "1", "1-1.", ".1", "1-1.0", "1-1.o0", "0.1", "1-0.1", "1-1.oo1", "1-1.x"),
        *("-1", "1-", "1-1.-1", "1-1-1", "1:1"),
    ],
)
def test_an_invalid_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor):
        FORMAT.cursor(text)


def test_a_gap_is_a_cursor_only_where_no_state_follows() -> None:
    state = State()
    for event in log(*message(0, "x")):
        state.absorb(event)
    (frame,) = SseParser().feed(FORMAT.in_thread(2).gap(state, 1, "trimmed"))
    assert (frame.id, frame.event) == ("", "run.gap")
    assert json.loads(frame.data) == {
        "type": "run.gap",
        "threadId": "t",
        "runId": "r",
        "data": {"reason": "trimmed"},
    }
    (frame,) = SseParser().feed(FORMAT.in_thread(2).gap(State(), 1, "deleted", "t"))
    gone = json.loads(frame.data)
    assert (frame.id, gone["runId"], gone["threadId"]) == ("2:0", "", "t")
    assert FORMAT.at(state).close("enough") == []


def test_a_switch_of_the_agent_is_sent_and_a_late_client_gets_the_last() -> None:
    state, events = (
        State(),
        [
            ev.TaskCreated(task_id="r", agent="triage"),
            ev.AgentSwitched(task_id="r", agent="billing", reason="An invoice."),
            ev.AgentSwitched(task_id="r", agent="refunds"),
        ],
    )
    encoder = FORMAT.at(state)
    sent = []
    for found in as_recorded(events):
        sent += encoder.changes(found)
        state.absorb(found.event)
    assert [(one.type, one.data) for one in sent[1:]] == [
        ("agent.switched", {"agent": "billing", "reason": "An invoice."}),
        ("agent.switched", {"agent": "refunds", "reason": None}),
    ]
    assert [one.data for one in FORMAT.at(state).replayed()] == [{}, sent[-1].data]
