"""`check_wire` and `check_cursors` find what is wrong: formats with planted bugs."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.core.errors import InvalidCursor
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.state_copy import copy_state
from tailrace.testing.cursor_kit import check_cursors
from tailrace.testing.wire_kit import check_wire
from tailrace.wire import task
from tailrace.wire.base import Cursor, Encoder, Format, Frame, whole_number
from tailrace.wire.openai_responses import ResponsesFormat
from tailrace.wire.openai_responses.encoder import ResponsesEncoder
from tests.traces import LOGS
from tests.wire import openai_scripts

EVENTS = [event for event, _ in LOGS[0].events]


class Forgetful:
    """A format with a planted bug: its frames count what this encoder has seen."""

    name = "forgetful"
    headers: dict[str, str] = {}
    resumable = True
    stateful = True
    shows_attempts = True
    heartbeat: Frame = b": ping\n\n"

    def preamble(self, retry_ms: int = 0) -> bytes:
        return b""

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
    heartbeat: Frame = b"\n"

    def preamble(self, retry_ms: int = 0) -> bytes:
        return b""

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
    check_wire(Lines(), EVENTS)


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


class ClosesOnce(Lines):
    """Closes a stream for the first of the readers that share an encoder."""

    class Writer(Lines.Writer):
        closed = False

        def close(self, reason: str) -> list[Frame]:
            frames = [] if self.closed else [b"{}\n"]
            self.closed = True
            return frames

    def at(self, state: State) -> Encoder:
        return self.Writer()


class ForgetsItsEnd(Lines):
    """Ends early, and a client that resumes after that waits."""

    class Writer(Lines.Writer):
        over = False

        def encode(self, recorded: Recorded) -> list[Frame]:
            self.over = True
            return super().encode(recorded)

    def at(self, state: State) -> Encoder:
        return self.Writer()


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

    def gap(self, state: State, epoch: int, reason: str, thread_id: str = "") -> Frame:
        return b""


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (TwoLines(), "several lines"),
        (ClosesOnce(), "changes the encoder"),
        (ForgetsItsEnd(), "does not know whether the stream is over"),
        (NotJson(), "heartbeat: .*malformed"),
        (OpensNothing(), "gives a new client nothing"),
        (TakesAnything(), "accepted as a cursor"),
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
        check_wire(broken, EVENTS)


class Borrowing(ResponsesFormat):
    """A format whose long openings use numbers that mean other places."""

    def open(self, state: State, epoch: int = 1) -> tuple[ResponsesEncoder, list[Frame]]:
        replay: list[tuple[str, dict[str, Any]]] = []
        encoder = ResponsesEncoder(copy_state(state), joined=True, replay=replay)
        end = (state.sequence_number + 1) << 12
        first = min(end - 0x800, end - len(replay))
        return encoder, [
            b'data: {"type":"%b","sequence_number":%d}\n\n' % (name.encode(), number)
            for number, (name, _) in enumerate(replay, first)
        ]


class ResumesLate(ResponsesFormat):
    """A format whose resume loses a frame."""

    def resume(
        self, before: State, recorded: Recorded, cursor: Cursor
    ) -> tuple[ResponsesEncoder, list[Frame]]:
        encoder, frames = super().resume(before, recorded, cursor)
        return encoder, frames[1:]


class ResumesEarly(ResponsesFormat):
    """A format whose resume repeats a frame."""

    def resume(
        self, before: State, recorded: Recorded, cursor: Cursor
    ) -> tuple[ResponsesEncoder, list[Frame]]:
        encoder, frames = super().resume(before, recorded, cursor)
        return encoder, [b"data: {}\n\n", *frames]


class Standing(task.TaskFormat):
    """A format whose cursors do not rise."""

    class Encoder(task.TaskEncoder):
        def encode(self, recorded: Recorded) -> list[Frame]:
            return [b"id: 1-1\ndata: {}\n\n"]

    def at(self, state: State) -> task.TaskEncoder:
        return self.Encoder()


@pytest.mark.parametrize("broken", [ResumesLate(), ResumesEarly()])
def test_the_kit_resumes_and_catches_a_frame_that_is_lost_or_repeated(broken: Format) -> None:
    with pytest.raises(AssertionError, match="resumed at cursor"):
        check_wire(broken, EVENTS)


@pytest.mark.long(always=True)
@pytest.mark.parametrize(
    ("broken", "complaint"), [(Borrowing(), "resumed at cursor"), (Standing(), "does not rise")]
)
def test_the_kit_catches_cursors_that_mean_two_places(broken: Format, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_cursors(broken, openai_scripts.recovered(), places=[1757])
