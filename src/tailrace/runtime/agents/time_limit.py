"""Ends a block of work after some time, without the time in which it waits for people."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class TimeLimit:
    """A timeout that can stand still. `WorkClock` says how much of it earlier workers have used."""

    def __init__(self) -> None:
        self._timeout: asyncio.Timeout | None = None
        self._waiting = 0
        self._left: float | None = None

    @asynccontextmanager
    async def running(self, seconds: float | None) -> AsyncIterator[None]:
        """A block that raises `TimeoutError` after this time at work; None means no limit."""
        async with asyncio.timeout(seconds) as self._timeout:
            yield

    @property
    def is_over(self) -> bool:
        """Whether the time has run out."""
        return self._timeout is not None and self._timeout.expired()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """A block of waiting that does not count; several may overlap."""
        clock, now = self._timeout, asyncio.get_running_loop().time
        if clock is None:
            yield
            return
        self._waiting += 1
        if self._waiting == 1:
            when = clock.when()
            self._left = None if when is None else when - now()
            clock.reschedule(None)
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting and self._left is not None and not clock.expired():
                clock.reschedule(now() + self._left)
