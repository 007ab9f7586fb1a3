"""Followers, workers and cancels over every store and bus. One line adds a combination."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace.buses import open_bus as open_bus_at
from tailrace.stores import open_store as open_store_at
from tailrace.testing.follow_kit import FollowKit, OpenBus, OpenStore

COMBINATIONS: dict[str, tuple[str, str | None]] = {
    # name: (the database's URL, the bus's URL); {name} is a fixture's value
    "sqlite": ("sqlite:///{tmp_path}/log.db", None),
    "sqlite-redis": ("sqlite:///{tmp_path}/log.db", "{redis_url}"),
    "postgres": ("{postgres_url}", None),
    "postgres-redis": ("{postgres_url}", "{redis_url}"),
}


@pytest.fixture(params=COMBINATIONS)
def urls(request: pytest.FixtureRequest) -> tuple[str, str | None]:
    """Where the store and the bus of this test are."""

    class Fixtures(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            return request.getfixturevalue(name)

    database, bus = COMBINATIONS[request.param]
    fixtures = Fixtures()
    return database.format_map(fixtures), bus.format_map(fixtures) if bus else None


class TestFollow(FollowKit):
    @pytest.fixture
    def open_store(self, urls: tuple[str, str | None]) -> OpenStore:
        return lambda: open_store_at(urls[0])

    @pytest.fixture
    def open_bus(self, urls: tuple[str, str | None]) -> OpenBus:
        return lambda: open_bus_at(urls[1])


class TestOneBus(FollowKit):
    """All processes in one: what is published is heard at once, everywhere."""

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return lambda: open_store_at(tmp_path / "log.db")

    @pytest.fixture
    async def open_bus(self) -> OpenBus:
        bus: Any = await open_bus_at()
        return lambda: _again(bus)


async def _again(bus: Any) -> Any:
    return bus
