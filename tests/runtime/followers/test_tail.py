"""How a run's tail wakes its readers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import msgspec
import pytest

from tailrace.buses.local import LocalBus
from tailrace.core.errors import NotFound
from tailrace.core.events import Recorded
from tailrace.runtime.followers import tail as tails
from tailrace.runtime.followers.tail import Tail, Tails
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.bus_kit import notices
from tailrace.testing.store_kit.setup import batch, created
from tailrace.testing.waiting import until

RUN = "run_1"


@pytest.fixture
async def found() -> AsyncIterator[Tail]:
    """A tail that knows that the run has one event."""
    log = SqliteStore(":memory:")
    await created(log, RUN)
    known = Tails(log, LocalBus(), poll=60.0)
    tail = known.take(RUN)
    await tail.find_end()
    yield tail
    await known.close()
    await log.close()


async def test_a_crowd_is_woken_at_once_and_then_once_per_rest(
    found: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[int]] = [[] for _ in range(tails.CROWD)]

    async def read(place: int) -> None:
        while found.last < 61:
            await found.moved()
            seen[place].append(found.last)
            time.sleep(0.03)  # noqa: ASYNC251  # as writing to many sockets takes

    monkeypatch.setattr(tails, "LONGEST_REST", 1.0)
    readers = [asyncio.ensure_future(read(place)) for place in range(len(seen))]
    await asyncio.sleep(0)
    assert found.waiting == tails.CROWD
    for number in range(2, 62):
        found.feed(notices(number, number))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert all(one == [2] for one in seen)
    await asyncio.wait_for(asyncio.gather(*readers), 5)
    assert all(one == [2, 61] for one in seen)


async def test_a_few_readers_never_wait_for_a_rest(found: Tail) -> None:
    seen: list[int] = []

    async def read() -> None:
        while found.last < 20:
            await found.moved()
            seen.append(found.last)

    reader = asyncio.ensure_future(read())
    for number in range(2, 21):
        await asyncio.sleep(0)
        found.feed(notices(number, number))
        await asyncio.sleep(0)
    await asyncio.wait_for(reader, 5)
    assert seen == list(range(2, 21))


async def test_readers_that_left_are_not_kept(found: Tail) -> None:
    staying = asyncio.ensure_future(_wait(found))
    for _ in range(1000):
        leaving = asyncio.ensure_future(_wait(found))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
    assert found.waiting == 1
    assert len(found._waiting) < 10
    found.wake()
    await asyncio.wait_for(staying, 5)


async def test_events_that_come_while_the_log_is_read_need_no_second_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, bus = SqliteStore(":memory:"), LocalBus()
    await created(log, RUN)
    known = Tails(log, bus, poll=60.0)
    tail = known.take(RUN)
    await tail.find_end()
    await log.append([batch(RUN, 2, count=4)])
    reads: list[int] = []

    async def read(run_id: str, after: int) -> list[Recorded]:
        reads.append(after)
        found = await SqliteStore.read(log, run_id, after)
        bus.publish(RUN, notices(6, 6))  # the run writes while its log is read
        return found

    monkeypatch.setattr(log, "read", read)
    bus.publish(RUN, notices(5, 5))
    await until(lambda: tail.last == 6)
    assert reads == [1]
    assert [one.event.sequence_number for one in tail.since(1) or []] == [2, 3, 4, 5, 6]
    await known.close()
    await log.close()


@pytest.mark.parametrize("by", ["the poller", "a hole", "the bus"])
async def test_another_run_with_the_id_of_a_deleted_run_is_not_followed(by: str) -> None:
    """Its events would continue those of the deleted run."""
    log, bus = SqliteStore(":memory:"), LocalBus()
    await created(log, RUN, epoch=5_000_000_000)
    known = Tails(log, bus, poll=60.0)
    tail = known.take(RUN)
    await tail.find_end()
    await log.delete(RUN)
    other = 3_000_000_000
    await created(log, RUN, epoch=other)
    await log.append([batch(RUN, 2, count=4, epoch=other)])
    if by == "the poller":
        tail.look((await log.heads([RUN]))[RUN])
    elif by == "a hole":
        bus.miss(RUN)
    else:
        bus.publish(RUN, await log.read(RUN, 1))
    await until(lambda: tail.failure is not None)
    assert isinstance(tail.failure, NotFound)
    assert tail.last == 1
    await known.close()
    await log.close()


async def test_the_next_writer_of_a_run_is_followed(found: Tail) -> None:
    found._hear([msgspec.structs.replace(one, epoch=2) for one in notices(2, 2)])
    found._hear(notices(2, 2))  # the bus repeats what the writer before wrote
    assert (found.last, found.failure) == (2, None)


async def test_an_event_that_the_log_does_not_lead_to_is_dropped(found: Tail) -> None:
    found._hear(notices(9, 9))
    await until(lambda: not found.kept)
    assert found.last == 1


async def test_events_behind_a_hole_are_kept_within_bounds(
    found: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tails, "RING_EVENTS", 10)
    assert not found.feed(notices(5, 12))
    assert len(found.kept) == 8
    assert not found.feed(notices(13, 20))
    assert not found.kept


async def test_events_that_are_taken_at_once_wake_no_reader(found: Tail) -> None:
    taken: list[int] = []

    def take() -> bool:
        taken.append(found.last)
        return found.last < 4

    moved = found.moved(take)
    for number in (2, 3):
        found.feed(notices(number, number))
        assert not moved.done()
    found.feed(notices(4, 4))
    assert moved.done()
    assert taken == [2, 3, 4]


async def test_a_reader_that_cannot_take_events_gets_the_error_and_the_publisher_does_not(
    found: Tail,
) -> None:
    def take() -> bool:
        raise ValueError("no")

    failing, other = found.moved(take), found.moved()
    found.feed(notices(2, 2))
    assert other.done()
    with pytest.raises(ValueError, match="no"):
        await failing


async def test_the_readers_of_a_crowd_are_woken_so_that_the_publisher_goes_on(
    found: Tail,
) -> None:
    crowd = [found.moved(lambda: True) for _ in range(tails.CROWD)]
    found.feed(notices(2, 2))
    assert all(one.done() for one in crowd)


async def _wait(found: Tail) -> None:
    await found.moved()
