"""The PostgreSQL store, shared by several machines."""

from __future__ import annotations

from functools import partial

from tailrace.stores.postgres.blobs import PostgresBlobs
from tailrace.stores.postgres.log import PostgresLog
from tailrace.stores.postgres.pool import PostgresPool, split_url
from tailrace.stores.postgres.queue import PostgresQueue
from tailrace.stores.postgres.replica import Replica
from tailrace.stores.postgres.schema import DEFAULT_SCHEMA, checked, migrate

CONNECTIONS = 10

PATIENCE = 30.0
"""Seconds that a call waits for a server that is away."""


class PostgresStore(PostgresLog, PostgresQueue, PostgresBlobs):
    """A `Store` in a PostgreSQL database; create it with `open`."""

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        schema: str | None = None,
        connections: int = CONNECTIONS,
        patience: float = PATIENCE,
        replica: str | None = None,
    ) -> PostgresStore:
        """Connect and migrate the tables. The URL may name the schema: `?schema=…`.

        `replica` is the URL of a replica from which ended runs are read. Each of the two has at
        most so many `connections`.
        """
        url, named = split_url(url)
        schema = checked(schema or named or DEFAULT_SCHEMA)
        pool = PostgresPool(url, size=connections, patience=patience)
        await pool.open(partial(migrate, schema=schema))
        return cls(pool, schema, Replica(split_url(replica)[0], connections) if replica else None)

    async def check(self) -> None:
        """Get a transaction number, which only a server that can write gives."""
        await self._fetch("select txid_current()")

    async def close(self) -> None:
        """Wait for the appends and close the connections."""
        async with self._append_turn:
            await self._pool.close()
        if self._replica is not None:
            await self._replica.close()
