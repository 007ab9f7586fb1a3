"""Ended runs are read from a real replica, and from the primary where the replica lacks them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from tailrace.core.errors import CallerError
from tailrace.stores import open_store
from tailrace.stores.postgres import replica as replica_module
from tailrace.stores.postgres.pool import split_url
from tailrace.stores.postgres.store import PostgresStore
from tests.services import Postgres
from tests.stores.postgres.runs import batch, made, new


@pytest.fixture
async def store(
    postgres: Postgres, postgres_url: str, postgres_replica: Postgres
) -> AsyncIterator[PostgresStore]:
    opened = await PostgresStore.open(postgres_url, replica=postgres_replica.url)
    yield opened
    await opened.close()


async def ended(store: PostgresStore, run_id: str) -> None:
    await made(store, new(run_id, f"thread of {run_id}"))
    answers = await store.append(
        [batch(run_id, 2, 3, privates=[b'{"content":"x"}'] * 3, ended=True, snapshot=b"state")]
    )
    assert answers == [None]


async def caught_up(postgres: Postgres, replica: Postgres) -> None:
    place = postgres.sql("select pg_current_wal_lsn()")
    async with asyncio.timeout(60):
        late = f"select pg_last_wal_replay_lsn() < '{place}'"
        while await asyncio.to_thread(replica.sql, late) == "t":
            pass


@contextmanager
def standing_still(replica: Postgres) -> Iterator[None]:
    """The replica takes nothing more from the primary."""
    replica.sql("select pg_wal_replay_pause()")
    try:
        yield
    finally:
        replica.sql("select pg_wal_replay_resume()")


async def test_an_ended_run_is_read_from_the_replica_and_others_from_the_primary(
    store: PostgresStore, postgres: Postgres, postgres_url: str, postgres_replica: Postgres
) -> None:
    await ended(store, "old")
    await ended(store, "deleted")
    await made(store, new("alive", "t"))
    await caught_up(postgres, postgres_replica)
    schema = split_url(postgres_url)[1]
    with standing_still(postgres_replica):
        # What is read of `old` now is the replica's.
        postgres.sql(f"delete from {schema}.batches where run_id = 'old'")
        postgres.sql(f"delete from {schema}.snapshots where run_id = 'old'")
        assert [one.event.sequence_number for one in await store.read("old", 0)] == [1, 2, 3, 4]
        assert list(await store.read_private("old", 1)) == [2, 3, 4]
        snapshot, source = await store.snapshot("old"), await store.state_source("old")
        assert snapshot is not None
        assert source is not None
        assert (snapshot.seq, source.snapshot, source.epoch) == (4, snapshot, 1)
        # The replica has the beginning of `alive`, nothing of `new`, and `deleted` for ever.
        assert await store.append([batch("alive", 2, 2, ended=True)]) == [None]
        await ended(store, "new")
        assert len(await store.read("alive", 0)) == 3
        assert len(await store.read("new", 0)) == 4
        assert await store.delete("deleted")
        assert await store.state_source("deleted") is None
        assert await store.read("deleted", 0) == []


async def test_a_replica_that_is_away_costs_two_log_lines(
    store: PostgresStore,
    postgres: Postgres,
    postgres_replica: Postgres,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(replica_module, "PAUSE", 0.0)
    await ended(store, "old")
    await caught_up(postgres, postgres_replica)
    await asyncio.to_thread(postgres_replica.stop)
    for _ in range(2):
        assert len(await store.read("old", 0)) == 4
    await asyncio.to_thread(postgres_replica.start)
    assert len(await store.read("old", 0)) == 4
    lines = [one.getMessage() for one in caplog.records if "replica" in one.getMessage()]
    assert len(lines) == 2, lines
    assert "cannot be read, so the primary is asked" in lines[0]
    assert lines[1] == "the replica is read again"


async def test_sqlite_has_no_replica() -> None:
    with pytest.raises(CallerError, match="Leave out `database_replica`"):
        await open_store(":memory:", replica="postgresql://localhost/x")
