"""Starts, finds and cancels runs, from any process that shares the database.

The store decides which worker has a run. So a server may have a worker, or leave the work to other
processes. A cancel reaches every run, even if its worker is dead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from copy import copy
from typing import Any

import msgspec

from tailrace.core.codec import encode_event
from tailrace.core.errors import CallerError, NotFound, RunEnded, SeqConflict, Stopping
from tailrace.core.events import Recorded, TaskCancelled, TaskCreated
from tailrace.core.fold import State
from tailrace.core.ids import is_id
from tailrace.ports import MAX_ATTEMPTS, Bus, Mirror, NewRun, RunInfo, Store
from tailrace.runtime.agents.busy_thread import BusyThread, next_place
from tailrace.runtime.agents.functions import AgentFunction, unknown_agent
from tailrace.runtime.diagnostics import crash_points
from tailrace.runtime.diagnostics.log_fields import about_run
from tailrace.runtime.diagnostics.metrics import Metrics
from tailrace.runtime.event_log import wakeups
from tailrace.runtime.event_log.outage import Outage, watched
from tailrace.runtime.event_log.pipeline import Pipeline
from tailrace.runtime.event_log.retention import FOREVER, Retention
from tailrace.runtime.followers.fanout import Streams
from tailrace.runtime.followers.follow import Reader, RunState, look_at
from tailrace.runtime.followers.other_processes import FollowedElsewhere
from tailrace.runtime.followers.tail import run_not_found
from tailrace.runtime.runs.input_checks import check_input, check_unread, was_answered
from tailrace.runtime.runs.new_run import (
    RUN_PREFIX,
    check_continued,
    check_fork,
    check_ids,
    new_run,
)
from tailrace.runtime.runs.quota import RunQuota
from tailrace.runtime.tasks.chain import EndedRuns
from tailrace.runtime.tasks.task import begun_task
from tailrace.runtime.workers import recovery
from tailrace.runtime.workers.claimed_run import CANCELLED
from tailrace.runtime.workers.worker import AWAY_SECONDS, LEASE_SECONDS, MAX_RUNS, Worker

CANCEL_SECONDS = 2.0
"""How long a cancelled run's worker has to end it. Then the canceller ends it."""

CLOSED_SECONDS = 5.0
"""Within this time after a cancel the run and its sub-agents have ended."""

logger = logging.getLogger("tailrace")


