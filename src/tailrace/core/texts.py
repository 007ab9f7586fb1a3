"""Texts that are being written: in pieces, repeated whole at their end, never too large for that.

`tailrace.core.writers` puts them into items.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import msgspec

from tailrace.core import events as ev
from tailrace.core.citations import CitationScanner
from tailrace.core.errors import InvalidValue
from tailrace.core.items import Annotation, Item, RawAnnotation, Refusal, Text
from tailrace.core.room import Room, json_bytes


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
        """An id for a call: `wanted`, or another id that is new in the conversation."""
        ...

    def knows(self, number: int) -> bool:
        """Whether the task's pool issued this reference number."""
        ...


class Growing:
    """A text that comes in pieces."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._beside = 0
        self._room = Room()

    @property
    def text(self) -> str:
        """What came so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]  # so that looking twice costs once
        return self._pieces[0] if self._pieces else ""

    @property
    def length(self) -> int:
        """Code points that came so far."""
        return self._length

    def _grow(self, piece: str) -> None:
        """Take a piece, unless the text could then not be repeated in one event."""
        if not isinstance(piece, str):
            raise InvalidValue(
                f"The text is a {type(piece).__name__}. Pass a string; make one of JSON with"
                " json.dumps(value)."
            )
        length = self._length + len(piece)
        self._room.check(length, self._beside, lambda: self.text + piece)
        self._length = length
        self._pieces.append(piece)

    def _put_beside(self, annotation: Annotation) -> None:
        """Make room for an annotation, unless text and annotations then outgrow one event."""
        beside = self._beside + json_bytes(annotation)
        self._room.check(self._length, beside, lambda: self.text)
        self._beside = beside

    def _missing(self, whole: str) -> str | None:
        """What a whole text has beyond what came; None if it is another text."""
        if len(whole) < self.length:
            return None  # without joining: a hostile stream may repeat this for every piece
        return whole[self.length :] if whole.startswith(self.text) else None


class StreamedText(Growing, ABC):
    """A text of which a stream may bring pieces, the whole, or both."""

    is_open = True

    @abstractmethod
    def add(self, piece: str) -> None:
        """More of it."""

    def fill(self, text: str) -> bool:
        """Add what is missing of the whole text; False if it is not the one that came."""
        rest = self._missing(text)
        if rest and self.is_open:
            self.add(rest)
        return rest == "" or (rest is not None and self.is_open)


class PartWriter(StreamedText):
    """A text that is being written: a part of a reasoning, or a refusal.

    `fill(text)` takes the whole text where a stream repeats it. What was not streamed yet is
    streamed then; what was shown cannot be taken back, so a text that contradicts it is dropped.
    """

    def __init__(self, sink: Sink, place: dict[str, Any], kind: Any) -> None:
        super().__init__()
        self._sink = sink
        self._place = place
        self._added, self._delta, self._done = kind
        self._sink.emit(self._added(**place, item=self._whole("")))

    def _whole(self, text: str) -> Any:
        return Refusal(refusal=text) if self._done is ev.RefusalDone else Text(text=text)

    def add(self, piece: str) -> None:
        """More of it."""
        if piece:
            self._grow(piece)
            self._sink.emit(self._delta(**self._place, delta=piece))

    def done(self, text: str | None = None) -> None:
        """The text is whole; a second time does nothing."""
        if self.is_open:
            if text is not None:
                self.fill(text)
            self.is_open = False
            self._sink.emit(self._done(**self._place, item=self._whole(self.text)))


class TextWriter(StreamedText):
    """A text block that is being written; its `[^n]` become citations on the way."""

    def __init__(self, sink: Sink, place: dict[str, Any]) -> None:
        super().__init__()
        self._sink = sink
        self._place = place
        self._scanner = CitationScanner(sink.knows)
        self._annotations: list[Annotation] = []
        sink.emit(ev.TextAdded(**place, item=Text(text="")))

    @property
    def block(self) -> Text:
        """The block as far as it came."""
        return Text(text=self.text, annotations=list(self._annotations))

    def add(self, piece: str) -> None:
        """More of it."""
        if not piece:
            return
        self._grow(piece)
        scanned = self._scanner.feed(piece)
        if scanned.text:
            self._sink.emit(ev.TextDelta(**self._place, delta=scanned.text))
        for annotation in scanned.annotations:
            self._annotate(annotation)

    def _show_all(self) -> None:
        held_back = self._scanner.finish().text
        if held_back:
            self._sink.emit(ev.TextDelta(**self._place, delta=held_back))

    def fits(self, annotation: Annotation) -> bool:
        """Whether a citation has no range, or one that lies in the text so far."""
        if isinstance(annotation, RawAnnotation):
            return True
        start, end = annotation.start_index, annotation.end_index
        if start is None or end is None:
            return start is end
        return 0 <= start < end <= self.length

    def annotate(self, annotation: Annotation) -> None:
        """A citation of the provider's. One that does not fit the text is kept raw."""
        if not self.fits(annotation):
            annotation = RawAnnotation(raw=msgspec.to_builtins(annotation))
        elif (getattr(annotation, "end_index", None) or 0) > self._scanner.offset:
            self._show_all()
        self._annotate(annotation)

    def _annotate(self, annotation: Annotation) -> None:
        self._put_beside(annotation)
        at = len(self._annotations)
        event = ev.AnnotationAdded(**self._place, annotation_index=at, annotation=annotation)
        self._sink.emit(event)
        self._annotations.append(annotation)

    def done(self, text: str | None = None) -> None:
        """The text is whole; a second time does nothing."""
        if self.is_open:
            if text is not None:
                self.fill(text)
            self._show_all()
            self.is_open = False
            self._sink.emit(ev.TextDone(**self._place, item=self.block))
