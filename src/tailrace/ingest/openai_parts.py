"""The parts of OpenAI's items: texts of a message, refusals, summaries, raw reasoning.

A part's text is told up to three times: by what it was added with, by its pieces, and whole at its
end, which may be its own, its item's or the response's. It is written once, by one rule:

* What it was added with waits. Pieces that follow go on from there, as the openai SDK adds them up;
  pieces that begin by saying it again are passed over until they have said all of it. If they turn
  to something else before that, they were no repetition, and all of them is written.
* A whole text brings what was not written yet. If no piece came, it is all that counts.
* Where neither came, because the stream was cut or ends with less, there is what it was added with.
* What a part that has pieces is added with only afterwards is a whole text, if no other comes.

What was shown cannot be taken back: a whole text that contradicts it is not written.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Generic, TypeVar

import msgspec

from tailrace.core.items import Annotation, RawAnnotation
from tailrace.core.texts import StreamedText
from tailrace.core.writers import PartWriter, TextWriter
from tailrace.ingest.openai_values import annotation_of, as_text, says_more, unplaced

Json = dict[str, Any]

_MOST_ANNOTATIONS = 512 * 1024
"""Bytes of citations that a text is shown with: they are repeated in its last event."""


Writer = TypeVar("Writer", bound=StreamedText)


class Part(Generic[Writer]):
    """One text of an item."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self._opening = ""
        """What it was added with, until that is written or a whole text has come."""
        self._shown = ""
        """The opening that is written, while pieces may still be saying it again."""
        self._repeated = 0
        """How many characters of it they have said."""
        self._has_whole = False

    @property
    def is_plain(self) -> bool:
        """Whether pieces are written just as they come, from here on."""
        return self.writer.length > 0 and not self._shown

    def begin(self, text: str) -> None:
        """What it is added with."""
        if not self._has_whole:
            self._opening = text or self._opening

    def add(self, piece: str) -> bool:
        """A piece of it; False if it has ended."""
        if not self.writer.is_open:
            return False
        if self._opening and piece and not self.writer.length:
            self.writer.add(self._opening)
            self._shown, self._opening, self._repeated = self._opening, "", 0
        self.writer.add(self._unsaid(piece) if self._shown else piece)
        return True

    def _unsaid(self, piece: str) -> str:
        """What a piece says beyond the opening."""
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
        """The whole text; False if it is not the one that came. An empty one tells nothing."""
        if whole:
            self._opening = self._shown = ""
            self._has_whole = True
        return self.writer.fill(whole)

    def finish(self) -> None:
        """Nothing more comes."""
        self.writer.fill(self._opening)
        self._opening = ""


class EndingPart(Part[PartWriter]):
    """A part of a summary or of the raw reasoning, or a refusal: it may end before its item."""

    def done(self, whole: str) -> None:
        """It has ended."""
        self.fill(whole)
        self.finish()
        self.writer.done()


class TextPart(Part[TextWriter]):
    """A text of a message with what the provider says about it."""

    def __init__(self, writer: TextWriter) -> None:
        super().__init__(writer)
        self.logprobs: list[Any] = []
        self._seen: Counter[bytes] = Counter()
        self._early: list[tuple[Annotation, Json]] = []
        self._room = _MOST_ANNOTATIONS
        self._begun_with: list[Json] = []
        self._fuller: list[Json] = []
        """The citations of which we show less than the provider said."""
        self.is_overfull = False

    @property
    def facts(self) -> Json:
        """What only the provider's own part can hold."""
        found = {"logprobs": self.logprobs, "annotations": self._fuller}
        return {name: value for name, value in found.items() if value}

    def begin_cited(self, raws: list[Json]) -> None:
        """The citations that it is added with: they count if no other ones come."""
        self._begun_with = raws or self._begun_with

    def annotate(self, raw: Json) -> bool:
        """A citation; one that is ahead of its text waits for it."""
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
        if not is_raw and (lost_its_place or says_more(raw, annotation)):
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
        """The text is all there is: citations that still do not fit lose their place in it."""
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

    They are told by their index. A backend whose indexes lie has them in order at least.
    """
    if all(0 <= index < count for index in parts):
        return parts
    return dict(enumerate(parts.values()))


def untold(content: list[Json], parts: dict[int, Any]) -> list[Json]:
    """The final parts, without texts if these are what was streamed, only cut otherwise.

    vLLM counts its deltas in `content_index`, so each of them is a part.
    """
    whole = "".join(as_text(part.get("text")) or "" for part in content)
    if len(content) < len(parts) and is_told(whole, parts):
        return [{**part, "text": None} for part in content]
    return content


def is_told(text: str, parts: dict[int, Any]) -> bool:
    """Whether several parts together are this text.

    No more of them are looked at than it has characters, so this costs no more than its event.
    """
    if not 1 < len(parts) <= len(text):
        return False
    told: list[StreamedText] = [part.writer for part in parts.values()]
    return sum(part.length for part in told) == len(text) and text == "".join(
        part.text for part in told
    )


def is_said(final: list[Json], parts: dict[int, Any]) -> bool:
    """Whether the final parts of one kind were all streamed as parts of another.

    LiteLLM streams a summary and ends with the same text as content; others do the reverse.
    """
    whole = "".join(as_text(part.get("text")) or "" for part in final)
    return whole != "" and whole == "".join(part.writer.text for part in parts.values())
