"""Opening a file: a file that cannot be opened, an old file, a file of a newer version."""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
import zlib
from pathlib import Path

import apsw
import pytest

from tailrace.core.errors import CallerError, StorageError
from tailrace.stores.dense_rows import MARK
from tailrace.stores.sqlite import schema
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.store_kit.setup import batch, created, ended, public, written
from tests.stores.sqlite.files import execute


async def test_a_file_that_cannot_be_opened_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="could not be opened"):
        await SqliteStore.open(tmp_path / "no" / "such" / "folder" / "log.db")
    with pytest.raises(StorageError, match=r"is a directory. Name a file in it: .*/tailrace.db"):
        await SqliteStore.open(tmp_path)
    other = tmp_path / "notes.txt"
    other.write_text("no database at all, but a text of some length\n" * 100)
    with pytest.raises(StorageError, match=r"could not be opened.*not a database"):
        await SqliteStore.open(other)
    assert other.read_text().startswith("no database")
    assert "tailrace-checkpoint" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("calls", [0, 1, 2, 3])
async def test_a_store_that_opens_halfway_leaves_nothing_open(
    path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    opened: list[apsw.Connection] = []

    def connect(name: str, synchronous: schema.Synchronous) -> apsw.Connection:
        if len(opened) == calls:
            raise StorageError("too many open files")
        opened.append(schema.connect(name, synchronous))
        return opened[-1]

    monkeypatch.setattr("tailrace.stores.sqlite.store.connect", connect)
    with pytest.raises(StorageError, match="too many"):
        await SqliteStore.open(path)
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"tailrace-sqlite", "tailrace-checkpoint"}
    for connection in opened:
        with pytest.raises(apsw.ConnectionClosedError):
            connection.execute("select 1")


async def test_a_file_that_stays_locked_is_one_clear_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.05)
    other = apsw.Connection(str(path))
    other.execute("begin exclusive")
    other.execute("create table x (y)")
    with pytest.raises(StorageError, match=r"could not be opened.*locked"):
        await SqliteStore.open(path)
    other.close()


@pytest.mark.parametrize(
    "url", ["sqlite:", "sqlite://", "sqlite:///", "sqlite://file.db", "sqlite:///f.db?x=1"]
)
async def test_an_url_that_names_no_file_is_one_clear_error(url: str) -> None:
    with pytest.raises(CallerError, match=re.escape(repr(url))):
        await SqliteStore.open(url)


# --- age ---------------------------------------------------------------------------------------

# The first version's tables, as they were: not taken from the product, which might change them.
VERSION_1 = """
create table runs (run_id text primary key, agent text not null, thread_id text not null,
    last_seq integer not null default 0, epoch integer not null default 1,
    created_at real not null, ended_at real);
create index runs_by_thread on runs (thread_id, created_at);
create table batches (run_id text not null, first_seq integer not null, last_seq integer not null,
    epoch integer not null, public blob not null, private blob, checksum integer not null);
create unique index batches_in_order on batches (run_id, first_seq);
create table snapshots (run_id text not null, seq integer not null, state blob not null,
    primary key (run_id, seq));
"""


def version_1(path: Path) -> None:
    """A file as the first version left it: three runs, and a run that never got its first event."""
    db = apsw.Connection(str(path))
    db.execute("pragma journal_mode = wal")
    db.execute(VERSION_1)
    for run_id, thread_id, last_seq, created_at, ended_at in (
        ("second", "t", 4, 2.0, None),
        ("first", "t", 4, 1.0, 9.0),
        ("elsewhere", "u", 4, 3.0, None),
        ("never", "t", 0, 1.5, None),
    ):
        db.execute(
            "insert into runs values (?, 'a', ?, ?, 1, ?, ?)",
            (run_id, thread_id, last_seq, created_at, ended_at),
        )
        for first, private in ((1, b"\np2"), (3, None)) if last_seq else ():
            text = b"\n".join([public(run_id, first), public(run_id, first + 1)])
            checksum = zlib.crc32(private or b"", zlib.crc32(text))
            db.execute(
                "insert into batches values (?, ?, ?, 1, ?, ?, ?)",
                (run_id, first, first + 1, text, private, checksum),
            )
    db.execute("insert into snapshots values ('first', 4, x'01')")
    db.execute("update batches set public = x'00' where run_id = 'elsewhere' and first_seq = 1")
    db.close()


