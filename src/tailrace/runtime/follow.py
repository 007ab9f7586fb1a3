"""From a cursor to the end of the run: history, then live, on one path. No gap, no repeat.

A reader takes what it lacks from the run's tail (`tailrace.runtime.tail`), or from the log when the
tail does not reach back that far. That is all: a late joiner, a slow reader, a hole and a silent
bus differ only in how often the answer is "the log".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from tailrace.core.errors import InvalidCursor, NotFound
from tailrace.core.events import Recorded, is_end
from tailrace.core.fold import State
from tailrace.core.lines import Lines
from tailrace.core.snapshot import restored
from tailrace.ports import Bus, EventLog, RunInfo, Trimmed
from tailrace.runtime import hints
from tailrace.runtime.building import Kept, Stretch, build
from tailrace.runtime.retry import patiently
from tailrace.runtime.tail import Tail, Tails
from tailrace.wire.base import whole_number

T = TypeVar("T")

BUSY_THREAD_SECONDS = 0.5
IDLE_THREAD_SECONDS = 5.0
"""How long the follower of a thread without news trusts a silent bus: after a run a short time,
then ever longer. There are many threads in which nothing will ever happen again."""


LINES_AT_ONCE = 4096
"""How many events of history a stream is sent in one piece."""


class Place(NamedTuple):
    """Where a thread's follower stands: after event `seq` of the thread's run number `ordinal`."""

    ordinal: int = 0
    seq: int = 0

    @classmethod
    def read(cls, text: str) -> Place:
        """`ordinal:seq`, or `0` for the start."""
        if text == "0":
            return cls()
        ordinal, colon, seq = text.partition(":")
        if not colon:
            raise InvalidCursor(f"{text[:40]!r} is no cursor; send the last id that you received.")
        return cls(whole_number(ordinal), whole_number(seq))

    def __str__(self) -> str:
        return f"{self.ordinal}:{self.seq}"


START = Place()


class RunTrimmed(Trimmed):
    """A thread's follower came to a run whose events are gone; `run` says which.

    Whoever can show its final state instead goes on after `Place(run.ordinal, run.last_seq)`.
    """

    def __init__(self, run: RunInfo) -> None:
        super().__init__(f"The events of run {run.run_id} were taken by retention.")
        self.run = run


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Look:
    """A run as it stood after some event: its row, its public state, and who wrote that event.

    Where retention took the event, `epoch` is the run's own. `weight` is about what the state takes
    in bytes.
    """

    info: RunInfo
    state: State
    epoch: int
    weight: int

    @property
    def is_whole(self) -> bool:
        """Whether nothing can follow any more."""
        ended = self.info.ended_at is not None
        return ended and self.state.sequence_number >= self.info.last_seq


class Reader:
    """Everything in this process that follows runs of one store."""

    def __init__(self, log: EventLog, bus: Bus, poll: float | None = None) -> None:
        self.log = log
        self.bus = bus
        self.tails = Tails(log, bus, poll)
        self._looks = Kept[Look]()
        self._events = Kept[Stretch[Recorded]]()
        self._lines = Kept[Stretch[Lines]]()

    async def follow(
        self, run_id: str, after: int | State = 0
    ) -> AsyncGenerator[list[Recorded], None]:
        """The run's events after number `after` (or after a state), until its last one.

        An empty list means that nothing came for a while: a chance to send a heartbeat. Raises
        `Trimmed` when the log does not go back that far, `NotFound` for a run that is not there or
        not any more, and `StorageError` when the store stays away.
        """
        seen = after.sequence_number if isinstance(after, State) else after
        tail = self.tails.take(run_id)
        try:
            while True:
                fresh = await self.fetch(tail, seen)
                if fresh:
                    yield fresh
                    seen = fresh[-1].event.sequence_number
                    if is_end(fresh[-1], run_id):
                        return
                    continue
                if tail.ended and seen >= tail.last:
                    return
                if tail.failure is not None:
                    raise tail.failure
                await tail.moved()
                if tail.last <= seen:
                    yield []
        finally:
            self.tails.give_back(tail)

    async def fetch(self, tail: Tail, seen: int) -> list[Recorded]:
        """What follows `seen`, as far as it is there; nothing means that this is the end so far."""
        # Twice: what is written after the log was read and before its end is asked for is known
        # to the tail then, and only the log has it.
        for _ in range(2):
            fresh = tail.since(seen)
            if fresh is None:
                read = partial(self.log.read, tail.run_id, seen)
                fresh = await self._events.get((tail.run_id, seen), partial(_stretch, read))
                # A read that another reader began may be older than what this reader has to know.
                fresh = fresh or await patiently(read)
                if not fresh:
                    await tail.find_end()
                    continue
            return fresh
        return tail.since(seen) or []

    async def read_lines(self, run_id: str, seen: int) -> Stretch[Lines]:
        """History after `seen`, undecoded, a bounded piece at a time."""
        read = partial(self.log.read_lines, run_id, seen, LINES_AT_ONCE)
        return await self._lines.get((run_id, seen), partial(_stretch, read))

    async def ended(self, run_id: str, within: float) -> bool:
        """Wait for a run's end, for so many seconds at most; whether it came."""
        tail = self.tails.take(run_id)
        try:
            async with asyncio.timeout(within):
                await tail.find_end()
                while not tail.ended and tail.failure is None:
                    await tail.moved()
        except TimeoutError:
            pass
        finally:
            self.tails.give_back(tail)
        return tail.ended

    async def follow_thread(
        self, thread_id: str, after: Place | str = START, *, owner: str = ""
    ) -> AsyncGenerator[tuple[RunInfo, list[Recorded]], None]:
        """A thread's runs, one after another in their order, each to its end; then the next one.

        It never ends by itself: it waits between the runs, and before the first one. The cursor
        after an event is `Place(run.ordinal, seq)`. A run that was deleted is passed over; one that
        was trimmed raises `RunTrimmed`. An empty list means that nothing came for a while.
        """
        place = Place.read(after) if isinstance(after, str) else after
        last: RunInfo | None = None
        async with aclosing(self.thread_runs(thread_id, place.ordinal, owner=owner)) as runs:
            async for run in runs:
                if run is None:
                    if last is not None:
                        yield last, []
                    continue
                last = run
                seq = place.seq if run.ordinal == place.ordinal else 0
                try:
                    async with aclosing(self.follow(run.run_id, seq)) as batches:
                        async for batch in batches:
                            yield run, batch
                except Trimmed as gone:
                    raise RunTrimmed(run) from gone
                except NotFound:
                    continue

    async def thread_runs(
        self, thread_id: str, first: int = 1, *, owner: str = ""
    ) -> AsyncGenerator[RunInfo | None, None]:
        """A thread's runs from ordinal `first` on, each as soon as it is there, without end.

        None means that there was none for a while.
        """
        ear = self.bus.subscribe(hints.of_thread(thread_id))
        try:
            pause = BUSY_THREAD_SECONDS
            while True:
                look = partial(self.log.thread_runs, thread_id, owner=owner, first=first)
                found = await patiently(look)
                for run in found:
                    yield run
                    first = run.ordinal + 1
                    pause = BUSY_THREAD_SECONDS
                if not found and not await ear.get(pause):
                    pause = min(pause * 1.5, IDLE_THREAD_SECONDS)
                    yield None
        finally:
            ear.close()

    async def state(self, run_id: str, seq: int | None = None) -> State:
        """The run's public state after event `seq` (or now), from the nearest snapshot."""
        return (await self.look(run_id, seq)).state

    async def look(self, run_id: str, seq: int | None = None) -> Look:
        """The run after event `seq` (or now), or `NotFound`.

        Those who ask at the same time get the same state: it must not be changed.
        """
        if seq is None:
            info = await patiently(lambda: self.log.info(run_id))
            if info is None:
                raise NotFound(f"There is no run {run_id}.")
            seq = info.last_seq
        return await self._looks.get((run_id, seq), partial(look_at, self.log, run_id, seq))

    async def close(self) -> None:
        """Send every follower away."""
        await self.tails.close()


