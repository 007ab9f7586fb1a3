"""Encodes a run once per format for all followers that are near its end.

An encoder is a pure function of the state (`tailrace.wire.base`), so followers can share frames.
Each follower encodes history itself. At the run's tail it drops its encoder and takes the shared
frames; the first follower there hands its encoder over. No task does this work: the first follower
that wakes encodes for the others.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from tailrace.core.codec import decode_event
from tailrace.core.events import Recorded, is_end
from tailrace.core.fold import State
from tailrace.core.json_pieces import PIECE_BYTES, SEND_BYTES
from tailrace.core.log_lines import READ_BYTES, LogLines, merged
from tailrace.runtime.diagnostics.failures import retrieve_error
from tailrace.runtime.event_log.offload import BuildCache, FrameRange, LogRead, SharedBytes
from tailrace.runtime.followers.follow import LINES_AT_ONCE, Reader, check_next
from tailrace.runtime.followers.opening import RunOpening
from tailrace.runtime.followers.tail import RING_BYTES, RING_EVENTS, Tail
from tailrace.wire.base import Encoder, Format, FramesLines, frames_lines, is_over

WriteNow = Callable[[bytes], bool]
"""Sends frames at once; False if it would have to wait, and then it has sent nothing."""

RECENT_WHOLES = 8
RECENT_BYTES = 512 * 1024
"""The last answers of ended runs, up to this size, stay in memory. Clients come back when a run has
ended, and people open finished conversations again."""

HISTORY_EVENTS = 1024
"""How many events of history are encoded before other tasks get a turn."""


class FrameRing:
    """The newest frames of a run in a format: a bounded ring with an entry per event."""

    def __init__(self) -> None:
        self.encoder: Encoder | None = None
        self._may_end = False
        self.last = 0
        self.readers = 0
        self._ring: deque[bytes] = deque()
        self._ends: deque[int] = deque()
        self._bytes = 0
        self._joined = FrameRange(-1, -1, b"")
        self._joined_at = -1

    def begin(self, encoder: Encoder, last: int) -> None:
        """Start the ring with an encoder that is ready for the event after `last`."""
        self.encoder = encoder
        self._may_end = hasattr(encoder, "over")
        self.last = last
        self._ring.clear()
        self._ends.clear()
        self._bytes = 0

    def advance(self, tail: Tail) -> bytes | None:
        """Encode the new events of the tail.

        Returns the frame of a single new event, unless a stream ends near it. At human pace every
        event is sent this way.
        """
        if self.encoder is None:
            return None
        fresh = tail.since(self.last)
        if fresh is None:
            # No follower asked for so long that the tail dropped the events. The next follower that
            # catches up starts the ring again.
            self.encoder = None
            return None
        encoder, self.encoder = self.encoder, None  # not used again if it fails
        encode, ring, may_end = encoder.encode, self._ring, self._may_end
        for one in fresh:
            frames = encode(one)
            frame = frames[0] if len(frames) == 1 else b"".join(frames)
            ring.append(frame)
            self._bytes += len(frame)
            if may_end and is_over(encoder):
                self._ends.append(one.event.sequence_number)
        self.encoder, self.last = encoder, tail.last
        while len(ring) > RING_EVENTS or self._bytes > RING_BYTES:
            self._bytes -= len(ring.popleft())
        if self._ends:
            while self._ends and self._ends[0] <= self.last - len(ring):
                self._ends.popleft()
            return None
        return ring[-1] if len(fresh) == 1 and ring else None

    def holds(self, seen: int) -> bool:
        """Whether the ring has the frames after event `seen`."""
        return self.encoder is not None and self.last - len(self._ring) <= seen <= self.last

    def ends_at(self, seen: int) -> bool:
        """Whether the stream of a follower that has received event `seen` ends there."""
        return seen in self._ends

    def since(self, seen: int) -> FrameRange:
        """The next frames after event `seen`, bounded in size and by the end of a stream.

        A run may pause, which ends the streams of some formats, and go on before a follower wakes.
        Followers at the same event share the bytes.
        """
        if self._joined.first != seen + 1 or self._joined_at != self.last:
            missing = list(islice(reversed(self._ring), self.last - seen))
            missing.reverse()
            first = self.last + 1 - len(missing)
            if self._bytes > PIECE_BYTES:
                del missing[_fitting(missing) :]
            if end := next((end for end in self._ends if end > seen), None):
                del missing[end - seen :]
            self._joined = FrameRange(first, first + len(missing) - 1, b"".join(missing))
            self._joined_at = self.last
        return self._joined


class ReadAhead(NamedTuple):
    """Lines of the log that are read before the follower asks for them."""

    after: int
    task: asyncio.Task[LogRead[LogLines]]


class Streams:
    """The shared frames of a process, by run and format, while they have followers."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.answers = BuildCache[SharedBytes](asks_store=False)
        self.openings = BuildCache[RunOpening](asks_store=False)
        self.wholes = BuildCache[SharedBytes | None]()
        self._recent: deque[SharedBytes] = deque(maxlen=RECENT_WHOLES)
        self._turn = asyncio.Lock()
        # By tail, not by run: a deleted run may have followers when another run gets its id.
        self._shared: dict[tuple[Tail, str], FrameRing] = {}

    def __len__(self) -> int:
        return len(self._shared)

    def keep(self, whole: SharedBytes) -> None:
        """Keep the answer of an ended run for the next clients, if it is small."""
        if whole.size <= RECENT_BYTES:
            self._recent.append(whole)

    async def take_turn(self) -> None:
        """Let other tasks work before a large piece.

        Followers that wait for the same read would go on one after another, and delay every other
        client.
        """
        async with self._turn:
            await asyncio.sleep(0)

    def stream(
        self,
        wire: Format,
        run_id: str,
        encoder: Encoder,
        after: int,
        *,
        private: bool = False,
    ) -> Stream:
        """A follower whose encoder is ready for the event after `after`.

        A `private` encoder differs from the result of `at`, so its frames are not shared.
        """
        return Stream(self, wire, run_id, encoder, after, private=private)

    def take(self, tail: Tail, name: str) -> FrameRing:
        """The ring of a run in a format. The follower gives it back."""
        shared = self._shared.setdefault((tail, name), FrameRing())
        shared.readers += 1
        return shared

    def give_back(self, tail: Tail, name: str) -> None:
        """Count a follower less. The ring is dropped with its last follower."""
        shared = self._shared[tail, name]
        shared.readers -= 1
        if not shared.readers:
            del self._shared[tail, name]


