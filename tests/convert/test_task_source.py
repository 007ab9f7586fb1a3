"""Our own streams as sources: golden traces, snapshots, gaps, and streams of others."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tailrace.convert import Transcoder, target_names
from tailrace.core.codec import encode_event
from tailrace.core.errors import MalformedEvent, StreamCut
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.run_object import client_view
from tailrace.core.snapshot import restore, save
from tailrace.testing.wire_kit import as_recorded, encoded
from tailrace.wire import task
from tailrace.wire.base import FramesLines, opened
from tailrace.wire.formats import FORMATS
from tests.convert.streams import converted, ended, frames_of, read
from tests.effort import CUTS, sample
from tests.traces import LOGS, TRACES, Trace

every_trace = pytest.mark.parametrize("trace", TRACES, ids=[trace.name for trace in TRACES])
every_log = pytest.mark.parametrize("trace", LOGS, ids=[trace.name for trace in LOGS])
HELLO = next(trace for trace in TRACES if trace.name == "streamed_text")


def public(trace: Trace) -> list[bytes]:
    return [encode_event(event) for event, _ in trace.events]


def as_jsonl(trace: Trace) -> bytes:
    return b"".join(line + b"\n" for line in public(trace))


def as_task(trace: Trace, epoch: int = 1) -> bytes:
    encoder = task.FORMAT.at(State())
    recorded = as_recorded([event for event, _ in trace.events])
    frames = [encoder.encode(Recorded(one.event, one.public, epoch)) for one in recorded]
    return task.FORMAT.preamble() + b"".join(frame for one in frames for frame in one)


@every_log
def test_a_log_of_ours_converted_to_itself_is_itself(trace: Trace) -> None:
    for epoch in (1, 7):
        assert converted(as_task(trace, epoch), "task", "task") == as_task(trace, epoch)
    assert converted(as_task(trace), "task", "jsonl") == as_jsonl(trace)
    assert converted(as_jsonl(trace), "task", "jsonl") == as_jsonl(trace)
    assert converted(as_jsonl(trace), "task", "task") == as_task(trace)


@every_log
def test_a_log_of_ours_is_converted_as_the_server_sends_it(trace: Trace) -> None:
    events = [event for event, _ in trace.events]
    for name, wire in FORMATS.items():
        frames = b"".join(frame for one in encoded(wire, events) for frame in one)
        out = converted(as_task(trace), "task", name)
        assert out.startswith(wire.preamble() + frames)
        if events and client_view_of(trace).get("status") in ("completed", "failed"):
            assert out == wire.preamble() + frames


ENDS = {
    "run": b"run.finished",
    "openai-responses": b"response.completed",
    "openai-chat": b'"finish_reason":"stop"',
    "anthropic-messages": b'"stop_reason":"end_turn"',
    "vercel-ui": b'"type":"finish","finishReason":"stop"',
}


@pytest.mark.parametrize("name", ["s0_as_printed", "s0_subagent_as_printed"])
def test_a_stream_without_lifecycle_is_complete_when_its_last_item_is_done(name: str) -> None:
    (trace,) = (trace for trace in TRACES if trace.name == name)
    lines = as_jsonl(trace)
    for target in target_names():
        transcoder = Transcoder("task", target)
        out = transcoder.feed(lines) + transcoder.end()
        assert transcoder.error is None
        assert ENDS.get(target, b"") in out
        assert (b"task.completed" in out) is False  # nothing is added to the log of another
        cut = Transcoder("task", target)
        out = cut.feed(b"\n".join(lines.splitlines()[:-1]) + b"\n") + cut.end()
        assert isinstance(cut.error, StreamCut)
        assert target not in ENDS or ENDS[target] not in out or target == "run"


def client_view_of(trace: Trace) -> dict[str, Any]:
    state = State()
    for event, _ in trace.events:
        state.absorb(event)
    return client_view(state)


@every_trace
def test_any_stream_of_our_events_shows_the_object_that_its_fold_shows(trace: Trace) -> None:
    shown = client_view_of(trace)
    assert json.loads(converted(as_jsonl(trace), "task", "json")) == shown
    # Numbers are put in where there were none, and what came twice is gone: the object stays.
    again = converted(as_jsonl(trace), "task", "jsonl")
    numbers = [json.loads(line)["sequence_number"] for line in again.splitlines()]
    assert numbers == sorted(set(numbers))
    converted_view = json.loads(converted(again, "task", "json"))
    assert without_numbers(converted_view) == without_numbers(shown)


def without_numbers(view: dict[str, Any]) -> dict[str, Any]:
    for event in view.get("unknown", ()):
        event.pop("sequence_number", None)
    return view


@every_log
def test_a_log_that_is_cut_anywhere_ends_legally(trace: Trace) -> None:
    lines = public(trace)
    for count in sample(range(1, len(lines)), CUTS // 2):
        source = b"\n".join(lines[:count])
        status = json.loads(converted(source, "task", "json")).get("status")
        for name, wire in FORMATS.items():
            out, transcoder = ended(source, "task", name)
            if not isinstance(wire, FramesLines):
                read(name, out)
            else:
                assert frames_of(out) == frames_of(as_task(trace))[:count]
            is_open = status in ("queued", "in_progress")
            assert isinstance(transcoder.error, StreamCut) == is_open


def test_a_broken_line_ends_the_target_and_nothing_after_it_is_read() -> None:
    lines = public(HELLO)
    for broken in (b"{never", b'{"type":"task.text.delta","task_id":"run_1"}', b"[]", b"7"):
        source = b"\n".join([*lines[:6], broken, *lines[6:]])
        for name in FORMATS:
            out, transcoder = ended(source, "task", name)
            assert isinstance(transcoder.error, MalformedEvent)
            if name == "openai-responses":
                assert read(name, out)["error"]["type"] == "malformed_event"
            elif name != "task":
                read(name, out)


def snapshot_of(trace: Trace, count: int, epoch: int = 3) -> bytes:
    state = State()
    for event, _ in trace.events[:count]:
        state.absorb(event)
    return b"".join(task.FORMAT.open(state, epoch)[1])


def rest_of(trace: Trace, count: int, epoch: int = 3) -> bytes:
    return b"".join(frames_of(as_task(trace, epoch))[count:])


@every_log
def test_a_stream_may_begin_with_a_snapshot(trace: Trace) -> None:
    for count in {0, 1, len(trace.events) // 2, len(trace.events)}:
        source = snapshot_of(trace, count) + rest_of(trace, count)
        assert json.loads(converted(source, "task", "json")) == client_view_of(trace)
        assert frames_of(converted(source, "task", "task")) == frames_of(source)
        state = State()
        for event, _ in trace.events[:count]:
            state.absorb(event)
        state = restore(save(state))  # a snapshot does not tell when the run waited for approvals
        for name, wire in FORMATS.items():
            encoder, frames = opened(wire, state, 3)
            for one in as_recorded([event for event, _ in trace.events[count:]]):
                frames += encoder.encode(Recorded(one.event, one.public, 3))
            if name != "task":
                assert converted(source, "task", name).startswith(
                    wire.preamble() + b"".join(frames)
                )


def test_a_gap_is_shown_where_it_can_be_and_ends_the_target_where_it_cannot() -> None:
    state = State()
    for event, _ in HELLO.events:
        state.absorb(event)
    gap = task.FORMAT.gap(state, 3, "trimmed")
    count = len(HELLO.events)
    source = b"".join(frames_of(as_task(HELLO, 2))[:5]) + gap + snapshot_of(HELLO, count)
    assert frames_of(converted(source, "task", "task")) == frames_of(source)
    lines = converted(source, "task", "jsonl").splitlines()
    assert json.loads(lines[5])["type"] == "task.gap"
    assert json.loads(lines[6])["type"] == "task.snapshot"
    assert json.loads(converted(source, "task", "json")) == client_view_of(HELLO)
    assert b"run.gap" in converted(source, "task", "run")
    for name in ("openai-responses", "openai-chat", "vercel-ui"):
        out, transcoder = ended(source, "task", name)
        read(name, out)
        assert isinstance(transcoder.error, StreamCut)
        assert "missing" in str(transcoder.error)


def test_a_snapshot_is_known_however_its_fields_are_ordered() -> None:
    frame = json.loads(snapshot_of(HELLO, 9).split(b"data: ")[1])
    turned = json.dumps({name: frame[name] for name in ("task_id", "state", "type")}).encode()
    shown = json.loads(converted(turned, "task", "json"))
    state = State()
    for event, _ in HELLO.events[:9]:
        state.absorb(event)
    assert shown == client_view(state)


def test_an_invalid_snapshot_is_refused() -> None:
    for state in ("null", "{}", '{"version":9}'):
        source = f'{{"type":"task.snapshot","task_id":"r","state":{state}}}\n'.encode()
        _, transcoder = ended(source, "task", "json")
        assert isinstance(transcoder.error, MalformedEvent)


def test_half_a_snapshot_is_refused() -> None:
    _, transcoder = ended(b'data: {"type":"task.snapshot","task\n\n', "task", "json")
    assert isinstance(transcoder.error, MalformedEvent)


def test_words_about_a_snapshot_make_none() -> None:
    source = b'{"type":"task.notice","task_id":"r","message":"task.snapshot, task.gap"}\n'
    shown = json.loads(converted(source, "task", "json"))
    assert shown["notices"] == [{"message": "task.snapshot, task.gap"}]


def test_one_stream_is_one_run() -> None:
    other = as_jsonl(HELLO).replace(b'"task_id":"', b'"task_id":"other_')
    out, transcoder = ended(as_jsonl(HELLO) + other, "task", "jsonl")
    assert out == as_jsonl(HELLO)
    assert "one run at a time" in str(transcoder.error)


def test_events_without_numbers_get_them_and_keep_what_else_they_hold() -> None:
    lines = [
        b'{"type":"task.created","task_id":"r","colour":"red"}',
        b'{"type":"task.in_progress","task_id":"r"}',
        b'{"type":"task.hologram","task_id":"r","depth":3}',
        b'{"type":"task.notice","task_id":"r","message":"hi","sequence_number":1}',
        b'{"type":"task.notice","task_id":"r","message":"again","sequence_number":1}',
        b'{"type":"task.completed","task_id":"r","sequence_number":9}',
    ]
    out = [json.loads(line) for line in converted(b"\n".join(lines), "task", "jsonl").splitlines()]
    assert [event["sequence_number"] for event in out] == [1, 2, 3, 4, 9]
    assert out[0]["colour"] == "red"
    assert out[2] == {"type": "task.hologram", "task_id": "r", "depth": 3, "sequence_number": 3}
    assert out[3]["message"] == "hi"


def test_an_event_over_several_lines_becomes_one_line() -> None:
    event = {"type": "task.created", "task_id": "r", "sequence_number": 1, "input": "a  b"}
    laid_out = msgspec.json.format(msgspec.json.encode(event), indent=2)
    framed = b"id: 1-1\n" + b"".join(b"data: " + line + b"\n" for line in laid_out.split(b"\n"))
    out = converted(framed + b"\n", "task", "jsonl")
    assert out.count(b"\n") == 1
    assert json.loads(out) == event


def test_an_empty_stream_of_ours_is_cut_and_shows_nothing() -> None:
    for to in target_names():
        out, transcoder = ended(b"", "task", to)
        assert isinstance(transcoder.error, StreamCut)
        assert to != "json" or json.loads(out) == {}
