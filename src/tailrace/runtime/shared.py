"""One run in one format, encoded once for all who are near its end.

An encoder is a pure function of the state (`tailrace.wire.base`), so it does not matter whose
encoder made a frame. Each follower encodes its own way through history. Where the run's tail
begins it drops its encoder and takes the shared frames; the first one to come there leaves its
encoder for that. There is no task behind it: of the followers that wake, the first one encodes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from itertools import islice
from typing import NamedTuple

from tailrace.core.codec import decode_event
from tailrace.core.errors import StorageError
from tailrace.core.events import Recorded, is_end
from tailrace.core.fold import State
from tailrace.core.lines import Lines
from tailrace.core.pieces import PIECE_BYTES
from tailrace.runtime.building import Kept, Parts, Stretch
from tailrace.runtime.follow import LINES_AT_ONCE, Reader
from tailrace.runtime.tail import RING_BYTES, RING_EVENTS, Tail
from tailrace.wire.base import Encoder, Format, FramesLines, is_over

HISTORY_EVENTS = 1024
"""How many events of history are encoded at a stretch, before other tasks get their turn."""


class Piece(NamedTuple):
    """The frames of the events `first` to `last`, joined."""

    first: int
    last: int
    frames: bytes


class Shared:
    """The newest frames of a run in a format: a bounded ring, one entry per event."""

    def __init__(self) -> None:
        self.encoder: Encoder | None = None
        self.last = 0
        self.over = False
        self.readers = 0
        self._ring: deque[bytes] = deque()
        self._bytes = 0
        self._joined = Piece(-1, -1, b"")
        self._joined_at = -1

    def begin(self, encoder: Encoder, last: int) -> None:
        """Take an encoder that stands after event `last`."""
        self.encoder = encoder
        self.last = last
        self.over = is_over(encoder)
        self._ring.clear()
        self._bytes = 0

    def advance(self, tail: Tail) -> None:
        """Encode what the tail has got since."""
        if self.encoder is None or self.last >= tail.last:
            return
        fresh = tail.since(self.last)
        if fresh is None:
            # Nobody looked for so long that the tail moved on: whoever catches up begins anew.
            self.encoder = None
            return
        encoder, self.encoder = self.encoder, None  # an encoder that fails is not used again
        for one in fresh:
            frame = b"".join(encoder.encode(one))
            self._ring.append(frame)
            self._bytes += len(frame)
        self.encoder, self.last = encoder, tail.last
        self.over = is_over(encoder)
        while len(self._ring) > RING_EVENTS or self._bytes > RING_BYTES:
            self._bytes -= len(self._ring.popleft())

    def holds(self, seen: int) -> bool:
        """Whether a follower that has seen so much can go on here."""
        return self.encoder is not None and self.last - len(self._ring) <= seen <= self.last

    def since(self, seen: int) -> Piece:
        """The frames after `seen`, a bounded piece of them.

        Readers that are equally far get the very same bytes.
        """
        if self._joined.first != seen + 1 or self._joined_at != self.last:
            missing = list(islice(reversed(self._ring), self.last - seen))
            missing.reverse()
            first = self.last + 1 - len(missing)
            if self._bytes > PIECE_BYTES:
                del missing[_fitting(missing) :]
            self._joined = Piece(first, first + len(missing) - 1, b"".join(missing))
            self._joined_at = self.last
        return self._joined


class ReadAhead(NamedTuple):
    """Lines that are being read although the reader may not need them."""

    after: int
    task: asyncio.Task[Stretch[Lines]]


class Streams:
    """The shared frames of a process, by run and format, as long as somebody follows."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.answers = Kept[Parts]()
        self._shared: dict[tuple[str, str], Shared] = {}

    def __len__(self) -> int:
        return len(self._shared)

    def stream(
        self,
        wire: Format,
        run_id: str,
        encoder: Encoder,
        after: int,
        *,
        private: bool = False,
    ) -> Stream:
        """A follower whose encoder stands after event `after`.

        A `private` encoder is one that `at` would not have made, so its frames are nobody else's.
        """
        return Stream(self, wire, run_id, encoder, after, private=private)

    def take(self, run_id: str, name: str) -> Shared:
        """The ring of a run in a format, for one more follower, who gives it back."""
        shared = self._shared.setdefault((run_id, name), Shared())
        shared.readers += 1
        return shared

    def give_back(self, run_id: str, name: str) -> None:
        """One follower less; without any, the ring is forgotten."""
        shared = self._shared[run_id, name]
        shared.readers -= 1
        if not shared.readers:
            del self._shared[run_id, name]


