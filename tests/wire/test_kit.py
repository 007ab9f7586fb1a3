"""Every format, every golden trace, every place in it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.core import events as ev
from tailrace.core.codec import encode_event
from tailrace.core.errors import InvalidCursor, UnknownFormat
from tailrace.core.events import AnyEvent, Recorded
from tailrace.core.fold import State
from tailrace.core.items import Message, Text, UrlCitation
from tailrace.core.log_lines import LogLines, framed, lines_place
from tailrace.core.run_object import client_view
from tailrace.core.sse import SseParser
from tailrace.core.state_copy import copy_state
from tailrace.testing.cursor_kit import check_cursors, cursor_of
from tailrace.testing.strategies import WrittenRun, legal_runs
from tailrace.testing.wire_kit import check_wire, encoded
from tailrace.wire import run, task
from tailrace.wire.base import (
    Cursor,
    InsideEvents,
    in_run,
    opened,
    spread_retry,
    whole_number,
)
from tailrace.wire.formats import FORMATS, format_named
from tailrace.wire.openai_responses import cursors as numbers
from tailrace.wire.openai_responses.encoder import ResponsesEncoder
from tests.traces import FOLDER, LOGS, TRACES, Trace
from tests.wire import openai_scripts as scripts
from tests.wire.openai_scripts import Script

ROOT = Path(__file__).parents[2]


def events_of(trace: Trace) -> list[AnyEvent]:
    return [event for event, _ in trace.events]


# What newer or careless writers may log. `out_of_place` is what no writer does: an item that is
# done without having been added.
FOREIGN = [
    trace
    for trace in TRACES
    if trace.name in ("unknown_events", "cut_by_its_end") or trace.name.startswith("new_")
]


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_in_the_file_or_package_of_its_name(name: str) -> None:
    place = import_module(f"tailrace.wire.{name.replace('-', '_')}")
    assert place.FORMAT is FORMATS[name]
    assert type(place.FORMAT).__module__ == place.__name__


@pytest.mark.long
@pytest.mark.parametrize("trace", LOGS, ids=lambda trace: trace.name)
@pytest.mark.parametrize("name", FORMATS)
def test_a_format_continues_anywhere_as_if_it_had_never_stopped(name: str, trace: Trace) -> None:
    frames = check_wire(FORMATS[name], events_of(trace))
    golden = (FOLDER / trace.name / f"{name}.sse").read_bytes()
    assert b"".join(frame for each in frames for frame in each) == golden


@pytest.mark.parametrize(
    "name", ["run", "openai-responses", "openai-chat", "anthropic-messages", "vercel-ui"]
)
def test_a_client_that_comes_after_a_retry_is_shown_what_counts_once(name: str) -> None:
    (trace,) = (trace for trace in LOGS if trace.name == "provider_retry")
    state = State()
    for event in events_of(trace):
        state.absorb(event)
    _, frames = FORMATS[name].open(state)
    pieces = [frame for frame in frames if b"delta" in frame]
    assert sum(b"Six times seven." in piece for piece in pieces) == (name != "run")
    assert sum(b"The answer is 42." in piece for piece in pieces) == 1
    assert not [piece for piece in pieces if b'The answer i"' in piece or b'The ans"' in piece]


@pytest.mark.long(always=True)
@pytest.mark.parametrize("trace", FOREIGN, ids=lambda trace: trace.name)
@pytest.mark.parametrize("name", FORMATS)
def test_a_format_continues_in_logs_of_other_writers_too(name: str, trace: Trace) -> None:
    check_wire(FORMATS[name], events_of(trace))


@pytest.mark.parametrize("name", FORMATS)
@given(run=legal_runs(max_events=40))
def test_a_format_continues_anywhere_in_random_runs(name: str, run: WrittenRun) -> None:
    check_wire(FORMATS[name], [event for event, _ in run])


RESUMABLE = [name for name, wire in FORMATS.items() if wire.resumable]
BRIEF = ("provider_retry", "recovered_attempt", "s0_weather", "cancelled")


@pytest.mark.long
@pytest.mark.parametrize("trace", BRIEF)
@pytest.mark.parametrize("name", RESUMABLE)
def test_each_cursor_of_each_stream_resumes_with_exactly_the_rest(name: str, trace: str) -> None:
    (found,) = (one for one in LOGS if one.name == trace)
    check_cursors(FORMATS[name], events_of(found), every=True)


def cited() -> list[AnyEvent]:
    """Texts with thousands of citations, each in one event."""
    citation = UrlCitation(url="https://a.example", start_index=0, end_index=1)
    script = Script().begin()
    for index, count in enumerate((1000, 5000, 2)):
        item = Message(id=f"msg_7_{index}", role="assistant")
        script.item(item, index)
        script.block(item.id, index, 0, Text(text="x", annotations=[citation] * count))
        script.done(item, index)
    return script.add(ev.TaskCompleted).events


def cited_bit_by_bit() -> list[AnyEvent]:
    """A text that gets its citations one after another, and a message of many texts."""
    citation = UrlCitation(url="https://a.example", start_index=0, end_index=1)
    script = Script().begin()
    script.message(0, Text(text="x", annotations=[citation] * 1000))
    return script.message(1, *[Text(text="y")] * 450).add(ev.TaskCompleted).events


def abandoned() -> list[AnyEvent]:
    """Calls without a result, which the run's end closes all at once."""
    script = Script().begin()
    for index in range(520):
        script.call(index, "look", "{}")
    return script.add(ev.TaskCancelled).events


