"""Writers of items: an agent or an ingest says what comes, they emit the events in the legal order.

An item is opened, its parts are opened, filled and closed, and the item is closed with a payload
that repeats them. Writers are pure: a `Sink` takes the events and hands out ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from tailrace.core import events as ev
from tailrace.core.codec import MAX_ID_LENGTH
from tailrace.core.errors import InvalidValue
from tailrace.core.event_sink import Sink
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
    UrlCitation,
)
from tailrace.core.text_writers import GrowingText, PartWriter, TextWriter

_HEAVY = 64 * 1024
"""From this size on, an item's `done` leaves out the content of its parts."""

_SUMMARY = (ev.SummaryItemAdded, ev.SummaryTextDelta, ev.SummaryItemDone)
_REASONING_TEXT = (ev.ReasoningTextAdded, ev.ReasoningTextDelta, ev.ReasoningTextDone)
_REFUSAL = (ev.RefusalAdded, ev.RefusalDelta, ev.RefusalDone)


class ReasoningWriter:
    """Writes a reasoning item: parts of a summary, and parts of the raw text."""

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
        """Open another part of the summary."""
        place = {**self._place, "summary_index": len(self.summaries)}
        self.summaries.append(PartWriter(self._sink, place, _SUMMARY))
        return self.summaries[-1]

    def text_part(self) -> PartWriter:
        """Open another part of the raw reasoning."""
        place = {**self._place, "text_index": len(self.texts)}
        self.texts.append(PartWriter(self._sink, place, _REASONING_TEXT))
        return self.texts[-1]

    def summary(self, piece: str) -> None:
        """Append to the open part of the summary, or open a part."""
        if not self.summaries or not self.summaries[-1].is_open:
            self.summary_part()
        self.summaries[-1].add(piece)

    def next_part(self) -> None:
        """Close the part of the summary; the next piece opens another."""
        if self.summaries:
            self.summaries[-1].done()

    def finish(self, status: Status = "completed", private: ev.Private | None = None) -> None:
        """Close the item. A second call does nothing."""
        if not self.is_open:
            return
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
        self.is_open = False


class ImageWriter:
    """Writes an image block, with partial images before the final image."""

    def __init__(self, sink: Sink, place: dict[str, Any], ident: int | None = None) -> None:
        self._sink = sink
        self._place = place
        self._id = ident
        self._count = 0
        self.block = Image(image_url=ImageUrl(url=""), id=ident)
        self.is_open = True
        sink.emit(ev.ImageAdded(**place, item=self.block))

    def partial(self, url: str) -> None:
        """Replace the image by a better image."""
        block = Image(image_url=ImageUrl(url=url), id=self._id)
        place = {**self._place, "partial_image_index": self._count}
        self._sink.emit(ev.ImageDelta(**place, item=block))
        self.block = block
        self._count += 1

    def done(self, url: str | None = None) -> None:
        """Close with the final image, or with the last image. A second call does nothing."""
        if self.is_open:
            block = self.block
            if url is not None:
                block = Image(image_url=ImageUrl(url=url), id=self._id)
            self._sink.emit(ev.ImageDone(**self._place, item=block))
            self.block = block
            self.is_open = False


class WholeBlock:
    """A block that did not stream."""

    is_open = False

    def __init__(self, block: Block) -> None:
        self.block = block


class BlocksWriter:
    """Writes the blocks of a message or a result, streamed or whole."""

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
        """Open a text block."""
        writer = TextWriter(self._sink, self._place)
        self._blocks.append(writer)
        return writer

    def refusal_block(self) -> PartWriter:
        """Open a refusal."""
        writer = PartWriter(self._sink, self._place, _REFUSAL)
        self._blocks.append(writer)
        return writer

    def image_block(self, ident: int | None = None) -> ImageWriter:
        """Open an image block."""
        writer = ImageWriter(self._sink, self._place, ident)
        self._blocks.append(writer)
        return writer

    def whole(self, block: Block, partial_images: Iterable[str] = ()) -> None:
        """Write a whole block; an image may have partial images."""
        if isinstance(block, Image):
            image = self.image_block(block.id)
            for url in partial_images:
                image.partial(url)
            image.done(block.image_url.url)
            return
        self._sink.emit(_WHOLE[type(block)](**self._place, item=block))
        self._blocks.append(WholeBlock(block))

    def _so_far(self) -> list[Block]:
        """The blocks so far."""
        return [
            Refusal(refusal=block.text) if isinstance(block, PartWriter) else block.block
            for block in self._blocks
        ]

    @property
    def _final_blocks(self) -> list[Block] | None:
        """The blocks for the item's `done`; None if they are too large to repeat."""
        blocks = self._so_far()
        return blocks if len(msgspec.json.encode(blocks)) < _HEAVY else None

    def _close_blocks(self) -> None:
        """Close the open blocks."""
        for block in self._blocks:
            if block.is_open:
                block.done()


_WHOLE: dict[type[Any], Any] = {
    Text: ev.TextDone,
    Refusal: ev.RefusalDone,
    Data: ev.DataDone,
    File: ev.FileDone,
}


