"""The parts of OpenAI's items: texts of a message, refusals, summaries, raw reasoning.

The text of a part may come three times: when it is added, in deltas, and whole at the end. It is
written once:

* The opening text waits. Deltas continue it, as in the openai SDK. Deltas that repeat it are
  dropped; if they diverge, all of them are written.
* A whole text adds what is missing. Without deltas it replaces the opening text.
* Without deltas and whole text, the opening text is written.
* An opening text that comes after deltas counts as a whole text, unless another follows.

Written text cannot be taken back: a whole text that contradicts it is ignored.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Generic, TypeVar

import msgspec

from tailrace.core.items import Annotation, RawAnnotation
from tailrace.core.text_writers import PartWriter, StreamedText, TextWriter
from tailrace.core.values import Json, text_or_none
from tailrace.ingest.openai_responses.values import annotation_of, citation_has_unknown, unplaced

_MOST_ANNOTATIONS = 512 * 1024
"""Bytes of citations that a text is shown with: they are repeated in its last event."""


Writer = TypeVar("Writer", bound=StreamedText)


class StreamedPart(Generic[Writer]):
    """A text of an item."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self._opening = ""
        """The opening text, until it is written or a whole text has come."""
        self._shown = ""
        """The written opening text, while deltas may repeat it."""
        self._repeated = 0
        """How many characters of it the deltas have repeated."""
        self._has_whole = False

    @property
    def is_plain(self) -> bool:
        """Whether deltas are written as they come, from here on."""
        return self.writer.length > 0 and not self._shown

    def begin(self, text: str) -> None:
        """Take the opening text."""
        if not self._has_whole:
            self._opening = text or self._opening

    def add(self, piece: str) -> bool:
        """Take a delta; False if the part has ended."""
        if not self.writer.is_open:
            return False
        if self._opening and piece and not self.writer.length:
            self.writer.add(self._opening)
            self._shown, self._opening, self._repeated = self._opening, "", 0
        self.writer.add(self._beyond_opening(piece) if self._shown else piece)
        return True

    def _beyond_opening(self, piece: str) -> str:
        """What a delta adds to the opening text."""
        shown, at = self._shown, self._repeated
        if shown.startswith(piece, at):
            self._repeated += len(piece)
            if self._repeated == len(shown):
                self._shown = ""
            return ""
        self._shown = ""
        rest = shown[at:]
        return piece[len(rest) :] if piece.startswith(rest) else shown[:at] + piece

    def fill(self, whole: str) -> bool:
        """Take the whole text; False if it contradicts the deltas. An empty text is ignored."""
        if whole:
            self._opening = self._shown = ""
            self._has_whole = True
        return self.writer.fill(whole)

    def finish(self) -> None:
        """End the part."""
        self.writer.fill(self._opening)
        self._opening = ""


class EndingPart(StreamedPart[PartWriter]):
    """A part of a summary or of reasoning, or a refusal: it may end before its item."""

    def done(self, whole: str) -> None:
        """End the part with its whole text."""
        self.fill(whole)
        self.finish()
        self.writer.done()


class CitedText(StreamedPart[TextWriter]):
    """A text of a message with its citations and probabilities."""

    def __init__(self, writer: TextWriter) -> None:
        super().__init__(writer)
        self.logprobs: list[Any] = []
        self._seen: Counter[bytes] = Counter()
        self._early: list[tuple[Annotation, Json]] = []
        self._room = _MOST_ANNOTATIONS
        self._begun_with: list[Json] = []
        self._fuller: list[Json] = []
        """The citations that have more fields than ours."""
        self.is_overfull = False

    @property
    def facts(self) -> Json:
        """Facts that only the provider's part can hold."""
        found = {"logprobs": self.logprobs, "annotations": self._fuller}
        return {name: value for name, value in found.items() if value}

    def begin_cited(self, raws: list[Json]) -> None:
        """The citations that it is added with: they count if no others come."""
        self._begun_with = raws or self._begun_with

    def annotate(self, raw: Json) -> bool:
        """Take a citation; it waits until its range is in the text."""
        seen = msgspec.json.encode(raw, order="sorted")
        self._room -= len(seen)
        if self._room < 0:
            self.is_overfull = True
            return False
        self._seen[seen] += 1
        annotation = annotation_of(raw)
        if self.writer.fits(annotation):
            self._cite(annotation, raw)
        else:
            self._early.append((annotation, raw))
        return True

    def _cite(self, annotation: Annotation, raw: Json, *, lost_its_place: bool = False) -> None:
        is_raw = isinstance(annotation, RawAnnotation)
        if not is_raw and (lost_its_place or citation_has_unknown(raw, annotation)):
            self._fuller.append(raw)
        self.writer.annotate(annotation)

    def annotate_missing(self, raws: list[Json]) -> None:
        """The citations of a final list that no event brought."""
        missing = len(raws) - self._seen.total()
        if missing <= 0:
            return
        seen = self._seen.copy()
        for raw in raws:
            known = msgspec.json.encode(raw, order="sorted")
            if seen[known] > 0:
                seen[known] -= 1
            elif missing > 0:
                missing -= 1
                self.annotate(raw)

    def finish(self) -> None:
        """End the text: citations that do not fit lose their range."""
        super().finish()
        self.annotate_missing(self._begun_with)
        for annotation, raw in self._early:
            is_placed = self.writer.fits(annotation)
            if not is_placed:
                annotation = unplaced(annotation, raw, self.writer.length)
            self._cite(annotation, raw, lost_its_place=not is_placed)
        self._early.clear()


def by_place(parts: dict[int, Any], count: int) -> dict[int, Any]:
    """The streamed parts by their place in a final list of this length.

    The index names the place. Where indexes are wrong, the order counts.
    """
    if all(0 <= index < count for index in parts):
        return parts
    return dict(enumerate(parts.values()))


def without_streamed_texts(content: list[Json], parts: dict[int, Any]) -> list[Json]:
    """The final parts, without their texts if deltas brought the same text in more parts.

    vLLM counts its deltas in `content_index`, so each of them is a part.
    """
    whole = "".join(text_or_none(part.get("text")) or "" for part in content)
    if len(content) < len(parts) and is_split(whole, parts):
        return [{**part, "text": None} for part in content]
    return content


def is_split(text: str, parts: dict[int, Any]) -> bool:
    """Whether several parts together are this text.

    It reads at most as many parts as the text has characters, so the cost is bounded.
    """
    if not 1 < len(parts) <= len(text):
        return False
    writers: list[StreamedText] = [part.writer for part in parts.values()]
    return sum(writer.length for writer in writers) == len(text) and text == "".join(
        writer.text for writer in writers
    )


def is_repeated(final: list[Json], parts: dict[int, Any]) -> bool:
    """Whether the final parts of this kind were all streamed as parts of another kind.

    LiteLLM streams a summary and ends with the same text as content; others do the reverse.
    """
    whole = "".join(text_or_none(part.get("text")) or "" for part in final)
    return whole != "" and whole == "".join(part.writer.text for part in parts.values())
