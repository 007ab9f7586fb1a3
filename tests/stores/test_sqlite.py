"""The embedded store keeps what `Store` promises, and some that only a file can."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.ports import Store
from tailrace.stores.sqlite.store import SqliteLog
from tailrace.testing.store_kit import EventLogKit, Opener


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class InKit(EventLogKit):
    """Leases by a clock that the test moves: nobody sleeps."""

    @pytest.fixture(autouse=True)
    def clock(self) -> Clock:
        self._clock = Clock()
        return self._clock

    async def wait(self, seconds: float) -> None:
        self._clock.time += seconds


class TestFile(InKit):
    @pytest.fixture
    def opener(self, tmp_path: Path, clock: Clock) -> Opener:
        async def opened() -> Store:
            return await SqliteLog.open(tmp_path / "log.db", boot_time=clock)

        return opened


class TestMemory(InKit):
    durable = False

    @pytest.fixture
    def opener(self, clock: Clock) -> Opener:
        async def opened() -> Store:
            return await SqliteLog.open("sqlite://:memory:", boot_time=clock)

        return opened
