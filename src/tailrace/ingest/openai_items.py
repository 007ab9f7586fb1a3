"""OpenAI's items that speak: messages, reasoning, and whatever has no name here.

An item is met in three ways: by its `added`, by a delta that came first, or whole in its `done` or
the final response. Whatever comes, `done` adds only what is missing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import Any, ClassVar

import msgspec

from tailrace.core import events as ev
from tailrace.core.items import Annotation, Data, RawAnnotation, RawItem, Status
from tailrace.core.texts import StreamedText
from tailrace.core.writers import MessageWriter, PartWriter, ReasoningWriter, Sink, TextWriter
from tailrace.ingest.openai_values import (
    API,
    annotation_of,
    as_end,
    as_text,
    as_word,
    dicts,
    has_more,
    says_more,
    unplaced,
)

Json = dict[str, Any]

TEXTS = {"text": "output_text"}
"""Other backends' names for a part of a message."""

_MOST_ANNOTATIONS = 512 * 1024
"""Bytes of citations that a text is shown with: they are repeated in its last event."""


class Slot(ABC):
    """One item of the response that is being read.

    `origin` says which response it is of; `item_id` and `index` are the provider's; `is_implied`
    until its `added` or `done` has come, which is `seen` then.
    """

    item_type: str

    def __init__(self, sink: Sink, item_id: str | None, index: int | None) -> None:
        self.sink = sink
        self.origin: Json = {"api": API}
        self.item_id = item_id
        self.index = index
        self.is_open = True
        self.is_implied = True
        self.call_id: str | None = None
        self.seen: Json = {}

    def added(self, item: Json) -> None:
        """The provider says what the item is."""
        self.seen = item
        self.is_implied = False
        self.item_id = as_word(item.get("id")) or self.item_id
        self.call_id = as_word(item.get("call_id")) or self.call_id

    @abstractmethod
    def done(self, item: Json) -> None:
        """The item as the provider has it at its end."""

    @abstractmethod
    def settle(self) -> None:
        """The response is complete, so this is too, though nothing said so."""

    @abstractmethod
    def cut(self) -> None:
        """Nothing more comes."""

    def private(self, raw: Json | None = None, **more: Any) -> ev.Private:
        """What history needs of the item."""
        provider = dict(self.origin)
        if self.item_id is not None:
            provider["id"] = self.item_id
        return ev.Private(provider=provider, raw=raw, **more)


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
    told: list[StreamedText] = [getattr(part, "writer", part) for part in parts.values()]
    return sum(part.length for part in told) == len(text) and text == "".join(
        part.text for part in told
    )


class TextPart:
    """A text of a message with what the provider says about it."""

    def __init__(self, writer: TextWriter) -> None:
        self.writer = writer
        self.logprobs: list[Any] = []
        self._seen: Counter[bytes] = Counter()
        self._early: list[tuple[Annotation, Json]] = []
        self._room = _MOST_ANNOTATIONS
        self.has_more = False

    def annotate(self, raw: Json) -> bool:
        """A citation; one that is ahead of its text waits for it."""
        seen = msgspec.json.encode(raw, order="sorted")
        self._room -= len(seen)
        if self._room < 0:
            self.has_more = True
            return False
        self._seen[seen] += 1
        annotation = annotation_of(raw)
        self.has_more = self.has_more or says_more(raw, annotation)
        if self.writer.fits(annotation):
            self.writer.annotate(annotation)
        else:
            self._early.append((annotation, raw))
        return True

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
        for annotation, raw in self._early:
            if not self.writer.fits(annotation):
                annotation = unplaced(annotation, raw, self.writer.length)
                self.has_more = self.has_more or not isinstance(annotation, RawAnnotation)
            self.writer.annotate(annotation)
        self._early.clear()


