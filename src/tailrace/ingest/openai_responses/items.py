"""OpenAI's messages, reasoning and unknown items.

An item is met in three ways: by its `added`, by a delta that came first, or whole in its `done` or
the final response. Whatever comes, `done` adds only what is missing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from tailrace.core import events as ev
from tailrace.core.event_sink import Sink
from tailrace.core.items import Data, RawItem, Status
from tailrace.core.values import Json, dicts_of, text_or_none, word_of
from tailrace.core.writers import MessageWriter, ReasoningWriter
from tailrace.ingest.openai_responses.texts import (
    CitedText,
    EndingPart,
    by_place,
    is_repeated,
    without_streamed_texts,
)
from tailrace.ingest.openai_responses.values import API, as_end, parts_of
from tailrace.ingest.unknown import has_unknown

TEXTS = {"text": "output_text"}
"""Other backends' names for a part of a message."""


_GROWING = frozenset(("content", "summary", "arguments", "input", "code", "status"))
"""Fields that grow between the start and the end of an item."""


class Slot(ABC):
    """An item of the response.

    `origin` names the response; `item_id` and `index` are the provider's. `is_implied` holds until
    `added` or `done` has come; `seen` is that item.
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
        """Begin the item, with the content that it has."""
        # A copy: it grows here, and its event may be kept whole.
        self.learn(item if item is self.seen else dict(item))

    def learn(self, item: Json) -> None:
        """Take the provider's item."""
        self.seen = item
        self.is_implied = False
        self.item_id = word_of(item.get("id")) or self.item_id
        self.call_id = word_of(item.get("call_id")) or self.call_id

    def final_item(self, item: Json) -> Json:
        """The final item, with the fields that only its start had."""
        for name in _GROWING:
            self.seen.pop(name, None)
        self.seen.update(item)  # in place: a call may get this many times
        return self.seen

    @abstractmethod
    def done(self, item: Json) -> None:
        """End the item with its final form."""

    @abstractmethod
    def settle(self) -> None:
        """Complete the item, because the response is complete."""

    @abstractmethod
    def cut(self) -> None:
        """End the item as incomplete."""

    def private(self, raw: Json | None = None, **more: Any) -> ev.Private:
        """The private part of the item."""
        provider = dict(self.origin)
        if self.item_id is not None:
            provider["id"] = self.item_id
        return ev.Private(provider=provider, raw=raw, **more)


def _content(item: Json) -> list[Json]:
    return parts_of(item.get("content"), "output_text")


def _kind(part: Json) -> str:
    kind = part.get("type")
    return TEXTS.get(kind, kind) if isinstance(kind, str) else ""


class _WrittenSlot(Slot):
    """An item that ends in one way without its final form, completed or not."""

    def settle(self) -> None:
        """Complete the item as it is."""
        self._end("completed")

    def cut(self) -> None:
        """End the item as incomplete."""
        self._end("incomplete")

    @abstractmethod
    def _end(self, status: Status) -> None:
        """End the item without its final form, from its start and its deltas."""


