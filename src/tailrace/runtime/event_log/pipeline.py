"""Validates, appends and publishes events, in this order and in batches.

`emit()` checks an event against the fold, encodes it once and never waits. One flush at a time
writes the new events of all runs of the process in one transaction, and then publishes them. So no
client sees an event that is not durable, and a fast model costs few transactions. `drain()` is the
backpressure: it returns when all emitted events are durable.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tailrace.core import snapshot, stored_state
from tailrace.core.codec import encode_event, encode_private
from tailrace.core.errors import NotDrained
from tailrace.core.events import TIMED, Event, Private, Recorded, timed
from tailrace.core.fold import State
from tailrace.ports import Batch, Blobs, Bus, EventLog, Mirror
from tailrace.ports.store import append_now_of
from tailrace.runtime.diagnostics import crash_points
from tailrace.runtime.diagnostics.metrics import Metrics
from tailrace.runtime.diagnostics.telemetry import Operation
from tailrace.runtime.event_log.offload import build
from tailrace.runtime.event_log.store_retry import FIRST_PAUSE, LONGEST_PAUSE, passing
from tailrace.runtime.event_log.work_clock import NOTED, WorkClock

if TYPE_CHECKING:
    from tailrace.runtime.tasks.inbox import UnreadLetters

MIN_SNAPSHOT_BYTES = 64 * 1024
LAST_SNAPSHOT_BYTES = 8 * 1024
"""Shorter runs, or rests of runs, are replayed faster than a snapshot is read. At the run's end
less is enough: all later readers use this snapshot."""


BATCHES_TO_JOIN = 512
FAST_BATCHES_TO_JOIN = 128
"""After so many batches a run's rows are joined while it runs: late readers read them all. The
batches of a fast run have more events."""

CLOSE_SECONDS = 5.0
"""How long a pipeline that is closed waits for a store that is away."""

FAST_EVENTS = 4
REST_SECONDS = 0.005
"""A run is fast if it got so many new events during one flush. It rests before its next flush, so
that more events share a transaction, a wake-up and a socket write. A model at human pace never
rests, and `drain()` ends the rest."""

WINDOW_SECONDS = 0.0015
"""The next flush begins this long after the last, so that the events of many runs, or of a fast
run, share a transaction. The first event after a silence does not wait, and `drain()` ends the
wait."""

SLOW_APPEND_SECONDS = 0.0005
SHORT_WINDOW_SECONDS = 0.001
"""The window after an append that took so long, such as to a database server. Events gather while
the store answers, and then wait for the next answer."""

CROWDED_RUNS = 3
LATE_SECONDS = 0.0025
"""After a flush for so many runs, the first event after the window begins the next. Only if no
event comes, a timer does: it costs the event loop a turn, and is exact to a millisecond. `drain()`
then waits for the window."""

MAX_WAITING_BYTES = 64 * 1024 * 1024
"""How many bytes of a run may wait to be stored. Above it `emit` raises `NotDrained`."""

PACE_BYTES = 256 * 1024
"""How many bytes of a run may wait to be stored until `pace` waits for the log."""

EVENT_BYTES = 512
"""How many bytes an event takes in memory besides its JSON."""


async def _nothing_earlier() -> list[State]:
    return []


class Emitter:
    """The only writer of a run."""

    def __init__(self, pipeline: Pipeline, run_id: str, epoch: int, state: State) -> None:
        self.run_id = run_id
        self.epoch = epoch
        self.state = state
        self.clock = WorkClock(state, pipeline.now or time.time)
        self.inputs: UnreadLetters | None = None
        self.earlier: Callable[[], Awaitable[list[State]]] = _nothing_earlier
        """Reads the runs that this run continues; see `Chain.earlier`."""
        self.children: dict[str, asyncio.Task[None] | None] = {}
        """The sub-agents at work, by task."""
        self.cancelled: dict[str, str] = {}
        """The sub-agents that were cancelled alone, with the reason."""
        self.resumed: set[str] = set()
        """The tasks that another worker began, until their agents go on."""
        self.owner = ""
        """The principal that the run belongs to; "" for no principal."""
        self.blobs: Blobs | None = None
        """Where the run's large outputs are stored; None keeps them in the log."""
        self.operations: dict[str, Operation] = {}
        """The spans of calls that the agent runs itself, by call."""
        self.failure: Exception | None = None
        self.is_left = False
        """Whether its worker leaves the run to another worker, which closes what is open."""
        self._pipeline = pipeline
        self._events: list[Recorded] = []
        self._publics: list[bytes] = []
        self._privates: list[bytes] = []
        self._durable = state.sequence_number
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._gathered = 0
        self._in_flight = 0
        self._is_closing = False
        self._tail_bytes = 0
        self._snapshot_bytes = MIN_SNAPSHOT_BYTES
        self._unjoined = 0
        self._joined_to = self._durable
        self.on_many_batches: Callable[[str], None] | None = None
        """Called when the run has many small rows, so that they can be joined."""

    def emit(self, event: Event, private: Private | None = None) -> None:
        """Record the next event of the run. Clients see it once it is durable.

        Raises `IllegalEvent` if the protocol forbids it here, and `NotDrained` if too many bytes
        wait to be stored. Raises the store's error if an earlier event could not be written.
        """
        if self.failure is not None:
            raise self.failure
        if self._gathered + self._in_flight > MAX_WAITING_BYTES and not self._is_closing:
            raise NotDrained(
                f"The run has more than {MAX_WAITING_BYTES} bytes that are not stored yet. "
                "Await `task.drain()` between writes, so that the log keeps up."
            )
        if type(event) in TIMED:
            if self._pipeline.now is not None:
                event = timed(event, self._pipeline.now())
            if type(event) in NOTED:
                private = self.clock.noted(event, private)
        state = self.state
        event = replace(event, sequence_number=state.sequence_number + 1)
        public = encode_event(event)
        hidden = encode_private(private) if private is not None else b""
        state.apply(event, private)
        is_first = not self._events
        self._events.append(Recorded(event, public, self.epoch))
        self._publics.append(public)
        self._privates.append(hidden)
        size = len(public)
        self._tail_bytes += size
        self._gathered += size + len(hidden) + EVENT_BYTES
        if is_first:  # the others wait with it
            self._pipeline.wake(self)

    @contextmanager
    def closing(self) -> Iterator[None]:
        """A block whose events close items or the run: they may exceed `MAX_WAITING_BYTES`."""
        before, self._is_closing = self._is_closing, True
        try:
            yield
        finally:
            self._is_closing = before

    async def drain(self) -> None:
        """Wait until all emitted events are durable, or raise the error that prevents it."""
        last = self.state.sequence_number
        if self.failure is None and self._durable < last:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append((last, waiting))
            self._pipeline.hurry(self)
            await waiting
        if self.failure is not None:
            raise self.failure

    async def pace(self) -> None:
        """Wait for the log if much is not durable yet: a fast agent does not run ahead of it.

        Otherwise the events of a stream share transactions, and its agent need not wait for each.
        """
        if self._gathered + self._in_flight > PACE_BYTES or self.failure is not None:
            await self.drain()

    def take(self) -> Taken:
        """The new events, with the state after them if they need a snapshot.

        They do if the events since the last snapshot outweigh it, so that the cost stays linear.
        """
        self._in_flight, self._gathered = self._gathered, 0
        events, self._events = self._events, []
        publics, self._publics = self._publics, []
        privates, self._privates = self._privates, []
        root = self.state.root
        ended = root is not None and root.ended
        batch = Batch(
            run_id=self.run_id,
            epoch=self.epoch,
            first_seq=events[0].event.sequence_number,
            publics=publics,
            privates=privates,
            ended=ended,
        )
        saved = None
        if self._tail_bytes > (LAST_SNAPSHOT_BYTES if ended else self._snapshot_bytes):
            saved = snapshot.saved(self.state, private=True)
        return Taken(self, batch, events, saved)

    async def snapshot(self, saved: Any) -> bytes:
        """A saved state as bytes. A thread encodes a large state."""
        weight, self._tail_bytes = self._snapshot_bytes + self._tail_bytes, 0
        found = await build(weight, lambda: stored_state.packed(snapshot.encode_saved(saved)))
        self._snapshot_bytes = max(stored_state.unpacked_size(found), MIN_SNAPSHOT_BYTES)
        return found

    def written(self, last: int) -> None:
        """Note that the events up to `last` are durable."""
        self._durable = last
        self._in_flight = 0
        self._unjoined += 1
        is_fast = last - self._joined_to >= FAST_EVENTS * self._unjoined
        if self._unjoined >= (FAST_BATCHES_TO_JOIN if is_fast else BATCHES_TO_JOIN):
            self._unjoined, self._joined_to = 0, last
            if self.on_many_batches is not None:
                self.on_many_batches(self.run_id)
        while self._waiting and self._waiting[0][0] <= last:
            _, waiting = self._waiting.pop(0)
            if not waiting.done():
                waiting.set_result(None)

    def fail(self, failure: Exception) -> None:
        """End this writer: its waiting events are dropped."""
        if self.failure is None:
            self.failure = failure
        self._events.clear()
        self._publics.clear()
        self._privates.clear()
        for _, waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    def cancel_child(self, task_id: str, reason: str) -> None:
        """Stop one sub-agent; the run goes on. A second time changes nothing."""
        if task_id not in self.cancelled:
            self.cancelled[task_id] = reason
            job = self.children.get(task_id)
            if job is not None:
                job.cancel()

    @property
    def logged(self) -> Emitter:
        """The writer of the run's log: this one, if its events are stored."""
        return self

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of the run: its thread and the metadata that it was started with."""
        root = self.logged.state.root
        return root.facts if root is not None else {}

    @property
    def is_ours(self) -> bool:
        """Whether this writer may continue: it has not failed, and its worker keeps the run."""
        return self.failure is None and not self.is_left

    @property
    def awaited(self) -> bool:
        """Whether a caller waits in `drain`."""
        return bool(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be written."""
        return not self._events


