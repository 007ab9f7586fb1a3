"""Rows of a run are joined, swept together and compressed."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from tailrace.stores.rows import JOINED_BYTES, Row
from tailrace.stores.sqlite import batches, fresh_rows
from tailrace.stores.sqlite.batches import SMALL_BYTES, pack, plan, put_pack
from tailrace.stores.sqlite.fresh_rows import gather, sweep
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.store_kit.setup import batch, created, numbers, written
from tests.stores.sqlite.files import execute


async def test_repacking_makes_few_rows(store: SqliteStore, path: Path) -> None:
    await created(store, "r")
    for seq in range(2, 60):
        await written(store, batch("r", seq))
    await written(store, batch("r", 60, 40, text="x" * 10_000, ended=True))
    await store.repack("r")
    assert execute(path, "select first_seq, last_seq from batches order by 1") == [
        (1, 59),
        (60, 99),
    ]


async def test_repacking_a_run_that_goes_on_leaves_its_newest_rows(
    store: SqliteStore, path: Path
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
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeps: list[int] = []

    def counted(db: apsw.Connection, rows: list[Row]) -> None:
        sweeps.append(len(rows))
        batches.put_all(db, rows)

    monkeypatch.setattr(fresh_rows, "put_all", counted)
    for run_id in ("a", "b"):
        await created(store, run_id)
        await written(store, batch(run_id, 2, ended=True))
    for run_id in ("a", "b"):
        await store.repack(run_id)
    assert sweeps == [2]
    rows = "select run_id, first_seq, last_seq from batches order by 1"
    assert execute(path, rows) == [("a", 1, 2), ("b", 1, 2)]


async def test_the_rows_of_a_run_that_ends_while_they_are_joined_are_joined_once(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
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
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
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
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.stores.sqlite.fresh_rows.SWEEP_ROWS", 8)
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
    again = await SqliteStore.open(path)
    assert await numbers(again, "a") == [1, 2, 3, 4, 5, 6]
    await again.close()


async def test_a_sweep_compresses_many_rows_of_a_run_in_bounded_rows(
    store: SqliteStore, path: Path
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
    store: SqliteStore, path: Path
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


async def test_a_sweep_deletes_no_row_that_was_written_while_it_gathered(
    store: SqliteStore,
) -> None:
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
    monkeypatch.setattr("tailrace.stores.sqlite.fresh_rows.SWEEP_ROWS", 1)
    store = await SqliteStore.open(path)
    await created(store, "a")
    await written(store, batch("a", 2))
    sweeping = store._sweeping
    assert sweeping is not None
    await store.close()
    await asyncio.wait([sweeping], timeout=10)
    assert store._sweeping is None
    again = await SqliteStore.open(path)
    assert await numbers(again, "a") == [1, 2]
    await again.close()


async def test_rows_that_are_written_during_a_sweep_stay_for_the_next(
    store: SqliteStore, path: Path
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
    store: SqliteStore, path: Path
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


async def test_within_so_many_events_only_the_last_snapshot_is_kept(store: SqliteStore) -> None:
    await created(store, "r")
    await written(store, batch("r", 2, 2, snapshot=b"3"), batch("r", 4, 2, snapshot=b"5"))
    await written(store, batch("r", 6, 4_090, snapshot=b"4095"))
    await written(store, batch("r", 4_096, 1, snapshot=b"4096"), batch("r", 4_097, snapshot=b"x"))
    await store.repack("r")
    kept = [await store.snapshot("r", at) for at in (4_094, 4_095, 4_096, None)]
    assert [one and one.seq for one in kept] == [None, 4_095, 4_095, 4_097]


async def test_a_compressed_row_counts_with_the_bytes_that_a_reader_holds(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
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
    store: SqliteStore, path: Path
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
    await store._writer.call(lambda db: put_pack(db, "r", early))
    assert await numbers(store, "r") == list(range(1, 15))


async def test_a_reader_is_brought_so_many_bytes_at_a_time(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.stores.sqlite.batches.READ_BYTES", 5_000)
    await created(store, "r")
    for seq in range(2, 12):
        await written(store, batch("r", seq, text="x" * 2_000))
    assert len(await store.read("r", 1)) == 3
    assert await numbers(store, "r") == list(range(1, 12))
