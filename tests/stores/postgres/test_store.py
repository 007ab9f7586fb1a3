"""PostgreSQL keeps what `Store` promises, and what only this store has to care for."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
from typing import Any

import msgspec
import pytest

from tailrace.core.errors import (
    InvalidValue,
    StorageError,
)
from tailrace.ports import Store
from tailrace.stores.postgres.pool import _prepare
from tailrace.stores.postgres.schema import in_schema
from tailrace.stores.postgres.sql import CLAIM
from tailrace.stores.postgres.store import PostgresStore
from tailrace.testing.store_kit import EventLogKit, OpenStore
from tailrace.testing.waiting import until
from tests.stores.postgres.runs import batch, made, new


class TestPostgres(EventLogKit):
    @pytest.fixture
    def opener(self, postgres_url: str) -> OpenStore:
        async def opened() -> Store:
            return await PostgresStore.open(postgres_url)

        return opened


async def test_a_claim_does_not_step_over_the_runs_that_are_held(
    store: PostgresStore, outsider: Any
) -> None:
    await asyncio.gather(
        *(made(store, new(f"h{n}", f"t{n}", owner=f"o{n % 9}")) for n in range(200))
    )
    assert len(await store.claim("w", ["a"], 0.4, 200)) == 200
    assert not await store.extend("w", [(f"h{n}", 2) for n in range(200)], 60)
    await asyncio.sleep(0.4)  # a lease without the extension would have ended
    for n in range(4):
        await made(store, new(f"f{n}", owner="o1"))
    await _prepare(outsider)
    values: Any = ("v", ["a"], 60.0, 3, b"", [], 9, True)
    plan = await outsider.fetchval(
        "explain (analyze, format json) " + in_schema(CLAIM, store._schema), *values
    )
    read = 0

    def add(node: dict[str, Any]) -> None:
        nonlocal read
        if "Scan" in node["Node Type"] and node.get("Relation Name") == "runs":
            stepped = node.get("Rows Removed by Filter", 0)
            stepped += node.get("Rows Removed by Index Recheck", 0)
            read += round((node["Actual Rows"] + stepped) * node["Actual Loops"])
        for child in node.get("Plans", ()):
            add(child)

    add(json.loads(plan)[0]["Plan"])
    assert 3 <= read < 30


async def test_a_blob_that_gets_a_new_run_while_its_last_run_is_deleted_is_kept(
    store: PostgresStore, outsider: Any
) -> None:
    """The deletion waits for the new use, and must see it although it began before."""
    for run_id in ("old", "new"):
        await made(store, new(run_id, thread_id=run_id))
    sha256 = await store.put_blob(b"bytes", "text/plain", "old")
    async with outsider.transaction():
        await outsider.execute("update blobs set unused_since = null")
        await outsider.execute("insert into blob_uses values ('new', $1)", sha256)
        deletion = asyncio.ensure_future(store.delete("old"))
        waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock'"
        await until(lambda: outsider.fetchval(waiting))
    assert await deletion
    assert await store.collect_blobs(-1) == 0
    assert await store.delete("new")
    assert await store.collect_blobs(-1) == 1


async def test_a_damaged_blob_is_noticed(store: PostgresStore, outsider: Any) -> None:
    sha256 = await store.put_blob(b"bytes", "text/plain")
    await outsider.execute("update blobs set data = 'other'")
    with pytest.raises(StorageError, match="damaged"):
        await store.blob(sha256)


@pytest.mark.parametrize("unfit", ["a\x00b", "a\ud800b"])
async def test_text_that_the_database_cannot_hold_is_the_callers_mistake(
    store: PostgresStore, unfit: str
) -> None:
    with pytest.raises(InvalidValue):
        await store.create(msgspec.structs.replace(new("r"), thread_id=unfit))
    assert await store.info("r") is None


async def test_a_failing_statement_is_a_storage_error(store: PostgresStore, outsider: Any) -> None:
    await made(store, new("r"))
    await outsider.execute("drop table letters")
    with pytest.raises(StorageError, match="reports an error"):
        await store.post("r", "cancel", b"")


async def test_a_caller_that_leaves_at_any_step_leaves_no_future_behind(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """While it connects, and while it asks."""
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: reported.append(what))
    store = await PostgresStore.open(postgres_url)
    for steps in range(40):
        store._pool._drop_idle()
        asking = asyncio.ensure_future(store.info("r"))
        for _ in range(steps):
            # Some steps wait for the server: a turn of the loop that looks at the sockets.
            await asyncio.sleep(0.0005 * (steps % 2))
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
    await store.close()
    gc.collect()
    await asyncio.sleep(0)
    assert reported == []
    assert [one for one in caplog.records if one.name == "asyncio"] == []


async def test_appends_that_are_not_awaited_are_written_in_their_order(
    store: PostgresStore,
) -> None:
    await made(store, new("r"))
    answers = await asyncio.gather(*(store.append([batch("r", seq)]) for seq in range(2, 60)))
    assert answers == [[None]] * 58


async def test_a_closed_store_says_so(postgres_url: str) -> None:
    store = await PostgresStore.open(postgres_url)
    await store.close()
    await store.close()
    with pytest.raises(StorageError, match="closed"):
        await store.info("r")
