"""The content blocks of Anthropic's Messages API that a run becomes.

| here | there |
| --- | --- |
| reasoning | `thinking`, a block for each part: the summary, or the raw text if it came first |
| text or refusal of a message | `text` |
| file, image of a message | `text`: a Markdown link; an inline image is `[image]` |
| tool_call, executor `client` | `tool_use`, its arguments streamed |
| any other tool_call | `mcp_tool_use`, once its arguments are complete |
| its result | `mcp_tool_result`, once it is done; with the last message of its sub-agents |
| structured output of a run without text | `text`: its JSON |
| data of a message, raw item, a sub-agent's items | nothing |

`mcp_tool_use` is the only block of a call that no SDK tries to execute and whose name is free.
anthropic-python (except for its beta client) and the AI SDK read its input only from the block's
start, so the block waits for complete arguments. The signatures that we store are private, so the
signature of a thinking block is the id of its reasoning item.

A block reads the folded state whenever it is asked. The encoder sends the blocks in order of
arrival.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from tailrace.core import events as ev
from tailrace.core.items import Message, Reasoning, ToolCall, ToolResult
from tailrace.core.parts import DELTA_OF
from tailrace.core.state import ImageNode, ItemNode, Part, TaskNode, TextNode, WholeNode
from tailrace.core.tool_arguments import arguments_value, decoded
from tailrace.core.values import Json, json_text
from tailrace.wire.projection import (
    file_link,
    image_link,
    is_client,
    is_complete,
    output_text,
    server_name,
    shown_store,
)

BlockDeltas = tuple[int, type[Any], int]
"""The deltas of a block: the item's index, the event's class, the part's index."""

_BLANK = " \t\r\n"


class ContentBlock(Protocol):
    """A content block, from the first sign of it until it is closed."""

    node: ItemNode
    at: int
    """The arrival of its item or part."""

    def is_ready(self) -> bool:
        """Whether the block can begin. Once true, it stays true."""

    def is_closed(self) -> bool:
        """Whether the block cannot change any more."""

    def start(self) -> Json:
        """The `content_block` of its start."""

    def delta(self) -> tuple[str, str, str] | None:
        """The type and the text field of its deltas, and the text so far; None if it is whole."""

    def live(self) -> BlockDeltas | None:
        """The deltas that continue the block, if there can be any."""


class StreamedBlock:
    """A text of a message, or thinking."""

    __slots__ = ("_index", "_store", "at", "node")

    def __init__(self, node: ItemNode, store: str, index: int, at: int) -> None:
        """The part at `index` of the item's `parts` or `texts`."""
        self.node = node
        self.at = at
        self._store = store
        self._index = index

    @property
    def part(self) -> TextNode | None:
        """The part. In a foreign log the end of an item may replace it, or remove it."""
        part = getattr(self.node, self._store).get(self._index)
        return part if isinstance(part, TextNode) else None

    def is_ready(self) -> bool:
        """Whether the block has text: Anthropic's API refuses empty texts in a history."""
        part = self.part
        return part is not None and part.text != ""

    def is_closed(self) -> bool:
        """Whether the part is done."""
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

    def live(self) -> BlockDeltas | None:
        """The deltas of the part."""
        part = self.part
        assert part is not None
        return self.node.output_index, DELTA_OF[part.kind], self._index


class LinkBlock(StreamedBlock):
    """A file or an image of a message, as a Markdown link. Data has no link: it is never ready."""

    def _link(self) -> str:
        part = self.node.parts.get(self._index)
        if isinstance(part, ImageNode):
            return "" if part.is_open else image_link(part.image, inline="[image]")
        return file_link(part) if isinstance(part, WholeNode) and part.kind == "file" else ""

    def is_ready(self) -> bool:
        """Whether the block has a link."""
        return self._link() != ""

    def is_closed(self) -> bool:
        """Whether the image is final."""
        part = self.node.parts.get(self._index)
        return part is None or not part.is_open

    def delta(self) -> tuple[str, str, str]:
        """The link."""
        return "text_delta", "text", self._link()

    def live(self) -> None:
        """No deltas."""


