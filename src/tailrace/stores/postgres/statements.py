"""Runs the statements of `sql.py` on the pool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tailrace.stores.postgres.pool import PostgresPool
from tailrace.stores.postgres.schema import in_schema


class Statements:
    """Base of the parts of the store: statements in a schema, repeated if a connection is lost."""

    def __init__(self, pool: PostgresPool, schema: str) -> None:
        self._pool = pool
        self._schema = schema
        self._named: dict[str, str] = {}

    def _sql(self, statement: str) -> str:
        named = self._named.get(statement)
        if named is None:
            named = self._named[statement] = in_schema(statement, self._schema)
        return named

    async def _fetch(self, statement: str, *values: Any) -> list[Any]:
        """Run a statement that may be repeated."""

        async def work(db: Any, _: bool) -> list[Any]:
            rows: list[Any] = await db.fetch(self._sql(statement), *values)
            return rows

        return await self._pool.run(work)

    async def _transaction(self, work: Callable[[Any], Awaitable[None]]) -> None:
        """Run several statements in a transaction that may be repeated."""

        async def inside(db: Any, _: bool) -> None:
            async with db.transaction():
                await work(db)

        await self._pool.run(inside)
