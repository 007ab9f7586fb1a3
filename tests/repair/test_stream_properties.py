"""Any damage in, a stream that strict clients read out; no damage in, the same bytes out."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.repair.stream import ResponsesRepair
from tests.repair.streams import (
    HERE,
    RECORDINGS,
    ROOT,
    TERMINAL,
    HealthyStream,
    Json,
    Read,
    events_of,
    healthy,
    recorded,
    repaired,
    stream,
    sunny,
)

TRACES = sorted((ROOT / "conformance" / "traces").glob("*/openai-responses.sse"))
RECORDED = {
    "ours": stream(*sunny()),  # always there
    **recorded(RECORDINGS / "openai-responses"),
}
STRUCTURE = (
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.output_item.done",
    "response.content_part.added",
    "response.content_part.done",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done",
    "response.output_text.done",
    "response.reasoning_text.done",
    "response.reasoning_summary_text.done",
    "response.function_call_arguments.done",
    "response.completed",
)


def needs_nothing(events: list[Json]) -> bool:
    """Whether every client can read a stream, by independent rules."""
    if any("reasoning_text" in json.dumps(event) for event in events):
        return False
    try:
        numbers = [event["sequence_number"] for event in events]
        ids = {event["response"]["id"] for event in events if "response" in event}
        names: dict[int, str] = {}
        texts: dict[Any, str] = {}
        for event in events:
            name = event.get("item_id") or event.get("item", {}).get("id")
            if name is not None and names.setdefault(event["output_index"], name) != name:
                return False
            key = (event.get("item_id"), event.get("content_index"), event.get("summary_index"))
            if event["type"].endswith("_text.delta"):
                texts[key] = texts.get(key, "") + event["delta"]
            if event["type"].endswith("_text.done"):
                so_far = texts.get(key, "")
                if event["text"] != so_far and event["text"].startswith(so_far):
                    return False
    except KeyError:
        return False
    return (
        len(ids) == 1
        and events[-1]["type"] in TERMINAL
        and all(one < next_one for one, next_one in pairwise(numbers))
    )


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.parent.name)
def test_our_own_streams_pass_byte_for_byte(trace: Path) -> None:
    body = trace.read_bytes()
    if events_of(body)[-1]["type"] not in TERMINAL:
        assert repaired(body).startswith(body)  # a run that waits: only the end is put in
        return
    assert repaired(body) == body


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_stream_that_needs_nothing_passes_byte_for_byte(name: str) -> None:
    body = RECORDED[name]
    if needs_nothing(events_of(body)):
        assert repaired(body) == body
    else:
        assert repaired(body) != body
        assert repaired(repaired(body)) == repaired(body)


@given(
    healthy(raw=False), st.sampled_from((b"", b"data: [DONE]\n\n", b": bye\n\n", b"data: [DONE]"))
)
def test_a_healthy_stream_passes_byte_for_byte(events: list[Json], tail: bytes) -> None:
    body = b": hello\n\n" + stream(*events) + tail
    assert repaired(body) == body
    assert repaired(body.replace(b"\n", b"\r\n")) == body.replace(b"\n", b"\r\n")


@st.composite
def bare(draw: st.DrawFn) -> tuple[list[Json], list[Json]]:
    """A stream that lacks any of the events that only give it its structure."""
    events = draw(healthy())
    dropped = draw(st.sets(st.sampled_from(STRUCTURE)))
    some = draw(st.lists(st.booleans(), min_size=len(events), max_size=len(events)))
    kept = [e for e, drop in zip(events, some, strict=True) if e["type"] not in dropped or not drop]
    return events, kept


@st.composite
def unnamed(draw: st.DrawFn) -> tuple[list[Json], list[Json]]:
    """A stream whose events name their items and parts only now and then."""
    events = draw(healthy())
    damaged = json.loads(json.dumps(events))
    keys = ("item_id", "output_index", "content_index", "summary_index")
    gone = draw(st.sets(st.sampled_from((*keys, "id"))))
    for event in damaged:
        for key in keys:
            if key in gone and draw(st.booleans()):
                event.pop(key, None)
        if "id" in gone and draw(st.booleans()):
            event.get("item", {}).pop("id", None)
    return events, damaged


@st.composite
def unnumbered(draw: st.DrawFn) -> tuple[list[Json], list[Json]]:
    """A stream whose numbers are missing, constant or falling."""
    events = draw(healthy())
    damaged = json.loads(json.dumps(events))
    for event in damaged:
        number = draw(st.sampled_from((None, 0, 3, event["sequence_number"], "4", True)))
        event["sequence_number"] = number
        if number is None:
            del event["sequence_number"]
    return events, damaged


def check(events: list[Json], damaged: list[Json]) -> Read:
    """The repaired stream tells everything once, and ends as it should."""
    wanted, got = Read([]), Read(events_of(repaired(stream(*damaged))))
    for event in events:
        item = event.get("item", {})
        if event["type"] == "response.output_item.done":
            shown = item.get("summary") or item.get("content") or [{"text": item.get("arguments")}]
            texts = {place: part["text"] for place, part in enumerate(shown)}
            wanted.items[event["output_index"]] = {"type": item["type"], "texts": texts}
    for type_ in ("message", "reasoning", "function_call"):
        assert got.texts(type_) == wanted.texts(type_), type_
    assert got.final is not None
    return got


@given(bare())
def test_what_gives_a_stream_its_structure_may_be_missing(
    case: tuple[list[Json], list[Json]],
) -> None:
    events, damaged = case
    kinds = [event["type"] for event in damaged]
    named = {
        event["item"]["id"]
        for event in damaged
        if event.get("item", {}).get("type") == "function_call"
    }
    calls = {e["item"]["id"] for e in events if e.get("item", {}).get("type") == "function_call"}
    if named != calls and "response.completed" not in kinds:
        got = Read(events_of(repaired(stream(*damaged))))  # a call without a name is not shown
        assert got.final is not None
        assert got.final["status"] == "failed"
        return
    got = check(events, damaged)
    if "response.completed" in kinds:
        assert got.final is not None
        assert got.final["status"] == "completed"
        assert set(got.done) == set(got.items)
        final = [item.get("summary") or item.get("content") for item in got.final["output"]]
        done = [got.done[n].get("summary") or got.done[n].get("content") for n in sorted(got.done)]
        assert final == done


@given(unnamed())
def test_items_and_parts_may_be_unnamed(case: tuple[list[Json], list[Json]]) -> None:
    got = check(*case)
    assert set(got.done) == set(got.items)


@given(unnumbered())
def test_numbers_may_be_missing_constant_or_falling(case: tuple[list[Json], list[Json]]) -> None:
    got = check(*case)
    assert set(got.done) == set(got.items)


damage = st.one_of(bare(), unnamed(), unnumbered())


@given(damage, st.lists(st.integers(0, 60)), st.booleans())
def test_however_the_bytes_are_cut_the_answer_is_the_same(
    case: tuple[list[Json], list[Json]], sizes: list[int], crlf: bool
) -> None:
    body = stream(*case[1])
    if crlf:
        body = body.replace(b"\n", b"\r\n")
    repair = ResponsesRepair("abc", 1700000000)
    out, at = b"", 0
    for size in [*sizes, len(body)]:
        out += repair.feed(body[at : at + size])
        at += size
    assert out + repair.end() == repaired(body)


@given(damage)
def test_a_repaired_stream_needs_no_repair(case: tuple[list[Json], list[Json]]) -> None:
    once = repaired(stream(*case[1]))
    assert repaired(once) == once


@given(damage, st.integers(0, 200))
def test_a_client_that_resumes_gets_exactly_the_rest(
    case: tuple[list[Json], list[Json]], at: int
) -> None:
    body = stream(*case[1])
    events = events_of(repaired(body))
    after = events[min(at, len(events) - 1)]["sequence_number"]
    rest = events_of(repaired(body, after=after))
    assert rest == [event for event in events if event["sequence_number"] > after]


@given(healthy(), st.data())
def test_a_stream_cut_anywhere_ends_legally(events: list[Json], data: st.DataObject) -> None:
    body = stream(*events)
    at = data.draw(st.integers(0, len(body) - 1))
    repair = ResponsesRepair("abc")
    out = repair.feed(body[:at]) + repair.cut("The line is dead.")
    final = Read(events_of(out)).final
    assert final is not None
    assert final["status"] == "failed"
    assert (final["error"]["type"], final["error"]["message"]) == (
        "upstream_cut",
        "The line is dead.",
    )


@given(st.binary(max_size=200), st.lists(st.integers(0, 20)))
def test_bytes_that_are_not_a_stream_pass_as_they_are(body: bytes, sizes: list[int]) -> None:
    repair = ResponsesRepair("abc")
    out = repair.feed(body)
    assert body.startswith(out)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from(("", "rs_0", "text", "message")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ("type", "id", "text", "content", "summary", "output", "arguments", "status")
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                (
                    *STRUCTURE,
                    "response.output_text.delta",
                    "response.reasoning_text.delta",
                    "response.reasoning_summary_text.delta",
                    "response.function_call_arguments.delta",
                    "response.refusal.delta",
                    "response.output_text.annotation.added",
                    "response.web_search_call.searching",
                    "response.failed",
                    "error",
                    "keepalive",
                )
            ),
            st.dictionaries(
                st.sampled_from(
                    (
                        "item",
                        "item_id",
                        "output_index",
                        "content_index",
                        "summary_index",
                        "part",
                        "delta",
                        "text",
                        "arguments",
                        "response",
                        "sequence_number",
                    )
                ),
                json_values,
            ),
        ),
        max_size=8,
    )
)
def test_nonsense_in_known_events_raises_nothing(events: list[tuple[str, Json]]) -> None:
    out = repaired(stream(*({**fields, "type": kind} for kind, fields in events)))
    numbers = [event["sequence_number"] for event in events_of(out)]
    assert numbers == sorted(set(numbers))


def test_the_real_agentscope_runtime_is_repaired() -> None:
    body = (HERE / "agentscope-runtime-1.1.6.sse").read_bytes()
    got = Read(events_of(repaired(body)))
    assert got.texts("reasoning") == [["Sun or rain? Sun."]]
    assert got.texts("message") == [["It is sunny."]]
    assert got.final is not None
    assert [item.get("summary") for item in got.final["output"]] == [
        [{"type": "summary_text", "text": "Sun or rain? Sun."}],
        None,
    ]


def took(body: bytes, size: int) -> float:
    """Seconds for a body in chunks of one size; the best of three."""
    best = 1e9
    for _ in range(3):
        repair = ResponsesRepair("abc")
        begun = time.process_time()
        for at in range(0, len(body), size):
            repair.feed(body[at : at + size])
        repair.end()
        best = min(best, time.process_time() - begun)
    return best


def long_stream(count: int) -> bytes:
    backend = HealthyStream()
    backend.reasoning(["thinking "] * count, raw=True)
    backend.message(["word "] * count)
    return stream(*backend.completed())


@pytest.mark.growth
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_time_is_linear_in_the_stream(size: int) -> None:
    count = 100 if size == 1 else 1000
    assert took(long_stream(count * 8), size) < 8 * 3 * took(long_stream(count), size)


@pytest.mark.growth
def test_a_long_summary_behind_raw_reasoning_takes_linear_time() -> None:
    def body(count: int) -> bytes:
        raw = {"type": "response.reasoning_text.delta", "item_id": "rs_0", "delta": "so " * count}
        summary = [{"type": "summary_text", "text": f"Step {n}."} for n in range(count)]
        item = {"type": "reasoning", "id": "rs_0", "summary": summary}
        return stream(sunny()[0], raw, {"type": "response.output_item.done", "item": item})

    assert took(body(4000), 1 << 20) < 8 * 3 * took(body(500), 1 << 20)


@pytest.mark.growth
def test_one_large_frame_in_small_chunks_takes_linear_time() -> None:
    events = sunny()
    small, large = [json.dumps({"type": "response.x", "pad": "x" * n}) for n in (100_000, 800_000)]
    head = stream(events[0])
    bodies = [head + f"data: {text}\n\n".encode() for text in (small, large)]
    assert took(bodies[1], 16) < 8 * 3 * took(bodies[0], 16)
