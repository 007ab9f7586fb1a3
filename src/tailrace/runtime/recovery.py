"""Continues a run whose writer was lost.

Only the log is used. Open items are closed as incomplete or interrupted, children before parents.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tailrace.core import closing
from tailrace.core import events as ev
from tailrace.core.errors import StorageError
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, ToolCall, ToolResult
from tailrace.core.log_lines import LogLines
from tailrace.core.references import ReferencePool
from tailrace.core.snapshot import restored, unpacked_size
from tailrace.core.state import TaskNode
from tailrace.ports import Claim, RunInfo, Store
from tailrace.runtime.log_fields import about_run
from tailrace.runtime.store_retry import patiently
from tailrace.runtime.task import Task, contents, supersede

logger = logging.getLogger("tailrace")

T = TypeVar("T")

SHORT_BYTES = 32 * 1024
"""A log of this size is folded in less than a millisecond."""

INTERRUPTED = ErrorInfo(
    code="interrupted",
    message="The worker was lost, and the agent is not restartable. Start a new run.",
)
TOO_MANY_ATTEMPTS = ErrorInfo(
    code="too_many_attempts", message="Too many workers of this run were lost; see their logs."
)


async def whole_state(store: Store, run_id: str, last: int | None = None) -> State:
    """Fold the run's log, with its private parts; waits for a store that is away.

    `last` is the number of its last event, if the caller knows it.
    """
    return await patiently(lambda: _folded(store, run_id, last))


async def closable_state(store: Store, claim: Claim) -> State:
    """`whole_state`, or an empty root if the log cannot be folded.

    The root's end closes its open items (PROTOCOL.md, section 4, rule 7). So any run can be ended.
    """
    try:
        return await whole_state(store, claim.run_id, claim.last_seq)
    except StorageError:
        raise
    except Exception:
        logger.exception(
            "run %s (agent %s) cannot be folded; it is ended",
            *(claim.run_id, claim.agent),
            extra=about_run(claim.run_id, claim.agent),
        )
        state = State()
        state.absorb(ev.TaskCreated(task_id=claim.run_id, sequence_number=claim.last_seq))
        return state


async def read_whole(store: Store, run_id: str, at: int | None = None) -> State:
    """Fold the run's log, with its private parts; raises at once if the store is away.

    With `at`, up to this event: as if the run had been cancelled after it.
    """
    state = await _folded(store, run_id, at)
    if at is not None and state.root is not None and not state.root.ended:
        last = ev.TaskCancelled(task_id=run_id, reason=f"It was forked after event {at}.")
        for event in closing.ending(state.root, last):
            state.absorb(ev.recorded(event, state.sequence_number + 1))
    return state


async def _folded(store: Store, run_id: str, last: int | None) -> State:
    """Fold the run's log up to event `last`, or to its end. A thread folds a long run."""
    found = await store.snapshot(run_id, last)
    saved = found.state if found is not None else None
    weight = 0 if saved is None else unpacked_size(saved)
    state = await _worked(weight, partial(restored, saved))
    privates = await store.read_private(run_id, state.sequence_number)
    weight = sum(map(len, privates.values()))
    while last is None or state.sequence_number < last:
        stretches = await store.read_lines(run_id, state.sequence_number)
        if not stretches:
            break
        weight += sum(len(stretch.raw) for stretch in stretches)
        await _worked(weight, partial(_absorb, state, stretches, privates, last))
    return state


async def _worked(weight: int, work: Callable[[], T]) -> T:
    """Do work on about `weight` bytes; in a thread if it would block the event loop for long."""
    return work() if weight <= SHORT_BYTES else await asyncio.to_thread(work)


def _absorb(
    state: State, stretches: list[LogLines], privates: dict[int, bytes], last: int | None
) -> None:
    for stretch in stretches:
        lines = stretch.publics()
        if last is not None:
            lines = lines[: max(0, last + 1 - stretch.first_seq)]
        state.absorb_lines(lines, privates)


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


def resume(agent: object, task: Task) -> None:
    """Make a run that its worker left ready for its restartable agent.

    An agent may have a `begin_again` of its own.
    """
    getattr(agent, "begin_again", begin_again)(task)


def begin_again(task: Task) -> None:
    """Close the items that the lost writer left open, and supersede them."""
    node = task._sink.node
    left = [item for item in node.items.values() if item.is_open]
    with task._sink.emitter.closing():
        for event in closing.closing(node):
            task.emit(event)
    for call_id in _unanswered(node):
        result = ToolResult(id=task._sink.new_id("fco"), call_id=call_id, block_list=[])
        index = task._sink.add(result)
        error = ErrorInfo(code="interrupted", message="The tool was interrupted.")
        failed = ToolResult(id=result.id, call_id=call_id, status="failed", error=error)
        task._sink.done(index, failed)
    partial = [item.id for item in left if item.item.status == "incomplete"]
    supersede(task, partial, "worker_lost")


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
