"""Reads ended runs from a replica of the database.

A run's row is read from the primary first, so a run that was deleted or trimmed there is not shown.
The replica is used if its row of the run is the same. Replication keeps the order of transactions,
so all events of the run are there too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tailrace.core.errors import StorageError
from tailrace.ports import RunInfo
from tailrace.stores.postgres.pool import PostgresPool

T = TypeVar("T")

PATIENCE = 2.0
"""Seconds that a read waits for the replica; then the primary is asked."""

PAUSE = 5.0
"""Seconds until a replica that was away is tried again."""

logger = logging.getLogger("tailrace")


class Replica:
    """A replica of the primary, which may lag behind it or be away."""

    def __init__(self, url: str, connections: int) -> None:
        self._pool = PostgresPool(url, size=connections, patience=PATIENCE)
        self._away_until: float | None = None

    async def read(
        self,
        info: RunInfo,
        row_of: Callable[[Any], Awaitable[RunInfo | None]],
        work: Callable[[Any], Awaitable[T]],
    ) -> tuple[T] | None:
        """What `work` reads on a connection; None if the primary has to be asked."""
        now = asyncio.get_running_loop().time
        if self._away_until is not None and now() < self._away_until:
            return None

        async def both(db: Any, _: bool) -> tuple[T] | None:
            async with db.transaction(isolation="repeatable_read", readonly=True):
                return (await work(db),) if await row_of(db) == info else None

        try:
            found = await self._pool.run(both)
        except StorageError as error:
            if self._away_until is None:
                logger.warning("the replica cannot be read, so the primary is asked: %s", error)
            self._away_until = now() + PAUSE
            return None
        if self._away_until is not None:
            self._away_until = None
            logger.warning("the replica is read again")
        return found

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.close()
