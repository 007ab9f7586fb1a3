"""Continues a run whose writer was lost.

Only the log is used. Open items are closed as incomplete or interrupted, children before parents.
"""

from __future__ import annotations

import asyncio
import logging

from tailrace.core import closing_events
from tailrace.core import events as ev
from tailrace.core.closing_events import TOOL_INTERRUPTED
from tailrace.core.errors import StorageError
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, ToolCall, ToolResult
from tailrace.core.references import ReferencePool
from tailrace.core.state import TaskNode
from tailrace.ports import Claim, RunInfo, Store
from tailrace.runtime.diagnostics.log_fields import about_run
from tailrace.runtime.event_log.store_retry import patiently
from tailrace.runtime.event_log.whole_state import read_whole, whole_state
from tailrace.runtime.tasks.task import Task, contents, supersede

logger = logging.getLogger("tailrace")

WORKER_LOST, WORKER_STOPPED = "worker_lost", "worker_stopped"
"""Why a run goes on with another worker: the reasons of its `task.attempt`."""

NOT_RESTARTABLE = ErrorInfo(
    code="interrupted",
    message="The worker was lost, and the agent is not restartable. Start a new run.",
)
TOO_MANY_ATTEMPTS = ErrorInfo(
    code="too_many_attempts", message="Too many workers of this run were lost; see their logs."
)


async def closable_state(store: Store, claim: Claim, thread_id: str) -> State:
    """`whole_state`, or an empty root if the log cannot be folded.

    The root's end closes its open items (PROTOCOL.md, section 4, rule 7). So any run can be ended.
    `thread_id` is for the log.
    """
    try:
        return await whole_state(store, claim.run_id, claim.last_seq)
    except StorageError:
        raise
    except Exception:
        logger.exception(
            "run %s (agent %s) cannot be folded; it is ended",
            *(claim.run_id, claim.agent),
            extra=about_run(claim.run_id, claim.agent, thread_id),
        )
        state = State()
        state.absorb(ev.TaskCreated(task_id=claim.run_id, sequence_number=claim.last_seq))
        return state


async def begin(store: Store, task: Task, run: RunInfo | None) -> None:
    """Record that a worker begins a new run, and which reference number is its first.

    A run may be created before the run that it continues has ended, which may use more numbers.
    """
    start = await patiently(lambda: _first_reference(store, task, run))
    if start is not None:
        task._sink.pool = ReferencePool(start)
    task.emit(ev.TaskInProgress(task_id=task.task_id, reference_start=start))


async def _first_reference(store: Store, task: Task, run: RunInfo | None) -> int | None:
    """The first reference number, if it differs from the number that the run was created with."""
    is_fork = task._sink.node.facts.get("previous_seq") is not None
    if run is None or run.previous_run_id is None or is_fork:
        return None
    previous = await store.info(run.previous_run_id)
    if previous is None or (previous.ended_at or run.created_at) < run.created_at:
        return None
    root = (await read_whole(store, previous.run_id)).root
    start = root.next_reference if root is not None else 1
    return start if start > task._sink.node.reference_start else None


async def learn_references(task: Task) -> None:
    """Learn the reference numbers of earlier runs, so that the same content keeps its number."""
    if task._sink.node.reference_start > 1:
        earlier = await task._sink.emitter.earlier()
        await asyncio.to_thread(_learn, task._sink.pool, task._sink.node.reference_start, earlier)


def _learn(pool: ReferencePool, below: int, earlier: list[State]) -> None:
    for state in reversed(earlier):
        if state.root is not None:
            for content in contents(state.root):
                pool.learn(content, below)
            below = min(below, state.root.reference_start)


def resume(agent: object, task: Task, reason: str) -> None:
    """Make a run that its worker left ready for its restartable agent.

    An `Agent` begins again in its own way.
    """
    getattr(agent, "_begin_again", begin_again)(task, reason)


def begin_again(task: Task, reason: str = WORKER_LOST) -> None:
    """Close the items that the last writer left open, and supersede them."""
    node = task._sink.node
    left = [item for item in node.items.values() if item.is_open]
    with task._sink.emitter.closing():
        for event in closing_events.close_all(node):
            task.emit(event)
    for call_id in _unanswered(node):
        result = ToolResult(id=task._sink.new_id("fco"), call_id=call_id, block_list=[])
        index = task._sink.add(result)
        failed = ToolResult(id=result.id, call_id=call_id, status="failed", error=TOOL_INTERRUPTED)
        task._sink.done(index, failed)
    partial = [item.id for item in left if item.item.status == "incomplete"]
    supersede(task, partial, reason)


def _unanswered(node: TaskNode) -> list[str]:
    """Server calls without a result: their tool may have run, so it must not run again."""
    return [
        call_id
        for call_id, item in node.calls.items()
        if call_id not in node.call_results
        and isinstance(item.item, ToolCall)
        and item.item.executor == "server"
        and item.item.status == "completed"
        and not item.is_open
        and not item.superseded
    ]
