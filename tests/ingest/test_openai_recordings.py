"""Real Responses streams: everything they say arrives once, however they arrive or end."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tailrace.core import events as ev
from tailrace.ingest.base import Notebook
from tailrace.ingest.openai_responses.reader import OpenAIResponses
from tests.ingest import openai_oracle, streams

pytestmark = pytest.mark.long

RECORDED = streams.recordings("openai-responses")
each = pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
BROKEN = {"parallel-tool-call-wrapper.1.jsonl": "cut", "openai-error.1.jsonl": "failed"}


def _made(book: Notebook) -> list[Any]:
    partials: dict[str, int] = {}
    usages: list[Any] = []
    for event, _ in book.take():
        if isinstance(event, ev.ImageDelta):
            partials[event.item_id] = partials.get(event.item_id, 0) + 1
        elif isinstance(event, ev.TaskUsage):
            used = event.usage
            counts = (used.input_tokens, used.output_tokens)
            cached = (used.cached_input_tokens, used.cache_write_tokens)
            usages.append(("usage", *counts, *cached, used.reasoning_tokens))
    return openai_oracle.made(streams.shown(book), partials) + usages


def _in_order(found: list[Any]) -> list[Any]:
    """Usage stands at the end of each response, the object has no such place for it."""
    return sorted(found, key=lambda one: one[0] == "usage")


@each
def test_everything_that_a_stream_says_arrives_exactly_once(path: Path) -> None:
    lines = streams.lines(path)
    book, outcome = streams.ingested(OpenAIResponses, lines)
    assert outcome.status == BROKEN.get(path.name, "completed")
    assert _made(book) == _in_order(openai_oracle.expected_of(lines))


@each
def test_events_that_no_item_has_a_place_for_are_kept_raw_once(path: Path) -> None:
    lines = streams.lines(path)
    book, _ = streams.ingested(OpenAIResponses, lines)
    raws = [private for event, private in book.take() if isinstance(event, ev.RawEvent)]
    assert [private.raw for private in raws if private] == openai_oracle.unshown(lines)


@each
def test_what_is_written_of_a_stream_can_be_read_back(path: Path) -> None:
    book, _ = streams.ingested(OpenAIResponses, streams.lines(path))
    streams.check_readable(book)


@each
def test_a_stream_that_arrives_byte_by_byte_gives_the_same_object(path: Path) -> None:
    lines = streams.lines(path)
    whole, _ = streams.ingested(OpenAIResponses, lines)
    book, _ = streams.fed_in_chunks(OpenAIResponses, streams.as_frames(lines), itertools.repeat(1))
    assert streams.shown(book) == streams.shown(whole)


def _whole_calls(event: dict[str, Any]) -> list[Any]:
    """The arguments of the calls that an event says are whole."""
    items = [event.get("item") or {}] if event["type"].endswith("item.done") else []
    if event["type"] == "response.completed":
        items = event["response"]["output"]
    calls = [one for one in items if one.get("type") in ("function_call", "custom_tool_call")]
    return [call.get("arguments", call.get("input")) for call in calls]


@each
def test_a_stream_that_is_cut_anywhere_ends_without_a_call_that_was_not_finished(
    path: Path,
) -> None:
    lines = streams.lines(path)
    events = [json.loads(line) for line in lines]
    for count, book, outcome in streams.cut_after_each(OpenAIResponses, lines):
        assert book.node.ended
        whole = [call for event in events[:count] for call in _whole_calls(event)]
        if not any(event["type"] == "response.completed" for event in events[:count]):
            assert outcome.status in ("cut", "failed")
        for item in streams.shown(book)["output"]:
            if item["type"] == "tool_call" and item.get("kind", "custom") == "custom":
                assert item.get("status") == "incomplete" or item["arguments"] in whole


@each
@pytest.mark.parametrize("seed", range(4))
def test_a_stream_that_is_cut_at_any_byte_ends_legally(path: Path, seed: int) -> None:
    stream = streams.as_frames(streams.lines(path))
    stream = stream[: streams.somewhere(seed, len(stream))]
    book, _ = streams.fed_in_chunks(OpenAIResponses, stream, streams.random_sizes(seed))
    assert book.node.ended
    streams.check_readable(book)
