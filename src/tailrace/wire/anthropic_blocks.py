"""What a client of Anthropic's Messages API sees of a run, block by block.

| here | there |
| --- | --- |
| reasoning | `thinking`, one for each part: the summary, or the raw text if that came first |
| text or refusal of a message | `text` |
| file, image of a message | `text`: a Markdown link; a picture that is no link is `[image]` |
| tool_call, executor `client` | `tool_use`, its arguments as they come |
| any other tool_call | `mcp_tool_use`, once its arguments are whole |
| its result | `mcp_tool_result`, once it is done; a sub-agent's last message is in it |
| data of a message, raw item, a sub-agent's items | nothing |

`mcp_tool_use` is the one block of a call that no SDK tries to carry out and whose name is free.
anthropic-python (but for its beta client) and the AI SDK read its input from the block's start and
nowhere else, so it waits until it is whole. Nobody but Anthropic can sign a thinking block, and a
signature that we know is private: it is empty.

A block here looks at the folded state whenever it is asked. The encoder (`anthropic_messages`)
tells one after the other, in order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from tailrace.core import events as ev
from tailrace.core.items import Message, Reasoning, ToolCall, ToolResult
from tailrace.core.state import ImageNode, ItemNode, Part, TaskNode, TextNode, WholeNode
from tailrace.wire.openai_items import (
    Json,
    file_link,
    inline,
    is_client,
    is_raw_first,
    output_text,
    server_name,
)

Live = tuple[int, type[Any], int]
"""Which deltas are a block's own: the item's index, the event's class, the part's index."""

_BLANK = " \t\r\n"
_DELTAS: dict[str, type[Any]] = {
    "text": ev.TextDelta,
    "refusal": ev.RefusalDelta,
    "summary": ev.SummaryTextDelta,
    "reasoning_text": ev.ReasoningTextDelta,
}


class Block(Protocol):
    """A content block, from before it can be told until it is over."""

    node: ItemNode
    at: int
    """The arrival of what it shows."""

    def is_ready(self) -> bool:
        """Whether there is something to tell, so that it begins. It stays so."""

    def is_closed(self) -> bool:
        """Whether nothing more of it can come."""

    def start(self) -> Json:
        """The `content_block` of its start."""

    def delta(self) -> tuple[str, str, str] | None:
        """How it streams: the delta's type, the field of its text, and the text so far."""

    def live(self) -> Live | None:
        """The events that go on with it, if any can."""


class TextBlock:
    """A text that streams: of a message, or thinking."""

    __slots__ = ("_index", "_list", "at", "node")

    def __init__(self, node: ItemNode, list_: str, index: int, at: int) -> None:
        """The part at `index` of one of the item's lists, `parts` or `texts`."""
        self.node = node
        self.at = at
        self._list = list_
        self._index = index

    @property
    def part(self) -> TextNode | None:
        """The part; the end of an item may put another in its place, or none (a foreign log)."""
        part = getattr(self.node, self._list).get(self._index)
        return part if isinstance(part, TextNode) else None

    def is_ready(self) -> bool:
        """Empty texts are not told: Anthropic's own API would refuse them in a history."""
        part = self.part
        return part is not None and part.text != ""

    def is_closed(self) -> bool:
        """Once the part is done."""
        part = self.part
        return part is None or not part.is_open

    def start(self) -> Json:
        """An empty text."""
        if isinstance(self.node.item, Reasoning):
            return {"type": "thinking", "thinking": "", "signature": ""}
        return {"type": "text", "text": ""}

    def delta(self) -> tuple[str, str, str]:
        """Text or thinking."""
        part = self.part
        assert part is not None
        field = "thinking" if isinstance(self.node.item, Reasoning) else "text"
        return f"{field}_delta", field, part.text

    def live(self) -> Live | None:
        """The deltas of its part."""
        part = self.part
        assert part is not None
        return self.node.output_index, _DELTAS[part.kind], self._index


class LinkBlock(TextBlock):
    """A file or a picture of a message, which comes whole: a text that shows where it is.

    Data has no such text, so its block is never ready.
    """

    def _link(self) -> str:
        part = self.node.parts.get(self._index)
        if isinstance(part, ImageNode):
            url = part.image.image_url.url
            if not url or part.is_open:
                return ""
            return f"![image]({url})" if inline(part.image) is None else "[image]"
        return file_link(part) if isinstance(part, WholeNode) and part.kind == "file" else ""

    def is_ready(self) -> bool:
        """Once there is a link."""
        return self._link() != ""

    def is_closed(self) -> bool:
        """Once the picture is the last one."""
        part = self.node.parts.get(self._index)
        return part is None or not part.is_open

    def delta(self) -> tuple[str, str, str]:
        """The link."""
        return "text_delta", "text", self._link()

    def live(self) -> None:
        """No deltas."""


