"""What only a file can suffer: kills, full disks, other processes, damage, age."""

from __future__ import annotations

import asyncio
import random
import subprocess
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import msgspec
import pytest

from tailrace.core.errors import SeqConflict, StorageBusy, StorageError
from tailrace.stores.rows import JOINED_BYTES
from tailrace.stores.sqlite import batches, connections, queue, schema
from tailrace.stores.sqlite import store as log_store
from tailrace.stores.sqlite.batches import SMALL_BYTES, gather, pack, plan, put_pack, sweep
from tailrace.stores.sqlite.connections import DatabaseThreads
from tailrace.stores.sqlite.store import SqliteLog
from tailrace.testing.store_kit.setup import batch, created, new_run, numbers, written
from tests import forked
from tests.forked import Forked

DEADLINE = 120.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteLog]:
    made = await SqliteLog.open(path)
    yield made
    await made.close()


def execute(path: Path, statement: str) -> list[Any]:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that waits long for a CPU would find the disk slow, and leave its jobs to threads."""
    monkeypatch.setattr(connections, "SLOW_SECONDS", 3600.0)


# --- the disk ----------------------------------------------------------------------------------


async def test_a_full_disk_is_an_error_and_leaves_no_hole(store: SqliteLog) -> None:
    await created(store, "r")
    await created(store, "other")
    pages = await store._writer.call(lambda db: int(db.pragma("page_count")))
    await store._writer.call(lambda db: db.pragma("max_page_count", pages + 3))
    for _ in range(2):
        with pytest.raises(StorageError, match="disk is full"):
            await store.append([batch("other", 2), batch("r", 2, text="x" * 100_000)])
    assert await numbers(store, "r") == await numbers(store, "other") == [1]
    await written(store, batch("r", 2))  # what still fits is written
    await store._writer.call(lambda db: db.pragma("max_page_count", 1_000_000))
    await written(store, batch("r", 3, text="x" * 100_000), batch("other", 2))
    assert await numbers(store, "r") == [1, 2, 3]


def test_a_disk_that_fails_for_a_while_leaves_no_hole(path: Path) -> None:
    done = forked.run("-m", "tests.stores.sqlite_failing_disk", path)
    assert done.stdout == "failed 3\n", done.stderr


@pytest.mark.parametrize("part", ["public", "private"])
async def test_a_damaged_row_is_noticed(store: SqliteLog, path: Path, part: str) -> None:
    await created(store, "r")
    await written(store, batch("r", 2, 2, text="n2", private=b"n2", ended=True))
    execute(path, f"update fresh set {part} = cast(replace({part}, 'n2', 'n3') as blob)")
    read = partial(store.read, "r", 1) if part == "public" else partial(store.read_private, "r")
    with pytest.raises(StorageError, match="damaged at event 2"):
        await read()
    with pytest.raises(StorageError, match="damaged"):
        await store.repack("r")
    assert execute(path, "select * from fresh") == []
    with pytest.raises(StorageError, match="damaged at event 2"):  # it got no valid checksum
        await read()


async def test_a_damaged_file_is_an_error(store: SqliteLog, path: Path) -> None:
    await created(store, "r")

    def meet_damage(_: object) -> None:
        raise apsw.CorruptError("malformed")

    with pytest.raises(StorageError, match="Restore the file from a backup"):
        await store._writer.call(meet_damage)
    assert await numbers(store, "r") == [1]


async def test_a_damaged_blob_is_noticed(store: SqliteLog, path: Path) -> None:
    digest = await store.put_blob(b"right", "text/plain")
    execute(path, "update blobs set data = x'00'")
    with pytest.raises(StorageError, match="damaged"):
        await store.blob(digest)


@pytest.mark.parametrize("quick", [0, 64], ids=["on the thread", "on the loop"])
async def test_repacking_makes_few_rows(
    store: SqliteLog, path: Path, monkeypatch: pytest.MonkeyPatch, quick: int
) -> None:
    monkeypatch.setattr(log_store, "QUICK_ROWS", quick)
    await created(store, "r")
    for seq in range(2, 60):
        await written(store, batch("r", seq))
    await written(store, batch("r", 60, 40, text="x" * 10_000, ended=True))
    await store.repack("r")
    assert execute(path, "select first_seq, last_seq from batches order by 1") == [
        (1, 59),
        (60, 99),
    ]


@pytest.mark.parametrize("quick", [0, 64], ids=["on the thread", "on the loop"])
async def test_a_batch_of_another_epoch_is_refused_and_the_rest_of_its_flush_is_written(
    store: SqliteLog, monkeypatch: pytest.MonkeyPatch, quick: int
) -> None:
    monkeypatch.setattr(log_store, "QUICK_BATCHES", quick)
    for run_id in ("a", "b"):
        await created(store, run_id)
    answers = await store.append([batch("a", 2), batch("b", 2, epoch=2)])
    assert [type(answer) for answer in answers] == [type(None), SeqConflict]
    assert (await numbers(store, "a"), await numbers(store, "b")) == ([1, 2], [1])


async def test_repacking_a_run_that_goes_on_leaves_its_newest_rows(
    store: SqliteLog, path: Path
) -> None:
    await created(store, "r")
    await written(store, batch("r", 2))
    await written(store, batch("r", 3))
    await store.repack("r")
    assert execute(path, "select first_seq from fresh") == [(2,), (3,)]
    await written(store, batch("r", 4, ended=True))
    await store.repack("r")
    assert execute(path, "select first_seq from fresh") == []
    assert execute(path, "select first_seq, last_seq from batches") == [(1, 4)]


async def test_the_rows_of_runs_that_end_together_are_swept_once(
    store: SqliteLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeps: list[int] = []

    def counted(db: apsw.Connection, pause: float = 0.0) -> batches.GatheredRows:
        found = gather(db, pause)
        sweeps.append(found.size)
        return found

    monkeypatch.setattr(batches, "gather", counted)
    for run_id in ("a", "b"):
        await created(store, run_id)
        await written(store, batch(run_id, 2, ended=True))
    for run_id in ("a", "b"):
        await store.repack(run_id)
    assert sweeps == [2]
    rows = "select run_id, first_seq, last_seq from batches order by 1"
    assert execute(path, rows) == [("a", 1, 2), ("b", 1, 2)]


async def test_the_rows_of_a_run_that_ends_while_they_are_joined_are_joined_once(
    store: SqliteLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were joined at the end are compressed: a rest would stay a row of its own."""
    await created(store, "r")
    for seq in (2, 3):
        await written(store, batch("r", seq, snapshot=b"x"))
    await store._sweep()
    thin = batches.thin_snapshots

    def ends(db: apsw.Connection, run_id: str) -> None:
        if not batches.has_ended(db, run_id):
            batches.append(db, [batch("r", 4, ended=True)], 1.0)
        thin(db, run_id)

    monkeypatch.setattr(batches, "thin_snapshots", ends)
    for _ in range(2):
        await store.repack("r")
    assert execute(path, "select first_seq, last_seq from batches") == [(1, 4)]


