"""Full and failing disks, damaged files, rows and blobs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import apsw
import pytest

from tailrace.core.errors import StorageError
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.store_kit.setup import batch, created, numbers, written
from tests import forked
from tests.stores.sqlite.files import execute


async def test_a_full_disk_is_an_error_and_leaves_no_hole(store: SqliteStore) -> None:
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
    done = forked.run("-m", "tests.stores.sqlite.failing_disk", path)
    assert done.stdout == "failed 3\n", done.stderr


@pytest.mark.parametrize("part", ["public", "private"])
async def test_a_damaged_row_is_noticed(store: SqliteStore, path: Path, part: str) -> None:
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


async def test_a_damaged_file_is_an_error(store: SqliteStore, path: Path) -> None:
    await created(store, "r")

    def meet_damage(_: object) -> None:
        raise apsw.CorruptError("malformed")

    with pytest.raises(StorageError, match="Restore the file from a backup"):
        await store._writer.call(meet_damage)
    assert await numbers(store, "r") == [1]


async def test_a_damaged_blob_is_noticed(store: SqliteStore, path: Path) -> None:
    digest = await store.put_blob(b"right", "text/plain")
    execute(path, "update blobs set data = x'00'")
    with pytest.raises(StorageError, match="damaged"):
        await store.blob(digest)
