"""The texts of many items in one field of a message, one after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from tailrace.core.items import File, Message, Reasoning
from tailrace.core.parts import DELTA_OF
from tailrace.core.state import ImageNode, ItemNode, Part, TextNode, WholeNode
from tailrace.wire.base import Frame
from tailrace.wire.openai_chat.chunks import ChatChunks
from tailrace.wire.projection import file_link, shown_parts

DeltaPlace = tuple[type[Any], int, int]
"""What the deltas of a part have in common: their type, the item's index, the part's index."""

Cite = Callable[[TextNode], list[Frame]]

_FIELD_OF = {"text": "content", "refusal": "refusal"}


class OrderedTexts:
    """Sends the messages of a run, or its reasoning: the oldest open item first, others wait.

    The state alone determines which part is next: all parts before it are closed.
    """

    __slots__ = ("_chunks", "_cite", "_known", "_node", "_part", "_sent", "_todo", "_waiting")

    def __init__(self, chunks: ChatChunks, cite: Cite) -> None:
        """`cite` returns the citations of a text that has ended."""
        self._chunks = chunks
        self._cite = cite
        self._waiting: deque[ItemNode] = deque()
        self._known: set[object] = set()  # items by output_index, and the current item's parts
        self._node: ItemNode | None = None
        self._todo: deque[int] = deque()  # the current item's parts that are not sent
        self._part: TextNode | None = None
        self._sent = 0

    @property
    def place(self) -> DeltaPlace | None:
        """The place of the text that grows, if there is any."""
        if self._node is None or self._part is None:
            return None
        return DELTA_OF[self._part.kind], self._node.output_index, self._todo[0]

    def so_far(self) -> str:
        """The text that grows, so far; empty if the part is gone."""
        part = shown_parts(self._node).get(self._todo[0]) if self._node is not None else None
        return part.text if isinstance(part, TextNode) else ""

    def grow(self, delta: str) -> list[Frame]:
        """Send more of the text that grows."""
        part = self._part
        assert part is not None
        self._sent += len(delta)
        return [self._text(part, delta)] if delta else []

    def item(self, node: ItemNode) -> list[Frame]:
        """Take an item that was added or ended, perhaps with parts that had no event."""
        if node.output_index not in self._known:
            self._known.add(node.output_index)
            self._waiting.append(node)
        elif node is self._node:
            self._note_parts(node)
        return self.advance()

    def part(self, node: ItemNode, index: int) -> list[Frame]:
        """Take a part that was added or ended."""
        if node is not self._node:
            return []
        if (node.output_index, index) not in self._known:
            self._known.add((node.output_index, index))
            self._todo.append(index)
        return self.advance()

    def advance(self) -> list[Frame]:
        """The frames that can be sent now."""
        frames: list[Frame] = []
        self._part = None
        while True:
            node = self._node
            if node is None:
                if not self._waiting:
                    return frames
                node = self._node = self._waiting.popleft()
                self._note_parts(node)
            if node.superseded:
                self._todo.clear()  # nothing of it was sent
            while self._todo:
                part = shown_parts(node).get(self._todo[0])
                frames += self._send(part)
                if isinstance(part, TextNode) and part.is_open:
                    self._part = part
                    return frames
                self._todo.popleft()
                self._sent = 0
            if node.is_open and not node.superseded:
                return frames
            self._node = None

    def _note_parts(self, node: ItemNode) -> None:
        new = [
            (part.at, index)
            for index, part in shown_parts(node).items()
            if (node.output_index, index) not in self._known
        ]
        for _, index in sorted(new):
            self._known.add((node.output_index, index))
            self._todo.append(index)

    def _send(self, part: Part | None) -> list[Frame]:
        """Send the rest of a part."""
        frames: list[Frame] = []
        if isinstance(part, TextNode):
            # The length is cheap; reading the text joins its pieces.
            length = part.length()
            if length > self._sent:
                frames.append(self._text(part, part.text[self._sent :]))
                self._sent = length
            if part.annotations and not part.is_open:
                frames += self._cite(part)
        elif isinstance(part, WholeNode) and isinstance(part.block, File):
            frames.append(self._chunks.text("content", self._source(), file_link(part)))
        return frames

    def _text(self, part: TextNode, text: str) -> Frame:
        field = _FIELD_OF.get(part.kind)
        if field is None:
            return self._chunks.text("reasoning_content", self._source(), text)
        assert self._node is not None
        return self._chunks.text(field, self._node.output_index, text)

    def _source(self) -> object:
        """The current part, as the source of a text of its own."""
        assert self._node is not None
        return self._node.output_index, self._todo[0]


def has_text(node: ItemNode) -> bool:
    """Whether anything of a message or a reasoning was sent, or will be."""
    if not isinstance(node.item, Message | Reasoning):
        return False
    return any(_is_sent(part) for part in shown_parts(node).values())


def _is_sent(part: Part) -> bool:
    if isinstance(part, TextNode):
        return part.length() > 0
    if isinstance(part, ImageNode):
        return bool(part.image.image_url.url)
    return isinstance(part.block, File)
