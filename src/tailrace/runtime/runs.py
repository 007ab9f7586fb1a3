"""Starts runs, finds them, stops them: from any process that shares the database.

Who works on a run is decided in the store. So a server may have a worker of its own, or leave the
work to other processes; a cancel reaches a run wherever it is, also one whose worker is dead.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec

from tailrace.core.codec import check_value, encode_event
from tailrace.core.errors import CallerError, NotFound, SeqConflict, Stopping
from tailrace.core.events import (
    Recorded,
    TaskCancelled,
    TaskCreated,
    TaskInputReceived,
    recorded,
)
from tailrace.core.fold import State
from tailrace.core.ids import check_id, is_id
from tailrace.ports import MAX_ATTEMPTS, Bus, Mirror, NewRun, RunInfo, Store
from tailrace.runtime import crash, hints, recovery
from tailrace.runtime.agents import Agent
from tailrace.runtime.follow import START, Place, Reader, look_at
from tailrace.runtime.live import CANCELLED
from tailrace.runtime.outage import Outage, watched
from tailrace.runtime.pipeline import Pipeline
from tailrace.runtime.retention import FOREVER, Retention
from tailrace.runtime.shared import Streams
from tailrace.runtime.worker import AWAY_SECONDS, LEASE_SECONDS, Worker

CANCEL_SECONDS = 2.0
"""How long a run's writer has to end it; then the canceller does so itself."""

CLOSED_SECONDS = 5.0
"""Within this time after a cancel the whole tree has ended, whoever did it."""

logger = logging.getLogger("tailrace")

RUN_PREFIX = "run_"
"""How the ids begin that are made here."""


def first_epoch(run_id: str) -> int:
    """The epoch of a run's first event, a number of four digits.

    It differs from run to run, so the log does not take another run's cursor for its own.
    """
    return 1000 + zlib.crc32(run_id.encode()) % 9000


