"""The object of a run or task as JSON: PROTOCOL.md, section 5.

`client_view` is for clients; `whole_object` adds what only the model may see: `content` and the
private parts. Both can be made after any event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from tailrace.core.items import Message, RawItem, Reasoning, ToolCall, ToolResult
from tailrace.core.state import ImageNode, ItemNode, Part, TaskNode, TextNode
from tailrace.core.values import Json

if TYPE_CHECKING:
    from tailrace.core.fold import State


def client_view(state: State, task_id: str | None = None) -> Json:
    """A task as clients see it; without a `task_id`, the run."""
    return _run(state, task_id, whole=False)


def whole_object(state: State, task_id: str | None = None) -> Json:
    """A task with its private parts, for the server only."""
    return _run(state, task_id, whole=True)


def _run(state: State, task_id: str | None, *, whole: bool) -> Json:
    task = state.root if task_id is None else state.tasks[task_id]
    if task is None:
        return {}
    shown = _task(task, whole=whole)
    if task is not state.root:
        return shown
    others = [child for child in state.tasks.values() if child is not task]
    if others:
        # Clients find their items among the blocks of the call that they answer.
        shown["tasks"] = [
            _task(child, whole=True) if whole else show_task(child) for child in others
        ]
    if state.unknown:
        shown["unknown"] = [msgspec.json.decode(event.raw) for event in state.unknown]
    return shown


def _task(task: TaskNode, *, whole: bool) -> Json:
    shown = show_task(task)
    shown["output"] = [show_item(task, node, whole=whole) for node in task.output()]
    if whole:
        _add_private(shown, task.private)
    return shown


def show_task(task: TaskNode) -> Json:
    """A task without its output; empty fields are left out."""
    shown: Json = {"task_id": task.task_id}
    if task.status is not None:
        shown["status"] = task.status
    shown.update(task.facts)
    if task.switches:
        shown["agent"] = task.speaker
        shown["switches"] = list(task.switches)
    if task.compacted is not None:
        shown["compacted"] = task.compacted
    if task.attempt is not None:
        shown["attempt"] = task.attempt
    if task.structured_output is not None:
        shown["structured_output"] = task.structured_output
    if task.usage is not None:
        shown["usage"] = dict(task.usage.fields)
    if task.error is not None:
        shown["error"] = msgspec.to_builtins(task.error)
    if task.reason is not None:
        shown["reason"] = task.reason
    if task.requests:
        shown["requests"] = msgspec.to_builtins(task.requests)
    if task.steps:
        shown["steps"] = [
            {"name": step.name, "depth": step.depth, "status": step.status}
            for _, step in sorted(task.steps.items())
        ]
    if task.notices:
        shown["notices"] = list(task.notices)
    if task.progress:
        shown["progress"] = task.progress
    if task.imports:
        shown["imports"] = [
            {"reference_id": number, "source_task_id": source, "source_reference_id": its_number}
            for number, (source, its_number) in task.imports.items()
        ]
    return shown


def show_item(task: TaskNode, node: ItemNode, *, whole: bool = False) -> Json:
    """An item of the object, with sub-agents' items among a result's blocks."""
    shown = show_own(node)
    if isinstance(node.item, ToolResult):
        shown["block_list"] = _with_children(task, node)
    if whole:
        if isinstance(node.item, ToolResult | Message):
            _add_content(shown, node)
        _add_private(shown, node.private)
    return shown


def _add_content(shown: Json, node: ItemNode) -> None:
    content = node.private.get("content")
    if content is not None:
        shown["content"] = msgspec.to_builtins(content)
    elif isinstance(node.item, Message):
        shown["content"] = [
            {"type": "text", "text": part.text}
            for _, part in sorted(node.parts.items())
            if isinstance(part, TextNode) and part.kind == "text"
        ]


def show_own(node: ItemNode) -> Json:
    """An item with its own parts only."""
    shown: Json = msgspec.to_builtins(node.item)
    if isinstance(node.item, Reasoning):
        shown["summary"] = show_parts(node.parts)
        if node.texts:
            shown["reasoning_text"] = show_parts(node.texts)
    elif isinstance(node.item, ToolCall):
        shown["arguments"] = node.arguments_text
        if node.started:
            shown["started"] = True
        if node.progress:
            shown["progress"] = node.progress
    elif not isinstance(node.item, RawItem):
        shown["block_list"] = show_parts(node.parts)
    if node.is_open:
        shown["status"] = "in_progress"
    return shown


def _with_children(task: TaskNode, node: ItemNode) -> list[Json]:
    """A result's blocks and its sub-agents' items, in order of arrival."""
    call_id = node.item.call_id  # type: ignore[union-attr]  # a ToolResult
    entries = [(part.at, show_block(part)) for _, part in sorted(node.parts.items())]
    if task.call_results.get(call_id) is node:
        for child in task.children:
            if child.call_id == call_id:
                entries += [
                    (item.at, {**show_item(child, item), "task_id": child.task_id})
                    for item in child.output()
                ]
    entries.sort(key=lambda entry: entry[0])
    return [shown for _, shown in entries]


def show_parts(parts: Mapping[int, Part]) -> list[Json]:
    """The parts of a list, in order."""
    return [show_block(part) for _, part in sorted(parts.items())]


def show_block(part: Part) -> Json:
    """A part as a block, with the text so far."""
    if isinstance(part, TextNode):
        if part.kind == "refusal":
            return {"type": "refusal", "refusal": part.text}
        shown: Json = {"type": "text", "text": part.text}
        if part.id is not None:
            shown["id"] = part.id
        if part.annotations:
            shown["annotations"] = msgspec.to_builtins(part.annotations)
        return shown
    value = part.image if isinstance(part, ImageNode) else part.block
    block: Json = msgspec.to_builtins(value)
    return block


def _add_private(shown: Json, private: Json) -> None:
    kept = {name: value for name, value in private.items() if name != "content"}
    if kept:
        shown["private"] = kept
