"""Claims and letters in PostgreSQL. Leases use the database's clock."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Literal

from tailrace.ports import Claim, InboxLetter, Unread
from tailrace.stores.postgres import sql
from tailrace.stores.postgres.statements import Statements

MOST_RUNS = 2**31
"""More runs than a worker can have."""


class PostgresQueue(Statements):
    """The `Queue`, the `Inbox` and the `Tokens` of the store."""

    async def claim(
        self,
        worker: str,
        agents: list[str],
        lease: float,
        limit: int = 1,
        held: Sequence[str] = (),
        per_owner: int | None = None,
        lost: bool = True,
    ) -> list[Claim]:
        """Claim waiting runs; owners take turns."""
        most = MOST_RUNS if per_owner is None else per_owner
        token = secrets.token_bytes(16)

        async def work(db: Any, again: bool) -> Any:
            found = []
            if again:
                found = await db.fetch(self._sql(sql.CLAIMED), worker, agents, token)
            # After an outage the caller decides anew whether runs are lost.
            is_lost = lost and not again
            return found or await db.fetch(
                self._sql(sql.CLAIM), worker, agents, lease, limit, token, list(held), most, is_lost
            )

        rows = await self._pool.run(work) if agents and limit > 0 else []
        return [Claim(*row[:6]) for row in sorted(rows, key=lambda row: row["number"])]

    async def take_over(self, run_id: str, worker: str, lease: float) -> Claim | None:
        """Claim a run from any holder."""
        rows = await self._fetch(sql.TAKE_OVER, run_id, worker, lease, secrets.token_bytes(16))
        return Claim(*rows[0]) if rows else None

    async def extend(self, worker: str, claims: list[tuple[str, int]], lease: float) -> set[str]:
        """Extend leases; returns the lost runs."""
        if not claims:
            return set()
        run_ids = [run_id for run_id, _ in claims]
        epochs = [epoch for _, epoch in claims]
        rows = await self._fetch(sql.EXTEND, worker, run_ids, epochs, lease)
        return set(run_ids) - {row["run_id"] for row in rows}

    async def release(self, run_id: str, epoch: int) -> None:
        """Give up a claim."""
        await self._fetch(sql.RELEASE, run_id, epoch)

    async def park(
        self, worker: str, claims: list[tuple[str, int, int]], first_go: float
    ) -> set[str]:
        """Let runs wait for a letter without a lease."""
        columns = [[claim[n] for claim in claims] for n in range(3)]
        rows = await self._fetch(sql.PARK, worker, *columns, first_go)
        return {row["run_id"] for row in rows}

    async def woken(self, worker: str) -> set[str]:
        """The parked runs of this worker that a letter woke."""
        return {row["run_id"] for row in await self._fetch(sql.WOKEN, worker)}

    async def use_once(self, name: str, seconds: float) -> bool:
        """Whether this is the first use of a name."""
        return bool(await self._fetch(sql.USE_ONCE, name, seconds, secrets.token_bytes(16)))

    async def used(self, prefix: str) -> list[str]:
        """The names with this prefix that are used now."""
        return [name for (name,) in await self._fetch(sql.USED, prefix)]

    async def post(self, run_id: str, kind: Literal["cancel", "input"], body: bytes) -> int | None:
        """Store a letter for a run's writer."""
        token = secrets.token_bytes(16)

        async def work(db: Any, again: bool) -> Any:
            try:
                found = await db.fetchval(self._sql(sql.POST), run_id, kind, body, token)
            except self._pool.taken:
                found = None
            if found is None and again:
                return await db.fetchval(self._sql(sql.POSTED), run_id, token)
            return found

        number: int | None = await self._pool.run(work)
        return number

    async def letters(self, run_ids: list[str]) -> dict[str, list[InboxLetter]]:
        """The letters that are not acknowledged."""
        found: dict[str, list[InboxLetter]] = {}
        for run_id, number, kind, body in await self._fetch(sql.LETTERS, run_ids):
            found.setdefault(run_id, []).append(InboxLetter(number, kind, body))
        return found

    async def unread(self, run_id: str) -> Unread:
        """How many letters are not acknowledged."""
        [found] = await self._fetch(sql.UNREAD, run_id)
        return Unread(*found)

    async def acknowledge(self, run_id: str, number: int) -> None:
        """Note the letters that were acted on."""
        await self._fetch(sql.ACKNOWLEDGE, run_id, number)
