"""Server-sent events over raw ASGI: one task that writes, one that hears the client leave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.types import Receive, Scope, Send

from tailrace.core.errors import InvalidCursor
from tailrace.core.fold import State
from tailrace.runtime.runs import Runs
from tailrace.wire.base import Cursor, Encoder, Format, InsideEvents
from tailrace.wire.task import gap_frame

HEARTBEAT_SECONDS = 15.0
WRITE_SECONDS = 30.0
"""How long a client may refuse to read before it is cut; it resumes where it was."""


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
        self._encoder: Encoder | None = None

    def closing(self, reason: str) -> bytes:
        """What ends the stream for a client that is sent away before the run's end."""
        return b"".join(self._encoder.close(reason)) if self._encoder is not None else b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The stream's bytes, in pieces as large as what has gathered."""
        opening, encoder, after = await self._begin()
        self._encoder = encoder
        if opening:
            yield opening
        sent = time.monotonic()
        async for batch in self._runs.follow(self._run_id, after):
            out: list[bytes] = []
            for one in batch:
                out += encoder.encode(one)
            if out:
                yield b"".join(out)
                sent = time.monotonic()
            elif time.monotonic() - sent > HEARTBEAT_SECONDS:
                yield self.wire.heartbeat
                sent = time.monotonic()

    async def _begin(self) -> tuple[bytes, Encoder, int]:
        """The first bytes, an encoder for what follows, and the event after which it follows."""
        wire, cursor, runs, run_id = self.wire, self._cursor, self._runs, self._run_id
        frames: list[bytes] = []
        if cursor is not None and cursor.seq:
            reason = await _gap(runs, run_id, cursor)
            if reason is None:
                return await self._resume(cursor)
            epoch = (await runs.info(run_id)).epoch
            state = await runs.state(run_id)
            frames.append(gap_frame(state, epoch, reason))
        elif self._snapshot:
            state = await runs.state(run_id)
        else:
            # From the start: the whole log; but a format that cannot take back what a lost
            # attempt had shown is brought to the state in which it is gone.
            state = await runs.state(run_id) if wire.stateful else State()
            if not _was_taken_back(state):
                return wire.preamble, wire.at(State()), 0
        encoder, opening = wire.open(state)
        frames += opening
        return wire.preamble + b"".join(frames), encoder, state.sequence_number

    async def _resume(self, cursor: Cursor) -> tuple[bytes, Encoder, int]:
        wire, runs, run_id = self.wire, self._runs, self._run_id
        if cursor.sub is None or not isinstance(wire, InsideEvents):
            state = await runs.state(run_id, cursor.seq) if wire.stateful else State()
            return wire.preamble, wire.at(state), cursor.seq
        before = await runs.state(run_id, cursor.seq - 1)
        event = (await runs.log.read(run_id, cursor.seq - 1, limit=1))[0]
        encoder, rest = wire.resume(before, event, cursor)
        return wire.preamble + b"".join(rest), encoder, cursor.seq


def _was_taken_back(state: State) -> bool:
    root = state.root
    return root is not None and any(node.superseded for node in root.items.values())


async def _gap(runs: Runs, run_id: str, cursor: Cursor) -> str | None:
    """Why the log cannot go on after this cursor, if it can't."""
    info = await runs.info(run_id)
    if cursor.epoch is not None and cursor.epoch > info.epoch:
        return "epoch"
    return "beyond_end" if cursor.seq > info.last_seq else None


async def refuse_gap(runs: Runs, run_id: str, cursor: Cursor) -> None:
    """For formats that cannot tell of a gap: a cursor beyond the end is the caller's slip."""
    if await _gap(runs, run_id, cursor) is not None:
        raise InvalidCursor("That is beyond the end of the stream; start again without a cursor.")


class EventStream:
    """A response that sends a stream until the run ends, the client leaves or the server stops."""

    def __init__(self, source: RunStream, stopping: asyncio.Event) -> None:
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
        if isinstance(answers[0], Exception) and not isinstance(answers[0], TimeoutError | OSError):
            raise answers[0]
        if sent_away:
            last = self._source.closing("The server is stopping; connect again.")
            await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _pump(self, send: Send) -> None:
        async for chunk in self._source:
            async with asyncio.timeout(WRITE_SECONDS):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def truthy(value: Any) -> bool:
    """`true`, `1` and so on; `false` in a query is false, although it is a non-empty string."""
    return str(value).lower() in ("1", "true", "yes", "on")