class ClientCallBlock:
    """A call that the client executes.

    Arguments that begin like an object are streamed; any others (the free text of a custom tool)
    are put into an object. A call that was cut, or whose arguments are not JSON, is never closed:
    some SDKs execute any call that has stopped.
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
        """Whether the call has arguments, or is done."""
        return self._streams() or is_complete(self.node)

    def is_closed(self) -> bool:
        """Whether the client may execute the call, or the call was cut before it began."""
        if self.node.is_open:
            return False
        if not self._streams():
            return True
        if self._is_sound is None:
            is_object = is_complete(self.node) and isinstance(decoded(self._text), dict)
            self._is_sound = is_object
        return self._is_sound

    def start(self) -> Json:
        """The call without its input."""
        return {"type": "tool_use", "id": self._item.call_id, "name": self._item.name, "input": {}}

    def delta(self) -> tuple[str, str, str]:
        """The arguments."""
        text = self._text
        if not self._streams():
            text = json_text(input_of(self._item, text))
        return "input_json_delta", "partial_json", text

    def live(self) -> BlockDeltas:
        """The deltas of its arguments."""
        return self.node.output_index, ev.ArgumentsDelta, 0


class ServerCallBlock:
    """A call that the server or the provider executes."""

    __slots__ = ("at", "node")

    def __init__(self, node: ItemNode) -> None:
        """The item of a call."""
        self.node = node
        self.at = node.at

    def is_ready(self) -> bool:
        """Whether the call is complete."""
        return is_complete(self.node)

    def is_closed(self) -> bool:
        """Whether the call has ended."""
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
        """No delta, except for an empty input: `{}` shows that nothing follows."""
        return None if self.start()["input"] else ("input_json_delta", "partial_json", "{}")

    def live(self) -> None:
        """No deltas."""


class ResultBlock:
    """The result of a call that the client does not execute."""

    __slots__ = ("_root", "at", "node")

    def __init__(self, root: TaskNode, node: ItemNode) -> None:
        """The item of a result."""
        self._root = root
        self.node = node
        self.at = node.at

    def is_ready(self) -> bool:
        """Whether the result is done. An interrupted result is not sent: it may be superseded."""
        item = self.node.item
        assert isinstance(item, ToolResult)
        if self.node.is_open or item.status == "incomplete":
            return False
        call = self._root.calls.get(item.call_id)
        return (
            call is not None
            and not is_client(call.item)
            and not call.superseded
            and is_complete(call)
            and call.at < self.at
        )

    def is_closed(self) -> bool:
        """Whether the result has ended."""
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
        """No delta: the result is in the start."""

    def live(self) -> None:
        """No deltas."""


def blocks_of(root: TaskNode, node: ItemNode) -> Iterator[ContentBlock]:
    """The blocks of an item, in order."""
    item = node.item
    if isinstance(item, ToolCall):
        yield ClientCallBlock(node) if is_client(item) else ServerCallBlock(node)
    elif isinstance(item, ToolResult):
        yield ResultBlock(root, node)
    elif isinstance(item, Reasoning | Message):
        store = shown_store(node)
        for index in sorted(getattr(node, store)):
            yield from part_block(node, store, index)


def part_block(node: ItemNode, store: str, index: int) -> Iterator[ContentBlock]:
    """The block of a part of a reasoning or a message, if it is shown."""
    if not isinstance(node.item, Reasoning | Message):
        return
    part: Part = getattr(node, store)[index]
    if isinstance(part, TextNode):
        if store == shown_store(node):
            yield StreamedBlock(node, store, index, part.at)
    else:
        yield LinkBlock(node, store, index, part.at)


def input_of(item: ToolCall, text: str) -> Json:
    """A call's arguments as an object; any other value is its `input`."""
    value = text if item.kind == "custom" else arguments_value(text)
    if isinstance(value, dict):
        return value
    return {"input": text if value is None else value}
