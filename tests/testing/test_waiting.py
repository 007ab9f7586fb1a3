"""A wait for a condition ends with the condition, or at its deadline."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.testing.waiting import until


async def test_the_value_of_the_condition_is_returned() -> None:
    looks: list[int] = []

    def third() -> list[int]:
        looks.append(len(looks))
        return looks if len(looks) == 3 else []

    assert await until(third) == [0, 1, 2]


async def test_a_condition_may_be_async() -> None:
    looks: list[str] = []

    async def second() -> str:
        looks.append("look")
        return "there" if len(looks) == 2 else ""

    assert await until(second) == "there"


async def test_a_condition_that_never_holds_ends_at_the_deadline() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await until(lambda: False, 0.02)
    with pytest.raises(TimeoutError):
        await until(never, 0.02)