class ClientCall:
    """A call that is the client's to carry out.

    Its arguments stream while they look like an object; what is none (the free text of a custom
    tool) is put into one. A call that was cut, or whose arguments are no JSON after all, is never
    over: some SDKs carry out whatever has stopped.
    """

    __slots__ = ("_is_sound", "at", "node")

    def __init__(self, node: ItemNode) -> None:
        """The item of a call."""
        self.node = node
        self.at = node.at
        self._is_sound: bool | None = None

    @property
    def _item(self) -> ToolCall:
        assert isinstance(self.node.item, ToolCall)
        return self.node.item

    @property
    def _text(self) -> str:
        assert self.node.arguments is not None
        return self.node.arguments.text

    def _streams(self) -> bool:
        return self._item.kind != "custom" and self._text.lstrip(_BLANK)[:1] == "{"

    def is_ready(self) -> bool:
        """With the first of its arguments, or when it is done."""
        return self._streams() or _is_completed(self.node)

    def is_closed(self) -> bool:
        """Once it may be carried out, or was cut before anything was told."""
        if self.node.is_open:
            return False
        if not self._streams():
            return True
        if self._is_sound is None:
            whole = _is_completed(self.node)
            self._is_sound = whole and isinstance(_decoded(self._text), dict)
        return self._is_sound

    def start(self) -> Json:
        """The call without its input."""
        return {"type": "tool_use", "id": self._item.call_id, "name": self._item.name, "input": {}}

    def delta(self) -> tuple[str, str, str]:
        """The arguments."""
        text = self._text
        if not self._streams():
            text = msgspec.json.encode(input_of(self._item, text)).decode()
        return "input_json_delta", "partial_json", text

    def live(self) -> Live:
        """The deltas of its arguments."""
        return self.node.output_index, ev.ArgumentsDelta, self.node.output_index


class ServerCall:
    """A call that somebody else carries out."""

    __slots__ = ("at", "node")

    def __init__(self, node: ItemNode) -> None:
        """The item of a call."""
        self.node = node
        self.at = node.at

    def is_ready(self) -> bool:
        """Once it is made; one that was cut never was."""
        return _is_completed(self.node)

    def is_closed(self) -> bool:
        """At the same time."""
        return not self.node.is_open

    def start(self) -> Json:
        """The whole call."""
        item, arguments = self.node.item, self.node.arguments
        assert isinstance(item, ToolCall)
        assert arguments is not None
        return {
            "type": "mcp_tool_use",
            "id": item.call_id,
            "name": item.name,
            "server_name": server_name(item),
            "input": input_of(item, arguments.text),
        }

    def delta(self) -> tuple[str, str, str] | None:
        """None, it came whole; but an empty input is said to be all of it, and not yet to come."""
        return None if self.start()["input"] else ("input_json_delta", "partial_json", "{}")

    def live(self) -> None:
        """No deltas."""


class Result:
    """What such a call gave."""

    __slots__ = ("_root", "at", "node")

    def __init__(self, root: TaskNode, node: ItemNode) -> None:
        """The item of a result."""
        self._root = root
        self.node = node
        self.at = node.at

    def is_ready(self) -> bool:
        """Once it is there. One that was interrupted may be superseded yet, so it is not told."""
        item = self.node.item
        assert isinstance(item, ToolResult)
        if self.node.is_open or item.status == "incomplete":
            return False
        call = self._root.calls.get(item.call_id)
        return (
            call is not None
            and not is_client(call.item)
            and not call.superseded
            and _is_completed(call)
            and call.at < self.at
        )

    def is_closed(self) -> bool:
        """At the same time."""
        return not self.node.is_open

    def start(self) -> Json:
        """The whole result."""
        item = self.node.item
        assert isinstance(item, ToolResult)
        texts = [output_text(self._root, self.node)]
        if item.status == "failed":
            texts.append(item.error.message if item.error is not None else "The tool failed.")
        return {
            "type": "mcp_tool_result",
            "tool_use_id": item.call_id,
            "is_error": item.status == "failed",
            "content": [{"type": "text", "text": text} for text in texts if text],
        }

    def delta(self) -> None:
        """None: it came whole."""

    def live(self) -> None:
        """No deltas."""


def blocks_of(root: TaskNode, node: ItemNode) -> Iterator[Block]:
    """The blocks that an item is, in their order."""
    item = node.item
    if isinstance(item, ToolCall):
        yield ClientCall(node) if is_client(item) else ServerCall(node)
    elif isinstance(item, ToolResult):
        yield Result(root, node)
    elif isinstance(item, Reasoning | Message):
        list_ = "texts" if is_raw_first(node) else "parts"
        for index in sorted(getattr(node, list_)):
            yield from part_block(node, list_, index)


def part_block(node: ItemNode, list_: str, index: int) -> Iterator[Block]:
    """The block that one part of a reasoning or a message is, if it is one.

    Of a reasoning's two lists one is shown: whoever sends both sends the same thoughts twice.
    """
    if not isinstance(node.item, Reasoning | Message):
        return
    part: Part = getattr(node, list_)[index]
    if isinstance(part, TextNode):
        if list_ == ("texts" if is_raw_first(node) else "parts"):
            yield TextBlock(node, list_, index, part.at)
    else:
        yield LinkBlock(node, list_, index, part.at)


def input_of(item: ToolCall, text: str) -> Json:
    """A call's arguments as the object that an input has to be."""
    value = text if item.kind == "custom" else _decoded(text or "{}")
    if isinstance(value, dict):
        return value
    return {"input": text if value is None else value}


def _is_completed(node: ItemNode) -> bool:
    return not node.is_open and node.item.status == "completed"


def _decoded(text: str) -> Any:
    """The value that a JSON text is, or None."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
