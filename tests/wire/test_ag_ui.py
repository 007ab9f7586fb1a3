"""AG-UI: valid by the official models and by the client's rules, wherever a stream is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.core.items import Data, ErrorInfo, InputRequest, Message, ToolCall, ToolResult
from tailrace.testing.wire_kit import as_recorded
from tailrace.wire import ag_ui, openai_responses
from tailrace.wire.base import has_lost
from tests.node import run_node
from tests.traces import TRACES, Trace
from tests.wire.ag_ui_checker import check, read

FORMAT = ag_ui.FORMAT
IDS = [trace.name for trace in TRACES]


def whole(trace: Trace) -> list[bytes]:
    encoder = FORMAT.at(State())
    return [
        frame
        for one in as_recorded([event for event, _ in trace.events])
        for frame in encoder.encode(one)
    ]


@pytest.mark.parametrize("trace", TRACES, ids=IDS)
def test_a_stream_follows_the_models_and_the_order_of_the_client(trace: Trace) -> None:
    events = read(whole(trace))
    state = State()
    for event, _ in trace.events:
        state.absorb(event)
    root = state.root
    ended = root is not None and root.ended
    check(events, complete=ended)


@pytest.mark.parametrize("trace", TRACES, ids=IDS)
def test_a_stream_that_is_closed_anywhere_leaves_nothing_open(trace: Trace) -> None:
    frames: list[bytes] = []
    encoder = FORMAT.at(State())
    for one in as_recorded([event for event, _ in trace.events]):
        frames += encoder.encode(one)
        check(read([*frames, *encoder.close("The server stops.")]), complete=bool(frames))


def test_a_run_without_events_replays_as_nothing() -> None:
    assert ag_ui.FORMAT.open(State())[1] == []


@pytest.mark.long(always=True)
@pytest.mark.parametrize("trace", TRACES, ids=IDS)
def test_a_replay_at_any_place_goes_on_with_the_rest(trace: Trace) -> None:
    recorded = as_recorded([event for event, _ in trace.events])
    state = State()
    for place in range(len(recorded) + 1):
        encoder, frames = FORMAT.open(state)
        for one in recorded[place:]:
            frames = frames + encoder.encode(one)
        check(read(frames), complete=False)
        if place < len(recorded):
            state.absorb(recorded[place].event)


def test_the_clients_own_check_accepts_every_stream_and_every_replay() -> None:
    """`verifyEvents` of `@ag-ui/client`, on whole streams and on those that begin in the middle."""
    streams = [read(whole(trace)) for trace in TRACES]
    for trace in TRACES:
        recorded = as_recorded([event for event, _ in trace.events])
        half, state = len(recorded) // 2, State()
        for one in recorded[:half]:
            state.absorb(one.event)
        encoder, frames = FORMAT.open(state)
        streams.append(
            read([*frames, *(f for one in recorded[half:] for f in encoder.encode(one))])
        )
    found = json.loads(run_node(["ag_ui_verify.mjs"], stdin=json.dumps(streams)))
    refused = [(name, why) for name, why in zip(IDS * 2, found, strict=True) if why is not None]
    assert refused == []


@pytest.mark.parametrize(
    ("given", "sent"),
    [("msg_1", "call_1_msg_1"), ("msg_7_12", "msg_7_12"), ("rs_7", "call_1_rs_7")],
)
def test_an_id_of_a_sub_agent_names_it_unless_it_is_our_own(given: str, sent: str) -> None:
    """Our own ids contain the run's and are unique; the server reads the run from them."""
    log = [
        ev.TaskCreated(task_id="run_7", sequence_number=1),
        ev.TaskCreated(task_id="call_1", parent_task_id="run_7", sequence_number=2),
    ]
    state = State()
    for event in log:
        state.absorb(event)
    item = Message(id=given, role="assistant")
    for task_id, expected in (("run_7", given), ("call_1", sent)):
        added = ev.OutputItemAdded(task_id=task_id, sequence_number=3, output_index=0, item=item)
        [start] = read(FORMAT.at(state).encode(as_recorded([added])[0]))
        assert start["messageId"] == expected


def shown(name: str) -> list[dict[str, Any]]:
    [trace] = [trace for trace in TRACES if trace.name == name]
    return read(whole(trace))


def test_a_run_that_waits_for_people_ends_with_an_interrupt() -> None:
    ends = [event for event in shown("approval_granted") if event["type"] == "RUN_FINISHED"]
    assert [end["outcome"]["type"] for end in ends] == ["interrupt", "success"]
    [interrupt] = ends[0]["outcome"]["interrupts"]
    assert interrupt["reason"] == "approval"


