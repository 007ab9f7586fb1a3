"""validate → append → publish, in that order, batched.

`emit()` checks an event against the fold, encodes it once and never waits. One flush at a time
writes what has gathered, of all runs of the process, in one transaction; only then is it published.
So nobody sees an event that is not durable, and a fast model pays for few transactions. `drain()`
is the backpressure: it returns when everything emitted so far is durable.
"""

from __future__ import annotations

import asyncio

from tailrace.core import snapshot
from tailrace.core.codec import encode_event, encode_private
from tailrace.core.events import TERMINAL, Event, Private, Recorded, recorded
from tailrace.core.fold import State
from tailrace.ports import Batch, Bus, EventLog

MIN_SNAPSHOT_BYTES = 64 * 1024
"""A run shorter than this is replayed faster than a snapshot is read."""


class Emitter:
    """The one writer of one run."""

    def __init__(self, pipeline: Pipeline, run_id: str, epoch: int, state: State) -> None:
        self.run_id = run_id
        self.epoch = epoch
        self.state = state
        self._pipeline = pipeline
        self._events: list[Recorded] = []
        self._privates: list[bytes] = []
        self._tail_bytes = 0
        self._snapshot_bytes = MIN_SNAPSHOT_BYTES
        self.failure: Exception | None = None

    def emit(self, event: Event, private: Private | None = None) -> None:
        """Record the next event of the run; it is shown to nobody before it is durable.

        Raises `IllegalEvent` if the protocol forbids it here, and the storage's error if an
        earlier event could not be written: then the run has no writer any more.
        """
        if self.failure is not None:
            raise self.failure
        event = recorded(event, self.state.sequence_number + 1)
        public = encode_event(event)
        hidden = encode_private(private) if private is not None else b""
        self.state.apply(event, private)
        self._events.append(Recorded(event, public, self.epoch))
        self._privates.append(hidden)
        self._tail_bytes += len(public)
        self._pipeline.wake(self)

    async def drain(self) -> None:
        """Wait until everything emitted so far is durable, or raise what prevents it."""
        await self._pipeline.settled(self)
        if self.failure is not None:
            raise self.failure

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be written."""
        return not self._events

    def take(self) -> tuple[Batch, list[Recorded]]:
        """What has gathered, as one batch."""
        events, self._events = self._events, []
        privates, self._privates = self._privates, []
        saved = None
        # A snapshot each time the tail outweighs the last one: their cost stays linear.
        if self._tail_bytes > self._snapshot_bytes:
            saved = snapshot.save(self.state, private=True)
            self._snapshot_bytes = max(len(saved), MIN_SNAPSHOT_BYTES)
            self._tail_bytes = 0
        ended = any(
            isinstance(one.event, TERMINAL) and one.event.task_id == self.run_id for one in events
        )
        batch = Batch(
            run_id=self.run_id,
            epoch=self.epoch,
            first_seq=events[0].event.sequence_number,
            publics=[one.public for one in events],
            privates=privates,
            ended=ended,
            snapshot=saved,
        )
        return batch, events


class Pipeline:
    """Writes and publishes for all runs of the process."""

    def __init__(self, log: EventLog, bus: Bus) -> None:
        self._log = log
        self._bus = bus
        self._dirty: dict[str, Emitter] = {}
        self._flushing: asyncio.Task[None] | None = None
        self._in_flight: set[str] = set()
        self._flushed = asyncio.Condition()

    def writer(self, run_id: str, epoch: int = 1, state: State | None = None) -> Emitter:
        """The writer of a run that exists in the log, which goes on after `state`."""
        return Emitter(self, run_id, epoch, state or State())

    def wake(self, emitter: Emitter) -> None:
        """Note that a run has something to write."""
        self._dirty[emitter.run_id] = emitter
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())

    async def settled(self, emitter: Emitter) -> None:
        """Wait until nothing of a run waits or is being written."""
        async with self._flushed:
            await self._flushed.wait_for(
                lambda: (
                    emitter.run_id not in self._in_flight
                    and (emitter.idle or emitter.failure is not None)
                )
            )

    async def close(self) -> None:
        """Write what is left."""
        if self._flushing is not None:
            await self._flushing

    async def _flush(self) -> None:
        try:
            while self._dirty:
                dirty, self._dirty = self._dirty, {}
                self._in_flight = set(dirty)
                await self._write(list(dirty.values()))
                self._in_flight = set()
                async with self._flushed:
                    self._flushed.notify_all()
        finally:
            self._flushing = None

    async def _write(self, emitters: list[Emitter]) -> None:
        taken = [(emitter, *emitter.take()) for emitter in emitters]
        try:
            answers = await self._log.append([batch for _, batch, _ in taken])
        except Exception as error:  # noqa: BLE001  # whatever it is, the writers must learn of it
            answers = [error] * len(taken)
        for (emitter, _, events), failure in zip(taken, answers, strict=True):
            if failure is not None:
                emitter.failure = failure
            else:
                self._bus.publish(emitter.run_id, events)
