"""What one client is sent of a run: all of it, the rest after a cursor, or a snapshot first."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from itertools import chain
from typing import NamedTuple

from tailrace.core.errors import InvalidCursor
from tailrace.core.fold import State
from tailrace.core.pieces import cut
from tailrace.ports import Trimmed
from tailrace.runtime.building import LARGE_BYTES, Parts, build
from tailrace.runtime.follow import Look, epoch_at
from tailrace.runtime.runs import Runs
from tailrace.runtime.shared import Stream
from tailrace.wire.base import (
    START,
    Cursor,
    Encoder,
    Format,
    Frame,
    InsideEvents,
    OpensInPieces,
    TellsGaps,
    spread_retry,
)

HEARTBEAT_SECONDS = 15.0


class Place(NamedTuple):
    """What the log has at a cursor: why it cannot go on there, or how it goes on."""

    gap: str | None = None
    is_end: bool = False
    inside: tuple[Encoder, list[Frame]] | None = None
    """For a cursor inside an event: an encoder for the next event, and the rest of this one."""


class RunStream:
    """What one client of a format is sent of a run.

    Everything, the rest after a cursor, or a snapshot and the rest: only the beginning differs.
    """

    def __init__(
        self,
        runs: Runs,
        wire: Format,
        run_id: str,
        cursor: Cursor | None = None,
        *,
        snapshot: bool = False,
        look: Look | None = None,
    ) -> None:
        """`look` is how the run stands, for a snapshot, if the caller knows it already."""
        self._runs = runs
        self.wire = wire
        self._run_id = run_id
        self._cursor = cursor if cursor != START else None
        self._place: Place | None = None
        self._snapshot = snapshot
        self._look = look
        self._stream: Stream | None = None
        self._opening: Parts | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._piece: bytes | None = None  # the next piece of the opening
        self._over = False
        self._sent = time.monotonic()
        self._told = False

    def closing(self, reason: str) -> bytes:
        """What ends the stream for a client that is sent away before the run's end."""
        if self._piece is not None:  # nothing fits inside a frame
            return b""
        if self._stream is not None:
            return self._stream.closing(reason)
        if self._over or self._cursor is not None:
            return b""
        return b"".join(self.wire.at(State()).close(reason))  # it was sent nothing yet

    async def next(self) -> bytes | None:
        """The stream's next bytes, as many as have gathered; None after its end."""
        if self._piece is not None:
            return self._next_piece()
        try:
            if self._stream is None and not self._over:
                opening, self._stream = await self._begin()
                self._over = self._stream is None
                if first := self._open_with(self._preamble(), opening):
                    return first
            while self._stream is not None and (piece := await self._stream.next()) is not None:
                now = time.monotonic()
                if not piece and now - self._sent > HEARTBEAT_SECONDS - 1:
                    piece = self.wire.heartbeat
                if piece:
                    self._sent = now
                    return piece
        except Trimmed:
            if not self._told:
                self._told = True
                return self._open_with(b"", await self._what_is_left())
        return None

    def _open_with(self, preamble: bytes, opening: Parts) -> bytes:
        """Send this before anything else, a bounded piece at a time; the first of them."""
        self._opening = opening  # so that it is kept for those who want the same
        self._pieces = cut(chain((preamble,), opening.parts))
        self._piece = next(self._pieces, None)
        return self._next_piece()

    def _next_piece(self) -> bytes:
        piece, self._piece = self._piece or b"", next(self._pieces, None)
        if self._piece is None:
            self._opening = None
        return piece

    @property
    def over(self) -> bool:
        """Whether it is known that nothing follows."""
        if self._piece is not None:
            return False
        return self._over or (self._stream is not None and self._stream.over)

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """All of it, for a stream that it is a part of."""
        try:
            while (piece := await self.next()) is not None:
                yield piece
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop following."""
        if self._stream is not None:
            self._stream.close()

    async def _begin(self) -> tuple[Parts, Stream | None]:
        """The first frames, and the stream that goes on after them, if anything can follow."""
        wire, cursor, runs, run_id = self.wire, self._cursor, self._runs, self._run_id
        reason = None
        if cursor is not None:
            place = await self._look_up(cursor)
            if place.gap is None:
                return await self._resume(cursor, place)
            reason = place.gap
        elif not self._snapshot:
            # From the start: the whole log; but a format that cannot take back what a lost
            # attempt had shown is brought to the state in which it is gone. Only the state tells:
            # the store counts lost workers, and a broken provider stream makes attempts as well.
            state = State() if wire.shows_attempts else await runs.reader.state(run_id)
            if not _was_taken_back(state):
                return Parts(()), runs.streams.stream(wire, run_id, wire.at(State()), 0)
        look, self._look = self._look or await runs.reader.look(run_id), None
        encoder, opening = await self._opened(look, reason)
        if look.is_whole:
            return opening, None
        seen = look.state.sequence_number
        return opening, runs.streams.stream(wire, run_id, encoder, seen, private=True)

    async def _opened(self, look: Look, reason: str | None) -> tuple[Encoder, Parts]:
        """The state so far, with the encoder that goes on after it.

        A large one is encoded beside the event loop, and once for all clients that can share it.
        """
        wire, state = self.wire, look.state
        if wire.stateful and not look.is_whole:
            # The encoder remembers what it has opened, so each client needs its own.
            encoder, frames = await build(look.weight, partial(self._open, look, reason))
            return encoder, Parts(frames)
        encode = partial(self._encoded, look, reason)
        if look.weight <= LARGE_BYTES:
            return wire.at(State()), encode()
        key = (self._run_id, wire.name, state.sequence_number, look.epoch, reason)
        make = partial(build, look.weight, encode)
        return wire.at(State()), await self._runs.streams.answers.get(key, make)

    def _encoded(self, look: Look, reason: str | None) -> Parts:
        wire, state = self.wire, look.state
        if not isinstance(wire, OpensInPieces):
            return Parts(self._open(look, reason)[1])
        gap = b"" if reason is None else wire.gap(state, look.epoch, reason)
        return Parts((gap, *wire.opening(state, look.epoch)))

    async def is_finished(self) -> bool:
        """Whether the run has ended where the cursor stands, so that nothing follows.

        Raises `InvalidCursor` if the log cannot go on there and the format cannot show a gap.
        """
        if self._cursor is None:
            return False
        place = await self._look_up(self._cursor)
        if place.gap is not None and not isinstance(self.wire, TellsGaps):
            raise InvalidCursor(
                f"The run cannot be resumed after this cursor ({place.gap});"
                " start again without a cursor."
            )
        return place.is_end

    async def _look_up(self, cursor: Cursor) -> Place:
        """What the log has at the cursor; it is decided once."""
        if self._place is None:
            try:
                self._place = await self._find(cursor)
            except Trimmed:
                self._place = Place("trimmed")
        return self._place

    async def _find(self, cursor: Cursor) -> Place:
        wire, runs, run_id = self.wire, self._runs, self._run_id
        info = await runs.info(run_id)
        if cursor.seq == 0:
            return Place("unknown")
        if cursor.epoch is not None and cursor.epoch > info.epoch:
            return Place("epoch")
        if cursor.seq > info.last_seq:
            return Place("beyond_end")
        next_seq = cursor.seq + 1 if cursor.sub is None else cursor.seq
        if next_seq <= info.trimmed_to:
            return Place("trimmed")
        if cursor.epoch is not None:
            # Another run's event; or a power cut took it, and a later writer wrote another event.
            epoch = await epoch_at(runs.store, run_id, cursor.seq)
            if epoch is None:
                epoch = info.epoch  # retention took it: the run's last event, by its last writer
            if epoch != cursor.epoch:
                return Place("epoch")
        if cursor.sub is None or not isinstance(wire, InsideEvents):
            return Place(is_end=info.ended_at is not None and cursor.seq == info.last_seq)
        before = await runs.reader.state(run_id, cursor.seq - 1)
        event = (await runs.store.read(run_id, cursor.seq - 1, limit=1))[0]
        try:
            return Place(inside=wire.resume(before, event, cursor))
        except InvalidCursor:
            return Place("unknown")

    async def _resume(self, cursor: Cursor, place: Place) -> tuple[Parts, Stream]:
        """Go on after a cursor, which may stand between two frames of one event."""
        wire, runs, run_id = self.wire, self._runs, self._run_id
        if place.inside is None:
            state = await runs.reader.state(run_id, cursor.seq) if wire.stateful else State()
            return Parts(()), runs.streams.stream(wire, run_id, wire.at(state), cursor.seq)
        encoder, rest = place.inside
        stream = runs.streams.stream(wire, run_id, encoder, cursor.seq, private=True)
        return Parts(rest), stream

    def _preamble(self) -> bytes:
        return self.wire.preamble(spread_retry(random.random()))  # noqa: S311

    def _open(self, look: Look, reason: str | None) -> tuple[Encoder, list[Frame]]:
        """The state so far, for a client that knows nothing or has to be told of a gap."""
        wire, state = self.wire, look.state
        if not isinstance(wire, TellsGaps):
            return wire.open(state)
        # The cursor that the client will come back with must be the one of that event.
        encoder, frames = wire.open(state, look.epoch)
        if reason is not None:
            frames.insert(0, wire.gap(state, look.epoch, reason))
        return encoder, frames

    async def _what_is_left(self) -> Parts:
        """Retention took what was to come: the final state instead, where that can be told.

        Trimmed runs have ended, so nothing follows it.
        """
        begun = self._stream is not None and self._stream.seen > 0
        if begun and not isinstance(self.wire, TellsGaps):
            return Parts([self.closing("This part of the run is no longer kept.")])
        look = await self._runs.reader.look(self._run_id)
        return (await self._opened(look, "trimmed"))[1]


def _was_taken_back(state: State) -> bool:
    root = state.root
    return root is not None and any(node.superseded for node in root.items.values())
