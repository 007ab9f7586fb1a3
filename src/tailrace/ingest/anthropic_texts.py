"""The text blocks of Anthropic's messages, and their citations."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tailrace.core import events as ev
from tailrace.core.errors import StreamTooLarge
from tailrace.core.items import Status
from tailrace.core.writers import MessageWriter, Sink
from tailrace.ingest.anthropic_values import Json, citation_of, more_than


class Texts:
    """The text blocks that follow each other directly: one message.

    An answer with citations comes as dozens of them. One message shows them as one answer, and its
    blocks still give the content array back, one for one.
    """

    def __init__(self, sink: Sink, private: Callable[..., ev.Private]) -> None:
        self._private = private
        self.writer = MessageWriter(sink)
        self._blocks: list[TextBlock] = []
        self._open = 0
        self._left = False
        self.status: Status = "completed"

    def open(self, block: Json) -> TextBlock:
        """Another text joins."""
        self._open += 1
        self._blocks.append(TextBlock(self, block))
        return self._blocks[-1]

    def closed(self) -> None:
        """One of the texts is over."""
        self._open -= 1
        self._finish()

    def leave(self) -> None:
        """No text follows directly any more."""
        self._left = True
        self._finish()

    def _finish(self) -> None:
        # Blocks do not overlap in streams that were seen. If they do, the last one ends it.
        if self._left and not self._open:
            raw = [block.raw() for block in self._blocks]
            says_more = any(more_than(block, "text") for block in raw)
            private = self._private(raw=raw if says_more else None)
            self.writer.finish(self.status, private)


class TextBlock:
    """A text, and the citations that all of it rests on.

    Anthropic cites by block: a citation has no range, and may come before the text does. So
    citations wait for the end of their block, and cover it.
    """

    is_call = False

    def __init__(self, texts: Texts, block: Json) -> None:
        self._texts = texts
        self._start = block
        self._writer = texts.writer.text_block()
        cited = block.get("citations")
        self._citations: list[Any] = list(cited) if isinstance(cited, list) else []
        self._cited = 0
        text = block.get("text")
        if isinstance(text, str):
            self._writer.add(text)

    def delta(self, delta: Json) -> bool:
        """More of the text, or a citation."""
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
        """The block as Anthropic's SDKs would accumulate it."""
        raw = {**self._start, "type": "text", "text": self._writer.text}
        if self._citations:
            raw["citations"] = self._citations
        elif not raw.get("citations"):
            raw.pop("citations", None)  # null or an empty list says nothing
        return raw

    def stop(self) -> None:
        """The text is whole, so its citations have a range."""
        self._cite()
        self._close()

    def cut(self) -> None:
        """The text ends here, and with it whether its message can be whole."""
        self._texts.status = "incomplete"
        with suppress(StreamTooLarge):  # closing must succeed: citations beyond the limit are lost
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
