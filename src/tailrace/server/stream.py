"""Server-sent events over raw ASGI: one task that writes, one that hears the client leave."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from tailrace.core.errors import InvalidCursor, TailraceError
from tailrace.core.fold import State
from tailrace.ports import Trimmed
from tailrace.runtime.follow import epoch_at
from tailrace.runtime.runs import Runs
from tailrace.runtime.shared import Stream
from tailrace.wire.base import Cursor, Encoder, Format, Frame, InsideEvents, TellsGaps

HEARTBEAT_SECONDS = 15.0
WRITE_SECONDS = 30.0
"""How long a client may refuse to read before it is cut; it resumes where it was."""

logger = logging.getLogger("tailrace")


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
    ) -> None:
        self._runs = runs
        self.wire = wire
        self._run_id = run_id
        self._cursor = cursor
        self._snapshot = snapshot
        self._stream: Stream | None = None

    def closing(self, reason: str) -> bytes:
        """What ends the stream for a client that is sent away before the run's end."""
        return self._stream.closing(reason) if self._stream is not None else b""

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """The stream's bytes, in pieces as large as what has gathered."""
        sent = time.monotonic()
        try:
            opening, self._stream = await self._begin()
            if opening:
                yield opening
            async with aclosing(aiter(self._stream)) as pieces:
                async for piece in pieces:
                    if piece:
                        yield piece
                        sent = time.monotonic()
                    elif time.monotonic() - sent > HEARTBEAT_SECONDS - 1:
                        yield self.wire.heartbeat
                        sent = time.monotonic()
        except Trimmed:
            yield await self._what_is_left()

    async def _begin(self) -> tuple[bytes, Stream]:
        """The first bytes, and the stream that goes on after them."""
        wire, cursor, runs, run_id = self.wire, self._cursor, self._runs, self._run_id
        reason = None
        if cursor is not None and cursor.seq:
            reason = await _gap(runs, run_id, cursor)
            if reason is None:
                return await self._resume(cursor)
        elif not self._snapshot:
            # From the start: the whole log; but a format that cannot take back what a lost
            # attempt had shown is brought to the state in which it is gone.
            state = State() if wire.shows_attempts else await runs.state(run_id)
            if not _was_taken_back(state):
                return wire.preamble, runs.streams.stream(wire, run_id, wire.at(State()), 0)
        encoder, frames, seen = await self._open(reason)
        stream = runs.streams.stream(wire, run_id, encoder, seen, private=True)
        return wire.preamble + b"".join(frames), stream

    async def _resume(self, cursor: Cursor) -> tuple[bytes, Stream]:
        """Go on after a cursor, which may stand between two frames of one event."""
        wire, runs, run_id = self.wire, self._runs, self._run_id
        if cursor.sub is None or not isinstance(wire, InsideEvents):
            state = await runs.state(run_id, cursor.seq) if wire.stateful else State()
            return wire.preamble, runs.streams.stream(wire, run_id, wire.at(state), cursor.seq)
        before = await runs.state(run_id, cursor.seq - 1)
        event = (await runs.store.read(run_id, cursor.seq - 1, limit=1))[0]
        encoder, rest = wire.resume(before, event, cursor)
        stream = runs.streams.stream(wire, run_id, encoder, cursor.seq, private=True)
        return wire.preamble + b"".join(rest), stream

    async def _open(self, reason: str | None) -> tuple[Encoder, list[Frame], int]:
        """The state so far, for a client that knows nothing or has to be told of a gap."""
        state = await self._runs.state(self._run_id)
        if not isinstance(self.wire, TellsGaps):
            return *self.wire.open(state), state.sequence_number
        # The cursor that the client will come back with must be the one of that event.
        epoch = await epoch_at(self._runs.store, self._run_id, state.sequence_number)
        if epoch is None:
            epoch = (await self._runs.info(self._run_id)).epoch
        encoder, frames = self.wire.open(state, epoch)
        if reason is not None:
            frames.insert(0, self.wire.gap(state, epoch, reason))
        return encoder, frames, state.sequence_number

    async def _what_is_left(self) -> bytes:
        """Retention took what was to come: the final state instead, where that can be told.

        Trimmed runs have ended, so nothing follows it.
        """
        begun = self._stream is not None and self._stream.seen > 0
        if begun and not isinstance(self.wire, TellsGaps):
            return self.closing("This part of the run is no longer kept.")
        _, frames, _ = await self._open("trimmed")
        return b"".join(frames)


