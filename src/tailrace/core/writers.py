"""Writing the items of a task piece by piece, in the order that the protocol demands.

An item is opened, its parts are opened, filled and closed, and the item is closed with a payload
that repeats them. These writers know that order, so an agent or a provider's stream only says what
comes. They are pure: a `Sink` takes the events and hands out ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from tailrace.core import events as ev
from tailrace.core.citations import CitationScanner
from tailrace.core.items import (
    Annotation,
    Block,
    Data,
    ErrorInfo,
    Executor,
    File,
    Image,
    ImageUrl,
    Item,
    Message,
    RawAnnotation,
    Reasoning,
    Refusal,
    Status,
    Text,
    ToolCall,
    ToolResult,
)


class Sink(Protocol):
    """One task of a run that is being written."""

    @property
    def task_id(self) -> str:
        """The task."""
        ...

    def emit(self, event: ev.Event, private: ev.Private | None = None) -> None:
        """Record the task's next event; `IllegalEvent` if the protocol forbids it here."""
        ...

    def add(self, item: Item, private: ev.Private | None = None) -> int:
        """Open an item; its `output_index`."""
        ...

    def done(self, index: int, item: Item, private: ev.Private | None = None) -> None:
        """Close an item."""
        ...

    def new_id(self, prefix: str) -> str:
        """An id that no other item of the run has."""
        ...

    def free_call_id(self, wanted: str) -> str:
        """`wanted`, or another one where a call of the conversation already has it."""
        ...

    def knows(self, number: int) -> bool:
        """Whether the task's pool issued this reference number."""
        ...


class PartWriter:
    """A text that is being written: a part of a reasoning, or a refusal.

    `done(text)` takes the whole text where a stream repeats it. What was not streamed yet is
    streamed then; what was shown cannot be taken back, so a text that contradicts it is dropped.
    """

    def __init__(self, sink: Sink, place: dict[str, Any], kind: Any) -> None:
        self._sink = sink
        self._place = place
        self._added, self._delta, self._done = kind
        self._pieces: list[str] = []
        self.is_open = True
        self._sink.emit(self._added(**place, item=self._whole("")))

    def _whole(self, text: str) -> Any:
        return Refusal(refusal=text) if self._done is ev.RefusalDone else Text(text=text)

    @property
    def text(self) -> str:
        """What was streamed."""
        return "".join(self._pieces)

    def add(self, piece: str) -> None:
        """More of it."""
        if piece:
            self._pieces.append(piece)
            self._sink.emit(self._delta(**self._place, delta=piece))

    def done(self, text: str | None = None) -> None:
        """The text is whole; a second time does nothing."""
        if self.is_open:
            self.add(_missing(self.text, text))
            self.is_open = False
            self._sink.emit(self._done(**self._place, item=self._whole(self.text)))


_SUMMARY = (ev.SummaryItemAdded, ev.SummaryTextDelta, ev.SummaryItemDone)
_REASONING_TEXT = (ev.ReasoningTextAdded, ev.ReasoningTextDelta, ev.ReasoningTextDone)
_REFUSAL = (ev.RefusalAdded, ev.RefusalDelta, ev.RefusalDone)


def _missing(streamed: str, whole: str | None) -> str:
    """What a whole text has beyond what was streamed of it."""
    if whole is None or not whole.startswith(streamed):
        return ""
    return whole[len(streamed) :]


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
        for part in (*self.summaries, *self.texts):
            part.done()
        raw = [Text(text=part.text) for part in self.texts]
        item = Reasoning(
            id=self.id,
            summary=[Text(text=part.text) for part in self.summaries],
            reasoning_text=raw or None,
            status=status,
        )
        self._sink.done(self.index, item, private)


