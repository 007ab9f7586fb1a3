"""From a cursor to the end of the run: history, then live, on one path. No gap, no repeat.

Subscribe first, then read the log, then take what the bus brings and drop what was seen. A hole, a
silence or a lost publish all have the same answer: read the log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from tailrace.core.errors import NotFound
from tailrace.core.events import TERMINAL, Recorded
from tailrace.core.fold import State
from tailrace.core.snapshot import restore
from tailrace.ports import Bus, EventLog

POLL_SECONDS = 1.0
"""How long a reader trusts a silent bus before it looks at the log itself."""


async def follow(
    log: EventLog, bus: Bus, run_id: str, after: int = 0
) -> AsyncIterator[list[Recorded]]:
    """The run's events after number `after`, in lists, until its last one.

    An empty list means that nothing came for a while: a chance to send a heartbeat.
    """
    subscription = bus.subscribe(run_id)
    try:
        seen = after
        live: list[Recorded] = []
        while True:
            fresh = [one for one in live if one.event.sequence_number > seen]
            if not _joins(fresh, seen):
                fresh = await log.read(run_id, seen)
            if fresh:
                yield fresh
                seen = fresh[-1].event.sequence_number
                if _is_end(fresh[-1], run_id):
                    return
            elif await _is_over(log, run_id, seen):
                return
            elif not live:
                yield []
            if not fresh or live:
                live = await subscription.get(POLL_SECONDS)
    finally:
        subscription.close()


def _joins(events: list[Recorded], seen: int) -> bool:
    """Whether these events follow what was seen without a hole."""
    return (
        bool(events)
        and events[0].event.sequence_number == seen + 1
        and (events[-1].event.sequence_number == seen + len(events))
    )


def _is_end(recorded: Recorded, run_id: str) -> bool:
    return isinstance(recorded.event, TERMINAL) and recorded.event.task_id == run_id


async def _is_over(log: EventLog, run_id: str, seen: int) -> bool:
    """Whether a reader that finds nothing has in fact seen the end."""
    info = await log.info(run_id)
    return info is None or (info.ended_at is not None and seen >= info.last_seq)


async def state_at(log: EventLog, run_id: str, seq: int | None = None) -> State:
    """The run's public state after event `seq` (or now), from the nearest snapshot."""
    info = await log.info(run_id)
    if info is None:
        raise NotFound(f"There is no run {run_id}.")
    target = info.last_seq if seq is None else seq
    found = await log.snapshot(run_id, target)
    state = restore(found.state) if found is not None else State()
    while state.sequence_number < target:
        events = await log.read(run_id, state.sequence_number)
        if not events:
            break
        for one in events:
            if one.event.sequence_number > target:
                break
            state.absorb(one.event)
    return state
