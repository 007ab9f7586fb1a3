"""Random, tampered and long streams of chat completions end legally, in time that does not grow."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.core.errors import StreamError
from tailrace.ingest.base import Notebook
from tailrace.ingest.openai_chat.reader import OpenAIChat
from tests.ingest.streams import FIXTURES, check_readable, lines, shown
from tests.ingest.test_openai_chat import calls, chunk, fragment

STREAMS = sorted((FIXTURES / "chat-completions").glob("*.jsonl"))

_WORDS = st.sampled_from(
    [
        *("content", "reasoning", "reasoning_content", "reasoning_details", "tool_calls", "delta"),
        *("function", "name", "arguments", "index", "id", "type", "text", "thinking", "refusal"),
        *("choices", "usage", "error", "finish_reason", "stop", "annotations", "audio", "images"),
        *("function_call", "message", "logprobs", "citations", "x_groq", "url_citation", "custom"),
        *("thinking_blocks", "reasoning_opaque", "extra_content", "google", "signature", "summary"),
    ]
)
_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=4),
    max_leaves=8,
)


@st.composite
def mutated_streams(draw: st.DrawFn) -> list[str]:
    """A real stream in which values were replaced, dropped, swapped or doubled."""
    events = [json.loads(line) for line in lines(draw(st.sampled_from(STREAMS)))]
    for _ in range(draw(st.integers(1, 6))):
        _mutate(draw, events)
    return [json.dumps(event) for event in events]


def _mutate(draw: st.DrawFn, events: list[Any]) -> None:
    holder: Any = events
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return
        key = draw(st.sampled_from(keys))
        inner = holder[key]
        if isinstance(inner, dict | list) and inner and draw(st.integers(0, 4)):
            holder = inner
            continue
        how = draw(st.sampled_from(["replace", "drop", "double", "shuffle"]))
        if how == "replace":
            holder[key] = draw(_ANYTHING)
        elif how == "drop":
            del holder[key]
        elif how == "double" and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(inner))
        elif isinstance(holder, list):
            holder[:] = draw(st.permutations(holder))
        return


def check_hostile(events: list[str]) -> None:
    book = Notebook()
    ingest = OpenAIChat(book)
    for event in events:
        try:
            ingest.feed(event)
        except StreamError:
            continue
    outcome = ingest.end()
    book.conclude(outcome)
    check_readable(book)
    for item in shown(book).get("output", []):
        if item["type"] == "tool_call" and "status" not in item:
            assert outcome.status in ("completed", "incomplete")
            assert item["kind"] == "custom" if "kind" in item else _is_no_beginning(item)


def _is_no_beginning(call: dict[str, Any]) -> bool:
    """No characters at all, JSON, or what cannot become JSON by going on."""
    if not call["arguments"]:
        return True
    try:
        json.loads(call["arguments"])
    except json.JSONDecodeError as error:
        return error.pos < len(call["arguments"]) and "Unterminated" not in error.msg
    return True


@given(mutated_streams())
def test_a_stream_that_was_tampered_with_ends_legally(events: list[str]) -> None:
    check_hostile(events)


@given(st.lists(st.dictionaries(_WORDS, _ANYTHING, max_size=4).map(json.dumps), max_size=8))
def test_objects_that_are_not_chunks_end_legally(events: list[str]) -> None:
    check_hostile(events)


_DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "content": _ANYTHING,
        "reasoning": _ANYTHING,
        "reasoning_details": st.lists(_ANYTHING, max_size=2),
        "reasoning_opaque": _ANYTHING,
        "extra_content": st.just({"google": {"thought": True}}),
        "annotations": st.lists(_ANYTHING, max_size=2),
        "tool_calls": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "index": st.integers(0, 2) | st.none(),
                    "id": st.sampled_from(["", "a", "b"]) | st.none(),
                    "function": st.fixed_dictionaries(
                        {},
                        optional={
                            "name": st.sampled_from(["", "f", "g"]),
                            "arguments": st.sampled_from(["", "{}", '{"a":', "1}", "x", {"a": 1}]),
                        },
                    ),
                },
            ),
            max_size=3,
        ),
        "function_call": _ANYTHING,
        "refusal": st.text(max_size=2),
    },
)


@given(st.lists(_DELTAS, max_size=8), st.sampled_from(["stop", "tool_calls", "length", None]))
def test_any_deltas_in_any_order_end_legally(deltas: list[Any], finish: str | None) -> None:
    check_hostile([*(chunk(delta) for delta in deltas), chunk({}, finish)])


_LONG: dict[str, Callable[[int], str]] = {
    "text": lambda at: chunk({"content": "word "}),
    "turns": lambda at: chunk({"reasoning": "a", "content": "b"}),
    "one call": lambda at: calls(fragment("f", "1", index=0, id="a")),
    "new ids": lambda at: calls(fragment("f", "[", id=f"call_{at}", index=0)),
    "new ids of whole calls": lambda at: calls(fragment("f", "[1]", index=0, id=f"call_{at}")),
    "no ids": lambda at: calls(fragment("f", "[1]")),
    "new indexes": lambda at: calls(fragment("f", "", index=at)),
    "images": lambda at: chunk({"images": [{"image_url": {"url": "u"}}], "content": "a"}),
    "citations": lambda at: chunk({"content": "a", "annotations": [{"at": at}]}),
    "opaque": lambda at: chunk({"reasoning_opaque": f"{at}"}),
    "details": lambda at: chunk({"reasoning_details": [{"type": "reasoning.text", "text": "a"}]}),
    "unknown": lambda at: chunk({"new": "a", "audio": {"data": "a"}}, citations=["u"]),
}


@pytest.mark.growth
@pytest.mark.parametrize("make", _LONG.values(), ids=list(_LONG))
def test_the_cost_of_a_chunk_does_not_grow_with_what_came_before(
    make: Callable[[int], str],
) -> None:
    def seconds(count: int) -> float:
        events = [make(at) for at in range(count)]
        start = time.thread_time()
        book = Notebook()
        ingest = OpenAIChat(book)
        for event in events:
            ingest.feed(event)
        ingest.end()
        return time.thread_time() - start

    # Ten times the chunks; quadratic would be a hundred times the time.
    small = min(seconds(150) for _ in range(3))
    # A machine that is busy with other things may be slow once, not always.
    assert any(seconds(1_500) < small * 10 * 4 for _ in range(3))
