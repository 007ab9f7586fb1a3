"""Streams that lie: no exception that is not typed, a legal end, and linear time."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.core.errors import StreamError
from tailrace.ingest.base import Notebook, Outcome
from tailrace.ingest.openai_responses.reader import OpenAIResponses
from tests.ingest import streams

Json = dict[str, Any]
_STREAMS = [streams.lines(path) for path in streams.recordings("openai-responses")]
_SHORT = [[json.loads(line) for line in lines] for lines in _STREAMS if len(lines) < 130]

_junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([-1, 2**31, 2**53 + 1, 10**30, 1e308, 0.5])
    | st.text(max_size=5)
    | st.sampled_from(
        ["", "\x00", "message", "reasoning", "function_call", "completed", "incomplete", "failed"]
    )
    | st.sampled_from(["web_search_call", "image_generation_call", "mcp_call", "output_text"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "id", "text", "item", "content", "status", "call_id", "name"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=6,
)


def ended(events: list[Json]) -> tuple[Notebook, Outcome]:
    """A stream of which single events may be refused, as a caller that goes on would read it."""
    book = Notebook()
    ingest = OpenAIResponses(book)
    for event in events:
        try:
            ingest.feed(json.dumps(event))
        except StreamError:
            continue
    outcome = ingest.end()
    assert not any(node.is_open for node in book.node.items.values())
    book.conclude(outcome)
    return book, outcome


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a value that could hold something else."""
    found = [path] if path else []
    pairs: Any = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    for key, inner in pairs:
        found += _places(inner, (*path, key))
    return found


def _replaced(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    if not path:
        return junk
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _replaced(copy[path[0]], path[1:], junk)
    return copy


@st.composite
def _mutated(draw: st.DrawFn) -> list[Json]:
    events = list(draw(st.sampled_from(_SHORT)))
    for _ in range(draw(st.integers(1, 8))):
        if not events:
            break
        at = draw(st.integers(0, len(events) - 1))
        how = draw(st.sampled_from(["drop", "twice", "move", "junk", "junk", "junk", "cut"]))
        if how == "drop":
            del events[at]
        elif how == "twice":
            events.insert(draw(st.integers(0, len(events))), events[at])
        elif how == "move":
            events.insert(draw(st.integers(0, len(events) - 1)), events.pop(at))
        elif how == "cut":
            del events[at:]
        else:
            place = draw(st.sampled_from(_places(events[at])))
            events[at] = _replaced(events[at], place, draw(_junk))
    return events


@settings(suppress_health_check=list(HealthCheck))
@given(_mutated())
def test_a_stream_that_was_tampered_with_ends_legally(events: list[Json]) -> None:
    book, _ = ended(events)
    assert book.node.ended
    streams.check_readable(book)


_types = sorted({event["type"] for events in _SHORT for event in events})
_index = st.sampled_from([0, 0, 1, 2, None, -1, 2**60, True, "0"])
_id = st.sampled_from(["a", "b", "a", None, 7, ""])
_text = st.sampled_from(["x", "xy", "", "{}", '{"a":1}', "[^1]", None, {"text": "x"}])
_item = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "reasoning", "function_call", "image_generation_call",
                              "mcp_approval_request", "mcp_call", "hologram"])},
    optional={
        "id": _id,
        "call_id": _id,
        "name": _id,
        "status": st.sampled_from(["completed", "incomplete", "in_progress", "failed", None]),
        "arguments": _text,
        "input": _text,
        "content": st.lists(
            st.fixed_dictionaries(
                {"type": st.sampled_from(["output_text", "refusal", "reasoning_text", "x"])},
                optional={"text": _text, "refusal": _text, "annotations": _junk},
            ),
            max_size=3,
        ),
        "summary": st.lists(st.fixed_dictionaries({"text": _text}), max_size=2),
        "result": st.sampled_from(["AAAA", None]),
        "error": _junk,
    },
)  # fmt: skip
_event = st.fixed_dictionaries(
    {"type": st.sampled_from(_types)},
    optional={
        "output_index": _index,
        "content_index": _index,
        "summary_index": _index,
        "item_id": _id,
        "delta": _text,
        "text": _text,
        "arguments": _text,
        "refusal": _text,
        "code": _text,
        "input": _text,
        "name": _id,
        "item": _item,
        "part": st.fixed_dictionaries(
            {"type": st.sampled_from(["output_text", "refusal", "reasoning_text", "summary_text"])},
            optional={"text": _text, "refusal": _text},
        ),
        "annotation": st.fixed_dictionaries(
            {"type": st.sampled_from(["url_citation", "file_citation", "x"])},
            optional={"url": _text, "file_id": _text, "start_index": _index, "end_index": _index},
        ),
        "logprobs": st.sampled_from([[], [{"token": "x"}], 7]),
        "partial_image_b64": st.sampled_from(["AAAA", 7]),
        "response": st.fixed_dictionaries(
            {},
            optional={
                "id": _id,
                "status": st.sampled_from(["completed", "failed", "incomplete", None]),
                "output": st.lists(_item, max_size=3),
                "usage": _junk,
                "error": _junk,
            },
        ),
    },
)


