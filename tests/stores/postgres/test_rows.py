"""The rows of a run: joined, compressed, damaged, moved into partitions."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tailrace.core.errors import (
    StorageError,
)
from tailrace.ports import Trimmed
from tailrace.stores.postgres.store import PostgresStore
from tailrace.stores.rows import Row, joined
from tests.stores.postgres.runs import DEADLINE, LEASE, batch, made, new, whole


async def test_a_damaged_row_is_noticed_and_never_packed(
    store: PostgresStore, outsider: Any
) -> None:
    await made(store, new("r", private=b"{}"))
    await store.append([batch("r", 2, 2, privates=[b"{}", b""], ended=True)])
    await outsider.execute("update batches set public = public || ' ' where first_seq = 2")
    with pytest.raises(StorageError, match="damaged at event 2"):
        await store.read("r", 0)
    with pytest.raises(StorageError, match="damaged at event 2"):
        await store.repack("r")
    assert await store.read_private("r") == {1: b"{}", 2: b"{}"}
    await outsider.execute("update batches set private = private || ' ' where first_seq = 1")
    with pytest.raises(StorageError, match="damaged at event 1"):
        await store.read_private("r")


async def test_a_run_whose_rows_are_joined_is_written_meanwhile(
    store: PostgresStore, outsider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush has events of many runs: all of them would wait for the joining of one."""
    await made(store, new("r"))
    await store.append([batch("r", seq) for seq in range(2, 9)])
    (claim,) = await store.claim("w", ["a"], LEASE)
    joining, go_on = threading.Event(), threading.Event()

    def slowly(rows: list[Row], **how: bool) -> Row:
        joining.set()
        assert go_on.wait(DEADLINE)
        return joined(rows, **how)

    monkeypatch.setattr("tailrace.stores.postgres.log.joined", slowly)
    packing = asyncio.create_task(store.repack("r"))
    assert await asyncio.to_thread(joining.wait, DEADLINE)
    async with asyncio.timeout(DEADLINE):
        assert await store.append([batch("r", 9, epoch=claim.epoch)]) == [None]
        assert await store.extend("w", [("r", claim.epoch)], LEASE) == set()
        await store.repack("r")  # it is not its turn
        deleting = asyncio.create_task(store.delete("r"))
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        while not await outsider.fetchval(waiting):  # the deletion waits for the joining
            pass
    assert [one.event.sequence_number for one in await store.read("r", 0)] == list(range(1, 10))
    go_on.set()
    await packing
    assert await deleting
    assert await outsider.fetchval("select count(*) from batches") == 0


async def test_the_rows_of_an_ended_run_are_compressed_and_read_in_pieces(
    store: PostgresStore, outsider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.stores.rows.JOINED_BYTES", 5_000)
    monkeypatch.setattr("tailrace.stores.postgres.log.READ_BYTES", 5_000)
    await made(store, new("r"))
    for seq in range(2, 200):
        await store.append([batch("r", seq, ended=seq == 199, snapshot=b"%d" % seq)])
    size = "select sum(length(public)) from batches"
    before = await outsider.fetchval(size)
    events = await store.read("r", 0)
    await store.repack("r")
    assert await outsider.fetchval(size) < before / 3
    assert await outsider.fetchval("select count(*) from batches where unpacked is null") == 0
    found = await store.read("r", 0)
    assert sum(len(one.public) for one in found) < 11_000
    while len(found) < 199:
        found += await store.read("r", len(found))
    assert found[: len(events)] == events
    assert await outsider.fetch("select seq, state from snapshots") == [(199, b"199")]


async def test_ended_runs_move_into_a_partition_that_retention_drops(
    store: PostgresStore, other: PostgresStore, outsider: Any
) -> None:
    partitions = (
        "select tablename from pg_tables where schemaname = current_schema"
        " and tablename ~ '^batches_[0-9]' order by 1"
    )
    day = "2026-01-0"
    for n, ended in enumerate((1, 1, 2, 3)):
        await made(store, new(f"r{n}", f"t{n}"))
        await store.append([batch(f"r{n}", 2, 3, privates=[b"{}"] * 3, ended=True)])
        await outsider.execute(
            f"update runs set ended_at = '{day}{ended} 23:59Z' where run_id = $1", f"r{n}"
        )
    await made(store, new("alive", "t"))
    for run in ("r0", "r1", "r2", "alive"):
        before = await whole(store, run)
        await store.repack(run)
        await store.repack(run)
        assert await whole(other, run) == before
        assert len(await store.read_private(run)) == (0 if run == "alive" else 3)
    names = [name for (name,) in await outsider.fetch(partitions)]
    assert names == ["batches_20260101", "batches_20260102"]
    storage = "select attstorage from pg_attribute where attrelid = $1::regclass and attname = $2"
    for column in ("public", "private"):
        assert await outsider.fetchval(storage, names[0], column) == b"e"
    live = "select distinct run_id from batches_live order by 1"
    assert [name for (name,) in await outsider.fetch(live)] == ["alive", "r3"]
    # A retry whose answer was lost finds its events in the partition.
    again = batch("r0", 2, 3, privates=[b"{}"] * 3, ended=True)
    assert await store.append([again]) == [None]
    source = await store.state_source("r0")
    assert source is not None
    assert (len(source.events), source.epoch) == (4, 1)

    expired = await store.expired(full_for=60, snapshot_for=1e12)
    assert expired == (["r0", "r1", "r2", "r3"], [])
    await store.trim("r0", b"state")
    with pytest.raises(Trimmed):
        await store.read("r0", 0)
    await store.expired(full_for=60, snapshot_for=1e12)
    assert len(await outsider.fetch(partitions)) == 2  # r1 needs it
    assert len(await whole(store, "r1")) == 4
    await store.trim("r1", b"state")
    await store.expired(full_for=60, snapshot_for=1e12)
    assert [name for (name,) in await outsider.fetch(partitions)] == ["batches_20260102"]
    with pytest.raises(Trimmed):
        await store.read("r1", 0)
    snapshot = await store.snapshot("r1")
    assert snapshot is not None
    assert snapshot.state == b"state"
    assert await store.delete("r1")
    # A run that a person deletes is gone at once; retention leaves its rows to the drop.
    await made(store, new("r4", "t4"))
    await store.append([batch("r4", 2, ended=True)])
    await outsider.execute(f"update runs set ended_at = '{day}2 12:00Z' where run_id = 'r4'")
    await store.repack("r4")
    assert await other.delete("r4")
    count = "select count(*) from batches_20260102 where run_id = $1"
    assert await outsider.fetchval(count, "r4") == 0
    assert (await store.expired(full_for=60, snapshot_for=60))[1] == ["r0", "r2", "r3"]
    assert await store.delete("r2")
    assert await outsider.fetchval(count, "r2") > 0
    await store.expired(full_for=60, snapshot_for=60)
    assert await outsider.fetch(partitions) == []
