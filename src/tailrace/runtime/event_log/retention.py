"""Trims ended runs to their final state after a time, and later deletes them; joins rows.

Every process with a worker does this. Two processes may work on the same run: trimming it twice
changes nothing, and a deleted run is skipped. So no process has to be elected.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable

from tailrace.core.errors import StorageBusy, StorageError, TailraceError
from tailrace.core.snapshot import save
from tailrace.core.stored_state import packed
from tailrace.ports.store import FORGET_SECONDS, Store, Trimmed
from tailrace.runtime.event_log.whole_state import read_whole

FOREVER = math.inf

UNUSED_BLOB_SECONDS = 24 * 60 * 60.0
"""How long an unused blob is kept: a run may use it, or store the same bytes again."""

SWEEP_SECONDS = 30.0
"""About how long a process waits between two passes."""

BUSY_SECONDS = 1.0
"""How long it waits if a pass left work over: other processes use the database too."""

AT_ONCE = 100
"""How many runs a pass trims or joins, and how many runs and blobs it deletes, at most."""

UNJOINED_SECONDS = 60.0
"""After this time an ended run is joined here: its worker does it at once, unless it is killed."""

SET_ASIDE_SECONDS = 600.0
"""How long a run that could not be trimmed or deleted is skipped: it may be damaged, and other runs
must not wait for it."""

logger = logging.getLogger("tailrace")


class Retention:
    """Trims runs that ended `keep_events` seconds ago, and deletes them after `keep_runs`.

    Blobs that only deleted runs used are deleted as well. The rows of runs whose worker was killed
    after their end are joined.
    """

    def __init__(
        self,
        store: Store,
        *,
        keep_events: float = FOREVER,
        keep_runs: float = FOREVER,
        forget_after: float = FORGET_SECONDS,
        join_after: float = UNJOINED_SECONDS,
        every: float | None = None,
    ) -> None:
        self._store = store
        self._keep_events = keep_events
        self._keep_runs = keep_runs
        self._forget_after = forget_after
        self._join_after = join_after
        self._every = SWEEP_SECONDS if every is None else every
        self._aside: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the passes."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="retention")

    async def stop(self) -> None:
        """Stop at once. Each step is complete by itself."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        pause = self._every
        while True:
            # Random, so that processes that start together do not do the same work.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = self._every
            try:
                if await self.sweep():
                    pause = min(BUSY_SECONDS, self._every)
            except StorageBusy:
                continue  # `outage` logs the outage once
            except StorageError as error:
                logger.warning("retention failed and will try again: %s", error)
            except Exception:
                logger.exception("retention failed and will try again")

    async def sweep(self) -> bool:
        """Do one pass; whether it left work for the next pass."""
        to_trim, to_delete = await self._store.expired(
            full_for=self._keep_events,
            snapshot_for=self._keep_runs,
            forget_after=self._forget_after,
        )
        deleted_all = await self._each(to_delete, self._store.delete)
        trimmed_all = await self._each(to_trim, self._trim)
        unjoined = await self._store.unjoined(self._join_after)
        joined_all = await self._each(unjoined, self._store.repack)
        collected = await self._store.collect_blobs(UNUSED_BLOB_SECONDS, AT_ONCE)
        return not (deleted_all and trimmed_all and joined_all and collected < AT_ONCE)

    async def _each(self, run_ids: list[str], work: Callable[[str], Awaitable[object]]) -> bool:
        """Do this work on the first of these runs; whether these were all."""
        now = time.monotonic()
        self._aside = {run_id: until for run_id, until in self._aside.items() if until > now}
        due = [run_id for run_id in run_ids if run_id not in self._aside]
        for run_id in due[:AT_ONCE]:
            try:
                await work(run_id)
            except TailraceError:
                self._aside[run_id] = now + SET_ASIDE_SECONDS
                raise
        return len(due) <= AT_ONCE

    async def _trim(self, run_id: str) -> None:
        try:
            state = await read_whole(self._store, run_id)
        except Trimmed:
            return
        # The state may be incomplete if another process deleted the run meanwhile.
        if state.root is not None and state.root.ended:
            final = await asyncio.to_thread(lambda: packed(save(state, private=True)))
            await self._store.trim(run_id, final)
