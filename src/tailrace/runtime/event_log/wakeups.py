"""Hints over the bus: look into the store, there may be a run or a letter for you.

A hint carries no data and may be lost, so its listeners also look into the store from time to time.
It is sent as an event, because a bus carries only events.
"""

from __future__ import annotations

from tailrace.core.codec import encode_event
from tailrace.core.events import Notice, Recorded
from tailrace.ports import Bus

WORKERS = "hint:workers"
"""The channel of the workers: a run or a letter waits."""


def of_thread(thread_id: str) -> str:
    """The channel of a thread's followers: it has a new run."""
    return f"hint:thread:{thread_id}"


def wake(bus: Bus, where: str, run_id: str) -> None:
    """Wake the listeners of a channel."""
    event = Notice(task_id=run_id, message="look")
    bus.publish(where, [Recorded(event, encode_event(event))])
