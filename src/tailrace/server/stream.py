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
from tailrace.wire.base import Cursor, Format
from tailrace.wire.task import gap_frame

HEARTBEAT_SECONDS = 15.0
WRITE_SECONDS = 30.0
"""How long a client may refuse to read before it is cut; it resumes where it was."""


class EventStream:
    """A response that sends frames until the run ends, the client leaves or the server stops."""

    def __init__(
        self, chunks: AsyncIterator[bytes], headers: dict[str, str], stopping: asyncio.Event
    ) -> None:
        self._chunks = chunks
        self._headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            **headers,
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
        watchers = [
            asyncio.ensure_future(_left(receive)),
            asyncio.ensure_future(self._stopping.wait()),
        ]
        try:
            await asyncio.wait([pump, *watchers], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (pump, *watchers):
                task.cancel()
            answers = await asyncio.gather(pump, *watchers, return_exceptions=True)
        failure = answers[0]
        if isinstance(failure, Exception) and not isinstance(failure, TimeoutError | OSError):
            raise failure

    async def _pump(self, send: Send) -> None:
        async for chunk in self._chunks:
            async with asyncio.timeout(WRITE_SECONDS):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def frames(
    runs: Runs,
    wire: Format,
    run_id: str,
    cursor: Cursor | None = None,
    *,
    snapshot: bool = False,
) -> AsyncIterator[bytes]:
    """What a client is sent: everything, the rest after a cursor, or a snapshot and the rest."""
    if wire.preamble:
        yield wire.preamble
    skip = 0
    after = 0
    if snapshot:
        state = await runs.state(run_id)
        encoder, opening = wire.open(state)
        after = state.sequence_number
        yield b"".join(opening)
    elif cursor is None or (cursor.seq == 0 and not cursor.sub):
        encoder = wire.at(State())
    else:
        reason = await _gap(runs, run_id, cursor)
        if reason is not None:
            state = await runs.state(run_id)
            encoder, opening = wire.open(state)
            after = state.sequence_number
            yield gap_frame(state, (await runs.info(run_id)).epoch, reason) + b"".join(opening)
        else:
            # A cursor inside an event: encode that event again, and drop the frames that arrived.
            after = cursor.seq if cursor.sub is None else cursor.seq - 1
            skip = 0 if cursor.sub is None else cursor.sub + 1
            encoder = wire.at(await runs.state(run_id, after) if wire.stateful else State())
    sent = time.monotonic()
    async for batch in runs.follow(run_id, after):
        out: list[bytes] = []
        for one in batch:
            out += encoder.encode(one)
        if skip and batch:
            # The skipped frames all belong to the first event after the state.
            out, skip = out[skip:], 0
        if out:
            yield b"".join(out)
            sent = time.monotonic()
        elif time.monotonic() - sent > HEARTBEAT_SECONDS:
            yield wire.heartbeat
            sent = time.monotonic()


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


def truthy(value: Any) -> bool:
    """`true`, `1` and so on; `false` in a query is false, although it is a non-empty string."""
    return str(value).lower() in ("1", "true", "yes", "on")