def test_a_call_for_the_client_is_announced_whole_when_the_run_completes() -> None:
    item = ToolCall(id="fc_1", call_id="call_1", name="pick", executor="client")
    place: dict[str, Any] = {"task_id": "run_1", "output_index": 0}
    events = [
        ev.TaskCreated(task_id="run_1"),
        ev.TaskInProgress(task_id="run_1"),
        ev.OutputItemAdded(item=item, **place),
        ev.ArgumentsDelta(item_id="fc_1", delta='{"a": 1}', **place),
        ev.ArgumentsDone(item_id="fc_1", arguments='{"a": 1}', **place),
        ev.OutputItemDone(item=structs.replace(item, arguments='{"a": 1}'), **place),
        ev.TaskCompleted(task_id="run_1"),
    ]
    encoder = FORMAT.at(State())
    frames = [encoder.encode(one) for one in as_recorded(events)]
    assert [len(each) for each in frames] == [1, 0, 0, 0, 0, 0, 4]
    end = read(frames[-1])[-1]
    assert end["outcome"] == {"type": "success", "pendingToolCallIds": ["call_1"]}


def test_a_call_that_a_run_asks_its_client_for_is_announced_with_the_question_and_once() -> None:
    item = ToolCall(id="fc_1", call_id="call_1", name="pick", executor="client")
    result = ToolResult(id="fco_1", call_id="call_1")
    place: dict[str, Any] = {"task_id": "run_1", "output_index": 0}
    below: dict[str, Any] = {"task_id": "run_1", "output_index": 1}
    events = [
        ev.TaskCreated(task_id="run_1"),
        ev.TaskInProgress(task_id="run_1"),
        ev.OutputItemAdded(item=item, **place),
        ev.OutputItemDone(item=structs.replace(item, arguments="{}"), **place),
        ev.TaskInputRequired(
            task_id="run_1", requests=[InputRequest(id="r", kind="input", call_id="call_1")]
        ),
        ev.TaskInputReceived(task_id="run_1", request_id="r", value="red"),
        ev.OutputItemAdded(item=result, **below),
        ev.OutputItemDone(item=result, **below),
        ev.TaskCompleted(task_id="run_1"),
    ]
    encoder, state = FORMAT.at(State()), State()
    live = [frame for one in as_recorded(events) for frame in encoder.encode(one)]
    assert [one["type"] for one in read(live)].count("TOOL_CALL_START") == 1
    for place_in_run, one in enumerate(as_recorded(events)):
        state.absorb(one.event)
        replay = [event["type"] for event in read(FORMAT.open(state)[1])]
        assert replay.count("TOOL_CALL_START") == (place_in_run >= 4)


def test_an_answer_of_a_lost_worker_ends_in_an_error_and_a_replay_has_the_right_one() -> None:
    [trace] = [trace for trace in TRACES if trace.name == "recovered_attempt"]
    assert read(whole(trace))[-1]["type"] == "RUN_ERROR"
    state = State()
    for event, _ in trace.events:
        state.absorb(event)
    replay = read(FORMAT.open(state)[1])
    assert replay[-1]["type"] == "RUN_FINISHED"


def test_a_stream_that_takes_something_back_is_not_replayed_from_the_log() -> None:
    lost = set()
    for trace in TRACES:
        state = State()
        for event, _ in trace.events:
            state.absorb(event)
        if state.root is None or state.root.status != "completed":
            continue
        ends_in_error = read(whole(trace))[-1]["type"] == "RUN_ERROR"
        assert has_lost(FORMAT, state) is ends_in_error
        if ends_in_error and not has_lost(openai_responses.FORMAT, state):
            lost.add(trace.name)  # of a sub-agent, which this format does not show
    assert lost
    assert not has_lost(openai_responses.FORMAT, State())


def test_a_failed_run_is_an_error_and_a_cancelled_run_says_so() -> None:
    assert shown("failed")[-1]["type"] == "RUN_ERROR"
    assert shown("cancelled")[-1]["outcome"] == {"type": "cancelled"}
    assert shown("incomplete")[-1]["result"]["status"] == "incomplete"


