"""The log for several machines: PostgreSQL.

What one flush wrote of one run is one row, and one group of them is one statement, which is one
transaction and one round trip. A run's row in `runs` is its lock: whoever appends holds it until
the commit, so a run's events become visible in their order and never with a hole.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

from tailrace.core.codec import decode_lines
from tailrace.core.errors import NotFound, SeqConflict, StorageError
from tailrace.core.events import Recorded
from tailrace.core.lines import Lines
from tailrace.ports import (
    FORGET_SECONDS,
    Basis,
    Batch,
    Claim,
    Head,
    Letter,
    NewRun,
    RunInfo,
    Snapshot,
)
from tailrace.stores import postgres_sql as sql
from tailrace.stores.postgres_pool import Pool, split_url
from tailrace.stores.postgres_schema import DEFAULT_SCHEMA, checked, in_schema, migrate
from tailrace.stores.rows import (
    EVENTS_AT_ONCE,
    READ_BYTES,
    Row,
    joined,
    lines_in,
    packs,
    row_of,
    trimmed,
    verify,
)

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds for which an operation waits for a server that went away."""

EXPIRED_AT_ONCE = 1_000
"""How many runs retention is told of in one answer; the next one names more."""

SLOW_EVENTS = 150
"""From here on events are decoded in a thread: the loop has other readers to serve."""

_HUGE = 2**62


