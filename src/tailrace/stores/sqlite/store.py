"""The SQLite store: one file, used by one process or several.

    store = await SqliteStore.open("tailrace.db")
    store = await SqliteStore.open("sqlite:///tailrace.db?synchronous=full")

Nothing is kept in memory between two calls. Each transaction reads the last seq, the epoch and the
next letter number. So another process, a kill or a full disk leaves no hole in the log.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl, unquote

import apsw

from tailrace.core.codec import decode_lines
from tailrace.core.errors import CallerError, NotFound, StorageBusy, StorageError
from tailrace.core.events import Recorded
from tailrace.core.log_lines import LogLines
from tailrace.ports import (
    Batch,
    Claim,
    Head,
    InboxLetter,
    NewRun,
    RunInfo,
    Snapshot,
    StateSource,
    Unread,
)
from tailrace.ports.store import FORGET_SECONDS
from tailrace.stores.limits import EXPIRED_AT_ONCE
from tailrace.stores.rows import EVENTS_AT_ONCE
from tailrace.stores.sqlite import batches as batches_of
from tailrace.stores.sqlite import blobs as blobs_of
from tailrace.stores.sqlite import fresh_rows
from tailrace.stores.sqlite import queue as queue_of
from tailrace.stores.sqlite import runs as runs_of
from tailrace.stores.sqlite.connections import Checkpointer, DatabaseThreads, Job, TakesLong
from tailrace.stores.sqlite.schema import Synchronous, connect

T = TypeVar("T")

MEMORY = ":memory:"

PACK_PAUSE = 0.005
"""Pause between two joins of a run's rows, so that other jobs get the threads."""

QUICK_BATCHES = 64
QUICK_BYTES = 32 * 1024
"""Writes up to this size are committed on the event loop, if the disk need not be waited for."""

QUICK_RUNS = 8
QUICK_EVENTS = 64
QUICK_ROW_BYTES = 1024 * 1024
"""Reads up to these sizes are done on the event loop. A row of this size is unpacked in a third of
a millisecond."""


