"""Large states and answers: built beside the event loop, one at a time, once for all who ask.

A state of many megabytes takes long to decode and to encode. On the event loop that would hold up
every other client. Each client with a copy of its own would multiply the memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from tailrace.core.pieces import PIECE_BYTES
from tailrace.runtime.retry import limit_of_wait

T = TypeVar("T")

LARGE_BYTES = PIECE_BYTES
"""What weighs no more is built on the event loop: that takes less time than to change threads."""


@cache
def _builder() -> ThreadPoolExecutor:
    """One thread: two large states at a time would take twice the memory, and no less time."""
    return ThreadPoolExecutor(1, thread_name_prefix="tailrace-build")


async def build(weight: int, work: Callable[[], T]) -> T:
    """Do some work on about `weight` bytes; beside the event loop if they are many."""
    if weight <= LARGE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_builder(), work)


class Parts:
    """Bytes for several clients, as the list of parts that they were made in."""

    __slots__ = ("__weakref__", "parts", "size")

    def __init__(self, parts: Iterable[bytes]) -> None:
        self.parts = list(parts)
        self.size = sum(map(len, self.parts))


class Stretch(list[T]):
    """What one read of a log brought. Readers that are equally far hold the same one."""

    def __init__(self, values: Iterable[T]) -> None:
        super().__init__(values)
        self.frames: dict[str, bytes] = {}  # by format, as far as a reader needed them


class Kept(Generic[T]):
    """What several callers want at the same time: built once, kept while a caller has it."""

    def __init__(self) -> None:
        self._values: WeakValueDictionary[Hashable, T] = WeakValueDictionary()
        self._building: dict[Hashable, asyncio.Task[T]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """The value of a key; `make` is called if nobody has it."""
        value = self._values.get(key)
        if value is not None:
            return value
        # Work is limited as its first caller wants it, and so shared only by callers alike.
        job = (key, limit_of_wait())
        building = self._building.get(job)
        if building is None:
            building = asyncio.ensure_future(self._make(job, make))
            building.add_done_callback(_look_at)
            self._building[job] = building
        # A caller that leaves must not take the work from those who wait for it as well.
        return await asyncio.shield(building)

    async def _make(
        self, job: tuple[Hashable, float | None], make: Callable[[], Awaitable[T]]
    ) -> T:
        try:
            value = self._values[job[0]] = await make()
            return value
        finally:
            del self._building[job]


def _look_at(building: asyncio.Task[T]) -> None:
    """If every caller has left, no caller asks why the work failed."""
    if not building.cancelled():
        building.exception()