async def _stretch(read: Callable[[], Awaitable[list[T]]]) -> Stretch[T]:
    return Stretch(await patiently(read))


async def look_at(log: EventLog, run_id: str, seq: int | None = None) -> Look:
    """The run after event `seq` (or now), from the nearest snapshot, or `NotFound`."""
    basis = await patiently(lambda: log.basis(run_id, seq))
    if basis is None:
        raise NotFound(f"There is no run {run_id}.")
    info = basis.info
    target = info.last_seq if seq is None else min(seq, info.last_seq)
    saved = basis.snapshot.state if basis.snapshot is not None else None
    weight = len(saved or b"")
    state = await build(weight, partial(restored, saved))
    # Those after the snapshot, unless it could not be restored.
    events = basis.events if saved is None or state.root is not None else []
    epoch = info.epoch if basis.epoch is None else basis.epoch
    del basis, saved  # it may weigh as much as the state
    while state.sequence_number < target:
        events = events or await patiently(lambda: log.read(run_id, state.sequence_number))
        if not events:
            break
        for one in events:
            if one.event.sequence_number > target:
                break
            state.absorb(one.event)
            weight += len(one.public)
        events = []
    return Look(info, state, epoch, weight)


async def epoch_at(log: EventLog, run_id: str, seq: int) -> int | None:
    """The epoch of the writer of event `seq`; None when the log has no such event any more."""
    try:
        found = await log.read_lines(run_id, seq - 1, 1)
    except Trimmed:
        return None
    return found[0].epoch if found and found[0].first_seq == seq else None
