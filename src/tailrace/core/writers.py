"""Writing the items of a task piece by piece, in the order that the protocol demands.

An item is opened, its parts are opened, filled and closed, and the item is closed with a payload
that repeats them. These writers know that order, so an agent or a provider's stream only says what
comes. They are pure: a `Sink` takes the events and hands out ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tailrace.core import events as ev
from tailrace.core.codec import MAX_ID_LENGTH
from tailrace.core.items import (
    Block,
    Data,
    ErrorInfo,
    Executor,
    File,
    Image,
    ImageUrl,
    Message,
    Reasoning,
    Refusal,
    Status,
    Text,
    ToolCall,
    ToolResult,
)
from tailrace.core.texts import Growing, PartWriter, Sink, TextWriter

__all__ = [
    "ArgumentsWriter",
    "BlocksWriter",
    "ImageWriter",
    "MessageWriter",
    "PartWriter",
    "ReasoningWriter",
    "ResultWriter",
    "Sink",
    "TextWriter",
]

_HEAVY = 64 * 1024
"""From here on an item's `done` leaves out what its parts have said already."""


_SUMMARY = (ev.SummaryItemAdded, ev.SummaryTextDelta, ev.SummaryItemDone)
_REASONING_TEXT = (ev.ReasoningTextAdded, ev.ReasoningTextDelta, ev.ReasoningTextDone)
_REFUSAL = (ev.RefusalAdded, ev.RefusalDelta, ev.RefusalDone)


class ReasoningWriter:
    """A reasoning item: parts of a summary, parts of the raw text, each in any number of pieces."""

    def __init__(self, sink: Sink, private: ev.Private | None = None) -> None:
        self._sink = sink
        self.id = sink.new_id("rs")
        self.index = sink.add(Reasoning(id=self.id, summary=[]), private)
        self.is_open = True
        self.summaries: list[PartWriter] = []
        self.texts: list[PartWriter] = []

    @property
    def _place(self) -> dict[str, Any]:
        return {"task_id": self._sink.task_id, "item_id": self.id, "output_index": self.index}

    def summary_part(self) -> PartWriter:
        """Another part of the summary."""
        place = {**self._place, "summary_index": len(self.summaries)}
        self.summaries.append(PartWriter(self._sink, place, _SUMMARY))
        return self.summaries[-1]

    def text_part(self) -> PartWriter:
        """Another part of the raw reasoning."""
        place = {**self._place, "text_index": len(self.texts)}
        self.texts.append(PartWriter(self._sink, place, _REASONING_TEXT))
        return self.texts[-1]

    def summary(self, piece: str) -> None:
        """More of the summary part that is being written."""
        if not self.summaries or not self.summaries[-1].is_open:
            self.summary_part()
        self.summaries[-1].add(piece)

    def next_part(self) -> None:
        """End this part of the summary; the next piece begins another."""
        if self.summaries:
            self.summaries[-1].done()

    def finish(self, status: Status = "completed", private: ev.Private | None = None) -> None:
        """Close the item; a second time does nothing."""
        if not self.is_open:
            return
        self.is_open = False
        parts = (*self.summaries, *self.texts)
        for part in parts:
            part.done()
        item = Reasoning(id=self.id, status=status)
        if sum(part.length for part in parts) < _HEAVY:
            raw = [Text(text=part.text) for part in self.texts]
            item = Reasoning(
                id=self.id,
                summary=[Text(text=part.text) for part in self.summaries],
                reasoning_text=raw or None,
                status=status,
            )
        self._sink.done(self.index, item, private)


