"""How long a run and its calls took, from the times of their events."""

from __future__ import annotations

from tailrace.core.events import (
    TERMINAL,
    AnyEvent,
    OutputItemAdded,
    OutputItemDone,
    TaskCreated,
    ToolCallStarted,
)
from tailrace.core.items import ToolCall, ToolResult


class Durations:
    """Reads events one by one. `took` has seconds by the id of a call, or of a run."""

    def __init__(self) -> None:
        self.took: dict[str, float] = {}
        self._began: dict[str, float] = {}
        self._calls: dict[tuple[str, str], str] = {}

    def read(self, event: AnyEvent) -> None:
        """Take the time of an event. Old logs have none, and clocks may go backwards."""
        match event:
            case TaskCreated(created_at=float(at)):
                self._began[event.task_id] = at
            case OutputItemAdded(item=ToolCall(id=item_id, call_id=call_id)):
                self._calls[event.task_id, call_id] = item_id
            case ToolCallStarted(at=float(at)):
                self._began[event.item_id] = at
            case OutputItemDone(item=ToolResult(call_id=call_id), at=float(at)):
                self._end(self._calls.get((event.task_id, call_id), ""), at)
            case _ if isinstance(event, TERMINAL) and event.at is not None:
                self._end(event.task_id, event.at)

    def _end(self, key: str, at: float) -> None:
        if key in self._began:
            self.took[key] = max(0.0, at - self._began[key])


def seconds(time: float) -> str:
    """A duration for people: `<1 ms`, `201 ms`, `1.2 s`, `48 s`."""
    if time < 0.001:
        return "<1 ms"
    if time < 1:
        return f"{time * 1000:.0f} ms"
    return f"{time:.1f} s" if time < 10 else f"{time:.0f} s"
