"""Items and their parts as AG-UI's events: how they open, grow and close."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tailrace.core.fold import State
from tailrace.core.items import Message, Reasoning, ReferenceToBlock, ToolCall, ToolResult
from tailrace.core.parts import PARTS
from tailrace.core.state import ImageNode, ItemNode, Part, TaskNode, TextNode, WholeNode
from tailrace.wire.ag_ui.frames import (
    custom,
    event_frame,
    message_id,
    sse,
    tag,
    to_json,
)
from tailrace.wire.base import Frame
from tailrace.wire.projection import (
    is_client,
    is_complete,
    shown_parts,
)

STATE = "state"
"""The name of data blocks that are the agent's state."""


_ROLES = ("assistant", "developer", "system", "user")


def is_for_client(node: ItemNode) -> bool:
    """Whether a call is complete and the client executes it."""
    return is_client(node.item) and is_complete(node) and not node.superseded


def is_asked_for(task: TaskNode, node: ItemNode) -> bool:
    """Whether the run asks, or asked, for the output of a call: the client has the call then."""
    asked = {request.call_id for request in task.requests}
    asked |= {answer.get("call_id") for answer in task.answers.values()}
    return is_for_client(node) and node.item.call_id in asked  # type: ignore[union-attr]


def is_sent(node: ItemNode) -> bool:
    """Whether the client received frames of an item before its end."""
    is_shown = isinstance(node.item, Message | Reasoning | ToolCall)
    return is_shown and not is_client(node.item)


def delta_frames(task: TaskNode, event: Any) -> list[Frame]:
    """A piece of a text or of arguments."""
    node = task.items[event.output_index]
    place = PARTS[event.__class__]
    if not event.delta:
        return []
    if place.store == "arguments":
        if is_client(node.item):
            return []
        assert isinstance(node.item, ToolCall)
        return [
            event_frame(
                "TOOL_CALL_ARGS",
                **tag(task),
                toolCallId=node.item.call_id,
                delta=event.delta,
            )
        ]
    index = place.index_of(event)
    if isinstance(node.item, Reasoning):
        part = shown_parts(node).get(index)
        if part is None or part is not getattr(node, place.store).get(index):
            return []
        return [thought(task, node, index, "CONTENT", delta=event.delta)]
    if isinstance(node.item, Message):
        return content_frames(task, node, index, event.delta)
    return []  # a result is sent whole


def content_frames(task: TaskNode, node: ItemNode, index: int, text: str) -> list[Frame]:
    """A piece of a message's text; the first piece of a later part follows a blank line."""
    part = node.parts[index]
    assert isinstance(part, TextNode)
    if not text:
        return []
    is_first = part.length() == len(text)
    if is_first and any(
        n < index and isinstance(other, TextNode) and other.length()
        for n, other in node.parts.items()
    ):
        text = f"\n\n{text}"
    return [
        event_frame(
            "TEXT_MESSAGE_CONTENT", **tag(task), messageId=message_id(task, node), delta=text
        )
    ]


def thought(task: TaskNode, node: ItemNode, index: int, what: str, **fields: Any) -> Frame:
    """An event of one text of a reasoning."""
    ident = f"{message_id(task, node)}_{index}"
    return event_frame(f"REASONING_MESSAGE_{what}", **tag(task), messageId=ident, **fields)


def start_frames(task: TaskNode, node: ItemNode) -> list[Frame]:
    """The frames that open an item, without its parts."""
    item = node.item
    if isinstance(item, Message):
        role = item.role if item.role in _ROLES else None
        return [
            event_frame(
                "TEXT_MESSAGE_START", **tag(task), messageId=message_id(task, node), role=role
            )
        ]
    if isinstance(item, Reasoning):
        return [event_frame("REASONING_START", **tag(task), messageId=message_id(task, node))]
    if isinstance(item, ToolCall) and item.executor != "client":
        call = {"toolCallId": item.call_id, "toolCallName": item.name}
        return [event_frame("TOOL_CALL_START", **tag(task), **call)]
    return []


def end_frames(task: TaskNode, node: ItemNode) -> list[Frame]:
    """The frames that close an item, and its parts that are open."""
    item = node.item
    if isinstance(item, Message):
        return [event_frame("TEXT_MESSAGE_END", **tag(task), messageId=message_id(task, node))]
    if isinstance(item, Reasoning):
        return [event_frame("REASONING_END", **tag(task), messageId=message_id(task, node))]
    if isinstance(item, ToolCall) and item.executor != "client":
        return [event_frame("TOOL_CALL_END", **tag(task), toolCallId=item.call_id)]
    return []


def open_thoughts(task: TaskNode, node: ItemNode, what: str, **fields: Any) -> list[Frame]:
    """An event for each open text of a reasoning."""
    if not isinstance(node.item, Reasoning):
        return []
    shown = sorted(shown_parts(node).items())
    return [thought(task, node, n, what, **fields) for n, part in shown if part.is_open]


