"""Limits of each principal: requests, unfinished runs, open streams.

The store counts the runs of all processes. Each process counts its requests and streams alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import msgspec

from tailrace.core.errors import CallerError
from tailrace.ports import EventLog
from tailrace.runtime.runs.quota import LimitReached, RunQuota

KEPT = 10_000
"""How many principals are remembered before those without requests are forgotten."""


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one principal may use. Above it the answer is 429.

    Requests may come in a burst of a tenth of a minute's number. Requests and streams are those of
    one server process, runs those of all.
    """

    requests_per_minute: int = 6000
    runs: int = 1000
    """Runs that have not ended."""
    streams: int = 1000
    """Open streams, and requests that wait for the end of a run."""

    def __post_init__(self) -> None:
        """Refuse limits below 1."""
        for name in self.__struct_fields__:
            if (value := getattr(self, name)) < 1:
                raise CallerError(f"`{name}` of ServerLimits is {value}; use 1 or more.")


class Allowance:
    """What one principal uses now."""

    def __init__(self, limits: ServerLimits, log: EventLog, owner: str) -> None:
        self._limits = limits
        self.runs = RunQuota(log, owner, limits.runs)
        self.streams = 0
        self._per_second = limits.requests_per_minute / 60
        self._burst = max(1.0, limits.requests_per_minute / 10)
        self._left = self._burst
        self._at = time.monotonic()

    def request(self) -> None:
        """Count a request; raises `LimitReached`."""
        self._check_request()
        self._left -= 1

    def check(self) -> None:
        """Raise `LimitReached` for a request that opens a stream, without counting it."""
        self._check_request()
        self.check_stream()

    def _check_request(self) -> None:
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            wait = math.ceil((1 - self._left) / self._per_second)
            most = self._limits.requests_per_minute
            raise LimitReached(
                f"You may send {most} requests per minute; wait {wait} s before the next.", wait
            )

    def check_stream(self) -> None:
        """Raise `LimitReached` if no further stream may be opened."""
        if self.streams >= self._limits.streams:
            raise LimitReached(
                f"You have {self.streams} open streams, which is the limit; close one."
            )

    @property
    def is_unused(self) -> bool:
        """Whether it may be deleted: idle for a minute, without streams and runs."""
        idle = time.monotonic() - self._at > 60
        return idle and not self.streams and self.runs.is_unused


class Allowances:
    """The allowances of all principals."""

    def __init__(self, make: Callable[[str], Allowance]) -> None:
        self._make = make
        self._found: dict[str, Allowance] = {}

    def of(self, owner: str) -> Allowance:
        """The allowance of one principal."""
        found = self._found.get(owner)
        if found is None:
            if len(self._found) >= KEPT:
                self._found = {
                    name: value for name, value in self._found.items() if not value.is_unused
                }
            found = self._found[owner] = self._make(owner)
        return found