async def check_migrated(store: SqliteStore) -> None:
    runs = (await store.latest_runs())[::-1]
    assert [(one.run_id, one.ordinal, one.previous_run_id) for one in runs] == [
        ("first", 1, None),
        ("second", 2, "first"),
        ("elsewhere", 1, None),
    ]
    assert (runs[0].ended_at, runs[0].attempts, runs[0].owner) == (9, 0, "")
    for run_id in ("first", "second"):
        events = await store.read(run_id, 0)
        assert [one.public for one in events] == [public(run_id, seq) for seq in range(1, 5)]
        assert await store.read_private(run_id) == {2: b"p2"}
    with pytest.raises(StorageError, match="damaged"):
        await store.read("elsewhere", 0)
    assert await store.snapshot("first") is not None
    assert (await created(store, "third")).ordinal == 3
    claims = await store.claim("w", ["a"], 60, 9)
    assert [claim.run_id for claim in claims] == ["second", "elsewhere", "third"]
    await written(store, batch("second", 5, epoch=2, ended=True))
    await store.repack("second")
    # Only the run that ended in the year 1970 is old enough.
    assert await store.expired(full_for=1e6, snapshot_for=1e12) == (["first"], [])


@pytest.mark.parametrize("user_version", [0, 1])
async def test_a_file_of_the_first_version_becomes_todays(path: Path, user_version: int) -> None:
    version_1(path)
    execute(path, f"pragma user_version = {user_version}")
    store = await SqliteStore.open(path)
    await check_migrated(store)
    await store.close()
    assert execute(path, "pragma user_version") == [(schema.VERSION,)]


@pytest.mark.parametrize("version", range(1, schema.VERSION))
async def test_a_file_left_at_any_version_becomes_todays(path: Path, version: int) -> None:
    version_1(path)
    db = apsw.Connection(str(path))
    schema.migrate(db, version)
    digest = hashlib.sha256(b"old").hexdigest()
    if version > 1:
        db.execute("insert into blobs values (?, 'text/plain', ?)", (digest, b"old"))
    db.close()
    assert execute(path, "pragma user_version") == [(version,)]
    store = await SqliteStore.open(path)
    await check_migrated(store)
    if 1 < version < 4:
        # Who uses it was never written down: it stays, also when one who uses it too is deleted.
        await store.put_blob(b"old", "text/plain", "first")
        assert await store.delete("first")
        assert await store.collect_blobs(-1) == 0
        assert await store.blob(digest) == (b"old", "text/plain")
    await store.close()
    assert execute(path, "pragma user_version") == [(schema.VERSION,)]


async def test_rows_that_older_processes_cannot_read_are_written_a_day_after_the_migration(
    path: Path,
) -> None:
    version_1(path)
    store = await SqliteStore.open(path)
    for run_id in ("soon", "later"):
        await ended_alike(store, run_id)
    events = await store.read("soon", 0), await store.read("later", 0)
    await store.repack("soon")
    assert dense_rows(path, "soon") == 0
    execute(path, "update used set until = until - 86400")
    await store.repack("later")
    assert dense_rows(path, "later") == 1
    assert (await store.read("soon", 0), await store.read("later", 0)) == events
    await store.close()


async def test_a_new_file_has_such_rows_at_once(path: Path) -> None:
    store = await SqliteStore.open(path)
    await ended_alike(store, "r")
    await store.repack("r")
    assert dense_rows(path, "r") == 1
    await store.close()


async def ended_alike(store: SqliteStore, run_id: str) -> None:
    """An ended run whose events differ in their numbers only."""
    await created(store, run_id)
    await written(store, batch(run_id, 2, 40, text="word"))
    await written(store, batch(run_id, 42, ended=True))


def dense_rows(path: Path, run_id: str) -> int:
    found = execute(path, f"select public from batches where run_id = '{run_id}' and unpacked")
    assert found
    return sum(row[0].startswith(MARK) for row in found)


async def test_processes_that_race_to_migrate_do_it_once(path: Path) -> None:
    version_1(path)
    stores = await asyncio.gather(*(SqliteStore.open(path) for _ in range(8)))
    await check_migrated(stores[0])
    for store in stores:
        await store.close()


async def test_a_migration_that_fails_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version_1(path)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS[:1], "drop table runs; oops"))
    with pytest.raises(StorageError, match="could not be opened"):
        await SqliteStore.open(path)
    assert execute(path, "pragma user_version") == [(0,)]
    assert execute(path, "select count(*) from runs") == [(4,)]
    monkeypatch.undo()
    store = await SqliteStore.open(path)
    await check_migrated(store)
    await store.close()


async def test_a_file_of_a_newer_version_is_one_clear_error(path: Path) -> None:
    store = await SqliteStore.open(path)
    await ended(store, "r")
    await store.close()
    execute(path, f"pragma user_version = {schema.VERSION + 1}")
    with pytest.raises(StorageError, match="Install a newer Tailrace"):
        await SqliteStore.open(path)
    assert execute(path, "pragma user_version") == [(schema.VERSION + 1,)]