class Stream:
    """The frames for one follower, in pieces of all that is ready. Iterate it once."""

    __slots__ = (
        *("_ahead", "_encoder", "_ended", "_fetched", "_held", "_private", "_ready", "_run_id"),
        *("_shared", "_streams", "_tail", "_wire", "_write", "seen", "written_at"),
    )  # a server has many that wait for events

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
        self._shared: FrameRing | None = None
        self._fetched: Sequence[Recorded] = ()
        self._held: Sequence[Any] | None = None  # the read that is being sent: others share it
        self._ready: Sequence[FrameRange] = ()  # the frames of that read that are not sent yet
        self._ahead: ReadAhead | None = None
        self._ended = is_over(encoder)
        self._write: WriteNow | None = None
        self.seen = after
        self.written_at = 0.0
        """When frames went to `write`, by the monotonic clock."""

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """All pieces, as a generator."""
        try:
            while (frames := await self.next()) is not None:
                yield frames
        finally:
            self.close()

    def _join(self) -> tuple[Tail, FrameRing]:
        if self._tail is None or self._shared is None:
            self._tail = self._streams.reader.tails.take(self._run_id)
            self._shared = self._streams.take(self._tail, self._wire.name)
        return self._tail, self._shared

    def close(self) -> None:
        """Stop following. A second call changes nothing."""
        self._drop_ahead()
        self._write = None  # the tail keeps this stream for a while, but not its connection
        if self._tail is not None:
            self._streams.give_back(self._tail, self._wire.name)
            self._streams.reader.tails.give_back(self._tail)
            self._tail = None

    @property
    def over(self) -> bool:
        """Whether the last frame was returned: of the run, or of a format that ends early."""
        if self._ready:
            return False
        tail = self._tail
        return self._ended or (tail is not None and tail.ended and self.seen >= tail.last)

    async def next(self, write: WriteNow | None = None, *, wait: bool = True) -> bytes | None:
        """The next frames, joined; None after the last frame.

        Returns no bytes if nothing came for a while, and at once without `wait`. While it waits,
        new frames may go to `write` instead. A plain call and no generator: it is made for each
        event and each follower.
        """
        tail, shared = self._join()
        self._write = write
        while self._ready or not self._ended:
            if shared.last < tail.last:
                shared.advance(tail)
            if may_share := self._may_share(tail, shared):
                some = self.seen < shared.last
                frames = self._pass(shared.since(self.seen)) if some else b""
                self._ended = shared.ends_at(self.seen)
                if some:
                    return frames
                if self._ended:
                    break
            else:
                piece = await self._history(tail)
                if piece is not None:
                    if frames := self._pass(piece):
                        return frames
                    continue
                if self._may_share(tail, shared):
                    continue
            if tail.ended and self.seen >= tail.last:
                return None
            if tail.failure is not None:
                raise tail.failure
            if not wait:
                return b""
            await tail.moved(self._forward if may_share and write is not None else None)
            if tail.last <= self.seen:
                return b""
        return None

    def _forward(self) -> bool:
        """Write the frames of new events; False if `next` has more to do than that."""
        tail, shared, write = self._tail, self._shared, self._write
        if tail is None or shared is None or write is None:
            return False
        seen = self.seen
        frames = shared.advance(tail) if shared.last < tail.last else None
        if tail.ended or tail.failure is not None:
            return False
        if frames is not None and seen + 1 == shared.last:  # at human pace nearly always
            last = seen + 1
        else:
            if not shared.holds(seen) or seen == shared.last:
                return False
            first, last, frames = shared.since(seen)
            check_next(self._run_id, seen, first)
            if shared.ends_at(last):
                return False
        if not write(frames):
            return False
        self.seen = last
        if frames:
            self.written_at = time.monotonic()
        return last == shared.last

    def _pass(self, piece: FrameRange) -> bytes:
        """The frames of a piece, if it continues after event `seen`."""
        check_next(self._run_id, self.seen, piece.first)
        self.seen = piece.last
        return piece.frames

    async def _history(self, tail: Tail) -> FrameRange | None:
        """The next frames that the ring no longer has; None if the ring has them."""
        if self._ready:
            return await self._next_ready()
        wire = self._wire
        if not self._fetched and tail.since(self.seen) is None and frames_lines(wire):
            await self._read_on(tail, wire)
        if self._ready:
            return await self._next_ready()
        if not self._fetched:
            if self._encoder is None:
                self._encoder = await self._own()
            self._fetched = self._held = await self._streams.reader.fetch(tail, self.seen)
        some = min(HISTORY_EVENTS, _fitting([one.public for one in self._fetched]))
        stretch, self._fetched = self._fetched[:some], self._fetched[some:]
        if not stretch:
            return None
        assert self._encoder is not None
        if sum([len(one.public) for one in stretch]) >= SEND_BYTES:
            # Not after the encoding: a stream that is cut there would have encoded frames that are
            # never sent.
            await self._streams.take_turn()
        piece = _encoded(self._encoder, stretch)
        self._ended = is_end(stretch[-1], self._run_id) or is_over(self._encoder)
        return piece

    async def _read_on(self, tail: Tail, wire: FramesLines) -> None:
        """Read the next lines of the log, and frame them."""
        found = await self._lines()
        if not found:
            return
        if self.seen == 0:  # a newer protocol is refused, although its bytes could be sent
            decode_event(found[0].first_public())
        last = Recorded(decode_event(found[-1].last_public()), b"")
        ended = is_end(last, self._run_id)
        if tail.last < 0 and not ended:
            # From now on the tail collects events. Else a run that writes faster than the log is
            # read would be read from the log to its end, which slows all runs.
            await tail.find_end()
        tail.check_epoch(found[-1].epoch)
        ready = found.frames.get(wire.name)
        if ready is None:
            ready = found.frames[wire.name] = _framed(wire, found)
        self._held, self._ready, self._ended = found, ready, ended

    async def _next_ready(self) -> FrameRange:
        """The next frames of the read. With the last frames, the read after it begins."""
        piece, self._ready = self._ready[0], self._ready[1:]
        if not self._ready and not self._ended and _is_full(self._held):
            ahead = asyncio.ensure_future(self._read_lines(piece.last))
            ahead.add_done_callback(retrieve_error)
            self._ahead = ReadAhead(piece.last, ahead)
        if len(piece.frames) >= SEND_BYTES:
            await self._streams.take_turn()
        return piece

    async def _lines(self) -> LogRead[LogLines]:
        """The next lines of the log, which may have been read ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.after != self.seen:
            # The follower took other events meanwhile, so these lines do not continue after them.
            ahead.task.cancel()
            ahead = None
        return await (ahead.task if ahead is not None else self._read_lines(self.seen))

    def _drop_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.task.cancel()
            self._ahead = None

    async def _read_lines(self, seen: int) -> LogRead[LogLines]:
        return await self._streams.reader.read_lines(self._run_id, seen)

    def _may_share(self, tail: Tail, shared: FrameRing) -> bool:
        """Whether to send the shared frames from here on."""
        if self._private or self._fetched:
            return False
        if shared.encoder is None and self._encoder and tail.since(self.seen) is not None:
            if self.seen > tail.last:
                return False
            shared.begin(self._encoder, self.seen)
            self._encoder = None  # it moves on with the ring, perhaps past this follower
            shared.advance(tail)
        if not shared.holds(self.seen):
            return False
        self._encoder = self._held = None
        self._ready = ()
        self._drop_ahead()
        return True

    async def _own(self) -> Encoder:
        """A new encoder, for a follower that the ring has left behind."""
        wire = self._wire
        if not wire.stateful:
            return wire.at(State())
        return wire.at(await self._streams.reader.state(self._run_id, self.seen))

    def closing(self, reason: str) -> bytes:
        """The frames that end the stream before the run's end."""
        if self._encoder is not None:
            return b"".join(self._encoder.close(reason))
        shared = self._shared
        if shared is None or shared.encoder is None or not shared.holds(self.seen):
            return b""
        rest = []
        while self.seen < shared.last and not shared.ends_at(self.seen):
            rest.append(self._pass(shared.since(self.seen)))
        last = [] if shared.ends_at(self.seen) else shared.encoder.close(reason)
        return b"".join(rest + last)