class PostgresStore:
    """A `Store` in a PostgreSQL database; make one with `open`."""

    def __init__(self, pool: Pool, schema: str) -> None:
        self._pool = pool
        self._schema = schema
        self._named: dict[str, str] = {}
        # On two connections the second of two appends may arrive first, and be refused. One at a
        # time costs nothing: a process has one pipeline, which waits for each of its groups.
        self._append_turn = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        schema: str | None = None,
        connections: int = 10,
        patience: float = PATIENCE,
    ) -> PostgresStore:
        """Connect, and bring the tables up to date. The schema can be named in the URL as well."""
        url, named = split_url(url)
        schema = checked(schema or named or DEFAULT_SCHEMA)
        pool = Pool(url, size=connections, patience=patience)
        await pool.open(partial(migrate, schema=schema))
        return cls(pool, schema)

    # --- the log -------------------------------------------------------------------------------

    async def create(self, run: NewRun) -> RunInfo | None:
        """Make a run with its first event."""
        token = secrets.token_bytes(16)
        first = row_of(run.run_id, 1, run.epoch, [run.public], [run.private])

        async def work(db: Any, again: bool) -> Any:
            try:
                found = await db.fetchrow(
                    self._sql(sql.CREATE),
                    run.run_id,
                    run.agent,
                    run.thread_id,
                    run.owner,
                    run.previous_run_id,
                    run.metadata,
                    token,
                    first.public,
                    first.private,
                    first.public_checksum,
                    first.private_checksum,
                    run.forget,
                    run.epoch,
                )
            except self._pool.taken:
                found = None
            if found is None and again:
                return await db.fetchrow(self._sql(sql.CREATED), run.run_id, token)
            return found

        found = await self._pool.run(work)
        return None if found is None else _info(found)

    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        """Write the batches; each run is accepted or refused on its own."""
        answers: list[Exception | None] = [None] * len(batches)
        # A statement sees a run's row once, so a second batch of a run goes into a second one.
        rounds: list[dict[str, tuple[int, Row]]] = []
        for index, batch in enumerate(batches):
            try:
                row = row_of(
                    batch.run_id, batch.first_seq, batch.epoch, batch.publics, batch.privates
                )
            except StorageError as error:
                answers[index] = error
                continue
            place = next((one for one in rounds if batch.run_id not in one), None)
            if place is None:
                rounds.append(place := {})
            place[batch.run_id] = (index, row)

        async def work(db: Any, _: bool) -> dict[int, Any]:
            if len(rounds) == 1:
                return await self._append(db, batches, rounds[0])
            written: dict[int, Any] = {}
            async with db.transaction():
                for one in rounds:
                    written |= await self._append(db, batches, one)
            return written

        async with self._append_turn:
            heads = await self._pool.run(work) if rounds else {}
        for one in rounds:
            for index, _ in one.values():
                head = heads.get(index)
                if head is None or not head["written"]:
                    answers[index] = await self._second_look(batches[index], head)
        return answers

    async def _append(
        self, db: Any, batches: list[Batch], rows: dict[str, tuple[int, Row]]
    ) -> dict[int, Any]:
        """How each batch's run ended before it, and whether it was written, by batch."""
        given = [(batches[index], row) for index, row in rows.values()]
        found = await db.fetch(
            self._sql(sql.APPEND),
            [batch.run_id for batch, _ in given],
            [batch.epoch for batch, _ in given],
            [batch.first_seq for batch, _ in given],
            [batch.last_seq for batch, _ in given],
            [row.public for _, row in given],
            [row.private for _, row in given],
            [row.public_checksum for _, row in given],
            [row.private_checksum for _, row in given],
            [batch.ended for batch, _ in given],
            [batch.snapshot for batch, _ in given],
        )
        return {rows[head["run_id"]][0]: head for head in found}

    async def _second_look(self, batch: Batch, head: Any) -> Exception | None:
        """Whether a batch that did not fit is one that we wrote and whose answer was lost.

        In a statement of its own: the one that waited for our own lost try does not see what that
        wrote. Later is no problem, as written events never change.
        """
        if head is None:
            return SeqConflict(f"There is no run {batch.run_id}.")

        async def work(db: Any, _: bool) -> Any:
            return await db.fetch(
                self._sql(sql.OVERLAP), batch.run_id, batch.first_seq, batch.last_seq
            )

        there: list[tuple[bytes, bytes, int]] = []
        for found in await self._pool.run(work):
            row = Row(batch.run_id, *found)
            parts = zip(row.publics(), row.privates(), strict=True)
            for seq, (public, private) in enumerate(parts, row.first_seq):
                if batch.first_seq <= seq <= batch.last_seq:
                    there.append((public, private, row.epoch))
        wanted = zip(batch.publics, batch.privates, [batch.epoch] * len(there), strict=False)
        if len(there) == len(batch.publics) and there == list(wanted):
            return None
        if head["ended"]:
            return SeqConflict(f"Run {batch.run_id} has ended; nothing can follow.")
        return SeqConflict(
            f"Run {batch.run_id} ends at {head['last_seq']} in epoch {head['epoch']}; this batch"
            f" begins at {batch.first_seq} in epoch {batch.epoch}. Another worker writes the run."
        )

    async def read(self, run_id: str, after: int, limit: int = 10_000) -> list[Recorded]:
        """Events after `after`."""
        return await _decoded(await self.read_lines(run_id, after, limit))

    async def read_lines(self, run_id: str, after: int, limit: int = 10_000) -> list[Lines]:
        """The same, undecoded."""
        after = min(after, _HUGE)
        rows = await self._fetch(sql.READ, run_id, after, limit, READ_BYTES)
        if not rows or rows[0]["first_seq"] > after + 1:
            found = await self.info(run_id)
            if found is not None and after < found.trimmed_to:
                raise trimmed(run_id, found.trimmed_to)
        return [lines_in(run_id, after, *row) for row in rows]

    async def read_private(self, run_id: str, after: int = 0) -> dict[int, bytes]:
        """The private parts after `after`."""
        rows = await self._fetch(sql.READ_PRIVATE, run_id, min(after, _HUGE))
        for first_seq, private, checksum in rows:
            verify(run_id, first_seq, private, checksum)
        return {
            seq: line
            for first_seq, private, _ in rows
            for seq, line in enumerate(private.split(b"\n"), first_seq)
            if line and seq > after
        }

    async def info(self, run_id: str) -> RunInfo | None:
        """One run's row."""
        rows = await self._fetch(sql.RUN, run_id)
        return _info(rows[0]) if rows else None

    async def heads(self, run_ids: list[str]) -> dict[str, Head]:
        """How far these logs go."""
        rows = await self._fetch(sql.HEADS, run_ids) if run_ids else []
        return {run_id: Head(last_seq, epoch, ended) for run_id, last_seq, epoch, ended in rows}

    async def runs(
        self,
        *,
        thread_id: str | None = None,
        owner: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[RunInfo]:
        """A page of a listing."""
        if after is not None:
            # A run that is gone has no place to go on from; silence would look like the end.
            known = await self.info(after)
            if (
                known is None
                or thread_id not in (None, known.thread_id)
                or owner not in (None, known.owner)
            ):
                raise NotFound(f"There is no run {after} in this listing; begin again.")
        if thread_id is not None:
            rows = await self._fetch(sql.THREAD_RUNS, thread_id, owner, after, limit)
        elif owner is not None:
            rows = await self._fetch(sql.OWNER_RUNS, owner, after, limit)
        else:
            rows = await self._fetch(sql.ALL_RUNS, after, limit)
        return [_info(row) for row in rows]

    async def thread_runs(
        self, thread_id: str, *, owner: str = "", first: int = 1, limit: int = 100
    ) -> list[RunInfo]:
        """A thread's runs from a place on."""
        rows = await self._fetch(sql.THREAD_FROM, thread_id, owner, min(first, _HUGE), limit)
        return [_info(row) for row in rows]

    async def newest_run(self, thread_id: str, *, owner: str = "") -> RunInfo | None:
        """A thread's last run."""
        rows = await self._fetch(sql.NEWEST_RUN, thread_id, owner)
        return _info(rows[0]) if rows else None

    async def last_ordinal(self, thread_id: str, *, owner: str = "") -> int:
        """How many runs a thread ever had."""
        rows = await self._fetch(sql.LAST_ORDINAL, owner, thread_id)
        return int(rows[0][0]) if rows else 0

    async def snapshot(self, run_id: str, at_most: int | None = None) -> Snapshot | None:
        """The newest snapshot up to an event."""
        rows = await self._fetch(sql.SNAPSHOT, run_id, at_most)
        return Snapshot(*rows[0]) if rows else None

    async def basis(self, run_id: str, at_most: int | None = None) -> Basis | None:
        """What a state is folded from, over one connection."""

        async def work(db: Any, _: bool) -> tuple[RunInfo, Snapshot | None, Any, int | None] | None:
            run = await db.fetchrow(self._sql(sql.RUN), run_id)
            if run is None:
                return None
            info = _info(run)
            # What is written meanwhile is not looked at, so that all of it fits together.
            last = info.last_seq if at_most is None else min(at_most, info.last_seq)
            state = await db.fetchrow(self._sql(sql.SNAPSHOT), run_id, last)
            seen = state["seq"] if state is not None else 0
            rows = []
            if seen < last:
                if seen < info.trimmed_to:
                    raise trimmed(run_id, info.trimmed_to)
                limit = min(last - seen, EVENTS_AT_ONCE)
                rows = await db.fetch(self._sql(sql.READ), run_id, seen, limit, READ_BYTES)
            epoch = await db.fetchval(self._sql(sql.EPOCH), run_id, last)
            return info, Snapshot(*state) if state is not None else None, rows, epoch

        found = await self._pool.run(work)
        if found is None:
            return None
        info, state, rows, epoch = found
        seen = state.seq if state is not None else 0
        lines = [lines_in(run_id, seen, *row) for row in rows]
        return Basis(info, state, await _decoded(lines), epoch)

    async def repack(self, run_id: str) -> None:
        """Join a run's rows; the events of different epochs stay apart."""

        async def work(db: Any) -> None:
            run = await db.fetchrow(self._sql(sql.LOCK_RUN), run_id)
            if run is None:
                return
            for first, last in packs(await db.fetch(self._sql(sql.SIZES), run_id)):
                found = await db.fetch(self._sql(sql.TAKE_BATCHES), run_id, first, last)
                rows = sorted(Row(run_id, *row) for row in found)
                await db.execute(self._sql(sql.PUT_BATCH), *joined(rows))

        await self._transaction(work)

    async def trim(self, run_id: str, snapshot: bytes) -> None:
        """Throw an ended run's events away, and keep this state."""

        async def work(db: Any) -> None:
            run = await db.fetchrow(self._sql(sql.LOCK_RUN), run_id)
            if run is None:
                return
            if not run["ended"]:
                raise StorageError(f"Run {run_id} has not ended; its events are still needed.")
            for statement in sql.FORGET:
                await db.execute(self._sql(statement), run_id)
            await db.execute(self._sql(sql.PUT_SNAPSHOT), run_id, run["last_seq"], snapshot)
            await db.execute(self._sql(sql.MARK_TRIMMED), run_id)

        await self._transaction(work)

    async def delete(self, run_id: str) -> bool:
        """Forget a run."""
        found = False

        async def work(db: Any) -> None:
            # The run's row first: who waits for it to append finds no run, so no row is left over.
            nonlocal found
            if await db.fetchval(self._sql(sql.DELETE_RUN), run_id) is not None:
                found = True
                for statement in sql.FORGET:
                    await db.execute(self._sql(statement), run_id)
                used = await db.fetch(self._sql(sql.END_USES), run_id)
                if used:
                    sha256s = [sha256 for (sha256,) in used]
                    await db.execute(self._sql(sql.LOCK_BLOBS), sha256s)
                    await db.execute(self._sql(sql.LEAVE_BLOBS), sha256s)

        # `found` stays true when the commit's answer was lost and the second try finds nothing.
        await self._transaction(work)
        return found

    async def expired(
        self, *, full_for: float, snapshot_for: float, forget_after: float = FORGET_SECONDS
    ) -> tuple[list[str], list[str]]:
        """Some ended runs to trim and to delete, the oldest first."""
        to_trim = await self._fetch(sql.TO_TRIM, full_for, snapshot_for, EXPIRED_AT_ONCE)
        to_forget = await self._fetch(sql.TO_FORGET, forget_after, EXPIRED_AT_ONCE)
        to_delete = await self._fetch(sql.TO_DELETE, snapshot_for, EXPIRED_AT_ONCE)
        gone = dict.fromkeys(run_id for (run_id,) in to_forget + to_delete)
        return [run_id for (run_id,) in to_trim], list(gone)

    # --- the queue -----------------------------------------------------------------------------

    async def claim(
        self,
        worker: str,
        agents: list[str],
        lease: float,
        limit: int = 1,
        held: Sequence[str] = (),
    ) -> list[Claim]:
        """Take waiting runs."""
        token = secrets.token_bytes(16)

        async def work(db: Any, again: bool) -> Any:
            found = []
            if again:
                found = await db.fetch(self._sql(sql.CLAIMED), worker, agents, token)
            return found or await db.fetch(
                self._sql(sql.CLAIM), worker, agents, lease, limit, token, list(held)
            )

        rows = await self._pool.run(work) if agents and limit > 0 else []
        return [Claim(*row[:5]) for row in sorted(rows, key=lambda row: row["number"])]

    async def take_over(self, run_id: str, worker: str, lease: float) -> Claim | None:
        """Claim a run that somebody may hold."""
        rows = await self._fetch(sql.TAKE_OVER, run_id, worker, lease, secrets.token_bytes(16))
        return Claim(*rows[0]) if rows else None

    async def extend(self, worker: str, claims: list[tuple[str, int]], lease: float) -> set[str]:
        """Keep leases alive."""
        if not claims:
            return set()
        run_ids = [run_id for run_id, _ in claims]
        epochs = [epoch for _, epoch in claims]
        rows = await self._fetch(sql.EXTEND, worker, run_ids, epochs, lease)
        return set(run_ids) - {row["run_id"] for row in rows}

    async def release(self, run_id: str, epoch: int) -> None:
        """Give a claim up."""
        await self._fetch(sql.RELEASE, run_id, epoch)

    async def park(self, worker: str, claims: list[tuple[str, int]], first_go: float) -> set[str]:
        """Let runs wait for a letter without a lease."""
        run_ids, epochs = [run_id for run_id, _ in claims], [epoch for _, epoch in claims]
        rows = await self._fetch(sql.PARK, worker, run_ids, epochs, first_go)
        return {row["run_id"] for row in rows}

    async def woken(self, worker: str) -> set[str]:
        """This worker's runs that were parked and are no more."""
        return {row["run_id"] for row in await self._fetch(sql.WOKEN, worker)}

    # --- the inbox -----------------------------------------------------------------------------

    async def post(self, run_id: str, kind: Literal["cancel", "input"], body: bytes) -> int | None:
        """Leave a letter."""
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

    async def letters(self, run_ids: list[str]) -> dict[str, list[Letter]]:
        """What these runs' writers have not read."""
        found: dict[str, list[Letter]] = {}
        for run_id, number, kind, body in await self._fetch(sql.LETTERS, run_ids):
            found.setdefault(run_id, []).append(Letter(number, kind, body))
        return found

    async def acknowledge(self, run_id: str, number: int) -> None:
        """Note what was read."""
        await self._fetch(sql.ACKNOWLEDGE, run_id, number)

    # --- blobs ---------------------------------------------------------------------------------

    async def put_blob(self, data: bytes, mime_type: str, run_id: str | None = None) -> str:
        """Keep these bytes; the type that came first stays."""
        # Hashing 100 MB takes a tenth of a second: not on the loop.
        sha256 = (await asyncio.to_thread(hashlib.sha256, data)).hexdigest()
        if run_id is None:
            await self._fetch(sql.PUT_BLOB, sha256, mime_type, data)
            return sha256

        async def work(db: Any) -> None:
            await self._hold(db, run_id)
            await db.execute(self._sql(sql.PUT_USED_BLOB), sha256, mime_type, data)
            await db.execute(self._sql(sql.USE_BLOBS), run_id, [sha256])

        await self._transaction(work)
        return sha256

    async def use_blobs(self, run_id: str, sha256s: list[str]) -> set[str]:
        """Note what a run uses; what is not there."""
        missing: set[str] = set()

        async def work(db: Any) -> None:
            nonlocal missing
            await self._hold(db, run_id)
            found = [row[0] for row in await db.fetch(self._sql(sql.LOCK_BLOBS), sha256s)]
            await db.execute(self._sql(sql.TAKE_BLOBS), found)
            await db.execute(self._sql(sql.USE_BLOBS), run_id, found)
            missing = set(sha256s) - set(found)

        await self._transaction(work)
        return missing

    async def _hold(self, db: Any, run_id: str) -> None:
        if await db.fetchval(self._sql(sql.HOLD_RUN), run_id) is None:
            raise NotFound(f"There is no run {run_id}.")

    async def collect_blobs(self, unused_for: float, limit: int = 100) -> int:
        """Forget what nobody uses; how many."""
        return len(await self._fetch(sql.COLLECT_BLOBS, unused_for, limit))

    async def blob(self, sha256: str) -> tuple[bytes, str] | None:
        """The bytes and their type."""
        rows = await self._fetch(sql.BLOB, sha256)
        if not rows:
            return None
        data, mime_type = rows[0]
        if (await asyncio.to_thread(hashlib.sha256, data)).hexdigest() != sha256:
            raise StorageError(f"Blob {sha256} is damaged. Restore the database from a backup.")
        return data, mime_type

    async def check(self) -> None:
        """Commit a transaction that has a number, which only a server that can write gives."""
        await self._fetch("select txid_current()")

    async def close(self) -> None:
        """Let the connections go when they are done, and the appends that wait for their turn."""
        async with self._append_turn:
            await self._pool.close()

    def _sql(self, statement: str) -> str:
        named = self._named.get(statement)
        if named is None:
            named = self._named[statement] = in_schema(statement, self._schema)
        return named

    async def _fetch(self, statement: str, *values: Any) -> list[Any]:
        """One statement that may be repeated."""

        async def work(db: Any, _: bool) -> list[Any]:
            rows: list[Any] = await db.fetch(self._sql(statement), *values)
            return rows

        return await self._pool.run(work)

    async def _transaction(self, work: Callable[[Any], Awaitable[None]]) -> None:
        """Several statements that may be repeated together."""

        async def inside(db: Any, _: bool) -> None:
            async with db.transaction():
                await work(db)

        await self._pool.run(inside)


def _info(row: Any) -> RunInfo:
    return RunInfo(**dict(row.items()))


async def _decoded(found: list[Lines]) -> list[Recorded]:
    if sum(one.last_seq - one.first_seq + 1 for one in found) < SLOW_EVENTS:
        return decode_lines(found)
    return await asyncio.to_thread(decode_lines, found)
