"""How many runs one owner may have at the same time."""

from __future__ import annotations

import time

from tailrace.core.errors import TailraceError
from tailrace.ports import EventLog

LOOK_SECONDS = 1.0
"""How long an owner that is at the limit is refused without asking the store again."""


class LimitReached(TailraceError):
    """A limit of the sender is reached; `retry_after` is in seconds."""

    code = "limit_reached"

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RunQuota:
    """The unfinished runs of one owner. The store counts them: the limit holds for all processes.

    Requests that several processes get at the same moment may exceed it by a few runs.
    """

    def __init__(self, log: EventLog, owner: str, limit: int) -> None:
        self._log = log
        self._owner = owner
        self._limit = limit
        self._starting = 0
        self._full_until = 0.0

    @property
    def is_unused(self) -> bool:
        """Whether no run starts."""
        return not self._starting

    async def take(self) -> None:
        """Take a place for a run that starts; raises `LimitReached`."""
        if time.monotonic() >= self._full_until:
            unfinished = await self._log.open_runs(self._owner, self._limit)
            if unfinished + self._starting < self._limit:
                self._starting += 1
                return
            self._full_until = time.monotonic() + LOOK_SECONDS
        raise LimitReached(
            f"You have {self._limit} unfinished runs, which is the limit. "
            "Wait for the end of a run, or cancel one.",
        )

    def give(self) -> None:
        """The run that took a place is stored, or did not start."""
        self._starting -= 1