@settings(suppress_health_check=list(HealthCheck))
@given(st.lists(_event, max_size=14))
def test_any_mixture_of_events_ends_legally(events: list[Json]) -> None:
    book, _ = ended(events)
    assert book.node.ended
    streams.check_readable(book)


@given(st.binary(max_size=40) | st.text(max_size=40) | _junk.map(json.dumps))
def test_anything_is_an_event_or_refused(data: bytes | str) -> None:
    book = Notebook()
    ingest = OpenAIResponses(book)
    with contextlib.suppress(StreamError):
        ingest.feed(data)
    book.conclude(ingest.end())
    assert book.node.ended


# --- time ----------------------------------------------------------------------------------------


def _items(count: int) -> list[Json]:
    found: list[Json] = []
    for n in range(count):
        item = {"type": "function_call", "id": f"fc_{n}", "call_id": f"call_{n}", "name": "f"}
        found.append({"type": "response.output_item.added", "output_index": n, "item": item})
    for n in range(count):
        item = {"type": "function_call", "id": f"fc_{n}", "name": "f", "arguments": "{}"}
        found.append({"type": "response.output_item.done", "output_index": n, "item": item})
    output = [event["item"] for event in found[count:]]
    return [*found, {"type": "response.completed", "response": {"output": output}}]


def _repeated_ends(count: int) -> list[Json]:
    place = {"item_id": "m", "output_index": 0, "content_index": 0}
    delta = {"type": "response.output_text.delta", "delta": "some text", **place}
    end = {"type": "response.output_text.done", "text": "short", **place}
    return [delta, end] * count


def _implied(count: int) -> list[Json]:
    kind = "response.output_text.delta"
    return [{"type": kind, "item_id": f"m_{n}", "delta": "x"} for n in range(count)]


def _parts(count: int) -> list[Json]:
    kind = "response.reasoning_summary_part.added"
    done = "response.reasoning_summary_text.done"
    place = {"item_id": "r", "output_index": 0, "summary_index": 0}
    return [{"type": kind, **place}, {"type": done, "text": "x", **place}] * count


def _citations(count: int) -> list[Json]:
    place = {"item_id": "m", "output_index": 0, "content_index": 0}
    delta = {"type": "response.output_text.delta", "delta": "some text", **place}
    url = {"type": "url_citation", "url": "u", "start_index": 0, "end_index": 10**9}
    kind = "response.output_text.annotation.added"
    return [delta, *[{"type": kind, "annotation": url, **place}] * count]


def _texts(count: int) -> list[Json]:
    events: list[Json] = []
    for at in range(count):
        place = {"item_id": "m", "output_index": 0, "content_index": at}
        events.append({"type": "response.output_text.delta", "delta": "some text", **place})
        part = {"type": "output_text", "text": "some text and more", "annotations": [{}]}
        events.append({"type": "response.content_part.done", "part": part, **place})
    return events


def _stamped(count: int) -> list[Json]:
    place = {"item_id": "m", "output_index": 0, "content_index": 0}
    delta = {"type": "response.output_text.delta", "delta": "some text", **place}
    return [{**delta, "stamp": "x" * 200, "at": n // 2} for n in range(count)]


def _repetitions(count: int) -> list[Json]:
    place = {"item_id": "m", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "some text" * count, "annotations": []}
    begin = {"type": "response.content_part.added", "part": part, **place}
    delta = {"type": "response.output_text.delta", "delta": "some text", **place}
    return [begin, *[delta] * (2 * count)]


def _wide(count: int) -> list[Json]:
    many = {f"field_{n}": n for n in range(count)}
    call = {"type": "function_call", "id": "fc", "name": "f", "status": "in_progress"}
    place = {"item_id": "ws", "output_index": 1}
    again: list[Json] = [
        {"type": "response.in_progress", "response": {"id": "r"}},
        {"type": "response.output_item.done", "output_index": 0, "item": call},
        {"type": "response.web_search_call.searching", **place, "action": {"n": 1}},
    ]
    return [
        {"type": "response.created", "response": {"id": "r", **many}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**call, **many}},
        {"type": "response.web_search_call.in_progress", **place, "action": many},
        *again * count,
    ]


_MANY = (
    *(_items, _repeated_ends, _implied, _parts, _texts),
    *(_citations, _stamped, _repetitions, _wide),
)


@pytest.mark.growth
@pytest.mark.parametrize("make", _MANY)
def test_time_grows_with_the_stream_and_no_faster(make: Any) -> None:
    def seconds(count: int) -> float:
        events = make(count)
        start = time.process_time()
        ended(events)
        return time.process_time() - start

    small = min(seconds(250) for _ in range(3))
    # A machine that is busy with other things may be slow once, not always.
    assert any(seconds(2500) < small * 10 * 3 for _ in range(3))
