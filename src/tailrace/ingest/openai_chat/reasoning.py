"""The reasoning of a chat completion, in all fields that servers use for it.

The private part of the item has what history needs: the `field` of the text, and sealed reasoning
under the server's name for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.core import events as ev
from tailrace.core.event_sink import Sink
from tailrace.core.items import Status
from tailrace.core.values import dict_of, dicts_of
from tailrace.core.writers import ReasoningWriter
from tailrace.ingest.openai_chat.calls import API
from tailrace.ingest.openai_chat.values import GatheredFields
from tailrace.ingest.unknown import unknown_names

_TEXTS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
DETAILS = ("reasoning_details", "thinking_blocks")
"""The fields whose entries go back unchanged."""
_OPAQUE = "reasoning_opaque"  # GitHub Copilot
NAMES = frozenset((*_TEXTS, *DETAILS))
"""The fields with reasoning text; several of them repeat the same text."""
FIELDS = NAMES | {_OPAQUE}
"""The fields of a delta that this module reads."""

_WORDS = ("content", "text", "summary", "thinking")
_PART = frozenset(("type", "signature", "closed", *_WORDS))
_BEGIN, _END = "<thought>", "</thought>"


class ChatReasoning:
    """Writes reasoning items; `before_text` is called before text is added."""

    def __init__(self, sink: Sink, unknown: set[str], before_text: Callable[[], None]) -> None:
        self._sink = sink
        self._unknown = unknown
        self._before_text = before_text
        self._is_aloud = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._item: ReasoningWriter | None = None
        self._field: str | None = None  # the field of its text
        self._kind: str | None = None  # the type of its parts
        self._details: dict[str, _Details] = {}
        self._opaque: list[str] = []
        self._signature: str | None = None

    def delta(self, delta: dict[str, Any]) -> None:
        """Take the reasoning fields of a delta."""
        texts: dict[str, str] = {}
        for name in _TEXTS:
            value = delta.get(name)
            if value is not None:
                words = words_of(value)
                if words is None:
                    self._unknown.add(name)
                elif words:
                    # Two fields with the same text are an old and a new name.
                    texts.setdefault(words, name)
        for words, name in texts.items():
            self._say(words, name)
        is_shown = bool(texts)
        for name in DETAILS:
            value = delta.get(name)
            if isinstance(value, list):
                found = [self._detail(entry, name) for entry in value]
                self._show("".join(found), name, is_shown=is_shown)
                is_shown = is_shown or any(found)
            elif value is not None:
                self._unknown.add(name)
        self._seal_opaque(delta.get(_OPAQUE))

    def visible_text(self, text: str, *, is_thought: bool) -> str:
        """The answer in a content, where a flag marks thoughts (Gemini).

        The tags are removed: the first thought begins with `<thought>`, the answer with
        `</thought>`.
        """
        if is_thought:
            thought = text if self._is_aloud else text.removeprefix(_BEGIN)
            thought, tag, answer = thought.partition(_END)
            self._is_aloud = not tag
            if thought:
                self._say(thought, "thought")
            return answer
        if text and self._is_aloud:
            self._is_aloud = False
            return text.removeprefix(_END)
        return text

    def part(self, part: dict[str, Any]) -> bool:
        """Take a reasoning part of the content (Mistral, Databricks); False if it is invalid.

        It goes back as such a part.
        """
        words = words_of(part)
        if words is None:
            return False
        if words:
            self._say(words, "content")
        inner = [below for name in _WORDS for below in dicts_of(part.get(name))]
        for holder in (part, *inner):
            if isinstance(holder.get("signature"), str):
                self._open()
                self._signature = holder["signature"]
        if self._item is not None:
            self._field = self._field or "content"
            self._kind = part["type"]
        self._unknown.update(unknown_names(part, _PART, "content."))
        return True

    def close(self, status: Status = "completed") -> None:
        """Close the open item, if any."""
        if self._item is None:
            return
        opaque = "".join(self._opaque) or None
        known = {"api": API, "field": self._field, "part": self._kind, _OPAQUE: opaque}
        provider: dict[str, Any] = {name: value for name, value in known.items() if value}
        encrypted, signature = opaque, self._signature
        for name, details in self._details.items():
            provider[name] = details.all()
            encrypted, signature = details.encrypted or encrypted, details.signature or signature
        private = ev.Private(provider=provider, encrypted_content=encrypted, signature=signature)
        self._item.finish(status, private)
        self._begin_anew()

    def _open(self) -> ReasoningWriter:
        """The item for sealed reasoning: the open item, or a new item without text."""
        if self._item is None:
            self._item = ReasoningWriter(self._sink)
        return self._item

    def _say(self, piece: str, field: str) -> None:
        self._before_text()
        self._field = self._field or field
        self._open().summary(piece)

    def _seal_opaque(self, value: Any) -> None:
        if isinstance(value, str):
            self._open()
            if [value] != self._opaque:  # in pieces, or repeated in every chunk
                self._opaque.append(value)
        elif value is not None:
            self._unknown.add(_OPAQUE)

    def _detail(self, entry: Any, name: str) -> str:
        """Take an entry, or a piece of an entry; return its text."""
        if not isinstance(entry, dict):
            self._unknown.add(name)
            return ""
        self._open()
        return self._details.setdefault(name, _Details()).add(entry)

    def _show(self, text: str, name: str, *, is_shown: bool) -> None:
        """Write the text of details, unless another field had it."""
        parts = self._item.summaries if self._item is not None else []
        is_same = bool(parts) and self._field != name and len(text) == parts[0].length
        if text and not is_shown and not (is_same and text == parts[0].text):
            self._say(text, name)


class _Details:
    """The entries of `reasoning_details` (OpenRouter) or `thinking_blocks` (LiteLLM).

    They go back to the provider unchanged. Pieces of a text are joined; a sealed entry comes whole.
    """

    _TEXTS = ("text", "summary", "thinking")

    def __init__(self) -> None:
        self._entries: list[tuple[Any, GatheredFields]] = []
        self.signature: str | None = None
        self.encrypted: str | None = None

    def add(self, entry: dict[str, Any]) -> str:
        """Add an entry, or a piece of an entry; return its text."""
        text = "".join(entry[name] for name in self._TEXTS if isinstance(entry.get(name), str))
        is_text = any(name in entry for name in self._TEXTS) or "signature" in entry
        place = (entry.get("type"), entry.get("index")) if is_text else None
        if place is None or not self._entries or self._entries[-1][0] != place:
            self._entries.append((place, GatheredFields(self._TEXTS)))
        for name, value in entry.items():
            self._entries[-1][1].add(name, value)
        if isinstance(entry.get("signature"), str):
            self.signature = entry["signature"]
        if isinstance(entry.get("data"), str):
            self.encrypted = entry["data"]
        return text

    def all(self) -> list[dict[str, Any]]:
        """The whole entries."""
        return [gathered.all() for _, gathered in self._entries]


def is_thought(delta: dict[str, Any]) -> bool:
    """Whether the content of a delta is a thought, by Gemini's flag."""
    extra = delta.get("extra_content")
    google = dict_of(extra).get("google")
    return isinstance(google, dict) and google.get("thought") is True


def words_of(value: Any) -> str | None:
    """The text of a reasoning field, which may be in an object or a list."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        found = [words_of(member) for member in value]
    elif isinstance(value, dict):
        found = [words_of(value[name]) for name in _WORDS if name in value]
    else:
        return None
    words = [text for text in found if text is not None]
    return "".join(words) if words or not value else None
