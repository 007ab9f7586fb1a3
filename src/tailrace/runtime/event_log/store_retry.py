"""Waits for a store that is away, for a bounded time; then raises its error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from tailrace.core.errors import SeqConflict, StorageBusy, StorageError

PATIENCE_SECONDS = 30.0
"""How long a store may be away before its callers get the error."""

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
"""Seconds between two calls of a store that is away; each pause is twice the last."""

QUICK_SECONDS = 0.5
"""Shorter waits do not count against the limit of `within`: a block may need many."""

LEAST_SECONDS = 1.0
"""What a block may still wait in any case: a long wait may have been for a large state, and the
store answers at once."""

T = TypeVar("T")


class _Limit:
    """The seconds that a `within` block may still wait.

    A task that was started in the block may outlive it. From then on, each wait of the task has
    the whole limit.
    """

    def __init__(self, left: float) -> None:
        self.left = left
        self.is_over = False


_limit: ContextVar[_Limit | None] = ContextVar("limit", default=None)


@contextmanager
def within(seconds: float | None, left: float | None = None) -> Iterator[None]:
    """Limit the waits for the store in this block, all together; None removes the limit.

    For callers that need an answer soon. `left` is what an earlier block has left of the limit.
    """
    limit = None if seconds is None else _Limit(seconds if left is None else left)
    token = _limit.set(limit)
    try:
        yield
    finally:
        _limit.reset(token)
        if limit is not None and seconds is not None:
            limit.left, limit.is_over = seconds, True


def limit_of_wait() -> float | None:
    """The seconds that the current `within` block may still wait, if there is one."""
    limit = _limit.get()
    return None if limit is None else limit.left


@contextmanager
def wait_counts() -> Iterator[None]:
    """Count this block as a wait of the `within` block around it. Nested waits count once."""
    limit = _limit.get()
    if limit is None:
        yield
        return
    left, begun = limit.left, time.monotonic()
    try:
        yield
    finally:
        waited = time.monotonic() - begun
        if waited > QUICK_SECONDS and not limit.is_over:
            limit.left = min(limit.left, max(left - waited, LEAST_SECONDS))


def did_not_answer(seconds: float) -> StorageBusy:
    """The error after a wait for the store."""
    return StorageBusy(f"The store did not answer within {round(seconds, 2):g} s; try again.")


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
        with wait_counts():
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
