"""A thread as one stream: its runs one after another, and later runs as they start. It never ends.

Each run has a number in the thread, its ordinal. Each number is given once, so a missing number
means a deleted run.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from tailrace.core.errors import MalformedEvent, NotFound, UnsupportedProtocol
from tailrace.core.fold import State
from tailrace.core.sse import comment
from tailrace.ports import RunInfo
from tailrace.runtime.diagnostics.log_fields import about_run
from tailrace.runtime.followers.fanout import WriteNow
from tailrace.runtime.runs.all_runs import Runs
from tailrace.server.streams.resume_point import ThreadCursor, resume_point, thread_point
from tailrace.server.streams.run_stream import HEARTBEAT_SECONDS, RunStream
from tailrace.wire.base import ThreadFormat, spread_retry

logger = logging.getLogger("tailrace")


class ThreadStream:
    """The bytes of a thread for one client of a format."""

    def __init__(
        self,
        runs: Runs,
        wire: ThreadFormat,
        thread_id: str,
        place: ThreadCursor | None = None,
        *,
        newest: RunInfo | None,
        snapshot: bool = False,
    ) -> None:
        """`newest` is the last run of the thread so far."""
        self._runs = runs
        self.wire = wire
        self._thread_id = thread_id
        self._place = place
        self._newest = newest
        self._snapshot = snapshot
        self._run: RunStream | None = None
        self._pieces = aiter(self)

    @property
    def log_extra(self) -> dict[str, Any]:
        """The run or thread of a log line."""
        return about_run(thread=self._thread_id)

    def closing(self, reason: str) -> bytes:
        """The frames that end the stream."""
        return self._run.closing(reason) if self._run is not None else b""

    async def next(self, _write: WriteNow | None = None, /) -> bytes | None:
        """Wait for the next bytes. The stream never ends."""
        return await anext(self._pieces, None)

    @property
    def over(self) -> bool:
        """Never: a thread may get another run."""
        return False

    async def close(self) -> None:
        """Stop following."""
        await self._pieces.aclose()

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """The stream's bytes, also before the thread has a run."""
        yield self.wire.preamble(spread_retry(random.random()))  # noqa: S311
        if "content-type" not in self.wire.headers and self._newest is None:
            yield comment(f"thread {self._thread_id} has no runs; waiting for the next")
        place = self._place
        if place is not None:
            wire, newest = self.wire, self._newest
            place, gap = await thread_point(self._runs, wire, self._thread_id, place, newest)
            if gap:
                yield gap
        sent = time.monotonic()
        # The ordinal of the next run, unless it was deleted.
        due = place.ordinal if place is not None else 1
        missing = "deleted"
        runs = self._runs.thread_runs(self._thread_id, due)
        async with aclosing(runs):
            async for run in runs:
                if run is None:
                    if time.monotonic() - sent > HEARTBEAT_SECONDS - 1:
                        yield self.wire.heartbeat
                        sent = time.monotonic()
                    continue
                if run.ordinal != due:
                    gone = self.wire.in_thread(run.ordinal)
                    yield gone.gap(State(), 0, missing, self._thread_id)
                    missing = "deleted"
                try:
                    async with aclosing(await self._run_pieces(run, place)) as pieces:
                        async for piece in pieces:
                            yield piece
                    due = run.ordinal + 1
                except NotFound:  # deleted before its end was sent
                    due = run.ordinal  # so a gap is sent before the next run
                except (MalformedEvent, UnsupportedProtocol) as failure:
                    logger.warning(
                        "run %s of thread %s is skipped in the stream: %s",
                        run.run_id,
                        run.thread_id,
                        failure,
                        extra=about_run(run),
                    )
                    due, missing = run.ordinal, "unreadable"
                sent = time.monotonic()

    async def _run_pieces(
        self, run: RunInfo, place: ThreadCursor | None
    ) -> AsyncGenerator[bytes, None]:
        cursor = place.cursor if place is not None and place.ordinal == run.ordinal else None
        wire = self.wire.in_thread(run.ordinal)
        point = await resume_point(self._runs, wire, run.run_id, cursor)
        snapshot = self._snapshot and point is None
        self._run = RunStream(self._runs, wire, run.run_id, point, snapshot=snapshot, about=run)
        return aiter(self._run)
