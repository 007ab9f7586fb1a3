"""Durable before visible, and batched; the state at any place."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tailrace.buses.local import LocalBus
from tailrace.core import snapshot, stored_state
from tailrace.core.codec import encode_event
from tailrace.core.errors import IllegalEvent, NotDrained, NotFound, SeqConflict, StorageError
from tailrace.core.events import (
    Notice,
    Private,
    Recorded,
    TaskCancelled,
    TaskCompleted,
    TaskCreated,
    TaskInProgress,
    recorded,
)
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo
from tailrace.core.snapshot import save
from tailrace.ports import Batch, NewRun
from tailrace.runtime.event_log import emitter as emitters
from tailrace.runtime.event_log.emitter import LAST_SNAPSHOT_BYTES, Emitter
from tailrace.runtime.event_log.pipeline import Pipeline
from tailrace.runtime.followers.follow import look_at
from tailrace.runtime.tasks.task import Task
from tailrace.stores.sqlite.store import SqliteStore

RUN = "run_1"
FIRST = recorded(TaskCreated(task_id=RUN), 1)


def writer(pipeline: Pipeline) -> Emitter:
    """The writer of the run, which goes on after its first event."""
    state = State()
    state.apply(FIRST)
    return pipeline.writer(RUN, state=state)


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path / "log.db")
    await made.create(NewRun(run_id=RUN, agent="a", thread_id="t", public=encode_event(FIRST)))
    yield made
    await made.close()


class Watching(LocalBus):
    """A bus that looks into the log each time something is published."""

    def __init__(self, log: SqliteStore) -> None:
        super().__init__()
        self._log = log
        self.seen: list[tuple[int, asyncio.Task[list[Recorded]]]] = []

    def publish(self, run_id: str, events: list[Recorded]) -> None:
        last = events[-1].event.sequence_number
        self.seen.append((last, asyncio.ensure_future(self._log.read(run_id, 0))))
        super().publish(run_id, events)


def begin(emitter: Emitter) -> None:
    emitter.emit(TaskInProgress(task_id=RUN))


@pytest.mark.parametrize(("events", "batches"), [(1, 12), (4, 3)], ids=["slow", "fast"])
async def test_the_rows_of_a_fast_run_are_joined_after_fewer_batches(
    log: SqliteStore, monkeypatch: pytest.MonkeyPatch, events: int, batches: int
) -> None:
    monkeypatch.setattr(emitters, "BATCHES_TO_JOIN", 12)
    monkeypatch.setattr(emitters, "FAST_BATCHES_TO_JOIN", 3)
    emitter = writer(Pipeline(log, LocalBus()))
    joined: list[int] = []
    emitter.on_many_batches = lambda _: joined.append(emitter.state.sequence_number)
    begin(emitter)
    if events == 1:
        await emitter.drain()
    for number in range(2, 24 * events + 1):
        emitter.emit(Notice(task_id=RUN, message="a"))
        if number % events == 0:
            await emitter.drain()
    step = events * batches
    assert joined == list(range(1 + step, 24 * events + 2, step))


async def test_nothing_is_published_before_it_is_durable(log: SqliteStore) -> None:
    bus = Watching(log)
    emitter = writer(Pipeline(log, bus))
    begin(emitter)
    for n in range(50):
        emitter.emit(Notice(task_id=RUN, message=str(n)))
        if n % 7 == 0:
            await asyncio.sleep(0)
    await emitter.drain()
    assert bus.seen
    for last, reading in bus.seen:
        assert (await reading)[-1].event.sequence_number >= last


async def test_a_fast_writer_pays_for_few_transactions(log: SqliteStore) -> None:
    bus = Watching(log)
    emitter = writer(Pipeline(log, bus))
    begin(emitter)
    for n in range(1000):
        emitter.emit(Notice(task_id=RUN, message=str(n)))
    await emitter.drain()
    assert len(bus.seen) == 1
    await bus.seen[0][1]


class Counted:
    """A log that counts the transactions."""

    def __init__(self, log: SqliteStore) -> None:
        self._log = log
        self.sizes: list[int] = []

    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        self.sizes += [len(batch.publics) for batch in batches]
        return await self._log.append(batches)


async def flushed(emitter: Emitter, last: int) -> None:
    """Wait until so much is durable, without asking for it."""
    async with asyncio.timeout(120):
        while emitter._durable < last:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_fast_run_rests_so_that_more_share_a_transaction(
    log: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.runtime.event_log.pipeline.REST_SECONDS", 0.05)
    counted: Any = Counted(log)
    emitter = writer(Pipeline(counted, LocalBus()))
    emitter.emit(TaskInProgress(task_id=RUN))
    for _ in range(9):
        emitter.emit(Notice(task_id=RUN, message="fast"))
    await flushed(emitter, 11)
    for _ in range(200):
        emitter.emit(Notice(task_id=RUN, message="fast"))
        await asyncio.sleep(0)
    await flushed(emitter, 211)
    assert counted.sizes[0] == 10
    assert len(counted.sizes) <= 4


async def crowd(log: SqliteStore) -> tuple[Pipeline, list[Emitter], list[int]]:
    """Four runs after one flush, and how many batches each append has had."""
    appended: list[int] = []

    class Counted:
        async def append(self, batches: list[Batch]) -> list[Exception | None]:
            appended.append(len(batches))
            return await log.append(batches)

    counted: Any = Counted()
    pipeline = Pipeline(counted, LocalBus())
    emitters = []
    for number in range(4):
        first = recorded(TaskCreated(task_id=f"run_{number}x"), 1)
        run = NewRun(
            run_id=first.task_id,
            agent="a",
            thread_id=first.task_id,
            public=encode_event(first),
        )
        await log.create(run)
        state = State()
        state.apply(first)
        emitters.append(pipeline.writer(first.task_id, state=state))
    for emitter in emitters:
        emitter.emit(TaskInProgress(task_id=emitter.run_id))
    await flushed(emitters[0], 2)
    assert appended == [4]
    return pipeline, emitters, appended


def windows(patch: pytest.MonkeyPatch, **seconds: float) -> None:
    """Set the seconds of the windows between flushes; the others never end."""
    for name in ("WINDOW_SECONDS", "SHORT_WINDOW_SECONDS", "LATE_SECONDS", "SLOW_APPEND_SECONDS"):
        patch.setattr(f"tailrace.runtime.event_log.pipeline.{name}", seconds.get(name, 3600))


async def test_many_runs_at_human_pace_share_transactions(
    log: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows(monkeypatch, WINDOW_SECONDS=0.2)
    pipeline, emitters, appended = await crowd(log)
    for emitter in emitters:
        emitter.emit(Notice(task_id=emitter.run_id, message="within the window"))
        await asyncio.sleep(0)
    await asyncio.gather(*(emitter.drain() for emitter in emitters))  # waits for the short window
    assert appended == [4, 4]
    await pipeline.close()


async def test_after_a_flush_for_many_runs_an_event_after_the_window_begins_the_next(
    log: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows(monkeypatch, WINDOW_SECONDS=0.1)
    pipeline, emitters, appended = await crowd(log)
    begun = time.monotonic()
    emitters[0].emit(Notice(task_id=emitters[0].run_id, message="within the window"))
    while time.monotonic() < begun + 0.1:
        assert appended == [4]
        await asyncio.sleep(0.01)
    emitters[1].emit(Notice(task_id=emitters[1].run_id, message="after the window"))
    await flushed(emitters[0], 3)
    assert appended == [4, 2]
    await pipeline.close()


async def test_after_a_flush_for_many_runs_an_event_that_no_other_follows_waits_for_a_timer(
    log: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows(monkeypatch, LATE_SECONDS=0.05)
    pipeline, emitters, appended = await crowd(log)
    emitters[0].emit(Notice(task_id=emitters[0].run_id, message="the last"))
    await flushed(emitters[0], 3)
    assert appended == [4, 1]
    await pipeline.close()


async def test_after_a_slow_append_the_window_is_short(
    log: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows(monkeypatch, SLOW_APPEND_SECONDS=0.0, SHORT_WINDOW_SECONDS=0.05)
    pipeline, emitters, appended = await crowd(log)
    for emitter in emitters:
        emitter.emit(Notice(task_id=emitter.run_id, message="within the window"))
        await asyncio.sleep(0)
    await asyncio.gather(*(emitter.drain() for emitter in emitters))
    assert appended == [4, 4]
    await pipeline.close()


async def test_a_flush_has_nothing_of_the_context_of_the_agent_that_emits(log: SqliteStore) -> None:
    secret: ContextVar[str] = ContextVar("secret", default="")
    seen: list[str] = []

    class Looking:
        async def append(self, batches: list[Batch]) -> list[Exception | None]:
            seen.append(secret.get())
            return await log.append(batches)

    looking: Any = Looking()
    emitter = writer(Pipeline(looking, LocalBus()))
    secret.set("of the agent")
    emitter.emit(TaskInProgress(task_id=RUN))
    await emitter.drain()
    assert seen == [""]


async def test_a_slow_run_never_rests(log: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.runtime.event_log.pipeline.REST_SECONDS", 3600)
    emitter = writer(Pipeline(log, LocalBus()))
    emitter.emit(TaskInProgress(task_id=RUN))
    for number in range(20):
        await flushed(emitter, number + 2)
        emitter.emit(Notice(task_id=RUN, message="slow"))
    await flushed(emitter, 22)


async def test_events_of_a_run_within_the_window_share_a_transaction(
    log: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows(monkeypatch, WINDOW_SECONDS=0.2)
    counted: Any = Counted(log)
    emitter = writer(Pipeline(counted, LocalBus()))
    emitter.emit(TaskInProgress(task_id=RUN))
    await flushed(emitter, 2)
    for _ in range(3):
        emitter.emit(Notice(task_id=RUN, message="soon after"))
        await asyncio.sleep(0)
    await flushed(emitter, 5)
    assert counted.sizes == [1, 3]


async def test_drain_ends_the_window_of_a_lone_run(
    log: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows(monkeypatch)
    emitter = writer(Pipeline(log, LocalBus()))
    async with asyncio.timeout(120):
        for number in range(20):
            event = (
                Notice(task_id=RUN, message="soon after") if number else TaskInProgress(task_id=RUN)
            )
            emitter.emit(event)
            await emitter.drain()


@pytest.mark.parametrize("wait", ["drain", "close"])
async def test_a_reader_of_a_resting_run_does_not_wait_for_its_rest(
    log: SqliteStore, monkeypatch: pytest.MonkeyPatch, wait: str
) -> None:
    monkeypatch.setattr("tailrace.runtime.event_log.pipeline.REST_SECONDS", 3600)
    pipeline = Pipeline(log, LocalBus())
    emitter = writer(pipeline)
    emitter.emit(TaskInProgress(task_id=RUN))
    for _ in range(9):
        emitter.emit(Notice(task_id=RUN, message="fast"))
    await flushed(emitter, 11)
    emitter.emit(Notice(task_id=RUN, message="while it rests"))
    async with asyncio.timeout(120):
        await (emitter.drain() if wait == "drain" else pipeline.close())
    assert len(await log.read(RUN, 0)) == 12


async def test_a_run_in_many_small_batches_is_reported(
    log: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.runtime.event_log.emitter.BATCHES_TO_JOIN", 4)
    emitter = writer(Pipeline(log, LocalBus()))
    runs: list[str] = []
    emitter.on_many_batches = runs.append
    emitter.emit(TaskInProgress(task_id=RUN))
    for _ in range(9):
        await emitter.drain()
        emitter.emit(Notice(task_id=RUN, message="slow"))
    await emitter.drain()
    assert runs == [RUN, RUN]


async def test_an_illegal_event_is_refused_and_leaves_no_trace(log: SqliteStore) -> None:
    emitter = writer(Pipeline(log, LocalBus()))
    begin(emitter)
    with pytest.raises(IllegalEvent, match="task-known"):
        emitter.emit(Notice(task_id="somebody_else", message="x"))
    emitter.emit(TaskCompleted(task_id=RUN))
    await emitter.drain()
    assert [one.event.sequence_number for one in await log.read(RUN, 0)] == [1, 2, 3]


async def test_a_second_writer_is_refused_and_stays_refused(log: SqliteStore) -> None:
    first, second = (writer(Pipeline(log, LocalBus())) for _ in range(2))
    begin(first)
    await first.drain()
    second.emit(TaskCancelled(task_id=RUN))
    with pytest.raises(SeqConflict):
        await second.drain()
    with pytest.raises(SeqConflict):
        second.emit(TaskInProgress(task_id=RUN))


async def test_a_store_that_can_writes_small_flushes_without_a_task(log: SqliteStore) -> None:
    asked: list[int] = []

    class Now:
        append = log.append  # of a store that was slow a moment ago

        def append_now(self, batches: list[Batch]) -> list[None] | None:
            asked.append(len(batches))
            return log.append_now(batches)

    now: Any = Now()
    emitter = writer(Pipeline(now, LocalBus()))
    begin(emitter)
    await emitter.drain()
    assert (asked, len(await log.read(RUN, 0))) == ([1], 2)


@pytest.mark.parametrize("raises", [False, True])
async def test_what_a_store_does_not_write_now_is_appended(
    log: SqliteStore, *, raises: bool
) -> None:
    class Later:
        append = log.append

        def append_now(self, _: list[Batch]) -> None:
            if raises:
                raise OSError("no disk")

    later: Any = Later()
    emitter = writer(Pipeline(later, LocalBus()))
    begin(emitter)
    await emitter.drain()
    assert len(await log.read(RUN, 0)) == 2


async def test_a_wrapper_that_passes_all_calls_on_need_not_know_append_now(
    log: SqliteStore,
) -> None:
    class Wrapper:
        def __getattr__(self, name: str) -> Any:
            async def call(*args: Any) -> Any:
                return await getattr(log, name)(*args)

            return call

    wrapper: Any = Wrapper()
    emitter = writer(Pipeline(wrapper, LocalBus()))
    begin(emitter)
    await emitter.drain()
    assert len(await log.read(RUN, 0)) == 2


class Broken:
    """A log whose disk is gone."""

    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        raise StorageError("no disk")


async def test_what_could_not_be_written_is_never_shown() -> None:
    bus = LocalBus()
    subscription = bus.subscribe(RUN)
    broken: Any = Broken()
    pipeline = Pipeline(broken, bus)
    emitter = writer(pipeline)
    begin(emitter)
    with pytest.raises(StorageError, match="no disk"):
        await emitter.drain()
    await pipeline.close()
    assert await subscription.get(0.01) == []


async def test_a_store_that_is_away_for_a_moment_gets_the_same_batches_again(
    log: SqliteStore,
) -> None:
    sent: list[list[Batch]] = []

    class Shaky:
        async def append(self, batches: list[Batch]) -> list[Exception | None]:
            sent.append(batches)
            if len(sent) == 1:
                raise StorageError("away")
            answers = await log.append(batches)
            if len(sent) == 2:
                raise StorageError("the answer was lost")
            return answers

    bus = LocalBus()
    subscription = bus.subscribe(RUN)
    shaky: Any = Shaky()
    ticks = count(1700000000)
    emitter = writer(Pipeline(shaky, bus, patience=10, now=lambda: float(next(ticks))))
    emitter.emit(TaskInProgress(task_id=RUN))
    await emitter.drain()
    assert sent[0] == sent[1] == sent[2]
    assert b'"at":1700000000.0' in sent[0][0].publics[0]
    assert [one.event.sequence_number for one in await subscription.get(1)] == [2]
    assert [one.event.sequence_number for one in await log.read(RUN, 0)] == [1, 2]


async def test_a_drain_waits_for_what_was_emitted_before_it_and_not_for_more(
    log: SqliteStore,
) -> None:
    emitter = writer(Pipeline(log, LocalBus()))
    emitter.emit(TaskInProgress(task_id=RUN))
    draining = [asyncio.ensure_future(emitter.drain()) for _ in range(3)]
    for n in range(200):
        emitter.emit(Notice(task_id=RUN, message=str(n)))
        await asyncio.sleep(0)
        if all(one.done() for one in draining):
            break
    await asyncio.gather(*draining)
    assert (await log.read(RUN, 0))[1].event.sequence_number == 2
    await emitter.drain()


async def test_the_state_at_any_place_is_the_fold_up_to_it(
    log: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitter = writer(Pipeline(log, LocalBus()))
    monkeypatch.setattr(emitter, "_snapshot_bytes", 200)
    begin(emitter)
    saved = []
    for n in range(20):
        emitter.emit(Notice(task_id=RUN, message=str(n) * 20))
        await emitter.drain()
        saved.append(save(emitter.state))
    assert await log.snapshot(RUN) is not None
    for n, expected in enumerate(saved):
        assert save((await look_at(log, RUN, n + 3)).state) == expected
    assert save((await look_at(log, RUN)).state) == saved[-1]


async def test_the_snapshot_of_a_large_state_is_encoded_beside_the_event_loop(
    log: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, encoded = snapshot.encode_saved, threading.Event()
    going_on = threading.Event()
    threads: list[str] = []

    def slowly(value: dict[str, object]) -> bytes:
        threads.append(threading.current_thread().name)
        encoded.set()
        assert going_on.wait(10)  # the loop emits more events meanwhile
        return encode(value)

    monkeypatch.setattr(snapshot, "encode_saved", slowly)
    monkeypatch.setattr("tailrace.runtime.event_log.offload.LARGE_BYTES", 100)
    emitter = writer(Pipeline(log, LocalBus()))
    monkeypatch.setattr(emitter, "_snapshot_bytes", 200)
    begin(emitter)
    emitter.emit(Notice(task_id=RUN, message="x" * 200), Private(provider={"id": "1"}))
    draining = asyncio.ensure_future(emitter.drain())
    assert await asyncio.to_thread(encoded.wait, 10)
    emitter.emit(Notice(task_id=RUN, message="later"), Private(signature="s"))
    going_on.set()
    await draining
    await emitter.drain()
    assert threads == ["tailrace-build_0"]
    found = await log.snapshot(RUN)
    assert found is not None
    state = stored_state.restored(found.state)
    assert state.sequence_number == found.seq == emitter.state.sequence_number - 1
    assert state.root is not None
    assert state.root.private["provider"] == {"id": "1"}
    assert "signature" not in state.root.private
    assert save((await look_at(log, RUN)).state) == save(emitter.state)


@pytest.mark.parametrize("length", [LAST_SNAPSHOT_BYTES - 1000, LAST_SNAPSHOT_BYTES])
async def test_a_run_that_is_worth_it_ends_with_a_snapshot(log: SqliteStore, length: int) -> None:
    emitter = writer(Pipeline(log, LocalBus()))
    begin(emitter)
    emitter.emit(Notice(task_id=RUN, message="x" * length))
    await emitter.drain()
    assert await log.snapshot(RUN) is None
    emitter.emit(TaskCompleted(task_id=RUN))
    await emitter.drain()
    found = await log.snapshot(RUN)
    worth = length == LAST_SNAPSHOT_BYTES
    assert (found.seq if found is not None else 0) == (emitter.state.sequence_number * worth)
    look = await look_at(log, RUN)
    assert look.is_whole
    assert save(look.state) == save(emitter.state)


async def test_the_state_of_a_long_run_is_read_stretch_by_stretch(
    log: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.stores.sqlite.store.EVENTS_AT_ONCE", 3)
    emitter = writer(Pipeline(log, LocalBus()))
    begin(emitter)
    for n in range(20):
        emitter.emit(Notice(task_id=RUN, message=str(n)))
        await emitter.drain()
    look = await look_at(log, RUN)
    assert save(look.state) == save(emitter.state)
    assert not look.is_whole


async def test_the_state_of_an_unknown_run_is_not_found(log: SqliteStore) -> None:
    with pytest.raises(NotFound):
        await look_at(log, "nobody")


async def test_a_place_beyond_the_end_is_the_end(log: SqliteStore) -> None:
    emitter = writer(Pipeline(log, LocalBus()))
    begin(emitter)
    await emitter.drain()
    assert (await look_at(log, RUN, 99)).state.sequence_number == 2


async def test_an_agent_that_never_drains_is_stopped_by_a_sentence_that_names_drain(
    log: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emitters, "MAX_WAITING_BYTES", 100_000)
    emitter = writer(Pipeline(log, LocalBus()))
    emitter.emit(TaskInProgress(task_id=RUN))
    task = Task(emitter, RUN)
    with pytest.raises(NotDrained, match=r"drain\(\)"), task.message() as message:  # noqa: PT012
        while True:
            message.text("tick ")
    [item] = task._sink.node.items.values()
    assert item.item.status == "incomplete"  # what closes an item is not refused
    await task.drain()
    task.notice("Once it has drained, it may go on.")
    with pytest.raises(NotDrained):  # noqa: PT012
        while True:
            task.notice("tick")
    task.fail(ErrorInfo(code="x", message="A run can always be ended."))
    await task.drain()


async def test_what_the_store_has_not_taken_counts_too(
    log: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that lets others run, but never waits for the log, fills the memory as well."""
    monkeypatch.setattr(emitters, "MAX_WAITING_BYTES", 100_000)
    slow = asyncio.Event()
    append = log.append

    async def wait(batches: list[Batch]) -> list[Exception | None]:
        await slow.wait()
        return await append(batches)

    monkeypatch.setattr(log, "append", wait)
    monkeypatch.setattr(log, "append_now", lambda _: None)
    emitter = writer(Pipeline(log, LocalBus()))
    emitter.emit(TaskInProgress(task_id=RUN))
    count = 0
    with pytest.raises(NotDrained):  # noqa: PT012
        while True:
            emitter.emit(Notice(task_id=RUN, message="tick"))
            count += 1
            await asyncio.sleep(0)
    assert count < 250
    slow.set()
    await emitter.drain()
    emitter.emit(TaskCompleted(task_id=RUN))
    await emitter.drain()
