"""Every store with every bus against the model."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tailrace.buses import open_bus
from tailrace.buses.local import LocalBus
from tailrace.ports import Bus, Store
from tailrace.stores import open_store
from tailrace.stores.postgres.store import PostgresStore
from tailrace.testing.log_model import ModelSetup, check_log
from tests.effort import EXAMPLES
from tests.services import Postgres, Redis

pytestmark = pytest.mark.hypothesis

MODEL_EXAMPLES = max(EXAMPLES // 2, 12)
"""An example of many steps costs more than those of other tests."""

BUSES = ("local", "redis")


async def forget(bus: Bus) -> None:
    """Inside a process nothing is kept: readers can only learn that they missed something."""
    assert isinstance(bus, LocalBus)
    bus.miss()


async def kill_connections(store: Store) -> None:
    """What the server sees of a process that died."""
    assert isinstance(store, PostgresStore)
    store._pool.terminate()


class Buses:
    """How a bus is opened and flushed, by its name."""

    def __init__(self, name: str, request: pytest.FixtureRequest) -> None:
        self.redis: Redis | None = request.getfixturevalue("redis") if name == "redis" else None

    async def open(self) -> Bus:
        return await open_bus(self.redis.url if self.redis is not None else None)

    async def flush(self, bus: Bus) -> None:
        if self.redis is None:
            await forget(bus)
        else:
            await asyncio.to_thread(self.redis.flush)

    def options(self) -> dict[str, Any]:
        return {"open_bus": self.open, "flush": self.flush}


@pytest.fixture(params=BUSES)
def bus(request: pytest.FixtureRequest) -> Buses:
    return Buses(request.param, request)


@pytest.fixture(params=(1, 2), ids=("one-process", "two-processes"))
def processes(request: pytest.FixtureRequest) -> Any:
    return request.param


def files(folder: Path) -> Callable[[], Path]:
    numbers = itertools.count(1)
    return lambda: folder / f"{next(numbers)}.db"


def test_sqlite(tmp_path: Path, bus: Buses, processes: Any) -> None:
    new_file = files(tmp_path)

    def place() -> ModelSetup:
        path = new_file()
        return ModelSetup(open_store=lambda: open_store(path), processes=processes, **bus.options())

    check_log(place, max_examples=MODEL_EXAMPLES)


def test_sqlite_in_memory(bus: Buses) -> None:
    def place() -> ModelSetup:
        return ModelSetup(
            open_store=lambda: open_store("sqlite://:memory:"),
            processes=1,
            durable=False,
            **bus.options(),
        )

    check_log(place, max_examples=MODEL_EXAMPLES)


def test_postgres(postgres: Postgres, bus: Buses, processes: Any) -> None:
    url = postgres.schema()

    def place() -> ModelSetup:
        return ModelSetup(
            open_store=lambda: open_store(url),
            crash=kill_connections,
            processes=processes,
            **bus.options(),
        )

    check_log(place, max_examples=MODEL_EXAMPLES)