@pytest.mark.parametrize(
    ("runs_on", "outcomes"), [(True, ["cancelled"]), (False, ["interrupt", "cancelled"])]
)
def test_a_run_that_is_cancelled_beside_a_question_says_so(
    runs_on: bool, outcomes: list[str]
) -> None:
    """The last tool that ran has its result; the question is closed, although it has no answer.

    If no tool runs, the question ends the stream. The next stream has the results.
    """
    stopped = ErrorInfo(code="cancelled", message="The call was cancelled.")
    calls = [
        ToolCall(id=f"fc_{n}", call_id=f"c{n}", name="f", arguments="{}", needs_approval=not n)
        for n in (0, 1)
    ]
    request = InputRequest(id="req_c0", kind="approval", call_id="c0")
    events: list[ev.Event] = [
        ev.TaskCreated(task_id="r"),
        ev.TaskInProgress(task_id="r"),
        *(ev.OutputItemDone(task_id="r", output_index=n, item=calls[n]) for n in (0, 1)),
        *([ev.ToolCallStarted(task_id="r", output_index=1, item_id="fc_1")] if runs_on else []),
        ev.TaskInputRequired(task_id="r", requests=[request]),
    ]
    for n in (0, 1):
        result = ToolResult(id=f"fco_{n}", call_id=f"c{n}", status="failed", error=stopped)
        events.append(ev.OutputItemDone(task_id="r", output_index=2 + n, item=result))
    encoder = FORMAT.at(State())
    recorded = as_recorded([*events, ev.TaskCancelled(task_id="r")])
    shown = read(frame for one in recorded for frame in encoder.encode(one))
    check(shown)
    ends = [event["outcome"]["type"] for event in shown if event["type"] == "RUN_FINISHED"]
    assert ends == outcomes
    results = [event["toolCallId"] for event in shown if event["type"] == "TOOL_CALL_RESULT"]
    assert results == ["c0", "c1"]


def test_a_step_that_was_cut_says_so_in_its_metadata() -> None:
    ends = [event for event in shown("step_incomplete") if event["type"] == "STEP_FINISHED"]
    assert [end.get("metadata") for end in ends] == [*[{"status": "incomplete"}] * 2, None]


def test_data_named_state_is_the_state_and_the_output_is_the_result() -> None:
    block = Data(data={"step": 1}, name="state")
    message = Message(id="m", role="assistant")
    place: dict[str, Any] = {"task_id": "r", "output_index": 0}
    events = [
        ev.TaskCreated(task_id="r"),
        ev.OutputItemAdded(item=message, **place),
        ev.DataDone(item_id="m", block_index=0, item=block, **place),
    ]
    encoder = FORMAT.at(State())
    frames = [frame for one in as_recorded(events) for frame in encoder.encode(one)]
    assert read(frames)[-1] == {"type": "STATE_SNAPSHOT", "snapshot": {"step": 1}}
    assert "result" in shown("structured_output")[-1]


def test_another_agent_and_a_summary_are_custom_events_also_in_a_replay() -> None:
    events: list[ev.Event] = [
        ev.TaskCreated(task_id="r", agent="triage"),
        ev.HistoryCompacted(task_id="r", summary="Paris.", run_id="run_0"),
        ev.AgentSwitched(task_id="r", agent="billing"),
    ]
    encoder, state = FORMAT.at(State()), State()
    frames = [frame for one in as_recorded(events) for frame in encoder.encode(one)]
    for event in events:
        state.absorb(event)
    assert read(FORMAT.open(state)[1]) == read(frames)
    assert [(one["name"], one["value"]) for one in read(frames)[1:]] == [
        ("history_compacted", {"summary": "Paris.", "run_id": "run_0"}),
        ("agent_switched", {"agent": "billing", "output_index": 0, "from": "triage"}),
    ]


def test_a_sub_agent_that_waits_is_suspended_and_begins_again() -> None:
    call = ToolCall(id="fc", call_id="call_1", name="ask_for_help", arguments="{}")
    result = ToolResult(id="fco", call_id="call_1")
    request = InputRequest(id="req_1", kind="approval", message="Really?")
    events: list[ev.Event] = [
        ev.TaskCreated(task_id="r"),
        ev.TaskInProgress(task_id="r"),
        ev.OutputItemDone(task_id="r", output_index=0, item=call),
        ev.ToolCallStarted(task_id="r", output_index=0, item_id="fc"),
        ev.OutputItemAdded(task_id="r", output_index=1, item=result),
        ev.TaskCreated(task_id="call_1", agent="helper", parent_task_id="r", call_id="call_1"),
        ev.TaskInProgress(task_id="call_1"),
        ev.TaskInputRequired(task_id="call_1", requests=[request]),
        ev.TaskInputReceived(task_id="call_1", request_id="req_1", approved=True),
        ev.TaskCompleted(task_id="call_1"),
        ev.OutputItemDone(task_id="r", output_index=1, item=result),
        ev.TaskCompleted(task_id="r"),
    ]
    encoder = FORMAT.at(State())
    shown = read(frame for one in as_recorded(events) for frame in encoder.encode(one))
    check(shown)
    agents = [event for event in shown if event["type"].startswith("SUBAGENT")]
    assert [event["type"] for event in agents] == ["SUBAGENT_STARTED", "SUBAGENT_FINISHED"] * 2
    assert agents[1]["outcome"] == {"type": "suspended", "interruptIds": ["req_1"]}
    assert agents[3]["outcome"] == {"type": "success"}