class SqliteStore:
    """A `Store` in a file, or in `:memory:` for tests.

    `now` sets `created_at` and `ended_at`; leases use `boot_time` and `boot_id`.
    """

    def __init__(
        self,
        path: str | Path,
        now: Callable[[], float] = time.time,
        *,
        synchronous: Synchronous = "normal",
        readers: int = 2,
        boot_time: Callable[[], float] = queue_of.boot_time,
        boot_id: str | None = None,
    ) -> None:
        self.path = str(path)
        self._now = now
        self._boot_time = boot_time
        self._boot_id = queue_of.boot_id() if boot_id is None else boot_id
        self._synchronous = synchronous
        self._checkpointer: Checkpointer | None = None
        self._fresh = fresh_rows.FreshRows()
        self._unswept = 0
        self._sweeping: asyncio.Future[None] | None = None
        if self.path == MEMORY:
            # A database in memory has one connection, so the writer also reads.
            self._writer = self._reader = DatabaseThreads(self._connect_writer, writes=True)
            return
        self._checkpointer = Checkpointer(self._connect)
        try:
            self._writer = DatabaseThreads(self._connect_writer, writes=True)
            self._reader = DatabaseThreads(self._connect, writes=False, threads=readers)
        except BaseException:
            self._stop()
            raise

    @classmethod
    async def open(cls, url_or_path: str | Path, **options: Any) -> SqliteStore:
        """Open the store at a path, or at a URL such as `sqlite:///file.db?synchronous=full`."""
        path, found = _parsed(str(url_or_path))
        options = found | options
        return await asyncio.to_thread(cls, path, **options)

    def _connect(self) -> apsw.Connection:
        return connect(self.path, self._synchronous)

    def _connect_writer(self) -> apsw.Connection:
        connection = self._connect()
        self._fresh.read(connection)
        return self._checkpointer.watch(connection) if self._checkpointer else connection

    # --- the log -------------------------------------------------------------------------------

    async def create(self, run: NewRun) -> RunInfo | None:
        """Create a run with its first event."""
        job = partial(runs_of.create, run=run, now=self._now())
        size = len(run.public) + len(run.private)
        return await self._write(job, job if size <= QUICK_BYTES else None)

    def append_now(self, batches: list[Batch]) -> list[None] | None:
        """Write small batches on the event loop; None if the writer's thread has to."""
        if self._synchronous == "full" or not _is_quick(batches):  # full waits for the disk
            return None
        try:
            if self._writer.call_now(self._appending(batches, one_by_one=True)) is None:
                return None
        except StorageError:  # `append` finds out which batches
            return None
        self._count_unswept(len(batches))
        return [None] * len(batches)

    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        """Write batches; accept or refuse each run on its own."""
        answers: list[Exception | None] = [None] * len(batches)
        if self.append_now(batches) is not None:
            return answers
        try:
            await self._writer.call(self._appending(batches))
        except StorageBusy:
            raise
        except StorageError:  # most flushes fit: only then are they tried separately
            answers = await self._writer.call(
                lambda db: batches_of.append_each(db, batches, self._now())
            )
        self._count_unswept(len(batches))
        return answers

    def _appending(self, batches: list[Batch], *, one_by_one: bool = False) -> Job[None]:
        now = self._now()

        def job(db: apsw.Connection) -> None:
            self._fresh.add(batches_of.append(db, batches, now, one_by_one=one_by_one))

        return job

    def _count_unswept(self, count: int) -> None:
        self._unswept += count
        if self._unswept >= fresh_rows.SWEEP_ROWS and self._sweeping is None:
            self._unswept = 0
            # The caller does not wait for it. If it fails, the rows stay until the next sweep.
            self._sweeping = asyncio.ensure_future(self._sweep())
            self._sweeping.add_done_callback(self._swept)

    async def _sweep(self) -> None:
        """Join the rows of `fresh`.

        If other processes may have written some, a reader's thread reads them, so that flushes go
        on.
        """
        if not (self._fresh.known and await self._writer.call(self._fresh.sweep)):
            gather = partial(fresh_rows.gather, pause=fresh_rows.SWEEP_PAUSE)
            found = await self._reader.call(gather)
            await self._writer.call(partial(self._fresh.sweep_found, found=found))

    def _swept(self, done: asyncio.Future[None]) -> None:
        self._sweeping = None
        if not done.cancelled():
            done.exception()  # asyncio would log it

    async def read(self, run_id: str, after: int, limit: int = 10_000) -> list[Recorded]:
        """Events after `after`. A thread decodes many events."""

        def job(db: apsw.Connection, *, quick: bool = False) -> list[Recorded]:
            most = QUICK_ROW_BYTES if quick else None
            lines = batches_of.read_lines(db, run_id, after, limit, most=most)
            if quick and lines and lines[-1].last_seq - after > QUICK_EVENTS:
                raise TakesLong("There are many events.")
            return decode_lines(lines)

        return await self._read(job, partial(job, quick=True))

    async def read_lines(self, run_id: str, after: int, limit: int = 10_000) -> list[LogLines]:
        """Events after `after`, not decoded."""
        job = partial(batches_of.read_lines, run_id=run_id, after=after, limit=limit)
        return await self._read(job, partial(job, most=QUICK_ROW_BYTES))

    async def read_private(self, run_id: str, after: int = 0) -> dict[int, bytes]:
        """The private parts after `after`."""
        job = partial(batches_of.read_private, run_id=run_id, after=after)
        return await self._read(job, partial(job, most=QUICK_ROW_BYTES))

    async def info(self, run_id: str) -> RunInfo | None:
        """The row of a run."""
        job = partial(runs_of.info, run_id=run_id)
        return await self._read(job, job)

    async def heads(self, run_ids: list[str]) -> dict[str, Head]:
        """How far these runs' logs go."""
        job = partial(runs_of.heads, run_ids=run_ids)
        return await self._read(job, job if len(run_ids) <= QUICK_RUNS else None)

    async def thread_runs(
        self, thread_id: str, *, owner: str = "", first: int = 1, limit: int = 100
    ) -> list[RunInfo]:
        """The runs of a thread from ordinal `first` on."""
        where = "thread_id = ? and owner = ? and ordinal >= ? order by ordinal limit ?"
        return await self._infos(where, [thread_id, owner, first, limit])

    async def newest_run(self, thread_id: str, *, owner: str = "") -> RunInfo | None:
        """The last run of a thread."""
        job = partial(runs_of.newest, thread_id=thread_id, owner=owner)
        return await self._read(job, job)

    async def latest_runs(
        self, *, owner: str = "", before: str | None = None, limit: int = 100
    ) -> list[RunInfo]:
        """An owner's runs, newest first."""
        where, values = "owner = ?", [owner]
        if before is not None:
            query = "select number from runs where run_id = ? and owner = ?"
            place = await self._select(query, before, owner)
            if not place:
                raise NotFound(f"Run {before} is not in this listing. List from the start again.")
            where += " and number < ?"
            values += place[0]
        return await self._infos(f"{where} order by number desc limit ?", [*values, limit])

    async def last_ordinal(self, thread_id: str, *, owner: str = "") -> int:
        """The highest ordinal of a thread so far."""
        job = partial(runs_of.last_ordinal, thread_id=thread_id, owner=owner)
        return await self._read(job, job)

    async def snapshot(self, run_id: str, at_most: int | None = None) -> Snapshot | None:
        """The newest snapshot up to an event."""
        job = partial(runs_of.snapshot, run_id=run_id, at_most=at_most)
        return await self._read(job, partial(job, most=QUICK_ROW_BYTES))

    async def state_source(self, run_id: str, at_most: int | None = None) -> StateSource | None:
        """Info, snapshot and events of a run, in one job."""

        def job(db: apsw.Connection, *, quick: bool = False) -> StateSource | None:
            info = runs_of.info(db, run_id)
            if info is None:
                return None
            most = QUICK_ROW_BYTES if quick else None
            found = runs_of.snapshot(db, run_id, at_most, most=most)
            seen = found.seq if found is not None else 0
            last = info.last_seq if at_most is None else min(at_most, info.last_seq)
            limit = min(last - seen, EVENTS_AT_ONCE)
            if quick and limit > QUICK_EVENTS:
                raise TakesLong("The state needs many events.")
            lines = batches_of.read_lines(db, run_id, seen, limit) if limit > 0 else []
            return StateSource(
                info, found, decode_lines(lines), batches_of.epoch_of(db, run_id, last)
            )

        return await self._read(job, partial(job, quick=True))

    async def repack(self, run_id: str) -> None:
        """Join a run's rows in several jobs, so that writers need not wait.

        The newest small rows of a run that goes on stay in `fresh` until the next sweep.
        """
        look = partial(batches_of.cleanup_needed, run_id=run_id)
        has_ended, is_fresh, has_old_snapshots = await self._read(look, look)
        if is_fresh:
            await self._sweep()
        if has_old_snapshots:
            await self._writer.call(partial(batches_of.thin_snapshots, run_id=run_id))
        pack = partial(batches_of.pack, run_id=run_id, ended=has_ended)
        first_pack = partial(batches_of.first_pack, run_id=run_id, ended=has_ended)
        packs, row = await self._reader.call(first_pack)
        for number, (first, last) in enumerate(packs):
            if number:
                await asyncio.sleep(PACK_PAUSE)
                row = await self._reader.call(partial(pack, first_seq=first, last=last))
            is_joined = has_ended and number + 1 == len(packs)
            put = partial(batches_of.put_pack, run_id=run_id, row=row, is_joined=is_joined)
            await self._write(put, put if row is None or len(row.public) <= QUICK_BYTES else None)
        if has_ended and not packs:
            put = partial(batches_of.put_pack, run_id=run_id, row=None, is_joined=True)
            await self._write(put, put)

    async def unjoined(self, ended_for: float) -> list[str]:
        """Ended runs whose rows were not joined since; oldest first."""
        rows = await self._select(
            "select run_id from runs where ended_at is not null and joined = 0"
            " and trimmed_to = 0 and forget = 0 and ended_at <= ? order by ended_at limit ?",
            self._now() - ended_for,
            EXPIRED_AT_ONCE,
        )
        return [run_id for (run_id,) in rows]

    async def trim(self, run_id: str, snapshot: bytes) -> None:
        """Replace the events of an ended run by its final snapshot."""
        await self._writer.call(lambda db: batches_of.trim(db, run_id, snapshot))

    async def delete(self, run_id: str) -> bool:
        """Delete a run. Its blobs stay for a while, or while another run uses them."""
        return await self._writer.call(lambda db: batches_of.delete(db, run_id, self._now()))

    async def expired(
        self, *, full_for: float, snapshot_for: float, forget_after: float = FORGET_SECONDS
    ) -> tuple[list[str], list[str]]:
        """Ended runs to trim and to delete, oldest first."""
        now = self._now()

        async def ended(condition: str, *values: float) -> list[str]:
            rows = await self._select(
                f"select run_id from runs where ended_at <= ? {condition}"  # noqa: S608
                " order by ended_at limit ?",
                *values,
                EXPIRED_AT_ONCE,
            )
            return [run_id for (run_id,) in rows]

        older = now - snapshot_for
        to_trim = await ended("and trimmed_to = 0 and ended_at > ?", now - full_for, older)
        to_delete = await ended("", older)
        to_forget = await ended("and forget = 1", now - forget_after)
        return to_trim, list(dict.fromkeys(to_forget + to_delete))

    async def open_runs(self, owner: str, limit: int) -> int:
        """How many runs of an owner have not ended."""
        [(count,)] = await self._select(
            "select count(*) from"
            " (select 1 from runs where owner = ? and ended_at is null limit ?)",
            owner,
            limit,
        )
        return int(count)

    async def use_once(self, name: str, seconds: float) -> bool:
        """Whether this is the first use of a name."""
        now = self._now()
        return await self._writer.call(lambda db: queue_of.use_once(db, name, now, now + seconds))

    async def used(self, prefix: str) -> list[str]:
        """The names with this prefix that are used now."""
        rows = await self._select(
            "select name from used where name >= ?1 and name < ?1 || char(0x10ffff) and until > ?2",
            prefix,
            self._now(),
        )
        return [name for (name,) in rows]

    # --- claims --------------------------------------------------------------------------------

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

        def job(db: apsw.Connection, most: int | None = None) -> list[Claim]:
            return queue_of.claim(
                *(db, worker, agents, lease, limit, list(held), per_owner, lost),
                *(self._boot_time(), self._boot_id, most),
            )

        return await self._write(job, partial(job, most=QUICK_RUNS))

    async def take_over(self, run_id: str, worker: str, lease: float) -> Claim | None:
        """Claim a run from any holder."""
        return await self._writer.call(
            lambda db: queue_of.take_over(
                db, run_id, worker, self._boot_time() + lease, self._boot_id
            )
        )

    async def extend(self, worker: str, claims: list[tuple[str, int]], lease: float) -> set[str]:
        """Extend leases; returns the lost runs."""
        now = self._boot_time()
        return await self._writer.call(
            lambda db: queue_of.extend(db, worker, claims, now, now + lease, self._boot_id)
        )

    async def release(self, run_id: str, epoch: int) -> None:
        """Give up a claim."""
        await self._writer.call(lambda db: queue_of.release(db, run_id, epoch))

    async def park(
        self, worker: str, claims: list[tuple[str, int, int]], first_go: float
    ) -> set[str]:
        """Let runs wait for a letter without a lease."""
        return await self._writer.call(lambda db: queue_of.park(db, worker, claims, first_go))

    async def woken(self, worker: str) -> set[str]:
        """The parked runs of this worker that a letter woke."""
        job = partial(queue_of.woken, worker=worker)
        return await self._read(job, job)

    # --- letters -------------------------------------------------------------------------------

    async def post(self, run_id: str, kind: Literal["cancel", "input"], body: bytes) -> int | None:
        """Store a letter for a run's writer."""
        return await self._writer.call(
            lambda db: queue_of.post(db, run_id, kind, body, self._boot_time(), self._boot_id)
        )

    async def letters(self, run_ids: list[str]) -> dict[str, list[InboxLetter]]:
        """The letters that are not acknowledged."""
        job = partial(queue_of.letters, run_ids=run_ids)
        return await self._read(job, job if len(run_ids) <= QUICK_BATCHES else None)

    async def unread(self, run_id: str) -> Unread:
        """How many letters are not acknowledged."""
        job = partial(queue_of.unread, run_id=run_id)
        return await self._read(job, job)

    async def acknowledge(self, run_id: str, number: int) -> None:
        """Delete the letters up to this number."""
        await self._writer.call(
            lambda db: db.execute(
                "delete from letters where run_id = ? and number <= ?", (run_id, number)
            ).close()
        )

    # --- blobs ---------------------------------------------------------------------------------

    async def put_blob(self, data: bytes, mime_type: str, run_id: str | None = None) -> str:
        """Store bytes. A thread hashes them before the writer's job."""
        digest = (await asyncio.to_thread(hashlib.sha256, data)).hexdigest()
        await self._writer.call(
            lambda db: blobs_of.put(db, digest, mime_type, data, run_id, self._now())
        )
        return digest

    async def collect_blobs(self, unused_for: float, limit: int = 100) -> int:
        """Delete unused blobs; returns how many."""
        before = self._now() - unused_for
        return await self._writer.call(lambda db: blobs_of.collect(db, before, limit))

    async def blob(self, sha256: str, *, owner: str | None = None) -> tuple[bytes, str] | None:
        """The bytes and the MIME type of a blob; with `owner` only if a run of theirs uses it."""
        return await self._reader.call(lambda db: blobs_of.read(db, sha256, owner))

    # --- the rest ------------------------------------------------------------------------------

    async def check(self) -> None:
        """Write the first page unchanged, which needs as much disk as a small event."""
        await self._writer.call(lambda db: db.execute("pragma application_id = 0").close())

    async def close(self) -> None:
        """Write what waits, then close the file. A second call does nothing."""
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        for worker in ("_writer", "_reader"):
            if hasattr(self, worker):
                getattr(self, worker).stop()
        if self._checkpointer is not None:
            self._checkpointer.stop()

    async def _read(self, job: Job[T], quick: Job[T] | None) -> T:
        """Run a job on a reader's thread, unless `quick` can do it on the event loop."""
        found = self._reader.call_now(quick) if quick is not None else None
        return found[0] if found is not None else await self._reader.call(job)

    async def _write(self, job: Job[T], quick: Job[T] | None) -> T:
        """Run a job on the writer's thread, unless `quick` can do it on the event loop."""
        if self._synchronous == "full":  # each commit waits for the disk
            quick = None
        found = self._writer.call_now(quick) if quick is not None else None
        return found[0] if found is not None else await self._writer.call(job)

    async def _select(self, query: str, *values: Any) -> list[Any]:
        return await self._reader.call(lambda db: db.execute(query, values).fetchall())

    async def _infos(self, where: str, values: list[Any]) -> list[RunInfo]:
        return await self._reader.call(lambda db: runs_of.infos(db, where, *values))