class MessageSlot(_WrittenSlot):
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
        self.parts: dict[int, CitedText | EndingPart] = {}

    def learn(self, item: Json) -> None:
        """Take the id and the phase of the item."""
        super().learn(item)
        self._phase = word_of(item.get("phase")) or self._phase

    def added(self, item: Json) -> None:
        """Take the id and phase of the item, and the first texts of its parts."""
        super().added(item)
        for place, part in enumerate(_content(item)):
            if part.get("text") or part.get("refusal"):
                self.part_added(place, part)

    def part_added(self, index: int, part: Json) -> bool:
        """Begin a part, mostly empty; False if its type is unknown."""
        kind = _kind(part)
        if kind == "refusal":
            refusal = self.refusal_part(index)
            if refusal is not None:
                refusal.begin(text_or_none(part.get("refusal")) or "")
            return refusal is not None
        text = self.text_part(index) if kind == "output_text" else None
        if text is not None:
            text.begin(text_or_none(part.get("text")) or "")
            text.begin_cited(dicts_of(part.get("annotations")))
        return text is not None

    def text_part(self, index: int) -> CitedText | None:
        """The text at this index; None if it is a refusal."""
        part = self.parts.get(index)
        if part is None:
            part = self.parts[index] = CitedText(self.writer.text_block())
        return part if isinstance(part, CitedText) else None

    def refusal_part(self, index: int) -> EndingPart | None:
        """The refusal at this index; None if it is a text."""
        part = self.parts.get(index)
        if part is None:
            part = self.parts[index] = EndingPart(self.writer.refusal_block())
        return part if isinstance(part, EndingPart) else None

    def _take(self, index: int, part: Json) -> bool:
        """Take a part of the final item; return whether it has unknown fields."""
        kind = _kind(part)
        known = self._known_part.get(kind)
        if known is None:
            self.writer.whole(Data(data=part, name=word_of(kind)))
            return True
        more = has_unknown(part, known)
        if kind == "refusal":
            refusal, words = self.refusal_part(index), text_or_none(part.get("refusal"))
            return refusal is None or (words is not None and not refusal.fill(words)) or more
        text, words = self.text_part(index), text_or_none(part.get("text"))
        if text is None:
            return True
        agrees = words is None or text.fill(words)
        text.annotate_missing(dicts_of(part.get("annotations")))
        return not agrees or more

    def done(self, item: Json) -> None:
        """End the item with what did not stream."""
        self.learn(item)
        content = _content(item)
        new = without_streamed_texts(content, self.parts)
        self.parts = by_place(self.parts, len(content))
        more = has_unknown(item, self._known) or item.get("role", "assistant") != "assistant"
        more = more or new is not content
        for place, part in enumerate(new):
            more = self._take(place, part) or more
        self._finish(item, as_end(item.get("status")) or "completed", more=more)

    @property
    def text(self) -> str:
        """Its text so far."""
        texts = [part for part in self.parts.values() if isinstance(part, CitedText)]
        return "".join(part.writer.text for part in texts)

    def missing_text(self, item: Json) -> str:
        """The text that the final response has beyond an item that ended too early.

        OmniRoute ends its message after the first delta, and goes on.
        """
        whole = "".join(text_or_none(part.get("text")) or "" for part in _content(item))
        shown = self.text
        return whole[len(shown) :] if whole.startswith(shown) else ""

    def _finish(self, item: Json, status: Any, *, more: bool) -> None:
        self.is_open = False
        for part in self.parts.values():
            part.finish()
        texts = [part for part in self.parts.values() if isinstance(part, CitedText)]
        raw = item if more or any(part.is_overfull for part in texts) else None
        if any(part.facts for part in texts):
            raw = self._with_facts(item)
        self.writer.finish(status, self.private(raw), self._phase)

    def _with_facts(self, item: Json) -> Json:
        """The item with the facts that only the events of its parts had."""
        content = _content(item)
        for place, part in enumerate(content):
            streamed = self.parts.get(place)
            if isinstance(streamed, CitedText):
                facts = {
                    name: value for name, value in streamed.facts.items() if not part.get(name)
                }
                content[place] = {**part, **facts}
        if not content:
            content = [
                {"type": "output_text", "text": part.writer.text, **part.facts}
                for part in self.parts.values()
                if isinstance(part, CitedText)
            ]
        return {**item, "content": content}

    def _end(self, status: Status) -> None:
        more = has_unknown(self.seen, self._known)
        for place, part in enumerate(_content(self.seen)):
            known = self._known_part.get(_kind(part))
            more = more or known is None or has_unknown(part, known)
            if known is None:
                self._take(place, part)
        self._finish(self.seen or {"type": "message"}, status, more=more)