class Runs:
    """The runs of one store: all of them, or with `of` those of one owner."""

    __slots__ = (
        *("_busy_thread", "_draining", "_found", "_lease", "_new_id", "_now", "_pipeline"),
        *(
            "_quota",
            "agents",
            "bus",
            "ended",
            "followed_elsewhere",
            "metrics",
            "name",
            "outage",
            "owner",
            "reader",
            "retention",
        ),
        *("started", "store", "streams", "worker"),
    )  # an open stream keeps its view

    def __init__(
        self,
        store: Store,
        bus: Bus,
        agents: Mapping[str, AgentFunction],
        *,
        new_id: Callable[[], str],
        now: Callable[[], float],
        worker: bool = True,
        lease: float = LEASE_SECONDS,
        max_attempts: int = MAX_ATTEMPTS,
        keep_events: float = FOREVER,
        keep_runs: float = FOREVER,
        mirror: Mirror | None = None,
        busy_thread: BusyThread = "run",
        max_runs: int = MAX_RUNS,
    ) -> None:
        self.outage = Outage(store)
        self.store = store = watched(store, self.outage)
        self.bus = bus
        self.agents = agents
        self.metrics = metrics = Metrics()
        self.name = f"tailrace_{new_id()}"
        self.reader = Reader(store, bus)
        self.followed_elsewhere = FollowedElsewhere(store, self.reader.tails)
        self.streams = Streams(self.reader)
        self.ended = EndedRuns(store)
        self._pipeline = Pipeline(
            store, bus, patience=AWAY_SECONDS, mirror=mirror, metrics=metrics, now=now
        )
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
                max_runs=max_runs,
                max_attempts=max_attempts,
                metrics=metrics,
                ended=self.ended,
            )
        self._busy_thread = busy_thread
        self._new_id = new_id
        self._now = now
        self._draining = asyncio.Event()
        self.owner: str | None = None  # whose runs these are; None: everyone's
        self._found: tuple[str, ...] = ()
        self._quota: RunQuota | None = None
        self.started = False  # whether this view has started a run

    def of(self, owner: str, quota: RunQuota | None = None) -> Runs:
        """The same runs as one owner sees them: runs of other owners do not exist.

        `quota` limits how many runs the owner may have at the same time.
        """
        view = copy(self)
        view.owner = owner
        view._found, view._quota = (), quota  # noqa: SLF001
        return view

    def open(self) -> None:
        """Start to answer other processes, and the worker and retention if there is a worker."""
        self.followed_elsewhere.start()
        if self.worker is not None:
            self.worker.start()
            self.retention.start()

    async def start(self, agent: str, input: Any, **options: Any) -> str:
        """Begin a run and return its id; the options are those of `create`."""
        return (await self.create(agent, input, **options)).run_id

    async def create(
        self,
        agent: str,
        input: Any,
        *,
        thread_id: str | None = None,
        previous_run_id: str | msgspec.UnsetType | None = msgspec.UNSET,
        previous_seq: int | None = None,
        run_id: str | None = None,
        options: Any = None,
        metadata: Any = None,
        owner: str | None = None,
        forget: bool = False,
        waits: bool = False,
    ) -> RunInfo:
        """Begin a run, and return what is known of it once its first event is durable.

        It waits from then on for a worker, here or elsewhere. With `forget` it is deleted shortly
        after its end, and no run continues it. The run continues `previous_run_id`, whose thread is
        the default. None begins a conversation. Without it, the run continues the newest run of its
        thread that can be continued. With `previous_seq` it is a fork: it continues that run as it
        was after this event. With `waits` it begins after the earlier runs of its thread, whatever
        `busy_thread` says.
        """
        if self.owner is not None or owner is None:
            owner = self.owner or ""
        if self._draining.is_set():
            raise Stopping("This server is stopping and accepts no new runs. Try again.")
        self.check_agent(agent)
        options = self.allowed_options(agent, options, forget=forget)
        check_ids(
            run_id=run_id,
            thread_id=thread_id,
            owner=owner or None,
            previous_run_id=previous_run_id,
        )
        run_id = run_id or f"{RUN_PREFIX}{self._new_id()}"
        earlier = None
        if isinstance(previous_run_id, str):
            earlier = await self.of(owner).info(previous_run_id, "previous_run_id")
            check_continued(earlier)
        continues_newest = previous_run_id is msgspec.UNSET and thread_id is not None
        if thread_id is None:
            thread_id = earlier.thread_id if earlier is not None else f"thread_{self._new_id()}"
        busy = "queue" if waits else self._busy(agent)
        info = None
        while info is None:
            place = await next_place(busy, self.store, thread_id, owner, self.cancel)
            if continues_newest:
                earlier = await self.of(owner).continued(thread_id)
            if previous_seq is not None:
                check_fork(earlier, previous_seq, named=not continues_newest)
            try:
                info = await self._stored(
                    await new_run(
                        self.store,
                        TaskCreated(
                            task_id=run_id,
                            agent=agent,
                            thread_id=thread_id,
                            previous_run_id=earlier.run_id if earlier is not None else None,
                            previous_seq=previous_seq,
                            created_at=self._now(),
                            input=input,
                            options=options,
                            metadata=metadata,
                        ),
                        owner=owner,
                        forget=forget,
                        queued=busy == "queue",
                        ordinal=place,
                    )
                )
            except SeqConflict:
                continue  # another run of the thread was created at the same moment
        self._announce(info)
        return info

    def _busy(self, agent: str) -> BusyThread:
        busy: BusyThread | None = getattr(self.agents[agent], "busy_thread", None)
        return busy or self._busy_thread

    def waits_for_earlier(self, agent: str) -> bool:
        """Whether a run of this agent waits for the earlier runs of its thread."""
        return self._busy(agent) == "queue"

    def _announce(self, info: RunInfo) -> None:
        """Count a new run, and wake the followers of its thread and the workers."""
        self.metrics.runs_started += 1
        crash_points.point("create.after")
        self._note(info.run_id)
        self.started = self.owner is not None
        wakeups.wake(self.bus, wakeups.of_thread(info.thread_id), info.run_id)
        self._wake_workers(info.run_id)

    def allowed_options(self, agent: str, options: Any, *, forget: bool = False) -> Any:
        """The options of a run, as far as its agent allows them.

        Those of a run with `forget` have `store`: its agent asks the provider to keep nothing.
        """
        if forget and isinstance(options, dict | None):
            options = {**(options or {}), "store": False}
        allowed = getattr(self.agents[agent], "_allowed_options", None)
        return allowed(options) if allowed is not None and isinstance(options, dict) else options

    def check_agent(self, agent: str, param: str | None = None) -> None:
        """Raise `NotFound` unless there is such an agent; `param` is the field that names it."""
        if agent not in self.agents:
            raise NotFound(unknown_agent(agent, self.agents), param=param)

    async def _stored(self, run: NewRun) -> RunInfo:
        crash_points.point("create.before")
        if self._quota is None:
            info = await self.store.create(run)
        else:
            await self._quota.take()
            try:
                info = await self.store.create(run)
            finally:
                self._quota.give()
        if info is None:
            raise CallerError(
                f"Run {run.run_id} exists already; choose another id.", param="run_id"
            )
        return info

    async def find(self, run_id: str) -> RunInfo | None:
        """The run's row; None if the run is unknown or another owner's."""
        found = await self.store.info(run_id)
        if found is None or self.owner not in (None, found.owner):
            return None
        self._note(run_id)
        self.reader.tails.note(found)
        return found

    def _note(self, run_id: str) -> None:
        if self.owner is not None and run_id not in self._found:
            self._found = (*self._found[-7:], run_id)

    async def check(self, run_id: str) -> None:
        """Raise `NotFound` if the run is another owner's. A run that was found is not read again.

        Without an owner it checks nothing.
        """
        if self.owner is not None and run_id not in self._found:
            await self.info(run_id)

    async def exists(self, run_id: str) -> bool:
        """Whether there is such a run."""
        return is_id(run_id) and await self.find(run_id) is not None

    def _wake_workers(self, run_id: str) -> None:
        if self.worker is not None:
            self.worker.wake(run_id)
        wakeups.wake(self.bus, wakeups.WORKERS, run_id)

    async def latest(self, thread_id: str) -> RunInfo | None:
        """The newest run of a thread, if there is any."""
        return await self.store.newest_run(thread_id, owner=self.owner or "")

    async def continued(self, thread_id: str) -> RunInfo | None:
        """The run that the next run of a thread continues: the newest that is not deleted soon."""
        found = await self.latest(thread_id)
        while found is not None and found.forget:
            found = await self.find(found.previous_run_id) if found.previous_run_id else None
        return found

    async def newest(self, limit: int, before: str | None = None) -> list[RunInfo]:
        """The newest runs of all threads, newest first; those before run `before`, if given."""
        return await self.store.latest_runs(owner=self.owner or "", before=before, limit=limit)

    async def of_thread(self, thread_id: str, first: int = 1) -> list[RunInfo]:
        """A page of a thread's runs from ordinal `first` on."""
        return await self.store.thread_runs(thread_id, owner=self.owner or "", first=first)

    def thread_runs(self, thread_id: str, first: int = 1) -> AsyncGenerator[RunInfo | None, None]:
        """A thread's runs from ordinal `first` on, and later runs (`Reader.thread_runs`)."""
        return self.reader.thread_runs(thread_id, first, owner=self.owner or "")

    async def last_ordinal(self, thread_id: str) -> int:
        """The highest ordinal of a thread so far; 0 before its first run."""
        return await self.store.last_ordinal(thread_id, owner=self.owner or "")

    async def blob(self, sha256: str) -> tuple[bytes, str] | None:
        """The bytes of a blob and their MIME type, if a run uses it."""
        return await self.store.blob(sha256, owner=self.owner)

    async def info(self, run_id: str, param: str = "run_id") -> RunInfo:
        """The run's row; raises `NotFound`, with the field of the request that names the run."""
        found = await self.find(run_id)
        if found is None:
            raise run_not_found(run_id, param)
        return found

    async def look(self, run_id: str, seq: int | None = None) -> RunState:
        """The run after event `seq`, or now; raises `NotFound`. Its state is shared."""
        if seq is not None:
            await self.check(run_id)
        look = await self.reader.look(run_id, seq, owner=self.owner)
        self._note(run_id)
        return look

    async def state(self, run_id: str, seq: int | None = None) -> State:
        """The state after event `seq`, or now. The caller may change it."""
        await self.check(run_id)
        return (await look_at(self.store, run_id, seq)).state

    async def follow(self, run_id: str, after: int | State = 0) -> AsyncIterator[list[Recorded]]:
        """The events after number `after`, as they become durable."""
        await self.check(run_id)
        async with aclosing(self.reader.follow(run_id, after)) as batches:
            async for batch in batches:
                yield batch

    async def send(self, run_id: str, value: Any) -> None:
        """Send a value to a running agent. `{"request_id": …}` answers a request of the run."""
        await self.check(run_id)
        await check_input(self.reader, self.agents, run_id, value)
        await check_unread(self.store, run_id, value)
        if await self._post(run_id, "input", value) is None:
            if await was_answered(self.reader, run_id, value):
                return
            raise RunEnded(f"Run {run_id} has ended and takes no input; start a new run.")

    async def cancel(self, run_id: str, reason: str = CANCELLED) -> None:
        """Cancel a run, and return when it has ended. A second cancel changes nothing.

        Its output stays. The run's worker ends it; if no worker answers, this process does.
        """
        # Checked before it is posted: the run's last event contains the reason.
        encode_event(TaskCancelled(task_id=run_id, reason=reason))
        await self.check(run_id)
        deadline = time.monotonic() + CLOSED_SECONDS
        if await self._post(run_id, "cancel", {"reason": reason}) is None:
            return
        if not await self.reader.ended(run_id, CANCEL_SECONDS):
            await self._close_run(run_id, reason, deadline)

    async def cancel_child(self, run_id: str, task_id: str, reason: str = CANCELLED) -> None:
        """Stop one sub-agent of a run, wherever it is; its caller's model reads that."""
        encode_event(TaskCancelled(task_id=task_id, reason=reason))
        if task_id not in (await self.state(run_id)).tasks:
            raise NotFound(
                f"Run {run_id} has no task {task_id}. Check the id of the sub-agent.",
                param="task_id",
            )
        await self._post(run_id, "cancel", {"reason": reason, "task_id": task_id})

    async def delete(self, run_id: str) -> None:
        """Delete a run. A run that has not ended is cancelled first."""
        await self.info(run_id)
        await self.cancel(run_id)
        await self.store.delete(run_id)

    async def _post(self, run_id: str, kind: Any, value: Any) -> int | None:
        crash_points.point("post.before")
        number = await self.store.post(run_id, kind, msgspec.json.encode(value))
        crash_points.point("post.after")
        if number is not None:
            self._wake_workers(run_id)
        return number

    async def _close_run(self, run_id: str, reason: str, deadline: float) -> None:
        """End a run that its worker did not end. Its worker can write no more."""
        claim = await self.store.take_over(run_id, self.name, self._lease)
        if claim is None:
            return
        info = await self.store.info(run_id)
        thread_id = info.thread_id if info is not None else ""
        logger.warning(
            "run %s (agent %s) is ended here: its worker did not answer",
            *(run_id, claim.agent),
            extra=about_run(run_id, claim.agent, thread_id),
        )
        crash_points.point("take_over.after")
        state = await recovery.closable_state(self.store, claim, thread_id)
        task = begun_task(self._pipeline.writer(run_id, claim.epoch, state), run_id)
        try:
            task.cancel(reason)
            await task.drain()
        except SeqConflict:
            # Another canceller has taken the run, and ends it.
            await self.reader.ended(run_id, max(deadline - time.monotonic(), 0.0))

    @property
    def accepts_runs(self) -> bool:
        """Whether new runs can be started here."""
        return not self._draining.is_set()

    async def drain(self, grace: float) -> None:
        """Accept no new runs, and let the runs of this process finish for `grace` seconds.

        After that restartable runs are released to other workers, and the others end as failed
        (`interrupted`).
        """
        self._draining.set()
        if self.worker is not None:
            await self.worker.drain(grace)
            await self.worker.stop()

    async def close(self) -> None:
        """Stop the worker, write the waiting events, close the store and the bus."""
        await self.followed_elsewhere.stop()
        await self.retention.stop()
        await self.outage.stop()
        if self.worker is not None:
            await self.worker.stop()
        await self._pipeline.close()
        await self.reader.close()
        await self.bus.close()
        await self.store.close()
