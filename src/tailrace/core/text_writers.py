"""Writers of texts: a text grows in pieces, within its limit; its markers become citations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import msgspec
from msgspec.structs import replace

from tailrace.core import codec
from tailrace.core import events as ev
from tailrace.core.citations import CitationScanner
from tailrace.core.errors import InvalidValue
from tailrace.core.event_sink import Sink
from tailrace.core.items import (
    Annotation,
    RawAnnotation,
    Refusal,
    Text,
)
from tailrace.core.text_limits import WIDEST, PartBound, json_bytes


class GrowingText:
    """A text that is written in pieces."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._beside = 0
        self._room = PartBound()

    @property
    def text(self) -> str:
        """The text so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]  # a second read is cheap
        return self._pieces[0] if self._pieces else ""

    @property
    def length(self) -> int:
        """Code points so far."""
        return self._length

    def _checked(self, piece: str) -> str:
        """The piece as a plain string. Refuses a piece after which no event could repeat the text.

        Frameworks yield subclasses of `str`, such as LangChain's `chunk.text`.
        """
        if piece.__class__ is not str:
            if not isinstance(piece, str):
                raise InvalidValue(
                    f"The text is of type {type(piece).__name__}. Pass a string; for JSON use"
                    " json.dumps(value)."
                )
            piece = str.__str__(piece)
        # As `PartBound.check` does first, and without its closure: nearly every delta ends here.
        if (self._length + len(piece)) * WIDEST + self._beside > codec.MAX_OPEN_BYTES:
            self._check_room(piece)
        return piece

    def _check_room(self, piece: str) -> None:
        self._room.check(self._length + len(piece), self._beside, lambda: self.text + piece)

    def _take(self, piece: str) -> None:
        """Append a piece whose event was emitted: a refused event leaves the text as it was."""
        self._length += len(piece)
        self._pieces.append(piece)

    def _missing(self, whole: str) -> str | None:
        """The rest of a whole text after the text so far; None if it is another text."""
        if len(whole) < self.length:
            return None  # do not join: a hostile stream may do this for every piece
        return whole[self.length :] if whole.startswith(self.text) else None


class StreamedText(GrowingText, ABC):
    """A text that a stream brings in pieces, whole, or both."""

    is_open = True

    @abstractmethod
    def add(self, piece: str) -> None:
        """Append a piece."""

    def fill(self, text: str) -> bool:
        """Append the rest of the whole text; False if the text so far is another."""
        rest = self._missing(text)
        if rest and self.is_open:
            self.add(rest)
        return rest == "" or (rest is not None and self.is_open)


class PartWriter(StreamedText):
    """Writes a part of a reasoning, or a refusal.

    `fill(text)` takes the whole text if a stream repeats it, and emits the missing rest. Emitted
    text cannot be taken back, so a text that contradicts it is dropped.
    """

    def __init__(self, sink: Sink, place: dict[str, Any], kind: Any) -> None:
        super().__init__()
        self._sink = sink
        self._place = place
        added, delta, self._done = kind
        self._delta = delta(**place, delta="")
        self._sink.emit(added(**place, item=self._whole("")))

    def _whole(self, text: str) -> Any:
        return Refusal(refusal=text) if self._done is ev.RefusalDone else Text(text=text)

    def add(self, piece: str) -> None:
        """Append a piece."""
        if piece:
            piece = self._checked(piece)
            self._sink.emit(replace(self._delta, delta=piece))
            self._take(piece)

    def done(self, text: str | None = None) -> None:
        """Close the text. A second call does nothing."""
        if self.is_open:
            if text is not None:
                self.fill(text)
            self._sink.emit(self._done(**self._place, item=self._whole(self.text)))
            self.is_open = False


class TextWriter(StreamedText):
    """Writes a text block; its markers `[^n]` become citations."""

    def __init__(self, sink: Sink, place: dict[str, Any]) -> None:
        super().__init__()
        self._sink = sink
        self._place = place
        self._scanner = CitationScanner(sink.knows)
        self._annotations: list[Annotation] = []
        # To copy a delta takes a third of the time of making one from the dict of its place.
        self._delta = ev.TextDelta(**place, delta="")
        sink.emit(ev.TextAdded(**place, item=Text(text="")))

    @property
    def block(self) -> Text:
        """The block so far."""
        return Text(text=self.text, annotations=list(self._annotations))

    def add(self, piece: str) -> None:
        """Append a piece."""
        if not piece:
            return
        piece = self._checked(piece)
        scanner = self._scanner
        if "[" in piece or scanner.place[1]:
            self._add_marked(piece)
            return
        # As `feed` and `_take` do, without their calls: nearly every delta of a run ends here.
        self._sink.emit(replace(self._delta, delta=piece))
        self._pieces.append(piece)
        self._length = length = self._length + len(piece)
        scanner.place = (length, "")

    def _add_marked(self, piece: str) -> None:
        """Append a piece that may have markers, or the rest of a marker."""
        before = self._scanner.place
        scanned = self._scanner.feed(piece)
        try:
            if scanned.text:
                self._sink.emit(replace(self._delta, delta=scanned.text))
        except BaseException:
            self._scanner.place = before
            raise
        self._take(piece)
        for annotation in scanned.annotations:
            self._annotate(annotation)

    def _show_all(self) -> None:
        """Emit an unfinished marker that was held back."""
        if self._scanner.pending:
            self._sink.emit(replace(self._delta, delta=self._scanner.pending))
            self._scanner.finish()

    @property
    def cited_to(self) -> int:
        """Where the last citation ends; 0 without any."""
        ends = (getattr(annotation, "end_index", None) or 0 for annotation in self._annotations)
        return max(ends, default=0)

    def fits(self, annotation: Annotation) -> bool:
        """Whether a citation has no range, or a range inside the text so far."""
        if isinstance(annotation, RawAnnotation):
            return True
        start, end = annotation.start_index, annotation.end_index
        if start is None or end is None:
            return start is end
        return 0 <= start < end <= self.length

    def annotate(self, annotation: Annotation) -> None:
        """Add a citation of the provider; a citation outside the text is kept raw."""
        if not self.fits(annotation):
            annotation = RawAnnotation(raw=msgspec.to_builtins(annotation))
        elif (getattr(annotation, "end_index", None) or 0) > self._scanner.offset:
            self._show_all()
        self._annotate(annotation)

    def _annotate(self, annotation: Annotation) -> None:
        beside = self._beside + json_bytes(annotation)
        self._room.check(self._length, beside, lambda: self.text)
        at = len(self._annotations)
        event = ev.AnnotationAdded(**self._place, annotation_index=at, annotation=annotation)
        self._sink.emit(event)
        self._annotations.append(annotation)
        self._beside = beside

    def done(self, text: str | None = None) -> None:
        """Close the text. A second call does nothing."""
        if self.is_open:
            if text is not None:
                self.fill(text)
            self._show_all()
            self._sink.emit(ev.TextDone(**self._place, item=self.block))
            self.is_open = False