class ReasoningSlot(_WrittenSlot):
    """Reasoning: a summary, reasoning text, sealed content, or any of them."""

    item_type = "reasoning"
    _known = frozenset(("type", "id", "summary", "content", "encrypted_content", "status"))
    _known_part = frozenset(("type", "text"))

    def __init__(self, sink: Sink, item_id: str | None, index: int | None) -> None:
        super().__init__(sink, item_id, index)
        self.writer = ReasoningWriter(sink)
        self._sealed: str | None = None
        self.summaries: dict[int, EndingPart] = {}
        self.parts: dict[int, EndingPart] = {}

    def learn(self, item: Json) -> None:
        """Take the id and the sealed content of the item."""
        super().learn(item)
        self._sealed = text_or_none(item.get("encrypted_content")) or self._sealed

    def added(self, item: Json) -> None:
        """Take the id and sealed content of the item, and the first texts of its parts."""
        super().added(item)
        summary, content = self._lists(item)
        for parts, make in ((summary, self.summary_part), (content, self.text_part)):
            for place, part in enumerate(parts):
                words = text_or_none(part.get("text"))
                if words:
                    make(place).begin(words)

    def _lists(self, item: Json) -> tuple[list[Json], list[Json]]:
        """The parts of an item's summary and of its reasoning text."""
        return (
            parts_of(item.get("summary"), "summary_text"),
            parts_of(item.get("content"), "reasoning_text"),
        )

    def summary_part(self, index: int, *, is_new: bool = False) -> EndingPart:
        """The part of the summary at this index; `is_new`: an open part."""
        part = self.summaries.get(index)
        if part is not None and is_new and not part.writer.is_open:
            # The index is used again: the old part keeps its order under another key.
            self.summaries[-1 - len(self.summaries)] = self.summaries.pop(index)
            part = None
        if part is None:
            part = self.summaries[index] = EndingPart(self.writer.summary_part())
        return part

    def text_part(self, index: int) -> EndingPart:
        """The part of the reasoning text at this index."""
        part = self.parts.get(index)
        if part is None:
            part = self.parts[index] = EndingPart(self.writer.text_part())
        return part

    def part_added(self, index: int, part: Json) -> bool:
        """Begin a part of the reasoning text, mostly empty."""
        self.text_part(index).begin(text_or_none(part.get("text")) or "")
        return True

    def done(self, item: Json) -> None:
        """End the item with what did not stream."""
        self.learn(item)
        more = has_unknown(item, self._known)
        summary, content = self._lists(item)
        if not summary and is_repeated(content, self.summaries):
            content, more = [], True
        elif not content and is_repeated(summary, self.parts):
            summary, more = [], True
        content = without_streamed_texts(content, self.parts)
        self.summaries = by_place(self.summaries, len(summary))
        self.parts = by_place(self.parts, len(content))
        for parts, make in ((summary, self.summary_part), (content, self.text_part)):
            for place, part in enumerate(parts):
                words = text_or_none(part.get("text"))
                agrees = words is not None and make(place).fill(words)
                more = more or not agrees or has_unknown(part, self._known_part)
        self._finish(as_end(item.get("status")) or "completed", item if more else None)

    def _finish(self, status: Any, raw: Json | None) -> None:
        self.is_open = False
        for part in (*self.summaries.values(), *self.parts.values()):
            part.finish()
        self.writer.finish(status, self.private(raw, encrypted_content=self._sealed))

    def _end(self, status: Status) -> None:
        parts = [part for parts in self._lists(self.seen) for part in parts]
        more = has_unknown(self.seen, self._known) or any(
            text_or_none(part.get("text")) is None or has_unknown(part, self._known_part)
            for part in parts
        )
        self._finish(status, self.seen if more else None)


class RawSlot(_WrittenSlot):
    """An item of unknown type, or that only its provider understands."""

    def __init__(self, sink: Sink, item_id: str | None, index: int | None, item_type: str) -> None:
        super().__init__(sink, item_id, index)
        self.item_type = item_type
        self._id = sink.new_id("raw")
        self.seen = {"type": item_type}
        self._place = sink.add(RawItem(id=self._id, raw=dict(self.seen), source=API))

    def done(self, item: Json) -> None:
        """End the item with its final form."""
        self.learn(item)
        self._end(as_end(item.get("status")) or "completed")

    def _end(self, status: Status) -> None:
        self.is_open = False
        # Clients do not see sealed fields.
        shown = {name: value for name, value in self.seen.items() if name not in _SEALED}
        item = RawItem(id=self._id, raw=shown, source=API, status=status)
        self.sink.done(self._place, item, self.private(self.seen))


_SEALED = frozenset(("encrypted_content", "signature", "fingerprint"))
