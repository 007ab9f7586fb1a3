"""The contract of a wire format. Live, resume, replay and late join are the same mechanism.

A format is a pure function of the folded state. `at(state)` returns an encoder for the next event.
`open(state)` also returns the frames that bring an empty client to that state. The kit in
`tailrace.testing.wire_kit` proves, for every trace and every position in it:

    encode(all)[n:] == at(fold(first n)).encode(rest)

An encoder does no I/O, reads no clock and sees no private part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import msgspec

from tailrace.core import sse
from tailrace.core.errors import InvalidCursor
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.json_pieces import shared
from tailrace.core.log_lines import LogLines

Frame = bytes
"""A server-sent event, ready to be written."""

DONE_FRAME: Frame = sse.frame(sse.DONE.encode())
"""The last frame of OpenAI's streams and of the AI SDK's."""

MAX_CURSOR = 2**53 - 1
"""The greatest integer that JavaScript clients read exactly."""

RETRY_MS = 1000
"""The shortest time that clients wait before they reconnect."""


class Cursor(NamedTuple):
    """Where a client stopped: after event `seq`, or inside it, after its frame number `sub`.

    `epoch` is compared with the log's, in formats that have it.
    """

    seq: int
    sub: int | None = None
    epoch: int | None = None


START = Cursor(0)
"""Before the first event. No other cursor has the number 0."""


class Encoder(Protocol):
    """Turns the events after a state into frames."""

    def encode(self, recorded: Recorded) -> list[Frame]:
        """The frames of the next event; there may be none."""

    def close(self, reason: str) -> list[Frame]:
        """The frames that end everything open, when the stream stops before the run ends.

        The encoder does not change: other readers of the run may share it.
        """


def is_over(encoder: Encoder) -> bool:
    """Whether the last frame was encoded, although the run may continue; the stream ends there.

    An encoder whose last frame may precede the run's last event has the property `over`.
    """
    over: bool = getattr(encoder, "over", False)
    return over


class Format(Protocol):
    """A wire format: its name, its headers and its encoders."""

    name: str
    headers: dict[str, str]
    resumable: bool
    """Whether clients have a cursor. If not, they get a replay."""
    stateful: bool
    """Whether `at` reads the state. If not, a resume does not fold the log before it."""
    shows_attempts: bool
    """Whether the items of a lost attempt stay in the stream. If not, a client that connects later
    starts from a state without them."""
    heartbeat: Frame
    """Sent into a long silence. Clients of the format ignore it."""

    def preamble(self, retry_ms: int = RETRY_MS) -> bytes:
        """The bytes before the first frame; `retry_ms` is how long clients wait to reconnect."""

    def at(self, state: State) -> Encoder:
        """An encoder for the event after this state. The state is not changed."""

    def open(self, state: State) -> tuple[Encoder, list[Frame]]:
        """An encoder, and the frames that bring an empty client to this state."""

    def cursor(self, text: str) -> Cursor:
        """Read a client's cursor, or raise `InvalidCursor`."""


class DefaultFormat:
    """What most formats have in common."""

    headers: dict[str, str] = {}
    resumable = True
    stateful = True
    shows_attempts = False
    heartbeat: Frame = sse.comment("ping")

    def preamble(self, retry_ms: int = RETRY_MS) -> bytes:
        """Nothing: most clients do not reconnect by themselves."""
        return b""


class ReplayFormat(DefaultFormat):
    """A format without cursors: a client that lost its connection gets a replay."""

    resumable = False

    def cursor(self, text: str) -> Cursor:
        """Refuse any cursor."""
        raise InvalidCursor("This format has no cursor; ask again without a cursor for a replay.")


def spread_retry(chance: float) -> int:
    """How long a client waits, for a chance from 0 to 1: the shortest time, up to three times it.

    So clients that lose their server together do not reconnect together.
    """
    return int(RETRY_MS * (1 + 2 * chance))


@runtime_checkable
class InsideEvents(Format, Protocol):
    """A format whose cursors may point between two frames of an event."""

    def resume(
        self, before: State, recorded: Recorded, cursor: Cursor
    ) -> tuple[Encoder, list[Frame]]:
        """An encoder for the event after `recorded`, and the frames of `recorded` after the cursor.

        `recorded` is event `cursor.seq`, and `before` is the state before it. Raises
        `InvalidCursor` if the event has no such frame.
        """

    def open(self, state: State, epoch: int = 1) -> tuple[Encoder, list[Frame]]:
        """An encoder, and the frames that bring an empty client to this state.

        `epoch` belongs to the writer of the state's last event.
        """


class NumbersRuns(Format, Protocol):
    """A format whose cursors are numbers, which depend on the run."""

    def in_run(self, cursor: Cursor, run_id: str) -> Cursor:
        """A cursor from `cursor()`, as a place of this run."""


def in_run(wire: Format, cursor: Cursor, run_id: str) -> Cursor:
    """The place in a run that a cursor from `wire.cursor` stands for."""
    return wire.in_run(cursor, run_id) if _numbers_runs(wire) else cursor


def _numbers_runs(wire: Format) -> TypeGuard[NumbersRuns]:
    return hasattr(wire, "in_run")


@runtime_checkable
class ReportsGaps(Format, Protocol):
    """A format with a frame for a gap: events that the log no longer has.

    The frames of `open` follow the gap. `epoch` belongs to the writer of the state's last event.
    """

    def gap(self, state: State, epoch: int, reason: str, thread_id: str = "") -> Frame:
        """The frame for a client whose cursor points before `state`, the oldest that is left.

        An empty state means that the run is gone; then `thread_id` is its thread.
        """

    def open(self, state: State, epoch: int = 1) -> tuple[Encoder, list[Frame]]:
        """An encoder, and the frames that bring an empty client to this state."""


