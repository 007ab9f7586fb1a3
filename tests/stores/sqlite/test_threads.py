"""What runs on the event loop and what on threads; closing."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import msgspec
import pytest

from tailrace.core.errors import StorageError
from tailrace.stores.sqlite import connections, schema
from tailrace.stores.sqlite import store as log_store
from tailrace.stores.sqlite.connections import DatabaseThreads, TakesLong
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.store_kit.setup import batch, created, new_run, numbers, written
from tailrace.testing.waiting import until
from tests.stores.sqlite.files import DEADLINE, execute


@pytest.mark.usefixtures("quick_disk")
async def test_a_small_flush_is_committed_without_a_change_of_threads(store: SqliteStore) -> None:
    await created(store, "r")
    with pytest.raises(StopIteration):  # it never waits
        store.append([batch("r", 2)]).send(None)
    assert await numbers(store, "r") == [1, 2]
    with pytest.raises(StopIteration):
        store.append([batch("r", 3, ended=True, snapshot=b"state")]).send(None)
    assert await numbers(store, "r") == [1, 2, 3]


@pytest.mark.usefixtures("quick_disk")
async def test_a_run_is_created_and_claimed_without_a_change_of_threads(store: SqliteStore) -> None:
    with pytest.raises(StopIteration) as found:
        store.create(new_run("r")).send(None)
    assert found.value.value.run_id == "r"
    with pytest.raises(StopIteration) as found:
        store.claim("w", ["a"], 60).send(None)
    assert [claim.run_id for claim in found.value.value] == ["r"]


@pytest.mark.parametrize("reason", ["large input", "many owners", "many lost runs"])
async def test_a_long_create_or_claim_leaves_the_event_loop_free(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr(log_store, "QUICK_RUNS", 1)
    if reason == "large input":
        writing: Any = store.create(new_run("large", public=b"x" * 100_000))
    else:
        for number in range(3):
            owner = f"o{number}" if reason == "many owners" else "o"
            await store.create(new_run(f"r{number}", owner=owner))
        if reason == "many lost runs":
            await store.claim("lost", ["a"], -1, limit=3)
        writing = store.claim("w", ["a"], 60, limit=3)
    begun = asyncio.ensure_future(writing)
    await asyncio.sleep(0)
    assert not begun.done()
    done: Any = await begun
    assert reason == "large input" or {claim.run_id for claim in done} == {"r0", "r1", "r2"}


@pytest.mark.usefixtures("quick_disk")
async def test_a_short_read_needs_no_change_of_threads(store: SqliteStore) -> None:
    await created(store, "r")
    await written(store, batch("r", 2, count=20))
    for read in (
        store.info("r"),
        store.heads(["r"]),
        store.read("r", 0),
        store.read_lines("r", 0),
        store.read_private("r"),
        store.snapshot("r"),
        store.state_source("r"),
        store.letters(["r"]),
        store.woken("w"),
        store.newest_run("t"),
        store.last_ordinal("t"),
    ):
        with pytest.raises(StopIteration):  # it never waits
            read.send(None)


@pytest.mark.parametrize(
    "how",
    [
        "stored",
        "compressed",
        "many events",
        "decoded",
        "private",
        "snapshot",
        "large state",
        "many runs",
        "live",
    ],
)
async def test_a_long_read_leaves_the_event_loop_free(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(log_store, "QUICK_ROW_BYTES", 50_000)
    await created(store, "r")
    part, state = "x" * 1000, b"x" * 60_000
    await written(store, batch("r", 2, 100, text=part, private=part.encode(), snapshot=state))
    await created(store, "small")
    await written(store, batch("small", 2, count=100))
    if how == "compressed":
        await written(store, batch("r", 102, ended=True))
        await store.repack("r")
    read: Any = {
        "many events": lambda: store.state_source("small"),
        "large state": lambda: store.state_source("r"),
        "decoded": lambda: store.read("small", 1),
        "private": lambda: store.read_private("r"),
        "snapshot": lambda: store.snapshot("r"),
        "many runs": lambda: store.heads(["r"] * 100),
        "live": lambda: store.letters(["r"] * 100),
    }.get(how, lambda: store.read_lines("r", 1))
    reading = asyncio.ensure_future(read())
    await asyncio.sleep(0)
    assert not reading.done()
    await reading


@pytest.mark.parametrize("reason", ["large", "full", "slow", "job", "lock"])
async def test_a_flush_that_may_have_to_wait_leaves_the_event_loop_free(
    path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    if reason == "slow":
        monkeypatch.setattr(connections, "SLOW_SECONDS", -1.0)
    store = await SqliteStore.open(path, synchronous="full" if reason == "full" else "normal")
    await created(store, "r")
    await written(store, batch("r", 2))
    other, held = apsw.Connection(str(path)), threading.Event()
    if reason == "lock":
        other.execute("begin immediate")
    if reason == "job":
        _ = store._writer.call(lambda _: held.wait(DEADLINE))
    flush = asyncio.ensure_future(
        store.append([batch("r", 3, text="x" * (100_000 if reason == "large" else 1))])
    )
    await asyncio.sleep(0)
    assert not flush.done()
    held.set()
    if reason == "lock":
        other.execute("rollback")
    assert await flush == [None]
    assert await numbers(store, "r") == [1, 2, 3]
    other.close()
    await store.close()


async def test_after_one_slow_job_the_event_loop_soon_writes_again_and_after_several_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 0.0

    def job(_db: apsw.Connection, seconds: float) -> None:
        nonlocal clock
        clock += seconds

    def pause_after(seconds: float) -> float:
        nonlocal clock
        assert threads.call_now(partial(job, seconds=seconds)) is not None
        pause = threads._threads_only_until - clock
        if pause > 0:
            assert threads.call_now(partial(job, seconds=0.0)) is None
        clock += max(pause, 0.0)
        return pause

    monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: clock))
    threads = DatabaseThreads(partial(schema.connect, str(path), "normal"), writes=True)
    pauses = [pause_after(0.03) for _ in range(6)]
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0])
    assert pause_after(0.001) <= 0
    assert pause_after(0.03) == pytest.approx(0.05)
    threads.stop()


@pytest.mark.usefixtures("quick_disk")
async def test_the_rows_of_a_short_run_are_joined_with_few_changes_of_threads(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await created(store, "r")
    await written(store, batch("r", 2))
    await written(store, batch("r", 3, ended=True))
    changes: list[DatabaseThreads] = []

    def call(threads: DatabaseThreads, job: Any) -> Any:
        changes.append(threads)
        return run(threads, job)

    run = DatabaseThreads.call
    monkeypatch.setattr(DatabaseThreads, "call", call)
    await store.repack("r")
    # To move the newest rows, and to compress.
    assert len(changes) == 2
    assert execute(path, "select count(*), joined from batches join runs") == [(1, 1)]


async def test_no_statement_is_compiled_again_for_each_run(store: SqliteStore) -> None:
    compiled = 0

    def compiles(*_: object) -> int:
        nonlocal compiled
        compiled += 1
        return apsw.SQLITE_OK

    for connection in (store._writer._connection, store._reader._connection):
        connection.authorizer = compiles
    counts: list[int] = []
    for run_id in map(str, range(10)):
        await created(store, run_id)
        (claim,) = await store.claim("w", ["a"], 60)
        await store.letters([run_id])
        await written(store, batch(run_id, 2, epoch=claim.epoch, snapshot=b"state"))
        assert await store.read_private(run_id) == {}
        assert await store.snapshot(run_id) is not None
        assert len(await store.read(run_id, 0)) == 2
        await written(store, batch(run_id, 3, epoch=claim.epoch, ended=True))
        counts.append(compiled)
    assert counts[0] > 0
    # A thread that writes because the disk is slow has statements of its own.
    assert counts[-1] <= 2 * counts[0]


async def test_a_call_that_fails_takes_no_other_with_it(store: SqliteStore) -> None:
    await created(store, "r")
    begun, held = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        begun.set()
        held.wait(DEADLINE)

    waiting = store._writer.call(hold)
    await until(begun.is_set)  # the next calls gather behind it
    together = asyncio.gather(
        store.append([batch("r", 2), msgspec.structs.replace(batch("x", 2), run_id="\ud800")]),
        store.create(msgspec.structs.replace(new_run("x"), run_id="\ud800")),
        store.post("r", "input", b"x"),
        return_exceptions=True,
    )
    await until(lambda: store._writer._jobs.qsize() == 3)
    held.set()
    await waiting
    (ok, refused), failed, number = await together  # type: ignore[misc]
    assert ok is None
    assert isinstance(refused, StorageError)
    assert isinstance(failed, StorageError)
    assert number == 1
    assert await numbers(store, "r") == [1, 2]


async def test_json_with_a_line_break_is_refused(store: SqliteStore) -> None:
    await created(store, "r")
    (answer,) = await store.append([batch("r", 2, private=b"{\n}")])
    assert isinstance(answer, StorageError)
    with pytest.raises(StorageError, match="one line of JSON"):
        await created(store, "s", public=b"{\n}")
    assert await store.info("s") is None


async def test_closing_waits_for_what_has_gathered(path: Path) -> None:
    store = await SqliteStore.open(path)
    await created(store, "r")
    held = threading.Event()
    waiting = store._writer.call(lambda _: held.wait(DEADLINE))
    writing = asyncio.ensure_future(store.append([batch("r", 2)]))
    closing = asyncio.ensure_future(store.close())
    await until(lambda: store._writer._closed)  # both are in the queue
    held.set()
    assert await waiting
    assert await writing == [None]
    await closing


async def test_a_closed_store_says_so(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.close()
    await store.close()
    with pytest.raises(StorageError, match="closed"):
        await store.append([batch("r", 2)])
    with pytest.raises(StorageError, match="closed"):
        await store.read("r", 0)


def test_other_callers_go_on_when_an_event_loop_has_gone(path: Path) -> None:
    store = SqliteStore(path)
    held = threading.Event()

    async def leave() -> None:
        _ = store._writer.call(lambda _: held.wait(DEADLINE))

    asyncio.run(leave())
    held.set()

    async def go_on() -> None:
        await created(store, "r")
        await store.close()

    asyncio.run(go_on())


async def test_a_long_read_holds_up_no_other(store: SqliteStore) -> None:
    held = threading.Event()
    waiting = store._reader.call(lambda _: held.wait(DEADLINE))
    await asyncio.wait_for(store.info("r"), DEADLINE)
    held.set()
    await waiting


@pytest.mark.parametrize("jobs", [1, 2], ids=["a job", "a group of jobs"])
async def test_a_job_that_fails_in_the_middle_of_a_query_keeps_no_old_state(
    store: SqliteStore, path: Path, jobs: int
) -> None:
    """With its cursor open, the connection could not write after another process has written."""
    await created(store, "r")
    await created(store, "other")

    def job(db: apsw.Connection) -> None:
        found = db.execute("select * from runs")
        raise TakesLong(f"There are many: {next(found)}")

    answers = store._writer._answers(store._writer._connection, [job] * jobs)  # as `call_now` does
    assert [type(failure) for _, failure in answers] == [TakesLong] * jobs
    execute(path, "insert into used values ('a name', 1.0)")
    await written(store, batch("r", 2))
    assert await numbers(store, "r") == [1, 2]
    del answers