class MessageSlot(Slot):
    """A message. Its texts stay open until it is done, because citations may follow them."""

    item_type = "message"
    _known = frozenset(("type", "id", "role", "status", "content", "phase"))
    _known_part: ClassVar[dict[str, frozenset[str]]] = {
        "output_text": frozenset(("type", "text", "annotations")),
        "refusal": frozenset(("type", "refusal")),
    }

    def __init__(self, sink: Sink, item_id: str | None, index: int | None) -> None:
        super().__init__(sink, item_id, index)
        self.writer = MessageWriter(sink)
        self._phase: str | None = None
        self.parts: dict[int, TextPart | PartWriter] = {}

    def added(self, item: Json) -> None:
        """Its id and phase."""
        super().added(item)
        self._phase = as_word(item.get("phase")) or self._phase

    def text_part(self, index: int) -> TextPart | None:
        """The text at this place; None if that is a refusal."""
        part = self.parts.get(index)
        if part is None:
            part = self.parts[index] = TextPart(self.writer.text_block())
        return part if isinstance(part, TextPart) else None

    def refusal_part(self, index: int) -> PartWriter | None:
        """The refusal at this place; None if that is a text."""
        part = self.parts.get(index)
        if part is None:
            part = self.parts[index] = self.writer.refusal_block()
        return part if isinstance(part, PartWriter) else None

    def _take(self, index: int, part: Json) -> bool:
        """A part of the final item; whether there is more to it than can be shown."""
        kind = part.get("type")
        kind = TEXTS.get(kind, kind) if isinstance(kind, str) else ""
        known = self._known_part.get(kind)
        if known is None:
            self.writer.whole(Data(data=part, name=as_word(kind)))
            return True
        more = has_more(part, known)
        if kind == "refusal":
            refusal, words = self.refusal_part(index), as_text(part.get("refusal"))
            return refusal is None or (words is not None and not refusal.fill(words)) or more
        text, words = self.text_part(index), as_text(part.get("text"))
        if text is None:
            return True
        agrees = words is None or text.writer.fill(words)
        text.annotate_missing(dicts(part.get("annotations")))
        return not agrees or more

    def done(self, item: Json) -> None:
        """Everything that was not streamed yet."""
        self.added(item)
        content = dicts(item.get("content"))
        if isinstance(item.get("content"), str):
            content = [{"type": "output_text", "text": item["content"]}]
        new = untold(content, self.parts)
        self.parts = by_place(self.parts, len(content))
        more = has_more(item, self._known) or item.get("role", "assistant") != "assistant"
        more = more or new is not content
        for place, part in enumerate(new):
            more = self._take(place, part) or more
        self._finish(item, as_end(item.get("status")) or "completed", more=more)

    def _finish(self, item: Json | None, status: Any, *, more: bool = False) -> None:
        self.is_open = False
        texts = [part for part in self.parts.values() if isinstance(part, TextPart)]
        for part in texts:
            part.finish()
        raw = item if more or any(part.has_more for part in texts) else None
        if any(part.logprobs for part in texts):
            raw = self._with_logprobs(item or {"type": "message"})
        self.writer.finish(status, self.private(raw), self._phase)

    def _with_logprobs(self, item: Json) -> Json:
        """The item with the probabilities that only its deltas had."""
        content = dicts(item.get("content"))
        for place, part in enumerate(content):
            streamed = self.parts.get(place)
            if isinstance(streamed, TextPart) and not part.get("logprobs"):
                content[place] = {**part, "logprobs": streamed.logprobs}
        if not content:
            content = [
                {"type": "output_text", "text": part.writer.text, "logprobs": part.logprobs}
                for part in self.parts.values()
                if isinstance(part, TextPart)
            ]
        return {**item, "content": content}

    def settle(self) -> None:
        """Whole as it is."""
        self._end("completed")

    def cut(self) -> None:
        """Incomplete as it is."""
        self._end("incomplete")

    def _end(self, status: Status) -> None:
        if self.seen.get("content") and not self.parts:
            self.done({**self.seen, "status": status})  # it was all there when it was added
        else:
            self._finish(None, status)


