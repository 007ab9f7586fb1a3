"""The threads of the SQLite store: a writer, some readers, and a checkpointer.

Jobs that arrive during a transaction share the next transaction (group commit). A failed job is
rolled back alone. A disk failure rolls back the group, and each caller gets the error. Short jobs
run on the event loop instead: `DatabaseThreads.call_now`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

import apsw

from tailrace.core.errors import StorageBusy, StorageError, StorageFull, TailraceError
from tailrace.stores.sqlite.schema import BUSY_SECONDS, WAL_LIMIT, wait_when_busy

T = TypeVar("T")
Job = Callable[[apsw.Connection], T]
Connect = Callable[[], apsw.Connection]

CHECKPOINT_PAGES = 1000
"""Pages in the WAL after which the checkpointer copies them to the file."""

SLOW_SECONDS = 0.02
SHORT_SECONDS = 0.05
THREADS_SECONDS = 1.0
"""After a job of the event loop that took so long, the threads do all jobs for a time. The event
loop must not wait for a busy disk. The time is short at first, and doubles with each slow job
in a row. Mostly the disk is quick, and the process only had to wait for a CPU."""

logger = logging.getLogger("tailrace")

_Answer = tuple[Any, Exception | None]
_Waiting = tuple[Job[Any], asyncio.Future[Any], asyncio.AbstractEventLoop]


class TakesLong(Exception):
    """A job that is too long for the caller's thread."""


class DatabaseThreads:
    """Threads with a connection each, and a shared queue of jobs.

    A writer has one thread and runs all waiting jobs in one transaction. Readers have several
    threads and take one job at a time, so that a long job delays no other.
    """

    def __init__(self, connect: Connect, *, writes: bool, threads: int = 1) -> None:
        self._jobs: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._writes = writes
        self._in_use = threading.Lock()
        self._threads_only_until = 0.0
        self._threads_only_for = SHORT_SECONDS
        self._closing = threading.Lock()
        self._closed = False
        connections: list[apsw.Connection] = []
        try:
            for _ in range(threads):
                connections.append(connect())  # noqa: PERF401  # opened connections must be closed on failure
        except BaseException:
            for connection in connections:
                connection.close()
            raise
        # A reader's threads need not wait for the caller's jobs, nor the caller for theirs.
        self._connection = connections[0] if writes else connect()
        self._threads = [
            threading.Thread(
                target=self._work, args=(connection,), name="tailrace-sqlite", daemon=True
            )
            for connection in connections
        ]
        for thread in self._threads:
            thread.start()

    def call(self, job: Job[T]) -> asyncio.Future[T]:
        """Run a job on a thread; the result comes when its transaction is durable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._closing:
            if self._closed:
                raise StorageError("The database is closed. Open the store again.")
            self._jobs.put((job, future, loop))
        return future

    def call_now(self, job: Job[T]) -> tuple[T] | None:
        """Run a short job on the caller's thread, if it need not wait; None if it did not run.

        Two changes of threads take longer than a short job. A write lock of another process, a
        write that waits or runs, and a job that raises `TakesLong` are left to the threads.
        """
        begun = time.monotonic()
        if begun < self._threads_only_until or (self._writes and not self._jobs.empty()):
            return None
        if not self._in_use.acquire(blocking=False):
            return None
        try:
            if self._closed:
                return None
            self._connection.set_busy_timeout(0)
            [(value, failure)] = self._answers(self._connection, [job])
            wait_when_busy(self._connection)
        finally:
            self._in_use.release()
        self._note_duration(begun, time.monotonic())
        if isinstance(failure, StorageBusy | TakesLong):
            return None  # nothing was written
        if failure is not None:
            raise failure
        return (value,)

    def _note_duration(self, begun: float, ended: float) -> None:
        """Leave later jobs to the threads for a while, if this job was slow."""
        if ended - begun > SLOW_SECONDS:
            self._threads_only_until = ended + self._threads_only_for
            self._threads_only_for = min(2 * self._threads_only_for, THREADS_SECONDS)
        else:
            self._threads_only_for = SHORT_SECONDS

    def stop(self) -> None:
        """Finish the waiting jobs, then end the threads. A second call does nothing."""
        with self._closing:
            if not self._closed:
                self._closed = True
                for _ in self._threads:
                    self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        with self._in_use:
            self._connection.close()

    def _work(self, connection: apsw.Connection) -> None:
        running = True
        while running:
            jobs = [self._jobs.get()]
            while self._writes and not self._jobs.empty():
                jobs.append(self._jobs.get())
            running = None not in jobs
            # Skip cancelled jobs: their callers may try again, and the job would run twice.
            work = [job for job in jobs if job is not None and not job[1].cancelled()]
            if work:
                with self._in_use if self._writes else nullcontext():
                    answers = self._answers(connection, [job for job, _, _ in work])
                _settle_all(work, answers)
                del answers
            del jobs, work  # a result may have megabytes, and the next job may come in hours
        connection.close()

    def _answers(self, connection: apsw.Connection, jobs: list[Job[Any]]) -> list[_Answer]:
        try:
            # `begin immediate` takes the write lock first, so no other process can append between
            # our read of the last seq and our write of the next.
            connection.execute("begin immediate" if self._writes else "begin")
            if len(jobs) == 1:
                # A single job needs no savepoint.
                answers: list[_Answer] = [(jobs[0](connection), None)]
            else:
                answers = [attempt(connection, job) for job in jobs]
            connection.execute("commit")
        except Exception as failure:  # noqa: BLE001  # the callers get it
            _close_cursors(failure)
            # If the rollback fails, the next transaction fails and its callers get the error.
            with contextlib.suppress(apsw.Error):
                if connection.in_transaction:
                    connection.execute("rollback")
            return [(None, as_storage_error(failure))] * len(jobs)
        return answers


def attempt(connection: apsw.Connection, job: Job[T]) -> tuple[T | None, Exception | None]:
    """The result of a job, or its exception, which rolls back this job only."""
    connection.execute("savepoint job")
    try:
        value = job(connection)
    except Exception as failure:
        _close_cursors(failure)
        # Some disk failures end the whole transaction.
        if not connection.in_transaction or isinstance(failure, FATAL):
            raise
        connection.execute("rollback to job")
        connection.execute("release job")
        return None, as_storage_error(failure)
    connection.execute("release job")
    return value, None


def _close_cursors(failure: Exception) -> None:
    """Drop the cursors of a job that failed.

    Its frames are kept by the exception, often until the garbage collector comes. An open cursor
    keeps an old state of the database: the connection could not write, and would read that state.
    """
    traceback.clear_frames(failure.__traceback__)


FATAL = (apsw.FullError, apsw.IOError, apsw.BusyError, apsw.CorruptError, apsw.NoMemError)
"""Errors that fail the whole group of jobs."""


def as_storage_error(failure: Exception) -> Exception:
    """A failure as a `StorageError` that names the fault and the next step."""
    if isinstance(failure, TailraceError | TakesLong):
        return failure
    kind: type[StorageError] = StorageError
    if isinstance(failure, apsw.BusyError):
        kind = StorageBusy
        text = (
            f"The database is busy: other processes wrote for {BUSY_SECONDS:g} s. Nothing was"
            " written; try again."
        )
    elif isinstance(failure, apsw.FullError):
        kind = StorageFull
        text = f"The disk is full ({failure}). Nothing was written; free some space and try again."
    elif isinstance(failure, apsw.IOError):
        kind = StorageBusy
        text = f"The disk failed ({failure}). Nothing was written; repair it and try again."
    elif isinstance(failure, apsw.CorruptError | apsw.NotADBError):
        text = f"The database is damaged ({failure}). Restore the file from a backup."
    else:
        text = f"The database reports an error: {failure}"
    error = kind(text)
    error.__cause__ = failure
    return error


def _settle_all(jobs: list[_Waiting], answers: list[_Answer]) -> None:
    """Give the callers their results, with one wake-up per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], _Answer]]] = {}
    for (_, future, loop), answer in zip(jobs, answers, strict=True):
        by_loop.setdefault(loop, []).append((future, answer))
    for loop, done in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, done)
        except RuntimeError:  # the loop is closed: no caller waits
            continue


