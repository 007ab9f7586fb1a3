"""Follows a run from a cursor to its end: history, then live, without gap or repeat.

A reader takes the next events from the run's tail (`followers.tail`), or from the log if the
tail no longer has them. Late joiners, slow readers, holes and a silent bus all use this path; they
differ only in how often they read the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tailrace.core.errors import StorageError
from tailrace.core.events import Recorded, TaskAttempt, is_end
from tailrace.core.fold import State
from tailrace.core.log_lines import LogLines
from tailrace.core.stored_state import may_have_superseded, public_part, restored, unpacked_size
from tailrace.ports import Bus, EventLog, RunInfo
from tailrace.runtime.event_log import wakeups
from tailrace.runtime.event_log.offload import BuildCache, LogRead, build
from tailrace.runtime.event_log.store_retry import patiently
from tailrace.runtime.followers.tail import Tail, Tails, run_not_found
from tailrace.wire.base import Format, has_lost

T = TypeVar("T")

BUSY_THREAD_SECONDS = 0.5
IDLE_THREAD_SECONDS = 5.0
"""How long a thread's follower waits for the bus before it asks the store: a short time after a
run, then longer and longer. Most threads never get another run."""


LINES_AT_ONCE = 4096
"""How many events of history are read at a time."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class RunState:
    """A run after some event: its row, its public state, and the epoch of the event's writer.

    If retention took the event, `epoch` is the run's own. `weight` is the state's approximate size
    in bytes.
    """

    info: RunInfo
    state: State
    epoch: int
    weight: int

    @property
    def is_whole(self) -> bool:
        """Whether the run has ended with this state."""
        ended = self.info.ended_at is not None
        return ended and self.state.sequence_number >= self.info.last_seq


def check_next(run_id: str, seen: int, first: int) -> None:
    """Refuse events that do not continue after event `seen`.

    Every source of events passes it: the tail, the log, shared frames, lines read ahead. A client
    that is cut here connects again with its cursor, so it receives each event once.
    """
    if first != seen + 1:
        raise StorageError(
            f"Event {first} of run {run_id} does not follow event {seen}; connect again."
        )


class Reader:
    """Follows the runs of one store, for all readers of this process."""

    def __init__(self, log: EventLog, bus: Bus, poll: float | None = None) -> None:
        self.log = log
        self.bus = bus
        self.tails = Tails(log, bus, poll)
        self._looks = BuildCache[RunState]()
        self._taken = BuildCache[_TakenBack]()
        self._events = BuildCache[LogRead[Recorded]]()
        self._lines = BuildCache[LogRead[LogLines]]()

    async def follow(
        self, run_id: str, after: int | State = 0
    ) -> AsyncGenerator[list[Recorded], None]:
        """The run's events after number `after` (or after a state), until the last event.

        An empty list means that nothing came for a while, so a heartbeat can be sent. Raises
        `Trimmed` if retention took the events, `NotFound` if the run does not exist, and
        `StorageError` if the store stays away.
        """
        seen = after.sequence_number if isinstance(after, State) else after
        tail = self.tails.take(run_id)
        try:
            while True:
                fresh = await self.fetch(tail, seen)
                if fresh:
                    check_next(run_id, seen, fresh[0].event.sequence_number)
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
        """The events after `seen` that are stored; an empty list at the end so far."""
        if tail.last < 0:  # first, so that the tail has all events that are written from now on
            await tail.find_end()
        # Twice: an event that is written between the read and `find_end` is known to the tail
        # then, but only the log has it.
        for _ in range(2):
            fresh = tail.since(seen)
            if fresh is None:
                read = partial(self.log.read, tail.run_id, seen)
                fresh = await self._events.get((tail.run_id, seen), partial(_read, read))
                # Another reader may have begun this read before the events were written.
                fresh = fresh or await patiently(read)
                if not fresh:
                    await tail.find_end()
                    continue
                tail.check_epoch(fresh[0].epoch)
            return fresh
        return tail.since(seen) or []

    async def read_lines(self, run_id: str, seen: int) -> LogRead[LogLines]:
        """The undecoded events after `seen`, bounded in size."""
        read = partial(self.log.read_lines, run_id, seen, LINES_AT_ONCE)
        return await self._lines.get((run_id, seen), partial(_read, read))

    async def ended(self, run_id: str, within: float) -> bool:
        """Wait up to `within` seconds for a run's end; whether it has ended."""
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

    async def thread_runs(
        self, thread_id: str, first: int = 1, *, owner: str = ""
    ) -> AsyncGenerator[RunInfo | None, None]:
        """A thread's runs from ordinal `first` on, each as soon as it exists, without end.

        None means that no run came for a while.
        """
        subscription = self.bus.subscribe(wakeups.of_thread(thread_id))
        try:
            pause = BUSY_THREAD_SECONDS
            while True:
                look = partial(self.log.thread_runs, thread_id, owner=owner, first=first)
                found = await patiently(look)
                for run in found:
                    yield run
                    first = run.ordinal + 1
                    pause = BUSY_THREAD_SECONDS
                if not found and not await subscription.get(pause):
                    pause = min(pause * 1.5, IDLE_THREAD_SECONDS)
                    yield None
        finally:
            subscription.close()

    async def state(self, run_id: str, seq: int | None = None) -> State:
        """The run's public state after event `seq` (or now), from the nearest snapshot."""
        return (await self.look(run_id, seq)).state

    async def look(
        self, run_id: str, seq: int | None = None, *, owner: str | None = None
    ) -> RunState:
        """The run after event `seq` (or now), or `NotFound`: also if it is not `owner`'s.

        Callers at the same time share the state, so it must not be changed.
        """
        if seq is None:
            info = await patiently(lambda: self.log.info(run_id))
            if info is None or owner not in (None, info.owner):
                raise run_not_found(run_id)
            self.tails.note(info)
            seq = info.last_seq
        return await self._looks.get((run_id, seq), partial(look_at, self.log, run_id, seq))

    async def was_taken_back(self, wire: Format, run_id: str) -> bool:
        """Whether the log so far shows items, in this format, that were superseded."""
        info = await patiently(lambda: self.log.info(run_id))
        if info is None:
            raise run_not_found(run_id)
        self.tails.note(info)
        seq = info.last_seq
        found = await self._taken.get((run_id, seq), partial(_may_be_taken_back, self.log, run_id))
        if not found.possible:
            return False
        return has_lost(wire, await self.state(run_id, seq))

    async def near_end(self, info: RunInfo, stage: Hashable) -> RunState:
        """The run now, or as another caller in the same stage looks at it at this moment."""
        look = partial(look_at, self.log, info.run_id)
        return await self._looks.get((info.run_id, "near end", stage), look)

    async def close(self) -> None:
        """End every follower."""
        await self.tails.close()