class Runs:
    """The runs of one store, as this process sees them."""

    def __init__(
        self,
        store: Store,
        bus: Bus,
        agents: Mapping[str, Agent],
        *,
        new_id: Callable[[], str],
        now: Callable[[], float],
        worker: bool = True,
        lease: float = LEASE_SECONDS,
        max_attempts: int = MAX_ATTEMPTS,
        keep_events: float = FOREVER,
        keep_runs: float = FOREVER,
        mirror: Mirror | None = None,
    ) -> None:
        self.outage = Outage(store)
        self.store = store = watched(store, self.outage)
        self.bus = bus
        self.agents = agents
        self.name = f"tailrace_{new_id()}"
        self.reader = Reader(store, bus)
        self.streams = Streams(self.reader)
        self._pipeline = Pipeline(store, bus, patience=AWAY_SECONDS, mirror=mirror)
        self._lease = lease
        self.worker: Worker | None = None
        self.retention = Retention(store, keep_events=keep_events, keep_runs=keep_runs)
        if worker:
            self.worker = Worker(
                store,
                bus,
                agents,
                name=self.name,
                pipeline=self._pipeline,
                lease=lease,
                max_attempts=max_attempts,
            )
        self._new_id = new_id
        self._now = now
        self._draining = False

    def open(self) -> None:
        """Let this process's worker, if it has one, look for work, and see to retention."""
        if self.worker is not None:
            self.worker.start()
            self.retention.start()

    async def start(
        self,
        agent: str,
        input: Any,
        *,
        thread_id: str | None = None,
        previous_run_id: str | msgspec.UnsetType | None = msgspec.UNSET,
        run_id: str | None = None,
        options: Any = None,
        metadata: Any = None,
        owner: str = "",
        forget: bool = False,
    ) -> str:
        """Begin a run and return its id, once its first event is durable.

        It waits from then on for a worker, here or elsewhere. One to `forget` is deleted shortly
        after its end. The run continues `previous_run_id`, whose thread is the default. None
        begins a conversation. Without it, the run continues the newest run of its thread.
        """
        if self._draining:
            raise Stopping("This server is stopping and accepts no new runs. Try again.")
        if agent not in self.agents:
            known = ", ".join(sorted(self.agents)) or "none at all"
            raise NotFound(f"There is no agent {agent[:80]!r}; there is {known}.")
        for param, value in (
            *(("run_id", run_id), ("thread_id", thread_id), ("owner", owner or None)),
            ("previous_run_id", previous_run_id),
        ):
            if isinstance(value, str):
                check_id(value, param)
        run_id = run_id or f"{RUN_PREFIX}{self._new_id()}"
        earlier = await self._previous(previous_run_id, thread_id, owner)
        if thread_id is None:
            thread_id = earlier.thread_id if earlier is not None else f"thread_{self._new_id()}"
        previous = earlier.run_id if earlier is not None else None
        created = recorded(
            TaskCreated(
                task_id=run_id,
                agent=agent,
                thread_id=thread_id,
                previous_run_id=previous,
                created_at=self._now(),
                input=input,
                options=options,
                metadata=metadata,
                reference_start=await self._reference_start(previous),
            ),
            1,
        )
        # Checked before it is stored: what the protocol forbids must leave no run behind.
        State().apply(created)
        run = NewRun(
            run_id=run_id,
            agent=agent,
            thread_id=thread_id,
            public=encode_event(created),
            previous_run_id=previous,
            owner=owner,
            forget=forget,
            epoch=first_epoch(run_id),
        )
        crash.point("create.before")
        if await self.store.create(run) is None:
            raise CallerError(f"There is a run {run_id} already; choose another id.")
        crash.point("create.after")
        hints.tell(self.bus, hints.of_thread(thread_id), run_id)
        self._wake_workers(run_id)
        return run_id

    async def _previous(
        self, named: str | msgspec.UnsetType | None, thread_id: str | None, owner: str
    ) -> RunInfo | None:
        if named is msgspec.UNSET:
            return await self.latest(thread_id, owner) if thread_id is not None else None
        if named is None:
            return None
        found = await self._owned(named, owner)
        if found is None:
            raise NotFound(f"There is no run {named}.")
        return found

    async def _reference_start(self, previous: str | None) -> int:
        """The first number of a new run's pool: numbers continue along the conversation."""
        root = (await recovery.read_whole(self.store, previous)).root if previous else None
        return root.next_reference if root is not None else 1

    async def _owned(self, run_id: str, owner: str) -> RunInfo | None:
        found = await self.store.info(run_id)
        return found if found is not None and found.owner == owner else None

    async def exists(self, run_id: str, owner: str = "") -> bool:
        """Whether the owner has such a run."""
        return is_id(run_id) and await self._owned(run_id, owner) is not None

    def _wake_workers(self, run_id: str) -> None:
        if self.worker is not None:
            self.worker.wake()
        hints.tell(self.bus, hints.WORKERS, run_id)

    async def latest(self, thread_id: str, owner: str = "") -> RunInfo | None:
        """The last run of an owner's thread, if it has one."""
        return await self.store.newest_run(thread_id, owner=owner)

    async def info(self, run_id: str) -> RunInfo:
        """What is known of a run, or `NotFound`."""
        found = await self.store.info(run_id)
        if found is None:
            raise NotFound(f"There is no run {run_id}.")
        return found

    async def state(self, run_id: str, seq: int | None = None) -> State:
        """The state after event `seq`, or now; it is the caller's own."""
        return (await look_at(self.store, run_id, seq)).state

    def follow(self, run_id: str, after: int | State = 0) -> AsyncIterator[list[Recorded]]:
        """The events after number `after`, as they become durable."""
        return self.reader.follow(run_id, after)

    def follow_thread(
        self, thread_id: str, after: Place | str = START, *, owner: str = ""
    ) -> AsyncIterator[tuple[RunInfo, list[Recorded]]]:
        """The events of a thread's runs, one run after another, without end."""
        return self.reader.follow_thread(thread_id, after, owner=owner)

    async def send(self, run_id: str, value: Any) -> None:
        """Hand something to a running agent; `{"request_id": …}` answers a request of it."""
        check_value(value)
        if isinstance(value, dict) and "request_id" in value:
            try:
                msgspec.convert({**value, "task_id": run_id}, TaskInputReceived)
            except msgspec.ValidationError as error:
                raise CallerError(f"That answers no request: {error}.") from error
        if await self._post(run_id, "input", value) is None:
            await self.info(run_id)
            raise CallerError(f"Run {run_id} has ended; nobody would read it.")

    async def cancel(self, run_id: str, reason: str = CANCELLED) -> None:
        """Stop a run, wherever it is; what it had put out is kept. A second time changes nothing.

        Returns when the run has ended: its writer ended it or, where nobody reads its letters, we
        did.
        """
        # Checked before it is posted: the run's last event has to hold the reason.
        encode_event(TaskCancelled(task_id=run_id, reason=reason))
        deadline = time.monotonic() + CLOSED_SECONDS
        if await self._post(run_id, "cancel", {"reason": reason}) is None:
            return
        if not await self.reader.ended(run_id, CANCEL_SECONDS):
            await self._close_run(run_id, reason, deadline)

    async def _post(self, run_id: str, kind: Any, value: Any) -> int | None:
        crash.point("post.before")
        number = await self.store.post(run_id, kind, msgspec.json.encode(value))
        crash.point("post.after")
        if number is not None:
            self._wake_workers(run_id)
        return number

    async def _close_run(self, run_id: str, reason: str, deadline: float) -> None:
        """End a run that its writer did not end: from here on that writer is refused."""
        claim = await self.store.take_over(run_id, self.name, self._lease)
        if claim is None:
            return
        logger.warning("run %s is taken over to end it: its writer did not answer", run_id)
        crash.point("take_over.after")
        state = await recovery.closable_state(self.store, claim)
        task = recovery.writer(self._pipeline.writer(run_id, claim.epoch, state))
        try:
            task.cancel(reason)
            await task.drain()
        except SeqConflict:
            # Another canceller was quicker, or slower and came after us: it ends the run.
            await self.reader.ended(run_id, max(deadline - time.monotonic(), 0.0))

    @property
    def accepts_runs(self) -> bool:
        """Whether new runs can be started here."""
        return not self._draining

    async def drain(self, grace: float) -> None:
        """Accept no new runs, and let those of this process finish for `grace` seconds.

        After that restartable runs are released to other workers, and the others end as failed
        (`interrupted`).
        """
        self._draining = True
        if self.worker is not None:
            await self.worker.drain(grace)
            await self.worker.stop()

    async def close(self) -> None:
        """Stop what runs here, write what is left, close the store and the bus."""
        await self.retention.stop()
        await self.outage.stop()
        if self.worker is not None:
            await self.worker.stop()
        await self._pipeline.close()
        await self.reader.close()
        await self.bus.close()
        await self.store.close()
