"""Opening a database: errors that say what to do, schemas, migrations."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import zlib
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest

from tailrace.core.errors import (
    CallerError,
    StorageError,
)
from tailrace.stores.dense_rows import MARK
from tailrace.stores.postgres.pool import split_url
from tailrace.stores.postgres.schema import MIGRATIONS, migrate
from tailrace.stores.postgres.store import PostgresStore
from tailrace.testing.store_kit.setup import batch as kit_batch
from tailrace.testing.store_kit.setup import written
from tests.services import Postgres
from tests.stores.postgres.runs import event, made, new, whole


async def test_an_unreachable_server_is_one_sentence_that_says_what_to_start() -> None:
    with pytest.raises(StorageError) as caught:
        await PostgresStore.open("postgresql://me:hunter2@127.0.0.1:1/db")
    assert "PostgreSQL at 127.0.0.1:1/db cannot be reached" in str(caught.value)
    assert "Start it" in str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_a_database_that_is_not_there_is_named(postgres: Postgres) -> None:
    with pytest.raises(StorageError, match="createdb nowhere"):
        await PostgresStore.open(postgres.url.removesuffix("/postgres") + "/nowhere")


async def test_a_missing_driver_is_one_sentence_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(StorageError, match=r"pip install 'tailrace\[postgres\]'"):
        await PostgresStore.open("postgresql://localhost/db")


@pytest.mark.parametrize(
    "url",
    ["mysql://localhost/db", "postgresql://localhost:port/db", "postgresql://h/db?schema=a;drop"],
)
async def test_a_bad_url_is_the_callers_mistake(url: str) -> None:
    with pytest.raises(CallerError):
        await PostgresStore.open(url)


async def test_the_error_of_a_user_without_rights_names_the_missing_ones(
    postgres: Postgres,
) -> None:
    database = postgres.database()
    postgres.sql("create role guest login")
    url = database.replace("postgres@", "guest@")
    with pytest.raises(StorageError, match="Grant CREATE"):
        await PostgresStore.open(url)
    postgres.sql("create schema guests authorization guest", database)
    store = await PostgresStore.open(f"{url}?schema=guests")
    await made(store, new("r"))
    await store.close()
    with pytest.raises(StorageError, match="refuses the login"):
        await PostgresStore.open(database.replace("postgres@", "stranger@"))


async def test_two_schemas_of_one_database_know_nothing_of_each_other(postgres: Postgres) -> None:
    database = postgres.database()
    one = await PostgresStore.open(database)
    two = await PostgresStore.open(f"{database}?schema=one", schema="two")
    await made(one, new("r"))
    assert await two.info("r") is None
    assert postgres.sql("select schemaname from pg_tables where tablename = 'runs'", database) == (
        "tailrace\ntwo"
    )
    assert (await made(two, new("r"))).ordinal == 1
    await one.close()
    await two.close()


async def test_processes_that_start_at_once_make_the_tables_once(postgres_url: str) -> None:
    stores = await asyncio.gather(*(PostgresStore.open(postgres_url) for _ in range(12)))
    await made(stores[0], new("r"))
    assert all([await store.info("r") for store in stores])
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_database_of_a_newer_version_is_left_alone(
    store: PostgresStore, outsider: Any, postgres_url: str
) -> None:
    await outsider.execute("update version set version = 99")
    with pytest.raises(StorageError, match=r"version 99; .* Install a newer Tailrace"):
        await PostgresStore.open(postgres_url)
    assert await outsider.fetchval("select version from version") == 99


@pytest.mark.parametrize("known", range(len(MIGRATIONS) + 1))
async def test_a_database_left_at_any_version_goes_on_to_the_newest(
    outsider: Any, known: int
) -> None:
    schema = f"left_at_{known}"
    following = (*MIGRATIONS, "create table @more (id int)", "alter table @more add name text")
    if known:
        await migrate(outsider, schema, MIGRATIONS[:known])
    await migrate(outsider, schema, following)
    await migrate(outsider, schema, following)
    await outsider.execute(f"insert into {schema}.more values (1, 'one')")
    assert await outsider.fetchval(f"select version from {schema}.version") == len(following)


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
async def test_what_an_older_version_wrote_is_there_in_todays(
    postgres: Postgres, version: int
) -> None:
    url = postgres.schema()
    plain, schema = split_url(url)
    connection = await asyncpg.connect(plain, server_settings={"search_path": schema or ""})
    await migrate(connection, schema or "", MIGRATIONS[:version])
    first = event("r", 1)
    await connection.execute(
        "insert into runs (run_id, agent, thread_id, owner, ordinal, metadata, last_seq,"
        " created_token, ended_at) values ('r', 'a', 't', '', 1, '', 1, '', 'epoch')"
    )
    await connection.execute(
        "insert into batches (run_id, first_seq, last_seq, epoch, public, public_checksum)"
        " values ('r', 1, 1, 1, $1, $2)",
        first,
        zlib.crc32(first),
    )
    digest = hashlib.sha256(b"old").hexdigest()
    await connection.execute("insert into blobs values ($1, 'text/plain', 'old')", digest)
    await connection.close()
    store = await PostgresStore.open(url)
    assert [one.public for one in await store.read("r", 0)] == [first]
    assert await store.expired(full_for=1e6, snapshot_for=1e12) == (["r"], [])
    if version < 3:
        # Who uses it was never written down: it stays, also when one who uses it too is deleted.
        await store.put_blob(b"old", "text/plain", "r")
        assert await store.delete("r")
        assert await store.collect_blobs(-1) == 0
    assert await store.blob(digest) == (b"old", "text/plain")
    await store.close()


async def test_rows_that_older_processes_cannot_read_are_written_a_day_after_the_migration(
    postgres: Postgres,
) -> None:
    url = postgres.schema()
    plain, schema = split_url(url)
    connection = await asyncpg.connect(plain, server_settings={"search_path": schema or ""})
    await migrate(connection, schema or "", MIGRATIONS[:12])
    await connection.execute(
        "insert into runs (run_id, agent, thread_id, owner, ordinal, metadata, last_seq,"
        " created_token, ended_at) values ('old', 'a', 'old', '', 1, '', 1, '', 'epoch')"
    )
    store = await PostgresStore.open(url)

    async def dense_rows(run_id: str) -> list[bool]:
        await made(store, new(run_id))
        await written(store, kit_batch(run_id, 2, 40, text="word"))
        await written(store, kit_batch(run_id, 42, ended=True))
        before = await whole(store, run_id)
        await store.repack(run_id)
        assert await whole(store, run_id) == before
        query = "select public from batches where run_id = $1 and unpacked is not null"
        found = await connection.fetch(query, run_id)
        return [public.startswith(MARK) for (public,) in found]

    assert await dense_rows("soon") == [False]
    await connection.execute("update used set until = until - interval '1 day'")
    assert await dense_rows("later") == [True]
    await store.close()
    await connection.close()


async def test_a_migration_that_fails_leaves_the_version_before(outsider: Any) -> None:
    with pytest.raises(asyncpg.PostgresError):
        await migrate(outsider, "other", (*MIGRATIONS, "create table @more (", "never"))
    assert await outsider.fetchval("select to_regclass('other.version')") is None
