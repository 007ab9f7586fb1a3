"""Every format, every golden trace, every place in it; and the kit itself, held to planted bugs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings

from tailrace.core.errors import InvalidCursor
from tailrace.core.events import AnyEvent, Recorded
from tailrace.core.fold import State
from tailrace.core.sse import Parser
from tailrace.core.view import client_view
from tailrace.testing.runs import Run, legal_runs
from tailrace.testing.wire import check_wire, encoded, is_log
from tailrace.wire import task
from tailrace.wire.base import Cursor, Encoder, Format, Frame, whole_number
from tailrace.wire.formats import FORMATS
from tests.traces import FOLDER, TRACES, Trace

ROOT = Path(__file__).parents[2]


def events_of(trace: Trace) -> list[AnyEvent]:
    return [event for event, _ in trace.events]


LOGGED = [trace for trace in TRACES if is_log(events_of(trace))]
# What newer or careless writers may log. `out_of_place` is what no writer does: an item that is
# done without having been added.
FOREIGN = [trace for trace in TRACES if trace.name in ("unknown_events", "cut_by_its_end")]


@pytest.mark.parametrize("trace", LOGGED, ids=lambda trace: trace.name)
@pytest.mark.parametrize("name", FORMATS)
def test_a_format_continues_anywhere_as_if_it_had_never_stopped(name: str, trace: Trace) -> None:
    frames = check_wire(FORMATS[name], events_of(trace))
    golden = (FOLDER / trace.name / f"{name}.sse").read_bytes()
    assert b"".join(frame for each in frames for frame in each) == golden


@pytest.mark.parametrize("trace", FOREIGN, ids=lambda trace: trace.name)
@pytest.mark.parametrize("name", FORMATS)
def test_a_format_continues_in_logs_of_other_writers_too(name: str, trace: Trace) -> None:
    check_wire(FORMATS[name], events_of(trace))


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=25)
@given(run=legal_runs(max_events=40))
def test_a_format_continues_anywhere_in_random_runs(name: str, run: Run) -> None:
    check_wire(FORMATS[name], [event for event, _ in run])


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
    trace = next(trace for trace in LOGGED if trace.name == "nested_agents")
    lines = (FOLDER / trace.name / "events.jsonl").read_bytes().splitlines()
    frames = Parser().feed((FOLDER / trace.name / "task.sse").read_bytes())
    assert [frame.data.encode() for frame in frames] == lines
    assert [frame.id for frame in frames] == [f"1-{n}" for n in range(1, len(lines) + 1)]
    assert {frame.event for frame in frames} == {"message"}


@pytest.mark.parametrize("text", ["", "-", "1", "1-", "-1", "1--1", "01-1", "1-01", "1-1 ", "a-b"])
def test_what_is_no_native_cursor_is_refused(text: str) -> None:
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
    for event in events_of(LOGGED[0]):
        state.absorb(event)
    (frame,) = Parser().feed(task.FORMAT.gap(state, 2, "trimmed"))
    number = state.sequence_number
    assert frame.id == ""  # whoever is cut before the snapshot that follows has to be told again
    assert json.loads(frame.data) == {
        "type": "task.gap",
        "task_id": client_view(state)["task_id"],
        "sequence_number": number,
        "reason": "trimmed",
    }
    assert task.FORMAT.at(state).close("enough") == []
    alone = task.FORMAT.gap(State(), 1, "epoch")
    assert alone.startswith(b"id: 1-0\n")
    assert b'"task_id":""' in alone


def test_a_thread_has_cursors_of_its_own() -> None:
    trace = next(trace for trace in LOGGED if trace.name == "hello")
    wire = task.FORMAT.in_thread(3)
    frames = Parser().feed(
        b"".join(frame for each in encoded(wire, events_of(trace)) for frame in each)
    )
    assert [frame.id for frame in frames] == [f"3:{n}" for n in range(1, len(frames) + 1)]
    assert wire.cursor("41") == Cursor(41)
    with pytest.raises(InvalidCursor):
        wire.cursor("1-41")
    check_wire(wire, events_of(trace))


class Forgetful:
    """A format with a planted bug: its frames count what this encoder has seen."""

    name = "forgetful"
    headers: dict[str, str] = {}
    resumable = True
    stateful = True
    shows_attempts = True
    preamble = b""
    heartbeat: Frame = b": ping\n\n"

    class Counter:
        def __init__(self) -> None:
            self.seen = 0

        def encode(self, recorded: Recorded) -> list[Frame]:
            self.seen += 1
            return [b"data: %d\n\n" % self.seen]

        def close(self, reason: str) -> list[Frame]:
            return []

    def at(self, state: State) -> Encoder:
        return self.Counter()

    def open(self, state: State) -> tuple[Encoder, list[Frame]]:
        return self.Counter(), []

    def cursor(self, text: str) -> Cursor:
        return Cursor(whole_number(text))


class Meddling(Forgetful):
    """A format that changes the state that it was lent."""

    class Counter(Forgetful.Counter):
        def encode(self, recorded: Recorded) -> list[Frame]:
            return []

    def at(self, state: State) -> Encoder:
        state.position += 1
        return self.Counter()


class Unfinished(Forgetful):
    """A format that forgets the blank line after a frame."""

    class Counter(Forgetful.Counter):
        def encode(self, recorded: Recorded) -> list[Frame]:
            return [b"data: x\n"]

    def at(self, state: State) -> Encoder:
        return self.Counter()


class Doubled(Unfinished):
    """A format that puts two events into one frame."""

    class Counter(Forgetful.Counter):
        def encode(self, recorded: Recorded) -> list[Frame]:
            return [b"data: x\n\ndata: y\n\n"]

    def at(self, state: State) -> Encoder:
        return self.Counter()


class Lines:
    """A sound format of JSON lines: what each planted bug below leaves right but for one thing."""

    name = "lines"
    headers: dict[str, str] = {"content-type": "application/x-ndjson"}
    resumable = True
    stateful = False
    shows_attempts = True
    preamble = b""
    heartbeat: Frame = b"\n"

    class Writer:
        def encode(self, recorded: Recorded) -> list[Frame]:
            return [recorded.public + b"\n"]

        def close(self, reason: str) -> list[Frame]:
            return [b'{"closed":true}\n']

    def at(self, state: State) -> Encoder:
        return self.Writer()

    def open(self, state: State) -> tuple[Encoder, list[Frame]]:
        return self.Writer(), [b"{}\n"]

    def cursor(self, text: str) -> Cursor:
        return Cursor(whole_number(text))


def test_a_format_may_be_lines_of_json() -> None:
    check_wire(Lines(), events_of(LOGGED[0]))


class TwoLines(Lines):
    """Lines, but two of them in one frame."""

    def open(self, state: State) -> tuple[Encoder, list[Frame]]:
        return self.Writer(), [b"{}\n{}\n"]


class NotJson(Lines):
    """Lines that are not JSON."""

    heartbeat = b"ping\n"


class OpensNothing(Lines):
    """Gives a client that joins late nothing of what was before."""

    def open(self, state: State) -> tuple[Encoder, list[Frame]]:
        return self.Writer(), []


class TakesAnything(Lines):
    """Reads any text as a cursor."""

    def cursor(self, text: str) -> Cursor:
        return Cursor(0)


class TakesNothing(Lines):
    """Can resume, but refuses every cursor."""

    def cursor(self, text: str) -> Cursor:
        raise InvalidCursor("No.")


class ClosesHalf(Lines):
    """Ends a stream with half a line."""

    class Writer(Lines.Writer):
        def close(self, reason: str) -> list[Frame]:
            return [b"{"]


class MovedIds(Lines):
    """Server-sent events with the cursor of the event before."""

    headers: dict[str, str] = {}
    heartbeat = b": ping\n\n"

    class Writer(Lines.Writer):
        def encode(self, recorded: Recorded) -> list[Frame]:
            return [b"id: %d\ndata: x\n\n" % (recorded.event.sequence_number - 1)]

        def close(self, reason: str) -> list[Frame]:
            return []


class BrokenGap(Lines):
    """Says nothing of a gap."""

    def open(self, state: State, epoch: int = 1) -> tuple[Encoder, list[Frame]]:
        return super().open(state)

    def gap(self, state: State, epoch: int, reason: str) -> Frame:
        return b""


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (TwoLines(), "several lines"),
        (NotJson(), "heartbeat: .*malformed"),
        (OpensNothing(), "gives a new client nothing"),
        (TakesAnything(), "taken as a cursor"),
        (TakesNothing(), "refuses '0'"),
        (ClosesHalf(), "close after event 0"),
        (MovedIds(), "has the cursor of event 0"),
        (BrokenGap(), "gap after event 0"),
        (Forgetful(), "instead of"),
        (Meddling(), "changed the state"),
        (Unfinished(), "without an end"),
        (Doubled(), "several events"),
    ],
)
def test_the_kit_catches_planted_bugs(broken: Format, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_wire(broken, events_of(LOGGED[0]))
