"""The embedded log: one SQLite file, one thread that writes, one that reads.

While one transaction is being written the next requests gather, and go together: group commit. What
one flush wrote of one run is one row, because a row costs the same whether it holds one event or a
hundred.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from tailrace.core.codec import decode_event
from tailrace.core.errors import SeqConflict, StorageError
from tailrace.core.events import Recorded
from tailrace.ports import Batch, RunInfo, Snapshot

T = TypeVar("T")

SCHEMA = """
create table if not exists runs (
    run_id     text primary key,
    agent      text not null,
    thread_id  text not null,
    last_seq   integer not null default 0,
    epoch      integer not null default 1,
    created_at real not null,
    ended_at   real
);
create index if not exists runs_by_thread on runs (thread_id, created_at);
create table if not exists batches (
    run_id    text not null,
    first_seq integer not null,
    last_seq  integer not null,
    epoch     integer not null,
    public    blob not null,
    private   blob,
    checksum  integer not null
);
create unique index if not exists batches_in_order on batches (run_id, first_seq);
create table if not exists snapshots (
    run_id text not null,
    seq    integer not null,
    state  blob not null,
    primary key (run_id, seq)
);
"""

INFO = "run_id, agent, thread_id, last_seq, epoch, created_at, ended_at"


class _Worker:
    """One thread with one connection. Jobs that wait together run in one transaction."""

    def __init__(self, connect: Callable[[], apsw.Connection], *, writes: bool) -> None:
        self._jobs: queue.SimpleQueue[tuple[Any, Any, Any] | None] = queue.SimpleQueue()
        self._connect = connect
        self._writes = writes
        self._ready: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="tailrace-sqlite", daemon=True)
        self._thread.start()
        failure = self._ready.get()
        if failure is not None:
            raise StorageError(f"The database could not be opened: {failure}") from failure

    def call(self, job: Callable[[apsw.Connection], T]) -> asyncio.Future[T]:
        """Run a job on the thread; the result comes after its transaction is durable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put((job, future, loop))
        return future

    def stop(self) -> None:
        """Finish the jobs that wait, then end."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        try:
            connection = self._connect()
        except BaseException as failure:  # noqa: BLE001  # handed to whoever opened us
            self._ready.put(failure)
            return
        self._ready.put(None)
        running = True
        while running:
            jobs = [self._jobs.get()]
            while not self._jobs.empty():
                jobs.append(self._jobs.get())
            if jobs[-1] is None:
                running = False
            work = [job for job in jobs if job is not None]
            if work:
                self._run(connection, work)
        connection.close()

    def _run(self, connection: apsw.Connection, jobs: list[tuple[Any, Any, Any]]) -> None:
        results: list[tuple[Any, Any]] = []
        try:
            # `begin immediate` takes the write lock before we look, so nobody can append
            # between our reading the last seq and our writing the next.
            connection.execute("begin immediate" if self._writes else "begin")
            try:
                for job, _, _ in jobs:
                    results.append((job(connection), None))
            except BaseException:
                connection.execute("rollback")
                raise
            connection.execute("commit")
        except Exception as failure:  # noqa: BLE001  # it belongs to those who wait
            error = StorageError(f"The database could not do it: {failure}")
            error.__cause__ = failure
            results = [(None, error)] * len(jobs)
        by_loop: dict[Any, list[tuple[Any, Any, Any]]] = {}
        for (_, future, loop), (value, error_or_none) in zip(jobs, results, strict=True):
            by_loop.setdefault(loop, []).append((future, value, error_or_none))
        for loop, done in by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, done)


def _settle(done: list[tuple[asyncio.Future[Any], Any, BaseException | None]]) -> None:
    for future, value, error in done:
        if future.done():
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)


class SqliteLog:
    """An `EventLog` in a file, or in `:memory:` for tests."""

    def __init__(self, path: str | Path, now: Callable[[], float] = time.time) -> None:
        self.path = str(path)
        self._now = now
        self._writer = _Worker(self._open, writes=True)
        # A database in memory belongs to its one connection, so there the writer also reads.
        in_memory = self.path == ":memory:"
        self._reader = self._writer if in_memory else _Worker(self._open, writes=False)

    def _open(self) -> apsw.Connection:
        connection = apsw.Connection(self.path)
        connection.set_busy_timeout(5_000)
        connection.execute("pragma journal_mode = wal")
        # NORMAL survives the death of the process; a power cut may take the last moments.
        connection.execute("pragma synchronous = normal")
        connection.execute(SCHEMA)
        return connection

    async def create(self, info: RunInfo) -> bool:
        """Make a run; False if there is one of that id."""

        def job(db: apsw.Connection) -> bool:
            db.execute(
                f"insert or ignore into runs ({INFO}) values (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                msgspec.structs.astuple(info),
            )
            return db.changes() == 1

        return await self._writer.call(job)

    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        """Write the batches; each run is accepted or refused on its own."""
        return await self._writer.call(
            lambda db: [_append(db, batch, self._now()) for batch in batches]
        )

    async def read(self, run_id: str, after: int, limit: int = 10_000) -> list[Recorded]:
        """Events after `after`."""

        def job(db: apsw.Connection) -> list[tuple[int, int, bytes, bytes | None, int]]:
            # Start at the batch that holds the cursor: batches are found by their first event.
            rows = db.execute(
                "select first_seq, epoch, public, private, checksum from batches where run_id = ?1"
                " and first_seq >= coalesce((select max(first_seq) from batches where run_id = ?1"
                " and first_seq <= ?2 + 1), 0) and last_seq > ?2 order by first_seq",
                (run_id, after),
            )
            found: list[Any] = []
            count = 0
            for row in rows:
                found.append(row)
                count += row[2].count(b"\n") + 1
                if count >= limit:
                    break
            return found

        events: list[Recorded] = []
        for first_seq, epoch, public, private, checksum in await self._reader.call(job):
            _verify(run_id, first_seq, public, private, checksum)
            lines = public.split(b"\n")
            wanted = lines[max(0, after + 1 - first_seq) :]
            events.extend(Recorded(decode_event(line), line, epoch) for line in wanted)
        return events

    async def read_private(self, run_id: str, after: int = 0) -> dict[int, bytes]:
        """The private parts after `after`."""
        rows = await self._reader.call(
            lambda db: list(
                db.execute(
                    "select first_seq, private from batches where run_id = ? and last_seq > ?"
                    " and private is not null order by first_seq",
                    (run_id, after),
                )
            )
        )
        return {
            number: line
            for first_seq, private in rows
            for number, line in enumerate(private.split(b"\n"), first_seq)
            if line and number > after
        }

    async def info(self, run_id: str) -> RunInfo | None:
        """One run's row."""
        found = await self._infos("run_id = ?", run_id)
        return found[0] if found else None

    async def runs(self, thread_id: str) -> list[RunInfo]:
        """A thread's runs, oldest first."""
        return await self._infos("thread_id = ? order by created_at, rowid", thread_id)

    async def _infos(self, where: str, value: str) -> list[RunInfo]:
        rows = await self._reader.call(
            lambda db: list(db.execute(f"select {INFO} from runs where {where}", (value,)))  # noqa: S608
        )
        names = INFO.split(", ")
        return [RunInfo(**dict(zip(names, row, strict=True))) for row in rows]

    async def snapshot(self, run_id: str, at_most: int | None = None) -> Snapshot | None:
        """The newest snapshot up to an event."""
        rows = await self._reader.call(
            lambda db: list(
                db.execute(
                    "select seq, state from snapshots where run_id = ? and seq <= ?"
                    " order by seq desc limit 1",
                    (run_id, 2**62 if at_most is None else at_most),
                )
            )
        )
        return Snapshot(*rows[0]) if rows else None

    async def close(self) -> None:
        """Write what waits, then close the file."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._stop)

    def _stop(self) -> None:
        self._writer.stop()
        if self._reader is not self._writer:
            self._reader.stop()


def _append(db: apsw.Connection, batch: Batch, now: float) -> Exception | None:
    row = next(
        iter(db.execute("select last_seq, epoch from runs where run_id = ?", (batch.run_id,))), None
    )
    if row is None:
        return SeqConflict(f"There is no run {batch.run_id}.")
    last_seq, epoch = row
    public = b"\n".join(batch.publics)
    private = b"\n".join(batch.privates) if any(batch.privates) else None
    if epoch != batch.epoch or last_seq + 1 != batch.first_seq:
        if _is_there(db, batch, public, private):
            return None
        return SeqConflict(
            f"Run {batch.run_id} ends at {last_seq} in epoch {epoch}; this batch begins at "
            f"{batch.first_seq} in epoch {batch.epoch}. Another worker writes the run."
        )
    db.execute(
        "insert into batches values (?, ?, ?, ?, ?, ?, ?)",
        (
            batch.run_id,
            batch.first_seq,
            batch.last_seq,
            batch.epoch,
            public,
            private,
            _checksum(public, private),
        ),
    )
    db.execute(
        "update runs set last_seq = ?, ended_at = coalesce(ended_at, ?) where run_id = ?",
        (batch.last_seq, now if batch.ended else None, batch.run_id),
    )
    if batch.snapshot is not None:
        db.execute(
            "insert or replace into snapshots values (?, ?, ?)",
            (batch.run_id, batch.last_seq, batch.snapshot),
        )
    return None


def _is_there(db: apsw.Connection, batch: Batch, public: bytes, private: bytes | None) -> bool:
    rows = db.execute(
        "select 1 from batches where run_id = ? and first_seq = ? and epoch = ? and public = ?"
        " and private is ?",
        (batch.run_id, batch.first_seq, batch.epoch, public, private),
    )
    return next(iter(rows), None) is not None


def _checksum(public: bytes, private: bytes | None) -> int:
    return zlib.crc32(private or b"", zlib.crc32(public))


def _verify(
    run_id: str, first_seq: int, public: bytes, private: bytes | None, checksum: int
) -> None:
    if _checksum(public, private) != checksum:
        raise StorageError(
            f"The log of run {run_id} is damaged at event {first_seq}: its checksum does not fit."
            " Restore the file from a backup."
        )
