"""The follow kit: a run sent to many readers, and a thread of several runs."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import Any

import pytest

from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.writers import MessageWriter
from tailrace.ports import Bus, Store
from tailrace.runtime.followers import fanout, tail
from tailrace.runtime.followers.fanout import Streams
from tailrace.runtime.followers.follow import Reader
from tailrace.runtime.tasks.task_sink import TaskSink
from tailrace.testing.follow_kit.setup import FollowTests, all_seen, begun, end, write_slowly
from tailrace.testing.waiting import until
from tailrace.wire import openai_responses, task
from tailrace.wire.base import Encoder


class StreamTests(FollowTests):
    """A run is encoded once per format, for all readers."""

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
        await all_seen(streams.reader, "run_1", len(crowd))
        before = counted.encoded
        last = await write_slowly(emitter, 60)
        whole = {await found for found in crowd}
        encoder = wire.at(State())
        events = await store.read("run_1", 0)
        assert whole == {b"".join(frame for event in events for frame in encoder.encode(event))}
        assert counted.encoded - before == last - 2
        assert not len(streams)

    async def test_any_cursor_joins_the_ring_without_a_seam(
        self, store: Store, bus: Bus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fanout, "RING_EVENTS", 16)
        emitter = await begun(store, bus)
        message = MessageWriter(TaskSink(emitter, "run_1"))
        streams = Streams(Reader(store, bus))
        wire: Any = openai_responses.FORMAT
        following = []
        for after in range(40):
            joined = emitter.state.sequence_number if after > 2 else 0
            cut = min(after, joined)
            following.append(
                (cut, asyncio.ensure_future(_bytes(streams, wire, "run_1", after=cut)))
            )
            _say(message, 2)
            await emitter.drain()
        message.finish()
        await end(emitter)
        events = await store.read("run_1", 0)
        encoder = wire.at(State())
        frames = [b"".join(encoder.encode(event)) for event in events]
        for cut, found in following:
            assert await found == b"".join(frames[cut:])

    @pytest.mark.parametrize("longest", [8, 1000])
    async def test_a_client_that_falls_out_of_the_ring_goes_on_through_the_log(
        self, store: Store, bus: Bus, monkeypatch: pytest.MonkeyPatch, longest: int
    ) -> None:
        monkeypatch.setattr(fanout, "RING_EVENTS", 8)
        monkeypatch.setattr(tail, "RING_EVENTS", longest)
        emitter = await begun(store, bus)
        message = MessageWriter(TaskSink(emitter, "run_1"))
        wire: Any = openai_responses.FORMAT
        streams = Streams(Reader(store, bus))
        slow = aiter(streams.stream(wire, "run_1", wire.at(State()), 0))
        quick = asyncio.ensure_future(_bytes(streams, wire, "run_1", after=0))
        pieces: list[bytes] = []

        async def waiting() -> asyncio.Future[bytes]:
            """Read until both have seen every event; returns what the slow reader waits for."""
            while True:
                coming = asyncio.ensure_future(anext(slow))
                await until(partial(_done_or_waiting, coming, streams.reader))
                if not coming.done():
                    return coming
                pieces.append(coming.result())

        for _ in range(3):
            coming = await waiting()
            _say(message, 2)
            await emitter.drain()
            pieces.append(await coming)
            for _ in range(5):
                _say(message, 10)
                await emitter.drain()
                await all_seen(streams.reader, "run_1")
        coming = await waiting()
        message.finish()
        await end(emitter)
        pieces += [await coming, *[piece async for piece in slow]]
        assert b"".join(pieces) == await quick


class ThreadTests(FollowTests):
    """The runs of a thread, one after another."""

    async def test_a_thread_is_followed_from_run_to_run_and_from_any_cursor(
        self, store: Store, bus: Bus
    ) -> None:
        reader = Reader(store, bus)
        early = asyncio.ensure_future(_places(reader, "t", "0:0", 18))
        for n in (1, 2, 3):
            emitter = await begun(store, bus, f"run_{n}")
            # Another thread's run, and a run that begins before this run has ended.
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
        found = asyncio.ensure_future(_places(Reader(store, bus), "t", "0:0", 8))
        await write_slowly(emitters[1], 1)
        await write_slowly(emitters[0], 1)
        assert await found == [f"{run}:{seq}" for run in (1, 2) for seq in (1, 2, 3, 4)]


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


def _say(message: MessageWriter, words: int) -> None:
    """Write events that every format shows."""
    for number in range(words):
        message.text(f"word {number} ")


def _done_or_waiting(coming: asyncio.Future[bytes], reader: Reader) -> bool:
    found = reader.tails.get("run_1")
    return coming.done() or (found is not None and found.waiting == 2)


async def _places(reader: Reader, thread_id: str, after: str, count: int) -> list[str]:
    """The first `count` events of a thread after a place, each as `ordinal:seq`."""
    ordinal, seq = map(int, after.split(":"))
    found: list[str] = []
    async with aclosing(reader.thread_runs(thread_id, ordinal)) as runs:
        async for run in runs:
            if run is not None:
                seen = seq if run.ordinal == ordinal else 0
                async for batch in reader.follow(run.run_id, seen):
                    found += [
                        f"{run.ordinal}:{recorded.event.sequence_number}" for recorded in batch
                    ]
            if len(found) >= count:
                break
    return found
