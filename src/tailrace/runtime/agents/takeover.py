"""How an `Agent` goes on in a run whose worker was lost, or has stopped.

The log says what was done. Complete turns stay. The items of a turn that was not complete are
superseded, finished reasoning included. The model is asked again, because no tool of that turn has
started. Results stay, requests stay pending, and sub-agents go on in the same way. Calls without a
finished result are left to the loop. A call that had not started runs, and an idempotent tool runs
again. Any other tool that had started gets the result `interrupted`.
"""

from __future__ import annotations

from tailrace.core import closing_events
from tailrace.core import events as ev
from tailrace.core.items import ToolCall, ToolResult
from tailrace.core.state import ItemNode, TaskNode
from tailrace.core.values import dict_of
from tailrace.runtime.model_calls.try_sink import TURN
from tailrace.runtime.tasks.task import MCP_APPROVAL, Task, begun_task, supersede


def close_for_takeover(task: Task, reason: str) -> None:
    """Close what the last worker left open in the task and below it."""
    task._sink.emitter.resumed.add(task.task_id)
    for child in list(task._sink.node.children):
        if not child.ended:
            close_for_takeover(begun_task(task._sink.emitter, child.task_id), reason)
    node = task._sink.node
    if node.status == "queued":
        task.emit(ev.TaskInProgress(task_id=task.task_id))
    unfinished = _unfinished(node)
    with task._sink.emitter.closing():
        for item in list(node.items.values()):
            if item.is_open and not _is_left_to_loop(node, item):
                for event in closing_events.close_item(node, item):
                    task.emit(event)
        for event in closing_events.close_steps(node):
            task.emit(event)
    if unfinished or _was_working(node):
        supersede(task, [item.id for item in unfinished], reason)


def turns_of(node: TaskNode) -> int:
    """How many turns of the model a task has.

    Its own usage also counts the sub-agents that are not logged, and summaries of its history. Its
    items also come from tries that were repeated, which have no usage.
    """
    made = {_turn_of(item.private) for item in node.items.values()} - {None}
    return min(len(made), node.own_count("calls"))


def has_answer(node: TaskNode) -> bool:
    """Whether the log of a task ends with a complete turn of the model."""
    output = node.output()
    if not output or _unfinished(node):
        return False
    last = output[-1].item
    return not isinstance(last, ToolResult) or is_providers(node, last)


def is_providers(node: TaskNode, result: ToolResult) -> bool:
    """Whether a result is of a tool that the provider ran, in the middle of a turn."""
    call = node.calls.get(result.call_id)
    if call is None or not isinstance(call.item, ToolCall):
        return False
    return call.item.executor == "provider" and call.item.kind != MCP_APPROVAL


def _unfinished(node: TaskNode) -> list[ItemNode]:
    """The items of a last turn that may not be complete.

    Usage is the last event of a turn, and names it; without usage, `task.raw` does. A tool starts,
    and a person is asked, only behind the end of a turn.
    """
    found: list[ItemNode] = []
    whole = _turn_of(node.private)
    for item in reversed(node.output()):
        if isinstance(item.item, ToolResult) and not is_providers(node, item.item):
            break
        if whole is not None and _turn_of(item.private) == whole:
            break
        found.append(item)
    begun = {request.call_id for request in node.requests}
    begun |= {answer.get("call_id") for answer in node.answers.values()}
    begun |= {call_id for call_id, item in node.calls.items() if item.started}
    if any(isinstance(item.item, ToolCall) and item.item.call_id in begun for item in found):
        return []
    return found[::-1]


def _turn_of(private: dict[str, object]) -> object:
    """The turn that wrote an item, or that ended last in a task."""
    provider = private.get("provider")
    return dict_of(provider).get(TURN)


def _is_left_to_loop(node: TaskNode, item: ItemNode) -> bool:
    """Whether an item is the result of a sub-agent, which goes on, or of a tool of ours."""
    call = node.calls.get(item.item.call_id) if isinstance(item.item, ToolResult) else None
    return call is not None and getattr(call.item, "executor", None) != "provider"


def _was_working(node: TaskNode) -> bool:
    """Whether a tool of the task had started and has no result."""
    return any(
        item.started and not item.superseded and call_id not in node.call_results
        for call_id, item in node.calls.items()
    )
