"""A thread as one stream: its runs one after another, those to come as well. It never ends.

The cursor is `ordinal:` and what the run's own cursor is in a thread. It names a run by its number
in the thread, which is given once: a hole in these numbers is a run that was deleted.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

from tailrace.core.errors import InvalidCursor, NotFound
from tailrace.core.fold import State
from tailrace.core.sse import comment
from tailrace.ports import RunInfo
from tailrace.runtime.runs import Runs
from tailrace.server.stream import HEARTBEAT_SECONDS, RunStream
from tailrace.wire.base import MAX_CURSOR, Cursor, ThreadFormat, spread_retry, whole_number


class ThreadPlace(NamedTuple):
    """Where a thread's client stopped: in the run of this number, there."""

    ordinal: int
    cursor: Cursor


def read_place(wire: ThreadFormat, text: str) -> ThreadPlace | None:
    """The place that a client sent; `0` is the start, and so is the id of a gap before any run."""
    if text in ("0", "0:0"):
        return None
    ordinal, colon, rest = text.partition(":")
    if not colon or ordinal == "0":
        raise InvalidCursor(f"{text[:40]!r} is no cursor; send the last id that you received.")
    number = whole_number(ordinal)
    return ThreadPlace(number, wire.in_thread(number).cursor(rest))


class ThreadStream:
    """What one client of a format is sent of a thread."""

    def __init__(
        self,
        runs: Runs,
        wire: ThreadFormat,
        thread_id: str,
        place: ThreadPlace | None = None,
        *,
        snapshot: bool = False,
    ) -> None:
        self._runs = runs
        self.wire = wire
        self._thread_id = thread_id
        self._place = place
        self._snapshot = snapshot
        self._run: RunStream | None = None
        self._pieces = aiter(self)

    def closing(self, reason: str) -> bytes:
        """What ends the stream for a client that is sent away."""
        return self._run.closing(reason) if self._run is not None else b""

    async def next(self) -> bytes | None:
        """The next bytes; it never ends."""
        return await anext(self._pieces, None)

    @property
    def over(self) -> bool:
        """Never: a thread may get another run."""
        return False

    async def close(self) -> None:
        """Stop following."""
        await self._pieces.aclose()

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """The stream's bytes; it is open before there is a run."""
        yield self.wire.preamble(spread_retry(random.random()))  # noqa: S311
        if (
            "content-type" not in self.wire.headers
            and await self._runs.latest(self._thread_id) is None
        ):
            yield comment(f"thread {self._thread_id} has no runs; waiting for the next")
        place, gap = await self._start()
        if gap:
            yield gap
        sent = time.monotonic()
        # The run that comes next where none was deleted.
        due = place.ordinal if place is not None else 1
        runs = self._runs.reader.thread_runs(self._thread_id, due)
        async with aclosing(runs):
            async for run in runs:
                if run is None:
                    if time.monotonic() - sent > HEARTBEAT_SECONDS - 1:
                        yield self.wire.heartbeat
                        sent = time.monotonic()
                    continue
                if run.ordinal != due:
                    yield self.wire.in_thread(run.ordinal).gap(State(), 0, "deleted")
                try:
                    async with aclosing(self._tell(run, place)) as pieces:
                        async for piece in pieces:
                            yield piece
                    due = run.ordinal + 1
                except NotFound:
                    due = run.ordinal  # deleted before its end was told: a gap before the next one
                sent = time.monotonic()

    async def _start(self) -> tuple[ThreadPlace | None, bytes]:
        """Where to begin, and what has to be said before.

        A run that never was has no next one: its client goes back to the newest there is.
        """
        place = self._place
        last = await self._runs.store.last_ordinal(self._thread_id)
        if place is None or place.ordinal <= last:
            return place, b""
        newest = await self._runs.latest(self._thread_id)
        if newest is None:
            return None, self.wire.in_thread(last).gap(State(), 0, "beyond_end")
        # Beyond that run's end, too: so it is told there, with the state to go on from.
        return ThreadPlace(newest.ordinal, Cursor(MAX_CURSOR)), b""

    def _tell(self, run: RunInfo, place: ThreadPlace | None) -> AsyncGenerator[bytes, None]:
        cursor = place.cursor if place is not None and place.ordinal == run.ordinal else None
        wire = self.wire.in_thread(run.ordinal)
        snapshot = self._snapshot and cursor is None
        self._run = RunStream(self._runs, wire, run.run_id, cursor, snapshot=snapshot)
        return aiter(self._run)
