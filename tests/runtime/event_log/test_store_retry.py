"""Waiting for a store that is away takes a bounded time, whatever the store does meanwhile."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tailrace.core.errors import SeqConflict, StorageBusy
from tailrace.ports import Batch
from tailrace.runtime.event_log import store_retry
from tailrace.runtime.event_log.offload import BuildCache
from tailrace.runtime.event_log.outage import Outage, watched
from tailrace.runtime.event_log.store_retry import limit_of_wait, patiently, within


async def hang() -> None:
    await asyncio.Event().wait()


async def test_the_waits_of_the_store_and_of_its_caller_are_one() -> None:
    begun = time.monotonic()
    with pytest.raises(StorageBusy, match=r"did not answer within 0\.05 s"):
        await patiently(hang, 0.05)
    with within(0.05), pytest.raises(StorageBusy, match=r"within 0\.05 s"):
        await patiently(hang)
    assert time.monotonic() - begun < 30


async def test_the_waits_of_a_block_share_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait() -> None:
        await asyncio.sleep(0.01)

    async def outlive() -> float | None:
        await is_over.wait()
        await patiently(wait)
        return limit_of_wait()

    is_over = asyncio.Event()
    with within(60):
        await patiently(wait)
        assert limit_of_wait() == 60  # quick waits do not count
        monkeypatch.setattr(store_retry, "QUICK_SECONDS", 0.0)
        await patiently(lambda: patiently(wait))
        left = limit_of_wait()
        assert left is not None
        assert left <= 59.99
        await patiently(wait)
        assert limit_of_wait() <= left - 0.01  # type: ignore[operator]
        other = asyncio.create_task(outlive())
        await asyncio.sleep(0)
    is_over.set()
    assert await other == 60
    with within(60, left=0.05), pytest.raises(StorageBusy, match=r"within 0\.05 s"):
        await patiently(hang)
    with within(0.01), pytest.raises(StorageBusy):
        await patiently(hang)


async def test_a_wait_for_work_that_callers_share_counts_for_each_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_retry, "QUICK_SECONDS", 0.0)
    cache: BuildCache[set[str]] = BuildCache()

    async def make() -> set[str]:
        await asyncio.sleep(0.01)
        return {"built"}

    async def get() -> float | None:
        with within(60):
            assert await cache.get("key", make)
            return limit_of_wait()

    assert all(left is not None and left < 60 for left in await asyncio.gather(get(), get()))


async def test_callers_that_waited_for_the_store_before_still_share_large_work() -> None:
    cache: BuildCache[set[str]] = BuildCache()
    made = 0

    async def make() -> set[str]:
        nonlocal made
        made += 1
        await asyncio.sleep(0.01)
        return {"built"}

    async def get(left: float) -> set[str]:
        with within(4.0, left=left):
            return await cache.get("key", make)

    lefts = [4.0 - waited * 0.06 for waited in range(50)]
    found = await asyncio.gather(*map(get, lefts))
    assert found == [{"built"}] * 50
    assert made <= 3


async def test_a_flush_for_many_runs_does_not_count_for_the_request_that_began_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_retry, "QUICK_SECONDS", 0.0)

    class Slow:
        async def append(self, _batches: list[Batch]) -> None:
            await asyncio.sleep(0.01)

        async def info(self, _run_id: str) -> None:
            await asyncio.sleep(0.01)

    slow: Any = Slow()
    store = watched(slow, Outage(slow))
    with within(60):
        await store.append([])
        assert limit_of_wait() == 60
        await store.info("run_1")
        assert limit_of_wait() != 60


async def test_after_a_wait_in_vain_the_last_error_is_raised() -> None:
    async def fail() -> None:
        raise StorageBusy("The disk is full.")

    with pytest.raises(StorageBusy, match="The disk is full"):
        await patiently(fail, 0.1)


async def test_a_lost_race_and_a_timeout_of_the_caller_are_not_repeated() -> None:
    async def lose() -> None:
        raise SeqConflict("It has another writer.")

    with pytest.raises(SeqConflict):
        await patiently(lose)

    async def give_up() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await patiently(give_up)