class MessageWriter(BlocksWriter):
    """Writes a message: text with citations, refusals, images, and whole blocks."""

    def __init__(
        self, sink: Sink, phase: str | None = None, private: ev.Private | None = None
    ) -> None:
        ident = sink.new_id("msg")
        self._phase = phase
        item = Message(id=ident, role="assistant", block_list=[], phase=phase)
        super().__init__(sink, ident, sink.add(item, private))

    @property
    def _open_text(self) -> TextWriter | None:
        """The text that is being written, if the last block is a text."""
        last = self._blocks[-1] if self._blocks else None
        return last if isinstance(last, TextWriter) and last.is_open else None

    def text(self, piece: str) -> None:
        """Append to the open text, or open a text."""
        last = self._blocks[-1] if self._blocks else None
        if last.__class__ is not TextWriter or not last.is_open:  # `_open_text`, without its call
            last = self.text_block()
        last.add(piece)

    def cite(self, url: str, title: str = "", *, text: str | None = None) -> None:
        """Cite a web page: for `text`, which is added, or for the text since the last citation."""
        block, start = self._open_text, 0
        if block is not None:
            start = block.cited_to if text is None else block.length
        if text is not None:
            self.text(text)
            block = self._open_text
        if block is None or start >= block.length:
            raise InvalidValue(f"No text to cite {url!r} for: write it first, or pass `text=`.")
        block.annotate(UrlCitation(url=url, title=title, start_index=start, end_index=block.length))

    def next_block(self) -> None:
        """Close the text; the next piece opens another block."""
        self._close_blocks()

    def image(self, url: str, partial_images: Iterable[str] = ()) -> None:
        """Write an image, with partial images before it."""
        self.next_block()
        self.whole(Image(image_url=ImageUrl(url=url)), partial_images)

    def finish(
        self,
        status: Status = "completed",
        private: ev.Private | None = None,
        phase: str | None = None,
    ) -> None:
        """Close the message. A second call does nothing. `phase` is for a phase known late."""
        if self.is_open:
            self._close_blocks()
            item = Message(
                id=self.id,
                role="assistant",
                block_list=self._final_blocks,
                phase=phase or self._phase,
                status=status,
            )
            self._sink.done(self.index, item, private)
            self.is_open = False


class ResultWriter(BlocksWriter):
    """Writes the result of a call: blocks for the client; the private part is for the model."""

    def __init__(self, sink: Sink, call_id: str, private: ev.Private | None = None) -> None:
        ident = sink.new_id("fco")
        self.call_id = call_id
        item = ToolResult(id=ident, call_id=call_id, block_list=[])
        super().__init__(sink, ident, sink.add(item, private))

    @property
    def blocks(self) -> list[Block]:
        """The blocks so far."""
        return self._so_far()

    def finish(self, private: ev.Private | None = None) -> None:
        """Close the result. A second call does nothing."""
        if self.is_open:
            self._close_blocks()
            item = ToolResult(id=self.id, call_id=self.call_id, block_list=self._final_blocks)
            self._sink.done(self.index, item, private)
            self.is_open = False

    def fail(self, error: ErrorInfo, private: ev.Private | None = None) -> None:
        """Close the result as failed; its blocks stay."""
        if self.is_open:
            self._close_blocks()
            item = ToolResult(
                id=self.id,
                call_id=self.call_id,
                block_list=self._final_blocks or None,
                status="failed",
                error=error,
            )
            self._sink.done(self.index, item, private)
            self.is_open = False


class ArgumentsWriter(GrowingText):
    """Writes a tool call while its arguments stream."""

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
        self.call_id = self._call_id(call_id)
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
        self._delta = ev.ArgumentsDelta(**self._place, delta="")
        self._whole = False
        self.is_open = True

    def _call_id(self, wanted: str | None) -> str:
        """The id of the call, for a provider's id."""
        if not wanted or len(wanted) > MAX_ID_LENGTH:
            return self._sink.new_id("call")
        return self._sink.free_call_id(wanted)

    @property
    def _place(self) -> dict[str, Any]:
        """The fields by which events name the call."""
        return {"task_id": self._sink.task_id, "item_id": self.id, "output_index": self.index}

    def arguments(self, piece: str) -> None:
        """Append to the arguments' JSON."""
        if piece:
            piece = self._checked(piece)
            self._sink.emit(replace(self._delta, delta=piece))
            self._take(piece)

    def arguments_done(self, text: str | None = None) -> bool:
        """Close the arguments; False, without effect, if others were emitted."""
        rest = "" if text is None else self._missing(text)
        if rest is None or (rest and self._whole):
            return False
        if not self._whole:
            self.arguments(rest)
            self._sink.emit(ev.ArgumentsDone(**self._place, arguments=self.text))
            self._whole = True
        return True

    def finish(self, status: Status = "completed", private: ev.Private | None = None) -> None:
        """Close the call. Only a completed call may run. A second call does nothing."""
        if not self.is_open:
            return
        if status == "completed":
            self.arguments_done()
        arguments = self.text if self.length < _HEAVY else None
        item = ToolCall(**self._facts, arguments=arguments, status=status)
        self._sink.done(self.index, item, private)
        self.is_open = False
