"""Cancels runs whose client left and has no way back.

Chat completions and Anthropic's messages have no request that finds a run again. So a run that was
started there is cancelled when no client of this server has followed it for a while.
"""

from __future__ import annotations

import asyncio
import logging

from tailrace.core.errors import TailraceError
from tailrace.runtime.retention import FOREVER
from tailrace.runtime.runs import Runs
from tailrace.server.run_stream import RunStream
from tailrace.wire.base import Format

ABANDONED_SECONDS = 60.0
"""How long a run goes on without a client."""

ABANDONED = "abandoned"
"""The reason of the cancelled run."""

logger = logging.getLogger("tailrace")


class AbandonedRuns:
    """The runs that clients have left, each with the time of its next check."""

    def __init__(self, runs: Runs, seconds: float = ABANDONED_SECONDS) -> None:
        self._runs = runs
        self._seconds = seconds
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._cancels: set[asyncio.Task[None]] = set()

    def left(self, run_id: str) -> None:
        """Check later whether a run has a follower."""
        if self._seconds == FOREVER:
            return
        before = self._timers.pop(run_id, None)
        if before is not None:
            before.cancel()
        loop = asyncio.get_running_loop()
        self._timers[run_id] = loop.call_later(self._seconds, self._check, run_id)

    def stop(self) -> None:
        """Cancel no more runs: the server stops."""
        self._seconds = FOREVER
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in self._cancels:
            task.cancel()

    def _check(self, run_id: str) -> None:
        del self._timers[run_id]
        if self._runs.reader.tails.get(run_id) is not None:
            self.left(run_id)
            return
        task = asyncio.get_running_loop().create_task(self._cancel(run_id))
        self._cancels.add(task)
        task.add_done_callback(self._cancels.discard)

    async def _cancel(self, run_id: str) -> None:
        try:
            await self._runs.cancel(run_id, ABANDONED)
        except TailraceError as error:
            logger.warning("run %s has no client and was not cancelled: %s", run_id, error)


class AbandonableStream(RunStream):
    """The stream of a run whose client has no way back."""

    def __init__(self, runs: Runs, wire: Format, run_id: str, abandoned: AbandonedRuns) -> None:
        super().__init__(runs, wire, run_id)
        self._abandoned = abandoned

    async def close(self) -> None:
        """Stop following. The run may be cancelled later."""
        await super().close()
        self._abandoned.left(self._run_id)
