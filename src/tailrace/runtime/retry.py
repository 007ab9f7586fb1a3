"""A database that is away for a moment is waited for; one that stays away is a typed error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tailrace.core.errors import SeqConflict, StorageError

PATIENCE_SECONDS = 30.0
"""How long a database may be away before whoever needs it gets the error."""

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0

T = TypeVar("T")


def passing(error: object) -> bool:
    """Whether asking again may help: the storage is at fault, and not a race that was lost."""
    return isinstance(error, StorageError) and not isinstance(error, SeqConflict)


async def patiently(ask: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
    """Ask the store until it answers, for a bounded time; then raise what it last said."""
    deadline = time.monotonic() + (PATIENCE_SECONDS if seconds is None else seconds)
    pause = FIRST_PAUSE
    while True:
        try:
            return await ask()
        except StorageError as error:
            if not passing(error) or time.monotonic() + pause > deadline:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