class ShowsSubAgents(Format, Protocol):
    """A format that shows the items of sub-agents as it shows those of the run itself."""

    def lost(self, state: State) -> bool:
        """Whether a client that read all events up to a state was sent superseded items."""


def has_lost(wire: Format, state: State) -> bool:
    """Whether a client that read all events up to a state may have got superseded items."""
    if _shows_sub_agents(wire):
        return wire.lost(state)
    root = state.root
    return root is not None and any(node.superseded for node in root.items.values())


def _shows_sub_agents(wire: Format) -> TypeGuard[ShowsSubAgents]:
    return hasattr(wire, "lost")


def opened(wire: Format, state: State, epoch: int) -> tuple[Encoder, list[Frame]]:
    """`open`, with the epoch of the state's last event for formats that need it."""
    return wire.open(state, epoch) if _has_epochs(wire) else wire.open(state)


def _has_epochs(wire: Format) -> TypeGuard[ReportsGaps | InsideEvents]:
    """Whether `open` takes an epoch. `isinstance` costs more than a small opening."""
    return hasattr(wire, "gap") or hasattr(wire, "resume")


@runtime_checkable
class OpensInPieces(Format, Protocol):
    """A format whose opening may be too large to encode at once."""

    def open_in_pieces(self, state: State, epoch: int = 1) -> tuple[Encoder, Iterator[bytes]]:
        """As `open`, but the bytes in pieces of any size. Equal pieces may be the same object.

        The encoder is ready after the last piece.
        """


class OpensSaved(Format, Protocol):
    """A format whose opening holds a saved state as it is, so the state need not be restored."""

    def open_saved(self, run_id: str, seq: int, epoch: int, saved: list[bytes]) -> list[bytes]:
        """As `open`, from the pieces of the state after event `seq` as `save` returns it."""


@runtime_checkable
class ThreadFormat(ReportsGaps, Protocol):
    """A format that can stream the runs of a thread one after another."""

    def in_thread(self, ordinal: int) -> ReportsGaps:
        """The format of the thread's run with this number: its ids are `ordinal:…`.

        Its `cursor` reads the text behind the colon.
        """


@runtime_checkable
class ShowsThreads(Format, Protocol):
    """A format whose clients keep a conversation as a list, and can start from it."""

    def messages(self, chain: Sequence[State]) -> list[dict[str, Any]]:
        """The runs of a conversation, oldest first, as a client that followed them holds them."""


@runtime_checkable
class FramesLines(Format, Protocol):
    """A format that sends the log's own bytes, so the log need not be decoded."""

    def frames(self, lines: LogLines) -> bytes:
        """The frames that `at(State()).encode` returns for these events, joined."""


def frame_pieces(
    body: Any, known: dict[bytes, bytes], *, event: str | None = None, id: str | None = None
) -> Iterator[bytes]:
    """A frame in pieces. Frames with the same `known` share the bytes of long texts."""
    head, _, end = sse.frame(b"null", event=event, id=id).rpartition(b"null")
    yield head
    yield from shared(body, known)
    yield end


def opens_in_pieces(wire: Format) -> TypeGuard[OpensInPieces]:
    """Whether a format opens in pieces. `isinstance` costs more than a small opening."""
    return hasattr(wire, "open_in_pieces")


def opens_saved(wire: Format) -> TypeGuard[OpensSaved]:
    """Whether a format opens with a saved state."""
    return hasattr(wire, "open_saved")


def frames_lines(wire: Format) -> TypeGuard[FramesLines]:
    """Whether a format sends the log's own bytes; asked for each piece of a replay."""
    return hasattr(wire, "frames")


def whole_number(text: str, cursor: str = "") -> int:
    """Read a number of a cursor: ASCII digits, no sign, no leading zero, below 2^53.

    `int()` alone accepts `+1`, `1_0`, spaces and Arabic digits. The error names the whole `cursor`.
    """
    if text.isascii() and text.isdigit() and len(text) <= 16 and (text == "0" or text[0] != "0"):
        number = int(text)
        if number <= MAX_CURSOR:
            return number
    raise invalid_cursor(cursor or text)


def event_cursor(text: str, cursor: str = "") -> Cursor:
    """Read `epoch-seq`, the place after an event, or `0`, the start; of the whole `cursor`."""
    if text == "0":
        return START
    epoch, _, seq = text.partition("-")  # without a dash `seq` is empty, which is no number
    cursor = cursor or text
    return Cursor(whole_number(seq, cursor), epoch=whole_number(epoch, cursor))


def invalid_cursor(text: str) -> InvalidCursor:
    """The error for a text that is not a cursor."""
    return InvalidCursor(f"{text[:40]!r} is not a cursor; send the last id that you received.")


def frame_json(frame: Frame) -> Any:
    """The JSON of a frame."""
    return msgspec.json.decode(frame.partition(b"data: ")[2])


def safe_json(raw: bytes) -> bytes:
    """Rename keys that the AI SDK's parser refuses: they could pollute a prototype.

    A model or a tool may have written such a key, and the parser would end the stream.
    """
    if b'"__proto__":' in raw or b'"constructor":' in raw:
        return msgspec.json.encode(_renamed(msgspec.json.decode(raw)))
    return raw


def _renamed(value: Any) -> Any:
    if isinstance(value, list):
        return [_renamed(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key + "_" if _pollutes(key, item) else key: _renamed(item) for key, item in value.items()
    }


def _pollutes(key: str, value: Any) -> bool:
    if key == "constructor":
        return isinstance(value, dict) and "prototype" in value
    return key == "__proto__"