def test_a_client_that_has_answered_is_not_over_until_the_run_goes_on() -> None:
    [trace] = [trace for trace in TRACES if trace.name == "approval_granted"]
    state = State()
    recorded = as_recorded([event for event, _ in trace.events])
    place = next(n for n, one in enumerate(recorded, 1) if one.event.type == "task.input_required")
    for one in recorded[:place]:
        state.absorb(one.event)
    assert FORMAT.at(state).over
    asked = [request.id for task in state.tasks.values() for request in task.requests]
    encoder = FORMAT.answered(state, asked)
    assert not encoder.over
    rest = read(frame for one in recorded[place:] for frame in encoder.encode(one))
    check(rest)
    assert encoder.over


def test_a_response_goes_on_until_its_run_has_read_all_answers_of_the_client() -> None:
    """The result of the first call comes before the run reads the second answer."""
    calls = [
        ToolCall(id=f"fc_{n}", call_id=f"c{n}", name="f", arguments="{}", executor="client")
        for n in (0, 1)
    ]
    asked = [InputRequest(id=f"req_c{n}", kind="input", call_id=f"c{n}") for n in (0, 1)]
    asking: list[ev.Event] = [
        ev.TaskCreated(task_id="r"),
        ev.TaskInProgress(task_id="r"),
        *(ev.OutputItemDone(task_id="r", output_index=n, item=calls[n]) for n in (0, 1)),
        ev.TaskInputRequired(task_id="r", requests=asked),
    ]
    rest: list[ev.Event] = []
    for n in (0, 1):
        result = ToolResult(id=f"fco_{n}", call_id=f"c{n}")
        rest.append(ev.TaskInputReceived(task_id="r", request_id=f"req_c{n}", value=n))
        rest.append(ev.OutputItemDone(task_id="r", output_index=2 + n, item=result))
    recorded = as_recorded([*asking, *rest, ev.TaskCompleted(task_id="r")])
    state = State()
    for one in recorded[: len(asking)]:
        state.absorb(one.event)
    encoder = FORMAT.answered(state, ["req_c0", "req_c1"])
    shown = read(frame for one in recorded[len(asking) :] for frame in encoder.encode(one))
    kinds = ["RUN_STARTED", "TOOL_CALL_RESULT", "TOOL_CALL_RESULT", "RUN_FINISHED"]
    assert [event["type"] for event in shown] == kinds
    assert shown[-1]["outcome"] == {"type": "success"}


def test_a_later_question_ends_the_response_of_a_client_that_answered_two_at_once() -> None:
    """Its run reads the first answer and goes on before it reads the second."""
    events: list[ev.Event] = [ev.TaskCreated(task_id="r"), ev.TaskInProgress(task_id="r")]
    for n in (1, 2):
        call = ToolCall(id=f"fc_{n}", call_id=f"call_{n}", name="ask_for_help", arguments="{}")
        events += [
            ev.OutputItemDone(task_id="r", output_index=n, item=call),
            ev.ToolCallStarted(task_id="r", output_index=n, item_id=call.id),
            ev.TaskCreated(task_id=f"t_{n}", parent_task_id="r", call_id=call.call_id),
            ev.TaskInProgress(task_id=f"t_{n}"),
            ev.TaskInputRequired(
                task_id=f"t_{n}", requests=[InputRequest(id=f"req_{n}", kind="input")]
            ),
        ]
    recorded = as_recorded(events)
    state = State()
    for one in recorded:
        state.absorb(one.event)
    encoder = FORMAT.answered(state, ["req_1", "req_2"])
    assert encoder.waits
    for n in (1, 2):
        [answer] = as_recorded([ev.TaskInputReceived(task_id=f"t_{n}", request_id=f"req_{n}")])
        encoder.encode(answer)
        assert not encoder.over
    again = [
        ev.TaskInputRequired(
            task_id=f"t_{n}", requests=[InputRequest(id=f"req_{n}_more", kind="input")]
        )
        for n in (1, 2)
    ]
    shown = read(frame for one in as_recorded(again) for frame in encoder.encode(one))
    assert shown[-1]["type"] == "RUN_FINISHED"
    assert encoder.over


def test_a_message_that_is_not_for_the_model_stays_in_the_conversation() -> None:
    given = [
        {"id": "t", "role": "reasoning", "content": "Hm."},
        {"id": "q", "role": "user", "content": "?"},
    ]
    state = State()
    state.absorb(ev.TaskCreated(task_id="run_1", input=given))
    assert [(one["id"], one["role"]) for one in FORMAT.messages([state])] == [
        ("t", "reasoning"),
        ("q", "user"),
    ]
