"""Several processes, killed processes and those of another boot, on one file."""

from __future__ import annotations

import asyncio
import random
import subprocess
from pathlib import Path

import apsw
import pytest

from tailrace.core.errors import SeqConflict, StorageBusy
from tailrace.stores.sqlite import queue, schema
from tailrace.stores.sqlite import store as log_store
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.store_kit.setup import batch, created, numbers, written
from tests.forked import Forked


def writer(path: Path, run_id: str, count: int) -> Forked:
    command = ("-m", "tests.stores.sqlite.writer", path, run_id, str(count))
    return Forked(*command, stdout=subprocess.PIPE)


async def test_several_processes_write_one_file(path: Path) -> None:
    processes = [writer(path, f"r{n}", 100) for n in range(3)]  # they also race to make it
    for process in processes:
        assert process.stdout is not None
        await asyncio.to_thread(process.stdout.read)
        assert process.wait() == 0
        process.close()
    store = await SqliteStore.open(path)
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
        store = await SqliteStore.open(path)
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
    store = await SqliteStore.open(path)
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


@pytest.mark.parametrize("quick", [0, 64], ids=["on the thread", "on the loop"])
async def test_a_batch_of_another_epoch_is_refused_and_the_rest_of_its_flush_is_written(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, quick: int
) -> None:
    monkeypatch.setattr(log_store, "QUICK_BATCHES", quick)
    for run_id in ("a", "b"):
        await created(store, run_id)
    answers = await store.append([batch("a", 2), batch("b", 2, epoch=2)])
    assert [type(answer) for answer in answers] == [type(None), SeqConflict]
    assert (await numbers(store, "a"), await numbers(store, "b")) == ([1, 2], [1])


async def test_a_lease_of_another_boot_has_ended(path: Path) -> None:
    before = SqliteStore(path, boot_id="before", boot_time=lambda: 1e9)
    await created(before, "r")
    assert len(await before.claim("w", ["a"], 60)) == 1
    assert await before.claim("w", ["a"], 60) == []
    await before.close()
    after = SqliteStore(path, boot_id="after", boot_time=lambda: 5.0)
    (claim,) = await after.claim("w", ["a"], 60)
    assert claim.attempt == 2
    await after.close()


async def test_a_lease_without_a_boot_id_is_compared_with_the_clock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "_BOOT_ID", Path("/nowhere"))
    monkeypatch.delattr("time.CLOCK_BOOTTIME", raising=False)
    store = await SqliteStore.open(path)
    await created(store, "r")
    assert len(await store.claim("w", ["a"], 60)) == 1
    assert await store.claim("w", ["a"], 60) == []
    await store.close()
