"""A run as the stream of one client: from the start, after a cursor, or after a snapshot."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from functools import partial
from itertools import chain
from typing import Any

from tailrace.core.fold import State
from tailrace.core.json_pieces import SEND_BYTES, cut_pieces
from tailrace.ports import RunInfo, Trimmed
from tailrace.runtime.diagnostics.log_fields import about_run
from tailrace.runtime.event_log.offload import LARGE_BYTES, SharedBytes, build
from tailrace.runtime.followers.fanout import Stream, WriteNow
from tailrace.runtime.followers.follow import RunState, saved_at
from tailrace.runtime.followers.opening import RunOpening, stage
from tailrace.runtime.runs.all_runs import Runs
from tailrace.server.streams.resume_point import ResumePoint, resume_point
from tailrace.wire.base import (
    Cursor,
    Format,
    OpensSaved,
    ReportsGaps,
    opened,
    opens_in_pieces,
    opens_saved,
    spread_retry,
)

HEARTBEAT_SECONDS = 15.0


class RunStream:
    """The bytes of a run for one client of a format.

    It starts at the first event, after a cursor, or with a snapshot. Only the beginning differs.
    """

    __slots__ = (
        *("_gap_sent", "_info", "_joined", "_opening", "_over", "_piece", "_pieces", "_point"),
        *("_names", "_run_id", "_runs", "_seen", "_sent", "_snapshot", "_stream", "wire"),
    )  # a server has many that wait for events

    def __init__(
        self,
        runs: Runs,
        wire: Format,
        run_id: str,
        point: ResumePoint | None = None,
        *,
        snapshot: bool = False,
        info: RunInfo | None = None,
        about: RunInfo | None = None,
    ) -> None:
        """`info` is the run's row for a snapshot, if the caller has read it already.

        `about` is a row that may be old; log lines have its agent and thread.
        """
        self._runs = runs
        self.wire = wire
        self._run_id = run_id
        self._point = point
        self._snapshot = snapshot
        self._info = info
        known = info or about  # only its names are kept: the stream may last for hours
        self._names = ("", "") if known is None else (known.agent, known.thread_id)
        self._stream: Stream | None = None
        self._joined: RunOpening | None = None  # whose encoder the stream will need
        self._opening: SharedBytes | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._piece: bytes | None = None  # the next piece before those of the stream
        self._over = False
        self._seen = 0
        self._sent = time.monotonic()
        self._gap_sent = False

    @property
    def log_extra(self) -> dict[str, Any]:
        """The run or thread of a log line."""
        return about_run(self._run_id, *self._names)

    def closing(self, reason: str) -> bytes:
        """The frames that end the stream before the run's end."""
        if self._piece is not None:  # the client has half a frame
            return b""
        if self._stream is not None:
            return self._stream.closing(reason)
        if self._joined is not None:
            return b"".join(self._joined.encoder.close(reason))
        if self._over or self._point is not None:
            return b""
        return b"".join(self.wire.at(State()).close(reason))  # nothing was sent yet

    async def next(self, write: WriteNow | None = None, /) -> bytes | None:
        """Wait for the next bytes, and return all that are ready; None after the end.

        New frames may go to `write` meanwhile.
        """
        if self._piece is not None:
            return self._next_piece()
        try:
            if self._joined is not None:
                self._stream, self._joined = await self._after(self._joined), None
            if self._stream is None and not self._over:
                return await self._first()
            stream = self._stream
            while stream is not None and (piece := await stream.next(write)) is not None:
                now = time.monotonic()
                sent = max(self._sent, stream.written_at)
                if not piece and now - sent > HEARTBEAT_SECONDS - 1:
                    piece = self.wire.heartbeat
                if piece:
                    self._sent = now
                    return piece
        except Trimmed:
            if not self._gap_sent:
                self._gap_sent = True
                return self._open_with(b"", await self._what_is_left())
        return None

    async def _first(self) -> bytes:
        """The first bytes. They hold the next events, if there are any.

        A run that cannot be read fails here, before the status is sent.
        """
        opening, self._stream = await self._begin()
        self._over = self._stream is None and self._joined is None
        first = self._open_with(self._preamble(), opening)
        if self._piece is None and self._stream is not None:
            try:
                piece = await self._stream.next(wait=False) or b""
            except asyncio.CancelledError:
                self._stream.close()
                self._stream = None  # the client got nothing, so its last frames begin at the start
                raise
            if len(piece) < SEND_BYTES:
                return first + piece
            self._piece = piece  # sent next, without a copy
        return first

    def _open_with(self, preamble: bytes, opening: SharedBytes) -> bytes:
        """Send this before the events, in bounded pieces; returns the first piece."""
        self._opening = opening  # other clients share it while this client reads it
        self._pieces = cut_pieces(chain((preamble,), opening.parts))
        self._piece = next(self._pieces, None)
        return self._next_piece()

    def _next_piece(self) -> bytes:
        piece, self._piece = self._piece or b"", next(self._pieces, None)
        if self._piece is None:
            self._opening, self._pieces = None, iter(())
        return piece

    @property
    def over(self) -> bool:
        """Whether the last bytes were returned."""
        if self._piece is not None:
            return False
        return self._over or (self._stream is not None and self._stream.over)

    @property
    def seen(self) -> int:
        """The number of the last event whose frames were returned."""
        return self._stream.seen if self._stream is not None else self._seen

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """All pieces, for a thread's stream."""
        try:
            while (piece := await self.next()) is not None:
                yield piece
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop following."""
        if self._stream is not None:
            self._stream.close()

    async def _begin(self) -> tuple[SharedBytes, Stream | None]:
        """The first frames, and the stream of later events.

        None if the run has ended, or if the stream begins after the first frames.
        """
        wire, point, runs, run_id = self.wire, self._point, self._runs, self._run_id
        info, self._info = self._info, None  # the stream may last for hours
        await runs.check(run_id)
        reason = None
        if point is not None:
            if point.gap is None:
                return await self._resume(point)
            reason = point.gap
        elif not self._snapshot and (
            wire.shows_attempts or not await runs.reader.was_taken_back(wire, run_id)
        ):
            # From the start, send the whole log. A format that cannot take back the output of a
            # lost attempt gets the state without that output. Only the log shows whether there is
            # any: the store counts lost workers, and provider retries supersede items as well.
            return SharedBytes(()), runs.streams.stream(wire, run_id, wire.at(State()), 0)
        info = info or await runs.info(run_id)
        if reason is None and (whole := await self._whole(info)) is not None:
            return whole, None
        opening = await self._opened(info, reason)
        if opening.is_whole:
            self._seen = opening.seq
            return opening, None
        if opening.is_shared:
            self._joined = opening
            return opening, None
        return opening, await self._after(opening)

    async def _whole(self, info: RunInfo) -> SharedBytes | None:
        """The state of an ended run as it is stored, if the format sends it that way.

        Restoring and encoding it would cost more than sending it.
        """
        if info.ended_at is None or not opens_saved(self.wire):
            return None
        key = (info.run_id, self.wire.name, info.last_seq, info.epoch)
        streams = self._runs.streams
        whole = await streams.wholes.get(key, partial(self._stored, self.wire, info))
        if whole is not None:
            streams.keep(whole)
        return whole

    async def _stored(self, wire: OpensSaved, info: RunInfo) -> SharedBytes | None:
        run_id, last = info.run_id, info.last_seq
        saved = await saved_at(self._runs.store, run_id, last)
        # An ended run has no further writer, so its epoch is that of its last event.
        return (
            None if saved is None else SharedBytes(wire.open_saved(run_id, last, info.epoch, saved))
        )

    async def _opened(self, info: RunInfo, reason: str | None) -> RunOpening:
        """The frames of the state so far. A large state is encoded in a thread, for many clients.

        They may lack its newest events, which then follow.
        """
        openings = self._runs.streams.openings
        key = (self._run_id, self.wire.name, reason, stage(info))
        opening = openings.held(key)
        if opening is None:
            look = await self._runs.reader.near_end(info, key[-1])
            encode = partial(self._encoded, look, reason)
            if look.weight <= LARGE_BYTES:
                return encode()
            opening = await openings.get(key, partial(build, look.weight, encode))
        return opening

    def _encoded(self, look: RunState, reason: str | None) -> RunOpening:
        wire, state, epoch = self.wire, look.state, look.epoch
        gap = b""
        if reason is not None and isinstance(wire, ReportsGaps):
            gap = wire.gap(state, epoch, reason)
        pieces: Iterable[bytes]
        if look.weight > LARGE_BYTES and opens_in_pieces(wire):
            encoder, pieces = wire.open_in_pieces(state, epoch)
        else:
            encoder, pieces = opened(wire, state, epoch)
        return RunOpening((gap, *pieces), encoder, look)

    async def _after(self, opening: RunOpening) -> Stream:
        """The events after an opening."""
        encoder = await opening.own_encoder()
        streams = self._runs.streams
        return streams.stream(self.wire, self._run_id, encoder, opening.seq, private=True)

    async def _resume(self, point: ResumePoint) -> tuple[SharedBytes, Stream]:
        """Continue after a cursor, which may be between two frames of an event."""
        wire, runs, run_id, seq = self.wire, self._runs, self._run_id, point.cursor.seq
        if point.inside is None:
            state = await runs.reader.state(run_id, seq) if wire.stateful else State()
            return SharedBytes(()), runs.streams.stream(wire, run_id, wire.at(state), seq)
        encoder, rest = point.inside
        stream = runs.streams.stream(wire, run_id, encoder, seq, private=True)
        return SharedBytes(rest), stream

    def _preamble(self) -> bytes:
        return self.wire.preamble(spread_retry(random.random()))  # noqa: S311

    async def _what_is_left(self) -> SharedBytes:
        """The final state, instead of events that retention took.

        A format without gap frames ends here. Trimmed runs have ended, so nothing follows.
        """
        begun = self._stream is not None and self._stream.seen > 0
        if begun and not isinstance(self.wire, ReportsGaps):
            return SharedBytes([self.closing("This part of the run is no longer kept.")])
        return await self._opened(await self._runs.info(self._run_id), "trimmed")


async def run_frames(
    runs: Runs, wire: Format, run_id: str, cursor: Cursor | None = None
) -> AsyncGenerator[bytes, None]:
    """A run's stream in a format, from the start or after a cursor."""
    point = await resume_point(runs, wire, run_id, cursor)
    async with aclosing(aiter(RunStream(runs, wire, run_id, point))) as pieces:
        async for piece in pieces:
            yield piece