def _was_taken_back(state: State) -> bool:
    root = state.root
    return root is not None and any(node.superseded for node in root.items.values())


async def _gap(runs: Runs, run_id: str, cursor: Cursor) -> str | None:
    """Why the log cannot go on after this cursor, if it can't."""
    info = await runs.info(run_id)
    if cursor.epoch is not None and cursor.epoch > info.epoch:
        return "epoch"
    if cursor.seq > info.last_seq:
        return "beyond_end"
    next_one = cursor.seq + 1 if cursor.sub is None else cursor.seq
    if 0 < next_one <= info.trimmed_to:
        return "trimmed"
    if cursor.epoch is not None:
        # A power cut took the event, and a later writer wrote another one in its place.
        epoch = await epoch_at(runs.store, run_id, cursor.seq)
        if epoch is not None and epoch > cursor.epoch:
            return "epoch"
    return None


async def refuse_gap(runs: Runs, run_id: str, cursor: Cursor) -> None:
    """For formats that cannot tell of a gap: the caller has to start again."""
    reason = await _gap(runs, run_id, cursor)
    if reason is not None:
        where = "no longer kept" if reason == "trimmed" else "beyond the end of the stream"
        raise InvalidCursor(f"What comes after that is {where}; start again without a cursor.")


class Source(Protocol):
    """What a stream is made of: a run, or a thread."""

    @property
    def wire(self) -> Format:
        """The format that it is told in."""

    def __aiter__(self) -> AsyncGenerator[bytes, None]:  # noqa: PYI058  # it is closed in time
        """The bytes, as they come."""

    def closing(self, reason: str) -> bytes:
        """What ends the stream for a client that is sent away."""


class EventStream:
    """A response that sends a stream until it ends, the client leaves or the server stops."""

    def __init__(self, source: Source, stopping: asyncio.Event) -> None:
        self._source = source
        self._headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            **source.wire.headers,
        }
        self._stopping = stopping

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(k.encode(), v.encode()) for k, v in self._headers.items()],
            }
        )
        pump = asyncio.ensure_future(self._pump(send))
        left = asyncio.ensure_future(_left(receive))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([pump, left, stopping], return_when=asyncio.FIRST_COMPLETED)
            sent_away = stopping.done() and not left.done()
        finally:
            for task in (pump, left, stopping):
                task.cancel()
            answers = await asyncio.gather(pump, left, stopping, return_exceptions=True)
        failure = answers[0]
        if isinstance(failure, TailraceError):
            logger.warning("a stream broke off: %s", failure)
            last = self._source.closing("The stream broke off; connect again.")
            await send({"type": "http.response.body", "body": last, "more_body": False})
        elif isinstance(failure, Exception) and not isinstance(failure, TimeoutError | OSError):
            raise failure
        elif sent_away:
            last = self._source.closing("The server is stopping; connect again.")
            await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _pump(self, send: Send) -> None:
        # Closed here and not by the garbage collector: who left must not be followed for.
        async with aclosing(aiter(self._source)) as chunks:
            async for chunk in chunks:
                async with asyncio.timeout(WRITE_SECONDS):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def truthy(value: Any) -> bool:
    """`true`, `1` and so on; `false` in a query is false, although it is a non-empty string."""
    return str(value).lower() in ("1", "true", "yes", "on")
