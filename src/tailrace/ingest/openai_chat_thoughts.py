"""The reasoning of a chat completion: where servers put it, and what of it has to go back.

What history needs of it stands in the private part of the item: the `field` that the text came in,
and what was sealed, under the name that the server has for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.core import events as ev
from tailrace.core.items import Status
from tailrace.core.writers import ReasoningWriter, Sink
from tailrace.ingest.openai_chat_calls import API
from tailrace.ingest.openai_chat_facts import Gathered

_TEXTS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
DETAILS = ("reasoning_details", "thinking_blocks")
"""The fields of entries that have to go back as they came."""
_OPAQUE = "reasoning_opaque"  # GitHub Copilot
NAMES = frozenset((*_TEXTS, *DETAILS))
"""The fields that show reasoning: where there are several, they are names for the same."""
FIELDS = NAMES | {_OPAQUE}
"""The fields of a delta that are read here."""

_WORDS = ("content", "text", "summary", "thinking")
_PART = frozenset(("type", "signature", "closed", *_WORDS))
_BEGIN, _END = "<thought>", "</thought>"


class Thoughts:
    """Writes reasoning items; `before_text` is told before the text of one begins or goes on."""

    def __init__(self, sink: Sink, rest: Gathered, before_text: Callable[[], None]) -> None:
        self._sink = sink
        self._rest = rest
        self._before_text = before_text
        self._is_aloud = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._item: ReasoningWriter | None = None
        self._field: str | None = None  # the one that its text came in
        self._kind: str | None = None  # the type of the parts that it came in
        self._details: dict[str, _Details] = {}
        self._opaque: list[str] = []
        self._signature: str | None = None

    def delta(self, delta: dict[str, Any]) -> None:
        """The fields of a delta that are about reasoning."""
        texts: dict[str, str] = {}
        for name in _TEXTS:
            value = delta.get(name)
            if value is not None:
                words = words_of(value)
                if words is None:
                    self._rest.add(name, value)
                elif words:
                    # Two fields with one text are an old and a new name for it.
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
                self._rest.add(name, value)
        self._seal_opaque(delta.get(_OPAQUE))

    def aloud(self, text: str, *, is_thought: bool) -> str:
        """What of a content is the answer, where thoughts are content that has a flag (Gemini).

        Their tags are cut off: the first thought begins with one, and the answer with the other.
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
        """A part of the content that is reasoning (Mistral, Databricks); whether it is understood.

        It goes back as such a part.
        """
        words = words_of(part)
        if words is None:
            return False
        if words:
            self._say(words, "content")
        inner = [one for name in _WORDS for one in _dicts(part.get(name))]
        for holder in (part, *inner):
            if isinstance(holder.get("signature"), str):
                self._open()
                self._signature = holder["signature"]
        if self._item is not None:
            self._field = self._field or "content"
            self._kind = part["type"]
        more = {name: part[name] for name in part.keys() - _PART}
        if more:
            self._rest.add("content", [{"type": part["type"], **more}])
        return True

    def close(self, status: Status = "completed") -> None:
        """End the item that is open, if any."""
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
        """Where sealed reasoning goes: to the item that is open, or to one without any text."""
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
            if [value] != self._opaque:  # in pieces, or the same in every chunk
                self._opaque.append(value)
        elif value is not None:
            self._rest.add(_OPAQUE, value)

    def _detail(self, entry: Any, name: str) -> str:
        """One entry, or a piece of one; its text."""
        if not isinstance(entry, dict):
            self._rest.add(name, [entry])
            return ""
        self._open()
        return self._details.setdefault(name, _Details()).add(entry)

    def _show(self, text: str, name: str, *, is_shown: bool) -> None:
        """Show the text of details, unless another field had it: in this delta, or so far."""
        said = self._item.summaries if self._item is not None else []
        is_said = bool(said) and self._field != name and len(text) == said[0].length
        if text and not is_shown and not (is_said and text == said[0].text):
            self._say(text, name)


class _Details:
    """The entries of `reasoning_details` (OpenRouter) or `thinking_blocks` (LiteLLM).

    They have to go back to the provider as they came. Pieces of a text belong together; sealed
    entries are whole and stand alone.
    """

    _TEXTS = ("text", "summary", "thinking")

    def __init__(self) -> None:
        self._entries: list[tuple[Any, Gathered]] = []
        self.signature: str | None = None
        self.encrypted: str | None = None

    def add(self, entry: dict[str, Any]) -> str:
        """One more entry or piece of one; the text that it shows."""
        text = "".join(entry[name] for name in self._TEXTS if isinstance(entry.get(name), str))
        is_text = any(name in entry for name in self._TEXTS) or "signature" in entry
        place = (entry.get("type"), entry.get("index")) if is_text else None
        if place is None or not self._entries or self._entries[-1][0] != place:
            self._entries.append((place, Gathered(self._TEXTS)))
        for name, value in entry.items():
            self._entries[-1][1].add(name, value)
        if isinstance(entry.get("signature"), str):
            self.signature = entry["signature"]
        if isinstance(entry.get("data"), str):
            self.encrypted = entry["data"]
        return text

    def all(self) -> list[dict[str, Any]]:
        """The entries, whole."""
        return [gathered.all() for _, gathered in self._entries]


def is_thought(delta: dict[str, Any]) -> bool:
    """Whether a delta says that its content is a thought, as Gemini does."""
    extra = delta.get("extra_content")
    google = extra.get("google") if isinstance(extra, dict) else None
    return isinstance(google, dict) and google.get("thought") is True


def words_of(value: Any) -> str | None:
    """The text of a reasoning field: itself, or what stands in its object or list."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        found = [words_of(one) for one in value]
    elif isinstance(value, dict):
        found = [words_of(value[name]) for name in _WORDS if name in value]
    else:
        return None
    words = [one for one in found if one is not None]
    return "".join(words) if words or not value else None


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
