"""OpenAI's items that speak: messages, reasoning, and whatever has no name here.

An item is met in three ways: by its `added`, by a delta that came first, or whole in its `done` or
the final response. Whatever comes, `done` adds only what is missing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from tailrace.core import events as ev
from tailrace.core.items import Data, RawItem, Status
from tailrace.core.writers import MessageWriter, ReasoningWriter, Sink
from tailrace.ingest.openai_parts import EndingPart, Json, TextPart, by_place, is_said, untold
from tailrace.ingest.openai_values import API, as_end, as_text, as_word, dicts, has_more, parts_of

TEXTS = {"text": "output_text"}
"""Other backends' names for a part of a message."""


_GROWING = frozenset(("content", "summary", "arguments", "input", "code", "status"))
"""What an item has more of at its end than at its beginning."""


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
        """The item begins, with whatever it holds already."""
        self.learn(item)

    def learn(self, item: Json) -> None:
        """The provider says what the item is."""
        self.seen = item
        self.is_implied = False
        self.item_id = as_word(item.get("id")) or self.item_id
        self.call_id = as_word(item.get("call_id")) or self.call_id

    def last_word(self, item: Json) -> Json:
        """The item at its end, with what only its beginning said."""
        for name in _GROWING:
            self.seen.pop(name, None)
        self.seen.update(item)  # in place: a call may be told many times to go on
        return self.seen

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


def _content(item: Json) -> list[Json]:
    return parts_of(item.get("content"), "output_text")