def whole_call(task: TaskNode, node: ItemNode) -> list[Frame]:
    """A complete call with its arguments."""
    item = node.item
    assert isinstance(item, ToolCall)
    text = node.arguments_text
    call = {**tag(task), "toolCallId": item.call_id}
    return [
        event_frame("TOOL_CALL_START", **call, toolCallName=item.name),
        event_frame("TOOL_CALL_ARGS", **call, delta=text or "{}"),
        event_frame("TOOL_CALL_END", **call),
    ]


def part_frames(task: TaskNode, node: ItemNode, part: Part) -> list[Frame]:
    """The frames of a part besides its text: citations, images, files and data."""
    if isinstance(part, TextNode):
        if not isinstance(node.item, Message):
            return []
        return [citation(task, node, note) for note in part.annotations]
    if isinstance(part, ImageNode):
        if part.is_open:
            return []
        value = {"itemId": message_id(task, node), "url": part.image.image_url.url}
        return [custom(task, "image", value)]
    assert isinstance(part, WholeNode)
    block = msgspec.to_builtins(part.block)
    if part.kind == "data" and block.get("name") == STATE:
        return [sse({"type": "STATE_SNAPSHOT", **tag(task), "snapshot": block["data"]})]
    name = block.get("name") if part.kind == "data" else None
    return [custom(task, name or part.kind, block.get("data") if part.kind == "data" else block)]


def citation(task: TaskNode, node: ItemNode, note: Any) -> Frame:
    """A citation of a message."""
    value = {"messageId": message_id(task, node), "annotation": msgspec.to_builtins(note)}
    if isinstance(note, ReferenceToBlock):
        value["referenceId"] = note.reference_id
    return custom(task, "citation", value)


def result_frames(task: TaskNode, node: ItemNode) -> list[Frame]:
    """The result of a call as text, after the call itself if it was held back."""
    item = node.item
    assert isinstance(item, ToolResult)
    call = task.calls.get(item.call_id)
    is_new = call is not None and is_for_client(call) and not is_asked_for(task, call)
    frames = whole_call(task, call) if call is not None and is_new else []
    content = "\n\n".join(_result_texts(task, node))
    if item.error is not None:
        content = f"{content}\n\n{item.error.message}".strip()
    result = {"messageId": message_id(task, node), "toolCallId": item.call_id, "content": content}
    return [*frames, event_frame("TOOL_CALL_RESULT", **tag(task), **result, role="tool")]


def _result_texts(task: TaskNode, node: ItemNode) -> Iterator[str]:
    """The texts of a result, and the messages of its sub-agents."""
    assert isinstance(node.item, ToolResult)
    for _, part in sorted(node.parts.items()):
        if isinstance(part, TextNode) and part.text:
            yield part.text
        elif isinstance(part, WholeNode) and part.kind == "data":
            yield to_json(msgspec.to_builtins(part.block)["data"]).decode()
    for child in task.children:
        if child.call_id == node.item.call_id:
            for answer in child.output():
                if isinstance(answer.item, Message):
                    yield from (
                        part.text
                        for _, part in sorted(answer.parts.items())
                        if isinstance(part, TextNode) and part.text
                    )


def late_parts(state: State, task: TaskNode, node: ItemNode) -> list[Frame]:
    """The parts that came with the item's own event."""
    frames: list[Frame] = []
    item = node.item
    if isinstance(item, ToolCall):
        text = node.arguments
        if is_client(node.item) or text is None or text.at != state.position or not text.text:
            return []
        return [
            event_frame("TOOL_CALL_ARGS", **tag(task), toolCallId=item.call_id, delta=text.text)
        ]
    parts: dict[int, Any] = dict(node.parts)
    if isinstance(item, Reasoning):
        parts = dict(shown_parts(node))
    for n, part in sorted(parts.items()):
        if part.at == state.position:
            frames += whole_part(task, node, n, part)
    return frames


def whole_part(task: TaskNode, node: ItemNode, index: int, part: Part) -> list[Frame]:
    """A new part with its content so far."""
    frames: list[Frame] = []
    if isinstance(node.item, Reasoning):
        assert isinstance(part, TextNode)
        frames.append(thought(task, node, index, "START", role="reasoning"))
        if part.text:
            frames.append(thought(task, node, index, "CONTENT", delta=part.text))
        if not part.is_open:
            frames.append(thought(task, node, index, "END"))
        return frames
    if isinstance(part, TextNode) and isinstance(node.item, Message):
        frames += content_frames(task, node, index, part.text)
    return frames + part_frames(task, node, part)


def block_frames(task: TaskNode, node: ItemNode) -> list[Frame]:
    """What the parts of an item show beside their texts."""
    return [
        frame for _, part in sorted(node.parts.items()) for frame in part_frames(task, node, part)
    ]
