"""Waits for what no event announces."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

DEADLINE_SECONDS = 120.0
"""Generous, because a busy machine is slow. A test that passes never waits so long."""


async def until(true: Callable[[], Any], within: float = DEADLINE_SECONDS) -> Any:
    """Look again and again until a condition holds; returns its value, which may be awaitable.

    Raises `TimeoutError` after `within` seconds.
    """
    async with asyncio.timeout(within):
        while True:
            found = true()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.005)