def _is_quick(batches: list[Batch]) -> bool:
    """Whether a commit of these batches takes a fraction of a millisecond."""
    if len(batches) > QUICK_BATCHES:
        return False
    size = 0
    for batch in batches:
        size += len(batch.snapshot or b"") + sum(map(len, batch.publics))
    return size <= QUICK_BYTES


def _parsed(url: str) -> tuple[str, dict[str, Any]]:
    """The path and the options of a URL; a plain path is returned as it is."""
    if not url.startswith("sqlite:"):
        return url, {}
    rest, _, query = url.partition("?")
    options = dict(parse_qsl(query))
    if options.keys() - {"synchronous"} or options.get("synchronous", "full") not in (
        "normal",
        "full",
    ):
        raise CallerError(
            f"The SQLite URL {url!r} has an unknown option. Use ?synchronous=normal (the default)"
            " or ?synchronous=full."
        )
    if rest in (f"sqlite://{MEMORY}", f"sqlite:///{MEMORY}"):
        return MEMORY, options
    path = unquote(rest.removeprefix("sqlite:///"))
    if not rest.startswith("sqlite:///") or not path:
        raise CallerError(
            f"The SQLite URL {url!r} names no file. Write sqlite:///file.db,"
            " sqlite:////folder/file.db or sqlite://:memory:."
        )
    return path, options
