"""Waits for a store that is away, for a bounded time; then raises its error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from tailrace.core.errors import SeqConflict, StorageBusy, StorageError

PATIENCE_SECONDS = 30.0
"""How long a store may be away before its callers get the error."""

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0

T = TypeVar("T")

_limit: ContextVar[float | None] = ContextVar("limit", default=None)


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Limit each wait for the store in this block; None removes the limit.

    For callers that need an answer soon.
    """
    token = _limit.set(seconds)
    try:
        yield
    finally:
        _limit.reset(token)


def limit_of_wait() -> float | None:
    """The limit of the current `within` block, if there is one."""
    return _limit.get()


def did_not_answer(seconds: float) -> StorageBusy:
    """The error after a wait for the store."""
    return StorageBusy(f"The store did not answer within {seconds:g} s; try again.")


def passing(error: object) -> bool:
    """Whether a retry may help: a storage error that is not a lost race."""
    return isinstance(error, StorageError) and not isinstance(error, SeqConflict)


async def patiently(ask: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
    """Call the store until it answers, for a bounded time; then raise its last error.

    The store's own waits count.
    """
    seconds = PATIENCE_SECONDS if seconds is None else seconds
    if (limit := limit_of_wait()) is not None:
        seconds = min(seconds, limit)
    deadline = asyncio.get_running_loop().time() + seconds
    pause = FIRST_PAUSE
    last: StorageError = did_not_answer(seconds)
    try:
        async with asyncio.timeout_at(deadline) as timeout:
            while True:
                try:
                    return await ask()
                except StorageError as error:
                    if not passing(error):
                        raise
                    last = error
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
    except TimeoutError:
        if not timeout.expired():
            raise
        raise last from None
