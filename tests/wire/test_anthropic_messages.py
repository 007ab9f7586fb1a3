"""Anthropic's Messages stream. What each item becomes is in `cases/anthropic-messages`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given

from tailrace.core import events as ev
from tailrace.core.errors import InvalidCursor
from tailrace.core.fold import State
from tailrace.core.items import (
    Data,
    ErrorInfo,
    Image,
    ImageUrl,
    Message,
    RawAnnotation,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from tailrace.testing.strategies import WrittenRun, legal_runs
from tailrace.testing.wire_kit import as_recorded, check_wire, encoded
from tailrace.wire.anthropic_messages import FORMAT, IN_DELTAS, message_object
from tests.traces import TRACES, Trace
from tests.wire import openai_scripts as scripts
from tests.wire.anthropic_checker import MessageReader
from tests.wire.frames import events_of
from tests.wire.openai_scripts import RUN, Script

Json = dict[str, Any]


def flat(frames: list[list[bytes]]) -> list[bytes]:
    return [frame for each in frames for frame in each]


def read(script: Script) -> MessageReader:
    """What a strict client ends up with, once the kit has tried the run at every place."""
    return MessageReader().read(flat(check_wire(FORMAT, script.events)))


def ended(script: Script) -> MessageReader:
    """The same of a run that is completed now."""
    return read(script.add(ev.TaskCompleted))


def folded(events: Sequence[ev.AnyEvent]) -> State:
    state = State()
    for event in events:
        state.absorb(event)
    return state


def joined(events: Sequence[ev.AnyEvent], place: int) -> MessageReader:
    """A client that comes in after so many events and stays to the end."""
    encoder, frames = FORMAT.open(folded(events[:place]))
    reader = MessageReader().read(frames)
    for one in as_recorded(events[place:]):
        reader.read(encoder.encode(one))
    return reader


# --- every legal run -----------------------------------------------------------------------------


@given(legal_runs())
def test_every_run_is_a_stream_that_the_strict_reader_takes(run: WrittenRun) -> None:
    reader = MessageReader().read(flat(encoded(FORMAT, [event for event, _ in run])))
    assert reader.is_done


@given(legal_runs(max_events=40, complete=False))
def test_a_stream_that_is_closed_anywhere_has_an_end(run: WrittenRun) -> None:
    encoder, reader = FORMAT.at(State()), MessageReader()
    for one in as_recorded([event for event, _ in run]):
        reader.read(encoder.encode(one))
    reader.read(encoder.close("enough"))
    assert reader.is_done


@given(legal_runs(max_events=25))
def test_a_client_that_joins_anywhere_ends_with_the_same_message(run: WrittenRun) -> None:
    events = [event for event, _ in run]
    whole = joined(events, len(events))
    for place in range(1, len(events)):
        reader = joined(events, place)
        assert reader.is_done
        if reader.error is None or "begun again" not in reader.error["message"]:
            assert reader.content == whole.content
            assert (reader.stop_reason, reader.usage) == (whole.stop_reason, whole.usage)


@given(legal_runs(max_events=40))
def test_nothing_private_is_in_any_frame(run: WrittenRun) -> None:
    state = State()
    private = ev.Private(signature="canary", encrypted_content="canary", provider={"id": "canary"})
    for one in as_recorded([event for event, _ in run]):
        state.absorb(one.event, private)
    assert b"canary" not in b"".join(FORMAT.open(state)[1])


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_a_foreign_log_is_a_legal_stream_too(trace: Any) -> None:
    events = [event for event, _ in trace.events]
    reader = MessageReader().read(flat(encoded(FORMAT, events)))
    root = folded(events).root
    if root is not None and root.ended:
        assert reader.is_done


# --- the message ---------------------------------------------------------------------------------


def test_a_model_answers_where_there_is_no_agent_and_an_id_keeps_its_prefix() -> None:
    created = ev.TaskCreated(task_id="msg_1", sequence_number=1, model="m-1")
    [event] = events_of(flat(encoded(FORMAT, [created])))
    assert (event["message"]["id"], event["message"]["model"]) == ("msg_1", "m-1")


def test_a_ping_keeps_a_silent_stream_alive_and_there_is_no_cursor() -> None:
    assert FORMAT.heartbeat == b'event: ping\ndata: {"type":"ping"}\n\n'
    assert not FORMAT.resumable
    MessageReader().read([FORMAT.heartbeat])
    with pytest.raises(InvalidCursor):
        FORMAT.cursor("1")


# --- citations -----------------------------------------------------------------------------------


def cited(*annotations: Any) -> list[Json]:
    text = Text(text="As they say.", annotations=list(annotations))
    content = ended(Script().begin().message(0, text)).content
    found: list[Json] = content[0].get("citations", [])
    return found


PAGE: Json = {
    "type": "page_location",
    "cited_text": "so it is",
    "document_title": "Almanac",
    "document_index": 0,
    "start_page_number": 3,
    "end_page_number": 4,
}


@pytest.mark.parametrize(
    "raw",
    [
        "so it is",
        {},
        {**PAGE, "type": 7},
        {**PAGE, "type": "search_result_location"},
        {**PAGE, "cited_text": None},
        {**PAGE, "document_index": True},
        {**PAGE, "start_page_number": "3"},
    ],
    ids=repr,
)
def test_what_no_client_knows_as_a_citation_is_left_out(raw: Any) -> None:
    assert cited(RawAnnotation(raw=raw)) == []


# --- calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind", "value"),
    [
        ("", "function", {}),
        (" \n", "function", {}),
        ("[1]", "function", {"input": [1]}),
        ("null", "function", {"input": "null"}),
        ("no JSON", "function", {"input": "no JSON"}),
        ("{free text", "custom", {"input": "{free text"}),
        ('\n {"a":1}', "function", {"a": 1}),
    ],
)
@pytest.mark.parametrize("executor", ["client", "server"])
def test_an_input_is_always_an_object(arguments: str, kind: str, value: Any, executor: str) -> None:
    run = Script().begin().call(0, "t", arguments, kind=kind, executor=executor)
    [block] = ended(run).content
    assert block["input"] == value


def test_pydantic_ai_gets_the_input_of_a_server_s_call_in_deltas_alone() -> None:
    script = scripts.everything()
    events = events_of(flat(check_wire(IN_DELTAS, script.events)))
    starts = [event for event in events if "content_block" in event]
    indexes = [one["index"] for one in starts if one["content_block"]["type"] == "mcp_tool_use"]
    assert len(indexes) > 1
    assert all(starts[index]["content_block"]["input"] == {} for index in indexes)
    pieces = dict.fromkeys(indexes, "")
    for event in events:
        if event.get("delta", {}).get("type") == "input_json_delta":
            pieces[event["index"]] += event["delta"]["partial_json"]
    usual = MessageReader().read(flat(encoded(FORMAT, script.events))).content
    assert [json.loads(text) for text in pieces.values()] == [
        usual[index]["input"] for index in indexes
    ]


def test_a_sub_agent_s_tokens_are_not_sent() -> None:
    frames = encoded(FORMAT, scripts.everything().events)
    events = scripts.everything().events
    assert not [
        each for event, each in zip(events, frames, strict=True) if event.task_id != RUN and each
    ]


# --- how runs end --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "stop_reason"),
    [
        ("max_output_tokens", "max_tokens"),
        ("max_turns", "max_tokens"),
        ("refusal", "refusal"),
        ("content_filter", "refusal"),
        ("pause_turn", "pause_turn"),
        ("model_context_window_exceeded", "model_context_window_exceeded"),
    ],
)
def test_an_incomplete_run_stops_with_its_reason(reason: str, stop_reason: str) -> None:
    run = Script().begin().message(0, Text(text="Half an ans"), status="incomplete")
    reader = read(run.add(ev.TaskIncomplete, reason=reason))
    assert reader.texts() == ["Half an ans"]
    assert reader.stop_reason == stop_reason


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("agent_error", "api_error"),
        ("overloaded", "overloaded_error"),
        ("overloaded_error", "overloaded_error"),
        ("rate_limited", "rate_limit_error"),
        ("worker_lost", "api_error"),
        ("odd code_error", "api_error"),
    ],
)
def test_a_failure_is_an_error_of_a_kind_that_clients_know(code: str, kind: str) -> None:
    error = ErrorInfo(code=code, message="It broke.")
    reader = read(Script().begin().add(ev.TaskFailed, error=error))
    assert reader.error == {"type": kind, "message": "It broke."}


# --- attempts ------------------------------------------------------------------------------------


def test_what_was_sent_and_then_superseded_ends_the_stream() -> None:
    script = scripts.superseded()
    reader = read(script)
    assert reader.error is not None
    assert "begun again" in reader.error["message"]
    events = script.events
    attempt = next(n for n, event in enumerate(events) if isinstance(event, ev.TaskAttempt))
    for place in range(attempt + 1, len(events) + 1):
        late = joined(events, place)
        assert late.texts() == ["A whole answer."]
        assert late.stop_reason == "end_turn"


def test_a_stream_that_is_closed_before_it_began_says_so() -> None:
    [event] = events_of(FORMAT.at(State()).close("enough"))
    assert event["error"]["message"] == "enough"
    assert FORMAT.open(State())[1] == []


# --- logs of other writers -----------------------------------------------------------------------


def foreign(*events: ev.Event) -> MessageReader:
    """A stream of events that no writer of ours would send."""
    numbered = [ev.recorded(event, number) for number, event in enumerate(events, 1)]
    return MessageReader().read(flat(encoded(FORMAT, numbered)))


def at_item(cls: type[Any], index: int, item: Any) -> ev.Event:
    event: ev.Event = cls(task_id=RUN, output_index=index, item=item)
    return event


def test_a_run_without_its_first_event_begins() -> None:
    delta = ev.TextDelta(task_id=RUN, item_id="m", output_index=0, block_index=0, delta="x")
    assert foreign(delta).message is not None
    done = at_item(ev.OutputItemDone, 0, Message(id="m", role="assistant"))
    assert foreign(delta, done).content == []


def test_items_that_are_there_at_once_are_sent_whole() -> None:
    reader = foreign(
        at_item(ev.OutputItemDone, 0, Reasoning(id="r", summary=[Text(text="a"), Text(text="b")])),
        at_item(ev.OutputItemDone, 1, ToolCall(id="c", call_id="c1", name="t", arguments="{}")),
        at_item(
            ev.OutputItemDone, 2, ToolResult(id="o", call_id="c1", block_list=[Text(text="x")])
        ),
        at_item(
            ev.OutputItemDone, 3, Message(id="m", role="assistant", block_list=[Text(text="y")])
        ),
        ev.TaskCompleted(task_id=RUN),
    )
    kinds = ["thinking", "thinking", "mcp_tool_use", "mcp_tool_result", "text"]
    assert [block["type"] for block in reader.content] == kinds


def test_a_result_without_its_call_is_not_sent() -> None:
    lonely = at_item(ev.OutputItemDone, 0, ToolResult(id="o", call_id="c1"))
    call = at_item(ev.OutputItemDone, 1, ToolCall(id="c", call_id="c1", name="t"))
    events = [lonely, call, ev.TaskCompleted(task_id=RUN)]
    assert [block["type"] for block in foreign(*events).content] == ["mcp_tool_use"]
    late = joined(events, len(events))
    assert [block["type"] for block in late.content] == ["mcp_tool_use"]


def test_a_result_of_a_call_that_was_never_made_is_not_sent() -> None:
    cut = ToolCall(id="c", call_id="c1", name="t", status="incomplete")
    result = at_item(ev.OutputItemDone, 1, ToolResult(id="o", call_id="c1"))
    events = [at_item(ev.OutputItemDone, 0, cut), result, ev.TaskCompleted(task_id=RUN)]
    assert foreign(*events).content == []


def test_what_grows_after_it_was_taken_back_is_not_sent() -> None:
    where: Any = {"task_id": RUN, "item_id": "m", "output_index": 0, "block_index": 0}
    reader = foreign(
        at_item(ev.OutputItemAdded, 0, Message(id="m", role="assistant")),
        ev.TextAdded(**where, item=Text(text="")),
        ev.TaskAttempt(task_id=RUN, attempt=2, reason="worker_lost", superseded=["m"]),
        ev.TextDelta(**where, delta="Wrong."),
        ev.TaskCompleted(task_id=RUN),
    )
    assert (reader.content, reader.stop_reason) == ([], "end_turn")


def test_a_result_whose_call_was_taken_back_is_not_sent() -> None:
    attempt: Any = {"attempt": 2, "reason": "worker_lost", "superseded": ["c"]}
    events = [
        at_item(ev.OutputItemDone, 0, ToolCall(id="c", call_id="c1", name="t")),
        ev.TaskAttempt(task_id=RUN, **attempt),
        at_item(ev.OutputItemDone, 1, ToolResult(id="o", call_id="c1")),
        ev.TaskCompleted(task_id=RUN),
    ]
    assert foreign(*events).error is not None
    assert joined(events, len(events)).content == []


@pytest.mark.parametrize("block_list", [[], [Data(data=1)]], ids=["none", "another"])
def test_a_text_that_its_item_s_end_takes_away_ends_there(block_list: list[Any]) -> None:
    where: Any = {"task_id": RUN, "item_id": "m", "output_index": 0, "block_index": 0}
    for begun in (
        [
            ev.TextAdded(**where, item=Text(text="")),
            ev.TextDelta(**where, delta="Hello!"),
        ],
        [ev.TextAdded(**where, item=Text(text=""))],
        [ev.ImageAdded(**where, item=Image(image_url=ImageUrl(url="")))],
    ):
        reader = foreign(
            at_item(ev.OutputItemAdded, 0, Message(id="m", role="assistant")),
            *begun,
            at_item(
                ev.OutputItemDone,
                0,
                Message(id="m", role="assistant", block_list=block_list),
            ),
            ev.TaskCompleted(task_id=RUN),
        )
        assert reader.texts() == ["Hello!"] * (len(begun) - 1)
        assert reader.stop_reason == "end_turn"


# --- the object ----------------------------------------------------------------------------------


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_the_object_has_what_the_events_of_a_replay_add_up_to(trace: Trace) -> None:
    state = State()
    for event, _ in trace.events:
        state.absorb(event)
    reader, found = MessageReader().read(FORMAT.open(state)[1]), message_object(state)
    if reader.error is not None:
        assert found == {"type": "error", "error": reader.error}
    else:
        assert found.get("content", []) == reader.content
        assert found.get("stop_reason") == reader.stop_reason
