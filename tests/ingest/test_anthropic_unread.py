"""Unknown fields of Anthropic's events: the event is kept whole, once per set of names."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace.core import events as ev
from tailrace.core.run_object import client_view
from tailrace.ingest.anthropic_messages.reader import AnthropicMessages
from tailrace.ingest.base import Ingest, Notebook
from tailrace.ingest.unknown import UnknownFields
from tests.ingest.streams import lines, raw_types, recordings, shown
from tests.ingest.test_anthropic_messages import HELLO, START, STOP, begun, block, more, stopped

Json = dict[str, Any]


def leftovers(*events: Json) -> list[Json]:
    """What was kept raw of these events, which have to be understood."""
    book = Notebook()
    fed(AnthropicMessages(book), list(events))
    kept: list[Json] = []
    for event, private in book.take():
        if isinstance(event, ev.RawEvent):
            assert private is not None
            assert isinstance(private.raw, dict)
            assert private.raw["type"] == event.event_type
            kept.append(private.raw)
    return kept


def fed(ingest: Ingest, events: list[Json]) -> Ingest:
    for event in events:
        ingest.feed(json.dumps(event))
    return ingest


class Marked:
    """A copy of a value with one more field in each of its objects, none named like another."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self(one) for one in value]
        if not isinstance(value, dict):
            return value
        name = f"x_{len(self.names)}_"
        self.names.append(name)
        # What a call's pieces say stands for the input that it began with.
        inner = {key: one if key == "input" else self(one) for key, one in value.items()}
        return {**inner, name: {"odd": [1, None]}}


