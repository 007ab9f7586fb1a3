"""The Responses format. What each item becomes is in `cases/openai-responses`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_args
from unittest.mock import ANY

import pytest
from hypothesis import given
from openai.types.responses import ResponseError
from openai.types.responses.response import IncompleteDetails

from tailrace.core import errors
from tailrace.core import events as ev
from tailrace.core.errors import CallerError, InvalidCursor
from tailrace.core.fold import State
from tailrace.core.items import (
    ErrorInfo,
    Image,
    ImageUrl,
    InputRequest,
    Message,
    Reasoning,
    ReferenceToBlock,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from tailrace.core.snapshot import fork
from tailrace.testing.strategies import WrittenRun, legal_runs
from tailrace.testing.wire_kit import as_recorded, check_wire, encoded
from tailrace.wire.base import Cursor
from tailrace.wire.openai_responses import (
    DONE,
    FORMAT,
    approvals_of,
    asked_approvals,
    calls_of,
    compaction_object,
    compaction_run,
    end_of,
    input_items,
    is_answered_inside,
    is_compaction,
    open_approvals,
    outputs_of,
    own_id,
    pause_of,
    references,
    resolved,
    response_id,
    response_object,
    runs_of_approval,
    segment_of,
    without_approvals,
)
from tailrace.wire.openai_responses.cursors import offset
from tests.effort import CUTS, SOAK, sample
from tests.wire import openai_scripts as scripts
from tests.wire.frames import events_of
from tests.wire.openai_checker import Reader, check_response
from tests.wire.openai_scripts import ANSWER, PNG, RUN, Script, picture

SCRIPTS = [
    scripts.everything(),
    scripts.client_call().add(ev.TaskCompleted),
    scripts.client_call("incomplete").add(ev.TaskIncomplete, reason="max_output_tokens"),
    scripts.failed(),
    scripts.superseded(),
    scripts.cancelled(),
]
BRIEF = 30
"""Events of a run that the kit tries also in `make test`."""


def flat(frames: list[list[bytes]]) -> list[bytes]:
    return [frame for each in frames for frame in each]


def events_shown(script: Script) -> list[dict[str, Any]]:
    """The events of a run's stream, once the checker has read them and the kit has tried it.

    The kit tries every place of a run: a long run only in `make soak`.
    """
    brief = SOAK or len(script.events) <= BRIEF
    frames = flat((check_wire if brief else encoded)(FORMAT, script.events))
    Reader().read(frames)
    return events_of(frames)


def types(script: Script, about: str = "") -> list[str]:
    return [event["type"] for event in events_shown(script) if about in event["type"]]


def folded(events: Sequence[ev.AnyEvent]) -> State:
    state = State()
    for event in events:
        state.absorb(event)
    return state


def output(script: Script) -> list[dict[str, Any]]:
    body = response_object(script.state)
    check_response(body)
    return body["output"]  # type: ignore[no-any-return]


def test_an_item_with_many_parts_makes_the_numbers_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.wire.openai_responses.encoder.MANY_PARTS", 0)
    events = events_of(flat(check_wire(FORMAT, scripts.everything().events)))
    numbers = [event["sequence_number"] for event in events]
    assert numbers == sorted(set(numbers))
    assert numbers[0] < 1 << 52 < numbers[-1]


# --- every legal run -----------------------------------------------------------------------------


@given(legal_runs())
def test_every_run_is_a_stream_that_the_strict_reader_takes(run: WrittenRun) -> None:
    events = [event for event, _ in run]
    state = folded(events)
    for segment in range(len(state.pauses) + 1):
        reader = Reader().read(flat(encoded(FORMAT.after(segment), events)))
        assert reader.final is not None
        assert state.root is not None
        assert reader.final["id"] == response_id(state.root.task_id, segment)
        check_response(response_object(state, segment))


@given(legal_runs(max_events=40, complete=False))
def test_a_stream_can_be_gone_on_with_after_every_event(run: WrittenRun) -> None:
    events = [event for event, _ in run]
    for segment in range(len(folded(events).pauses) + 1):
        check_wire(FORMAT.after(segment), events)


@given(legal_runs(max_events=25))
def test_a_client_that_joins_anywhere_ends_with_the_same_response(run: WrittenRun) -> None:
    events = [event for event, _ in run]
    for segment in range(len(folded(events).pauses) + 1):
        joins_anywhere(events, segment)


def joins_anywhere(events: Sequence[ev.AnyEvent], segment: int) -> None:
    wire, recorded = FORMAT.after(segment), as_recorded(events)
    states = [folded(events[:count]) for count in range(len(events) + 1)]
    paused = [count for count, one in enumerate(states) if len(one.pauses) > segment]
    state = State()
    for place, one in enumerate(recorded):
        state.absorb(one.event)
        encoder, frames = wire.open(state)
        reader = Reader().read(frames)
        assert reader.last < (offset(events[0].task_id) + place + 2) << 12
        for later in recorded[place + 1 :]:
            reader.read(encoder.encode(later))
        assert reader.final is not None
        if reader.final["error"] is None or reader.final["error"]["type"] != "interrupted":
            # What is superseded after the end of a response is left out for those who join then.
            seen = max(place + 1, [*paused, len(events)][0])
            assert reader.final == response_object(states[seen], segment)


@given(legal_runs(max_events=40))
def test_nothing_private_is_in_any_frame(run: WrittenRun) -> None:
    state, recorded = State(), as_recorded([event for event, _ in run])
    for one in recorded:
        state.absorb(one.event, ev.Private(encrypted_content="canary", provider={"id": "canary"}))
    _, frames = FORMAT.open(state)
    assert b"canary" not in b"".join(frames)
    assert "canary" not in json.dumps(response_object(state))


@pytest.mark.long(always=True)
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_kit_takes_the_written_runs(script: Script) -> None:
    check_wire(FORMAT, script.events)


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_strict_reader_takes_the_written_runs(script: Script) -> None:
    assert events_shown(script)[-1]["type"] in (
        "response.completed",
        "response.incomplete",
        "response.failed",
    )


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_cursor_inside_an_event_goes_on_with_the_very_next_frame(script: Script) -> None:
    whole = flat(encoded(FORMAT, script.events))
    assert whole[-1] == DONE
    for place, frame in enumerate(whole[:-1]):
        assert frame + gone_on(script, frame) == b"".join(whole[place:])


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_cursor_of_a_joined_stream_goes_on_with_the_very_next_frame(script: Script) -> None:
    recorded = as_recorded(script.events)
    for place in sample(range(1, len(recorded) + 1), CUTS):
        encoder, frames = FORMAT.open(folded(script.events[:place]))
        whole = frames + flat([encoder.encode(one) for one in recorded[place:]])
        for index in {0, len(frames) - 1, len(frames), len(whole) - 2} & set(range(len(whole))):
            if whole[index] != DONE:
                assert whole[index] + gone_on(script, whole[index]) == b"".join(whole[index:])


def place_of_number(number: int) -> Cursor:
    return FORMAT.in_run(FORMAT.cursor(str(number)), RUN)


def gone_on(script: Script, frame: bytes) -> bytes:
    cursor = place_of_number(events_of([frame])[0]["sequence_number"])
    recorded = as_recorded(script.events)
    before = folded(script.events[: cursor.seq - 1])
    encoder, left = FORMAT.resume(before, recorded[cursor.seq - 1], cursor)
    return b"".join([*left, *flat([encoder.encode(one) for one in recorded[cursor.seq :]])])


def test_the_last_frame_has_no_number_to_go_on_from() -> None:
    script = scripts.failed()
    *_, last, _ = flat(encoded(FORMAT, script.events))
    number = events_of([last])[0]["sequence_number"]
    frame = b'event: x\ndata: {"type":"x","sequence_number":%d}\n\n'
    assert gone_on(script, frame % number) == DONE
    with pytest.raises(InvalidCursor):
        gone_on(script, frame % (number + 1))


def test_what_a_request_left_out_is_filled_in() -> None:
    options = {
        "text": {"verbosity": "low"},
        "reasoning": {"effort": "low"},
        "tools": [{"type": "function", "name": "pick"}, {"type": "web_search"}, "odd"],
    }
    body = response_object(Script(options=options).state)
    assert body["text"] == {"format": {"type": "text"}, "verbosity": "low"}
    assert body["reasoning"] == {"effort": "low", "summary": None}
    function = {"type": "function", "name": "pick", "description": None, "parameters": None}
    assert body["tools"] == [{**function, "strict": False}, {"type": "web_search"}, "odd"]


def test_the_input_is_shown_as_items_with_ids() -> None:
    items: list[Any] = [
        {"role": "user", "content": "Is it sunny?"},
        {"type": "message", "role": "assistant", "content": "Yes.", "id": "msg_1"},
        {"role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
        {"type": "function_call_output", "call_id": "c", "output": "15 C"},
    ]
    listed = input_items(Script(input=items).state)
    message = {"type": "message", "status": "completed"}
    assert listed == [
        {
            **message,
            "id": "msg_run_7_in0",
            "role": "user",
            "content": [{"type": "input_text", "text": "Is it sunny?"}],
        },
        {
            **message,
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
        },
        {**message, **items[2], "id": "msg_run_7_in2"},
        {**items[3], "id": "item_run_7_in3"},
    ]
    for odd, text in (("Hello.", "Hello."), ({"a": 1}, '{"a":1}'), ([7], "7")):
        [item] = input_items(Script(input=odd).state)
        assert item["content"] == [{"type": "input_text", "text": text}]
    assert input_items(Script(input=None).state) == []
    assert input_items(State()) == []


def test_a_cursor_is_a_number_that_needs_no_state() -> None:
    assert FORMAT.cursor("0") == Cursor(0)
    assert place_of_number(offset(RUN) + 7 << 12 | 3) == Cursor(7, 3)
    assert place_of_number(7 << 12 | 3).seq == 0, "a number before the run's first"
    with pytest.raises(InvalidCursor):
        FORMAT.cursor("run_7")


def test_frames_have_no_id_and_the_heartbeat_is_a_comment() -> None:
    # With an id anywhere, openai-python reads the blank line after a comment as an event.
    frames = flat(encoded(FORMAT, scripts.everything().events))
    assert frames[-1] == DONE
    assert not [frame for frame in frames if b"\nid:" in frame or frame.startswith(b"id:")]
    assert FORMAT.heartbeat.startswith(b":")
    assert FORMAT.preamble() == b""
    assert FORMAT.at(State()).close("the server stops") == []


@pytest.mark.parametrize("joined", [False, True])
def test_a_stream_that_is_closed_ends_with_an_error_whose_number_is_a_cursor(joined: bool) -> None:
    log = [ev.Recorded(one, b"", epoch=7) for one in scripts.everything().events]
    state, before = State(), State()
    for place, one in enumerate(log[:-1], 1):
        before = fork(state)
        state.absorb(one.event)
        encoder = FORMAT.open(state)[0] if joined else FORMAT.at(state)
        [event] = events_of(encoder.close("The server stops."))
        assert (event["type"], event["message"]) == ("error", "The server stops.")
        # Without any item, the AI SDK would send the request again after another code.
        has_items = bool(response_object(state)["output"])
        assert event["code"] == ("server_error" if has_items else "424")
        cursor = place_of_number(event["sequence_number"])
        assert cursor.seq == place
        resumed, rest = FORMAT.resume(before, one, cursor)
        assert rest == []
        shown = [events_of(one.encode(log[place])) for one in (resumed, encoder)]
        assert shown[0] == [{**one, "sequence_number": ANY} for one in shown[1]]


def test_a_response_in_the_background_ends_without_an_error() -> None:
    created = ev.TaskCreated(task_id="r", options={"background": True}, sequence_number=1)
    state = State()
    state.absorb(created)
    assert FORMAT.at(state).close("The server stops.") == []


def test_a_join_before_the_first_event_says_nothing_yet() -> None:
    encoder, frames = FORMAT.open(State())
    assert frames == []
    assert response_object(State()) == {}
    first = encoder.encode(as_recorded(scripts.failed().events)[0])
    assert [event["type"] for event in events_of(first)] == ["response.created"]


def test_a_join_sends_open_items_as_far_as_they_are() -> None:
    script = scripts.everything()
    place = max(
        place for place, event in enumerate(script.events) if isinstance(event, ev.ImageDelta)
    )
    _, frames = FORMAT.open(folded(script.events[: place + 1]))
    assert [event["type"] for event in events_of(frames)][:2] == [
        "response.created",
        "response.in_progress",
    ]
    last = events_of(frames)[-1]
    assert last["type"] == "response.image_generation_call.partial_image"
    assert last["partial_image_index"] == 1
    _, queued = FORMAT.open(folded(script.events[:1]))
    assert [event["type"] for event in events_of(queued)] == ["response.created"]


# --- reasoning -----------------------------------------------------------------------------------


def test_a_summary_alone_has_no_content() -> None:
    assert "content" not in output(Script().begin().reasoning(0, "In short."))[0]


# --- calls ---------------------------------------------------------------------------------------


def call_of(script: Script) -> dict[str, Any]:
    events_shown(script)
    (item,) = [item for item in output(script) if item["type"] == "mcp_call"]
    return item


@pytest.mark.parametrize(
    ("arguments", "status", "shown"),
    [
        ("", "completed", "{}"),
        ('{"a":1}', "completed", '{"a":1}'),
        ("free text", "completed", '"free text"'),
        ("[" * 2000, "completed", json.dumps("[" * 2000)),
        ('{"a":', "incomplete", '"{\\"a\\":"'),
    ],
)
def test_the_arguments_of_an_mcp_call_are_json_in_the_end(
    arguments: str, status: str, shown: str
) -> None:
    script = Script().begin().call(0, "search", arguments, status, executor="provider")
    if status == "completed":
        script.result(1, 0)
    assert call_of(script)["arguments"] == shown


def test_a_superseded_call_does_not_fail_the_response_of_a_later_look() -> None:
    script = scripts.client_call("incomplete")
    script.add(ev.TaskAttempt, attempt=2, reason="worker_lost", superseded=["fc_7_1"])
    script.add(ev.TaskCompleted)
    assert response_object(script.state)["status"] == "completed"


def test_a_sub_agent_shows_in_its_call_alone() -> None:
    frames = b"".join(flat(encoded(FORMAT, scripts.everything().events)))
    assert b"The child's own thoughts." not in frames
    assert b"fc_7_c1" not in frames
    assert frames.count(b"It is sunny, says the expert.") == 2  # its call, and the response


# --- messages ------------------------------------------------------------------------------------


def test_a_phase_that_the_sdks_do_not_know_is_left_out() -> None:
    item = Message(id="msg_7_0", role="assistant", phase="musing")
    script = Script().begin().item(item, 0)
    assert "phase" not in output(script.done(item, 0))[0]


# --- citations -----------------------------------------------------------------------------------


def cited(script: Script) -> list[dict[str, Any]]:
    events = events_shown(script)
    notes = [event["annotation"] for event in events if "annotation" in event]
    content = [part for item in output(script) for part in item.get("content", ())]
    assert [note for part in content for note in part["annotations"]] == notes
    return notes


def test_citations_have_urls_titles_and_places_in_code_points() -> None:
    notes = cited(scripts.everything())
    assert [(note["url"], note["title"]) for note in notes] == [
        ("tailrace:run_7/run_7/1", "get_weather"),
        ("https://files.example/report.pdf", "report.pdf"),
        ("tailrace:run_7/call_3/1", "lookup"),
    ]
    assert [ANSWER[note["start_index"] : note["end_index"]] for note in notes] == [
        "[^1]",
        "[^3]",
        "[^4]",
    ]


# --- images --------------------------------------------------------------------------------------


def image_of(image: Image) -> dict[str, Any]:
    script = Script().begin().call(0, "draw", "{}").result(1, 0, image)
    events_shown(script)
    (item,) = [item for item in output(script) if item["type"] == "image_generation_call"]
    return item


@pytest.mark.parametrize(
    ("url", "result", "format_"),
    [
        (f"data:image/png;base64,{PNG}", PNG, "png"),
        ("data:image/jpeg;base64,AAAA", "AAAA", "jpeg"),
        ("data:image/svg+xml,%3Csvg%2F%3E", "PHN2Zy8+", "svg"),
        ("data:image/avif;base64,AAAA", "AAAA", "png"),
    ],
)
def test_an_inline_image_is_its_base64(url: str, result: str, format_: str) -> None:
    item = image_of(Image(image_url=ImageUrl(url=url)))
    assert (item["status"], item["result"], item["output_format"]) == (
        "completed",
        result,
        format_,
    )


@pytest.mark.parametrize("url", ["https://i.example/a.png", "/blobs/1,2;base64,a", "data:image"])
def test_an_image_elsewhere_is_a_link_in_the_calls_output(url: str) -> None:
    image = Image(image_url=ImageUrl(url=url))
    item = image_of(image)
    assert (item["status"], item["result"]) == ("failed", "")
    assert url in item["error"]["message"]
    script = Script().begin().call(0, "draw", "{}").result(1, 0, image, picture())
    assert call_of(script)["output"] == f"![image]({url})"


# --- the response --------------------------------------------------------------------------------


def test_a_superseded_result_leaves_its_call_without_one() -> None:
    script = Script().begin().call(0, "search", "{}").result(1, 0, status="incomplete")
    script.add(ev.TaskAttempt, attempt=2, reason="worker_lost", superseded=["fco_7_1"])
    assert types(script)[-1] == "response.failed"
    assert output(script)[0]["status"] == "in_progress"
    assert output(script.add(ev.TaskCompleted))[0]["status"] == "incomplete"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("rate_limited", "rate_limit_exceeded"),
        ("invalid_image", "invalid_image"),
        ("c", "server_error"),
    ],
)
def test_an_error_has_a_code_of_openais_and_our_own_as_its_type(ours: str, theirs: str) -> None:
    script = Script().begin().add(ev.TaskFailed, error=ErrorInfo(code=ours, message="m"))
    error = response_object(script.state)["error"]
    assert error == {"type": ours, "code": theirs, "message": "m", "param": None}


def test_a_response_that_failed_before_any_output_has_an_empty_message() -> None:
    script = Script().begin().add(ev.TaskFailed, error=ErrorInfo(code="c", message="m"))
    [message] = output(script)
    assert (message["status"], message["content"]) == ("incomplete", [])
    added, done, failed = events_shown(script)[-3:]
    assert (added["item"]["id"], done["item"]) == (message["id"], message)
    assert failed["type"] == "response.failed"
    assert output(scripts.failed())[0]["content"] != []


REASONS = ("max_output_tokens", "content_filter")
OUR_REASONS = (
    "cut",
    "max_turns",
    "max_tool_calls",
    "input_required",
    "steered",
    "pause_turn",
)


@pytest.mark.parametrize("reason", [*REASONS, *OUR_REASONS])
def test_a_run_that_stopped_early_has_a_reason_of_openais(reason: str) -> None:
    """In its object, its last frame and a replay. Some clients refuse any other value."""
    script = Script().begin().add(ev.TaskIncomplete, reason=reason)
    theirs = {"reason": reason if reason in REASONS else "max_output_tokens"}
    live = Reader().read(flat(encoded(FORMAT, script.events))).final
    late = Reader().read(FORMAT.open(script.state)[1]).final
    for response in (response_object(script.state), live, late):
        assert response is not None
        assert (response["status"], response["incomplete_details"]) == ("incomplete", theirs)
    assert theirs["reason"] in get_args(
        get_args(IncompleteDetails.model_fields["reason"].annotation)[0]
    )


def test_every_code_of_our_own_errors_is_one_of_openais() -> None:
    """So is a code that a tool or an agent made up."""
    known = get_args(ResponseError.model_fields["code"].annotation)
    raised = [getattr(kind, "code", "") for kind in vars(errors).values() if isinstance(kind, type)]
    for code in [*filter(None, raised), "interrupted", "no_summary", "too_many_attempts", "x" * 99]:
        script = Script().begin().add(ev.TaskFailed, error=ErrorInfo(code=code, message="m"))
        error = response_object(script.state)["error"]
        assert (error["type"], error["code"] in known) == (code, True)


def test_usage_is_that_of_the_whole_run_and_there_even_if_nothing_was_used() -> None:
    assert response_object(scripts.everything().state)["usage"] == {
        "input_tokens": 1010,
        "input_tokens_details": {"cached_tokens": 200, "cache_write_tokens": 30},
        "output_tokens": 505,
        "output_tokens_details": {"reasoning_tokens": 40},
        "total_tokens": 1515,
    }
    assert response_object(scripts.failed().state)["usage"]["total_tokens"] == 0
    assert response_object(Script().begin().state)["usage"] is None


# --- approvals -----------------------------------------------------------------------------------


ASKED: Any = {"needs_approval": True}


def asks(script: Script, *calls: int) -> Script:
    requests = [
        InputRequest(id=f"apr_{call}", kind="approval", call_id=f"call_{call}") for call in calls
    ]
    return script.add(ev.TaskInputRequired, requests=requests)


def answered(script: Script, call: int, **answer: Any) -> Script:
    return script.add(ev.TaskInputReceived, request_id=f"apr_{call}", **answer)


def usage(script: Script, tokens: int) -> Script:
    return script.add(ev.TaskUsage, usage=Usage(input_tokens=tokens, output_tokens=1))


def approved_twice() -> Script:
    """A run with two pauses: a message and a call, two calls at once, then the answer."""
    script = usage(Script().begin().message(0, Text(text="One moment.")), 100)
    asks(script.call(1, "send_mail", '{"to":"bob"}', **ASKED), 1)
    answered(script, 1, approved=True).result(2, 1, Text(text="sent"))
    usage(asks(script.call(3, "pay", "{}", **ASKED).call(4, "book", "{}", **ASKED), 3, 4), 20)
    answered(answered(script, 4, approved=True), 3, approved=False, reason="Too much.")
    script.result(5, 3, Text(text="denied"), status="failed").result(6, 4, Text(text="booked"))
    return usage(script.message(7, Text(text="Done.")), 3).add(ev.TaskCompleted)


def responses(script: Script) -> list[Any]:
    """The responses of a run, as the last frames of their streams show them."""
    found = []
    for segment in range(len(script.state.pauses) + 1):
        frames = flat(check_wire(FORMAT.after(segment), script.events))
        assert frames[-1] == DONE
        found.append(Reader().read(frames).final)
        assert found[-1] == response_object(script.state, segment)
        joins_anywhere(script.events, segment)
    return found


def kinds(response: Any) -> list[str]:
    return [item["type"] for item in response["output"]]


def test_a_response_ends_where_its_run_asks_for_approvals_and_the_next_goes_on() -> None:
    first, second, third = responses(approved_twice())
    assert [one["id"] for one in (first, second, third)] == [
        "resp_run_7",
        "resp_run_7~2",
        "resp_run_7~3",
    ]
    assert third["previous_response_id"] == second["id"]
    assert {one["status"] for one in (first, second, third)} == {"completed"}
    assert kinds(first) == ["message", "mcp_approval_request"]
    assert first["output"][1] == {
        "type": "mcp_approval_request",
        "id": "mcpr_run_7~apr_1",
        "server_label": "tailrace",
        "name": "send_mail",
        "arguments": '{"to":"bob"}',
    }
    assert kinds(second) == ["mcp_call", "mcp_approval_request", "mcp_approval_request"]
    sent = second["output"][0]
    assert (sent["output"], sent["approval_request_id"]) == ("sent", "mcpr_run_7~apr_1")
    assert kinds(third) == ["mcp_call", "mcp_call", "message"]
    assert [call["status"] for call in third["output"][:2]] == ["completed", "failed"]
    # A token is counted once. What is reported after a request belongs to the next response.
    spent = [one["usage"]["input_tokens"] for one in (first, second, third)]
    assert spent == [100, 0, 23]


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
    waiting = asks(Script().begin().call(0, "pay", "{}", **ASKED), 0).state
    assert input_items(waiting, 1) == []
    assert [item["type"] for item in FORMAT.messages([waiting])] == [
        "mcp_approval_request",
    ]


def test_a_run_that_ends_while_it_waits_ends_the_next_response() -> None:
    script = Script().begin().call(0, "pay", "{}", **ASKED).call(1, "pay", "{", status="incomplete")
    asks(script, 0).add(ev.TaskCancelled, reason="enough")
    first, second = responses(script)
    assert kinds(first) == ["mcp_call", "mcp_approval_request"]
    assert (second["status"], kinds(second)) == ("cancelled", [])
    assert input_items(script.state, 1) == []
    assert open_approvals(script.state, 0) == set()


def test_a_call_that_could_need_an_approval_and_needs_none_is_shown_when_it_starts() -> None:
    script = Script().begin().call(0, "pay", "{}", **ASKED)
    before = flat(check_wire(FORMAT, script.events))
    assert not any("output_item" in str(frame) for frame in before)
    script.add(ev.ToolCallStarted, item_id="fc_7_0", output_index=0)
    [response] = responses(script.result(1, 0, Text(text="paid")).add(ev.TaskCompleted))
    assert [(item["type"], item["output"]) for item in response["output"]] == [("mcp_call", "paid")]


def test_an_approval_of_a_sub_agents_call_or_of_no_call_is_asked_for_too() -> None:
    script = Script().begin().call(0, "expert", "{}")
    script.add(ev.ToolCallStarted, item_id="fc_7_0", output_index=0)
    result = ToolResult(id="fco_7_1", call_id="call_0")
    script.item(result, 1)
    script.add(ev.TaskCreated, "call_0", parent_task_id=RUN, call_id="call_0").begin("call_0")
    inner = ToolCall(id="fc_8", call_id="call_8", name="delete")
    script.item(inner, 0, "call_0")
    place: Any = {"item_id": inner.id, "output_index": 0}
    script.add(ev.ArgumentsDone, "call_0", **place, arguments="{}").done(inner, 0, "call_0")
    requests = [
        InputRequest(id="apr_8", kind="approval", call_id="call_8"),
        InputRequest(id="apr_9", kind="approval", message="Really?"),
        InputRequest(id="req_1", kind="input"),
    ]
    script.add(ev.TaskInputRequired, "call_0", requests=requests)
    script.add(ev.TaskInputReceived, "call_0", request_id="apr_8", approved=True)
    script.add(ev.TaskInputReceived, "call_0", request_id="apr_9", approved=True)
    script.add(ev.TaskInputReceived, "call_0", request_id="req_1", value=1)
    script.add(ev.TaskCompleted, "call_0").done(result, 1).add(ev.TaskCompleted)
    first, second = responses(script)
    assert [(item["name"], item["arguments"]) for item in first["output"]] == [
        ("expert", "{}"),
        ("delete", "{}"),
        ("approval", '{"message":"Really?"}'),
    ]
    assert kinds(second) == ["mcp_call"]


def test_what_is_made_or_lost_during_a_pause_is_the_next_responses_business() -> None:
    where: Any = {"item_id": "fco_7_2", "output_index": 2, "block_index": 0}
    script = Script().begin().message(0, Text(text="Hello.")).call(1, "paint", "{}")
    script.item(ToolResult(id="fco_7_2", call_id="call_1"), 2)
    script.add(ev.ImageAdded, **where, item=picture("")).call(3, "pay", "{}", **ASKED).call(
        4, "lose", "{}"
    )
    asks(script, 3).add(ev.ImageDone, **where, item=picture())
    script.done(ToolResult(id="fco_7_2", call_id="call_1"), 2)
    script.message(5, Text(text="Meanwhile.")).message(6, Text(text="Wrong."))
    lost = ["fc_7_4", "msg_7_6"]
    script.add(ev.TaskAttempt, attempt=2, reason="worker_lost", superseded=lost)
    answered(script, 3, approved=True).result(7, 3, Text(text="paid")).add(ev.TaskCompleted)
    first, second = responses(script)
    message, *left, request = first["output"]
    assert (message["type"], request["type"]) == ("message", "mcp_approval_request")
    assert [(item["type"], item["status"]) for item in left] == [
        ("mcp_call", "in_progress"),
        ("image_generation_call", "in_progress"),
        ("mcp_call", "in_progress"),
    ]
    assert kinds(second) == ["mcp_call", "image_generation_call", "message", "mcp_call"]
    assert {item["status"] for item in second["output"]} == {"completed"}


def test_what_is_superseded_after_a_response_stays_in_that_response() -> None:
    script = Script().begin().message(0, Text(text="Wrong.")).message(1, Text(text="Hello."))
    script.add(ev.TaskAttempt, attempt=2, reason="cut", superseded=["msg_7_0"])
    asks(script.call(2, "pay", "{}", **ASKED), 2)
    shown = response_object(script.state, 0)
    answered(script, 2, approved=True).result(3, 2, Text(text="paid"))
    script.add(ev.TaskAttempt, attempt=3, reason="worker_lost", superseded=["msg_7_1"])
    script.message(4, Text(text="Good day.")).add(ev.TaskCompleted)
    assert kinds(shown) == ["message", "mcp_approval_request"]
    assert response_object(script.state, 0) == shown
    assert kinds(response_object(script.state, 1)) == ["mcp_call", "message"]
    # A replay shows the same.
    assert Reader().read(flat([FORMAT.after(0).open(script.state)[1]])).final == shown


def test_a_response_knows_where_it_ended_once_its_run_has_gone_on() -> None:
    script = asks(Script(previous_run_id="run_6").begin().call(0, "pay", "{}", **ASKED), 0)
    asked = script.state.sequence_number
    assert end_of(script.state, 0) is None
    answered(script, 0, approved=True)
    assert (end_of(script.state, 0), end_of(script.state, 1)) == (asked, None)


def test_a_request_during_a_pause_is_shown_by_the_next_response() -> None:
    script = asks(
        asks(Script().begin().call(0, "pay", "{}", **ASKED).call(1, "book", "{}", **ASKED), 0), 1
    )
    answered(answered(script, 0, approved=True), 1, approved=True)
    script.result(2, 0, Text(text="paid")).result(3, 1, Text(text="booked")).add(ev.TaskCompleted)
    first, second, third = responses(script)
    assert [item["name"] for item in first["output"]] == ["pay"]
    assert kinds(second) == ["mcp_call", "mcp_approval_request"]
    assert [item["name"] for item in second["output"]] == ["pay", "book"]
    assert kinds(third) == ["mcp_call", "mcp_call"]


def test_a_later_loss_does_not_touch_the_stream_of_an_earlier_response() -> None:
    script = asks(Script().begin().message(0, Text(text="Hello.")).call(1, "pay", "{}", **ASKED), 1)
    answered(script, 1, approved=True).result(2, 1, Text(text="paid"))
    script.message(3, Text(text="Wrong."))
    before = flat(check_wire(FORMAT.after(0), script.events))
    script.add(ev.TaskAttempt, attempt=2, reason="worker_lost", superseded=["msg_7_3"])
    assert flat(check_wire(FORMAT.after(0), script.events)) == before
    last = events_of(flat(check_wire(FORMAT.after(1), script.events)))[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["id"] == "resp_run_7~2"


def test_many_parts_before_a_pause_make_the_numbers_after_it_wide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tailrace.wire.openai_responses.encoder.MANY_PARTS", 0)
    [event, *_] = events_of(flat(check_wire(FORMAT.after(1), approved_twice().events)))
    assert event["sequence_number"] > 1 << 52


def test_the_ids_of_responses_and_approvals_name_their_run() -> None:
    assert segment_of("run_7~2") == ("run_7", 1)
    assert [segment_of(named) for named in ("run_7", "run_7~1", "run_7~0", "~2")] == [None] * 4
    assert runs_of_approval("mcpr_run~7~apr_1") == ["run", "run~7"]
    assert [runs_of_approval(ident) for ident in ("mcpr_68f", "fc_1~2")] == [[], []]
    state = approved_twice().state
    assert [pause_of(state, f"mcpr_run_7~apr_{call}") for call in (1, 4, 5)] == [0, 1, None]
    asked = asks(Script().begin().call(0, "a", "{}", **ASKED).call(1, "b", "{}", **ASKED), 0, 1)
    state = answered(asked, 0, approved=True).state
    assert open_approvals(state, 0) == {"mcpr_run_7~apr_1"}
    assert asked_approvals(state, 0) == {f"mcpr_run_7~apr_{n}": f"apr_{n}" for n in (0, 1)}


def test_the_answers_at_the_end_of_an_input_are_read() -> None:
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_r~1", "approve": True}
    request = {"type": "mcp_approval_request", "id": "mcpr_r~1"}
    word = {"role": "user", "content": "?"}
    found = approvals_of([answer, word, {**answer, "reason": "ok"}, answer])
    assert [(one.param, one.approve, one.reason) for one in found] == [
        ("input[2]", True, "ok"),
        ("input[3]", True, None),
    ]
    assert approvals_of("hello") == approvals_of([answer, word]) == []
    assert is_answered_inside([answer, word])
    assert not is_answered_inside([word, answer])
    assert not is_answered_inside("hello")
    with pytest.raises(CallerError, match="approve") as refused:
        approvals_of([word, {**answer, "approve": "yes"}])
    assert refused.value.param == "input[1]"
    theirs = {"type": "mcp_approval_request", "id": "mcpr_68f"}
    assert without_approvals([word, request, answer, theirs, "x"]) == [word, theirs, "x"]
    assert without_approvals("hello") == "hello"


def test_a_response_echoes_the_fields_of_its_request_and_nothing_else() -> None:
    options = {
        "background": True,
        "temperature": 0.5,
        "top_p": True,
        "max_output_tokens": "many",
        "secret": "canary",
    }
    body = response_object(Script(options=options, metadata={"a": "b"}).state)
    check_response(body)
    assert (body["status"], body["background"], body["temperature"]) == ("queued", True, 0.5)
    assert body["top_p"] == 1.0
    assert body["max_output_tokens"] is None
    assert "canary" not in json.dumps(body)
    assert body["metadata"] == {"a": "b"}
    assert response_object(Script(metadata={"a": 1}, options=[]).state)["metadata"] == {}


def test_ids_and_names_of_a_response_come_from_the_run() -> None:
    assert response_id("run_7") == "resp_run_7"
    assert response_id("resp_7") == "resp_7"
    body = response_object(Script(agent=None, model="gpt-6").state)
    assert (body["model"], body["created_at"]) == ("gpt-6", 1790000000)
    assert response_object(Script(agent=None).state)["model"] == ""


# --- streams that no writer of ours writes -------------------------------------------------------


def absorbed(*events: ev.AnyEvent) -> list[dict[str, Any]]:
    return events_of(flat(encoded(FORMAT, list(events))))


def test_what_is_open_when_a_foreign_task_ends_is_closed_first() -> None:
    script = Script().begin()
    script.item(Reasoning(id="rs_7_0"), 0)
    where: Any = {"item_id": "rs_7_0", "output_index": 0, "summary_index": 0}
    script.add(ev.SummaryItemAdded, **where, item=Text(text=""))
    script.add(ev.SummaryTextDelta, **where, delta="Thin")
    script.item(Message(id="msg_7_1", role="assistant"), 1)
    inside: Any = {"item_id": "msg_7_1", "output_index": 1}
    script.add(ev.TextAdded, **inside, block_index=0, item=Text(text=""))
    script.add(ev.ImageAdded, **inside, block_index=1, item=picture())
    script.item(ToolCall(id="fc_7_2", call_id="c2", name="a"), 2)
    script.item(ToolCall(id="fc_7_3", call_id="c3", name="b", executor="client"), 3)
    Reader().read(FORMAT.open(script.state)[1])
    number = len(script.events) + 1
    end = ev.TaskIncomplete(task_id=RUN, sequence_number=number, reason="max_output_tokens")
    frames = flat(encoded(FORMAT, [*script.events, end]))
    reader = Reader().read(frames)
    assert sorted(reader.done) == [0, 1, 2, 3]  # the image among them; not the client's call
    assert [item["type"] for item in reader.items][-1] == "function_call"
    statuses = {item["type"]: item["status"] for item in reader.done.values()}
    assert statuses == {
        "reasoning": "incomplete",
        "message": "incomplete",
        "image_generation_call": "completed",
        "mcp_call": "incomplete",
    }


def test_an_item_that_ends_with_an_open_text_closes_the_text_first() -> None:
    script = Script().begin().item(Message(id="msg_7_0", role="assistant"), 0)
    where: Any = {"item_id": "msg_7_0", "output_index": 0, "block_index": 0}
    script.add(ev.TextAdded, **where, item=Text(text=""))
    script.add(ev.TextDelta, **where, delta="Hi")
    number = len(script.events) + 1
    item = Message(id="msg_7_0", role="assistant")
    done = ev.OutputItemDone(task_id=RUN, sequence_number=number, output_index=0, item=item)
    frames = flat(encoded(FORMAT, [*script.events, done]))
    assert Reader().read(frames).done[0]["content"][0]["text"] == "Hi"


def test_foreign_events_that_fit_nowhere_say_nothing() -> None:
    first = ev.TaskCreated(task_id=RUN, sequence_number=1)
    nowhere: Any = {"item_id": "x", "output_index": 0, "block_index": 0}
    stray = ev.TextDelta(task_id=RUN, sequence_number=2, **nowhere, delta="lost")
    unknown = ev.Unknown(
        task_id=RUN,
        sequence_number=3,
        type="task.hologram",
        raw=b'{"type":"task.hologram","task_id":"run_7","sequence_number":3}',
    )
    assert absorbed(unknown) == []
    orphan = ev.TaskInProgress(task_id="nobody", sequence_number=4)
    result = ToolResult(id="r", call_id="unknown")
    added = ev.OutputItemAdded(task_id=RUN, sequence_number=5, output_index=0, item=result)
    done = ev.OutputItemDone(task_id=RUN, sequence_number=6, output_index=0, item=result)
    lost = ev.TaskAttempt(task_id=RUN, sequence_number=7, attempt=2, reason="x", superseded=["y"])
    loose = [
        ev.ArgumentsDone(
            task_id=RUN, sequence_number=number, item_id="r", output_index=index, arguments="{}"
        )
        for number, index in ((8, 0), (9, 5))
    ]
    events = absorbed(first, stray, unknown, orphan, added, done, lost, *loose)
    assert [event["type"] for event in events] == ["response.created"]


def test_a_foreign_stream_without_a_beginning_gets_one() -> None:
    note = ReferenceToBlock(reference_id=9, start_index=0, end_index=4)
    item = Message(id="m", role="assistant")
    where: Any = {"item_id": "m", "output_index": 0, "block_index": 0}
    text = Text(text="[^9]", annotations=[note])
    strange = ev.ReferenceImported(
        task_id=RUN, reference_id=9, source_task_id="elsewhere", source_reference_id=1
    )
    events: list[ev.AnyEvent] = [
        strange,
        ev.OutputItemAdded(task_id=RUN, output_index=0, item=item),
        ev.TextDone(task_id=RUN, **where, item=text),
    ]
    numbered = [ev.recorded(event, n) for n, event in enumerate(events, 1)]  # type: ignore[arg-type]
    found = absorbed(*numbered)
    assert found[0]["type"] == "response.created"
    assert found[-1]["part"]["annotations"][0]["url"] == "tailrace:run_7/elsewhere/1"


def test_a_result_without_its_call_is_a_source_without_a_name() -> None:
    note = ReferenceToBlock(reference_id=1, start_index=0, end_index=4)
    script = Script().begin()
    result = ToolResult(id="r", call_id="unknown")
    block = Text(text="found", id=1)
    item = Message(id="m", role="assistant")
    text = Text(text="[^1]", annotations=[note])
    foreign: list[ev.Event] = [
        ev.OutputItemAdded(task_id=RUN, output_index=0, item=result),
        ev.TextDone(task_id=RUN, item_id="r", output_index=0, block_index=0, item=block),
        ev.OutputItemAdded(task_id=RUN, output_index=1, item=item),
        ev.TextDone(task_id=RUN, item_id="m", output_index=1, block_index=0, item=text),
    ]
    events = [*script.events, *(ev.recorded(event, n) for n, event in enumerate(foreign, 3))]
    found = absorbed(*events)
    assert found[-1]["part"]["annotations"][0]["title"] == "[1]"


def test_an_input_names_items_by_id_and_gets_them() -> None:
    named = {"type": "item_reference", "id": "msg_1"}
    odd = {"type": "item_reference", "id": 7}
    assert references("Hello") == []
    assert references([named, odd, "x", {"type": "message", "id": "msg_2"}]) == ["msg_1"]
    assert references([{"id": "msg_1"}, {"id": "msg_2", "type": None}]) == ["msg_1", "msg_2"]
    assert references([{"id": "msg_1", "role": "user"}, {}, {"type": None}]) == []
    item = {"type": "message", "id": "msg_1"}
    assert resolved([named, odd, "x"], {"msg_1": item}) == [item, odd, "x"]
    assert resolved("Hello", {}) == "Hello"


def test_the_id_of_an_image_names_the_item_that_holds_it() -> None:
    state = scripts.everything().state
    shown = [item["id"] for item in response_object(state)["output"]]
    images = [ident for ident in shown if ident.startswith("ig_")]
    assert images
    assert state.root is not None
    assert {own_id(ident) for ident in shown} <= state.root.item_ids.keys()


def compacted_run() -> Script:
    script = Script().begin()
    return script.add(ev.HistoryCompacted, summary="It was about Paris.", run_id=RUN)


def test_a_compaction_refers_to_its_run() -> None:
    found = compaction_object(compacted_run().add(ev.TaskCompleted).state)
    assert (found["object"], found["usage"]["total_tokens"]) == ("response.compaction", 0)
    (item,) = found["output"]
    assert is_compaction(item)
    assert compaction_run(item) == RUN
    assert "Paris" not in str(found)


@pytest.mark.parametrize("sealed", [None, 5, "gAAAAABpM0Yj-...=", "\u00e9", "aGVsbG8="])
def test_a_compaction_of_another_server_refers_to_nothing(sealed: Any) -> None:
    assert compaction_run({"type": "compaction", "encrypted_content": sealed}) is None


def test_calls_and_outputs_of_an_input_are_found_by_id() -> None:
    given = [
        {"type": "function_call", "call_id": "call_1"},
        {"type": "mcp_call", "id": "mcp_1"},
        {"type": "custom_tool_call_output", "call_id": "call_2"},
        {"role": "user", "content": "?"},
        "text",
    ]
    assert calls_of(given) == {"call_1", "mcp_1"}
    assert outputs_of(given) == {"call_2": "input[2].call_id"}
    assert (calls_of("?"), outputs_of("?"), is_compaction("?")) == (set(), {}, False)
    assert compaction_run("?") is None


def test_a_response_that_continues_a_window_names_the_response() -> None:
    for previous in (None, "run_6"):
        script = Script(options={"previous_response_id": "resp_x"}, previous_run_id=previous)
        assert response_object(script.state)["previous_response_id"] == "resp_x"


@pytest.mark.parametrize(
    ("options", "is_sealed"),
    [({"include": ["reasoning.encrypted_content"]}, True), ({"include": ["x"]}, False), (5, False)],
)
def test_reasoning_has_an_opaque_reference_if_the_client_asks_for_it(
    options: Any, is_sealed: bool
) -> None:
    script = Script(options=options).begin()
    script.add(ev.OutputItemAdded, output_index=0, item=Reasoning(id="rs_1"))
    assert "encrypted_content" not in response_object(script.state)["output"][0]
    done = Reasoning(id="rs_1", status="completed")
    script.add(ev.OutputItemDone, output_index=0, item=done).add(ev.TaskCompleted)
    (item,) = response_object(script.state)["output"]
    assert ("encrypted_content" in item) is is_sealed
    events = events_of(flat(encoded(FORMAT, script.events)))
    (sent,) = [one["item"] for one in events if one["type"] == "response.output_item.done"]
    assert sent == item
