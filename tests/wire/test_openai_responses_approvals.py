"""Runs that ask for approvals: a response ends there, and the next goes on.

What each response shows is in `cases/openai-responses`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.core import events as ev
from tailrace.core.errors import CallerError
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, InputRequest, Text
from tailrace.core.snapshot import restore, save
from tailrace.testing.wire_kit import check_wire
from tailrace.wire.openai_responses import (
    FORMAT,
    RequestsFormat,
    answers_with_outputs,
    asked_approvals,
    end_of,
    has_only_outputs,
    ids_of_asking,
    input_items,
    last_answered,
    last_output,
    new_item,
    open_approvals,
    open_pause,
    pause_of,
    requests_object,
    response_object,
    run_items,
    runs_of_approval,
    segment_of,
)
from tailrace.wire.openai_responses.segments import answers_start
from tests.wire import openai_scripts as scripts
from tests.wire.frames import events_of
from tests.wire.openai_checker import Reader
from tests.wire.openai_scripts import ASKED, Script, approved_twice
from tests.wire.responses_runs import flat


def kinds(response: Any) -> list[str]:
    return [item["type"] for item in response["output"]]


def responses(script: Script) -> list[dict[str, Any]]:
    return [response_object(script.state, one) for one in range(len(script.state.pauses) + 1)]


def test_a_completed_response_has_the_time_of_the_event_that_ended_it() -> None:
    script = Script().begin().call(0, "pay", "{}", **ASKED)
    request = InputRequest(id="apr_0", kind="approval", call_id="call_0")
    script.add(ev.TaskInputRequired, requests=[request], at=1790000003.75)
    script.answered(0, approved=True, at=1790000060.0).result(1, 0, Text(text="paid"))
    script.add(ev.TaskCompleted, at=1790000061.999)
    assert [one["completed_at"] for one in responses(script)] == [1790000003, 1790000061]
    stored = restore(save(script.state, private=True))
    for segment in range(2):
        assert response_object(stored, segment) == response_object(script.state, segment)


@pytest.mark.parametrize(
    ("end", "fields"),
    [
        (ev.TaskCompleted, {"at": None}),  # of a log without times
        (ev.TaskIncomplete, {"reason": "max_output_tokens"}),
        (ev.TaskFailed, {"error": ErrorInfo(code="agent_error", message="Broken.")}),
        (ev.TaskCancelled, {}),
    ],
)
def test_a_response_that_did_not_complete_has_no_time_of_completion(end: Any, fields: Any) -> None:
    script = Script().begin().message(0, Text(text="I will")).add(end, **{"at": 1.5, **fields})
    assert [one["completed_at"] for one in responses(script)] == [None]
    cut = scripts.client_call("incomplete").add(ev.TaskCompleted, at=1.5)
    assert [(one["status"], one["completed_at"]) for one in responses(cut)] == [("failed", None)]


def test_the_answers_are_the_input_of_the_next_response() -> None:
    state = approved_twice().state
    assert [item["id"] for item in input_items(state, 2)] == [
        "mcpa_run_7~apr_3",
        "mcpa_run_7~apr_4",
    ]
    assert input_items(state, 2)[0] == {
        "type": "mcp_approval_response",
        "id": "mcpa_run_7~apr_3",
        "approval_request_id": "mcpr_run_7~apr_3",
        "approve": False,
        "reason": "Too much.",
    }
    waiting = Script().begin().call(0, "pay", "{}", **ASKED).asks(0).state
    assert input_items(waiting, 1) == []
    assert [item["type"] for item in FORMAT.messages([waiting])] == [
        "mcp_approval_request",
    ]


def test_what_is_superseded_after_a_response_stays_in_that_response() -> None:
    script = Script().begin().message(0, Text(text="Wrong.")).message(1, Text(text="Hello."))
    script.add(ev.TaskAttempt, attempt=2, reason="cut", superseded=["msg_7_0"])
    script.call(2, "pay", "{}", **ASKED).asks(2)
    shown = response_object(script.state, 0)
    script.answered(2, approved=True).result(3, 2, Text(text="paid"))
    script.add(ev.TaskAttempt, attempt=3, reason="worker_lost", superseded=["msg_7_1"])
    script.message(4, Text(text="Good day.")).add(ev.TaskCompleted)
    assert kinds(shown) == ["message", "mcp_approval_request"]
    assert response_object(script.state, 0) == shown
    assert kinds(response_object(script.state, 1)) == ["mcp_call", "message"]
    # A replay shows the same.
    assert Reader().read(flat([FORMAT.after(0).open(script.state)[1]])).final == shown


def test_a_later_loss_does_not_touch_the_stream_of_an_earlier_response() -> None:
    script = Script().begin().message(0, Text(text="Hello."))
    script.call(1, "pay", "{}", **ASKED).asks(1)
    script.answered(1, approved=True).result(2, 1, Text(text="paid"))
    script.message(3, Text(text="Wrong."))
    before = flat(check_wire(FORMAT.after(0), script.events))
    script.add(ev.TaskAttempt, attempt=2, reason="worker_lost", superseded=["msg_7_3"])
    assert flat(check_wire(FORMAT.after(0), script.events)) == before
    last = events_of(flat(check_wire(FORMAT.after(1), script.events)))[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["id"] == "resp_run_7~2"


def test_a_response_knows_where_it_ended_once_its_run_has_gone_on() -> None:
    script = Script(previous_run_id="run_6").begin().call(0, "pay", "{}", **ASKED).asks(0)
    asked = script.state.sequence_number
    assert end_of(script.state, 0) is None
    script.answered(0, approved=True)
    assert (end_of(script.state, 0), end_of(script.state, 1)) == (asked, None)


def test_the_ids_of_responses_and_approvals_name_their_run() -> None:
    assert segment_of("run_7~2") == ("run_7", 1)
    assert [segment_of(named) for named in ("run_7", "run_7~1", "run_7~0", "~2")] == [None] * 4
    assert runs_of_approval("mcpr_run~7~apr_1") == ["run", "run~7"]
    assert [runs_of_approval(ident) for ident in ("mcpr_68f", "fc_1~2")] == [[], []]
    state = approved_twice().state
    assert [pause_of(state, f"mcpr_run_7~apr_{call}") for call in (1, 4, 5)] == [0, 1, None]


def test_an_approval_is_open_until_it_is_answered_or_its_run_has_ended() -> None:
    script = Script().begin().call(0, "a", "{}", **ASKED).call(1, "b", "{}", **ASKED).asks(0, 1)
    script.answered(0, approved=True)
    assert open_approvals(script.state, 0) == {"mcpr_run_7~apr_1"}
    both = {f"mcpr_run_7~apr_{n}": f"apr_{n}" for n in (0, 1)}
    assert asked_approvals(script.state, 0) == both
    script.add(ev.TaskCancelled, reason="enough")
    assert open_approvals(script.state, 0) == set()


def asks_for_both() -> Script:
    """A run that asks for an approval and for the outputs of its client."""
    script = Script(input="buy").begin().call(0, "pay", "{}", **ASKED)
    script.call(1, "find", "{}", executor="client").call(2, "draw", "x", **CUSTOM)
    asked = [InputRequest(id=f"req_{n}", kind="input", call_id=f"call_{n}") for n in (1, 2)]
    script.add(ev.TaskInputRequired, requests=asked)
    return script.asks(0)


CUSTOM: Any = {"executor": "client", "kind": "custom"}
APPROVED = {
    "type": "mcp_approval_response",
    "approval_request_id": "mcpr_run_7~apr_0",
    "approve": True,
}


def output(call: Any, value: Any = "15 C", kind: str = "function_call") -> dict[str, Any]:
    return {"type": f"{kind}_output", "call_id": call, "output": value}


def test_outputs_of_functions_go_to_the_run_that_asks_for_them() -> None:
    script = asks_for_both()
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}
    parts = [{"type": "input_text", "text": "a"}, picture, {"type": "input_file", "file_id": "f"}]
    given = [output("call_1"), APPROVED, output("call_2", parts, "custom_tool_call")]
    given += [output("call_9"), output(7)]  # of an earlier run, perhaps
    first, second = sent = answers_with_outputs(script.state, given, 1)
    text = {"type": "text", "text": "15 C"}
    assert first["value"] == {"message_content": [text], "block_list": [text]}
    kinds_of = [[one["type"] for one in second["value"][name]] for name in second["value"]]
    assert kinds_of == [["text", "image_url", "text"], ["text", "text"]]
    assert input_items(script.state, 1) == []
    for one in sent[::-1]:
        script.add(ev.TaskInputReceived, **one)
    script.answered(0, approved=True).result(3, 0, Text(text="paid"))
    assert answers_with_outputs(script.state, given, 1) == []  # it has them, without a result yet
    script.result(4, 1, Text(text="15 C")).result(5, 2, Text(text="a"))
    assert answers_with_outputs(script.state, given, 1) == []
    listed = {item.get("call_id"): item for item in input_items(script.state, 1)}
    assert [item["type"] for item in listed.values()] == [
        "mcp_approval_response",
        "custom_tool_call_output",
        "function_call_output",
    ]
    assert listed["call_1"]["output"] == "15 C"
    assert listed["call_2"]["output"][:2] == parts[:2]
    order = [(item["type"], item.get("call_id")) for item in run_items(script.state)]
    assert order[1:5] == [
        ("function_call", "call_1"),
        ("function_call_output", "call_1"),
        ("custom_tool_call", "call_2"),
        ("custom_tool_call_output", "call_2"),
    ]
    script.call(6, "pay", "{}", **ASKED).asks(6).answered(6, approved=True)
    assert [item["type"] for item in input_items(script.state, 2)] == ["mcp_approval_response"]


def test_an_output_that_the_run_does_not_take_is_refused() -> None:
    script = asks_for_both().answered(0, approved=True).result(3, 0, Text(text="paid"))
    for ident in ("req_1", "req_2"):
        script.add(ev.TaskInputReceived, request_id=ident, reason="withdrawn")
    script.add(ev.TaskCompleted)
    with pytest.raises(CallerError, match="resp_run_7~2") as refused:
        answers_with_outputs(script.state, [APPROVED, output("call_1")], 1)
    assert refused.value.param == "input[1]"


@pytest.mark.parametrize(("value", "shown"), [("on the shelf", "on the shelf"), ([1], "[1]")])
def test_an_output_may_come_from_elsewhere(value: Any, shown: str) -> None:
    script = asks_for_both().answered(0, approved=True).result(3, 0, Text(text="paid"))
    script.add(ev.TaskInputReceived, request_id="req_1", value=value)
    script.result(4, 1, Text(text="on the shelf"))
    assert input_items(script.state, 1)[1]["output"] == shown


def test_items_of_the_response_that_asks_may_stand_between_the_answers() -> None:
    state = asks_for_both().state
    asking = ids_of_asking(state, "mcpr_run_7~apr_0")
    assert {"mcpr_run_7~apr_0", "call_1", "call_2"} <= asking
    assert ids_of_asking(state, "mcpr_run_7~apr_9") == set()
    request = {"type": "item_reference", "id": "mcpr_run_7~apr_0"}
    called = {"type": "function_call", "call_id": "call_1", "name": "find", "arguments": "{}"}
    other = {**APPROVED, "approval_request_id": "mcpr_run_7~apr_8"}
    for given, start in (
        ([request, APPROVED, called, output("call_1")], 1),
        ([request, APPROVED, called, output("call_1"), called], 1),
        ([called, output("call_1"), request, APPROVED], 1),
        ([called, output("call_8"), request, APPROVED], 3),
        ([other, request, APPROVED], 2),
        ([other, output("call_1"), request, APPROVED], 1),
        ([other, APPROVED], 0),
        ([APPROVED, {"type": "item_reference", "id": "fc_9"}, APPROVED], 2),
        ([APPROVED, {"role": "user", "content": "?"}], 2),
        ([7, request], 2),
    ):
        assert answers_start(given, asking) == start
    assert last_answered([APPROVED, other, request]) == "mcpr_run_7~apr_8"
    assert last_answered([{**APPROVED, "approval_request_id": 7}]) is last_answered("x") is None


def test_an_item_before_the_answers_is_new_unless_the_run_has_it() -> None:
    state = asks_for_both().state
    word, asked = {"role": "user", "content": "?"}, {"role": "user", "content": "buy"}
    request = {"type": "item_reference", "id": "mcpr_run_7~apr_0"}
    called = {"type": "function_call", "call_id": "call_1", "name": "find", "arguments": "{}"}
    for given, place in (
        ([APPROVED], None),
        ([asked, APPROVED], None),
        ([asked, request, output("call_1"), APPROVED], None),
        ([asked, called, APPROVED, output("call_1")], None),
        ([word, APPROVED], 0),
        ([asked, request, word, APPROVED], 2),
        ([APPROVED, word, APPROVED], 1),
        (["x", APPROVED], 0),
    ):
        assert new_item(state, given) == place


def test_outputs_before_the_approvals_get_the_requests_again() -> None:
    script = asks_for_both()
    state = script.state
    assert open_pause(state) == 0
    wire = RequestsFormat(0)
    encoder, frames = wire.open(state)
    assert encoder.over
    assert list(wire.open_in_pieces(state)[1]) == frames
    events = events_of(frames)
    assert [event["type"] for event in events] == [
        *("response.created", "response.in_progress", "response.output_item.added"),
        *("response.output_item.done", "response.completed"),
    ]
    response = events[-1]["response"]
    assert response == requests_object(state, 0)
    assert (response["id"], response["status"]) == ("resp_run_7", "completed")
    assert [item["id"] for item in response["output"]] == ["mcpr_run_7~apr_0"]
    assert response["usage"]["total_tokens"] == 0
    # From the start of the log, all is sent at the event with the requests, and nothing after it.
    live = wire.at(State())
    assert (live.close("stopping"), live.over) == ([], False)
    log = script.answered(0, approved=True).events
    sent = [live.encode(ev.Recorded(event, b"")) for event in log]
    assert [len(one) for one in sent if one] == [len(frames)]
    assert open_pause(script.state) is open_pause(State()) is None


def test_an_input_may_end_with_outputs_alone() -> None:
    state = asks_for_both().state
    word, asked = {"role": "user", "content": "?"}, {"role": "user", "content": "buy"}
    assert last_output([asked, output("call_1")]) == "call_1"
    assert last_output([output("call_1"), asked]) is last_output([]) is last_output("x") is None
    assert has_only_outputs(state, [asked, output("call_1"), output("call_2")])
    assert not has_only_outputs(state, [asked, output("call_9"), output("call_2")])
    assert not has_only_outputs(state, [word, output("call_2")])
