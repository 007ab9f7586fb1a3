"""A time limit stands still while people are waited for."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.runtime.agents.time_limit import TimeLimit


async def test_work_that_takes_too_long_is_ended() -> None:
    limit = TimeLimit()
    with pytest.raises(TimeoutError):
        async with limit.running(0.01):
            await asyncio.Event().wait()
    assert limit.is_over


async def test_waits_that_overlap_do_not_count_and_work_after_them_does() -> None:
    limit = TimeLimit()

    async def work() -> None:
        async with limit.running(0.05):
            with limit.stopped():
                with limit.stopped():
                    await asyncio.sleep(0.1)
                await asyncio.sleep(0.1)
            assert not limit.is_over
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await work()
    assert limit.is_over


async def test_without_a_limit_and_before_the_work_a_wait_changes_nothing() -> None:
    limit = TimeLimit()
    with limit.stopped():
        assert not limit.is_over
    async with limit.running(None):
        with limit.stopped():
            await asyncio.sleep(0)
    assert not limit.is_over
