"""What several callers want at the same time is built once, and beside the event loop."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from tailrace.runtime.event_log.offload import LARGE_BYTES, BuildCache, SharedBytes, build
from tailrace.runtime.event_log.store_retry import within


async def test_what_is_large_is_built_beside_the_event_loop() -> None:
    here = threading.get_ident()
    assert await build(LARGE_BYTES, threading.get_ident) == here
    assert await build(LARGE_BYTES + 1, threading.get_ident) != here


async def test_callers_at_the_same_time_share_what_is_built_once() -> None:
    kept, go, made = BuildCache[SharedBytes](), asyncio.Event(), 0

    async def make() -> SharedBytes:
        nonlocal made
        made += 1
        await go.wait()
        return SharedBytes([b"abc", b"d"])

    leaving, *callers = [asyncio.ensure_future(kept.get("a", make)) for _ in range(3)]
    await asyncio.sleep(0)
    leaving.cancel()
    go.set()
    first, second = await asyncio.gather(*callers)
    assert first is second is await kept.get("a", make)
    assert first.size == 4
    assert made == 1
    await kept.get("b", make)
    assert made == 2
    del first, second, callers, leaving
    gc.collect()
    await kept.get("a", make)
    assert made == 3, "it is not kept for callers to come"


@pytest.mark.parametrize("asks_store", [True, False])
async def test_callers_share_although_they_may_wait_differently_long(asks_store: bool) -> None:
    """Of work that asks the store, about as long: the first caller's limit applies to it."""
    kept, go, made = BuildCache[SharedBytes](asks_store=asks_store), asyncio.Event(), 0

    async def make() -> SharedBytes:
        nonlocal made
        made += 1
        await go.wait()
        return SharedBytes([b"abc"])

    callers = []
    for left in (4.2, 4.15, 4.1, 1.0):
        with within(4.2, left):
            callers.append(asyncio.ensure_future(kept.get("a", make)))
            await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*callers)
    assert made == (2 if asks_store else 1)


async def test_work_that_fails_is_done_again_for_the_next_caller() -> None:
    kept, fails = BuildCache[SharedBytes](), True

    async def make() -> SharedBytes:
        if fails:
            raise ValueError("no")
        return SharedBytes([])

    for caller in [asyncio.ensure_future(kept.get("a", make)) for _ in range(2)]:
        with pytest.raises(ValueError, match="no"):
            await caller
    fails = False
    assert (await kept.get("a", make)).size == 0
