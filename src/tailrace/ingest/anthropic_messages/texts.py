"""The text blocks of Anthropic's messages, and their citations."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from tailrace.core import events as ev
from tailrace.core.errors import StreamTooLarge
from tailrace.core.event_sink import Sink
from tailrace.core.items import Status
from tailrace.core.values import Json, list_of
from tailrace.core.writers import MessageWriter
from tailrace.ingest.anthropic_messages.values import citation_of
from tailrace.ingest.unknown import has_unknown


class TextMessage:
    """Text blocks that follow each other directly, as a message.

    An answer with citations comes as dozens of text blocks. Each becomes a block of the message, so
    the content array can be sent back.
    """

    def __init__(self, sink: Sink, private: Callable[..., ev.Private]) -> None:
        self._private = private
        self.writer = MessageWriter(sink)
        self._blocks: list[MessageText] = []
        self._open = 0
        self._left = False
        self.status: Status = "completed"

    def open(self, block: Json) -> MessageText:
        """Begin a text block."""
        self._open += 1
        self._blocks.append(MessageText(self, block))
        return self._blocks[-1]

    def closed(self) -> None:
        """Note the end of a text block."""
        self._open -= 1
        self._finish()

    def leave(self) -> None:
        """Note that the next block is not a text."""
        self._left = True
        self._finish()

    def _finish(self) -> None:
        # If blocks overlap, the last open block ends the message.
        if self._left and not self._open:
            raw = [block.raw() for block in self._blocks]
            is_kept = any(has_unknown(block, ("type", "text")) for block in raw)
            private = self._private(raw=raw if is_kept else None)
            self.writer.finish(self.status, private)


class MessageText:
    """A text block and its citations.

    Anthropic's citations have no range and may come before the text. So they are written at the
    end of the block and cover all of it.
    """

    is_call = False

    def __init__(self, texts: TextMessage, block: Json) -> None:
        self._texts = texts
        self._start = block
        self._writer = texts.writer.text_block()
        self._citations = [*list_of(block.get("citations"))]
        self._cited = 0
        text = block.get("text")
        if isinstance(text, str):
            self._writer.add(text)

    def delta(self, delta: Json) -> bool:
        """Take text or a citation."""
        kind = delta.get("type")
        if kind == "text_delta":
            text = delta.get("text")
            if isinstance(text, str):
                self._writer.add(text)
                return True
        elif kind == "citations_delta" and "citation" in delta:
            self._citations.append(delta["citation"])
            return True
        return False

    def raw(self) -> Json:
        """The block as Anthropic's SDKs accumulate it."""
        raw = {**self._start, "type": "text", "text": self._writer.text}
        if self._citations:
            raw["citations"] = self._citations
        elif not raw.get("citations"):
            raw.pop("citations", None)  # null or an empty list
        return raw

    def stop(self) -> None:
        """Complete the text, and write its citations."""
        self._cite()
        self._close()

    def cut(self) -> None:
        """End the text and its message as incomplete."""
        self._texts.status = "incomplete"
        with suppress(StreamTooLarge):  # citations beyond the limit are lost
            self._cite()
        self._close()

    def _cite(self) -> None:
        length = len(self._writer.text) if self._citations else 0
        while self._cited < len(self._citations):
            self._writer.annotate(citation_of(self._citations[self._cited], length))
            self._cited += 1

    def _close(self) -> None:
        self._writer.done()
        self._texts.closed()
