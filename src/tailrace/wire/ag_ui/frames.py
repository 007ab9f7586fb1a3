"""Events of AG-UI as frames: each by itself, without the state of a stream."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.core.fold import State
from tailrace.core.state import ItemNode, TaskNode
from tailrace.wire.base import Frame
from tailrace.wire.projection import (
    usage_of_run,
)

to_json = msgspec.json.Encoder().encode


def event_frame(type: str, /, **fields: Any) -> Frame:
    """An event. Fields that are None are absent: the client's schema refuses null."""
    if None in fields.values():
        fields = {name: value for name, value in fields.items() if value is not None}
    return sse({"type": type, **fields})


def sse(event: dict[str, Any]) -> Frame:
    """A frame of the stream."""
    return b"data: " + to_json(event) + b"\n\n"


def tag(task: TaskNode) -> dict[str, str]:
    """The field that names the sub-agent of an event; empty for the root."""
    return {} if task.parent is None else {"subagentRunId": task.task_id}


def message_id(task: TaskNode, node: ItemNode) -> str:
    """The id of an item: the client refuses an id that two tasks of a run use.

    Our own ids contain the run's and are unique in it. Other ids of a sub-agent follow its task's.
    """
    root = task
    while root.parent is not None:
        root = root.parent
    is_unique = root is task or f"_{root.task_id.removeprefix('run_')}_" in node.id
    return node.id if is_unique else f"{task.task_id}_{node.id}"


def custom(task: TaskNode, name: str, value: Any) -> Frame:
    """An event of our own: AG-UI has no type for it."""
    # The value may be null: its field is required, unlike those that `event_frame` leaves out.
    return sse({"type": "CUSTOM", **tag(task), "name": name, "value": value})


def subagent_suspended(task: TaskNode) -> Frame:
    """The end of a sub-agent's part of the stream while the run waits for people."""
    waiting = [request.id for request in task.requests] or None
    outcome = {"type": "suspended", **({"interruptIds": waiting} if waiting else {})}
    return event_frame("SUBAGENT_FINISHED", subagentRunId=task.task_id, outcome=outcome)


def subagent_started(task: TaskNode) -> Frame:
    """The beginning of a sub-agent."""
    parent = task.parent
    assert parent is not None
    return event_frame(
        "SUBAGENT_STARTED",
        subagentRunId=task.task_id,
        name=str(task.facts.get("agent") or "sub-agent"),
        parentSubagentRunId=parent.task_id if parent.parent is not None else None,
        parentToolCallId=task.call_id,
    )


def subagent_end(task: TaskNode) -> Frame:
    """The end of a sub-agent."""
    if task.status == "completed":
        return event_frame(
            "SUBAGENT_FINISHED", subagentRunId=task.task_id, outcome={"type": "success"}
        )
    message = task.error.message if task.error is not None else task.reason or str(task.status)
    code = task.error.code if task.error is not None else task.status
    return event_frame("SUBAGENT_ERROR", subagentRunId=task.task_id, message=message, code=code)


def step_frames(root: TaskNode, type: str, among: list[int] | None = None) -> list[Frame]:
    """A frame for each name of an open step: the client knows a step by its name."""
    names = [root.steps[n].name for n in sorted(root.open_steps if among is None else among)]
    return [event_frame(type, stepName=name) for name in dict.fromkeys(names)]


def usage_entries(state: State) -> list[dict[str, Any]] | None:
    """The usage of the run; None if no model reported any."""
    used = usage_of_run(state)
    if used is None:
        return None
    names = {
        "model": "model",
        "input_tokens": "inputTokens",
        "output_tokens": "outputTokens",
        "reasoning_tokens": "reasoningTokens",
        "cached_input_tokens": "cachedInputTokens",
        "cache_write_tokens": "cacheWriteInputTokens",
    }
    return [{there: used[here] for here, there in names.items() if here in used}]


def progress_frame(task: TaskNode, of: str, progress: dict[str, Any]) -> Frame:
    """The progress of a call or a task."""
    ident = {"messageId": f"progress_{of}", "activityType": "progress"}
    return event_frame("ACTIVITY_SNAPSHOT", **tag(task), **ident, content=progress)
