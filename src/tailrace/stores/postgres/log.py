"""The event log in PostgreSQL: runs, events, snapshots and retention.

A flush writes one row per run, all rows in one statement: one transaction and one round trip. A
run's row in `runs` is its lock: an append holds it until the commit, so events become visible in
order and without holes.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import partial
from typing import Any, TypeVar

from tailrace.core.codec import decode_lines
from tailrace.core.errors import NotFound, SeqConflict, StorageError
from tailrace.core.events import Recorded
from tailrace.core.log_lines import READ_BYTES, LogLines
from tailrace.ports import Batch, Head, NewRun, RunInfo, Snapshot, StateSource
from tailrace.ports.store import FORGET_SECONDS
from tailrace.stores.limits import EXPIRED_AT_ONCE
from tailrace.stores.postgres import sql
from tailrace.stores.postgres.pool import PostgresPool
from tailrace.stores.postgres.replica import Replica
from tailrace.stores.postgres.schema import lock_number
from tailrace.stores.postgres.statements import Statements
from tailrace.stores.rows import (
    DENSE_FROM,
    EVENTS_AT_ONCE,
    SNAPSHOT_EVENTS,
    Row,
    joined,
    lines_in,
    packs,
    plain,
    row_of,
    trimmed,
    verify,
)

T = TypeVar("T")

SLOW_EVENTS = 150
"""From this many events on, a thread decodes them, so that the event loop can go on."""

_HUGE = 2**62


class PostgresLog(Statements):
    """The `EventLog` of the store."""

    def __init__(self, pool: PostgresPool, schema: str, replica: Replica | None = None) -> None:
        super().__init__(pool, schema)
        self._replica = replica
        self._days: set[date] = set()
        """Days whose partition was there."""
        self._ending: set[date] = set()
        """Days whose partition retention will drop."""
        # On two connections the second of two appends could arrive first and be refused. One append
        # at a time costs nothing: the process's pipeline waits for each group anyway.
        self._append_turn = asyncio.Lock()

    async def create(self, run: NewRun) -> RunInfo | None:
        """Create a run with its first event."""
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
                    token,
                    first.public,
                    first.private,
                    first.public_checksum,
                    first.private_checksum,
                    run.forget,
                    run.epoch,
                    run.protocol,
                    run.queued,
                    run.ordinal,
                )
            except self._pool.taken:
                found = None
            if found is None and again:
                return await db.fetchrow(self._sql(sql.CREATED), run.run_id, token)
            return found

        found = await self._pool.run(work)
        if found is None and run.ordinal is not None and await self.info(run.run_id) is None:
            raise SeqConflict(
                f"Thread {run.thread_id} has another run {run.ordinal}. Create the run again."
            )
        return None if found is None else _info(found)

    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        """Write batches; accept or refuse each run on its own."""
        answers: list[Exception | None] = [None] * len(batches)
        # A statement takes one batch per run; a second batch of a run needs a second statement.
        rounds: list[dict[str, tuple[int, Row]]] = []
        for index, batch in enumerate(batches):
            try:
                row = row_of(
                    batch.run_id, batch.first_seq, batch.epoch, batch.publics, batch.privates
                )
            except StorageError as error:
                answers[index] = error
                continue
            place = next((group for group in rounds if batch.run_id not in group), None)
            if place is None:
                rounds.append(place := {})
            place[batch.run_id] = (index, row)

        async def work(db: Any, _: bool) -> dict[int, Any]:
            if len(rounds) == 1:
                return await self._append(db, batches, rounds[0])
            written: dict[int, Any] = {}
            async with db.transaction():
                for group in rounds:
                    written |= await self._append(db, batches, group)
            return written

        async with self._append_turn:
            heads = await self._pool.run(work) if rounds else {}
        for group in rounds:
            for index, _ in group.values():
                head = heads.get(index)
                if head is None or not head["written"]:
                    answers[index] = await self._second_look(batches[index], head)
        return answers

    async def _append(
        self, db: Any, batches: list[Batch], rows: dict[str, tuple[int, Row]]
    ) -> dict[int, Any]:
        """By batch: how far its run's log went before, and whether the batch was written."""
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
        """Why a batch did not fit; None if an earlier try, whose answer was lost, wrote it.

        This is a statement of its own: the statement that waited for the earlier try does not see
        its rows. Stored events never change, so a later look is correct.
        """
        if head is None:
            return SeqConflict(f"Unknown run {batch.run_id}.")

        async def work(db: Any, _: bool) -> Any:
            return await self._rows(db, sql.OVERLAP, batch.run_id, batch.first_seq, batch.last_seq)

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
        """Events after `after`, decoded in a thread if they are many."""
        return await _decoded(await self.read_lines(run_id, after, limit))

    async def read_lines(self, run_id: str, after: int, limit: int = 10_000) -> list[LogLines]:
        """Events after `after`, not decoded."""
        after = min(after, _HUGE)
        rows = await self._history(
            run_id, lambda db: self._rows(db, sql.READ, run_id, after, limit, READ_BYTES)
        )
        if not rows or rows[0]["first_seq"] > after + 1:
            found = await self.info(run_id)
            if found is not None and after < found.trimmed_to:
                raise trimmed(run_id, found.trimmed_to)
        return [lines_in(run_id, after, *row) for row in rows]

    async def read_private(self, run_id: str, after: int = 0) -> dict[int, bytes]:
        """The private parts after `after`."""
        rows = await self._history(
            run_id, lambda db: self._rows(db, sql.READ_PRIVATE, run_id, min(after, _HUGE))
        )
        for first_seq, private, checksum, _ in rows:
            verify(run_id, first_seq, private, checksum)
        return {
            seq: line
            for first_seq, private, _, unpacked in rows
            for seq, line in enumerate(plain(private, unpacked).split(b"\n"), first_seq)
            if line and seq > after
        }

    async def _history(self, run_id: str, work: Callable[[Any], Awaitable[T]]) -> T:
        """Read from a run that has ended on the replica, if there is one; else on the primary."""
        if self._replica is not None:
            info = await self.info(run_id)
            if info is not None and info.ended_at is not None:
                found = await self._replica.read(info, partial(self._info_on, run_id), work)
                if found is not None:
                    return found[0]
        return await self._pool.run(lambda db, _: work(db))

    async def _rows(self, db: Any, statement: str, run_id: str, *values: Any) -> list[Any]:
        """What a statement finds in the rows of a run, which may be in a partition."""
        rows: list[Any] = await db.fetch(self._sql(statement), run_id, *values)
        if not rows:
            day = await db.fetchval(self._sql(sql.ARCHIVED), run_id)
            if day is not None:
                with suppress(self._pool.missing):  # dropped after a trim
                    rows = await db.fetch(self._sql(sql.on_day(statement, day)), run_id, *values)
        return rows

    async def _info_on(self, run_id: str, db: Any) -> RunInfo | None:
        row = await db.fetchrow(self._sql(sql.RUN), run_id)
        return _info(row) if row else None

    async def info(self, run_id: str) -> RunInfo | None:
        """The row of a run."""
        rows = await self._fetch(sql.RUN, run_id)
        return _info(rows[0]) if rows else None

    async def open_runs(self, owner: str, limit: int) -> int:
        """How many runs of an owner have not ended."""
        [(count,)] = await self._fetch(sql.OPEN_RUNS, owner, limit)
        return int(count)

    async def heads(self, run_ids: list[str]) -> dict[str, Head]:
        """How far these logs go."""
        rows = await self._fetch(sql.HEADS, run_ids) if run_ids else []
        return {run_id: Head(last_seq, epoch, ended) for run_id, last_seq, epoch, ended in rows}

    async def thread_runs(
        self, thread_id: str, *, owner: str = "", first: int = 1, limit: int = 100
    ) -> list[RunInfo]:
        """The runs of a thread from ordinal `first` on."""
        rows = await self._fetch(sql.THREAD_RUNS, thread_id, owner, min(first, _HUGE), limit)
        return [_info(row) for row in rows]

    async def newest_run(self, thread_id: str, *, owner: str = "") -> RunInfo | None:
        """The last run of a thread."""
        rows = await self._fetch(sql.NEWEST_RUN, thread_id, owner)
        return _info(rows[0]) if rows else None

    async def latest_runs(
        self, *, owner: str = "", before: str | None = None, limit: int = 100
    ) -> list[RunInfo]:
        """An owner's runs, newest first."""
        if before is not None:
            known = await self.info(before)
            if known is None or known.owner != owner:
                raise NotFound(f"Run {before} is not in this listing. List from the start again.")
        return [_info(row) for row in await self._fetch(sql.LATEST_RUNS, owner, before, limit)]

    async def last_ordinal(self, thread_id: str, *, owner: str = "") -> int:
        """The highest ordinal of a thread so far."""
        rows = await self._fetch(sql.LAST_ORDINAL, owner, thread_id)
        return int(rows[0][0]) if rows else 0

    async def snapshot(self, run_id: str, at_most: int | None = None) -> Snapshot | None:
        """The newest snapshot up to an event."""
        row = await self._history(
            run_id, lambda db: db.fetchrow(self._sql(sql.SNAPSHOT), run_id, at_most)
        )
        return Snapshot(*row) if row else None

    async def state_source(self, run_id: str, at_most: int | None = None) -> StateSource | None:
        """Info, snapshot and events of a run, over one connection."""

        async def work(db: Any) -> tuple[RunInfo, Snapshot | None, Any, int | None] | None:
            run = await db.fetchrow(self._sql(sql.RUN), run_id)
            if run is None:
                return None
            info = _info(run)
            # Later events are left out, so that info, snapshot and events agree.
            last = info.last_seq if at_most is None else min(at_most, info.last_seq)
            state = await db.fetchrow(self._sql(sql.SNAPSHOT), run_id, last)
            seen = state["seq"] if state is not None else 0
            rows = []
            if seen < last:
                if seen < info.trimmed_to:
                    raise trimmed(run_id, info.trimmed_to)
                limit = min(last - seen, EVENTS_AT_ONCE)
                rows = await self._rows(db, sql.READ, run_id, seen, limit, READ_BYTES)
            epochs = await self._rows(db, sql.EPOCH, run_id, last)
            epoch = epochs[0][0] if epochs else None
            return info, Snapshot(*state) if state is not None else None, rows, epoch

        found = await self._history(run_id, work)
        if found is None:
            return None
        info, state, rows, epoch = found
        seen = state.seq if state is not None else 0
        lines = [lines_in(run_id, seen, *row) for row in rows]
        return StateSource(info, state, await _decoded(lines), epoch)

    async def repack(self, run_id: str) -> None:
        """Join a run's rows; rows of different epochs stay separate.

        The rows of an ended run move into the partition of the day on which it ended.
        """

        for (day,) in await self._fetch(sql.DAY, run_id):
            await self._make_partition(day)

        async def work(db: Any) -> None:
            run = await db.fetchrow(self._sql(sql.JOIN_TURN), run_id, DENSE_FROM)
            if run is None or not run["ours"]:
                return
            day = None if run["stays"] or run["day"] not in self._days else run["day"]
            put = self._sql(sql.PUT_BATCH if day is None else sql.on_day(sql.PUT_BATCH, day))
            await db.execute(self._sql(sql.THIN_SNAPSHOTS), run_id, SNAPSHOT_EVENTS)
            sizes = await db.fetch(self._sql(sql.SIZES), run_id)
            for first, last in packs(sizes, ended=run["ended"]):
                found = await db.fetch(self._sql(sql.TAKE_BATCHES), run_id, first, last)
                rows = sorted(Row(run_id, *row) for row in found)
                # In a thread: compressing takes milliseconds.
                row = await asyncio.to_thread(
                    joined, rows, ended=run["ended"], make_dense=run["dense"]
                )
                await db.execute(put, *row, day)
            if day is not None:
                for row in await db.fetch(self._sql(sql.TAKE_BATCHES), run_id, 0, _HUGE):
                    await db.execute(put, run_id, *row, day)
                await db.execute(self._sql(sql.MARK_ARCHIVED), run_id, day)

        await self._transaction(work)

    async def unjoined(self, ended_for: float) -> list[str]:
        """Ended runs whose rows were not joined since; oldest first."""
        found = await self._fetch(sql.UNJOINED, ended_for, EXPIRED_AT_ONCE)
        return [run_id for (run_id,) in found]

    async def _make_partition(self, day: date) -> None:
        """Make the partition of a day unless it exists. Processes take turns."""
        if day in self._days:
            return

        async def work(db: Any) -> None:
            await db.execute("select pg_advisory_xact_lock($1)", lock_number(self._schema))
            made = sql.MAKE_PARTITION.format(name=f"{day:%Y%m%d}", day=day)
            await db.execute(self._sql(made))

        await self._transaction(work)
        self._days.add(day)

    async def trim(self, run_id: str, snapshot: bytes) -> None:
        """Replace the events of an ended run by its final snapshot."""

        async def work(db: Any) -> None:
            run = await db.fetchrow(self._sql(sql.LOCK_RUN), run_id)
            if run is None:
                return
            if not run["ended"]:
                raise StorageError(
                    f"Run {run_id} has not ended, so its events cannot be trimmed. Cancel it first."
                )
            for statement in sql.FORGET:
                await db.execute(self._sql(statement), run_id)
            await db.execute(self._sql(sql.PUT_SNAPSHOT), run_id, run["last_seq"], snapshot)
            await db.execute(self._sql(sql.MARK_TRIMMED), run_id)

        await self._transaction(work)

    async def delete(self, run_id: str) -> bool:
        """Delete a run. Its blobs stay for a while, or while another run uses them."""
        found = False

        async def work(db: Any) -> None:
            # The run's row first: an append that waits for it finds no run and leaves no row.
            nonlocal found
            run = await db.fetchrow(self._sql(sql.DELETE_RUN), run_id)
            if run is not None:
                found = True
                for statement in sql.FORGET:
                    await db.execute(self._sql(statement), run_id)
                if run["archived"] is not None and run["archived"] not in self._ending:
                    # By the parent: the partition may have been dropped after a trim.
                    await db.execute(self._sql(sql.DELETE_ARCHIVED), run_id, run["archived"])
                used = await db.fetch(self._sql(sql.END_USES), run_id)
                if used:
                    sha256s = [sha256 for (sha256,) in used]
                    await db.execute(self._sql(sql.LOCK_BLOBS), sha256s)
                    await db.execute(self._sql(sql.LEAVE_BLOBS), sha256s)

        # `found` stays true if the answer of the commit was lost and the second try finds nothing.
        await self._transaction(work)
        return found

    async def expired(
        self, *, full_for: float, snapshot_for: float, forget_after: float = FORGET_SECONDS
    ) -> tuple[list[str], list[str]]:
        """Ended runs to trim and to delete, oldest first."""
        to_trim = await self._fetch(sql.TO_TRIM, full_for, snapshot_for, EXPIRED_AT_ONCE)
        to_forget = await self._fetch(sql.TO_FORGET, forget_after, EXPIRED_AT_ONCE)
        to_delete = await self._fetch(sql.TO_DELETE, snapshot_for, EXPIRED_AT_ONCE)
        gone = dict.fromkeys(run_id for (run_id,) in to_forget + to_delete)
        await self._drop_partitions(min(full_for, snapshot_for), snapshot_for)
        return [run_id for (run_id,) in to_trim], list(gone)

    async def _drop_partitions(self, events_for: float, runs_for: float) -> None:
        """Drop the partitions of days whose runs are all trimmed or deleted."""
        now = datetime.now(UTC)
        self._ending = set()
        for (name,) in await self._fetch(sql.PARTITIONS, self._schema):
            day = datetime.strptime(name[-8:], "%Y%m%d").replace(tzinfo=UTC)
            age = (now - day).total_seconds() - 86400
            if age > runs_for:
                self._ending.add(day.date())
            if age > events_for and not (await self._fetch(sql.IN_USE, day.date()))[0][0]:
                self._days.discard(day.date())
                await self._fetch(f"drop table if exists @{name}")


def _info(row: Any) -> RunInfo:
    return RunInfo(**dict(row.items()))


async def _decoded(found: list[LogLines]) -> list[Recorded]:
    if sum(lines.last_seq - lines.first_seq + 1 for lines in found) < SLOW_EVENTS:
        return decode_lines(found)
    return await asyncio.to_thread(decode_lines, found)
