"""Tests that every bus passes: a bus may lose events, but never alters them or blocks a writer.

    class TestMyBus(BusKit):
        async def make(self) -> Bus:
            return MyBus()

A bus with a server inherits `ServerBusKit` and implements stop, start, flush and trim. The tests
are `async` and run with any plugin for async tests.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import pytest

from tailrace.core.codec import decode_event, encode_event
from tailrace.core.errors import TailraceError
from tailrace.core.events import (
    Notice,
    Private,
    Recorded,
    TaskCreated,
    TaskInProgress,
    recorded,
)
from tailrace.ports import Batch, Bus, Subscription
from tailrace.runtime.event_log.emitter import Emitter
from tailrace.runtime.event_log.pipeline import Pipeline
from tailrace.testing.waiting import until

DEADLINE = 30.0
"""Seconds after which something that should happen is given up; nothing waits that long."""

RUN = "run_1"


def notices(first: int, last: int, size: int = 0, run_id: str = RUN) -> list[Recorded]:
    """Events with these numbers, each with its own text."""
    return [
        _as_recorded(Notice(task_id=run_id, message=f"{n}: déjà vu\n" + "x" * size), n)
        for n in range(first, last + 1)
    ]


def _as_recorded(event: Notice, number: int, epoch: int = 3) -> Recorded:
    numbered = recorded(event, number)
    return Recorded(numbered, encode_event(numbered), epoch)


def _probe(number: int) -> Recorded:
    return _as_recorded(Notice(task_id=RUN, message=f"probe {number}"), 0)


_NUMBERS = count(1)


async def heard(subscription: Subscription, last: int) -> list[Recorded]:
    """Read a subscription up to event number `last`, without probes."""
    got: list[Recorded] = []
    async with asyncio.timeout(DEADLINE):
        while not got or got[-1].event.sequence_number != last:
            more = await subscription.get(DEADLINE)
            got += [event for event in more if event.event.sequence_number]
            if not more:  # a closed bus answers at once, and the deadline needs the event loop
                await asyncio.sleep(0)
    return got


async def until_heard(bus: Bus, subscription: Subscription, run_id: str = RUN) -> None:
    """Publish probes until the subscription receives one of them.

    Probes of an earlier call do not count: they may have been sent before a restart.
    """
    probe = _probe(next(_NUMBERS))
    async with asyncio.timeout(DEADLINE):
        while True:
            bus.publish(run_id, [probe])
            got = await subscription.get(0.02)
            if any(one.public == probe.public for one in got):
                return
            await asyncio.sleep(0)  # as in `heard`


class BusKit:
    """Tests of every bus. `make_other` is the bus of another process on the same server."""

    async def make(self) -> Bus:
        """A bus that no other test uses."""
        raise NotImplementedError("Give the kit a method `make`.")

    async def make_other(self, bus: Bus) -> Bus:
        """The bus of another process; a local bus returns itself."""
        return bus

    @asynccontextmanager
    async def two(self) -> AsyncIterator[tuple[Bus, Bus]]:
        """A bus to publish on and a bus to listen to, closed in the end."""
        bus = await self.make()
        other = await self.make_other(bus)
        try:
            yield bus, other
        finally:
            await other.close()
            await bus.close()

    async def test_events_arrive_in_order_and_unchanged(self) -> None:
        """Sequence numbers, bytes and epochs survive, in lists of any length, between processes."""
        events = notices(1, 700)
        async with self.two() as (bus, other):
            subscription = other.subscribe(RUN)
            await until_heard(bus, subscription)
            for start, end in ((0, 1), (1, 2), (2, 500), (500, 700)):
                bus.publish(RUN, events[start:end])
            assert await heard(subscription, 700) == events

    async def test_events_of_this_process_arrive_at_once(self) -> None:
        """Without waiting for a server: they are there when `publish` returns."""
        async with self.two() as (bus, _):
            subscription = bus.subscribe(RUN)
            bus.publish(RUN, notices(1, 3))
            assert await subscription.get(0) == notices(1, 3)

    async def test_a_listener_is_called_beside_readers_until_it_closes(self) -> None:
        """Notices reach listeners in this and in other processes; none is stored."""
        async with self.two() as (bus, other):
            for side in (bus, other):
                notified: list[Recorded] = []
                subscription, beside = side.subscribe(RUN), side.subscribe(RUN)
                await until_heard(bus, beside)
                subscription.listen(notified.extend)
                bus.publish(RUN, notices(1, 3))
                assert await heard(beside, 3) == notices(1, 3)
                assert notified == notices(1, 3)
                subscription.close()
                subscription.close()
                bus.publish(RUN, notices(4, 4))
                assert await heard(beside, 4) == notices(4, 4)
                assert notified == notices(1, 3)
                beside.close()

    async def test_a_reader_hears_only_its_own_run(self) -> None:
        """Also when ids are similar or share a channel."""
        async with self.two() as (bus, other):
            subscriptions = {run_id: other.subscribe(run_id) for run_id in _many_runs()}
            for run_id, subscription in subscriptions.items():
                await until_heard(bus, subscription, run_id)
            for run_id in subscriptions:
                bus.publish(run_id, notices(1, 2, run_id=run_id))
            for run_id, subscription in subscriptions.items():
                assert await heard(subscription, 2) == notices(1, 2, run_id=run_id)

    async def test_a_new_reader_is_not_given_the_past(self) -> None:
        """The past is in the log."""
        async with self.two() as (bus, _):
            early = bus.subscribe(RUN)
            bus.publish(RUN, notices(1, 2))
            late = bus.subscribe(RUN)
            bus.publish(RUN, notices(3, 3))
            assert await heard(late, 3) == notices(3, 3)
            assert await heard(early, 3) == notices(1, 3)

    async def test_silence_ends_when_the_time_is_up(self) -> None:
        """Silence proves nothing, so the reader can read the log."""
        async with self.two() as (bus, _):
            assert await bus.subscribe(RUN).get(0.01) == []

    async def test_an_abandoned_wait_loses_nothing(self) -> None:
        """A reader may give up waiting and come back."""
        async with self.two() as (bus, _):
            subscription = bus.subscribe(RUN)
            await until_heard(bus, subscription)
            waiting = asyncio.ensure_future(heard(subscription, 1))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            bus.publish(RUN, notices(1, 1))
            assert await heard(subscription, 1) == notices(1, 1)

    async def test_a_slow_reader_is_bounded_and_the_others_do_not_notice(self) -> None:
        """Its events are dropped, it is asked to read the log, and it hears later events."""
        oldest = notices(1, 1)[0]
        kept = sys.getrefcount(oldest)
        async with self.two() as (bus, _):
            slow, quick = bus.subscribe(RUN), bus.subscribe(RUN)
            await until_heard(bus, quick)
            bus.publish(RUN, [oldest])
            for n in range(2, 300):
                bus.publish(RUN, notices(n * 100, n * 100 + 99, size=1000))
                got = await heard(quick, n * 100 + 99)
                assert got[-100:] == notices(n * 100, n * 100 + 99, size=1000)
                del got
            await until(lambda: sys.getrefcount(oldest) <= kept, DEADLINE)
            async with asyncio.timeout(DEADLINE):
                assert await slow.get(DEADLINE) == []
            bus.publish(RUN, notices(99_999, 99_999))
            assert await heard(slow, 99_999) == notices(99_999, 99_999)

    async def test_events_that_all_readers_have_read_are_dropped(self) -> None:
        """An idle run that is followed for hours uses no memory."""
        event = notices(1, 1)[0]
        kept = sys.getrefcount(event)
        async with self.two() as (bus, _):
            subscriptions = [bus.subscribe(RUN) for _ in range(3)]
            bus.publish(RUN, [event])
            bus.publish(RUN, notices(2, 2))
            for subscription in subscriptions:
                await heard(subscription, 2)
            await until(lambda: sys.getrefcount(event) <= kept, DEADLINE)

    async def test_a_thousand_readers_all_hear_everything(self) -> None:
        """Events come from another process."""
        events = notices(1, 200)
        async with self.two() as (bus, other):
            subscriptions = [other.subscribe(RUN) for _ in range(1000)]
            await until_heard(bus, subscriptions[0])
            readers = [
                asyncio.ensure_future(heard(subscription, 200)) for subscription in subscriptions
            ]
            for start in range(0, 200, 10):
                bus.publish(RUN, events[start : start + 10])
                await asyncio.sleep(0)
            for got in await asyncio.gather(*readers):
                assert got == events

    async def test_a_reader_that_closes_is_forgotten(self) -> None:
        """Closing twice, or while waiting, is safe; other readers stay."""
        async with self.two() as (bus, _):
            gone, stays = bus.subscribe(RUN), bus.subscribe(RUN)
            await until_heard(bus, gone)
            waiting = asyncio.ensure_future(gone.get(DEADLINE))
            await asyncio.sleep(0)
            gone.close()
            gone.close()
            async with asyncio.timeout(DEADLINE):
                assert await waiting == []
                assert await gone.get(DEADLINE) == []
            bus.publish(RUN, notices(1, 1))
            assert await heard(stays, 1) == notices(1, 1)
            assert await gone.get(0) == []

    async def test_repeated_and_shuffled_events_arrive_uncorrupted(self) -> None:
        """Readers sort by number; the bus must not invent events."""
        events = notices(1, 5)
        async with self.two() as (bus, other):
            subscription = other.subscribe(RUN)
            await until_heard(bus, subscription)
            for some in (events[2:], events[:2], events[2:], [], events[3:]):
                bus.publish(RUN, some)
            bus.publish(RUN, notices(6, 6))
            got = await heard(subscription, 6)
            assert {event.public for event in got} >= {sent.public for sent in notices(1, 6)}
            assert all(event in notices(1, 6) for event in got)

    async def test_what_one_message_cannot_hold_is_announced_or_arrives_unchanged(self) -> None:
        """Huge events, and foreign events with line breaks between their fields."""
        foreign = b'{"type":"task.future",\n\n"task_id":"run_1","sequence_number":2}'
        awkward = [
            *notices(1, 1, size=3_000_000),
            Recorded(decode_event(foreign), foreign, 3),
            *notices(3, 2000, size=300),
        ]
        async with self.two() as (bus, other):
            subscription = other.subscribe(RUN)
            await until_heard(bus, subscription)
            for some in (awkward, awkward[:1], awkward[1:2]):
                bus.publish(RUN, some)
                async with asyncio.timeout(DEADLINE):
                    got = [
                        event
                        for event in await subscription.get(DEADLINE)
                        if event.event.sequence_number
                    ]
                assert all(event in awkward for event in got)
            bus.publish(RUN, notices(3000, 3000))
            got = await heard(subscription, 3000)
            assert all(event in awkward or event == notices(3000, 3000)[0] for event in got)

    async def test_a_closed_bus_is_silent(self) -> None:
        """Waiting readers return; publishing and closing again do nothing."""
        bus = await self.make()
        subscription = bus.subscribe(RUN)
        await until_heard(bus, subscription)
        waiting = asyncio.ensure_future(subscription.get(DEADLINE))
        await asyncio.sleep(0)
        await bus.close()
        async with asyncio.timeout(DEADLINE):
            assert await waiting == []
        bus.publish(RUN, notices(1, 1))
        await bus.close()


class ServerBusKit(BusKit):
    """Tests of a bus with a server: it survives the server's failures."""

    async def stop_server(self) -> None:
        """Kill the server."""
        raise NotImplementedError("Give the kit a method `stop_server`.")

    async def start_server(self) -> None:
        """Start the server at the same address, with or without its data."""
        raise NotImplementedError("Give the kit a method `start_server`.")

    async def flush_server(self) -> None:
        """Delete all data on the server without closing connections."""
        raise NotImplementedError("Give the kit a method `flush_server`.")

    async def trim_server(self) -> None:
        """Delete all messages on the server, as if they had expired."""
        raise NotImplementedError("Give the kit a method `trim_server`.")

    async def on_the_server(self) -> bytes:
        """All data on the server."""
        raise NotImplementedError("Give the kit a method `on_the_server`.")

    async def test_without_its_server_publishing_neither_waits_nor_raises(self) -> None:
        """Readers here still hear what is published here."""
        async with self.two() as (bus, other):
            far, near = other.subscribe(RUN), bus.subscribe(RUN)
            await until_heard(bus, far)
            await self.stop_server()
            for n in range(1, 200):
                bus.publish(RUN, notices(n, n))
                assert (await heard(near, n))[-1:] == notices(n, n)
            other.subscribe("run_2").close()
            assert not [event for event in await far.get(0) if event.event.sequence_number]

    async def test_a_check_fails_while_the_server_does_not_answer(self) -> None:
        """The check answers at once, also for an unused bus."""
        async with self.two() as (bus, _):
            await bus.check()
            await self.stop_server()
            with pytest.raises(TailraceError):
                await bus.check()
            await self.start_server()
            await bus.check()

    async def test_after_a_restart_readers_hear_again(self) -> None:
        """Existing and new readers, after several restarts."""
        async with self.two() as (bus, other):
            subscription = other.subscribe(RUN)
            for n in (1, 2, 3):
                await until_heard(bus, subscription)
                await self.stop_server()
                bus.publish(RUN, notices(1000, 1001))
                await self.start_server()
                await until_heard(bus, subscription)
                bus.publish(RUN, notices(n, n))
                assert (await heard(subscription, n))[-1:] == notices(n, n)
                new = other.subscribe(f"new_{n}")
                await until_heard(bus, new, f"new_{n}")

    async def test_after_a_restart_readers_read_the_log(self) -> None:
        """They miss what was published meanwhile, and learn of it at once."""
        async with self.two() as (bus, other):
            subscription = other.subscribe(RUN)
            await until_heard(bus, subscription)
            await self.stop_server()
            await self.start_server()
            async with asyncio.timeout(DEADLINE):
                while await subscription.get(10 * DEADLINE):
                    pass

    async def test_after_a_flush_readers_hear_again(self) -> None:
        """Positions in the server's streams are invalid after a flush."""
        async with self.two() as (bus, other):
            subscription = other.subscribe(RUN)
            await until_heard(bus, subscription)
            for n in (1, 2, 3):
                await self.flush_server()
                await until_heard(bus, subscription)
                bus.publish(RUN, notices(n, n))
                assert (await heard(subscription, n))[-1:] == notices(n, n)

    async def test_after_a_trim_readers_hear_again(self) -> None:
        """The trimmed events are in the log."""
        async with self.two() as (bus, other):
            subscription = other.subscribe(RUN)
            await until_heard(bus, subscription)
            for n in (1, 2, 3):
                await self.trim_server()
                bus.publish(RUN, notices(n, n))
                assert (await heard(subscription, n))[-1:] == notices(n, n)

    async def test_no_private_part_reaches_the_server(self) -> None:
        """The server stores only what clients may see."""
        async with self.two() as (bus, other):
            subscription = other.subscribe(RUN)
            await until_heard(bus, subscription)
            emitter = Pipeline(_AcceptsAll(), bus).writer(RUN)  # type: ignore[arg-type]
            _emit_with_private_parts(emitter)
            await emitter.drain()
            assert len(await heard(subscription, 3)) == 3
            kept = await self.on_the_server()
            assert b"for clients" in kept
            assert b"canary" not in kept


class _AcceptsAll:
    """A log that stores nothing."""

    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        return [None] * len(batches)


def _emit_with_private_parts(emitter: Emitter) -> None:
    hidden = Private(provider={"key": "canary"}, options="canary", raw="canary")
    emitter.emit(TaskCreated(task_id=RUN), hidden)
    emitter.emit(TaskInProgress(task_id=RUN), hidden)
    emitter.emit(Notice(task_id=RUN, message="for clients"), hidden)


def _many_runs() -> list[str]:
    return [f"run_{n}" for n in range(1, 21)] + ["run", "Run_1", "run_1 ", "läuft", "a:b*c\n"]
