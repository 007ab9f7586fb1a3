"""A process that alone writes to a file sweeps the newest rows from its memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.core.errors import StorageError
from tailrace.stores.sqlite import fresh_rows
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.store_kit.setup import batch, created, numbers, written
from tests.stores.sqlite.files import execute

MOVED = "select run_id, first_seq, last_seq from batches order by 1, 2"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    made = await SqliteStore.open(path)
    for run_id in ("a", "b"):
        await created(made, run_id)
    yield made
    await made.close()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each sweep has read from the table."""
    found: list[int] = []
    gather = fresh_rows.gather

    def counted(*args: Any, **options: Any) -> fresh_rows.GatheredRows:
        rows = gather(*args, **options)
        found.append(rows.size)
        return rows

    monkeypatch.setattr(fresh_rows, "gather", counted)
    return found


async def test_the_rows_of_this_process_are_moved_without_reading_them(
    store: SqliteStore, path: Path, reads: list[int]
) -> None:
    await written(store, batch("a", 2), batch("b", 2, private=b"2"))
    await written(store, batch("a", 3), batch("b", 3, private=b"3"))
    await store._sweep()
    await written(store, batch("a", 4))
    await store._sweep()
    assert reads == []
    assert execute(path, MOVED) == [
        *(("a", 1, 1), ("a", 2, 3), ("a", 4, 4)),
        *(("b", 1, 1), ("b", 2, 3)),
    ]
    assert execute(path, "select * from fresh") == []
    assert await numbers(store, "a") == [1, 2, 3, 4]
    assert await store.read_private("b") == {2: b"2", 3: b"3"}


async def test_rows_that_an_earlier_process_left_are_moved_too(
    path: Path, reads: list[int]
) -> None:
    first = await SqliteStore.open(path)
    await created(first, "a")
    await written(first, batch("a", 2))
    await first.close()
    second = await SqliteStore.open(path)
    await written(second, batch("a", 3))
    await second._sweep()
    assert (reads, execute(path, MOVED)) == ([], [("a", 1, 1), ("a", 2, 3)])
    await second.close()


async def test_damaged_rows_that_an_earlier_process_left_stay_damaged(path: Path) -> None:
    first = await SqliteStore.open(path)
    await created(first, "a")
    await written(first, batch("a", 2))
    await written(first, batch("a", 3))
    await first.close()
    execute(path, "update fresh set public = cast('{}' as blob) where first_seq = 3")
    second = await SqliteStore.open(path)
    await second._sweep()
    with pytest.raises(StorageError, match="checksum"):
        await numbers(second, "a")
    await second.close()


async def test_rows_of_another_process_are_read_and_moved(
    store: SqliteStore, path: Path, reads: list[int]
) -> None:
    await written(store, batch("a", 2))
    other = await SqliteStore.open(path)
    await written(other, batch("b", 2))
    await store._sweep()
    assert (reads, execute(path, "select * from fresh")) == ([2], [])
    await written(store, batch("a", 3))
    await store._sweep()  # no other process has written since
    assert reads == [2]
    await written(other, batch("b", 3))
    await other._sweep()
    assert reads == [2, 1]
    assert (await numbers(store, "a"), await numbers(store, "b")) == ([1, 2, 3], [1, 2, 3])
    await other.close()


@pytest.mark.parametrize("by", ["this process", "another process"])
async def test_the_rows_of_a_deleted_run_do_not_come_back(
    store: SqliteStore, path: Path, by: str
) -> None:
    await written(store, batch("a", 2), batch("b", 2))
    other = await SqliteStore.open(path)
    if by == "this process":
        await store.delete("a")
        await written(store, batch("b", 3))
    else:  # which also writes as many rows as it deletes
        await other.delete("a")
        await written(other, batch("b", 3))
    await store._sweep()
    assert execute(path, MOVED) == [("b", 1, 1), ("b", 2, 3)]
    await other.close()


async def test_the_rows_of_a_trimmed_run_do_not_come_back(store: SqliteStore, path: Path) -> None:
    await written(store, batch("a", 2, ended=True))
    await store.trim("a", b"{}")
    await store._sweep()
    assert execute(path, MOVED) == [("b", 1, 1)]


async def test_rows_whose_commit_failed_are_not_moved(store: SqliteStore, path: Path) -> None:
    connection = store._writer._connection
    await written(store, batch("a", 2))
    connection.set_commit_hook(lambda: True)  # SQLite rolls back
    with pytest.raises(StorageError):
        await store.append([batch("b", 2)])
    connection.set_commit_hook(None)
    await store._sweep()
    assert execute(path, MOVED) == [("a", 1, 1), ("a", 2, 2), ("b", 1, 1)]
    await written(store, batch("b", 2))
    assert await numbers(store, "b") == [1, 2]
