"""Appends and publishes the events of all runs of a process, in this order and in batches.

Each run's emitter checks and encodes its events (`event_log.emitter`). One flush at a time writes
the new events of all runs in one transaction, and then publishes them. So no client sees an event
that is not durable, and a fast model costs few transactions.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextvars import Context

from msgspec.structs import replace

from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.ports import Batch, Bus, EventLog, Mirror
from tailrace.ports.store import append_now_of
from tailrace.runtime.diagnostics import crash_points
from tailrace.runtime.diagnostics.metrics import Metrics
from tailrace.runtime.event_log.emitter import FAST_EVENTS, Emitter, Taken
from tailrace.runtime.event_log.store_retry import FIRST_PAUSE, LONGEST_PAUSE, passing

CLOSE_SECONDS = 5.0
"""How long a pipeline that is closed waits for a store that is away."""

REST_SECONDS = 0.005
"""A fast run rests before its next flush, so that more events share a transaction, a wake-up and a
socket write. A model at human pace never rests, and `drain()` ends the rest."""

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
