"""Texts of many items in a field that can hold one: they speak one after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from tailrace.core import events as ev
from tailrace.core.items import File, Message, Reasoning
from tailrace.core.state import ImageNode, ItemNode, Part, TextNode, WholeNode
from tailrace.wire.base import Frame
from tailrace.wire.chat_chunks import Chunks
from tailrace.wire.openai_items import file_link
from tailrace.wire.vercel_chunks import channel

Place = tuple[type[Any], int, int]
"""What the deltas of one part have in common: their type, the item's index, the part's."""

Cite = Callable[[TextNode], list[Frame]]

_DELTA_OF: dict[str, type[Any]] = {
    "text": ev.TextDelta,
    "refusal": ev.RefusalDelta,
    "summary": ev.SummaryTextDelta,
    "reasoning_text": ev.ReasoningTextDelta,
}
_FIELD_OF = {"text": "content", "refusal": "refusal"}


def parts_of(node: ItemNode) -> dict[int, Any]:
    """The parts of a message, or those of a reasoning that are shown."""
    return channel(node) if isinstance(node.item, Reasoning) else node.parts


class TextLane:
    """The messages of a run, or its reasoning: the oldest item that is open speaks, others wait.

    Which part of which item is next follows from the state alone: all before it are closed.
    """

    __slots__ = ("_chunks", "_cite", "_known", "_part", "_said", "_speaker", "_todo", "_waiting")

    def __init__(self, chunks: Chunks, cite: Cite) -> None:
        """`cite` tells what a text cites that has ended."""
        self._chunks = chunks
        self._cite = cite
        self._waiting: deque[ItemNode] = deque()
        self._known: set[object] = set()  # items by output_index, and the speaker's parts
        self._speaker: ItemNode | None = None
        self._todo: deque[int] = deque()  # the speaker's parts, from the one that speaks
        self._part: TextNode | None = None
        self._said = 0

    @property
    def place(self) -> Place | None:
        """Where the text is that grows, if there is one."""
        if self._speaker is None or self._part is None:
            return None
        return _DELTA_OF[self._part.kind], self._speaker.output_index, self._todo[0]

    def so_far(self) -> str:
        """The text that grows, which is told so far; empty if it is gone."""
        part = parts_of(self._speaker).get(self._todo[0]) if self._speaker is not None else None
        return part.text if isinstance(part, TextNode) else ""

    def grow(self, delta: str) -> list[Frame]:
        """More of the text that speaks."""
        part = self._part
        assert part is not None
        self._said += len(delta)
        return [self._say(part, delta)] if delta else []

    def item(self, node: ItemNode) -> list[Frame]:
        """An item came or ended, maybe with parts that nobody announced."""
        if node.output_index not in self._known:
            self._known.add(node.output_index)
            self._waiting.append(node)
        elif node is self._speaker:
            self._note_parts(node)
        return self.advance()

    def part(self, node: ItemNode, index: int) -> list[Frame]:
        """A part came or ended."""
        if node is not self._speaker:
            return []
        if (node.output_index, index) not in self._known:
            self._known.add((node.output_index, index))
            self._todo.append(index)
        return self.advance()

    def advance(self) -> list[Frame]:
        """Everything that can be told now."""
        frames: list[Frame] = []
        self._part = None
        while True:
            node = self._speaker
            if node is None:
                if not self._waiting:
                    return frames
                node = self._speaker = self._waiting.popleft()
                self._note_parts(node)
            if node.superseded:
                self._todo.clear()  # there was nothing to tell of it
            while self._todo:
                part = parts_of(node).get(self._todo[0])
                frames += self._tell(part)
                if isinstance(part, TextNode) and part.is_open:
                    self._part = part
                    return frames
                self._todo.popleft()
                self._said = 0
            if node.is_open and not node.superseded:
                return frames
            self._speaker = None

    def _note_parts(self, node: ItemNode) -> None:
        new = [
            (part.at, index)
            for index, part in parts_of(node).items()
            if (node.output_index, index) not in self._known
        ]
        for _, index in sorted(new):
            self._known.add((node.output_index, index))
            self._todo.append(index)

    def _tell(self, part: Part | None) -> list[Frame]:
        """What is left of a part."""
        frames: list[Frame] = []
        if isinstance(part, TextNode):
            # Asked before the text is joined: a text that did not grow costs nothing.
            length = part.length()
            if length > self._said:
                frames.append(self._say(part, part.text[self._said :]))
                self._said = length
            if part.annotations and not part.is_open:
                frames += self._cite(part)
        elif isinstance(part, WholeNode) and isinstance(part.block, File):
            frames.append(self._chunks.say("content", self._me(), file_link(part)))
        return frames

    def _say(self, part: TextNode, text: str) -> Frame:
        field = _FIELD_OF.get(part.kind)
        if field is None:
            return self._chunks.say("reasoning_content", self._me(), text)
        assert self._speaker is not None
        return self._chunks.say(field, self._speaker.output_index, text)

    def _me(self) -> object:
        """A speaker that is one part alone."""
        assert self._speaker is not None
        return self._speaker.output_index, self._todo[0]


def has_text(node: ItemNode) -> bool:
    """Whether anything of a message or a reasoning has been told, or is about to be."""
    if not isinstance(node.item, Message | Reasoning):
        return False
    return any(_is_told(part) for part in parts_of(node).values())


def _is_told(part: Part) -> bool:
    if isinstance(part, TextNode):
        return part.length() > 0
    if isinstance(part, ImageNode):
        return bool(part.image.image_url.url)
    return isinstance(part.block, File)
