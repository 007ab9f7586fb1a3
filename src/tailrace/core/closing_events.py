"""The events that end a run early: open parts, items and steps are closed, children first.

The partial answer stays, marked `incomplete`, so that every reader's state and the next run's
history are valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tailrace.core import events as ev
from tailrace.core.codec import MAX_INTEGER, encode_event
from tailrace.core.errors import InvalidValue, StreamTooLarge
from tailrace.core.items import ErrorInfo, Image, Refusal, Text, ToolResult
from tailrace.core.state import ImageNode, ItemNode, TaskNode, TextNode

TOOL_INTERRUPTED = ErrorInfo(code="interrupted", message="The tool was interrupted.")
"""The error of a tool result that ended without an output or an error."""


def ending(task: TaskNode, last: ev.Event) -> Iterator[ev.Event]:
    """The events that close everything open in a task and below it, then `last`.

    Apply each event before taking the next: an event is legal only after the events before it.
    """
    yield from close_all(task)
    yield last


def close_all(task: TaskNode) -> Iterator[ev.Event]:
    """The events that close everything open in a task and its children."""
    for child in task.children:
        if not child.ended:
            yield from ending(
                child, ev.TaskCancelled(task_id=child.task_id, reason="Its parent ended.")
            )
    for node in list(task.items.values()):
        if node.is_open:
            yield from close_item(task, node)
    yield from close_steps(task)


def close_steps(task: TaskNode, outermost: int = 0) -> Iterator[ev.Event]:
    """The events that close the open steps from `outermost` on, the innermost step first."""
    for index in reversed(task.open_steps.copy()):
        if index >= outermost:
            yield ev.StepFinished(task_id=task.task_id, step_index=index, status="incomplete")


def close_item(task: TaskNode, node: ItemNode) -> Iterator[ev.Event]:
    """The events that close the open parts of an item, then the item.

    A log of an older version may have a part that is too large to repeat. The end of its item
    closes it.
    """
    yield from (event for event in _close_parts(task, node) if _can_be_written(event))
    item = msgspec.structs.replace(node.item, status="incomplete")
    if isinstance(item, ToolResult):
        item = msgspec.structs.replace(item, status="failed", error=TOOL_INTERRUPTED)
    yield ev.OutputItemDone(task_id=task.task_id, output_index=node.output_index, item=item)


def _can_be_written(event: ev.Event) -> bool:
    try:
        encode_event(ev.recorded(event, MAX_INTEGER))
    except (StreamTooLarge, InvalidValue):
        return False
    return True


def _close_parts(task: TaskNode, node: ItemNode) -> Iterator[ev.Event]:
    place: dict[str, Any] = {
        "task_id": task.task_id,
        "item_id": node.item.id,
        "output_index": node.output_index,
    }
    for index, part in list(node.parts.items()):
        if isinstance(part, ImageNode) and part.is_open:
            image = Image(image_url=part.image.image_url, id=part.image.id)
            yield ev.ImageDone(**place, block_index=index, item=image)
        elif isinstance(part, TextNode) and part.is_open:
            yield _close_text(place, index, part)
    for index, text in list(node.texts.items()):
        if text.is_open:
            yield ev.ReasoningTextDone(**place, text_index=index, item=Text(text=text.text))


def _close_text(place: dict[str, Any], index: int, part: TextNode) -> ev.Event:
    if part.kind == "summary":
        return ev.SummaryItemDone(**place, summary_index=index, item=Text(text=part.text))
    if part.kind == "refusal":
        return ev.RefusalDone(**place, block_index=index, item=Refusal(refusal=part.text))
    text = Text(text=part.text, id=part.id, annotations=list(part.annotations))
    return ev.TextDone(**place, block_index=index, item=text)
