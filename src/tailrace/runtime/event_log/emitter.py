"""The writer of one run, which emits its events.

`emit()` checks an event against the fold, encodes it once and never waits. `drain()` is the
backpressure: it returns when all emitted events are durable.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tailrace.core import snapshot, stored_state
from tailrace.core.codec import encode_event, encode_private
from tailrace.core.errors import NotDrained
from tailrace.core.events import TIMED, Event, Private, Recorded, timed
from tailrace.core.fold import State
from tailrace.ports import Batch, Blobs
from tailrace.runtime.diagnostics.telemetry import Operation
from tailrace.runtime.event_log.offload import build
from tailrace.runtime.event_log.work_clock import NOTED, WorkClock

if TYPE_CHECKING:
    from tailrace.runtime.event_log.pipeline import Pipeline
    from tailrace.runtime.tasks.inbox import UnreadLetters

MIN_SNAPSHOT_BYTES = 64 * 1024
LAST_SNAPSHOT_BYTES = 8 * 1024
"""Shorter runs, or rests of runs, are replayed faster than a snapshot is read. At the run's end
less is enough: all later readers use this snapshot."""

BATCHES_TO_JOIN = 512
FAST_BATCHES_TO_JOIN = 128
"""After so many batches a run's rows are joined while it runs: late readers read them all. The
batches of a fast run have more events."""

FAST_EVENTS = 4
"""A run is fast if it got so many new events during one flush."""

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
