"""Builds large states and answers in a thread, one at a time, and shares them.

Decoding or encoding a state of many megabytes takes long. On the event loop it would delay every
other client, and a copy per client would multiply the memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from math import frexp
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from tailrace.core.json_pieces import PIECE_BYTES
from tailrace.runtime.diagnostics.failures import retrieve_error
from tailrace.runtime.event_log.store_retry import limit_of_wait, wait_counts

T = TypeVar("T")

LARGE_BYTES = PIECE_BYTES
"""Up to this size work runs on the event loop: changing threads would take longer."""


@cache
def _builder() -> ThreadPoolExecutor:
    """One thread: two large states at once would take twice the memory, and no less time."""
    return ThreadPoolExecutor(1, thread_name_prefix="tailrace-build")


async def build(weight: int, work: Callable[[], T]) -> T:
    """Do work on about `weight` bytes; in a thread if they are many."""
    if weight <= LARGE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_builder(), work)


class SharedBytes:
    """Bytes that several clients share, as a list of parts."""

    __slots__ = ("__weakref__", "parts", "size")

    def __init__(self, parts: Iterable[bytes]) -> None:
        self.parts = list(parts)
        self.size = sum(map(len, self.parts))


class FrameRange(NamedTuple):
    """The frames of the events `first` to `last`, joined."""

    first: int
    last: int
    frames: bytes


class LogRead(list[T]):
    """The result of one read of the log. Readers at the same event share it."""

    def __init__(self, values: Iterable[T]) -> None:
        super().__init__(values)
        self.frames: dict[str, list[FrameRange]] = {}  # by format, once a reader needs them


class BuildCache(Generic[T]):
    """Values that callers share: each is built once, and dropped when no caller holds it.

    If the work does not ask the store (`asks_store=False`), callers with any time limit share it.
    """

    def __init__(self, *, asks_store: bool = True) -> None:
        self._asks_store = asks_store
        self._values: WeakValueDictionary[Hashable, T] = WeakValueDictionary()
        self._building: dict[Hashable, asyncio.Task[T]] = {}

    def held(self, key: Hashable) -> T | None:
        """The value of a key, if a caller holds it."""
        return self._values.get(key)

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """The value of a key; `make` builds it if no caller holds it."""
        value = self.held(key)
        if value is not None:
            return value
        # The first caller's time limit applies, so only callers with similar limits share the work.
        job = (key, _magnitude(limit_of_wait()) if self._asks_store else None)
        building = self._building.get(job)
        if building is None:
            building = asyncio.ensure_future(self._make(job, make))
            building.add_done_callback(retrieve_error)
            self._building[job] = building
        # Other callers may wait for the work, so a caller that leaves must not cancel it.
        with wait_counts():
            return await asyncio.shield(building)

    async def _make(self, job: tuple[Hashable, int | None], make: Callable[[], Awaitable[T]]) -> T:
        try:
            value = await make()
            if value:  # what is empty now, as a read at the end of a log, may not be empty later
                self._values[job[0]] = value
            return value
        finally:
            del self._building[job]


def _magnitude(limit: float | None) -> int | None:
    """The same number for limits that differ by less than a factor of two.

    On a busy machine each caller has waited for another time. If each did the work itself, many
    clients of a large run would take its memory many times.
    """
    return None if limit is None else frexp(limit)[1]
