"""The follow kit: a bus that loses, repeats or reorders events, or is silent, costs only time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tailrace.core.errors import StorageError
from tailrace.core.events import Recorded
from tailrace.ports import Bus, Store, Trimmed
from tailrace.ports.bus import OpenBus
from tailrace.ports.store import OpenStore
from tailrace.runtime.event_log import store_retry
from tailrace.runtime.followers import tail
from tailrace.runtime.followers.follow import Reader
from tailrace.testing.follow_kit.setup import (
    FAULTS,
    SOON,
    CountingStore,
    FollowTests,
    UnreliableBus,
    all_seen,
    begun,
    end,
    numbers,
    trimmed,
    write,
    write_slowly,
)
from tailrace.testing.waiting import until


class SilentBus:
    """A bus that delivers only the events that a test passes to it.

    A real bus may ask its readers at any time to read the log. The tests of polls and gaps need
    readers that find out by themselves.
    """

    heard: Callable[[list[Recorded]], None]

    def subscribe(self, _: str) -> SilentBus:
        """Itself."""
        return self

    def listen(self, heard: Callable[[list[Recorded]], None]) -> None:
        """Remember the listener."""
        self.heard = heard

    def close(self) -> None:
        """Do nothing."""


class LossyBusTests(FollowTests):
    """Followers treat events from the bus as hints and verify them against the log."""

    @pytest.mark.parametrize("fault", FAULTS)
    async def test_a_bus_that_misbehaves_costs_nothing_but_time(
        self, store: Store, bus: Bus, fault: str
    ) -> None:
        emitter = await begun(store, UnreliableBus(bus, fault))
        reader = Reader(store, bus, poll=0.05)
        following = [
            asyncio.ensure_future(numbers(reader.follow("run_1", after))) for after in (0, 1, 9)
        ]
        last = await write_slowly(emitter, 150)
        for after, found in zip((0, 1, 9), following, strict=True):
            assert await found == list(range(after + 1, last + 1))

    async def test_what_was_never_published_still_arrives_within_a_second(
        self, store: Store, open_store: OpenStore, open_bus: OpenBus
    ) -> None:
        """This is what remains if a writer is killed between append and publish.

        The reader heard the bus just before, so it does not poll at once. Old events keep arriving.
        """
        bus, other = await open_bus(), await open_store()
        emitter = await begun(store, UnreliableBus(bus, "dead"))
        reader = Reader(other, bus)
        source = reader.follow("run_1", 2)
        coming = asyncio.ensure_future(_some(source))
        await all_seen(reader, "run_1")
        write(emitter, 1)
        await emitter.drain()
        heard = await store.read("run_1", 2)
        bus.publish("run_1", heard)
        assert [recorded.event.sequence_number for recorded in await coming] == [3]
        write(emitter, 1)
        await emitter.drain()
        written = time.monotonic()
        coming = asyncio.ensure_future(_some(source))
        while not coming.done():
            bus.publish("run_1", heard)
            await asyncio.wait([coming], timeout=0.05)
        assert [recorded.event.sequence_number for recorded in coming.result()] == [4]
        assert time.monotonic() - written < SOON
        await source.aclose()
        await other.close()
        await bus.close()

    async def test_a_log_that_cannot_be_read_holds_up_only_its_own_followers(
        self, store: Store, bus: Bus
    ) -> None:
        dead = UnreliableBus(bus, "dead")
        emitters = [await begun(store, dead, run_id) for run_id in ("run_1", "run_2")]

        class Damaged(CountingStore):
            damaged = False

            async def read(self, run_id: str, after: int, limit: int = 10_000) -> Any:
                if run_id == "run_1" and self.damaged:
                    raise StorageError("damaged")
                return await store.read(run_id, after, limit)

        damaged: Any = Damaged(store)
        subscription: Any = SilentBus()
        reader = Reader(damaged, subscription, poll=0.05)
        tails = [reader.tails.take(emitter.run_id) for emitter in emitters]
        for tail_of_run in tails:
            await tail_of_run.find_end()
        damaged.damaged = True
        write(emitters[0], 1)
        await emitters[0].drain()
        await until(lambda: tails[0].is_looking)
        source = reader.follow("run_2", 2)
        coming = asyncio.ensure_future(_some(source))
        await all_seen(reader, "run_2")
        write(emitters[1], 1)
        await emitters[1].drain()
        async with asyncio.timeout(store_retry.PATIENCE_SECONDS / 3):
            assert [recorded.event.sequence_number for recorded in await coming] == [3]
        await source.aclose()
        await reader.close()

    async def test_a_bus_that_is_deaf_stops_no_run(self, store: Store, bus: Bus) -> None:
        """The bus reports missed events again and again, but never delivers any."""
        emitter = await begun(store, bus)
        loop = asyncio.get_running_loop()
        missed = 0

        class Deaf:
            closed = False

            def listen(self, heard: Callable[[list[Recorded]], None]) -> None:
                nonlocal missed
                missed += 1
                heard([])
                if not self.closed:
                    loop.call_soon(self.listen, heard)

            def close(self) -> None:
                self.closed = True

            def subscribe(self, _: str) -> Deaf:
                return self

        deaf: Any = Deaf()
        following = asyncio.ensure_future(numbers(Reader(store, deaf).follow("run_1")))
        await until(lambda: missed > 10)
        last = await write_slowly(emitter, 5)
        assert await following == list(range(1, last + 1))

    async def test_the_gap_of_one_follower_does_not_reach_another(
        self, store: Store, bus: Bus
    ) -> None:
        """Both share this process's cache of the run; the first reads the missing events itself."""
        emitter = await begun(store, UnreliableBus(bus, "dead"))
        subscription: Any = SilentBus()
        reader = Reader(store, subscription, poll=3600.0)
        behind = asyncio.ensure_future(numbers(reader.follow("run_1", 2)))
        await all_seen(reader, "run_1")
        write(emitter, 3)
        last = await end(emitter)
        complete = asyncio.ensure_future(numbers(reader.follow("run_1", last)))
        await all_seen(reader, "run_1", 2)
        newest = await store.read("run_1", last - 1)
        await trimmed(store, "run_1")
        subscription.heard(newest)
        assert await complete == []
        with pytest.raises(Trimmed):
            await behind

    async def test_a_hole_is_filled_when_it_is_seen_and_not_at_the_next_poll(
        self, store: Store, bus: Bus
    ) -> None:
        """Earlier events arrived, so that a reader could mistake them for the lost events."""
        emitter = await begun(store, UnreliableBus(bus, "dead"))
        subscription: Any = SilentBus()  # a bus may make a reader look by itself, at any time
        reader = Reader(store, subscription, poll=3600.0)
        source = reader.follow("run_1", 2)
        coming = asyncio.ensure_future(_some(source))
        await all_seen(reader, "run_1")
        write(emitter, 7)
        await emitter.drain()
        events = await store.read("run_1", 2)
        subscription.heard(events[:4])
        assert await coming == events[:4]
        coming = asyncio.ensure_future(_some(source))
        await all_seen(reader, "run_1")
        subscription.heard(events[-1:])
        assert await coming == events[4:]
        await source.aclose()

    async def test_what_the_bus_repeats_is_shown_once_to_the_quick_and_to_the_slow(
        self, store: Store, bus: Bus
    ) -> None:
        emitter = await begun(store, UnreliableBus(bus, "dead"))
        reader = Reader(store, bus, poll=3600.0)
        quick, slow = reader.follow("run_1", 2), reader.follow("run_1", 1)
        assert len(await anext(slow)) == 1  # it has its place, and does not come back for a while
        shown: list[Recorded] = []
        coming = asyncio.ensure_future(_some(quick))
        await all_seen(reader, "run_1")
        write(emitter, 6)
        await emitter.drain()
        events = await store.read("run_1", 2)
        for start in range(0, 6, 2):
            entry = events[start : start + 2]
            for again in (entry, events[:start], entry, entry[1:]):
                bus.publish("run_1", again)
            # A bus that was slow to listen has the store asked for all events.
            while len(shown) < start + 2:
                shown += await coming
                coming = asyncio.ensure_future(_some(quick))
            await _waits(reader, coming)
        assert shown == events
        late: list[Recorded] = []
        while len(late) < len(events):
            late += await _some(slow)
        assert late == events
        last = await end(emitter)
        bus.publish("run_1", [*events, *await store.read("run_1", last - 1)])
        assert [recorded.event.sequence_number for recorded in await coming] == [last]
        assert await numbers(slow) == [last]
        assert await numbers(quick) == []

    async def test_what_is_heard_while_the_store_is_asked_is_not_forgotten(
        self, store: Store, bus: Bus
    ) -> None:
        emitter = await begun(store, bus)

        class Slow(CountingStore):
            async def heads(self, run_ids: list[str]) -> Any:
                found = await store.heads(run_ids)
                write(emitter, 1)
                await emitter.drain()
                tail = reader.tails.get("run_1")
                await until(lambda: tail is not None and bool(tail.kept))
                return found

        slow: Any = Slow(store)
        reader = Reader(slow, bus, poll=3600.0)
        source = reader.follow("run_1", 2)
        assert [recorded.event.sequence_number for recorded in await anext(source)] == [3]
        await source.aclose()

    async def test_what_is_written_between_reading_and_asking_is_read_at_once(
        self, store: Store, bus: Bus
    ) -> None:
        emitter = await begun(store, UnreliableBus(bus, "dead"))

        class Late(CountingStore):
            async def heads(self, run_ids: list[str]) -> Any:
                write(emitter, 1)
                await end(emitter)
                return await store.heads(run_ids)

        late: Any = Late(store)
        following = numbers(Reader(late, bus, poll=3600.0).follow("run_1", 2))
        async with asyncio.timeout(tail.BEAT_SECONDS / 2):
            assert await following == [3, 4]


async def _waits(reader: Reader, coming: asyncio.Future[list[Recorded]]) -> None:
    """Wait until the follower of a run waits for events, or has got them already."""
    tail = reader.tails.get("run_1")
    assert tail is not None
    await until(lambda: coming.done() or tail.waiting > 0)


async def _some(source: AsyncIterator[list[Recorded]]) -> list[Recorded]:
    """The next events, without timeouts."""
    while not (batch := await anext(source)):
        pass
    return batch