@pytest.mark.long(always=True)
@pytest.mark.parametrize("run", [scripts.recovered, cited, cited_bit_by_bit, abandoned])
@pytest.mark.parametrize("name", RESUMABLE)
def test_cursors_of_a_long_run_resume_with_exactly_the_rest(
    name: str, run: Callable[[], list[AnyEvent]]
) -> None:
    events = run()
    check_cursors(FORMATS[name], events, places=[len(events) - 5])


@given(
    st.sampled_from([numbers.NARROW, numbers.WIDE]),
    st.integers(1, 2**28 - 1),
    st.sampled_from([numbers.WHOLE, numbers.JOINED, numbers.OPENING]),
    st.integers(1, 20_000),
    st.data(),
)
def test_a_number_says_which_frame_it_belongs_to(
    numbering: numbers.Numbering, seq: int, mode: int, epoch: int, data: st.DataObject
) -> None:
    k = data.draw(st.integers(0, numbering.room(mode) - 1))
    number = numbering.first(mode, epoch, seq) + k
    assert whole_number(str(number)) == number
    found, sub = numbers.split(number)
    assert (found, numbers.place_of(sub, epoch)) == (seq, numbers.FramePlace(numbering, mode, k))


def test_a_stream_with_more_frames_than_numbers_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = numbers.Numbering(numbers.WIDE.flag, 10)
    monkeypatch.setattr(numbers, "SPREADS", 500)
    monkeypatch.setattr("tailrace.wire.openai_responses.encoder.NARROW", small)
    monkeypatch.setattr("tailrace.wire.openai_responses.encoder.WIDE", small)
    state = State()
    for event in cited():
        state.absorb(event)
    encoder = ResponsesEncoder(state, joined=True, numbering=small)
    frames = encoder.number([("response.x", {})] * 100, numbers.OPENING, 7)
    *numbered, done = frames
    assert done == b"data: [DONE]\n\n"
    assert len(numbered) == small.room(numbers.OPENING)
    assert b'"type":"too_long"' in numbered[-1]
    assert (
        encoder.encode(Recorded(ev.TaskCompleted(task_id="run_7", sequence_number=99), b"")) == []
    )


def test_a_cursor_belongs_to_the_epoch_of_its_event() -> None:
    """In `openai-responses` a number of another epoch is refused; other cursors name theirs."""
    events = events_of(next(trace for trace in LOGS if trace.name == "hello"))
    log = [Recorded(event, encode_event(event), 7) for event in events]
    for name in RESUMABLE:
        wire, state = FORMATS[name], State()
        encoder = wire.at(state)
        for one in log:
            frames = encoder.encode(one)
            after = copy_state(state)
            after.absorb(one.event)
            for frame in [*frames, *opened(wire, after, one.epoch)[1]]:
                if (text := cursor_of(frame)) is None:
                    continue
                cursor = in_run(wire, wire.cursor(text), one.event.task_id)
                assert cursor.seq == one.event.sequence_number
                if cursor.epoch is None:
                    assert isinstance(wire, InsideEvents)
                    wire.resume(state, one, cursor)
                    with pytest.raises(InvalidCursor):
                        wire.resume(state, Recorded(one.event, one.public, 8), cursor)
                else:
                    assert cursor.epoch == 7
            state = after


