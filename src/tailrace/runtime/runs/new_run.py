"""A new run before it is stored: its ids, what it continues, and its first event."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

from tailrace.core.codec import encode_event
from tailrace.core.errors import CallerError, NotFound
from tailrace.core.events import TaskCreated, recorded
from tailrace.core.fold import State
from tailrace.core.ids import check_id
from tailrace.ports import NewRun, RunInfo, Store
from tailrace.runtime.event_log.whole_state import read_whole

RUN_PREFIX = "run_"
"""The prefix of the ids that are made here."""


def first_epoch() -> int:
    """The epoch of a run's first event, a number of ten digits.

    It differs from run to run, so that a cursor of another run is not accepted. The other run may
    be a deleted run with the same id.
    """
    return 10**9 + secrets.randbits(32)


async def new_run(
    store: Store,
    event: TaskCreated,
    *,
    owner: str,
    forget: bool,
    queued: bool,
    ordinal: int | None,
) -> NewRun:
    """The run as the store takes it. An illegal event is refused here, and leaves no run behind."""
    start = await _reference_start(store, event.previous_run_id, event.previous_seq)
    created = recorded(msgspec.structs.replace(event, reference_start=start), 1)
    State().apply(created)
    return NewRun(
        run_id=event.task_id,
        agent=event.agent or "",
        thread_id=event.thread_id or "",
        public=encode_event(created),
        previous_run_id=event.previous_run_id,
        owner=owner,
        forget=forget,
        queued=queued,
        ordinal=ordinal,
        epoch=first_epoch(),
    )


async def _reference_start(store: Store, previous: str | None, at: int | None) -> int:
    """The first number of a new run's pool: numbers continue along the conversation."""
    root = (await read_whole(store, previous, at)).root if previous else None
    return root.next_reference if root is not None else 1


def check_ids(**ids: Any) -> None:
    """Check the ids that a caller chose, by the names of their parameters."""
    for param, value in ids.items():
        if isinstance(value, str):
            check_id(value, param)


def check_continued(earlier: RunInfo) -> None:
    """Refuse to continue a run that is deleted soon."""
    if earlier.forget:
        raise NotFound(
            f"Run {earlier.run_id} has `store: false`: it is deleted soon, and no run continues it."
            " Send its messages in the input.",
            param="previous_run_id",
        )


def check_fork(earlier: RunInfo | None, seq: int, *, named: bool) -> None:
    """Check the event that a run forks. Unless `named`, its run is the thread's newest."""
    if earlier is None:
        raise (CallerError if named else NotFound)(
            "`previous_seq` is an event of the run to fork; name the run in `previous_run_id`.",
            param="previous_seq",
        )
    if not 1 <= seq <= earlier.last_seq:
        raise NotFound(
            f"`previous_seq` is {seq}; run {earlier.run_id} has the events 1 to "
            f"{earlier.last_seq}.",
            param="previous_seq",
        )
    if not earlier.keeps(seq):
        raise NotFound(
            f"The events of run {earlier.run_id} are no longer kept; leave `previous_seq` out to "
            "fork it at its end.",
            param="previous_seq",
        )
