"""What every wire format promises, so that live, resume, replay and late join are one mechanism.

A format is a pure function of the folded state. `at(state)` gives an encoder that is ready for the
next event; `open(state)` gives, besides, the frames that bring a client that knows nothing to that
state. The kit in `tailrace.testing.wire` proves, for every trace and every place in it:

    encode(all)[n:] == at(fold(first n)).encode(rest)

An encoder never waits, never asks for the time and never sees a private part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

from tailrace.core.errors import InvalidCursor
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.lines import Lines

Frame = bytes
"""One server-sent event, ready to be written."""

MAX_CURSOR = 2**53 - 1

RETRY_MS = 1000
"""The shortest time that clients wait before they connect again."""


class Cursor(NamedTuple):
    """Where a client stopped: after event `seq`, or inside it, after its frame number `sub`.

    `epoch` is checked against the log's where the format carries it.
    """

    seq: int
    sub: int | None = None
    epoch: int | None = None


START = Cursor(0)
"""Before the first event. No other cursor has the number 0."""


class Encoder(Protocol):
    """Turns the events after some state into frames, one by one."""

    def encode(self, recorded: Recorded) -> list[Frame]:
        """The frames of the next event; often one, sometimes none."""

    def close(self, reason: str) -> list[Frame]:
        """The frames that end whatever is open, when the stream stops short of the run's end.

        The encoder stays as it is: other readers of the run may share it.
        """


@runtime_checkable
class EndsEarly(Encoder, Protocol):
    """An encoder whose last frame may come before the run's last event."""

    @property
    def over(self) -> bool:
        """Whether the last frame was encoded. The server ends the stream there."""


def is_over(encoder: Encoder) -> bool:
    """Whether a stream has nothing more to send, although its run may go on."""
    return isinstance(encoder, EndsEarly) and encoder.over


class Format(Protocol):
    """A wire format: its name, its headers, and where its encoders come from."""

    name: str
    headers: dict[str, str]
    resumable: bool
    """Whether clients can say where they stopped. If not, they get a replay."""
    stateful: bool
    """Whether `at` looks at the state. If not, a resume need not fold the log before it."""
    shows_attempts: bool
    """Whether what a lost attempt had shown stays in the stream. If not, whoever comes after is
    brought to the state in which it is gone."""
    heartbeat: Frame
    """What is sent into a long silence; harmless to this format's clients."""

    def preamble(self, retry_ms: int = RETRY_MS) -> bytes:
        """What is sent before the first frame, if anything.

        `retry_ms` is how long a client waits before it connects again.
        """

    def at(self, state: State) -> Encoder:
        """An encoder for the event after this state. The state stays the caller's."""

    def open(self, state: State) -> tuple[Encoder, list[Frame]]:
        """An encoder, and the frames that bring an empty client to this state."""

    def cursor(self, text: str) -> Cursor:
        """Read what a client sent to say where it stopped, or raise `InvalidCursor`."""


def spread_retry(chance: float) -> int:
    """How long a client waits, for a chance from 0 to 1: one to three times the shortest time.

    Clients that lose their server at once come back one after another.
    """
    return int(RETRY_MS * (1 + 2 * chance))


@runtime_checkable
class InsideEvents(Format, Protocol):
    """A format whose cursors may stand between two frames of one event."""

    def resume(
        self, before: State, recorded: Recorded, cursor: Cursor
    ) -> tuple[Encoder, list[Frame]]:
        """An encoder for the event after `recorded`, and what is left of that event's frames.

        `before` is the state that event `cursor.seq`, which is `recorded`, came upon. Raises
        `InvalidCursor` if the event has no such frame.
        """


@runtime_checkable
class TellsGaps(Format, Protocol):
    """A format that can tell its clients that a part of the log is not to be had.

    What follows the gap is `open`. `epoch` is of the writer of the state's last event.
    """

    def gap(self, state: State, epoch: int, reason: str) -> Frame:
        """What a client is told whose cursor the log cannot serve; the state is what there is."""

    def open(self, state: State, epoch: int = 1) -> tuple[Encoder, list[Frame]]:
        """An encoder, and the frames that bring an empty client to this state."""


@runtime_checkable
class OpensInPieces(TellsGaps, Protocol):
    """A format whose opening may be too large to be encoded at once."""

    def opening(self, state: State, epoch: int = 1) -> Iterator[bytes]:
        """The frames of `open`, joined and cut anywhere."""


@runtime_checkable
class ThreadFormat(TellsGaps, Protocol):
    """A format in which the runs of a thread can be streamed one after another."""

    def in_thread(self, ordinal: int) -> TellsGaps:
        """How the thread's run of this number is told: its ids are `ordinal:…`.

        Its `cursor` reads what stands behind the colon.
        """


@runtime_checkable
class FramesLines(Format, Protocol):
    """A format that shows the log's own bytes, so that history need not be decoded for it."""

    def frames(self, lines: Lines) -> bytes:
        """What `at(State()).encode` would give for these events, joined."""


def whole_number(text: str) -> int:
    """A cursor's number: ASCII digits, no sign, no leading zero, below 2^53.

    `int()` alone would take `+1`, `1_0`, spaces and Arabic digits.
    """
    if text.isascii() and text.isdigit() and len(text) <= 16 and (text == "0" or text[0] != "0"):
        number = int(text)
        if number <= MAX_CURSOR:
            return number
    raise InvalidCursor(f"{text[:40]!r} is no cursor; send the last id that you received.")
