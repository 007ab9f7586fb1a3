"""The embedded store keeps what `Store` promises, and some that only a file can."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.ports import NewRun, Store
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.store_kit import EventLogKit, OpenStore


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class InKit(EventLogKit):
    """Leases by a clock that the test moves, so no test sleeps."""

    @pytest.fixture(autouse=True)
    def clock(self) -> Clock:
        self._clock = Clock()
        return self._clock

    async def wait(self, seconds: float) -> None:
        self._clock.time += seconds


class TestFile(InKit):
    @pytest.fixture
    def opener(self, tmp_path: Path, clock: Clock) -> OpenStore:
        async def opened() -> Store:
            return await SqliteStore.open(tmp_path / "log.db", boot_time=clock)

        return opened


class TestMemory(InKit):
    durable = False

    @pytest.fixture
    def opener(self, clock: Clock) -> OpenStore:
        async def opened() -> Store:
            return await SqliteStore.open("sqlite://:memory:", boot_time=clock)

        return opened


async def test_a_claim_does_not_step_over_the_runs_that_are_held() -> None:
    async def steps(held: int) -> int:
        """The instructions of SQLite's machine for a claim of 3 of 4 runs beside held runs."""
        clock = Clock()
        store = SqliteStore(":memory:", boot_time=clock)
        for n in range(held):
            await store.create(
                NewRun(run_id=f"h{n}", agent="a", thread_id="t", public=b"{}", owner=f"o{n % 9}")
            )
        assert len(await store.claim("w", ["a"], 60, held)) == held
        clock.time += 50
        assert not await store.extend("w", [(f"h{n}", 2) for n in range(held)], 60)
        clock.time += 20  # a lease without the extension would have ended
        for n in range(4):
            await store.create(NewRun(run_id=f"f{n}", agent="a", thread_id="t", public=b"{}"))
        taken = 0

        def count() -> bool:
            nonlocal taken
            taken += 1
            return False

        await store._writer.call(lambda db: db.set_progress_handler(count, 1))
        assert len(await store.claim("v", ["a"], 60, 3)) == 3
        await store._writer.call(lambda db: db.set_progress_handler(None))
        await store.close()
        return taken

    few, many = await steps(100), await steps(300)
    assert many < few + 20
