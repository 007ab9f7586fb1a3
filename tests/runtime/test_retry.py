"""Waiting for a store that is away takes a bounded time, whatever the store does meanwhile."""

from __future__ import annotations

import asyncio
import time

import pytest

from tailrace.core.errors import SeqConflict, StorageBusy
from tailrace.runtime.store_retry import patiently, within


async def hang() -> None:
    await asyncio.Event().wait()


async def test_the_waits_of_the_store_and_of_its_caller_are_one() -> None:
    begun = time.monotonic()
    with pytest.raises(StorageBusy, match=r"did not answer within 0\.05 s"):
        await patiently(hang, 0.05)
    with within(0.05), pytest.raises(StorageBusy, match=r"within 0\.05 s"):
        await patiently(hang)
    assert time.monotonic() - begun < 30


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