class ReasoningSlot(Slot):
    """Reasoning: a summary, the raw text, sealed content, in any mixture."""

    item_type = "reasoning"
    _known = frozenset(("type", "id", "summary", "content", "encrypted_content", "status"))
    _known_part = frozenset(("type", "text"))

    def __init__(self, sink: Sink, item_id: str | None, index: int | None) -> None:
        super().__init__(sink, item_id, index)
        self.writer = ReasoningWriter(sink)
        self._sealed: str | None = None
        self.summaries: dict[int, PartWriter] = {}
        self.parts: dict[int, PartWriter] = {}

    def added(self, item: Json) -> None:
        """Its id, and what is sealed."""
        super().added(item)
        self._sealed = as_text(item.get("encrypted_content")) or self._sealed

    def summary_part(self, index: int, *, is_new: bool = False) -> PartWriter:
        """The part of the summary at this place; `is_new`: not one that has ended."""
        part = self.summaries.get(index)
        if part is not None and is_new and not part.is_open:
            # The same index once more: the old part keeps its turn, but not its place.
            self.summaries[-1 - len(self.summaries)] = self.summaries.pop(index)
            part = None
        if part is None:
            part = self.summaries[index] = self.writer.summary_part()
        return part

    def text_part(self, index: int) -> PartWriter:
        """The part of the raw text at this place."""
        part = self.parts.get(index)
        if part is None:
            part = self.parts[index] = self.writer.text_part()
        return part

    def done(self, item: Json) -> None:
        """Everything that was not streamed yet."""
        self.added(item)
        more = has_more(item, self._known)
        summary, content = dicts(item.get("summary")), dicts(item.get("content"))
        content = untold(content, self.parts)
        self.summaries = by_place(self.summaries, len(summary))
        self.parts = by_place(self.parts, len(content))
        for parts, make in ((summary, self.summary_part), (content, self.text_part)):
            for place, part in enumerate(parts):
                words = as_text(part.get("text"))
                agrees = words is not None and make(place).fill(words)
                more = more or not agrees or has_more(part, self._known_part)
        self._finish(as_end(item.get("status")) or "completed", item if more else None)

    def _finish(self, status: Any, raw: Json | None = None) -> None:
        self.is_open = False
        self.writer.finish(status, self.private(raw, encrypted_content=self._sealed))

    def settle(self) -> None:
        """Whole as it is."""
        self._end("completed")

    def cut(self) -> None:
        """Incomplete as it is."""
        self._end("incomplete")

    def _end(self, status: Status) -> None:
        if self.summaries or self.parts:
            self._finish(status)
        else:
            self.done({**self.seen, "status": status})  # what it was added with, if anything


class RawSlot(Slot):
    """An item that has no name here, or that only its provider understands."""

    def __init__(self, sink: Sink, item_id: str | None, index: int | None, item_type: str) -> None:
        super().__init__(sink, item_id, index)
        self.item_type = item_type
        self._id = sink.new_id("raw")
        self.seen = {"type": item_type}
        self._place = sink.add(RawItem(id=self._id, raw=self.seen, source=API))

    def done(self, item: Json) -> None:
        """The item, whole."""
        self.added(item)
        self._finish(as_end(item.get("status")) or "completed")

    def _finish(self, status: Any) -> None:
        self.is_open = False
        # What is sealed is nobody's business but the model's.
        shown = {name: value for name, value in self.seen.items() if name not in _SEALED}
        item = RawItem(id=self._id, raw=shown, source=API, status=status)
        self.sink.done(self._place, item, self.private(self.seen))

    def settle(self) -> None:
        """Whole as it is."""
        self._finish("completed")

    def cut(self) -> None:
        """Incomplete as it is."""
        self._finish("incomplete")


_SEALED = frozenset(("encrypted_content", "signature", "fingerprint"))
