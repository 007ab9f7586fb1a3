"""Taps on the shoulder over the bus: look into the store, there may be something for you.

A hint says nothing that has to be believed and may be lost; whoever waits for one also looks by
itself now and then. It travels as an event, since that is all that a bus carries.
"""

from __future__ import annotations

from tailrace.core.codec import encode_event
from tailrace.core.events import Notice, Recorded
from tailrace.ports import Bus

WORKERS = "hint:workers"
"""Where workers listen: a run waits, or a letter does."""


def of_thread(thread_id: str) -> str:
    """Where the followers of a thread listen for its next run."""
    return f"hint:thread:{thread_id}"


def tell(bus: Bus, where: str, run_id: str) -> None:
    """Wake whoever listens there."""
    event = Notice(task_id=run_id, message="look")
    bus.publish(where, [Recorded(event, encode_event(event))])
