"""Joins the small rows of long and of ended runs, so that late readers read few."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from tailrace.core.errors import StorageBusy, StorageError
from tailrace.ports import Store

PAUSE_SECONDS = 0.02
"""How long it waits between two runs."""

LATER_SECONDS = 2.0
"""How long after a run's end its rows are joined: running runs come first."""

logger = logging.getLogger("tailrace")


class RowJoiner:
    """Joins the rows of one run at a time, so that other jobs of the store do not wait.

    `extra` is that of a log line.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._runs: asyncio.Queue[tuple[str, Mapping[str, Any]]] = asyncio.Queue()

    def join(self, run_id: str, extra: Mapping[str, Any]) -> None:
        """Join the rows of a run soon."""
        self._runs.put_nowait((run_id, extra))

    def join_later(self, run_id: str, extra: Mapping[str, Any]) -> None:
        """Join the rows of a run that has just ended."""
        asyncio.get_running_loop().call_later(LATER_SECONDS, self.join, run_id, extra)

    async def work(self) -> None:
        """Join until it is cancelled."""
        while True:
            run_id, extra = await self._runs.get()
            try:
                await self._store.repack(run_id)
            except StorageBusy:
                pass
            except StorageError as error:
                logger.warning("the rows of run %s were not joined: %s", run_id, error, extra=extra)
            await asyncio.sleep(PAUSE_SECONDS)
