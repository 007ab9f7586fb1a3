"""A task that has begun, in a log of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tailrace.buses.local import LocalBus
from tailrace.core.codec import encode_event
from tailrace.core.events import TaskCreated, TaskInProgress, recorded
from tailrace.core.fold import State
from tailrace.ports import NewRun
from tailrace.runtime.event_log.pipeline import Pipeline
from tailrace.runtime.tasks.task import Task
from tailrace.stores.sqlite.store import SqliteStore


class Begun(NamedTuple):
    task: Task
    log: SqliteStore
    state: State


@asynccontextmanager
async def begun_in(folder: Path, run_id: str, **created: Any) -> AsyncIterator[Begun]:
    """The root task of a run; `created` are fields of its first event."""
    log = SqliteStore(folder / "log.db")
    first = recorded(TaskCreated(task_id=run_id, **created), 1)
    await log.create(NewRun(run_id=run_id, agent="a", thread_id="t", public=encode_event(first)))
    state = State()
    state.apply(first)
    pipeline = Pipeline(log, LocalBus())
    emitter = pipeline.writer(run_id, state=state)
    emitter.emit(TaskInProgress(task_id=run_id))
    yield Begun(Task(emitter, run_id), log, state)
    await emitter.drain()
    await pipeline.close()
    await log.close()
