"""The bus kit finds what is wrong: each of these mistakes, planted into the local bus.

The kit's tests of the local bus pass without them, in `test_local.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tailrace.buses import local
from tailrace.buses.local import LocalBus
from tailrace.core.events import Recorded
from tailrace.ports import Subscription
from tailrace.testing import bus_kit
from tailrace.testing.bus_kit import BusKit

WITHIN = 0.5
"""Seconds that the kit waits for what never comes."""


class LosesEvents(LocalBus):
    def publish(self, run_id: str, events: list[Recorded]) -> None:
        super().publish(run_id, events[:100])


class SwapsEvents(LocalBus):
    def publish(self, run_id: str, events: list[Recorded]) -> None:
        super().publish(run_id, [*events[1:2], *events[:1], *events[2:]])


class ChangesEpochs(LocalBus):
    def publish(self, run_id: str, events: list[Recorded]) -> None:
        super().publish(run_id, [msgspec.structs.replace(one, epoch=1) for one in events])


class MixesRuns(LocalBus):
    def subscribe(self, run_id: str) -> Subscription:
        return super().subscribe(run_id[:4])

    def publish(self, run_id: str, events: list[Recorded]) -> None:
        super().publish(run_id[:4], events)


class ShowsThePast(LocalBus):
    def __init__(self) -> None:
        super().__init__()
        self.past: list[Recorded] = []

    def subscribe(self, run_id: str) -> Subscription:
        subscription = super().subscribe(run_id)
        if self.past:
            super().publish(run_id, self.past)
        return subscription

    def publish(self, run_id: str, events: list[Recorded]) -> None:
        self.past = events
        super().publish(run_id, events)


class DeliversLate(LocalBus):
    def publish(self, run_id: str, events: list[Recorded]) -> None:
        asyncio.get_running_loop().call_later(0.1, super().publish, run_id, events)


class InventsEvents(LocalBus):
    def publish(self, run_id: str, events: list[Recorded]) -> None:
        super().publish(run_id, [*events, *bus_kit.notices(77, 77)])


class KeepsReadersWaiting(LocalBus):
    async def close(self) -> None:
        pass


class KeepsWhatWasRead(LocalBus):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Recorded] = []

    def publish(self, run_id: str, events: list[Recorded]) -> None:
        self.kept += events
        super().publish(run_id, events)


class CutsLargeEvents(LocalBus):
    def publish(self, run_id: str, events: list[Recorded]) -> None:
        cut = [msgspec.structs.replace(one, public=one.public[: 1 << 20]) for one in events]
        super().publish(run_id, cut)


class ServesSomeReaders(LocalBus):
    def __init__(self) -> None:
        super().__init__()
        self.served = 0

    def subscribe(self, run_id: str) -> Subscription:
        self.served += 1
        return super().subscribe(run_id if self.served <= 900 else "another run")


class Reader:
    """A subscription of the local bus."""

    def __init__(self, inner: Subscription) -> None:
        self.inner = inner

    async def get(self, wait: float) -> list[Recorded]:
        return await self.inner.get(wait)

    def listen(self, heard: Callable[[list[Recorded]], None]) -> None:
        self.inner.listen(heard)

    def close(self) -> None:
        self.inner.close()


class CallsNoListener(Reader):
    def listen(self, heard: Callable[[list[Recorded]], None]) -> None:
        pass


class FillsTheSilence(Reader):
    async def get(self, wait: float) -> list[Recorded]:
        return await super().get(wait) or bus_kit.notices(1, 1)


class LosesEventsAfterAnAbandonedWait(Reader):
    lost = False

    async def get(self, wait: float) -> list[Recorded]:
        try:
            found = await super().get(wait)
        except asyncio.CancelledError:
            self.lost = True
            raise
        return [] if self.lost else found


class HearsAfterClosing(Reader):
    def close(self) -> None:
        pass


def read_by(reader: type[Reader]) -> type[LocalBus]:
    """A bus with such readers."""

    class Odd(LocalBus):
        def subscribe(self, run_id: str) -> Subscription:
            return reader(super().subscribe(run_id))

    Odd.__name__ = reader.__name__
    return Odd


PLANTED: list[tuple[type[LocalBus], str]] = [
    (LosesEvents, "events_arrive_in_order_and_unchanged"),
    (SwapsEvents, "events_of_this_process_arrive_at_once"),
    (ChangesEpochs, "events_of_this_process_arrive_at_once"),
    (DeliversLate, "events_of_this_process_arrive_at_once"),
    (read_by(CallsNoListener), "a_listener_is_called_beside_readers_until_it_closes"),
    (read_by(HearsAfterClosing), "a_listener_is_called_beside_readers_until_it_closes"),
    (MixesRuns, "a_reader_hears_only_its_own_run"),
    (ShowsThePast, "a_new_reader_is_not_given_the_past"),
    (read_by(FillsTheSilence), "silence_ends_when_the_time_is_up"),
    (read_by(LosesEventsAfterAnAbandonedWait), "an_abandoned_wait_loses_nothing"),
    (KeepsWhatWasRead, "events_that_all_readers_have_read_are_dropped"),
    (ServesSomeReaders, "a_thousand_readers_all_hear_everything"),
    (read_by(HearsAfterClosing), "a_reader_that_closes_is_forgotten"),
    (InventsEvents, "repeated_and_shuffled_events_arrive_uncorrupted"),
    (CutsLargeEvents, "what_one_message_cannot_hold_is_announced_or_arrives_unchanged"),
    (KeepsReadersWaiting, "a_closed_bus_is_silent"),
]


@pytest.mark.parametrize(("bus", "test"), PLANTED)
async def test_the_kit_finds_a_bus_that(
    bus: type[LocalBus], test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Kit(BusKit):
        async def make(self) -> LocalBus:
            return bus()

    monkeypatch.setattr(bus_kit, "DEADLINE", WITHIN)
    with pytest.raises((AssertionError, TimeoutError)):
        await getattr(Kit(), f"test_{test}")()


async def test_the_kit_finds_a_bus_that_keeps_all_for_a_slow_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Kit(BusKit):
        async def make(self) -> LocalBus:
            return LocalBus()

    limits: dict[str, Any] = {"MAX_QUEUED": 10**9, "MAX_BYTES": 10**12}
    for name, value in limits.items():
        monkeypatch.setattr(local, name, value)
    monkeypatch.setattr(bus_kit, "DEADLINE", 5.0)
    with pytest.raises((AssertionError, TimeoutError)):
        await Kit().test_a_slow_reader_is_bounded_and_the_others_do_not_notice()


async def test_the_kit_does_not_read_a_closed_bus_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_kit, "DEADLINE", 0.05)
    bus = LocalBus()
    subscription = bus.subscribe("run_1")
    await bus.close()
    with pytest.raises(TimeoutError):
        await bus_kit.heard(subscription, 1)


def test_every_test_of_the_kit_has_a_mistake_that_it_finds() -> None:
    planted = {f"test_{test}" for _, test in PLANTED}
    planted.add("test_a_slow_reader_is_bounded_and_the_others_do_not_notice")
    assert planted == {name for name in vars(BusKit) if name.startswith("test_")}
