"""What a stream checks before it sends anything."""

from __future__ import annotations

import asyncio
import gc
import weakref
from itertools import cycle
from typing import Any

import pytest

from tailrace.buses.local import LocalBus
from tailrace.core.errors import StorageError
from tailrace.core.events import Notice, Recorded, TaskInputReceived, TaskInputRequired
from tailrace.core.fold import State
from tailrace.core.items import InputRequest
from tailrace.core.json_pieces import PIECE_BYTES
from tailrace.core.log_lines import LogLines
from tailrace.runtime.event_log.emitter import Emitter
from tailrace.runtime.followers import tail as tails
from tailrace.runtime.followers.fanout import Stream, Streams, WriteNow
from tailrace.runtime.followers.follow import Reader
from tailrace.runtime.followers.tail import RING_EVENTS
from tailrace.runtime.tasks.task import Task
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.follow_kit.setup import CountingStore, begun, end, write
from tailrace.testing.waiting import until
from tailrace.wire import run, task
from tailrace.wire.base import Format
from tailrace.wire.formats import FORMATS
from tailrace.wire.run.encoder import RunEncoder


class Early(CountingStore):
    """A log that answers with events that the reader has."""

    async def read(self, run_id: str, after: int, limit: int = 10_000) -> Any:
        return await self._store.read(run_id, after - 1, limit)

    async def read_lines(self, run_id: str, after: int, limit: int) -> Any:
        return await self._store.read_lines(run_id, after - 1, limit)


REPEATED = "Event 3 of run run_1 does not follow event 3"


@pytest.mark.parametrize("wire", FORMATS.values(), ids=FORMATS)
async def test_events_that_do_not_continue_after_the_last_sent_event_are_not_sent(
    wire: Format,
) -> None:
    store, bus = SqliteStore(":memory:"), LocalBus()
    emitter = await begun(store, bus)
    write(emitter, 5)
    await end(emitter)

    early: Any = Early(store)
    stream = Streams(Reader(early, bus)).stream(wire, "run_1", wire.at(State()), 3)
    with pytest.raises(StorageError, match=REPEATED):
        await stream.next()
    assert stream.seen == 3
    stream.close()
    await store.close()


async def test_events_that_do_not_continue_after_the_last_event_are_not_given_to_a_program() -> (
    None
):
    store, bus = SqliteStore(":memory:"), LocalBus()
    emitter = await begun(store, bus)
    write(emitter, 5)
    await end(emitter)
    early: Any = Early(store)
    following = Reader(early, bus).follow("run_1", 3)
    with pytest.raises(StorageError, match=REPEATED):
        await anext(following)
    await following.aclose()
    await store.close()


async def test_a_run_that_writes_during_each_read_is_soon_followed_without_the_log() -> None:
    store, bus = SqliteStore(":memory:"), LocalBus()
    emitter = await begun(store, bus)
    write(emitter, 5)
    await emitter.drain()
    reads: list[int] = []

    class Slow(CountingStore):
        """A log that is read more slowly than the run writes."""

        async def read_lines(self, run_id: str, after: int, limit: int) -> Any:
            reads.append(after)
            write(emitter, 1)
            await emitter.drain()
            return await store.read_lines(run_id, after, limit)

    slow: Any = Slow(store)
    stream = Streams(Reader(slow, bus)).stream(task.FORMAT, "run_1", task.FORMAT.at(State()), 0)
    for _ in range(20):
        await stream.next()
        write(emitter, 1)
        await emitter.drain()
    assert len(reads) < 3
    stream.close()
    await store.close()


async def say(emitter: Emitter) -> None:
    """A message of 100,000 bytes: the text as a delta, and once more at its end."""
    with Task(emitter, "run_1").message() as message:
        message.text("x" * 50_000)
    await emitter.drain()


async def riding(emitter: Emitter, streams: Streams, wire: Format) -> list[Stream]:
    """Two readers that take the shared frames."""
    readers = [streams.stream(wire, "run_1", wire.at(State()), 0) for _ in range(2)]
    for reader in readers:
        await reader.next()
    waiting = [asyncio.ensure_future(reader.next()) for reader in readers]
    tail = streams.reader.tails.get("run_1")
    assert tail is not None
    await until(lambda: tail.waiting == 2)
    await say(emitter)
    await asyncio.gather(*waiting)
    for reader in readers:
        while reader.seen < emitter.state.sequence_number:
            await reader.next()
    return readers


