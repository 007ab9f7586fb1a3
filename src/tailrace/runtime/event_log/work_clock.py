"""How long the tasks of a run have been at work, even if several workers had it.

The private parts of three kinds of events say when a task began, and how long people were waited
for. So the time is known to a worker that takes the run over. The clock runs on while no worker has
the run; it stands still while the run waits for a person.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from tailrace.core import events as ev
from tailrace.core.fold import State

NOTED = frozenset((ev.TaskInProgress, ev.TaskInputRequired, ev.TaskInputReceived))
"""The events that carry a note of the clock."""


class WorkClock:
    """The time of one run, as its log has it."""

    def __init__(self, state: State, now: Callable[[], float] = time.time) -> None:
        self._state = state
        self._now = now
        notes = [
            task.private["waited"] for task in state.tasks.values() if "waited" in task.private
        ]
        last = max(notes, key=lambda note: note["at"], default={"total": 0.0})
        self._waited: float = last["total"]
        """Seconds in which the run waited for people, without the wait that goes on."""
        self._since: float | None = last.get("since") if self._is_asking else None

    @property
    def _is_asking(self) -> bool:
        return any(task.requests for task in self._state.tasks.values())

    def _total(self, now: float) -> float:
        return self._waited + (now - self._since if self._since is not None else 0.0)

    def noted(self, event: ev.Event, private: ev.Private | None) -> ev.Private:
        """The private part of an event of `NOTED`, with what the clock shows behind it."""
        now, private = self._now(), private or ev.Private()
        if isinstance(event, ev.TaskInProgress):
            begun = {"at": now, "waited": self._total(now)}
            return msgspec.structs.replace(private, begun=begun)
        if isinstance(event, ev.TaskInputRequired):
            if not self._is_asking:
                self._since = now
        elif self._is_last(event):
            self._waited, self._since = self._total(now), None
        note = {"at": now, "total": self._waited, "since": self._since}
        return msgspec.structs.replace(private, waited=note)

    def _is_last(self, event: ev.Event) -> bool:
        """Whether an answer is the last that the run waits for."""
        asked = [request.id for _, request in self._state.requests()]
        return asked == [getattr(event, "request_id", None)]

    def seconds(self, task_id: str) -> float:
        """How long a task has been at work; 0 if its log does not tell."""
        begun = self._state.tasks[task_id].private.get("begun")
        if begun is None:
            return 0.0
        now = self._now()
        began, waited = float(begun["at"]), float(begun["waited"])
        return max(0.0, now - began - (self._total(now) - waited))
