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
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tailrace.core import snapshot, stored_state
from tailrace.core.codec import encode_event, encode_private
from tailrace.core.errors import NotDrained
from tailrace.core.events import TIMED, Event, Private, Recorded, timed
from tailrace.core.fold import State
from tailrace.ports import Batch, Blobs, Bus, EventLog, Mirror
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

    def take(self) -> tuple[Batch, list[Recorded], bool]:
        """The new events, as one batch and as a list, and whether the batch needs a snapshot.

        It does if the events since the last snapshot outweigh it, so that the cost stays linear.
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
        most = LAST_SNAPSHOT_BYTES if ended else self._snapshot_bytes
        return batch, events, self._tail_bytes > most

    async def snapshot(self) -> bytes:
        """The state now. A thread encodes a large state."""
        weight, self._tail_bytes = self._snapshot_bytes + self._tail_bytes, 0
        value = snapshot.saved(self.state, private=True)
        saved = await build(weight, lambda: stored_state.packed(snapshot.encode_saved(value)))
        self._snapshot_bytes = max(stored_state.unpacked_size(saved), MIN_SNAPSHOT_BYTES)
        return saved

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
        self._bus = bus
        self._mirror = mirror
        self._patience = patience
        self._metrics = metrics or Metrics()
        # By writer, not by run: a writer that lost its run may exist beside its successor.
        self._dirty: dict[Emitter, None] = {}
        self._resting: dict[Emitter, asyncio.TimerHandle] = {}
        self._flushing: asyncio.Task[None] | None = None
        self._gathering: asyncio.Future[None] | None = None
        self._gather_timer: asyncio.TimerHandle | None = None
        self._gather_from = 0.0
        self._gather_until = math.inf
        self._close_by = math.inf
        self._append_seconds = 0.0
        self._window = WINDOW_SECONDS

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
        if self._flushing is None:
            # Not in the context of the agent that emits: the flush is for all runs.
            loop = asyncio.get_running_loop()
            self._flushing = loop.create_task(self._flush(), context=Context())
        elif self._gather_until < math.inf and time.monotonic() >= self._gather_until:
            self._gathered()

    def hurry(self, emitter: Emitter) -> None:
        """End the rest of a run, and the window after its flush: a caller waits in `drain`."""
        if self._gather_until == math.inf:
            self._gathered()
        elif self._gather_timer is not None:  # a flush for many runs
            self._gather_timer.cancel()
            self._gather_for(self._window)
        timer = self._resting.pop(emitter, None)
        if timer is not None:
            timer.cancel()
            self._rested(emitter)

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
        self._gathered()
        for emitter in list(self._resting):
            self.hurry(emitter)
        if self._flushing is not None:
            await self._flushing

    async def _flush(self) -> None:
        try:
            while self._dirty:
                begun = time.monotonic()
                dirty, self._dirty = self._dirty, {}
                await self._write(list(dirty))
                await self._gather(begun, crowded=len(dirty) >= CROWDED_RUNS)
        finally:
            self._flushing = None

    async def _gather(self, begun: float, *, crowded: bool) -> None:
        """Let events gather for the next flush."""
        is_slow = self._append_seconds > SLOW_APPEND_SECONDS
        self._window = seconds = SHORT_WINDOW_SECONDS if is_slow else WINDOW_SECONDS
        self._gather_from, self._gather_until = begun, math.inf
        if crowded:
            self._gather_until = begun + seconds
        if any(emitter.awaited for emitter in self._dirty):
            if not crowded:
                return
        elif crowded:
            seconds = LATE_SECONDS
        if time.monotonic() < begun + seconds:
            self._gathering = asyncio.get_running_loop().create_future()
            self._gather_for(seconds)
            await self._gathering

    def _gather_for(self, seconds: float) -> None:
        """Begin the next flush so many seconds after the last, if nothing begins it before."""
        left = max(0.0, self._gather_from + seconds - time.monotonic())
        self._gather_timer = asyncio.get_running_loop().call_later(left, self._gathered)

    def _gathered(self) -> None:
        self._gather_until = math.inf
        if self._gather_timer is not None:
            self._gather_timer.cancel()
            self._gather_timer = None
        if self._gathering is not None and not self._gathering.done():
            self._gathering.set_result(None)

    async def _write(self, emitters: list[Emitter]) -> None:
        left: list[tuple[Emitter, Batch, list[Recorded]]] = []
        for emitter in emitters:
            if emitter.idle:  # it failed while another run's snapshot was awaited below
                continue
            batch, events, needs_snapshot = emitter.take()
            if needs_snapshot:
                batch = replace(batch, snapshot=await emitter.snapshot())
            left.append((emitter, batch, events))
        deadline, pause = time.monotonic() + self._patience, FIRST_PAUSE
        while left:
            again: list[tuple[Emitter, Batch, list[Recorded]]] = []
            answers, away = await self._append([batch for _, batch, _ in left])
            away = away and time.monotonic() + pause < min(deadline, self._close_by)
            for (emitter, batch, events), failure in zip(left, answers, strict=True):
                if failure is None:
                    self._bus.publish(emitter.run_id, events)
                    if self._mirror is not None:
                        self._mirror.show(emitter.run_id, events)
                    crash_points.point("publish.after")
                    self._metrics.events += len(events)
                    emitter.written(events[-1].event.sequence_number)
                    if batch.ended:
                        self._metrics.runs_ended[_status(events[-1])] += 1
                    if len(events) >= FAST_EVENTS and not emitter.awaited:
                        self._rest(emitter)
                elif away and passing(failure):
                    again.append((emitter, batch, events))
                else:
                    emitter.fail(failure)
            left = again
            if left:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _append(self, batches: list[Batch]) -> tuple[list[Exception | None], bool]:
        """The store's answer to each batch, and whether the call itself failed."""
        crash_points.point("append.before")
        begun = time.monotonic()
        try:
            answers = await self._log.append(batches)
        except Exception as error:  # noqa: BLE001  # the writers must get any error
            return [error] * len(batches), True
        crash_points.point("append.after")
        self._append_seconds = time.monotonic() - begun
        self._metrics.flushed(self._append_seconds)
        return answers, False


def _status(end: Recorded) -> str:
    """The status of a run after its last event: `task.failed` is failed."""
    return str(end.event.__struct_config__.tag).rpartition(".")[2]
