"""The write-ahead log: carried over beside the writer, bounded, and as durable as was chosen."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path

import apsw
import pytest

from tailrace.stores.sqlite import connections
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.store_kit.setup import created, numbers
from tests.stores.sqlite.files import DEADLINE


def size(path: Path) -> int:
    return path.stat().st_size


async def fill(store: SqliteStore, megabytes: int) -> None:
    for _ in range(megabytes * 4):
        await store.put_blob(random.randbytes(250_000), "application/octet-stream")


async def test_the_wal_is_carried_over_beside_the_writer(store: SqliteStore, path: Path) -> None:
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
    store = await SqliteStore.open(path)
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
    store: SqliteStore,
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
    store = await SqliteStore.open(f"sqlite:///{path}{query}")
    assert await store._writer.call(lambda db: db.pragma("synchronous")) == level
    await store.close()