def _fitting(entries: list[bytes]) -> int:
    """How many entries make a piece: the first entry, and later entries that fit."""
    room = PIECE_BYTES
    for count, entry in enumerate(entries):
        room -= len(entry)
        if room < 0:
            return max(count, 1)
    return len(entries)


def _is_full(found: Sequence[LogLines] | None) -> bool:
    """Whether a read reached its limit, so that the log may have more."""
    if not found:
        return False
    size = sum(len(lines.raw) for lines in found)
    return size >= READ_BYTES or found[-1].last_seq - found[0].first_seq + 1 >= LINES_AT_ONCE


def _framed(wire: FramesLines, rows: list[LogLines]) -> list[FrameRange]:
    """The frames of rows. Small rows are joined; a large row is sent as it is, without a copy."""
    found: list[FrameRange] = []
    for lines in merged(rows):
        piece = FrameRange(lines.first_seq, lines.last_seq, wire.frames(lines))
        if found and len(found[-1].frames) + len(piece.frames) <= SEND_BYTES:
            before = found.pop()
            piece = FrameRange(before.first, piece.last, before.frames + piece.frames)
        found.append(piece)
    return found


def _encoded(encoder: Encoder, events: Sequence[Recorded]) -> FrameRange:
    """The frames of the events, up to the stream's end: an encoder may begin again after it."""
    frames: list[bytes] = []
    for last in events:
        frames += encoder.encode(last)
        if is_over(encoder):
            break
    numbers = events[0].event.sequence_number, last.event.sequence_number
    return FrameRange(*numbers, b"".join(frames))
