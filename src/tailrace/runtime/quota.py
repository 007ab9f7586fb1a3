"""How many runs one owner may have at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable

from tailrace.core.errors import TailraceError
from tailrace.ports import EventLog

LOOK_SECONDS = 1.0
"""How often the store is asked which runs have ended, while an owner is at the limit."""


class LimitReached(TailraceError):
    """A limit of the sender is reached; `retry_after` is in seconds."""

    code = "limit_reached"

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RunQuota:
    """The unfinished runs that one owner started in this process."""

    def __init__(self, log: EventLog, limit: int, check: Callable[[], None]) -> None:
        """`check` raises an error if no run may start for another reason."""
        self._log = log
        self._limit = limit
        self._check = check
        self._open: set[str] = set()
        self._starting = 0
        self._looked = -LOOK_SECONDS

    @property
    def is_unused(self) -> bool:
        """Whether no run is counted."""
        return not self._open and not self._starting

    async def take(self) -> None:
        """Take a place for a run that starts; raises `LimitReached`."""
        self._check()
        if self._is_full() and time.monotonic() - self._looked >= LOOK_SECONDS:
            self._looked = time.monotonic()
            heads = await self._log.heads(list(self._open))
            self._open -= {run for run in self._open if run not in heads or heads[run].ended}
        if self._is_full():
            raise LimitReached(
                f"You have {self._limit} unfinished runs, which is the limit. "
                "Wait for the end of a run, or cancel one.",
            )
        self._starting += 1

    def _is_full(self) -> bool:
        return len(self._open) + self._starting >= self._limit

    def give(self, run_id: str | None) -> None:
        """The run that took a place has this id; None if it did not start."""
        self._starting -= 1
        if run_id is not None:
            self._open.add(run_id)
