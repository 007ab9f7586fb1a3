"""What each event does to the state: a function per event, and the table of them.

Each function follows the reader's rules (PROTOCOL.md, section 4) and returns whether the event
fitted. An event that does not fit changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from tailrace.core import events as ev
from tailrace.core.approval_pauses import note_answers, note_requests
from tailrace.core.items import Item, Reasoning, Text, ToolCall, ToolResult
from tailrace.core.parts import PARTS
from tailrace.core.state import (
    ImageNode,
    ItemNode,
    Part,
    Step,
    TaskNode,
    TextNode,
    holds_blocks,
    part_number,
    part_of,
    text_node,
)

if TYPE_CHECKING:
    from tailrace.core.fold import State


# --- the life of a task ------------------------------------------------------------------------


def _ignored(_state: State, _task: TaskNode, _event: Any) -> bool:
    return False


def _raw(_state: State, _task: TaskNode, _event: ev.RawEvent) -> bool:
    return True


def _in_progress(_state: State, task: TaskNode, event: ev.TaskInProgress) -> bool:
    task.status = "in_progress"
    if event.reference_start is not None:
        task.facts["reference_start"] = event.reference_start
    return True


def _attempt(_state: State, task: TaskNode, event: ev.TaskAttempt) -> bool:
    task.attempt = event.attempt
    task.settling = None
    for item_id in event.superseded:
        node = task.item_ids.get(item_id)
        if node is not None:
            node.superseded = True
    return True


def _input_required(state: State, task: TaskNode, event: ev.TaskInputRequired) -> bool:
    task.status = "input_required"
    task.settling = None
    pending = {request.id for request in task.requests}
    for request in event.requests:
        if request.id not in pending:
            pending.add(request.id)
            task.requests.append(request)
    note_requests(state, event.at)
    return True


def _input_received(state: State, task: TaskNode, event: ev.TaskInputReceived) -> bool:
    left = [request for request in task.requests if request.id != event.request_id]
    if len(left) == len(task.requests):
        return False
    [asked] = (request for request in task.requests if request.id == event.request_id)
    answer = {
        "call_id": asked.call_id,
        "approved": event.approved,
        "value": event.value,
        "reason": event.reason,
    }
    task.answers[asked.id] = {name: value for name, value in answer.items() if value is not None}
    task.requests = left
    _begin(state, task.calls.get(asked.call_id or ""))
    if not left and task.status == "input_required":
        task.status = "in_progress"
    note_answers(state, event.at)
    return True


def _completed(state: State, task: TaskNode, event: ev.TaskCompleted) -> bool:
    return _end(state, task, "completed", event.at)


def _incomplete(state: State, task: TaskNode, event: ev.TaskIncomplete) -> bool:
    task.reason = event.reason
    return _end(state, task, "incomplete", event.at)


def _failed(state: State, task: TaskNode, event: ev.TaskFailed) -> bool:
    task.error = event.error
    return _end(state, task, "failed", event.at)


def _cancelled(state: State, task: TaskNode, event: ev.TaskCancelled) -> bool:
    task.reason = event.reason
    return _end(state, task, "cancelled", event.at)


def _end(state: State, task: TaskNode, status: str, time: float | None) -> bool:
    for node in task.items.values():
        if node.is_open:
            _close(node)
            node.item = msgspec.structs.replace(node.item, status="incomplete")
    task.requests = []
    task.settling = None
    task.status = status
    task.ended = True
    task.end_time = time
    note_answers(state, time)
    return True


def _usage(_state: State, task: TaskNode, event: ev.TaskUsage) -> bool:
    task.add_usage(event.usage)
    return True


def _structured_output(_state: State, task: TaskNode, event: ev.StructuredOutputDone) -> bool:
    task.structured_output = {"value": event.value}
    if event.name is not None:
        task.structured_output["name"] = event.name
    return True


def _switched(_state: State, task: TaskNode, event: ev.AgentSwitched) -> bool:
    switch: dict[str, Any] = {
        "agent": event.agent,
        "output_index": max(task.items, default=-1) + 1,
    }
    if task.speaker is not None:
        switch["from"] = task.speaker
    if event.reason is not None:
        switch["reason"] = event.reason
    task.switches.append(switch)
    return True


def _compacted(_state: State, task: TaskNode, event: ev.HistoryCompacted) -> bool:
    task.compacted = {"summary": event.summary, "run_id": event.run_id}
    return True


def _step_started(_state: State, task: TaskNode, event: ev.StepStarted) -> bool:
    if event.step_index in task.steps:
        return False
    task.steps[event.step_index] = Step(event.name, len(task.open_steps))
    task.open_steps.append(event.step_index)
    task.settling = None
    return True


def _step_finished(_state: State, task: TaskNode, event: ev.StepFinished) -> bool:
    step = task.steps.get(event.step_index)
    if step is None or not step.is_open:
        return False
    step.status = event.status
    task.open_steps.remove(event.step_index)
    task.settling = None
    return True


def _notice(_state: State, task: TaskNode, event: ev.Notice) -> bool:
    notice = msgspec.to_builtins(event)
    for name in ("type", "task_id", "sequence_number"):
        notice.pop(name, None)
    task.notices.append(notice)
    return True


def _progress(_state: State, task: TaskNode, event: ev.Progress) -> bool:
    owner = task if event.call_id is None else task.calls.get(event.call_id)
    if owner is None:
        return False
    owner.progress = {
        name: value
        for name in ("message", "current", "total")
        if (value := getattr(event, name)) is not None
    }
    return True


def _begin(state: State, call: ItemNode | None) -> None:
    """Note where a call begins that people may be asked for."""
    if call is not None and call.begun_at is None:
        call.begun_at = state.position


def _tool_started(state: State, task: TaskNode, event: ev.ToolCallStarted) -> bool:
    node = task.items.get(event.output_index)
    if node is None or node.item.id != event.item_id or not isinstance(node.item, ToolCall):
        return False
    node.started = True
    _begin(state, node)
    return True


def _imported(_state: State, task: TaskNode, event: ev.ReferenceImported) -> bool:
    if event.reference_id in task.imports:
        return False
    task.imports[event.reference_id] = (event.source_task_id, event.source_reference_id)
    task.numbers.add(event.reference_id)
    return True


# --- items -------------------------------------------------------------------------------------


def _item_added(state: State, task: TaskNode, event: ev.OutputItemAdded) -> bool:
    if event.output_index in task.items:
        return False
    node = ItemNode(event.item, event.output_index, state.position)
    _take(task, node, event.item, state.position)
    if isinstance(event.item, ToolCall):
        text = event.item.arguments or ""
        node.arguments = TextNode("arguments", event.item.id, node.at, text, is_open=True)
    _add(state, task, node)
    task.settling = None
    return True


def _item_done(state: State, task: TaskNode, event: ev.OutputItemDone) -> bool:
    node = task.items.get(event.output_index)
    if node is None:
        node = ItemNode(event.item, event.output_index, state.position)
        if isinstance(event.item, ToolCall):
            node.arguments = TextNode("arguments", event.item.id, node.at, "", is_open=False)
        _add(state, task, node)
    elif not node.is_open or type(node.item) is not type(event.item):
        return False
    _take(task, node, event.item, state.position)
    _close(node)
    task.settling = event.output_index
    return True


def _add(state: State, task: TaskNode, node: ItemNode) -> None:
    task.add_item(node)
    if isinstance(node.item, ToolResult):
        _begin(state, task.calls.get(node.item.call_id))


def _close(node: ItemNode) -> None:
    node.is_open = False
    for part in node.open_parts():
        part.is_open = False


def _take(task: TaskNode, node: ItemNode, item: Item, at: int) -> None:
    """Replace the node's content by the item's; an absent list stays."""
    if isinstance(item, Reasoning):
        if item.summary is not None:
            node.parts = {**_texts("summary", item.id, item.summary, node.parts, at)}
        if item.reasoning_text is not None:
            node.texts = _texts("reasoning_text", item.id, item.reasoning_text, node.texts, at)
        item = msgspec.structs.replace(item, summary=None, reasoning_text=None)
    elif isinstance(item, ToolCall):
        if item.arguments is not None and node.arguments is not None:
            node.arguments.replace(item.arguments, None, [])
        item = msgspec.structs.replace(item, arguments=None)
    elif holds_blocks(item):
        if item.block_list is not None:  # type: ignore[union-attr]
            arrivals = {index: part.at for index, part in node.parts.items()}
            node.parts = {
                index: part_of(item.id, block, arrivals.get(index, at), is_open=False)
                for index, block in enumerate(item.block_list)  # type: ignore[union-attr]
            }
            for part in node.parts.values():
                _note_number(task, part)
        item = msgspec.structs.replace(item, block_list=None)
    node.item = item


def _texts(kind: str, item_id: str, texts: list[Text], old: Any, at: int) -> dict[int, TextNode]:
    return {
        index: text_node(kind, item_id, old[index].at if index in old else at, text, is_open=False)
        for index, text in enumerate(texts)
    }


def _note_number(task: TaskNode, part: Part) -> None:
    ident = part_number(part)
    if ident is not None:
        task.numbers.add(ident)


# --- deltas: most of a run ---------------------------------------------------------------------


# What `PARTS` says of deltas, written out for speed: deltas are most of a run.


def _summary_of(task: TaskNode, event: ev.SummaryTextDelta) -> Any:
    part = task.items[event.output_index].parts[event.summary_index]
    return part if part.kind == "summary" else None


def _reasoning_text_of(task: TaskNode, event: ev.ReasoningTextDelta) -> TextNode:
    return task.items[event.output_index].texts[event.text_index]


def _arguments_of(task: TaskNode, event: ev.ArgumentsDelta) -> TextNode | None:
    return task.items[event.output_index].arguments


def _text_of(task: TaskNode, event: ev.TextDelta) -> Any:
    part = task.items[event.output_index].parts[event.block_index]
    return part if part.kind == "text" else None


def _refusal_of(task: TaskNode, event: ev.RefusalDelta) -> Any:
    part = task.items[event.output_index].parts[event.block_index]
    return part if part.kind == "refusal" else None


_PART_OF: dict[type[Any], Callable[[TaskNode, Any], TextNode | None]] = {
    ev.SummaryTextDelta: _summary_of,
    ev.ReasoningTextDelta: _reasoning_text_of,
    ev.ArgumentsDelta: _arguments_of,
    ev.TextDelta: _text_of,
    ev.RefusalDelta: _refusal_of,
}


def part_of_delta(task: TaskNode, event: Any) -> Any:
    """The part of a delta; KeyError or None without a part of its kind."""
    return _PART_OF[event.__class__](task, event)


def _delta(_state: State, task: TaskNode, event: Any) -> bool:
    # `State.absorb_lines` does the same for a delta that follows another of its part.
    try:
        part = _PART_OF[event.__class__](task, event)
    except KeyError:
        return False
    if part is None or not part.is_open or part.item_id != event.item_id:
        return False
    part.pieces.append(event.delta)
    return True


# --- parts -------------------------------------------------------------------------------------


def _container(task: TaskNode, event: Any, *kinds: type[Item]) -> ItemNode | None:
    """The open item of an event, if it is of one of these kinds."""
    node = task.items.get(event.output_index)
    if node is None or not node.is_open or node.item.id != event.item_id:
        return None
    return node if not kinds or isinstance(node.item, kinds) else None


def _reasoning_part_added(state: State, task: TaskNode, event: Any) -> bool:
    kind, holders, store, index_of = PARTS[event.__class__]
    node = _container(task, event, *holders)
    index = index_of(event)
    if node is None or index in getattr(node, store):
        return False
    part = text_node(kind, event.item_id, state.position, event.item, is_open=True)
    getattr(node, store)[index] = part
    return True


def _reasoning_part_done(state: State, task: TaskNode, event: Any) -> bool:
    kind, holders, store, index_of = PARTS[event.__class__]
    node = _container(task, event, *holders)
    if node is None:
        return False
    index = index_of(event)
    part = getattr(node, store).get(index)
    if part is None:
        part = TextNode(kind, event.item_id, state.position, "", is_open=True)
        getattr(node, store)[index] = part
    if not part.is_open:
        return False
    part.replace(event.item.text, event.item.id, event.item.annotations)
    part.is_open = False
    return True


def _arguments_done(_state: State, task: TaskNode, event: ev.ArgumentsDone) -> bool:
    node = _container(task, event, ToolCall)
    if node is None or node.arguments is None or not node.arguments.is_open:
        return False
    node.arguments.replace(event.arguments, None, [])
    node.arguments.is_open = False
    return True


def _annotation_added(_state: State, task: TaskNode, event: ev.AnnotationAdded) -> bool:
    part = _open_block(task, event, "text")
    if part is None:
        return False
    part.annotations.append(event.annotation)
    return True


def _image_delta(_state: State, task: TaskNode, event: ev.ImageDelta) -> bool:
    part = _open_block(task, event, "image")
    if part is None:
        return False
    part.image = event.item
    part.partial_image_index = event.partial_image_index
    _note_number(task, part)
    return True


def _open_block(task: TaskNode, event: Any, kind: str) -> Any:
    node = task.items.get(event.output_index)
    part = node.parts.get(event.block_index) if node is not None else None
    if part is None or not part.is_open or part.item_id != event.item_id or part.kind != kind:
        return None
    return part


def _block_added(state: State, task: TaskNode, event: Any) -> bool:
    node = _container(task, event)
    if node is None or not holds_blocks(node.item) or event.block_index in node.parts:
        return False
    part = part_of(event.item_id, event.item, state.position, is_open=True)
    node.parts[event.block_index] = part
    _note_number(task, part)
    return True


def _block_done(state: State, task: TaskNode, event: Any) -> bool:
    node = _container(task, event)
    if node is None or not holds_blocks(node.item):
        return False
    part = part_of(event.item_id, event.item, state.position, is_open=False)
    old = node.parts.get(event.block_index)
    if old is not None:
        if not old.is_open or old.kind != part.kind:
            return False
        part.at = old.at
        if isinstance(part, ImageNode):
            part.partial_image_index = old.partial_image_index  # type: ignore[union-attr]
    node.parts[event.block_index] = part
    _note_number(task, part)
    return True


FOLD: dict[type[Any], Callable[[State, TaskNode, Any], bool]] = {
    ev.TaskCreated: _ignored,
    ev.TaskInProgress: _in_progress,
    ev.TaskAttempt: _attempt,
    ev.TaskInputRequired: _input_required,
    ev.TaskInputReceived: _input_received,
    ev.TaskCompleted: _completed,
    ev.TaskIncomplete: _incomplete,
    ev.TaskFailed: _failed,
    ev.TaskCancelled: _cancelled,
    ev.TaskUsage: _usage,
    ev.StructuredOutputDone: _structured_output,
    ev.AgentSwitched: _switched,
    ev.HistoryCompacted: _compacted,
    ev.StepStarted: _step_started,
    ev.StepFinished: _step_finished,
    ev.Notice: _notice,
    ev.Progress: _progress,
    ev.ToolCallStarted: _tool_started,
    ev.ReferenceImported: _imported,
    ev.RawEvent: _raw,
    ev.OutputItemAdded: _item_added,
    ev.OutputItemDone: _item_done,
    ev.SummaryItemAdded: _reasoning_part_added,
    ev.SummaryTextDelta: _delta,
    ev.SummaryItemDone: _reasoning_part_done,
    ev.ReasoningTextAdded: _reasoning_part_added,
    ev.ReasoningTextDelta: _delta,
    ev.ReasoningTextDone: _reasoning_part_done,
    ev.ArgumentsDelta: _delta,
    ev.ArgumentsDone: _arguments_done,
    ev.TextAdded: _block_added,
    ev.TextDelta: _delta,
    ev.AnnotationAdded: _annotation_added,
    ev.TextDone: _block_done,
    ev.ImageAdded: _block_added,
    ev.ImageDelta: _image_delta,
    ev.ImageDone: _block_done,
    ev.RefusalAdded: _block_added,
    ev.RefusalDelta: _delta,
    ev.RefusalDone: _block_done,
    ev.DataDone: _block_done,
    ev.FileDone: _block_done,
}