class Stream:
    """What one follower is sent, in pieces as large as what has gathered; iterate it once."""

    def __init__(
        self,
        streams: Streams,
        wire: Format,
        run_id: str,
        encoder: Encoder,
        after: int,
        *,
        private: bool,
    ) -> None:
        self._streams = streams
        self._wire = wire
        self._run_id = run_id
        self._encoder: Encoder | None = encoder
        self._private = private and wire.stateful
        self._tail: Tail | None = None
        self._shared: Shared | None = None
        self._fetched: list[Recorded] = []
        self._held: object = None  # the read that is being sent, so that others can share it
        self._ahead: ReadAhead | None = None
        self._ended = is_over(encoder)
        self.seen = after

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """All of it, for whoever does not mind a generator."""
        try:
            while (frames := await self.next()) is not None:
                yield frames
        finally:
            self.close()

    def _join(self) -> tuple[Tail, Shared]:
        if self._tail is None or self._shared is None:
            self._tail = self._streams.reader.tails.take(self._run_id)
            self._shared = self._streams.take(self._run_id, self._wire.name)
        return self._tail, self._shared

    def close(self) -> None:
        """Leave the run's followers; a second time changes nothing."""
        self._drop_ahead()
        if self._tail is not None:
            self._streams.give_back(self._run_id, self._wire.name)
            self._streams.reader.tails.give_back(self._tail)
            self._tail = None

    @property
    def over(self) -> bool:
        """Whether all was given out: to the end of the run, or of what the format shows of it."""
        tail = self._tail
        return self._ended or (tail is not None and tail.ended and self.seen >= tail.last)

    async def next(self) -> bytes | None:
        """Frames, joined; nothing when a beat passed in silence; None after the last frame.

        A plain call and no generator: it is made for each event and each follower.
        """
        tail, shared = self._join()
        while not self._ended:
            shared.advance(tail)
            if self._rides(tail, shared):
                self._ended = shared.over
                if self.seen < shared.last:
                    return self._pass(shared.since(self.seen))
                if self._ended:
                    break
            else:
                piece = await self._history(tail)
                if piece is not None:
                    if frames := self._pass(piece):
                        return frames
                    continue
                if self._rides(tail, shared):
                    continue
            if tail.ended and self.seen >= tail.last:
                return None
            if tail.failure is not None:
                raise tail.failure
            await tail.moved()
            if tail.last <= self.seen:
                return b""
        return None

    def _pass(self, piece: Piece) -> bytes:
        """The frames of a piece, if it continues after event `seen`.

        Every piece that is sent passes here, whatever its source. A client that is cut here
        connects again with its cursor, so it receives each event once.
        """
        if piece.first != self.seen + 1:
            raise StorageError(
                f"Event {piece.first} of run {self._run_id} does not follow event {self.seen};"
                " connect again."
            )
        self.seen = piece.last
        return piece.frames

    async def _history(self, tail: Tail) -> Piece | None:
        """What the shared frames do not reach back to, a stretch at a time; None at its end."""
        wire = self._wire
        if not self._fetched and isinstance(wire, FramesLines) and tail.since(self.seen) is None:
            found = await self._lines()
            if found:
                last = Recorded(decode_event(found[-1].last_public()), b"")
                self._ended = is_end(last, self._run_id)
                self._held = found
                frames = found.frames.get(wire.name)
                if frames is None:
                    frames = b"".join([wire.frames(lines) for lines in found])
                    found.frames[wire.name] = frames
                return Piece(found[0].first_seq, found[-1].last_seq, frames)
        if not self._fetched:
            if self._encoder is None:
                self._encoder = await self._own()
            self._held = self._fetched = await self._streams.reader.fetch(tail, self.seen)
        some = min(HISTORY_EVENTS, _fitting([one.public for one in self._fetched]))
        stretch, self._fetched = self._fetched[:some], self._fetched[some:]
        if not stretch:
            return None
        assert self._encoder is not None
        piece = _encoded(self._encoder, stretch)
        self._ended = is_end(stretch[-1], self._run_id) or is_over(self._encoder)
        return piece

    async def _lines(self) -> Stretch[Lines]:
        """The next stretch of the log; while it is sent, the one after it is read."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.after != self.seen:
            # The reader took other events meanwhile, so these lines do not continue after them.
            ahead.task.cancel()
            ahead = None
        found = await (ahead.task if ahead is not None else self._read_lines(self.seen))
        if found and _is_full(found, self.seen):
            after = found[-1].last_seq
            self._ahead = ReadAhead(after, asyncio.ensure_future(self._read_lines(after)))
            self._ahead.task.add_done_callback(_look_at)
        return found

    def _drop_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.task.cancel()
            self._ahead = None

    async def _read_lines(self, seen: int) -> Stretch[Lines]:
        return await self._streams.reader.read_lines(self._run_id, seen)

    def _rides(self, tail: Tail, shared: Shared) -> bool:
        """Whether the shared frames are the ones to send from here on."""
        if self._private or self._fetched:
            return False
        if shared.encoder is None and self._encoder and tail.since(self.seen) is not None:
            if self.seen > tail.last:
                return False
            shared.begin(self._encoder, self.seen)
            self._encoder = None  # it moves on with the ring, maybe past this reader
            shared.advance(tail)
        if not shared.holds(self.seen):
            return False
        self._encoder = self._held = None
        self._drop_ahead()
        return True

    async def _own(self) -> Encoder:
        """An encoder of its own, for a follower that fell out of the ring."""
        wire = self._wire
        if not wire.stateful:
            return wire.at(State())
        return wire.at(await self._streams.reader.state(self._run_id, self.seen))

    def closing(self, reason: str) -> bytes:
        """What ends the stream for a client that is sent away before the run's end."""
        if self._encoder is not None:
            return b"".join(self._encoder.close(reason))
        shared = self._shared
        if shared is None or shared.encoder is None or not shared.holds(self.seen):
            return b""
        rest = []
        while self.seen < shared.last:
            rest.append(self._pass(shared.since(self.seen)))
        return b"".join(rest + shared.encoder.close(reason))


def _fitting(entries: list[bytes]) -> int:
    """How many entries make a piece: the first one, and those after it that fit."""
    room = PIECE_BYTES
    for count, entry in enumerate(entries):
        room -= len(entry)
        if room < 0:
            return max(count, 1)
    return len(entries)


def _is_full(found: list[Lines], seen: int) -> bool:
    """Whether a read brought as much as it may, so that the log may have more."""
    size = sum(len(lines.raw) for lines in found)
    return size >= PIECE_BYTES or found[-1].last_seq - seen >= LINES_AT_ONCE


def _encoded(encoder: Encoder, events: list[Recorded]) -> Piece:
    frames: list[bytes] = []
    for one in events:
        frames += encoder.encode(one)
    first, last = events[0].event.sequence_number, events[-1].event.sequence_number
    return Piece(first, last, b"".join(frames))


def _look_at(ahead: asyncio.Task[Stretch[Lines]]) -> None:
    """A follower that leaves does not ask any more what was read ahead, or why it was not."""
    if not ahead.cancelled():
        ahead.exception()