class ImageWriter:
    """An image block that sharpens on the way."""

    def __init__(self, sink: Sink, place: dict[str, Any], ident: int | None = None) -> None:
        self._sink = sink
        self._place = place
        self._id = ident
        self._count = 0
        self.block = Image(image_url=ImageUrl(url=""), id=ident)
        self.is_open = True
        sink.emit(ev.ImageAdded(**place, item=self.block))

    def partial(self, url: str) -> None:
        """A better image, whole."""
        self.block = Image(image_url=ImageUrl(url=url), id=self._id)
        place = {**self._place, "partial_image_index": self._count}
        self._sink.emit(ev.ImageDelta(**place, item=self.block))
        self._count += 1

    def done(self, url: str | None = None) -> None:
        """The final image, or the last one that came; a second time does nothing."""
        if self.is_open:
            self.is_open = False
            if url is not None:
                self.block = Image(image_url=ImageUrl(url=url), id=self._id)
            self._sink.emit(ev.ImageDone(**self._place, item=self.block))


class _Whole:
    """A block that came at once."""

    is_open = False

    def __init__(self, block: Block) -> None:
        self.block = block


class BlocksWriter:
    """The blocks of a message or a result: streamed in any order, or whole."""

    def __init__(self, sink: Sink, item_id: str, index: int) -> None:
        self._sink = sink
        self.id = item_id
        self.index = index
        self.is_open = True
        self._blocks: list[Any] = []

    @property
    def _place(self) -> dict[str, Any]:
        return {
            "task_id": self._sink.task_id,
            "item_id": self.id,
            "output_index": self.index,
            "block_index": len(self._blocks),
        }

    def text_block(self) -> TextWriter:
        """A text that streams."""
        writer = TextWriter(self._sink, self._place)
        self._blocks.append(writer)
        return writer

    def refusal_block(self) -> PartWriter:
        """A refusal that streams."""
        writer = PartWriter(self._sink, self._place, _REFUSAL)
        self._blocks.append(writer)
        return writer

    def image_block(self, ident: int | None = None) -> ImageWriter:
        """An image that sharpens."""
        writer = ImageWriter(self._sink, self._place, ident)
        self._blocks.append(writer)
        return writer

    def whole(self, block: Block, partial_images: Iterable[str] = ()) -> None:
        """A block that comes at once; an image may sharpen on the way."""
        if isinstance(block, Image):
            image = self.image_block(block.id)
            for url in partial_images:
                image.partial(url)
            image.done(block.image_url.url)
            return
        self._sink.emit(_WHOLE[type(block)](**self._place, item=block))
        self._blocks.append(_Whole(block))

    @property
    def blocks(self) -> list[Block]:
        """The blocks as far as they were shown."""
        return [
            Refusal(refusal=one.text) if isinstance(one, PartWriter) else one.block
            for one in self._blocks
        ]

    @property
    def _said(self) -> list[Block] | None:
        """The blocks for the item's `done`; heavy ones are not said a second time."""
        blocks = self.blocks
        return blocks if len(msgspec.json.encode(blocks)) < _HEAVY else None

    def close_blocks(self) -> None:
        """End whatever block is open."""
        for one in self._blocks:
            if one.is_open:
                one.done()


_WHOLE: dict[type[Any], Any] = {
    Text: ev.TextDone,
    Refusal: ev.RefusalDone,
    Data: ev.DataDone,
    File: ev.FileDone,
}


class MessageWriter(BlocksWriter):
    """A message: streamed text with citations, refusals, images, and whole blocks."""

    def __init__(
        self, sink: Sink, phase: str | None = None, private: ev.Private | None = None
    ) -> None:
        ident = sink.new_id("msg")
        self._phase = phase
        item = Message(id=ident, role="assistant", block_list=[], phase=phase)
        super().__init__(sink, ident, sink.add(item, private))

    def text(self, piece: str) -> None:
        """More of the text that is being written."""
        last = self._blocks[-1] if self._blocks else None
        if not isinstance(last, TextWriter) or not last.is_open:
            last = self.text_block()
        last.add(piece)

    def next_block(self) -> None:
        """End this text; the next piece begins another block."""
        self.close_blocks()

    def image(self, url: str, partial_images: Iterable[str] = ()) -> None:
        """A picture, at once or through ever better ones."""
        self.next_block()
        self.whole(Image(image_url=ImageUrl(url=url)), partial_images)

    def finish(
        self,
        status: Status = "completed",
        private: ev.Private | None = None,
        phase: str | None = None,
    ) -> None:
        """Close the message; a second time does nothing. `phase`: if it is known only now."""
        if self.is_open:
            self.is_open = False
            self.close_blocks()
            item = Message(
                id=self.id,
                role="assistant",
                block_list=self._said,
                phase=phase or self._phase,
                status=status,
            )
            self._sink.done(self.index, item, private)