def _settle(done: list[tuple[asyncio.Future[Any], _Answer]]) -> None:
    for future, (value, error) in done:
        if future.done():
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)


class Checkpointer:
    """A thread that copies the WAL to the file, so that no commit has to.

    A PASSIVE checkpoint never waits, and cannot finish while others write. Above `WAL_LIMIT` a
    RESTART blocks the writers for a moment, so that the WAL does not grow without bound.
    """

    def __init__(self, connect: Connect) -> None:
        self._connection = connect()
        # A RESTART that waits for a reader holds the write lock.
        self._connection.set_busy_timeout(500)
        self._limit = WAL_LIMIT // int(self._connection.pragma("page_size"))
        self._due = threading.Event()
        self._stopping = False
        self._pages = 0
        self._carried = 0
        self.restarts = 0
        self._thread = threading.Thread(target=self._work, name="tailrace-checkpoint", daemon=True)
        self._thread.start()

    def watch(self, connection: apsw.Connection) -> apsw.Connection:
        """Count the WAL pages of a writer's commits."""
        connection.set_wal_hook(self._committed)
        return connection

    def stop(self) -> None:
        """End the thread. The last connection to close the file copies the rest of the WAL."""
        self._stopping = True
        self._due.set()
        self._thread.join()

    def _committed(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._pages = pages
        if pages < self._carried:  # the WAL started again
            self._carried = 0
        if pages - self._carried >= CHECKPOINT_PAGES:
            self._due.set()
        return apsw.SQLITE_OK

    def _work(self) -> None:
        while True:
            self._due.wait()
            if self._stopping:
                break
            self._due.clear()
            try:
                self._checkpoint()
            except apsw.BusyError:
                self._carried = self._pages  # another process is in the way: wait for more pages
            except apsw.Error as failure:
                # No event is lost: the WAL has them. The next commit tries again.
                logger.warning("SQLite checkpoint failed; the next commit tries again: %s", failure)
        self._connection.close()

    def _checkpoint(self) -> None:
        mode = apsw.SQLITE_CHECKPOINT_PASSIVE
        if self._pages > self._limit:
            mode = apsw.SQLITE_CHECKPOINT_RESTART
            self.restarts += 1
        in_wal, _ = self._connection.wal_checkpoint(mode=mode)
        self._carried = max(in_wal, 0)
