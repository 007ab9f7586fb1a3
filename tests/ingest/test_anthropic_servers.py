"""Streams of servers that say they speak Anthropic's Messages API, each with a habit of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.ingest.anthropic_messages.reader import AnthropicMessages
from tailrace.ingest.base import Notebook, Outcome
from tests.ingest.anthropic_oracle import messages_of
from tests.ingest.streams import check_cut_everywhere, ingested
from tests.ingest.test_anthropic_messages import (
    START,
    STOP,
    begun,
    block,
    ended,
    more,
    read,
    stopped,
)
from tests.ingest.test_anthropic_recordings import check_all_arrived, expected_status

Json = dict[str, Any]
CALL: Json = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}


def text(index: int, piece: str) -> Json:
    return more(index, "text_delta", text=piece)


def thought(index: int, piece: str) -> Json:
    return more(index, "thinking_delta", thinking=piece)


def arguments(index: int, piece: str) -> Json:
    return more(index, "input_json_delta", partial_json=piece)


def texts_of(whole: Json) -> list[tuple[str, str]]:
    """What each item says; a question mark behind those that are not whole."""
    found: list[tuple[str, str]] = []
    for item in whole["output"]:
        if item["type"] == "message":
            words = " | ".join(one["text"] for one in item["block_list"])
        elif item["type"] == "reasoning":
            words = " | ".join(part["text"] for part in item["summary"])
        elif item["type"] == "tool_call":
            words = item["arguments"]
        else:
            words = json.dumps(item.get("block_list"))
        mark = "?" if item.get("status") == "incomplete" else ""
        found.append((item["type"], words + mark))
    return found


BARE = {"type": "message_start", "message": {"type": "message", "stop_reason": ""}}
SHAPES: dict[str, tuple[list[Json], list[tuple[str, str]]]] = {
    "litellm-thinks-in-a-text-block": (
        [
            START,
            START,
            *block(
                0,
                *(thought(0, "Hm, "), thought(0, "so.")),
                more(0, "signature_delta", signature=""),
                *(text(0, "Hel"), text(0, "lo")),
                type="text",
                text="",
            ),
            *ended("end_turn"),
        ],
        [("message", "Hello"), ("reasoning", "Hm, so.")],
    ),
    "sglang-talks-in-a-call": (
        [
            START,
            *block(
                0,
                arguments(0, '{"a":'),
                text(0, "By the "),
                text(0, "way"),
                arguments(0, "1}"),
                **CALL,
            ),
            *ended("tool_use"),
        ],
        [("tool_call", '{"a":1}'), ("message", "By the way")],
    ),
    "blocks-that-never-stop": (
        [
            *(BARE, begun(0, type="thinking"), thought(0, "Hm")),
            *(begun(1, type="text", text=""), text(1, "Hello")),
            *ended("end_turn"),
        ],
        [("reasoning", "Hm"), ("message", "Hello")],
    ),
    "blocks-that-never-start": (
        [
            *(START, thought(0, "Hm"), more(0, "signature_delta", signature="s"), stopped(0)),
            *(
                text(1, "Hel"),
                text(1, "lo"),
                more(1, "citations_delta", citation={"url": "https://a.example", "title": None}),
            ),
            *(stopped(1), text(2, "Bye"), *ended("end_turn")),
        ],
        [("reasoning", "Hm"), ("message", "Hello | Bye")],
    ),
    "nothing-ever-starts": (
        [
            *({"type": "ping"}, thought(0, "Hm"), text(0, "Hel"), text(0, "lo")),
            *ended("end_turn"),
        ],
        [("reasoning", "Hm"), ("message", "Hello")],
    ),
    "vercel-gateway-begins-a-call-before-the-text-stops": (
        [
            *(START, begun(0, type="text", text=""), text(0, "Hel")),
            *(begun(1, **CALL), text(0, "lo"), arguments(1, '{"a":1}')),
            *(stopped(0), stopped(1)),
            {**ended("tool_use")[0], "provider_metadata": {"gateway": {"cost": "0.1"}}},
            STOP,
        ],
        [("message", "Hello"), ("tool_call", '{"a":1}')],
    ),
    "digitalocean-sorts-its-fields": (
        [
            {name: event[name] for name in sorted(event)}
            for event in (START, *block(0, text(0, "Hello"), type="text"), *ended("end_turn"))
        ],
        [("message", "Hello")],
    ),
    "one-index-for-all": (
        [
            START,
            *block(0, thought(0, "Hm"), type="thinking", thinking=""),
            *block(0, text(0, "Hello"), type="text", text=""),
            *block(0, arguments(0, '{"a":1}'), **CALL),
            *block(0, arguments(0, '{"a":2}'), **{**CALL, "id": "t2"}),
            *ended("tool_use"),
        ],
        [
            *(("reasoning", "Hm"), ("message", "Hello")),
            *(("tool_call", '{"a":1}'), ("tool_call", '{"a":2}')),
        ],
    ),
    "all-of-a-block-in-its-start": (
        [
            START,
            *block(0, type="thinking", thinking="Hm", signature="s"),
            *block(1, text(1, "lo"), type="text", text="Hel"),
            *block(2, arguments(2, ""), **{**CALL, "input": {"a": 1}}),
            *ended("tool_use"),
        ],
        [("reasoning", "Hm"), ("message", "Hello"), ("tool_call", '{"a":1}')],
    ),
    "a-result-of-a-plain-type": (
        [
            START,
            *block(0, type="server_tool_use", id="c1", name="search", input={"q": "x"}),
            *block(1, type="tool_result", tool_use_id="c1", content="Found"),
            *block(2, text(2, "Hello"), type="text", text=""),
            *ended("end_turn"),
        ],
        [
            ("tool_call", '{"q":"x"}'),
            ("tool_result", '[{"type": "text", "text": "Found"}]'),
            ("message", "Hello"),
        ],
    ),
    "counts-at-the-end-and-a-reason-twice": (
        [
            *(BARE, *block(0, text(0, "Hello"), type="text")),
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_delta", "delta": {"stop_reason": ""}, "usage": {"output_tokens": 9}},
            STOP,
        ],
        [("message", "Hello")],
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_each_servers_dialect_gives_the_whole_answer(name: str) -> None:
    events, expected = SHAPES[name]
    whole, outcome = read(*events)
    assert texts_of(whole) == expected
    assert outcome == Outcome(status="completed")
    assert whole["usage"]["output_tokens"] == 9
    check_cut_everywhere(AnthropicMessages, [json.dumps(event) for event in events])


def test_a_call_whose_arguments_come_after_its_stop_is_never_made_without_them() -> None:
    whole, outcome = read(START, *block(0, **CALL), arguments(0, '{"a":1}'), *ended("tool_use"))
    assert texts_of(whole) == [("tool_call", "?")]
    assert outcome == Outcome(status="cut", reason="incomplete_call")
    whole, outcome = read(START, *block(0, **CALL), arguments(0, ""), *ended("tool_use"))
    assert texts_of(whole) == [("tool_call", "{}")]
    assert outcome == Outcome(status="completed")


@pytest.mark.parametrize("name", SHAPES)
def test_no_habit_makes_a_call_of_a_cut_stream_before_its_stop(name: str) -> None:
    events, expected = SHAPES[name]
    whole_calls = {words for kind, words in expected if kind == "tool_call"}
    for count in range(len(events)):
        whole, _ = read(*events[:count])
        calls = [words for kind, words in texts_of(whole) if kind == "tool_call"]
        assert all(words.endswith("?") or words in whole_calls for words in calls)


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "nothing-ever-starts"])
def test_all_of_it_arrives_exactly_once_wherever_it_is_cut(name: str) -> None:
    events = [json.dumps(event) for event in SHAPES[name][0]]
    for count in range(1, len(events) + 1):
        book, outcome = ingested(AnthropicMessages, events[:count])
        letters = messages_of(events[:count])
        check_all_arrived(book, letters)
        assert outcome.status == expected_status(events[:count], letters)


def test_a_call_that_never_stops_is_never_made() -> None:
    whole, outcome = read(START, begun(0, **CALL), arguments(0, '{"a":1}'), *ended("tool_use"))
    assert texts_of(whole) == [("tool_call", '{"a":1}?')]
    assert outcome == Outcome(status="cut", reason="incomplete_call")


@pytest.mark.parametrize("start", [{"type": "text", "text": "Hel"}, {**CALL, "input": {"a": 1}}])
def test_a_stream_cut_right_after_a_full_start_keeps_its_text(start: Json) -> None:
    whole, outcome = read(START, begun(0, **start))
    assert outcome == Outcome(status="cut")
    assert texts_of(whole) == [("message", "Hel?") if "text" in start else ("tool_call", "?")]


def test_a_new_block_ends_stray_items_at_its_index() -> None:
    events = [START, begun(0, **CALL), text(0, "Hm"), begun(0, **{**CALL, "id": "t2"})]
    whole, _ = read(*events, text(0, "Oh"), arguments(0, "{}"), stopped(0), *ended("tool_use"))
    expected = [("tool_call", "?"), ("message", "Hm"), ("tool_call", "{}"), ("message", "Oh")]
    assert texts_of(whole) == expected


def test_stray_events_after_a_message_add_nothing_to_it() -> None:
    book = Notebook()
    ingest = AnthropicMessages(book)
    for event in (START, STOP, text(0, "late"), more(0, ["text_delta"])):
        ingest.feed(json.dumps(event))
    assert book.node.items == {}
