"""Anthropic's streams gone wrong in any way: lost, repeated, swapped events, junk anywhere."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tailrace.core.errors import StreamError
from tailrace.ingest.anthropic_messages.reader import AnthropicMessages
from tailrace.ingest.base import Notebook
from tests.ingest.streams import FIXTURES, check_readable, lines, shown

_STREAMS = [
    [json.loads(line) for line in lines(path)]
    for path in sorted((FIXTURES / "anthropic-messages").glob("*.jsonl"))
]
_EVENTS = [event for stream in _STREAMS for event in stream]

_WORDS = sorted(
    {str(event["type"]) for event in _EVENTS}
    | {str(event["content_block"]["type"]) for event in _EVENTS if "content_block" in event}
    | {str(event["delta"].get("type")) for event in _EVENTS if "delta" in event}
    | {"toolu_1", "srvtoolu_1", "mcptoolu_1", "msg_1", "max_tokens", "refusal", "tool_use"}
)
_FIELDS = sorted({name for event in _EVENTS for name in event} | {"id", "text", "content", "name"})
junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 2**60)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(_WORDS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(_FIELDS) | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


def _paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at]
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for name, one in pairs:
            found += _paths(one, (*at, name))
    return found


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _replaced(value[path[0]], path[1:], new)
    return copy


@st.composite
def broken_streams(draw: st.DrawFn) -> list[Any]:
    """A stream of ours after a few accidents."""
    events: list[Any] = list(draw(st.sampled_from(_STREAMS)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(events) - 1))
        accident = draw(st.sampled_from(("lost", "repeated", "moved", "foreign", "junk", "cut")))
        if accident == "lost" and len(events) > 1:
            del events[at]
        elif accident == "repeated":
            events.insert(draw(st.integers(0, len(events))), events[at])
        elif accident == "moved":
            events.insert(draw(st.integers(0, len(events) - 1)), events.pop(at))
        elif accident == "foreign":
            events.insert(at, draw(st.sampled_from(_EVENTS) | junk))
        elif accident == "junk":
            path = draw(st.sampled_from(_paths(events[at])))
            events[at] = _replaced(events[at], path, draw(junk))
        elif accident == "cut":
            events = events[: at + 1]
    return events


@given(broken_streams())
def test_a_broken_stream_ends_in_a_legal_state_and_makes_no_partial_call(events: list[Any]) -> None:
    book = Notebook()
    ingest = AnthropicMessages(book)
    for event in events:
        before = book.state.sequence_number
        try:
            ingest.feed(json.dumps(event))
        except StreamError:
            assert book.state.sequence_number == before
    outcome = ingest.end()
    assert not any(node.is_open for node in book.node.items.values())
    for item in shown(book)["output"]:
        if item["type"] == "tool_call" and "status" not in item:
            assert isinstance(json.loads(item["arguments"]), dict)
    book.conclude(outcome)
    check_readable(book)


@given(st.lists(junk, max_size=20), st.binary(max_size=60))
def test_junk_is_refused_or_kept(events: list[Any], noise: bytes) -> None:
    book = Notebook()
    ingest = AnthropicMessages(book)
    everything: list[str | bytes] = [noise, *(json.dumps(event) for event in events)]
    for data in everything:
        try:
            ingest.feed(data)
        except StreamError:
            continue
    book.conclude(ingest.end())
    check_readable(book)
