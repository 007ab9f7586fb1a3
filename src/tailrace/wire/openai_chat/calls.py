"""The client's calls, sent so that no client takes a call for complete before it is.

A chat completion has no sign that a call is done. Clients execute a call when its arguments parse,
some of them at once, and some take empty arguments for `{}`. So a call begins with its opening
brace, and possible ends of its arguments are held back until the log has the call completed. Free
text may end anywhere, so it is sent at once when it is complete. Calls are sent one after another:
openai-python takes a call for done when the next begins.
"""

from __future__ import annotations

from collections import deque

from tailrace.core import events as ev
from tailrace.core.items import ToolCall
from tailrace.core.state import ItemNode
from tailrace.wire.base import Frame
from tailrace.wire.openai_chat.chunks import ChatChunks
from tailrace.wire.openai_chat.texts import DeltaPlace

_MAY_END = "} \t\r\n"


class OrderedCalls:
    """Sends the client's calls in order of arrival, and nothing after a call that was cut."""

    __slots__ = (
        "_chunks",
        "_held",
        "_index",
        "_is_opaque",
        "_is_sent",
        "_known",
        "_seen",
        "_waiting",
    )

    def __init__(self, chunks: ChatChunks) -> None:
        self._chunks = chunks
        self._waiting: deque[ItemNode] = deque()  # the first is being sent
        self._known: set[int] = set()
        self._index = 0
        self._begin()

    def _begin(self) -> None:
        self._seen = 0  # how many characters of the arguments were read
        self._held: list[str] = []
        self._is_sent = False
        self._is_opaque = False

    @property
    def place(self) -> DeltaPlace | None:
        """The place of the arguments that grow, if there are any."""
        if not self._waiting or not self._waiting[0].is_open:
            return None
        return ev.ArgumentsDelta, self._waiting[0].output_index, 0

    def so_far(self) -> str:
        """The arguments that grow, so far."""
        arguments = self._waiting[0].arguments if self._waiting else None
        return arguments.text if arguments is not None else ""

    def grow(self, piece: str) -> list[Frame]:
        """Send more arguments, except for characters that may be their end."""
        self._seen += len(piece)
        if not self._is_sent and not self._is_opaque:
            first = piece.lstrip()[:1]
            self._is_opaque = _call(self._waiting[0]).kind == "custom" or first not in ("", "{")
        sure = "" if self._is_opaque else piece.rstrip(_MAY_END)
        if not sure:
            self._held.append(piece)
            return []
        text = "".join(self._held) + sure
        self._held = [piece[len(sure) :]]
        return [self._send(text)]

    def item(self, node: ItemNode) -> list[Frame]:
        """Take a call that was added or ended."""
        if node.output_index not in self._known:
            self._known.add(node.output_index)
            self._waiting.append(node)
        return self.advance()

    def advance(self) -> list[Frame]:
        """The frames that can be sent now."""
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
        """Send the held characters of a complete call."""
        rest = "".join(self._held)
        if not self._is_sent and not rest and _call(node).kind != "custom":
            rest = "{}"
        return [self._send(rest)] if rest or not self._is_sent else []

    def _send(self, text: str) -> Frame:
        if self._is_sent:
            return self._chunks.arguments(self._index, text)
        self._is_sent = True
        return self._chunks.call(self._index, _call(self._waiting[0]), text)


def _call(node: ItemNode) -> ToolCall:
    assert isinstance(node.item, ToolCall)
    return node.item
