"""What all ingests share: reading JSON that may hold anything, and a task without a runtime."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.core.codec import encode_private
from tailrace.core.errors import IllegalEvent, MalformedEvent, StreamTooLarge
from tailrace.core.events import Private
from tailrace.core.items import ErrorInfo, RawItem
from tailrace.core.writers import ArgumentsWriter, MessageWriter
from tailrace.ingest.anthropic_messages.reader import AnthropicMessages
from tailrace.ingest.base import Notebook, Outcome, read_json, server_tools
from tailrace.ingest.openai_chat.reader import OpenAIChat
from tailrace.ingest.openai_responses.reader import OpenAIResponses
from tests.ingest import streams


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("kind", [str, bytes])
def test_an_event_is_an_object(kind: type) -> None:
    values: list[Any] = [
        {"a": [1, 2.5, None, True, "x"]},
        deep(90),
        {"a": [[]] * 200},
        {"a": "1" * 20},
    ]
    for value in values:
        line = json.dumps(value)
        assert read_json(line if kind is str else line.encode()) == value


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (r'{"a":"x\u0000y"}', {"a": "x\ufffdy"}),
        (r'{"x\u0000":1}', {"x\ufffd": 1}),
        (r'{"a":["\ud83d","\ud83d\ude00"]}', {"a": ["\ufffd", "\U0001f600"]}),
        ('{"a":9007199254740993,"b":-9007199254740991}', {"a": str(2**53 + 1), "b": 1 - 2**53}),
        ('{"a":1e999,"b":1.5}', {"a": "inf", "b": 1.5}),
    ],
)  # fmt: skip
def test_values_that_not_every_store_can_hold_are_mended(line: str, value: Any) -> None:
    assert read_json(line) == read_json(line.encode()) == value
    encode_private(Private(raw=value))


@pytest.mark.parametrize(
    "line",
    ["", "{", "[]", "7", "null", '{"a":NaN}', "[" * 100_000, b"\xff", json.dumps(deep(93))],
)
def test_objects_that_are_not_events_are_refused(line: str | bytes) -> None:
    with pytest.raises(MalformedEvent):
        read_json(line)


DELTAS: dict[str, tuple[Any, str]] = {
    "openai_responses": (
        OpenAIResponses,
        '{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"delta":"%s"}',
    ),
    "openai_chat": (OpenAIChat, '{"choices":[{"index":0,"delta":{"content":"%s"}}]}'),
    "anthropic_messages": (
        AnthropicMessages,
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}',
    ),
}
BLOCK = '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}'


@pytest.mark.parametrize("api", DELTAS)
@pytest.mark.parametrize("kind", [str, bytes])
def test_no_answer_is_lost_to_a_character_that_no_store_holds(api: str, kind: type) -> None:
    make, delta = DELTAS[api]
    book = Notebook()
    ingest = make(book)
    pieces = [r"It\u0000 is", r" \ud83d", " sunny."]
    for line in [BLOCK] * (make is AnthropicMessages) + [delta % piece for piece in pieces]:
        ingest.feed(line if kind is str else line.encode())
    book.conclude(ingest.end())
    [item] = streams.shown(book)["output"]
    assert item["block_list"][0]["text"] == "It\ufffd is \ufffd sunny."
    streams.check_readable(book)


def test_an_event_that_is_too_large_is_refused_unread() -> None:
    with pytest.raises(StreamTooLarge):
        read_json("x" * 100, limit=99)


def test_the_deepest_event_still_fits_into_an_item() -> None:
    book = Notebook()
    raw = read_json(json.dumps(deep(92)))
    place = book.add(RawItem(id="raw_1", raw={}))
    book.done(place, RawItem(id="raw_1", raw=raw), Private(raw=raw))
    book.conclude(Outcome(status="completed"))
    streams.check_readable(book)


@pytest.mark.parametrize(
    ("outcome", "shown"),
    [
        (Outcome(status="completed"), {"status": "completed"}),
        (Outcome(status="cut"), {"status": "incomplete", "reason": "cut"}),
        (
            Outcome(status="incomplete", reason="max_output_tokens"),
            {"status": "incomplete", "reason": "max_output_tokens"},
        ),
        (
            Outcome(status="failed", error=ErrorInfo(code="busy", message="Busy.")),
            {"status": "failed", "error": {"code": "busy", "message": "Busy."}},
        ),
        (
            Outcome(status="failed"),
            {
                "status": "failed",
                "error": {"code": "provider_error", "message": "The provider failed."},
            },
        ),
    ],
)
def test_a_notebook_ends_as_the_call_did(outcome: Outcome, shown: dict[str, Any]) -> None:
    book = Notebook("run_7", agent="a")
    MessageWriter(book).text("Hel")
    book.conclude(outcome)
    whole = streams.shown(book)
    assert shown.items() <= whole.items()
    assert whole["output"][0]["status"] == "incomplete"
    assert len(book.take()) == book.state.sequence_number
    assert book.take() == []


def test_a_notebook_gives_out_ids_and_checks_every_event() -> None:
    book = Notebook("run_7")
    assert book.task_id == "run_7"
    assert book.new_id("msg") == "msg_7_3"
    call = ArgumentsWriter(book, "look", call_id="call_1")
    assert book.free_call_id("call_1") != "call_1"
    assert book.free_call_id("call_2") == "call_2"
    assert not book.knows(1)
    with pytest.raises(IllegalEvent):
        book.done(7, RawItem(id="x", raw=None))
    call.finish()


def test_a_notebook_finds_a_free_call_id_also_where_a_stream_took_the_next_one() -> None:
    book = Notebook("run_1")
    for ident in [*(f"call_1_{number}" for number in range(40)), "call_1_0"]:
        ArgumentsWriter(book, "tool", call_id=ident).finish()
    assert len(book.node.calls) == 41
    ArgumentsWriter(book, "tool", call_id=book.new_id("call")).finish()
    assert book.free_call_id("call_1_0") not in book.node.calls
    taken = f"call_1_{book.state.sequence_number + 4}"
    ArgumentsWriter(book, "tool", call_id=taken).finish()
    assert book.new_id("call") == taken
    assert book.free_call_id(taken) == taken + "_"


def test_calls_are_ours_to_carry_out_unless_the_stream_says_otherwise() -> None:
    assert server_tools("weather") == "server"
