"""Shared by the follow kit: processes, runs to write, buses that misbehave."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tailrace.core.codec import encode_event
from tailrace.core.events import Notice, Recorded, TaskCompleted, TaskCreated, TaskInProgress
from tailrace.core.events import recorded as numbered
from tailrace.core.fold import State
from tailrace.core.snapshot import save
from tailrace.ports import Bus, NewRun, Store, Subscription
from tailrace.ports.bus import OpenBus
from tailrace.ports.store import OpenStore
from tailrace.runtime.agents.functions import AgentFunction
from tailrace.runtime.event_log.emitter import Emitter
from tailrace.runtime.event_log.pipeline import Pipeline
from tailrace.runtime.followers.follow import Reader
from tailrace.runtime.runs.all_runs import Runs
from tailrace.testing.waiting import until

DEADLINE = 60.0
"""Seconds that no test may take: what hangs fails, and does not stop the suite."""

SOON = 20.0
"""Seconds for what takes 1 to 3 s on an idle machine. What waits for a lease waits longer here."""

_ids = itertools.count(1)


class FollowTests:
    """The base of the kit: the hooks that a combination of store and bus fills in."""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        """Opens the store of this test, empty at first; again, as another process would."""
        raise NotImplementedError("Give the kit a fixture `open_store`.")

    @pytest.fixture
    def open_bus(self) -> OpenBus:
        """Opens the bus of this test; again: as another process would."""
        raise NotImplementedError("Give the kit a fixture `open_bus`.")

    @pytest.fixture
    async def store(self, open_store: OpenStore) -> AsyncIterator[Store]:
        """The store to try."""
        made = await open_store()
        try:
            async with asyncio.timeout(DEADLINE):
                yield made
        finally:
            await made.close()

    @pytest.fixture
    async def bus(self, open_bus: OpenBus) -> AsyncIterator[Bus]:
        """The bus to try."""
        made = await open_bus()
        yield made
        await made.close()


@asynccontextmanager
async def process(
    open_store: OpenStore,
    open_bus: OpenBus,
    agents: Mapping[str, AgentFunction],
    *,
    worker: bool = True,
    lease: float = 60.0,
) -> AsyncIterator[Runs]:
    """One process of a deployment: its connections, its readers, and perhaps a worker."""
    runs = Runs(
        await open_store(),
        await open_bus(),
        agents,
        new_id=lambda: f"{next(_ids):016}",
        now=lambda: 1.0,
        worker=worker,
        lease=lease,
    )
    runs.open()
    try:
        async with asyncio.timeout(DEADLINE):
            yield runs
    finally:
        await runs.close()


async def begun(
    store: Store, bus: Bus, run_id: str = "run_1", *, thread_id: str = "t", agent: str = "a"
) -> Emitter:
    """The writer of a new run that is in progress."""
    created = numbered(TaskCreated(task_id=run_id, agent=agent, thread_id=thread_id), 1)
    run = NewRun(run_id=run_id, agent=agent, thread_id=thread_id, public=encode_event(created))
    assert await store.create(run) is not None
    claim = await store.take_over(run_id, "the kit", 3600.0)
    assert claim is not None
    state = State()
    state.apply(created)
    emitter = Pipeline(store, bus).writer(run_id, claim.epoch, state)
    emitter.emit(TaskInProgress(task_id=run_id))
    await emitter.drain()
    return emitter


def write(emitter: Emitter, count: int) -> None:
    """Write more events."""
    for _ in range(count):
        number = emitter.state.sequence_number + 1
        emitter.emit(Notice(task_id=emitter.run_id, message=f"event {number}"))


async def end(emitter: Emitter) -> int:
    """End the run; the number of its last event, which is durable."""
    emitter.emit(TaskCompleted(task_id=emitter.run_id))
    await emitter.drain()
    return emitter.state.sequence_number


async def write_slowly(emitter: Emitter, count: int, seed: int = 1) -> int:
    """So many events in pieces of random size, each durable before the next; then the end."""
    chance = random.Random(seed)  # noqa: S311
    while count > 0:
        piece = min(chance.randint(1, 5), count)
        write(emitter, piece)
        count -= piece
        await emitter.drain()
        if chance.random() < 0.3:
            await asyncio.sleep(0.002)  # not to wait for anything: to let the readers get ahead
    return await end(emitter)


async def numbers(source: AsyncIterator[list[Recorded]]) -> list[int]:
    """The numbers of everything that comes, in the order in which it comes."""
    return [recorded.event.sequence_number async for batch in source for recorded in batch]


async def trimmed(store: Store, run_id: str) -> None:
    """Let retention take an ended run's events."""
    await store.trim(run_id, save(await Reader(store, None).state(run_id)))  # type: ignore[arg-type]


async def all_seen(reader: Reader, run_id: str, count: int = 1) -> None:
    """Wait until so many followers of a run have seen all there is."""
    await until(lambda: (found := reader.tails.get(run_id)) is not None and found.waiting >= count)


class UnreliableBus:
    """A bus that loses, repeats or reorders the events of `good`."""

    def __init__(self, good: Bus, fault: str, seed: int = 1) -> None:
        self._good = good
        self._fault = fault
        self._chance = random.Random(seed)  # noqa: S311
        self._held: list[tuple[str, list[Recorded]]] = []

    def publish(self, run_id: str, events: list[Recorded]) -> None:
        """Pass events on, drop them or change them."""
        chance = self._chance.random()
        if self._fault == "dead" or (self._fault == "lossy" and chance < 0.5):
            return
        if self._fault == "lossy" and chance < 0.7:
            events = [event for event in events if self._chance.random() < 0.5]
        if self._fault == "reordering":
            self._held.append((run_id, events))
            self._chance.shuffle(self._held)
            if len(self._held) < 3:
                return
            run_id, events = self._held.pop()
            events = self._chance.sample(events, len(events))
        if events:
            self._good.publish(run_id, events)
        if self._fault == "repeating":
            self._good.publish(run_id, events[-1:])
            self._good.publish(run_id, events)

    def subscribe(self, run_id: str) -> Subscription:
        """Listen to the good bus behind it."""
        return self._good.subscribe(run_id)

    async def check(self) -> None:
        """Ask the good bus."""
        await self._good.check()

    async def close(self) -> None:
        """Do nothing: the wrapped bus is closed by its owner."""


FAULTS = ("lossy", "repeating", "reordering", "dead")


class CountingStore:
    """A store that counts its calls and fails those it is asked to; the rest pass."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: list[tuple[str, Any]] = []
        self.fail: Callable[[str], Exception | None] = lambda _: None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args))
            failure = self.fail(name)
            if failure is not None:
                raise failure
            return await method(*args, **kwargs)

        return call