async def _read(read: Callable[[], Awaitable[list[T]]]) -> LogRead[T]:
    return LogRead(await patiently(read))


async def saved_at(log: EventLog, run_id: str, seq: int) -> list[bytes] | None:
    """The public JSON of a run's snapshot after event `seq`; None if it is not stored that way."""
    found = await patiently(lambda: log.snapshot(run_id, seq))
    if found is None or found.seq != seq:
        return None
    return await build(unpacked_size(found.state), partial(public_part, found.state))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _TakenBack:
    """Whether a run may have superseded items; if not, its state need not be restored."""

    possible: bool


async def _may_be_taken_back(log: EventLog, run_id: str) -> _TakenBack:
    source = await patiently(lambda: log.state_source(run_id))
    if source is None:
        raise run_not_found(run_id)
    seen, events = 0, source.events
    if source.snapshot is not None:
        saved, seen = source.snapshot.state, source.snapshot.seq
        if await build(unpacked_size(saved), partial(may_have_superseded, saved)):
            return _TakenBack(possible=True)
    while seen < source.info.last_seq:
        events = events or await patiently(partial(log.read, run_id, seen))
        if not events:
            break
        if any(isinstance(one.event, TaskAttempt) and one.event.superseded for one in events):
            return _TakenBack(possible=True)
        seen, events = events[-1].event.sequence_number, []
    return _TakenBack(possible=False)


async def look_at(log: EventLog, run_id: str, seq: int | None = None) -> RunState:
    """The run after event `seq` (or now), from the nearest snapshot, or `NotFound`."""
    source = await patiently(lambda: log.state_source(run_id, seq))
    if source is None:
        raise run_not_found(run_id)
    info = source.info
    target = info.last_seq if seq is None else min(seq, info.last_seq)
    saved = source.snapshot.state if source.snapshot is not None else None
    weight = 0 if saved is None else unpacked_size(saved)
    state = await build(weight, partial(restored, saved))
    # The events after the snapshot, unless the snapshot could not be restored.
    events = source.events if saved is None or state.root is not None else []
    epoch = info.epoch if source.epoch is None else source.epoch
    del source, saved  # they may be as large as the state
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
    return RunState(info, state, epoch, weight)
