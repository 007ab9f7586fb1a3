"""The bus inside one process."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.buses import local, open_bus
from tailrace.buses.local import LocalBus
from tailrace.core.errors import CallerError
from tailrace.core.events import Recorded
from tailrace.testing.bus_kit import RUN, BusKit, heard, notices, until_heard


class TestLocalBus(BusKit):
    async def make(self) -> LocalBus:
        return LocalBus()


async def test_the_kit_takes_no_earlier_probe_for_an_answer() -> None:
    lost: list[Recorded] = []

    class Lossy(LocalBus):
        def publish(self, run_id: str, events: list[Recorded]) -> None:
            if len(lost) < 3:
                lost.extend(events)
            else:
                super().publish(run_id, events)

    bus = Lossy()
    subscription = bus.subscribe(RUN)
    LocalBus.publish(bus, RUN, notices(0, 0))
    await until_heard(bus, subscription)
    assert len(lost) == 3


@pytest.mark.parametrize("url", [None, "", "local:", "local://"])
async def test_without_a_server_it_is_the_bus_inside_the_process(url: str | None) -> None:
    assert isinstance(await open_bus(url), LocalBus)


@pytest.mark.parametrize("url", ["kafka://secret@host", "redis", "localhost:6379", "http://x"])
async def test_a_url_that_names_no_bus_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(CallerError, match="redis://") as caught:
        await open_bus(url)
    assert "secret" not in str(caught.value)


async def test_readers_share_one_list() -> None:
    bus = LocalBus()
    first, second = bus.subscribe(RUN), bus.subscribe(RUN)
    one = notices(1, 3)
    bus.publish(RUN, one)
    assert await first.get(0) is one
    assert await second.get(0) is one
    bus.publish(RUN, notices(4, 5))
    bus.publish(RUN, notices(6, 6))
    both = await first.get(0)
    assert both == notices(4, 6)
    assert await second.get(0) is both


async def test_one_list_larger_than_the_ring_is_left_to_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local, "MAX_BYTES", 1000)
    bus = LocalBus()
    subscription = bus.subscribe(RUN)
    bus.publish(RUN, notices(1, 1, size=2000))
    async with asyncio.timeout(120):
        assert await subscription.get(60) == []
    bus.publish(RUN, notices(2, 2))
    assert await heard(subscription, 2) == notices(2, 2)


async def test_the_last_reader_takes_the_run_with_it() -> None:
    bus = LocalBus()
    subscriptions = [bus.subscribe(RUN) for _ in range(3)]
    other = bus.subscribe("other")
    for subscription in subscriptions:
        assert RUN in bus
        subscription.close()
    assert RUN not in bus
    assert len(bus) == 1
    bus.miss("nobody")
    bus.miss()
    async with asyncio.timeout(120):
        assert await other.get(60) == []
    await bus.close()
    assert len(bus) == 0