@dataclass(slots=True)
class Taken:
    """The new events of a run, which a flush writes and then publishes."""

    emitter: Emitter
    batch: Batch
    events: list[Recorded]
    saved: Any
    """The state after the events, if they need a snapshot; else None."""


class Pipeline:
    """Writes and publishes for all runs of the process.

    While the store is away, the same batches are sent again for `patience` seconds. The store takes
    each batch once. A batch that the store refuses is not sent again: all other runs would wait.
    The clock `now` gives events their `at`; without a clock they have none.
    """

    def __init__(
        self,
        log: EventLog,
        bus: Bus,
        patience: float = 0.0,
        mirror: Mirror | None = None,
        metrics: Metrics | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.now = now
        self._log = log
        self._append_now = append_now_of(log)
        self._bus = bus
        self._mirror = mirror
        self._patience = patience
        self._metrics = metrics or Metrics()
        # By writer, not by run: a writer that lost its run may exist beside its successor.
        self._dirty: dict[Emitter, None] = {}
        self._resting: dict[Emitter, asyncio.TimerHandle] = {}
        # Not the context of the agent that emits: a flush is for all runs.
        self._context = Context()
        self._writing: asyncio.Task[None] | None = None
        """A flush that waits for the store."""
        self._is_next = False
        """Whether a flush begins in the next turn of the event loop."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._begun = -math.inf
        self._crowded = False
        self._window = WINDOW_SECONDS
        self._close_by = math.inf

    def writer(self, run_id: str, epoch: int = 1, state: State | None = None) -> Emitter:
        """A writer for a run in the log, which continues after `state`."""
        state = state or State()
        if self._mirror is not None:
            self._mirror.begin(run_id, state)
        return Emitter(self, run_id, epoch, state)

    def wake(self, emitter: Emitter) -> None:
        """Flush soon: a run has new events."""
        if emitter in self._resting:
            return
        self._dirty[emitter] = None
        if not self._is_next and self._writing is None:
            self._plan()

    def hurry(self, emitter: Emitter) -> None:
        """End the rest of a run, and the window after its flush: a caller waits in `drain`."""
        timer = self._resting.pop(emitter, None)
        if timer is not None:
            timer.cancel()
            if not emitter.idle:
                self._dirty[emitter] = None
        if self._dirty and not self._is_next and self._writing is None:
            self._plan(awaited=True)

    def _rest(self, emitter: Emitter) -> None:
        loop = asyncio.get_running_loop()
        self._resting[emitter] = loop.call_later(REST_SECONDS, self._rested, emitter)

    def _rested(self, emitter: Emitter) -> None:
        self._resting.pop(emitter, None)
        if not emitter.idle:
            self.wake(emitter)

    async def close(self) -> None:
        """Write the waiting events. A store that is away is awaited for `CLOSE_SECONDS`."""
        self._close_by = time.monotonic() + CLOSE_SECONDS
        for emitter in list(self._resting):
            self.hurry(emitter)
        while self._dirty or self._writing is not None:
            if self._writing is None:
                self._stop_timer()
                self._begin()
            if self._writing is not None:
                await self._writing

    def _plan(self, *, awaited: bool = False, has_come: bool = True) -> None:
        """Decide when the waiting events are written.

        `awaited` if a caller waits in `drain`; `has_come` if an event has come just now.
        """
        now, due = time.monotonic(), self._begun + self._window
        if not self._crowded and awaited:
            due = now
        elif self._crowded and not awaited and (now < due or not has_come):
            due = self._begun + LATE_SECONDS
        if due <= now:
            self._begin_next()
        elif due < self._timer_at:
            self._stop_timer()
            self._timer_at = due
            self._timer = asyncio.get_running_loop().call_later(due - now, self._begin_next)

    def _begin_next(self) -> None:
        """Begin a flush after the agents that wake in this turn of the event loop have emitted."""
        self._stop_timer()
        self._is_next = True
        asyncio.get_running_loop().call_soon(self._begin, context=self._context)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, math.inf

    def _begin(self) -> None:
        """Begin a flush. Without a wait for the store it also ends here."""
        self._is_next = False
        if self._writing is not None:
            return
        begun = time.monotonic()
        dirty, self._dirty = self._dirty, {}
        taken = [emitter.take() for emitter in dirty if not emitter.idle]
        seconds = self._write_now(taken)
        if seconds is None:
            write = self._write(taken, begun)
            self._writing = asyncio.get_running_loop().create_task(write, context=Context())
            return
        try:
            for one in taken:
                self._publish(one)
        finally:
            self._end(begun, len(taken), seconds)

    def _end(self, begun: float, runs: int, append_seconds: float) -> None:
        """Note the last flush, and plan the next if events wait."""
        is_slow = append_seconds > SLOW_APPEND_SECONDS
        self._window = SHORT_WINDOW_SECONDS if is_slow else WINDOW_SECONDS
        self._begun, self._crowded = begun, runs >= CROWDED_RUNS
        if self._dirty and not self._is_next:
            awaited = any(emitter.awaited for emitter in self._dirty)
            self._plan(awaited=awaited, has_come=False)

    def _write_now(self, taken: list[Taken]) -> float | None:
        """Write without a wait, if the store can; how long it took, or None."""
        if not taken:
            return 0.0
        if self._append_now is None or any(one.saved is not None for one in taken):
            return None
        crash_points.point("append.before")
        begun = time.monotonic()
        try:
            if self._append_now([one.batch for one in taken]) is None:
                return None
        except Exception:  # noqa: BLE001  # `append` is asked next; the writers get its error
            return None
        seconds = time.monotonic() - begun
        crash_points.point("append.after")
        self._metrics.flushed(seconds)
        return seconds

    async def _write(self, taken: list[Taken], begun: float) -> None:
        """Write and publish; send the same batches again while the store is away."""
        seconds = 0.0
        try:
            for one in taken:
                if one.saved is not None:
                    found, one.saved = await one.emitter.snapshot(one.saved), None
                    one.batch = replace(one.batch, snapshot=found)
            deadline, pause = time.monotonic() + self._patience, FIRST_PAUSE
            left = [one for one in taken if one.emitter.failure is None]
            while left:
                again: list[Taken] = []
                asked = time.monotonic()
                answers, away = await self._append([one.batch for one in left])
                seconds = time.monotonic() - asked
                away = away and time.monotonic() + pause < min(deadline, self._close_by)
                for one, failure in zip(left, answers, strict=True):
                    if failure is None:
                        self._publish(one)
                    elif away and passing(failure):
                        again.append(one)
                    else:
                        one.emitter.fail(failure)
                left = again
                if left:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
        finally:
            self._writing = None
            self._end(begun, len(taken), seconds)

    async def _append(self, batches: list[Batch]) -> tuple[list[Exception | None], bool]:
        """The store's answer to each batch, and whether the call itself failed."""
        crash_points.point("append.before")
        begun = time.monotonic()
        try:
            answers = await self._log.append(batches)
        except Exception as error:  # noqa: BLE001  # the writers must get any error
            return [error] * len(batches), True
        crash_points.point("append.after")
        self._metrics.flushed(time.monotonic() - begun)
        return answers, False

    def _publish(self, taken: Taken) -> None:
        """Show events that are durable."""
        emitter, events = taken.emitter, taken.events
        self._bus.publish(emitter.run_id, events)
        if self._mirror is not None:
            self._mirror.show(emitter.run_id, events)
        if crash_points.is_armed:
            crash_points.point("publish.after")
        self._metrics.events += len(events)
        emitter.written(events[-1].event.sequence_number)
        if taken.batch.ended:
            self._metrics.runs_ended[_status(events[-1])] += 1
        if len(events) >= FAST_EVENTS and not emitter.awaited:
            self._rest(emitter)


def _status(end: Recorded) -> str:
    """The status of a run after its last event: `task.failed` is failed."""
    return str(end.event.__struct_config__.tag).rpartition(".")[2]