def test_a_format_without_cursors_opens_without_an_epoch() -> None:
    state = State()
    for event in events_of(LOGS[0]):
        state.absorb(event)
    wire = FORMATS["openai-chat"]
    assert opened(wire, state, 7)[1] == wire.open(state)[1]


@pytest.mark.long(always=True)
@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
@pytest.mark.parametrize("name", FORMATS)
def test_no_stream_makes_a_format_fail(name: str, trace: Trace) -> None:
    encoded(FORMATS[name], events_of(trace))
    encoder = FORMATS[name].at(State())
    encoder.close("enough")


def test_the_golden_frames_are_not_stale() -> None:
    script = ROOT / "scripts" / "generate_sse.py"
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_native_frames_are_the_log_with_cursors() -> None:
    trace = next(trace for trace in LOGS if trace.name == "nested_agents")
    lines = (FOLDER / trace.name / "events.jsonl").read_bytes().splitlines()
    frames = SseParser().feed((FOLDER / trace.name / "task.sse").read_bytes())
    assert [frame.data.encode() for frame in frames] == lines
    assert [frame.id for frame in frames] == [f"1-{n}" for n in range(1, len(lines) + 1)]
    assert {frame.event for frame in frames} == {"message"}


def test_native_frames_that_the_log_stores_are_sent_unchanged() -> None:
    publics = [encode_event(event) for event in events_of(LOGS[0])]
    raw = framed(lines_place(1), 1, publics)
    plain, stored = (LogLines(1, len(publics), 1, one) for one in (b"\n".join(publics), raw))
    assert task.FORMAT.frames(stored) is raw
    assert task.FORMAT.frames(plain) == raw


@pytest.mark.parametrize("text", ["", "-", "1", "1-", "-1", "1--1", "01-1", "1-01", "1-1 ", "a-b"])
def test_an_invalid_native_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor):
        task.FORMAT.cursor(text)


def test_a_native_cursor_is_read() -> None:
    assert task.FORMAT.cursor("0") == Cursor(0)
    assert task.FORMAT.cursor("3-41") == Cursor(41, epoch=3)
    assert whole_number("9007199254740991") == 2**53 - 1
    with pytest.raises(InvalidCursor):
        whole_number("9007199254740992")


def test_a_gap_says_how_far_the_log_goes() -> None:
    state = State()
    for event in events_of(LOGS[0]):
        state.absorb(event)
    (frame,) = SseParser().feed(task.FORMAT.gap(state, 2, "trimmed"))
    number = state.sequence_number
    assert frame.id == ""  # a client that is cut before the snapshot gets the gap again
    assert json.loads(frame.data) == {
        "type": "task.gap",
        "task_id": client_view(state)["task_id"],
        "sequence_number": number,
        "reason": "trimmed",
    }
    assert task.FORMAT.at(state).close("enough") == []
    alone = task.FORMAT.gap(State(), 1, "epoch")
    assert alone.startswith(b"id: 0\n")
    assert b'"task_id":""' in alone


def test_clients_that_lose_their_server_at_once_come_back_one_after_another() -> None:
    assert [spread_retry(chance) for chance in (0, 0.5, 1)] == [1000, 2000, 3000]
    assert task.FORMAT.preamble(spread_retry(0.5)) == b"retry: 2000\n\n"


def test_a_cursor_behind_an_event_s_last_frame_is_refused() -> None:
    event = events_of(LOGS[0])[0]
    with pytest.raises(InvalidCursor, match="has 1 frames"):
        run.FORMAT.resume(State(), Recorded(event, encode_event(event)), Cursor(1, 7))


def test_a_thread_has_cursors_of_its_own() -> None:
    trace = next(trace for trace in LOGS if trace.name == "hello")
    wire = task.FORMAT.in_thread(3)
    frames = SseParser().feed(
        b"".join(frame for each in encoded(wire, events_of(trace)) for frame in each)
    )
    assert [frame.id for frame in frames] == [f"3:1-{n}" for n in range(1, len(frames) + 1)]
    assert wire.cursor("7-41") == Cursor(41, epoch=7)
    check_wire(wire, events_of(trace))
    check_wire(run.FORMAT.in_thread(3), events_of(trace))


def test_a_format_is_found_by_its_name_and_an_unknown_name_is_refused() -> None:
    assert format_named(FORMATS, "task") is FORMATS["task"]
    with pytest.raises(UnknownFormat, match=r"Unknown format 'smoke'; use task, run, ") as caught:
        format_named(FORMATS, "smoke", param="format")
    assert caught.value.param == "format"