class TextWriter:
    """A text block that is being written; its `[^n]` become citations on the way."""

    def __init__(self, sink: Sink, place: dict[str, Any]) -> None:
        self._sink = sink
        self._place = place
        self._scanner = CitationScanner(sink.knows)
        self._pieces: list[str] = []
        self._length = 0
        self._annotations: list[Annotation] = []
        self.is_open = True
        sink.emit(ev.TextAdded(**place, item=Text(text="")))

    @property
    def text(self) -> str:
        """What came, an unfinished marker included."""
        return "".join(self._pieces) + self._scanner.pending

    @property
    def block(self) -> Text:
        """The block as far as it was shown."""
        return Text(text="".join(self._pieces), annotations=list(self._annotations))

    def add(self, piece: str) -> None:
        """More of it."""
        self._show(self._scanner.feed(piece))

    def annotate(self, annotation: Annotation) -> None:
        """A citation of the provider's. One whose range is not in the text is kept raw."""
        if isinstance(annotation, RawAnnotation):
            self._annotate(annotation)
            return
        start, end = annotation.start_index, annotation.end_index
        if start is not None and end is not None and end > self._length:
            self._show(self._scanner.finish())  # it may reach into what is held back
        if (start is None) != (end is None) or (
            start is not None and end is not None and not 0 <= start < end <= self._length
        ):
            annotation = RawAnnotation(raw=msgspec.to_builtins(annotation))
        self._annotate(annotation)

    def _annotate(self, annotation: Annotation) -> None:
        at = len(self._annotations)
        self._annotations.append(annotation)
        event = ev.AnnotationAdded(**self._place, annotation_index=at, annotation=annotation)
        self._sink.emit(event)

    def _show(self, scanned: Any) -> None:
        if scanned.text:
            self._pieces.append(scanned.text)
            self._length += len(scanned.text)
            self._sink.emit(ev.TextDelta(**self._place, delta=scanned.text))
        for annotation in scanned.annotations:
            self._annotate(annotation)

    def done(self, text: str | None = None) -> None:
        """The text is whole, as in `PartWriter.done`."""
        if self.is_open:
            rest = _missing(self.text, text)
            if rest:
                self.add(rest)
            self._show(self._scanner.finish())
            self.is_open = False
            self._sink.emit(ev.TextDone(**self._place, item=self.block))


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

    def finish(self, status: Status = "completed", private: ev.Private | None = None) -> None:
        """Close the message; a second time does nothing."""
        if self.is_open:
            self.is_open = False
            self.close_blocks()
            item = Message(
                id=self.id,
                role="assistant",
                block_list=self.blocks,
                phase=self._phase,
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
            item = ToolResult(id=self.id, call_id=self.call_id, block_list=self.blocks)
            self._sink.done(self.index, item, private)

    def fail(self, error: ErrorInfo, private: ev.Private | None = None) -> None:
        """The tool did not return; what it had shown stays."""
        if self.is_open:
            self.is_open = False
            self.close_blocks()
            item = ToolResult(
                id=self.id,
                call_id=self.call_id,
                block_list=self.blocks or None,
                status="failed",
                error=error,
            )
            self._sink.done(self.index, item, private)


class ArgumentsWriter:
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
        self._sink = sink
        self.call_id = sink.free_call_id(call_id) if call_id else sink.new_id("call")
        self.id = sink.new_id("fc")
        self._facts: dict[str, Any] = {
            "id": self.id,
            "call_id": self.call_id,
            "name": name,
            "kind": kind,
            "executor": executor,
            "server_label": server_label,
        }
        self.index = sink.add(ToolCall(**self._facts), private)
        self._pieces: list[str] = []
        self._whole = False
        self.is_open = True

    @property
    def place(self) -> dict[str, Any]:
        """Which item events about the call name."""
        return {"task_id": self._sink.task_id, "item_id": self.id, "output_index": self.index}

    @property
    def text(self) -> str:
        """The arguments' JSON so far."""
        return "".join(self._pieces)

    def arguments(self, piece: str) -> None:
        """More of the arguments' JSON, cut anywhere."""
        if piece:
            self._pieces.append(piece)
            self._sink.emit(ev.ArgumentsDelta(**self.place, delta=piece))

    def arguments_done(self, text: str | None = None) -> None:
        """The arguments are whole, as in `PartWriter.done`."""
        if not self._whole:
            self.arguments(_missing(self.text, text))
            self._whole = True
            self._sink.emit(ev.ArgumentsDone(**self.place, arguments=self.text))

    def finish(self, status: Status = "completed", private: ev.Private | None = None) -> None:
        """Close the call; only a completed one may be carried out. A second time does nothing."""
        if not self.is_open:
            return
        self.is_open = False
        if status == "completed":
            self.arguments_done()
        item = ToolCall(**self._facts, arguments=self.text, status=status)
        self._sink.done(self.index, item, private)
