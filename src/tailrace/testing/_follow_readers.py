"""The follow kit, first part: no gap, no repeat, from any cursor, whatever the bus does."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tailrace.core.errors import NotFound, StorageError
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.snapshot import save
from tailrace.ports import Bus, Store, Trimmed
from tailrace.runtime import retry, shared, tail
from tailrace.runtime.follow import Place, Reader, RunTrimmed
from tailrace.runtime.pipeline import Emitter, Pipeline
from tailrace.runtime.shared import Streams
from tailrace.testing._follow import (
    FAULTS,
    Counting,
    FollowTests,
    Misbehaving,
    OpenBus,
    OpenStore,
    begun,
    end,
    numbers,
    until,
    write,
    write_slowly,
)
from tailrace.wire import openai_responses, task
from tailrace.wire.base import Encoder


async def trimmed(store: Store, run_id: str) -> None:
    """Let retention take an ended run's events."""
    await store.trim(run_id, save(await Reader(store, None).state(run_id)))  # type: ignore[arg-type]


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

    @pytest.mark.parametrize("fault", FAULTS)
    async def test_a_bus_that_misbehaves_costs_nothing_but_time(
        self, store: Store, bus: Bus, fault: str
    ) -> None:
        emitter = await begun(store, Misbehaving(bus, fault))
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
        """A writer that is killed between append and publish leaves no more than this behind."""
        bus, other = await open_bus(), await open_store()
        emitter = await begun(store, Misbehaving(bus, "dead"))
        reader = Reader(other, bus)
        source = reader.follow("run_1", 2)
        coming = asyncio.ensure_future(anext(source))
        await _waiting(reader, "run_1")
        write(emitter, 1)
        await emitter.drain()
        written = time.monotonic()
        while not (batch := await coming):
            coming = asyncio.ensure_future(anext(source))
        assert [one.event.sequence_number for one in batch] == [3]
        assert time.monotonic() - written < 1.5
        await source.aclose()
        await other.close()
        await bus.close()

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
        assert [one.event.sequence_number for one in first] + rest == list(range(1, last + 1))

    async def test_all_followers_of_a_run_share_one_ear_and_all_runs_one_poll(
        self, store: Store, bus: Bus
    ) -> None:
        emitters = [await begun(store, bus, f"run_{n}") for n in range(5)]
        counting: Any = Counting(store)
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
            for one in batch:
                assert one.event.sequence_number == state.sequence_number + 1
                state.absorb(one.event)
        await writing
        assert save(state) == save(emitter.state) == save(await reader.state("run_1"))

    async def test_what_retention_took_is_told_and_never_skipped(
        self, store: Store, bus: Bus
    ) -> None:
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
            await numbers(reader.follow("nobody"))
        await begun(store, bus)
        following = asyncio.ensure_future(numbers(reader.follow("run_1", 2)))
        await _waiting(reader, "run_1")
        assert await store.delete("run_1")
        with pytest.raises(NotFound):
            await following

    async def test_a_store_that_is_away_for_a_moment_is_waited_for(
        self, store: Store, bus: Bus
    ) -> None:
        emitter = await begun(store, bus)
        counting: Any = Counting(store)
        failures = iter([StorageError("away")] * 3)
        counting.fail = lambda name: next(failures, None) if name == "read" else None
        following = asyncio.ensure_future(numbers(Reader(counting, bus).follow("run_1")))
        last = await write_slowly(emitter, 10)
        assert await following == list(range(1, last + 1))

    async def test_a_store_that_stays_away_is_a_typed_error(
        self, store: Store, bus: Bus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(retry, "PATIENCE_SECONDS", 0.2)
        monkeypatch.setattr(tail, "PATIENCE_SECONDS", 0.2)
        await begun(store, bus)
        counting: Any = Counting(store)
        reader = Reader(counting, bus, poll=0.05)
        waiting = asyncio.ensure_future(numbers(reader.follow("run_1", 2)))
        await _waiting(reader, "run_1")
        counting.fail = lambda _: StorageError("away")
        with pytest.raises(StorageError, match="away"):
            await numbers(reader.follow("run_1"))
        with pytest.raises(StorageError, match="away"):
            await waiting

    async def test_the_bytes_of_a_stale_writer_never_appear(self, store: Store, bus: Bus) -> None:
        stale = await begun(store, bus)
        reader = Reader(store, bus)
        following = asyncio.ensure_future(_texts(reader, "run_1"))
        claim = await store.take_over("run_1", "another", 60.0)
        assert claim is not None
        fresh = await _successor(store, bus, claim.epoch)
        write(stale, 3)
        with pytest.raises(StorageError):
            await stale.drain()
        write(fresh, 3)
        await end(fresh)
        found = await following
        assert found == [(one.epoch, one.public) for one in await store.read("run_1", 0)]
        assert {epoch for epoch, _ in found[2:]} == {claim.epoch}


class StreamTests(FollowTests):
    """One run in a format: encoded once, for everybody."""

    @pytest.mark.parametrize("wire", [task.FORMAT, openai_responses.FORMAT])
    async def test_a_crowd_gets_the_same_bytes_and_each_event_is_encoded_once(
        self, store: Store, bus: Bus, wire: Any
    ) -> None:
        emitter = await begun(store, bus)
        counted = CountingFormat(wire)
        streams = Streams(Reader(store, bus))
        crowd = [
            asyncio.ensure_future(_bytes(streams, counted, "run_1", after=0)) for _ in range(100)
        ]
        await _waiting(streams.reader, "run_1", len(crowd))
        before = counted.encoded
        last = await write_slowly(emitter, 60)
        whole = {await found for found in crowd}
        encoder = wire.at(State())
        events = await store.read("run_1", 0)
        assert whole == {b"".join(frame for one in events for frame in encoder.encode(one))}
        assert counted.encoded - before == last - 2
        assert not len(streams)

    async def test_any_cursor_joins_the_ring_without_a_seam(
        self, store: Store, bus: Bus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shared, "RING_EVENTS", 16)
        emitter = await begun(store, bus)
        streams = Streams(Reader(store, bus))
        wire: Any = openai_responses.FORMAT
        following = []
        for after in range(40):
            joined = emitter.state.sequence_number if after > 2 else 0
            cut = min(after, joined)
            following.append(
                (cut, asyncio.ensure_future(_bytes(streams, wire, "run_1", after=cut)))
            )
            write(emitter, 2)
            await emitter.drain()
        await end(emitter)
        events = await store.read("run_1", 0)
        encoder = wire.at(State())
        frames = [b"".join(encoder.encode(one)) for one in events]
        for cut, found in following:
            assert await found == b"".join(frames[cut:])

    async def test_a_client_that_falls_out_of_the_ring_goes_on_through_the_log(
        self, store: Store, bus: Bus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shared, "RING_EVENTS", 8)
        monkeypatch.setattr(tail, "RING_EVENTS", 8)
        emitter = await begun(store, bus)
        wire: Any = openai_responses.FORMAT
        streams = Streams(Reader(store, bus))
        slow = aiter(streams.stream(wire, "run_1", wire.at(State()), 0))
        pieces = [await anext(slow)]
        quick = asyncio.ensure_future(_bytes(streams, wire, "run_1", after=0))
        for _ in range(3):
            write(emitter, 2)
            await emitter.drain()
            pieces.append(await anext(slow))
            for _ in range(5):
                write(emitter, 10)
                await emitter.drain()
        await end(emitter)
        pieces += [piece async for piece in slow]
        assert b"".join(pieces) == await quick


class ThreadTests(FollowTests):
    """The runs of a thread, one after another."""

    async def test_a_thread_is_followed_from_run_to_run_and_from_any_cursor(
        self, store: Store, bus: Bus
    ) -> None:
        reader = Reader(store, bus)
        early = asyncio.ensure_future(_places(reader, "t", "0", 18))
        for n in (1, 2, 3):
            emitter = await begun(store, bus, f"run_{n}")
            # Another thread's run, and one that begins before this one has ended.
            await end(await begun(store, bus, f"other_{n}", thread_id="other"))
            await write_slowly(emitter, 3)
        every = [f"{run}:{seq}" for run in (1, 2, 3) for seq in range(1, 7)]
        assert await early == every
        for place, cursor in enumerate(every[:-1], 1):
            assert await _places(reader, "t", cursor, len(every) - place) == every[place:]

    async def test_a_thread_with_several_live_runs_keeps_their_order(
        self, store: Store, bus: Bus
    ) -> None:
        emitters = [await begun(store, bus, f"run_{n}") for n in (1, 2)]
        found = asyncio.ensure_future(_places(Reader(store, bus), "t", "0", 8))
        await write_slowly(emitters[1], 1)
        await write_slowly(emitters[0], 1)
        assert await found == [f"{run}:{seq}" for run in (1, 2) for seq in (1, 2, 3, 4)]

    async def test_a_trimmed_run_of_a_thread_is_told_and_can_be_passed(
        self, store: Store, bus: Bus
    ) -> None:
        for n in (1, 2):
            await write_slowly(await begun(store, bus, f"run_{n}"), 1)
        await trimmed(store, "run_1")
        reader = Reader(store, bus)
        with pytest.raises(RunTrimmed) as told:
            await _places(reader, "t", "0", 1)
        gone = told.value.run
        rest = await _places(reader, "t", str(Place(gone.ordinal, gone.last_seq)), 4)
        assert rest == ["2:1", "2:2", "2:3", "2:4"]


class CountingFormat:
    """A format that counts what its encoders do."""

    def __init__(self, wire: Any) -> None:
        self._wire = wire
        self.encoded = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)

    def at(self, state: State) -> Encoder:
        """An encoder that is counted."""
        inner: Encoder = self._wire.at(state)
        outer = self

        class Counted:
            def encode(self, recorded: Recorded) -> list[bytes]:
                outer.encoded += 1
                return inner.encode(recorded)

            def close(self, reason: str) -> list[bytes]:
                return inner.close(reason)

        return Counted()


async def _bytes(streams: Streams, wire: Any, run_id: str, after: int) -> bytes:
    state = await streams.reader.state(run_id, after) if after else State()
    return b"".join([piece async for piece in streams.stream(wire, run_id, wire.at(state), after)])


async def _waiting(reader: Reader, run_id: str, count: int = 1) -> None:
    """Wait until so many followers of a run have seen all there is."""
    await until(lambda: (found := reader.tails.get(run_id)) is not None and found.waiting >= count)


async def _texts(reader: Reader, run_id: str) -> list[tuple[int, bytes]]:
    return [(one.epoch, one.public) async for batch in reader.follow(run_id) for one in batch]


async def _successor(store: Store, bus: Bus, epoch: int) -> Emitter:
    state = await Reader(store, bus).state("run_1")
    return Pipeline(store, bus).writer("run_1", epoch, state)


async def _places(reader: Reader, thread_id: str, after: str, count: int) -> list[str]:
    found: list[str] = []
    async for run, batch in reader.follow_thread(thread_id, after):
        found += [str(Place(run.ordinal, one.event.sequence_number)) for one in batch]
        if len(found) >= count:
            break
    return found
