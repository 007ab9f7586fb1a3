"""Calls for the client, told so that none can be taken for whole before it is.

Nothing in a chat completion says that a call is done: clients execute a call when its arguments
parse, some at once, some at the end, and to some no arguments at all are `{}`. So a call is told
from its opening brace on, and whatever may be the end of its arguments is kept back until the log
has the call completed: from there on, nothing takes it back. Free text, which may end anywhere, is
told whole. Calls come one after another: openai-python takes one for done when the next begins.
"""

from __future__ import annotations

from collections import deque

from tailrace.core import events as ev
from tailrace.core.items import ToolCall
from tailrace.core.state import ItemNode
from tailrace.wire.base import Frame
from tailrace.wire.chat_chunks import Chunks
from tailrace.wire.chat_texts import Place

_MAY_END = "} \t\r\n"


class CallLane:
    """The client's calls in order of arrival; behind one that was cut, none is told."""

    __slots__ = (
        "_chunks",
        "_held",
        "_index",
        "_is_opaque",
        "_is_told",
        "_known",
        "_seen",
        "_waiting",
    )

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._waiting: deque[ItemNode] = deque()  # the first one is being told
        self._known: set[int] = set()
        self._index = 0
        self._begin()

    def _begin(self) -> None:
        self._seen = 0  # how much of the arguments was looked at
        self._held: list[str] = []
        self._is_told = False
        self._is_opaque = False

    @property
    def place(self) -> Place | None:
        """Where the arguments are that grow, if there are any."""
        if not self._waiting or not self._waiting[0].is_open:
            return None
        return ev.ArgumentsDelta, self._waiting[0].output_index, 0

    def so_far(self) -> str:
        """The arguments that grow."""
        arguments = self._waiting[0].arguments if self._waiting else None
        return arguments.text if arguments is not None else ""

    def grow(self, piece: str) -> list[Frame]:
        """More arguments, and of them what cannot be their end."""
        self._seen += len(piece)
        if not self._is_told and not self._is_opaque:
            first = piece.lstrip()[:1]
            self._is_opaque = _call(self._waiting[0]).kind == "custom" or first not in ("", "{")
        sure = "" if self._is_opaque else piece.rstrip(_MAY_END)
        if not sure:
            self._held.append(piece)
            return []
        text = "".join(self._held) + sure
        self._held = [piece[len(sure) :]]
        return [self._tell(text)]

    def item(self, node: ItemNode) -> list[Frame]:
        """A call came or ended."""
        if node.output_index not in self._known:
            self._known.add(node.output_index)
            self._waiting.append(node)
        return self.advance()

    def advance(self) -> list[Frame]:
        """Everything that can be told now."""
        frames: list[Frame] = []
        while self._waiting:
            node = self._waiting[0]
            if not node.superseded:
                if not node.is_open and node.item.status != "completed":
                    return frames
                frames += self._look(node)
                if node.is_open:
                    return frames
                frames += self._end(node)
                self._index += 1
            self._waiting.popleft()
            self._begin()
        return frames

    def _look(self, node: ItemNode) -> list[Frame]:
        assert node.arguments is not None
        if node.arguments.length() <= self._seen:
            return []
        return self.grow(node.arguments.text[self._seen :])

    def _end(self, node: ItemNode) -> list[Frame]:
        """The call is whole: what was kept back of it."""
        rest = "".join(self._held)
        if not self._is_told and not rest and _call(node).kind != "custom":
            rest = "{}"
        return [self._tell(rest)] if rest or not self._is_told else []

    def _tell(self, text: str) -> Frame:
        if self._is_told:
            return self._chunks.arguments(self._index, text)
        self._is_told = True
        return self._chunks.call(self._index, _call(self._waiting[0]), text)


def _call(node: ItemNode) -> ToolCall:
    assert isinstance(node.item, ToolCall)
    return node.item