@pytest.mark.parametrize("path", recordings("anthropic-messages"), ids=lambda path: path.stem)
def test_unknown_fields_are_kept_wherever_they_are(path: Path) -> None:
    whole = [json.loads(line) for line in lines(path)]
    for count in (len(whole), len(whole) * 2 // 3, len(whole) // 2, 3, 2):
        marked, book = Marked(), Notebook()
        book.conclude(fed(AnthropicMessages(book), [marked(one) for one in whole[:count]]).end())
        kept = [private.raw for _, private in book.take() if private is not None]
        written = msgspec.json.encode(kept).decode()
        assert [name for name in marked.names if name not in written] == []


@pytest.mark.parametrize("path", recordings("anthropic-messages"), ids=lambda path: path.stem)
def test_unknown_fields_do_not_change_how_known_fields_are_read(path: Path) -> None:
    whole = [json.loads(line) for line in lines(path)]
    plain, stamped = Notebook(), Notebook()
    fed(AnthropicMessages(plain), whole).end()
    fed(AnthropicMessages(stamped), [stamp(event) for event in whole]).end()
    assert without_ids(stamped) == without_ids(plain)


def without_ids(book: Notebook) -> Any:
    """What clients see, but for ids, which count the events."""
    view = client_view(book.state)
    ids = ("id", "call_id")
    items = [{key: one for key, one in item.items() if key not in ids} for item in view["output"]]
    return items, view.get("usage")


def stamp(event: Json) -> Json:
    delta = event.get("delta")
    inner = {"delta": {**delta, "region": "eu"}} if isinstance(delta, dict) else {}
    return {**event, **inner, "region": "eu"}


# --- which, and how often ------------------------------------------------------------------------


def test_an_event_with_unknown_fields_is_kept_whole() -> None:
    odd: Json = more(0, "text_delta", text="a", token=17)
    events: list[Json] = [
        {**START, "trace": "t"},
        {"type": "ping", "cost": None, "at": 5},
        {**begun(0, type="text", text="", lang="en"), "seq": 2},
        {**odd, "seq": 3},
        {**stopped(0), "seq": 4},
    ]
    assert leftovers(*events) == events


def test_a_set_of_unknown_names_is_kept_once_for_each_type_of_event() -> None:
    def stamped(**stamp: Any) -> Json:
        return {**more(0, "text_delta", text="a"), **stamp}

    first, other, both = stamped(host="a"), stamped(zone=1), stamped(host="a", zone=1)
    pieces = [first, stamped(host="b"), other, both, first, stamped(zone=2), both]
    stop = {**stopped(0), "host": "a"}
    assert leftovers(START, begun(0, type="text"), *pieces, stop) == [first, other, both, stop]


def test_of_very_many_sets_of_names_the_first_are_forgotten() -> None:
    book = Notebook()
    unknown = UnknownFields(book, "x")
    for name in [*range(1000), 999, 0, 1000, 0]:
        unknown.keep("news", [str(name)], {"type": "news"})
    assert len(raw_types(book)) == 1002


def test_bedrocks_padding_is_ignored() -> None:
    padded = [{**more(0, "text_delta", text="a"), "p": "abcdefghij"[:n]} for n in range(9)]
    assert leftovers(START, *block(0, *padded, type="text")) == []
    odd = {**more(0, "text_delta", text="a"), "p": "pad"}
    assert leftovers(START, *block(0, odd, type="text")) == [odd]


def test_tokens_of_hidden_thinking_are_added_up() -> None:
    counts = [50, None, 50, 100, 0]
    pieces = [more(0, "thinking_delta", thinking="", estimated_tokens=one) for one in counts]
    events = [START, *block(0, *pieces, type="thinking", thinking="", signature="")]
    assert leftovers(*events) == []
    book = Notebook()
    fed(AnthropicMessages(book), events)
    assert shown(book)["output"][0]["private"]["provider"]["estimated_tokens"] == 200


@pytest.mark.parametrize("count", ["many", -1, 2**50])
def test_tokens_that_cannot_be_added_up_are_kept(count: Any) -> None:
    piece = more(0, "thinking_delta", thinking="", estimated_tokens=count)
    (kept,) = leftovers(START, *block(0, piece, type="thinking"))
    assert kept == piece


def test_more_tokens_than_can_be_added_up_are_the_most() -> None:
    piece = more(0, "thinking_delta", thinking="", estimated_tokens=2**48 - 1)
    book = Notebook()
    fed(AnthropicMessages(book), [START, *block(0, *[piece] * 100, type="thinking")])
    assert shown(book)["output"][0]["private"]["provider"]["estimated_tokens"] == 2**48


# --- messages ------------------------------------------------------------------------------------


def test_the_end_of_a_message_may_say_things_twice_or_in_odd_ways() -> None:
    delta = {"stop_reason": "end_turn", "model": "claude-x"}
    plain = {"type": "message_delta", "model": "claude-x", "delta": delta}
    assert leftovers(START, plain) == []
    for odd in (
        {**plain, "id": "evt_1"},
        {**plain, "usage": "much"},
        {**plain, "model": "claude-y"},
        {**plain, "delta": {**delta, "type": "end"}},
        {**plain, "delta": ["end"], "usage": {"output_tokens": 1}},
    ):
        assert leftovers(START, odd) == [odd]


def test_the_last_event_may_say_how_the_message_ended() -> None:
    end = {**STOP, "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 5}}
    book = Notebook()
    outcome = fed(AnthropicMessages(book), [START, *HELLO, end]).end()
    assert outcome.reason == "max_output_tokens"
    assert shown(book)["usage"]["output_tokens"] == 5


@pytest.mark.parametrize("content", ["Hi", {"0": "Hi"}, 5])
def test_a_message_of_an_odd_shape_is_kept(content: Any) -> None:
    message = {"id": "m", "content": content, "usage": [1]}
    for odd in ({"type": "message_start", "message": message}, {"type": "message", **message}):
        assert leftovers(odd) == [odd]


def test_a_message_that_starts_again_may_say_more() -> None:
    message = {**START["message"], "region": "eu"}
    book = Notebook()
    fed(AnthropicMessages(book), [START, {**START, "message": message}, STOP]).end()
    assert shown(book)["private"]["raw"]["region"] == "eu"
    counts = {**START, "message": {**message, "content": [{"type": "text", "text": "Hi"}]}}
    assert leftovers(START, counts) == [counts]


# --- blocks that are cut -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start",
    [
        {"type": "thinking", "thinking": "Hm", "signature": ""},
        {"type": "redacted_thinking", "data": "sealed"},
        {"type": "tool_use", "id": "t", "name": "look", "input": {}},
        {"type": "text", "text": "Hi"},
    ],
)
def test_the_fields_of_a_cut_block_beside_its_content_are_kept(start: Json) -> None:
    book = Notebook()
    fed(AnthropicMessages(book), [START, begun(0, **start, region="eu")]).end()
    (item,) = shown(book)["output"]
    assert item["status"] == "incomplete"
    raw = item["private"]["raw"]
    assert (raw[0] if isinstance(raw, list) else raw)["region"] == "eu"


@pytest.mark.growth
def test_stamps_on_each_delta_cost_what_the_stream_costs() -> None:
    def seconds(count: int) -> float:
        events = [
            json.dumps({**more(0, "text_delta", text="a"), "n": n}).encode() for n in range(count)
        ]
        ingest = AnthropicMessages(Notebook())
        fed(ingest, [START, begun(0, type="text")])
        began = time.process_time()
        for event in events:
            ingest.feed(event)
        return time.process_time() - began

    short, long = (min(seconds(count) for _ in range(2)) for count in (500, 8_000))
    assert long < 16 * short * 4
