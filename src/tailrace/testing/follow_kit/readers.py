"""The follow kit: readers get no gap and no repeat, from any cursor."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tailrace.core.errors import NotFound, StorageError
from tailrace.core.events import OutputItemAdded, OutputItemDone, TaskAttempt
from tailrace.core.items import Message
from tailrace.core.snapshot import save
from tailrace.ports import Bus, Store, Trimmed
from tailrace.runtime.event_log import emitter as emitters
from tailrace.runtime.event_log import store_retry
from tailrace.runtime.event_log.emitter import Emitter
from tailrace.runtime.event_log.pipeline import Pipeline
from tailrace.runtime.followers import tail
from tailrace.runtime.followers.follow import Reader
from tailrace.testing.follow_kit.setup import (
    CountingStore,
    FollowTests,
    all_seen,
    begun,
    end,
    numbers,
    trimmed,
    write,
    write_slowly,
)
from tailrace.testing.waiting import until
from tailrace.wire import task


class ReaderTests(FollowTests):
    """One run, followed."""

    async def test_every_cursor_gets_the_rest_once_while_the_run_is_written(
        self, store: Store, bus: Bus
    ) -> None:
        emitter = await begun(store, bus)
        write(emitter, 8)
        await emitter.drain()
        reader = Reader(store, bus)
        following = [
            asyncio.ensure_future(numbers(reader.follow("run_1", after))) for after in range(14)
        ]
        last = await write_slowly(emitter, 100)
        for after, found in enumerate(following):
            assert await found == list(range(after + 1, last + 1))
        assert not len(reader.tails)

    async def test_a_run_that_has_ended_is_replayed_from_any_cursor(
        self, store: Store, bus: Bus
    ) -> None:
        last = await write_slowly(await begun(store, bus), 20)
        reader = Reader(store, bus)
        for after in range(last + 1):
            assert await numbers(reader.follow("run_1", after)) == list(range(after + 1, last + 1))

    async def test_a_slow_follower_is_bounded_and_misses_nothing(
        self, store: Store, bus: Bus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tail, "RING_EVENTS", 10)
        emitter = await begun(store, bus)
        reader = Reader(store, bus)
        source = reader.follow("run_1")
        first = await anext(source)
        slow = reader.tails.take("run_1")
        await slow.find_end()
        for _ in range(30):
            write(emitter, 7)
            await emitter.drain()
        last = await end(emitter)
        await slow.find_end()
        held = slow.since(last - 10)
        assert held is not None
        assert len(held) == 10
        assert slow.since(last - 11) is None
        reader.tails.give_back(slow)
        rest = await numbers(source)
        assert [recorded.event.sequence_number for recorded in first] + rest == list(
            range(1, last + 1)
        )

    async def test_all_followers_of_a_run_share_one_ear_and_all_runs_one_poll(
        self, store: Store, bus: Bus
    ) -> None:
        emitters = [await begun(store, bus, f"run_{n}") for n in range(5)]
        counting: Any = CountingStore(store)
        reader = Reader(counting, bus, poll=0.05)
        sources = [reader.follow(emitter.run_id, 2) for emitter in emitters for _ in range(20)]
        following = [asyncio.ensure_future(numbers(source)) for source in sources]
        await until(
            lambda: any(name == "heads" and len(args[0]) == 5 for name, args in counting.calls)
        )
        assert len(reader.tails) == 5
        for emitter in emitters:
            await end(emitter)
        assert await asyncio.gather(*following) == [[3]] * 100
        assert not len(reader.tails)

    async def test_a_state_can_be_followed_on(self, store: Store, bus: Bus) -> None:
        emitter = await begun(store, bus)
        write(emitter, 5)
        await emitter.drain()
        reader = Reader(store, bus)
        state = await reader.state("run_1")
        writing = asyncio.ensure_future(write_slowly(emitter, 40))
        async for batch in reader.follow("run_1", state):
            for recorded in batch:
                assert recorded.event.sequence_number == state.sequence_number + 1
                state.absorb(recorded.event)
        await writing
        assert save(state) == save(emitter.state) == save(await reader.state("run_1"))

    @pytest.mark.parametrize("snapshot", [False, True])
    async def test_superseded_items_are_found_in_a_snapshot_and_after_it(
        self, store: Store, bus: Bus, monkeypatch: pytest.MonkeyPatch, *, snapshot: bool
    ) -> None:
        if snapshot:  # after each event
            monkeypatch.setattr(emitters, "MIN_SNAPSHOT_BYTES", 1)
        reader = Reader(store, bus)
        emitter = await begun(store, bus)
        item = Message(id="m", role="assistant", block_list=[])
        emitter.emit(OutputItemAdded(task_id="run_1", output_index=0, item=item))
        cut = Message(id="m", role="assistant", block_list=[], status="incomplete")
        emitter.emit(OutputItemDone(task_id="run_1", output_index=0, item=cut))
        await emitter.drain()
        assert not await reader.was_taken_back(task.FORMAT, "run_1")
        emitter.emit(TaskAttempt(task_id="run_1", attempt=2, reason="lost", superseded=["m"]))
        await emitter.drain()
        assert await reader.was_taken_back(task.FORMAT, "run_1")
        write(emitter, 20)
        await emitter.drain()
        assert (await store.snapshot("run_1") is not None) is snapshot
        assert await Reader(store, bus).was_taken_back(task.FORMAT, "run_1")
        with pytest.raises(NotFound):
            await reader.was_taken_back(task.FORMAT, "missing")

    async def test_a_deleted_event_is_a_gap_and_never_skipped(self, store: Store, bus: Bus) -> None:
        last = await write_slowly(await begun(store, bus), 10)
        reader = Reader(store, bus)
        final = save(await reader.state("run_1"))
        await trimmed(store, "run_1")
        for after in (0, 1, last - 1):
            with pytest.raises(Trimmed):
                await numbers(reader.follow("run_1", after))
        assert await numbers(reader.follow("run_1", last)) == []
        assert save(await reader.state("run_1")) == final

    async def test_a_run_that_is_not_there_is_not_found(self, store: Store, bus: Bus) -> None:
        reader = Reader(store, bus, poll=0.05)
        with pytest.raises(NotFound):
            await numbers(reader.follow("missing"))
        await begun(store, bus)
        following = asyncio.ensure_future(numbers(reader.follow("run_1", 2)))
        await all_seen(reader, "run_1")
        assert await store.delete("run_1")
        with pytest.raises(NotFound):
            await following

    async def test_a_store_that_is_away_for_a_moment_is_waited_for(
        self, store: Store, bus: Bus
    ) -> None:
        emitter = await begun(store, bus)
        counting: Any = CountingStore(store)
        failures = iter([StorageError("away")] * 3)
        counting.fail = lambda name: next(failures, None) if name == "read" else None
        following = asyncio.ensure_future(numbers(Reader(counting, bus).follow("run_1")))
        last = await write_slowly(emitter, 10)
        assert await following == list(range(1, last + 1))

    async def test_a_store_that_stays_away_is_a_typed_error(
        self, store: Store, bus: Bus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store_retry, "PATIENCE_SECONDS", 0.2)
        monkeypatch.setattr(tail, "PATIENCE_SECONDS", 0.2)
        await begun(store, bus)
        counting: Any = CountingStore(store)
        reader = Reader(counting, bus, poll=0.05)
        waiting = asyncio.ensure_future(numbers(reader.follow("run_1", 2)))
        await all_seen(reader, "run_1")
        counting.fail = lambda _: StorageError("away")
        with pytest.raises(StorageError, match="away"):
            await numbers(reader.follow("run_1"))
        with pytest.raises(StorageError, match="away"):
            await waiting

    async def test_the_bytes_of_a_stale_writer_never_appear(self, store: Store, bus: Bus) -> None:
        stale = await begun(store, bus)
        reader = Reader(store, bus)
        following = asyncio.ensure_future(_texts(reader, "run_1"))
        await all_seen(reader, "run_1")
        claim = await store.take_over("run_1", "another", 60.0)
        assert claim is not None
        fresh = await _successor(store, bus, claim.epoch)
        write(stale, 3)
        with pytest.raises(StorageError):
            await stale.drain()
        write(fresh, 3)
        await end(fresh)
        found = await following
        assert found == [
            (recorded.epoch, recorded.public) for recorded in await store.read("run_1", 0)
        ]
        assert {epoch for epoch, _ in found[2:]} == {claim.epoch}


async def _texts(reader: Reader, run_id: str) -> list[tuple[int, bytes]]:
    return [
        (recorded.epoch, recorded.public)
        async for batch in reader.follow(run_id)
        for recorded in batch
    ]


async def _successor(store: Store, bus: Bus, epoch: int) -> Emitter:
    state = await Reader(store, bus).state("run_1")
    return Pipeline(store, bus).writer("run_1", epoch, state)
