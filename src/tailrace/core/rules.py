"""The rules of PROTOCOL.md, section 3: which event may come next.

They apply to our own writer, before an event is logged. The checks do not change the state. A test
compares the names of the rules with PROTOCOL.md's.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from tailrace.core import events as ev
from tailrace.core import text_limits
from tailrace.core.codec import MAX_ID_LENGTH, MAX_INTEGER
from tailrace.core.errors import IllegalEvent, StreamTooLarge
from tailrace.core.items import (
    Item,
    Message,
    RawItem,
    Reasoning,
    ReferenceToBlock,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from tailrace.core.parts import PARTS
from tailrace.core.run_object import show_block, show_parts
from tailrace.core.state import ImageNode, ItemNode, TaskNode, TextNode
from tailrace.core.transitions import part_of_delta

if TYPE_CHECKING:
    from tailrace.core.fold import State


def wrong_number(state: State, event: ev.AnyEvent) -> IllegalEvent:
    """The error for an event with the wrong seq."""
    return IllegalEvent(
        "seq-next",
        f"sequence_number is {event.sequence_number}, expected {state.sequence_number + 1}",
    )


def wrong_delta(state: State, event: Any) -> IllegalEvent:
    """The error for a delta without an open part."""
    task = _live(state, event)
    node = _open_item(task, event)
    kind, parts, index = _part_place(event, node)
    if parts is None:
        return IllegalEvent("item-kind", f"a {kind} delta does not fit a {_kind(node.item)}")
    return IllegalEvent("part-open", f"no open {kind} part at index {index} of item {node.item.id}")


def spare(state: State) -> int:
    """Code points that fit into any open part, or into all open parts together."""
    parts = [
        part
        for task in state.tasks.values()
        for node in task.items.values()
        if node.is_open
        for part in node.open_parts()
        if isinstance(part, TextNode)
    ]
    if any(part.annotations for part in parts):
        return 0
    return text_limits.code_points() - sum(part.length() for part in parts)


def check_room(task: TaskNode, event: Any) -> None:
    """Refuse a delta that would make its part too large for `done`."""
    with suppress(KeyError):
        part = part_of_delta(task, event)
        if part is not None:
            part.check_room(event.delta)


def check(state: State, event: ev.AnyEvent) -> None:
    """Raise `IllegalEvent` if the event may not come next."""
    if isinstance(event, ev.Unknown):
        _require(event.task_id in state.tasks, "task-known", f"no task {event.task_id}")
    elif isinstance(event, ev.TaskCreated):
        _created(state, event)
    else:
        _CHECK[type(event)](_live(state, event), event)


def _require(holds: bool, rule: str, message: str) -> None:
    if not holds:
        raise IllegalEvent(rule, message)


def _refuse(rule: str, message: str) -> NoReturn:
    raise IllegalEvent(rule, message)


def _kind(item: Item) -> str:
    return str(item.__struct_config__.tag)


# --- tasks -------------------------------------------------------------------------------------


def _check_id(ident: str) -> None:
    if len(ident) > MAX_ID_LENGTH:
        raise StreamTooLarge(
            f"The id {ident[:40]!r}… has {len(ident)} characters; the limit is {MAX_ID_LENGTH}. "
            "Choose a shorter id."
        )


def _created(state: State, event: ev.TaskCreated) -> None:
    _check_id(event.task_id)
    if event.parent_task_id is None:
        _require(state.root is None, "root-first", "the run has a root task already")
        return
    _require(state.root is not None, "root-first", "the first task of a run has no parent")
    _require(event.task_id not in state.tasks, "task-new", f"task {event.task_id} exists already")
    parent = state.tasks.get(event.parent_task_id)
    _require(
        parent is not None and not parent.ended,
        "child-of-open-result",
        f"no live task {event.parent_task_id}",
    )
    assert parent is not None
    result = parent.call_results.get(event.call_id or "")
    _require(
        result is not None and result.is_open,
        "child-of-open-result",
        f"task {parent.task_id} has no open tool_result for call {event.call_id}",
    )
    is_first = all(child.call_id != event.call_id for child in parent.children)
    _require(
        not is_first or event.task_id == event.call_id,
        "child-id",
        f"the first child of call {event.call_id} must have the call's id as task_id",
    )


def _live(state: State, event: ev.AnyEvent) -> TaskNode:
    task = state.tasks.get(event.task_id)
    if task is None:
        rule = "task-known" if state.root is not None else "root-first"
        _refuse(rule, f"no task {event.task_id}")
    if task.ended:
        _refuse("task-live", f"task {task.task_id} is {task.status}")
    if task.status == "queued" and not isinstance(
        event, ev.TaskInProgress | ev.TaskFailed | ev.TaskCancelled
    ):
        _refuse("task-begun", f"task {task.task_id} is still queued")
    return task


def _in_progress(task: TaskNode, _event: Any) -> None:
    _require(task.status == "queued", "task-begun", f"task {task.task_id} has begun already")


def _attempt(task: TaskNode, event: ev.TaskAttempt) -> None:
    _require(
        event.attempt == task.next_attempt,
        "attempt-next",
        f"attempt is {event.attempt}, expected {task.next_attempt}",
    )
    for ident in event.superseded:
        node = task.item_ids.get(ident)
        _require(
            node is not None and not node.is_open and not node.superseded,
            "attempt-next",
            f"{ident} is not a closed item of task {task.task_id}, or superseded already",
        )
        assert node is not None
        result = _result_of(task, node)
        _require(
            result is None or result.superseded or result.id in event.superseded,
            "attempt-next",
            f"the call {ident} is superseded without its result",
        )


def _result_of(task: TaskNode, node: ItemNode) -> ItemNode | None:
    return task.call_results.get(node.item.call_id) if isinstance(node.item, ToolCall) else None


def _input_required(task: TaskNode, event: ev.TaskInputRequired) -> None:
    known = {request.id for request in task.requests}
    _require(bool(event.requests), "request-known", "the list of requests is empty")
    for request in event.requests:
        _require(request.id not in known, "request-known", f"{request.id} is pending already")
        known.add(request.id)


def _input_received(task: TaskNode, event: ev.TaskInputReceived) -> None:
    pending = any(request.id == event.request_id for request in task.requests)
    _require(pending, "request-known", f"{event.request_id} is not pending")


def _answered(task: TaskNode, event: Any) -> None:
    _require(not task.requests, "task-paused", f"task {task.task_id} still waits for input")
    _ended(task, event)


def _ended(task: TaskNode, _event: Any) -> None:
    for child in task.children:
        _require(child.ended, "children-first", f"child {child.task_id} is still {child.status}")
    for node in task.items.values():
        _require(not node.is_open, "items-closed", f"item {node.item.id} is still open")
    if task.open_steps:
        _refuse("steps-closed", f"step {task.steps[task.open_steps[-1]].name} is still open")


def _output_once(task: TaskNode, _event: Any) -> None:
    _require(task.structured_output is None, "output-once", "the task has its output already")


def _switched(task: TaskNode, event: ev.AgentSwitched) -> None:
    _require(event.agent != task.speaker, "agent-other", f"{event.agent} speaks already")


def _step_started(task: TaskNode, event: ev.StepStarted) -> None:
    _next_index(event.step_index, task.steps, "step_index")


def _step_finished(task: TaskNode, event: ev.StepFinished) -> None:
    is_innermost = task.open_steps[-1:] == [event.step_index]
    _require(
        is_innermost, "step-innermost", f"step {event.step_index} is not the innermost open step"
    )


def _tool_started(task: TaskNode, event: ev.ToolCallStarted) -> None:
    node = task.items.get(event.output_index)
    ready = (
        node is not None
        and node.item.id == event.item_id
        and isinstance(node.item, ToolCall)
        and not node.is_open
        and node.item.status == "completed"
        and not node.started
        and not _has_closed_result(task, node.item.call_id)
    )
    _require(
        ready, "call-ready", f"{event.item_id} is not a completed call without start and result"
    )


def _has_closed_result(task: TaskNode, call_id: str) -> bool:
    result = task.call_results.get(call_id)
    return result is not None and not result.is_open


def _imported(task: TaskNode, event: ev.ReferenceImported) -> None:
    child = next((c for c in task.children if c.task_id == event.source_task_id), None)
    _require(
        child is not None,
        "import-source",
        f"{event.source_task_id} is not a child of task {task.task_id}",
    )
    assert child is not None
    _require(
        child.knows(event.source_reference_id),
        "import-source",
        f"{child.task_id} has no reference {event.source_reference_id}",
    )
    _require(
        0 < event.reference_id <= MAX_INTEGER and not task.knows(event.reference_id),
        "import-source",
        f"reference {event.reference_id} is taken or out of range",
    )


def _anything(_task: TaskNode, _event: Any) -> None:
    """Only the rules of every event apply."""


# --- items -------------------------------------------------------------------------------------


def _next_index(index: int, taken: Any, name: str) -> None:
    _require(index == len(taken), "index-next", f"{name} is {index}, expected {len(taken)}")


def _item_added(task: TaskNode, event: ev.OutputItemAdded) -> None:
    item = event.item
    _check_id(item.id)
    _next_index(event.output_index, task.items, "output_index")
    _require(item.id not in task.item_ids, "item-id-new", f"item {item.id} exists already")
    empty = item.status == "completed" and not any(
        getattr(item, name, None)
        for name in ("summary", "reasoning_text", "arguments", "block_list", "error")
    )
    _require(empty, "item-empty", f"item {item.id} is added with content or a status")
    if isinstance(item, ToolCall):
        _check_id(item.call_id)
        _require(
            _call_is_new(task, item.call_id),
            "call-id-new",
            f"call_id {item.call_id} was used already",
        )
    elif isinstance(item, ToolResult):
        call = task.calls.get(item.call_id)
        _require(
            call is not None
            and not call.is_open
            and call.item.status == "completed"
            and not call.superseded
            and item.call_id not in task.call_results,
            "result-of-call",
            f"task {task.task_id} has no finished call {item.call_id} without a result",
        )


def _call_is_new(task: TaskNode, call_id: str) -> bool:
    root = task
    while root.parent is not None:
        root = root.parent
    pending = [root]
    while pending:
        node = pending.pop()
        if call_id in node.calls:
            return False
        pending.extend(node.children)
    return True


def _item_done(task: TaskNode, event: ev.OutputItemDone) -> None:
    node = task.items.get(event.output_index)
    item = event.item
    _require(
        node is not None and node.is_open and node.item.id == item.id,
        "item-open",
        f"no open item {item.id} at {event.output_index}",
    )
    assert node is not None
    allowed = ("completed", "incomplete", "failed")
    legal = item.status in (allowed if isinstance(item, ToolResult) else allowed[:2])
    _require(legal, "item-status", f"a {_kind(item)} cannot end as {item.status}")
    if isinstance(item, ToolResult) and item.error is not None:
        _require(
            item.status == "failed", "item-status", f"a {item.status} result cannot have an error"
        )
    for part in node.open_parts():
        if item.status == "completed" or isinstance(part, ImageNode):
            _refuse("parts-closed", f"a part of {item.id} ({part.kind}) is still open")
    _require(_same_item(node, item), "item-same", f"item {item.id} differs from its events")
    if isinstance(item, ToolResult):
        for child in task.children:
            if child.call_id == item.call_id:
                _require(child.ended, "children-first", f"child {child.task_id} still runs")


_SAME = ("call_id", "name", "kind", "executor", "server_label", "needs_approval")


def _same_item(node: ItemNode, item: Item) -> bool:
    was = node.item
    if type(was) is not type(item):
        return False
    if isinstance(item, ToolCall) and isinstance(was, ToolCall):
        return all(getattr(was, name) == getattr(item, name) for name in _SAME) and (
            item.arguments is None or item.arguments == node.arguments_text
        )
    if isinstance(item, Reasoning):
        return _same_list(item.summary, node.parts) and _same_list(item.reasoning_text, node.texts)
    if isinstance(item, ToolResult) and isinstance(was, ToolResult):
        return was.call_id == item.call_id and _same_list(item.block_list, node.parts)
    if isinstance(item, Message) and isinstance(was, Message):
        return was.role == item.role and _same_list(item.block_list, node.parts)
    return isinstance(item, RawItem)


def _same_list(given: Any, parts: Any) -> bool:
    return given is None or msgspec.to_builtins(given) == show_parts(parts)


# --- parts -------------------------------------------------------------------------------------


def _open_item(task: TaskNode, event: Any) -> ItemNode:
    node = task.items.get(event.output_index)
    if node is None or not node.is_open or node.item.id != event.item_id:
        _refuse("item-open", f"no open item {event.item_id} at {event.output_index}")
    return node


def _part_place(event: Any, node: ItemNode) -> tuple[str, Any, int]:
    """The kind of the part, the parts that it belongs to (None: wrong kind of item), its index."""
    kind, holders, store, index_of = PARTS[type(event)]
    parts: Any = None
    if isinstance(node.item, holders):
        parts = {0: node.arguments} if store == "arguments" else getattr(node, store)
    return kind, parts, index_of(event)


def _place(task: TaskNode, event: Any) -> tuple[ItemNode, str, Any, int]:
    node = _open_item(task, event)
    kind, parts, index = _part_place(event, node)
    _require(parts is not None, "item-kind", f"a {_kind(node.item)} cannot have a {kind} part")
    return node, kind, parts, index


def _part_added(task: TaskNode, event: Any) -> None:
    node, kind, parts, index = _place(task, event)
    _next_index(index, parts, f"{kind} index")
    item = event.item
    text = item.refusal if isinstance(item, Refusal) else getattr(item, "text", "")
    empty = not text and not getattr(item, "annotations", None)
    _require(empty, "item-empty", f"a {kind} part of {node.item.id} is added with content")
    _number_allowed(node, item)


def _number_allowed(node: ItemNode, block: Any) -> None:
    ident = getattr(block, "id", None)
    if ident is not None:
        fits = isinstance(node.item, ToolResult) and 0 < ident <= MAX_INTEGER
        _require(fits, "id-in-results", f"a block of a {_kind(node.item)} has id {ident}")


def _open_part(task: TaskNode, event: Any) -> tuple[ItemNode, Any]:
    node, kind, parts, index = _place(task, event)
    part = parts.get(index)
    _require(
        part is not None and part.is_open and part.kind == kind,
        "part-open",
        f"no open {kind} part at index {index} of item {node.item.id}",
    )
    return node, part


def _part_done(task: TaskNode, event: Any) -> None:
    node, kind, parts, index = _place(task, event)
    if index not in parts:
        _next_index(index, parts, f"{kind} index")
        _number_allowed(node, event.item)
        if isinstance(event.item, Text):
            length = len(event.item.text)
            for annotation in event.item.annotations:
                _annotation_fits(task, annotation, length)
        return
    _, part = _open_part(task, event)
    if isinstance(part, ImageNode):
        _require(part.image.id == event.item.id, "part-same", "the image's id changed")
    else:
        same = show_block(part) == msgspec.to_builtins(event.item)
        _require(same, "part-same", f"the {kind} of {node.item.id} differs from its deltas")


def _arguments_done(task: TaskNode, event: ev.ArgumentsDone) -> None:
    _, part = _open_part(task, event)
    same = part.text in ("", event.arguments)
    _require(same, "part-same", "the arguments differ from the deltas")


def _annotation(task: TaskNode, event: ev.AnnotationAdded) -> None:
    _, part = _open_part(task, event)
    _next_index(event.annotation_index, part.annotations, "annotation_index")
    _annotation_fits(task, event.annotation, part.length())
    part.check_room("", event.annotation)


def _annotation_fits(task: TaskNode, annotation: Any, length: int) -> None:
    start = getattr(annotation, "start_index", None)
    end = getattr(annotation, "end_index", None)
    if start is not None and end is not None:
        _require(0 <= start < end <= length, "annotation-range", f"{start}–{end} of {length}")
    if isinstance(annotation, ReferenceToBlock):
        number = annotation.reference_id
        _require(
            task.knows(number), "reference-known", f"the task's pool has no reference {number}"
        )


def _image_delta(task: TaskNode, event: ev.ImageDelta) -> None:
    _, part = _open_part(task, event)
    expected = 0 if part.partial_image_index is None else part.partial_image_index + 1
    _require(
        event.partial_image_index == expected,
        "index-next",
        f"partial_image_index is not {expected}",
    )
    _require(part.image.id == event.item.id, "part-same", "the image's id changed")


_CHECK: dict[type[Any], Callable[[TaskNode, Any], None]] = {
    ev.TaskInProgress: _in_progress,
    ev.TaskAttempt: _attempt,
    ev.TaskInputRequired: _input_required,
    ev.TaskInputReceived: _input_received,
    ev.TaskCompleted: _answered,
    ev.TaskIncomplete: _answered,
    ev.TaskFailed: _ended,
    ev.TaskCancelled: _ended,
    ev.TaskUsage: _anything,
    ev.StructuredOutputDone: _output_once,
    ev.AgentSwitched: _switched,
    ev.HistoryCompacted: _anything,
    ev.StepStarted: _step_started,
    ev.StepFinished: _step_finished,
    ev.Notice: _anything,
    ev.Progress: _anything,
    ev.ToolCallStarted: _tool_started,
    ev.ReferenceImported: _imported,
    ev.RawEvent: _anything,
    ev.OutputItemAdded: _item_added,
    ev.OutputItemDone: _item_done,
    ev.SummaryItemAdded: _part_added,
    ev.SummaryItemDone: _part_done,
    ev.ReasoningTextAdded: _part_added,
    ev.ReasoningTextDone: _part_done,
    ev.ArgumentsDone: _arguments_done,
    ev.TextAdded: _part_added,
    ev.AnnotationAdded: _annotation,
    ev.TextDone: _part_done,
    ev.ImageAdded: _part_added,
    ev.ImageDelta: _image_delta,
    ev.ImageDone: _part_done,
    ev.RefusalAdded: _part_added,
    ev.RefusalDone: _part_done,
    ev.DataDone: _part_done,
    ev.FileDone: _part_done,
}