@pytest.mark.parametrize("wire", FORMATS.values(), ids=FORMATS)
async def test_readers_that_are_far_behind_the_end_of_their_run_get_all_of_it(wire: Format) -> None:
    store, bus = SqliteStore(":memory:"), LocalBus()
    emitter = await begun(store, bus)
    streams = Streams(Reader(store, bus))
    readers = await riding(emitter, streams, wire)
    seen = readers[0].seen
    for _ in range(2 * PIECE_BYTES // 50_000):
        await say(emitter)
    await end(emitter)
    encoder, expected = wire.at(State()), b""
    async for batch in streams.reader.follow("run_1"):
        for one in batch:
            frames = encoder.encode(one)
            expected += b"".join(frames) if one.event.sequence_number > seen else b""
    for reader in readers:
        found = [piece async for piece in reader]
        assert b"".join(found) == expected
    await store.close()


@pytest.mark.parametrize("rides", [True, False])
@pytest.mark.parametrize("name", ["ag-ui", "vercel-ui"])
async def test_a_stream_ends_at_a_pause_although_the_run_has_gone_on_since(
    name: str, rides: bool
) -> None:
    wire = FORMATS[name]
    store, bus = SqliteStore(":memory:"), LocalBus()
    emitter = await begun(store, bus)
    streams = Streams(Reader(store, bus))
    reader, sent_away = (
        await riding(emitter, streams, wire)
        if rides
        else [streams.stream(wire, "run_1", wire.at(State()), 0) for _ in range(2)]
    )
    seen = reader.seen
    paused_at = emitter.state.sequence_number + 1
    asked = InputRequest(id="r1", kind="input", message="Which city?")
    emitter.emit(TaskInputRequired(task_id="run_1", requests=[asked]))
    emitter.emit(TaskInputReceived(task_id="run_1", request_id="r1", value="Paris"))
    await say(emitter)
    encoder, expected = wire.at(State()), b""
    for one in await store.read("run_1", 0):
        frames = encoder.encode(one)
        if seen < one.event.sequence_number <= paused_at:
            expected += b"".join(frames)
    async with asyncio.timeout(20):
        assert b"".join([piece async for piece in reader]) == expected
    assert reader.seen == paused_at
    if rides:
        assert sent_away.closing("Bye.") == expected
    sent_away.close()
    await store.close()


async def test_readers_that_wait_for_one_read_let_others_work_after_each_of_them() -> None:
    store, bus = SqliteStore(":memory:"), LocalBus()
    emitter = await begun(store, bus)
    await say(emitter)
    await end(emitter)
    turns, encoded_in = 0, list[int]()

    class Noting(RunEncoder):
        def encode(self, recorded: Recorded) -> list[bytes]:
            encoded_in.append(turns)
            return super().encode(recorded)

    async def work() -> None:
        nonlocal turns
        while len(set(encoded_in)) < 5:
            turns += 1
            await asyncio.sleep(0)

    streams = Streams(Reader(store, bus))
    readers = [streams.stream(run.FORMAT, "run_1", Noting(State()), 0) for _ in range(5)]
    async with asyncio.timeout(120):
        await asyncio.gather(work(), *(reader.next() for reader in readers))
    for reader in readers:
        reader.close()
    await store.close()


@pytest.mark.parametrize("wire", [task.FORMAT, run.FORMAT], ids=["task", "run"])
@pytest.mark.parametrize("rides", [True, False])
async def test_a_reader_far_behind_is_sent_bounded_pieces(wire: Format, rides: bool) -> None:
    store, bus = SqliteStore(":memory:"), LocalBus()
    emitter = await begun(store, bus)
    streams = Streams(Reader(store, bus))
    readers = [streams.stream(wire, "run_1", wire.at(State()), 0) for _ in range(2)]
    pieces: list[list[bytes]] = [[], []]
    if rides:  # the second reader stalls at the shared frames
        readers = await riding(emitter, streams, wire)
    for _ in range(6):
        await say(emitter)
        if rides:
            pieces[0].append(await readers[0].next() or b"")
    await end(emitter)
    for reader, got in zip(readers, pieces, strict=True):
        got += [piece async for piece in reader]
    assert b"".join(pieces[0]) == b"".join(pieces[1])
    assert 1 < len(pieces[1]) < 6
    assert max(map(len, pieces[1])) < PIECE_BYTES + 160_000
    await store.close()


async def test_large_rows_of_frames_are_sent_without_a_copy_and_small_rows_together() -> None:
    store, bus = SqliteStore(":memory:"), LocalBus()
    emitter = await begun(store, bus)
    for count in (300, 50):
        for _ in range(2):
            for _ in range(count):
                emitter.emit(Notice(task_id="run_1", message="x" * 100))
            await emitter.drain()
        await store._sweep()
        await store.repack("run_1")
    write(emitter, 5)
    await end(emitter)
    rows: list[LogLines] = []

    class Noting(CountingStore):
        async def read_lines(self, run_id: str, after: int, limit: int) -> Any:
            rows.extend(found := await store.read_lines(run_id, after, limit))
            return found

    noting: Any = Noting(store)
    stream = Streams(Reader(noting, bus)).stream(task.FORMAT, "run_1", task.FORMAT.at(State()), 0)
    pieces = [piece async for piece in stream]
    assert [lines.framed for lines in rows] == [False, True, True, False]
    start, large, *small = map(task.FORMAT.frames, rows)
    assert pieces == [start, large, b"".join(small)]
    assert pieces[1] is large
    await store.close()


async def test_readers_that_are_equally_far_hold_the_same_bytes() -> None:
    store, bus = SqliteStore(":memory:"), LocalBus()
    emitter = await begun(store, bus)
    for _ in range(RING_EVENTS + 10):
        emitter.emit(Notice(task_id="run_1", message="x"))
    await emitter.drain()
    streams, wire = Streams(Reader(store, bus)), task.FORMAT
    readers = [streams.stream(wire, "run_1", wire.at(State()), 0) for _ in range(2)]
    first, second = [await reader.next() for reader in readers]
    assert first is second
    await store.close()


async def test_a_reader_that_is_sent_away_gets_all_that_waits_for_it() -> None:
    store, bus = SqliteStore(":memory:"), LocalBus()
    emitter = await begun(store, bus)
    streams = Streams(Reader(store, bus))
    readers = await riding(emitter, streams, run.FORMAT)
    whole = b""
    for _ in range(6):
        await say(emitter)
        whole += await readers[0].next() or b""
    assert readers[1].closing("Bye.") == whole + readers[0].closing("Bye.")
    for reader in readers:
        reader.close()
    await store.close()


@pytest.mark.parametrize("wire", FORMATS.values(), ids=FORMATS)
async def test_frames_that_are_written_and_returned_are_together_the_whole_stream(
    wire: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tails, "BEAT_SECONDS", 600.0)  # only events wake readers
    store, bus = SqliteStore(":memory:"), LocalBus()
    emitter = await begun(store, bus)
    streams = Streams(Reader(store, bus))
    takes = cycle((True, True, False))
    written: list[bytes] = []
    got: list[list[bytes]] = [[], []]

    def write_now(frames: bytes) -> bool:
        if not next(takes):
            return False
        written.append(frames)
        got[0].append(frames)
        return True

    async def read(place: int, write: WriteNow | None) -> None:
        stream = streams.stream(wire, "run_1", wire.at(State()), 0)
        while (frames := await stream.next(write)) is not None:
            got[place].append(frames)
        stream.close()

    readers = [asyncio.ensure_future(read(0, write_now)), asyncio.ensure_future(read(1, None))]

    def both_wait() -> bool:
        tail = streams.reader.tails.get("run_1")
        return tail is not None and tail.waiting == 2

    await until(both_wait)
    with Task(emitter, "run_1").message() as message:
        for number in range(12):
            message.text(f"{number} ")
            await emitter.drain()
            await until(both_wait)
    await end(emitter)
    await asyncio.wait_for(asyncio.gather(*readers), 30)
    assert b"".join(got[0]) == b"".join(got[1])
    assert len(written) > 2
    await store.close()


async def test_a_reader_that_left_keeps_nothing_of_its_connection() -> None:
    store, bus = SqliteStore(":memory:"), LocalBus()
    emitter = await begun(store, bus)
    streams = Streams(Reader(store, bus))
    leaving, staying = await riding(emitter, streams, task.FORMAT)

    class Connection:
        def write(self, _frames: bytes) -> bool:
            return True

    connection = Connection()
    left = weakref.ref(connection)
    waiting = asyncio.ensure_future(leaving.next(connection.write))
    tail = streams.reader.tails.get("run_1")
    assert tail is not None
    await until(lambda: tail.waiting == 1)
    waiting.cancel()
    await asyncio.wait([waiting])
    leaving.close()
    del connection, waiting
    gc.collect()
    assert left() is None
    staying.close()
    await store.close()