def _kind(part: Json) -> str:
    kind = part.get("type")
    return TEXTS.get(kind, kind) if isinstance(kind, str) else ""


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
        self.parts: dict[int, TextPart | EndingPart] = {}

    def learn(self, item: Json) -> None:
        """Its id and phase."""
        super().learn(item)
        self._phase = as_word(item.get("phase")) or self._phase

    def added(self, item: Json) -> None:
        """Its id and phase, and what its parts begin with."""
        super().added(item)
        for place, part in enumerate(_content(item)):
            if part.get("text") or part.get("refusal"):
                self.part_added(place, part)

    def part_added(self, index: int, part: Json) -> bool:
        """A part begins, empty mostly; False if there is no such part."""
        kind = _kind(part)
        if kind == "refusal":
            refusal = self.refusal_part(index)
            if refusal is not None:
                refusal.begin(as_text(part.get("refusal")) or "")
            return refusal is not None
        text = self.text_part(index) if kind == "output_text" else None
        if text is not None:
            text.begin(as_text(part.get("text")) or "")
            text.begin_cited(dicts(part.get("annotations")))
        return text is not None

    def text_part(self, index: int) -> TextPart | None:
        """The text at this place; None if that is a refusal."""
        part = self.parts.get(index)
        if part is None:
            part = self.parts[index] = TextPart(self.writer.text_block())
        return part if isinstance(part, TextPart) else None

    def refusal_part(self, index: int) -> EndingPart | None:
        """The refusal at this place; None if that is a text."""
        part = self.parts.get(index)
        if part is None:
            part = self.parts[index] = EndingPart(self.writer.refusal_block())
        return part if isinstance(part, EndingPart) else None

    def _take(self, index: int, part: Json) -> bool:
        """A part of the final item; whether there is more to it than can be shown."""
        kind = _kind(part)
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
        agrees = words is None or text.fill(words)
        text.annotate_missing(dicts(part.get("annotations")))
        return not agrees or more

    def done(self, item: Json) -> None:
        """Everything that was not streamed yet."""
        self.learn(item)
        content = _content(item)
        new = untold(content, self.parts)
        self.parts = by_place(self.parts, len(content))
        more = has_more(item, self._known) or item.get("role", "assistant") != "assistant"
        more = more or new is not content
        for place, part in enumerate(new):
            more = self._take(place, part) or more
        self._finish(item, as_end(item.get("status")) or "completed", more=more)

    @property
    def text(self) -> str:
        """What its texts have said so far."""
        texts = [part for part in self.parts.values() if isinstance(part, TextPart)]
        return "".join(part.writer.text for part in texts)

    def unsaid(self, item: Json) -> str:
        """What the response's last word has beyond an item that ended too early.

        OmniRoute ends its message after the first piece, and goes on.
        """
        whole = "".join(as_text(part.get("text")) or "" for part in _content(item))
        shown = self.text
        return whole[len(shown) :] if whole.startswith(shown) else ""

    def _finish(self, item: Json, status: Any, *, more: bool) -> None:
        self.is_open = False
        for part in self.parts.values():
            part.finish()
        texts = [part for part in self.parts.values() if isinstance(part, TextPart)]
        raw = item if more or any(part.is_overfull for part in texts) else None
        if any(part.facts for part in texts):
            raw = self._with_facts(item)
        self.writer.finish(status, self.private(raw), self._phase)

    def _with_facts(self, item: Json) -> Json:
        """The item with what only the events of its parts had."""
        content = _content(item)
        for place, part in enumerate(content):
            streamed = self.parts.get(place)
            if isinstance(streamed, TextPart):
                facts = {name: one for name, one in streamed.facts.items() if not part.get(name)}
                content[place] = {**part, **facts}
        if not content:
            content = [
                {"type": "output_text", "text": part.writer.text, **part.facts}
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
        """No last word has come: there is what it was added with, and what streamed."""
        more = has_more(self.seen, self._known)
        for place, part in enumerate(_content(self.seen)):
            known = self._known_part.get(_kind(part))
            more = more or known is None or has_more(part, known)
            if known is None:
                self._take(place, part)
        self._finish(self.seen or {"type": "message"}, status, more=more)


class ReasoningSlot(Slot):
    """Reasoning: a summary, the raw text, sealed content, in any mixture."""

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
        """Its id, and what is sealed."""
        super().learn(item)
        self._sealed = as_text(item.get("encrypted_content")) or self._sealed

    def added(self, item: Json) -> None:
        """Its id, what is sealed, and what its parts begin with."""
        super().added(item)
        summary, content = self._lists(item)
        for parts, make in ((summary, self.summary_part), (content, self.text_part)):
            for place, part in enumerate(parts):
                words = as_text(part.get("text"))
                if words:
                    make(place).begin(words)

    def _lists(self, item: Json) -> tuple[list[Json], list[Json]]:
        """The parts of its summary, and of its raw text."""
        return (
            parts_of(item.get("summary"), "summary_text"),
            parts_of(item.get("content"), "reasoning_text"),
        )

    def summary_part(self, index: int, *, is_new: bool = False) -> EndingPart:
        """The part of the summary at this place; `is_new`: not one that has ended."""
        part = self.summaries.get(index)
        if part is not None and is_new and not part.writer.is_open:
            # The same index once more: the old part keeps its turn, but not its place.
            self.summaries[-1 - len(self.summaries)] = self.summaries.pop(index)
            part = None
        if part is None:
            part = self.summaries[index] = EndingPart(self.writer.summary_part())
        return part

    def text_part(self, index: int) -> EndingPart:
        """The part of the raw text at this place."""
        part = self.parts.get(index)
        if part is None:
            part = self.parts[index] = EndingPart(self.writer.text_part())
        return part

    def part_added(self, index: int, part: Json) -> bool:
        """A part of the raw text begins, empty mostly."""
        self.text_part(index).begin(as_text(part.get("text")) or "")
        return True

    def done(self, item: Json) -> None:
        """Everything that was not streamed yet."""
        self.learn(item)
        more = has_more(item, self._known)
        summary, content = self._lists(item)
        if not summary and is_said(content, self.summaries):
            content, more = [], True
        elif not content and is_said(summary, self.parts):
            summary, more = [], True
        content = untold(content, self.parts)
        self.summaries = by_place(self.summaries, len(summary))
        self.parts = by_place(self.parts, len(content))
        for parts, make in ((summary, self.summary_part), (content, self.text_part)):
            for place, part in enumerate(parts):
                words = as_text(part.get("text"))
                agrees = words is not None and make(place).fill(words)
                more = more or not agrees or has_more(part, self._known_part)
        self._finish(as_end(item.get("status")) or "completed", item if more else None)

    def _finish(self, status: Any, raw: Json | None) -> None:
        self.is_open = False
        for part in (*self.summaries.values(), *self.parts.values()):
            part.finish()
        self.writer.finish(status, self.private(raw, encrypted_content=self._sealed))

    def settle(self) -> None:
        """Whole as it is."""
        self._end("completed")

    def cut(self) -> None:
        """Incomplete as it is."""
        self._end("incomplete")

    def _end(self, status: Status) -> None:
        """No last word has come: there is what it was added with, and what streamed."""
        parts = [part for parts in self._lists(self.seen) for part in parts]
        more = has_more(self.seen, self._known) or any(
            as_text(part.get("text")) is None or has_more(part, self._known_part) for part in parts
        )
        self._finish(status, self.seen if more else None)


class RawSlot(Slot):
    """An item that has no name here, or that only its provider understands."""

    def __init__(self, sink: Sink, item_id: str | None, index: int | None, item_type: str) -> None:
        super().__init__(sink, item_id, index)
        self.item_type = item_type
        self._id = sink.new_id("raw")
        self.seen = {"type": item_type}
        self._place = sink.add(RawItem(id=self._id, raw=dict(self.seen), source=API))

    def done(self, item: Json) -> None:
        """The item, whole."""
        self.learn(item)
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
