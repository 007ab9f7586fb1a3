"""Copies a state, so that a reader can go on from it without changing it."""

from __future__ import annotations

from copy import copy

from tailrace.core.fold import State
from tailrace.core.state import (
    ItemNode,
    Part,
    TaskNode,
    TextNode,
    UsageSum,
    holds_blocks,
    part_number,
)


def copy_state(state: State) -> State:
    """An independent copy of the state, without private parts.

    The copy shares texts and other values that never change, so it takes little memory.
    """
    copied = State()
    copied.position, copied.sequence_number = state.position, state.sequence_number
    copied.unknown, copied.pauses = list(state.unknown), list(state.pauses)
    for task in state.tasks.values():
        _copy_task(copied, task)
    return copied


def _copy_task(state: State, task: TaskNode) -> None:
    parent = None if task.parent is None else state.tasks[task.parent.task_id]
    twin = TaskNode(task.task_id, task.task_index, task.at, parent, dict(task.facts))
    state.tasks[task.task_id] = twin
    if parent is None:
        state.root = twin
    else:
        parent.children.append(twin)
    for name in ("status", "ended", "attempt", "structured_output", "compacted", "error", "reason"):
        setattr(twin, name, getattr(task, name))
    twin.settling, twin.progress, twin.end_time = task.settling, task.progress, task.end_time
    twin.switches, twin.notices = list(task.switches), list(task.notices)
    twin.requests, twin.answers = list(task.requests), dict(task.answers)
    twin.imports, twin.open_steps = dict(task.imports), list(task.open_steps)
    twin.steps = {index: copy(step) for index, step in task.steps.items()}
    if task.usage is not None:
        twin.usage = UsageSum(dict(task.usage.fields))
    twin.numbers.update(task.imports)
    for node in task.items.values():
        twin.add_item(_copy_item(node))
        if holds_blocks(node.item):
            numbers = map(part_number, node.parts.values())
            twin.numbers.update(number for number in numbers if number is not None)


def _copy_item(node: ItemNode) -> ItemNode:
    twin = copy(node)
    twin.private = {}
    twin.parts = {index: _copy_part(part) for index, part in node.parts.items()}
    twin.texts = {index: _copy_text(part) for index, part in node.texts.items()}
    if node.arguments is not None:
        twin.arguments = _copy_text(node.arguments)
    return twin


def _copy_part(part: Part) -> Part:
    return _copy_text(part) if isinstance(part, TextNode) else copy(part)


def _copy_text(node: TextNode) -> TextNode:
    twin = TextNode(node.kind, node.item_id, node.at, node.text, is_open=node.is_open)
    twin.id, twin.annotations = node.id, list(node.annotations)
    return twin
