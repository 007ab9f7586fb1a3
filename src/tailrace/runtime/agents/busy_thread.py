"""What happens to a new run while another run of its thread is unfinished."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, get_args

from tailrace.core.errors import CallerError, ThreadBusy
from tailrace.ports import Store

BusyThread = Literal["run", "reject", "queue", "interrupt"]
"""Both run; the new run is refused; it waits for the others; the others are cancelled."""

RECENT_RUNS = 100
"""How many of a thread's newest runs are read to find out whether it is busy."""

NEXT_RUN_BEGAN = "The next run of the thread has begun."


def check_busy_thread(value: Any) -> None:
    """Raise `CallerError` for a value that is no `BusyThread`."""
    if value not in get_args(BusyThread):
        known = ", ".join(get_args(BusyThread))
        raise CallerError(f"`busy_thread` is {value!r}; write one of {known}.")


async def next_place(
    busy: BusyThread,
    store: Store,
    thread_id: str,
    owner: str,
    cancel: Callable[[str, str], Awaitable[None]],
) -> int | None:
    """The place of a new run in its thread, after what `busy` asks for; None: any place.

    The store creates the run at this place only. If another run takes the place first, the caller
    asks for a place again.
    """
    if busy == "run":
        return None
    last = await store.last_ordinal(thread_id, owner=owner)
    first = max(1, last + 1 - RECENT_RUNS)
    recent = await store.thread_runs(thread_id, owner=owner, first=first, limit=RECENT_RUNS)
    for run in reversed([run for run in recent if run.ended_at is None]):
        if busy == "reject":
            raise ThreadBusy(
                f"Run {run.run_id} of thread {thread_id} has not ended. Wait for its end, or "
                "cancel it.",
                param="thread_id",
            )
        if busy == "interrupt":
            await cancel(run.run_id, NEXT_RUN_BEGAN)
    return last + 1