async def test_rows_are_not_joined_over_events_that_are_not_swept_yet(
    store: SqliteLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large row is written beside the small rows before it. Joined over them, the log would lose
    its order."""
    sweep_later = asyncio.sleep(0)  # as if the small row were written after the sweep
    monkeypatch.setattr(store, "_sweep", lambda: sweep_later)
    await created(store, "r")
    large = "x" * SMALL_BYTES
    await written(store, batch("r", 2, text=large))
    await written(store, batch("r", 3))
    await written(store, batch("r", 4, text=large))
    await written(store, batch("r", 5, text=large))
    await store.repack("r")
    rows = "select first_seq, last_seq from batches order by 1"
    assert execute(path, rows) == [(1, 2), (4, 5)]
    assert execute(path, "select first_seq from fresh") == [(3,)]
    assert await numbers(store, "r") == [1, 2, 3, 4, 5]
    monkeypatch.undo()
    await written(store, batch("r", 6))
    await store.repack("r")
    assert execute(path, rows) == [(1, 6)]
    await written(store, batch("r", 7))
    await store.repack("r")
    assert execute(path, "select first_seq from fresh") == [(7,)]
    assert await numbers(store, "r") == [1, 2, 3, 4, 5, 6, 7]


async def test_small_rows_of_many_runs_are_swept_together(
    store: SqliteLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.stores.sqlite.batches.SWEEP_ROWS", 8)
    for run_id in ("a", "b"):
        await created(store, run_id)
    large = batch("a", 4, text="x" * SMALL_BYTES)
    await written(store, batch("a", 2, private=b"2"), batch("b", 2, 3))
    await written(store, batch("a", 3), batch("b", 5))
    await written(store, large)
    await written(store, batch("a", 5), batch("b", 6, ended=True))
    order = "select first_seq from {} where run_id = 'a' order by rowid"
    assert execute(path, order.format("fresh")) == [(2,), (3,), (5,)]
    assert execute(path, order.format("batches")) == [(1,), (4,)]
    assert [one.event.sequence_number for one in await store.read("a", 1)] == [2, 3, 4, 5]
    await written(store, batch("a", 6))  # the eighth
    assert store._sweeping is not None
    await store._sweeping
    assert execute(path, "select * from fresh") == []
    rows = "select run_id, first_seq, last_seq from batches order by 1, 2"
    swept = [("a", 1, 1), ("a", 2, 3), ("a", 4, 4), ("a", 5, 6), ("b", 1, 1), ("b", 2, 6)]
    assert execute(path, rows) == swept
    assert await numbers(store, "a") == await numbers(store, "b") == [1, 2, 3, 4, 5, 6]
    assert await store.read_private("a") == {2: b"2"}
    await store.close()
    again = await SqliteLog.open(path)
    assert await numbers(again, "a") == [1, 2, 3, 4, 5, 6]
    await again.close()


async def test_a_sweep_compresses_many_rows_of_a_run_in_bounded_rows(
    store: SqliteLog, path: Path
) -> None:
    """A late client of a run that goes on reads frames; to make them for each client takes longer
    than to send them."""
    await created(store, "r")
    for seq in range(2, 302):
        await written(store, batch("r", seq, text="x" * 1_000, private=b"%d" % seq))
    await store._sweep()
    rows = execute(path, "select last_seq - first_seq, unpacked from batches order by first_seq")
    assert len(rows) == 3
    assert max(size or 0 for _, size in rows) <= JOINED_BYTES + 100 * (rows[1][0] + 1)
    assert all(size is not None for _, size in rows[1:])
    assert execute(path, "select * from fresh") == []
    assert await numbers(store, "r") == list(range(1, 302))
    assert await store.read_private("r", 299) == {300: b"300", 301: b"301"}


async def test_a_sweep_moves_no_row_that_another_sweep_or_a_deletion_took(
    store: SqliteLog, path: Path
) -> None:
    for run_id in ("a", "b", "c"):
        await created(store, run_id)
    await written(store, batch("a", 2), batch("b", 2), batch("c", 2))
    early = await store._reader.call(gather)
    await store.delete("b")
    await written(store, batch("a", 3))
    await store._writer.call(partial(sweep, found=early))
    rows = "select run_id, first_seq, last_seq from batches order by 1, 2"
    assert execute(path, rows) == [("a", 1, 1), ("a", 2, 3), ("c", 1, 1), ("c", 2, 2)]
    await written(store, batch("a", 4), batch("c", 3))  # in the places of the first rows
    await written(store, batch("a", 5))
    await store._writer.call(partial(sweep, found=early))
    swept = [("a", 1, 1), ("a", 2, 3), ("a", 4, 5), ("c", 1, 1), ("c", 2, 2), ("c", 3, 3)]
    assert execute(path, rows) == swept
    assert execute(path, "select * from fresh") == []


async def test_a_sweep_deletes_no_row_that_was_written_while_it_gathered(store: SqliteLog) -> None:
    for run_id in ("a", "b"):
        await created(store, run_id)
    await written(store, batch("a", 2), batch("b", 2))
    writer = store._writer._connection

    class Racing:
        """A row is deleted and another is written before the second statement."""

        statements = 0

        def execute(self, *query: Any) -> Any:
            self.statements += 1
            if self.statements == 2:
                writer.execute("delete from fresh where run_id = 'b'")
                batches.append(writer, [batch("a", 3)], 1.0)
            return Fetched(store._reader._connection.execute(*query).fetchall())

    racing: Any = Racing()
    sweep(writer, gather(racing))
    assert await numbers(store, "a") == [1, 2, 3]


class Fetched(list[Any]):
    """The rows of a finished statement."""

    def fetchone(self) -> Any:
        return self[0] if self else None


async def test_a_store_that_is_closed_during_a_sweep_keeps_the_rows(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.stores.sqlite.batches.SWEEP_ROWS", 1)
    store = await SqliteLog.open(path)
    await created(store, "a")
    await written(store, batch("a", 2))
    sweeping = store._sweeping
    assert sweeping is not None
    await store.close()
    await asyncio.wait([sweeping], timeout=10)
    assert store._sweeping is None
    again = await SqliteLog.open(path)
    assert await numbers(again, "a") == [1, 2]
    await again.close()


async def test_rows_that_are_written_during_a_sweep_stay_for_the_next(
    store: SqliteLog, path: Path
) -> None:
    await created(store, "a")
    await written(store, batch("a", 2))
    early = await store._reader.call(gather)
    await written(store, batch("a", 3))
    await store._writer.call(partial(sweep, found=early))
    assert execute(path, "select first_seq from fresh") == [(3,)]
    await store._writer.call(partial(sweep, found=await store._reader.call(gather)))
    assert execute(path, "select first_seq from batches order by 1") == [(1,), (2,), (3,)]
    assert await numbers(store, "a") == [1, 2, 3]


async def test_large_rows_and_those_of_an_ended_run_are_compressed_once(
    store: SqliteLog, path: Path
) -> None:
    await created(store, "r")
    await written(store, batch("r", 2, 500))
    size = "select sum(length(public)), count(*), count(unpacked) from batches"
    before = execute(path, size)[0][0]
    await store.repack("r")
    assert execute(path, size)[0][2] == 0  # it goes on, and more rows can be joined
    await written(store, batch("r", 502, 500, text="x" * 100))
    await store.repack("r")
    assert execute(path, size)[0][1:] == (1, 1)
    await written(store, batch("r", 1_002, 500, ended=True))
    await store.repack("r")
    after, rows, packed = execute(path, size)[0]
    assert (rows, packed) == (2, 2)
    assert await numbers(store, "r") == list(range(1, 1_502))
    assert after < before / 5
    assert await store._reader.call(lambda db: plan(db, "r", ended=False)) == []


async def test_within_so_many_events_only_the_last_snapshot_is_kept(store: SqliteLog) -> None:
    await created(store, "r")
    await written(store, batch("r", 2, 2, snapshot=b"3"), batch("r", 4, 2, snapshot=b"5"))
    await written(store, batch("r", 6, 4_090, snapshot=b"4095"))
    await written(store, batch("r", 4_096, 1, snapshot=b"4096"), batch("r", 4_097, snapshot=b"x"))
    await store.repack("r")
    kept = [await store.snapshot("r", at) for at in (4_094, 4_095, 4_096, None)]
    assert [one and one.seq for one in kept] == [None, 4_095, 4_095, 4_097]


async def test_a_compressed_row_counts_with_the_bytes_that_a_reader_holds(
    store: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.stores.rows.JOINED_BYTES", 5_000)
    monkeypatch.setattr("tailrace.stores.sqlite.batches.READ_BYTES", 5_000)
    await created(store, "r")
    for seq in range(2, 12):
        await written(store, batch("r", seq, text="x" * 2_000, ended=seq == 11))
    await store.repack("r")
    assert len(await store.read("r", 1)) < 5
    assert await numbers(store, "r") == list(range(1, 12))


async def test_rows_that_another_process_has_joined_further_are_left_alone(
    store: SqliteLog, path: Path
) -> None:
    """Both looked at the run before the other one wrote; the later look saw more of it."""
    await created(store, "r")
    for seq in range(2, 10):
        await written(store, batch("r", seq))
    await store._sweep()
    (place,) = await store._reader.call(lambda db: plan(db, "r", ended=False))
    early = await store._reader.call(lambda db: pack(db, "r", *place, ended=False))
    assert early is not None
    await written(store, batch("r", 10, 5))
    await store._sweep()
    await store.repack("r")
    await store._writer.call(lambda db: put_pack(db, early))
    assert await numbers(store, "r") == list(range(1, 15))


async def test_a_reader_is_brought_so_many_bytes_at_a_time(
    store: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.stores.sqlite.batches.READ_BYTES", 5_000)
    await created(store, "r")
    for seq in range(2, 12):
        await written(store, batch("r", seq, text="x" * 2_000))
    assert len(await store.read("r", 1)) == 3
    assert await numbers(store, "r") == list(range(1, 12))


# --- the WAL -----------------------------------------------------------------------------------


def size(path: Path) -> int:
    return path.stat().st_size


async def fill(store: SqliteLog, megabytes: int) -> None:
    for _ in range(megabytes * 4):
        await store.put_blob(random.randbytes(250_000), "application/octet-stream")


async def test_the_wal_is_carried_over_beside_the_writer(store: SqliteLog, path: Path) -> None:
    every = await store._writer.call(lambda db: db.pragma("wal_autocheckpoint"))
    assert every == 0
    before = size(path)
    await fill(store, 8)
    async with asyncio.timeout(DEADLINE):
        while size(path) < before + 4_000_000:
            await fill(store, 1)
    assert store._checkpointer is not None
    assert store._checkpointer.restarts == 0


async def test_a_wal_that_grows_too_large_starts_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WAL_LIMIT", 6_000_000)
    store = await SqliteLog.open(path)
    # A reader that stays keeps the WAL from starting again by itself.
    reader = apsw.Connection(str(path))
    reader.execute("begin")
    reader.execute("select * from runs").fetchall()
    await fill(store, 8)
    wal = path.with_name("log.db-wal")
    assert size(wal) > 6_000_000
    reader.close()
    assert store._checkpointer is not None
    async with asyncio.timeout(DEADLINE):
        while not store._checkpointer.restarts:
            await fill(store, 1)
    grown = size(wal)
    await fill(store, 6)
    assert size(wal) < grown + 12_000_000
    await created(store, "r")
    assert await numbers(store, "r") == [1]
    await store.close()


@pytest.mark.parametrize("failure", [apsw.BusyError("busy"), apsw.IOError("no disk")])
async def test_writers_go_on_after_a_checkpoint_that_fails(
    store: SqliteLog,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
) -> None:
    failed = threading.Event()

    def fail(_: object) -> None:
        failed.set()
        raise failure

    monkeypatch.setattr(connections.Checkpointer, "_checkpoint", fail)
    await fill(store, 6)
    assert await asyncio.to_thread(failed.wait, DEADLINE)
    monkeypatch.undo()
    before = size(path)
    async with asyncio.timeout(DEADLINE):
        while size(path) == before:
            await fill(store, 1)
    assert bool(caplog.records) == isinstance(failure, apsw.IOError)


@pytest.mark.parametrize(
    ("query", "level"), [("", 1), ("?synchronous=normal", 1), ("?synchronous=full", 2)]
)
async def test_how_much_a_power_cut_may_take_is_chosen(path: Path, query: str, level: int) -> None:
    store = await SqliteLog.open(f"sqlite:///{path}{query}")
    assert await store._writer.call(lambda db: db.pragma("synchronous")) == level
    await store.close()


# --- other processes ---------------------------------------------------------------------------


def writer(path: Path, run_id: str, count: int) -> Forked:
    command = ("-m", "tests.stores.sqlite_writer", path, run_id, str(count))
    return Forked(*command, stdout=subprocess.PIPE)


async def test_several_processes_write_one_file(path: Path) -> None:
    processes = [writer(path, f"r{n}", 100) for n in range(3)]  # they also race to make it
    for process in processes:
        assert process.stdout is not None
        await asyncio.to_thread(process.stdout.read)
        assert process.wait() == 0
        process.close()
    store = await SqliteLog.open(path)
    for n in range(3):
        assert await numbers(store, f"r{n}") == list(range(1, 302))
    await store.close()


async def test_a_killed_writer_leaves_a_dense_log_with_all_that_was_acknowledged(
    path: Path,
) -> None:
    chance = random.Random(3)
    reported = 1
    for _ in range(8):
        with writer(path, "r", 100_000) as process:
            assert process.stdout is not None
            for _ in range(chance.randrange(1, 40)):
                reported = int(await asyncio.to_thread(process.stdout.readline))
            await asyncio.sleep(chance.random() * 0.01)
            process.kill()
            reported = int(([str(reported), *process.stdout.read().split()])[-1])
        store = await SqliteLog.open(path)
        found = await numbers(store, "r")
        assert found == list(range(1, len(found) + 1))
        assert len(found) >= reported
        assert (len(found) - 1) % 3 == 0  # whole batches
        assert len(await store.read_private("r")) == len(found) - 1
        info = await store.info("r")
        assert info is not None
        assert info.last_seq == len(found)
        await store.close()


async def test_a_file_that_stays_busy_is_one_clear_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.05)
    store = await SqliteLog.open(path)
    await created(store, "r")
    other = apsw.Connection(str(path))
    other.execute("begin immediate")
    with pytest.raises(StorageBusy, match=r"busy.*try again"):
        await store.append([batch("r", 2)])
    assert await numbers(store, "r") == [1]  # readers go on
    other.execute("rollback")
    await written(store, batch("r", 2))
    other.close()
    await store.close()


@pytest.mark.usefixtures("quick_disk")
async def test_a_small_flush_is_committed_without_a_change_of_threads(store: SqliteLog) -> None:
    await created(store, "r")
    with pytest.raises(StopIteration):  # it never waits
        store.append([batch("r", 2)]).send(None)
    assert await numbers(store, "r") == [1, 2]
    with pytest.raises(StopIteration):
        store.append([batch("r", 3, ended=True, snapshot=b"state")]).send(None)
    assert await numbers(store, "r") == [1, 2, 3]


@pytest.mark.usefixtures("quick_disk")
async def test_a_run_is_created_and_claimed_without_a_change_of_threads(store: SqliteLog) -> None:
    with pytest.raises(StopIteration) as found:
        store.create(new_run("r")).send(None)
    assert found.value.value.run_id == "r"
    with pytest.raises(StopIteration) as found:
        store.claim("w", ["a"], 60).send(None)
    assert [claim.run_id for claim in found.value.value] == ["r"]


@pytest.mark.parametrize("reason", ["large input", "many owners", "many lost runs"])
async def test_a_long_create_or_claim_leaves_the_event_loop_free(
    store: SqliteLog, monkeypatch: pytest.MonkeyPatch, reason: str
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
async def test_a_short_read_needs_no_change_of_threads(store: SqliteLog) -> None:
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
    store: SqliteLog, monkeypatch: pytest.MonkeyPatch, how: str
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
    store = await SqliteLog.open(path, synchronous="full" if reason == "full" else "normal")
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
    store: SqliteLog, path: Path, monkeypatch: pytest.MonkeyPatch
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
    # To gather the newest rows, move them, and compress.
    assert len(changes) == 3
    assert execute(path, "select count(*), joined from batches join runs") == [(1, 1)]


async def test_no_statement_is_compiled_again_for_each_run(store: SqliteLog) -> None:
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


async def test_a_lease_of_another_boot_has_ended(path: Path) -> None:
    before = SqliteLog(path, boot_id="before", boot_time=lambda: 1e9)
    await created(before, "r")
    assert len(await before.claim("w", ["a"], 60)) == 1
    assert await before.claim("w", ["a"], 60) == []
    await before.close()
    after = SqliteLog(path, boot_id="after", boot_time=lambda: 5.0)
    (claim,) = await after.claim("w", ["a"], 60)
    assert claim.attempt == 2
    await after.close()


async def test_a_lease_without_a_boot_id_is_compared_with_the_clock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "_BOOT_ID", Path("/nowhere"))
    monkeypatch.delattr("time.CLOCK_BOOTTIME", raising=False)
    store = await SqliteLog.open(path)
    await created(store, "r")
    assert len(await store.claim("w", ["a"], 60)) == 1
    assert await store.claim("w", ["a"], 60) == []
    await store.close()


# --- threads -----------------------------------------------------------------------------------


async def test_a_call_that_fails_takes_no_other_with_it(store: SqliteLog) -> None:
    await created(store, "r")
    held = threading.Event()
    waiting = store._writer.call(lambda _: held.wait(DEADLINE))  # the next calls gather behind it
    together = asyncio.gather(
        store.append([batch("r", 2), msgspec.structs.replace(batch("x", 2), run_id="\ud800")]),
        store.create(msgspec.structs.replace(new_run("x"), run_id="\ud800")),
        store.post("r", "input", b"x"),
        return_exceptions=True,
    )
    await asyncio.sleep(0.05)
    held.set()
    await waiting
    (ok, refused), failed, number = await together  # type: ignore[misc]
    assert ok is None
    assert isinstance(refused, StorageError)
    assert isinstance(failed, StorageError)
    assert number == 1
    assert await numbers(store, "r") == [1, 2]


async def test_json_with_a_line_break_is_refused(store: SqliteLog) -> None:
    await created(store, "r")
    (answer,) = await store.append([batch("r", 2, private=b"{\n}")])
    assert isinstance(answer, StorageError)
    with pytest.raises(StorageError, match="one line of JSON"):
        await created(store, "s", public=b"{\n}")
    assert await store.info("s") is None


async def test_closing_waits_for_what_has_gathered(path: Path) -> None:
    store = await SqliteLog.open(path)
    await created(store, "r")
    held = threading.Event()
    waiting = store._writer.call(lambda _: held.wait(DEADLINE))
    writing = asyncio.ensure_future(store.append([batch("r", 2)]))
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0.05)  # all of them are in the queue
    held.set()
    assert await waiting
    assert await writing == [None]
    await closing


async def test_a_closed_store_says_so(path: Path) -> None:
    store = await SqliteLog.open(path)
    await store.close()
    await store.close()
    with pytest.raises(StorageError, match="closed"):
        await store.append([batch("r", 2)])
    with pytest.raises(StorageError, match="closed"):
        await store.read("r", 0)


def test_other_callers_go_on_when_an_event_loop_has_gone(path: Path) -> None:
    store = SqliteLog(path)
    held = threading.Event()

    async def leave() -> None:
        _ = store._writer.call(lambda _: held.wait(DEADLINE))

    asyncio.run(leave())
    held.set()

    async def go_on() -> None:
        await created(store, "r")
        await store.close()

    asyncio.run(go_on())


async def test_a_long_read_holds_up_no_other(store: SqliteLog) -> None:
    held = threading.Event()
    waiting = store._reader.call(lambda _: held.wait(DEADLINE))
    await asyncio.wait_for(store.info("r"), DEADLINE)
    held.set()
    await waiting