class ResultWriter(BlocksWriter):
    """What a call gave: blocks for the client, and privately what the model reads."""

    def __init__(self, sink: Sink, call_id: str, private: ev.Private | None = None) -> None:
        ident = sink.new_id("fco")
        self.call_id = call_id
        item = ToolResult(id=ident, call_id=call_id, block_list=[])
        super().__init__(sink, ident, sink.add(item, private))

    def finish(self, private: ev.Private | None = None) -> None:
        """The tool returned; a second time does nothing."""
        if self.is_open:
            self.is_open = False
            self.close_blocks()
            item = ToolResult(id=self.id, call_id=self.call_id, block_list=self._said)
            self._sink.done(self.index, item, private)

    def fail(self, error: ErrorInfo, private: ev.Private | None = None) -> None:
        """The tool did not return; what it had shown stays."""
        if self.is_open:
            self.is_open = False
            self.close_blocks()
            item = ToolResult(
                id=self.id,
                call_id=self.call_id,
                block_list=self._said or None,
                status="failed",
                error=error,
            )
            self._sink.done(self.index, item, private)


class ArgumentsWriter(Growing):
    """A tool call while its arguments stream."""

    def __init__(
        self,
        sink: Sink,
        name: str,
        *,
        call_id: str | None = None,
        kind: str = "function",
        executor: Executor = "server",
        server_label: str | None = None,
        private: ev.Private | None = None,
    ) -> None:
        super().__init__()
        self._sink = sink
        self.name = name
        if not call_id or len(call_id) > MAX_ID_LENGTH:
            self.call_id = sink.new_id("call")
        else:
            self.call_id = sink.free_call_id(call_id)
        self.id = sink.new_id("fc")
        self._facts: dict[str, Any] = {
            "id": self.id,
            "call_id": self.call_id,
            "name": name,
            "kind": kind,
            "executor": executor,
            "server_label": server_label,
        }
        self.index = sink.add(ToolCall(**self._facts, arguments=""), private)
        self._whole = False
        self.is_open = True

    @property
    def place(self) -> dict[str, Any]:
        """Which item events about the call name."""
        return {"task_id": self._sink.task_id, "item_id": self.id, "output_index": self.index}

    def arguments(self, piece: str) -> None:
        """More of the arguments' JSON, cut anywhere."""
        if piece:
            self._grow(piece)
            self._sink.emit(ev.ArgumentsDelta(**self.place, delta=piece))

    def arguments_done(self, text: str | None = None) -> bool:
        """The arguments are whole; False, and nothing done, if other ones were streamed."""
        rest = "" if text is None else self._missing(text)
        if rest is None or (rest and self._whole):
            return False
        if not self._whole:
            self.arguments(rest)
            self._whole = True
            self._sink.emit(ev.ArgumentsDone(**self.place, arguments=self.text))
        return True

    def finish(self, status: Status = "completed", private: ev.Private | None = None) -> None:
        """Close the call; only a completed one may be carried out. A second time does nothing."""
        if not self.is_open:
            return
        self.is_open = False
        if status == "completed":
            self.arguments_done()
        said = self.text if self.length < _HEAVY else None
        item = ToolCall(**self._facts, arguments=said, status=status)
        self._sink.done(self.index, item, private)
