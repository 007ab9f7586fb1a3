"""Runs and the agents that make them, inside one process.

An agent here is an async function that writes its run through a `TaskWriter`. It lives apart from
every connection: closing a request stops nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from tailrace.core.codec import encode_event
from tailrace.core.errors import CallerError, NotFound, StorageError, TailraceError
from tailrace.core.events import Recorded, TaskCreated, TaskInProgress, recorded
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo
from tailrace.ports import Bus, NewRun, RunInfo, Store
from tailrace.runtime.follow import follow, state_at
from tailrace.runtime.pipeline import Pipeline
from tailrace.runtime.task import TaskWriter

Agent = Callable[[TaskWriter], Awaitable[None]]
"""What a user declares: an async function that writes one run."""

LEASE_SECONDS = 3600.0
"""How long a claim of this process holds."""

logger = logging.getLogger("tailrace")


class Runs:
    """Starts runs, and finds those that were started."""

    def __init__(
        self,
        log: Store,
        bus: Bus,
        agents: Mapping[str, Agent],
        *,
        new_id: Callable[[], str],
        now: Callable[[], float],
    ) -> None:
        self.log = log
        self.bus = bus
        self.agents = agents
        self._pipeline = Pipeline(log, bus)
        self._new_id = new_id
        self._now = now
        self._live: dict[str, asyncio.Task[None]] = {}

    async def start(
        self,
        agent: str,
        input: Any,
        *,
        thread_id: str | None = None,
        run_id: str | None = None,
        metadata: Any = None,
    ) -> str:
        """Begin a run and return its id, once its first event is durable."""
        if agent not in self.agents:
            known = ", ".join(sorted(self.agents)) or "none at all"
            raise NotFound(f"There is no agent {agent!r}; there is {known}.")
        run_id = run_id or f"run_{self._new_id()}"
        thread_id = thread_id or f"thread_{self._new_id()}"
        earlier = await self.latest(thread_id)
        previous = earlier.run_id if earlier is not None else None
        created = recorded(
            TaskCreated(
                task_id=run_id,
                agent=agent,
                thread_id=thread_id,
                previous_run_id=previous,
                created_at=self._now(),
                input=input,
                metadata=metadata,
            ),
            1,
        )
        # Checked before it is stored: what the protocol forbids must leave no run behind.
        state = State()
        state.apply(created)
        run = NewRun(
            run_id=run_id,
            agent=agent,
            thread_id=thread_id,
            public=encode_event(created),
            previous_run_id=previous,
        )
        if await self.log.create(run) is None:
            raise CallerError(f"There is a run {run_id} already; choose another id.")
        claim = await self.log.take_over(run_id, f"server_{self._new_id()}", LEASE_SECONDS)
        if claim is None:
            raise StorageError(f"Run {run_id} was deleted before it could begin.")
        emitter = self._pipeline.writer(run_id, claim.epoch, state)
        emitter.emit(TaskInProgress(task_id=run_id))
        await emitter.drain()
        task = TaskWriter(emitter, run_id)
        work = asyncio.get_running_loop().create_task(self._work(agent, task), name=run_id)
        self._live[run_id] = work
        work.add_done_callback(lambda _: self._live.pop(run_id, None))
        return run_id

    async def _work(self, agent: str, task: TaskWriter) -> None:
        try:
            await self.agents[agent](task)
            task.complete()
        except asyncio.CancelledError:
            task.cancel("The server stopped.")
        except TailraceError as error:
            logger.exception("run %s failed", task.task_id)
            task.fail(ErrorInfo(code=error.code, message=str(error)))
        except Exception:
            # What an agent raises may hold a secret: clients learn that it failed, the log why.
            logger.exception("run %s failed", task.task_id)
            task.fail(ErrorInfo(code="agent_error", message="The agent failed."))
        await task.drain()

    async def latest(self, thread_id: str) -> RunInfo | None:
        """A thread's last run, if it has one."""
        last: RunInfo | None = None
        while True:
            after = last.run_id if last is not None else None
            page = await self.log.runs(thread_id=thread_id, after=after, limit=1000)
            if not page:
                return last
            last = page[-1]

    async def info(self, run_id: str) -> RunInfo:
        """What is known of a run, or `NotFound`."""
        found = await self.log.info(run_id)
        if found is None:
            raise NotFound(f"There is no run {run_id}.")
        return found

    async def state(self, run_id: str, seq: int | None = None) -> State:
        """The state after event `seq`, or now."""
        return await state_at(self.log, run_id, seq)

    def follow(self, run_id: str, after: int = 0) -> AsyncIterator[list[Recorded]]:
        """The events after number `after`, as they become durable."""
        return follow(self.log, self.bus, run_id, after)

    async def cancel(self, run_id: str) -> None:
        """Stop a run of this process; what it had put out is kept."""
        work = self._live.get(run_id)
        if work is not None:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def close(self) -> None:
        """Stop what runs, write what is left, close the log."""
        for run_id in list(self._live):
            await self.cancel(run_id)
        await self._pipeline.close()
        await self.log.close()
