"""Reads the whole state of a run: its public and its private parts, as its writer had them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tailrace.core import closing_events
from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.core.log_lines import LogLines
from tailrace.core.stored_state import restored, unpacked_size
from tailrace.ports import Store
from tailrace.runtime.event_log.store_retry import patiently

T = TypeVar("T")

SHORT_BYTES = 32 * 1024
"""A log of this size is folded in less than a millisecond."""


async def whole_state(store: Store, run_id: str, last: int | None = None) -> State:
    """Fold the run's log, with its private parts; waits for a store that is away.

    `last` is the number of its last event, if the caller knows it.
    """
    return await patiently(lambda: _folded(store, run_id, last))


async def read_whole(store: Store, run_id: str, at: int | None = None) -> State:
    """Fold the run's log, with its private parts; raises at once if the store is away.

    With `at`, up to this event: as if the run had been cancelled after it.
    """
    state = await _folded(store, run_id, at)
    if at is not None:
        end_fork(state)
    return state


def end_fork(state: State) -> None:
    """End a run as if it had been cancelled after this state: another run was forked there."""
    root = state.root
    if root is not None and not root.ended:
        reason = f"It was forked after event {state.sequence_number}."
        last = ev.TaskCancelled(task_id=root.task_id, reason=reason)
        for event in closing_events.ending(root, last):
            state.absorb(ev.recorded(event, state.sequence_number + 1))


async def _folded(store: Store, run_id: str, last: int | None) -> State:
    """Fold the run's log up to event `last`, or to its end. A thread folds a long run."""
    found = await store.snapshot(run_id, last) if last != 1 else None  # it is not worth one yet
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
