"""The message that a chat completion grows: reasoning, text, calls, and what goes with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from tailrace.core import events as ev
from tailrace.core.items import Annotation, Image, ImageUrl, RawAnnotation, Status
from tailrace.core.writers import MessageWriter, PartWriter, ReasoningWriter, Sink, TextWriter
from tailrace.ingest.base import ExecutorOf
from tailrace.ingest.openai_chat_calls import API, Calls
from tailrace.ingest.openai_chat_facts import Gathered, ReasoningDetails, annotation_of
from tailrace.ingest.openai_values import unplaced

_REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
_DETAILS = ("reasoning_details", "thinking_blocks")
_WORDS = ("content", "text", "summary", "thinking")
_AUDIO = ("data", "transcript")


class Answer:
    """Writes the deltas of one choice.

    Reasoning ends where text or a call begins, and text where reasoning or another call does; what
    comes back later is another item.
    """

    def __init__(self, sink: Sink, executor_of: ExecutorOf) -> None:
        self.rest = Gathered()
        """Fields that have no name here."""
        self._sink = sink
        self._calls = Calls(sink, executor_of, self._turn_to_calls)
        self._reasoning: ReasoningWriter | None = None
        self._details = ReasoningDetails()
        self._field: str | None = None  # the one that reasoning came in
        self._message: MessageWriter | None = None
        self._text: TextWriter | None = None
        self._refusal: PartWriter | None = None
        self._annotations: list[Any] = []
        self._early: list[tuple[Annotation, Any]] = []
        self._cited: set[bytes] = set()
        self._logprobs = Gathered()
        self._audio = Gathered(_AUDIO)

    def delta(self, delta: dict[str, Any]) -> None:
        """More of the message."""
        for name in delta.keys() - _KNOWN:
            self.rest.add(name, delta[name])
        self._think(delta)
        for name, take in self._PARTS.items():
            value = delta.get(name)
            if value is not None and not take(self, value):
                self.rest.add(name, value)

    def logprobs(self, logprobs: Mapping[str, Any]) -> None:
        """How likely the tokens were; kept beside the message that is open."""
        for name, values in logprobs.items():
            self._logprobs.add(name, values)

    def cite_sources(self, name: str, sources: Any) -> None:
        """What the answer rests on as a whole: a citation without a place in the text."""
        if self._text is None:
            self.rest.add(name, sources)
        else:
            self._text.annotate(RawAnnotation(raw={"type": name, name: sources}))

    def close(self, *, is_whole: bool) -> bool:
        """Close what is open; whether a call lacks its name or the end of its arguments."""
        status: Status = "completed" if is_whole else "incomplete"
        self._close_message(status)
        if self._early:
            self.rest.add("annotations", [raw for _, raw in self._early])
        if self._logprobs:
            self.rest.add("logprobs", self._logprobs.all())
        self._close_reasoning(status)
        is_truncated, nameless = self._calls.finish(is_whole=is_whole)
        if nameless:
            self.rest.add("tool_calls", nameless)
        return is_truncated or bool(nameless)

    # --- reasoning -------------------------------------------------------------------------------

    def _think(self, delta: dict[str, Any]) -> None:
        texts: dict[str, str] = {}
        for name in _REASONING:
            value = delta.get(name)
            if value is not None:
                words = _words(value)
                if words is None:
                    self.rest.add(name, value)
                elif words:
                    # Two fields with one text are an old and a new name for it.
                    texts.setdefault(words, name)
        for words, name in texts.items():
            self._reason(words, name)
        for name in _DETAILS:
            value = delta.get(name)
            for entry in value if isinstance(value, list) else ():
                self._detail(entry, name, is_shown=bool(texts))
        if isinstance(delta.get("reasoning_opaque"), str):  # GitHub Copilot
            self._seal().encrypted = delta["reasoning_opaque"]

    def _detail(self, entry: Any, name: str, *, is_shown: bool) -> None:
        if not isinstance(entry, dict):
            self.rest.add(name, [entry])
            return
        text = self._seal().add(entry)
        if text and not is_shown:
            self._reason(text, name)

    def _seal(self) -> ReasoningDetails:
        """Where sealed reasoning goes: to the item that is open, or to one without any text."""
        if self._reasoning is None:
            self._reasoning = ReasoningWriter(self._sink)
        return self._details

    def _reason(self, piece: str, field: str) -> None:
        self._close_message()
        self._field = self._field or field
        if self._reasoning is None:
            self._reasoning = ReasoningWriter(self._sink)
        self._reasoning.summary(piece)

    def _close_reasoning(self, status: Status = "completed") -> None:
        if self._reasoning is None:
            return
        provider: dict[str, Any] = {"api": API}
        if self._field is not None:
            provider["field"] = self._field
        details = self._details.all()
        if details:
            provider["reasoning_details"] = details
        private = ev.Private(
            provider=provider,
            encrypted_content=self._details.encrypted,
            signature=self._details.signature,
        )
        self._reasoning.finish(status, private)
        self._reasoning, self._details, self._field = None, ReasoningDetails(), None

    # --- the message -----------------------------------------------------------------------------

    def _open_message(self) -> MessageWriter:
        self._close_reasoning()
        if self._message is None:
            self._message = MessageWriter(self._sink)
        return self._message

    def _say(self, piece: str) -> None:
        if piece:
            message = self._open_message()
            if self._text is None:
                self._text = message.text_block()
            self._text.add(piece)

    def _content(self, value: Any) -> bool:
        if isinstance(value, str):
            self._say(value)
            return True
        if isinstance(value, list):  # Mistral
            for part in value:
                if not self._content_part(part):
                    self.rest.add("content", [part])
            return True
        return False

    def _content_part(self, part: Any) -> bool:
        if isinstance(part, str):
            self._say(part)
            return True
        if not isinstance(part, dict):
            return False
        kind = part.get("type")
        if kind in ("thinking", "reasoning"):  # two names for the same
            words = _words(part)
            if words:
                self._reason(words, "content")
            if isinstance(part.get("signature"), str):
                self._seal().signature = part["signature"]
            return words is not None
        if kind == "reference":
            self._cite(part)
            return True
        if kind == "image_url":
            return self._image(part)
        if kind == "refusal":
            return self._refuse(part.get("refusal"))
        if kind == "text" and isinstance(part.get("text"), str):
            self._say(part["text"])
            return True
        return False

    def _refuse(self, piece: Any) -> bool:
        if not isinstance(piece, str):
            return False
        if piece:
            message = self._open_message()
            if self._refusal is None:
                self._refusal = message.refusal_block()
            self._refusal.add(piece)
        return True

    def _images(self, value: Any) -> bool:  # OpenRouter
        if not isinstance(value, list):
            return False
        for image in value:
            if not self._image(image):
                self.rest.add("images", [image])
        return True

    def _image(self, image: Any) -> bool:
        place = image.get("image_url") if isinstance(image, dict) else None
        url = place.get("url") if isinstance(place, dict) else place
        if not isinstance(url, str) or not url:
            return False
        message = self._open_message()
        self._close_text()
        message.whole(Image(image_url=ImageUrl(url=url)))
        return True

    def _listen(self, audio: Any) -> bool:
        if not isinstance(audio, dict):
            return False
        self._open_message()
        for name, value in audio.items():
            self._audio.add(name, value)
        return True

    def _annotate(self, annotations: Any) -> bool:
        if not isinstance(annotations, list):
            return False
        for raw in annotations:
            key = msgspec.json.encode(raw)
            if key not in self._cited:  # some send the whole list again with every chunk
                self._cited.add(key)
                self._cite(raw)
        return True

    def _cite(self, raw: Any) -> None:
        """A citation; one that is ahead of its text waits for it."""
        self._annotations.append(raw)
        annotation = annotation_of(raw)
        if self._text is not None and self._text.fits(annotation):
            self._text.annotate(annotation)
        else:
            self._early.append((annotation, raw))

    def _close_text(self) -> None:
        if self._text is None:
            return
        for annotation, raw in self._early:
            fits = self._text.fits(annotation)
            self._text.annotate(
                annotation if fits else unplaced(annotation, raw, self._text.length)
            )
        self._early.clear()
        self._text.done()
        self._text = None

    def _close_message(self, status: Status = "completed") -> None:
        if self._message is None:
            return
        self._close_text()
        beside = {
            "annotations": self._annotations,
            "logprobs": self._logprobs.all(),
            "audio": self._audio.all(),
        }
        kept = {name: value for name, value in beside.items() if value}
        self._message.finish(status, ev.Private(provider={"api": API, **kept}))
        self._message = self._refusal = None
        self._annotations, self._logprobs = [], Gathered()
        self._audio = Gathered(_AUDIO)

    # --- calls -----------------------------------------------------------------------------------

    def _tool_calls(self, value: Any) -> bool:
        if not isinstance(value, list):
            return False
        fragments = [one for one in value if isinstance(one, dict)]
        self._calls.fragments(fragments)
        if len(fragments) < len(value):
            strange = [one for one in value if not isinstance(one, dict)]
            self.rest.add("tool_calls", strange)
        return True

    def _function_call(self, value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        self._calls.legacy(value)
        return True

    def _turn_to_calls(self) -> None:
        self._close_reasoning()
        self._close_message()

    _PARTS: ClassVar[dict[str, Callable[[Answer, Any], bool]]] = {
        "content": _content,
        "refusal": _refuse,
        "images": _images,
        "audio": _listen,
        "annotations": _annotate,
        "tool_calls": _tool_calls,
        "function_call": _function_call,
    }
    """What takes each field; it says whether it knew what to do."""


_KNOWN = frozenset(
    (
        *("role", "content", "refusal", "images", "audio", "annotations"),
        *("tool_calls", "function_call", "reasoning_opaque", *_REASONING, *_DETAILS),
    )
)


def _words(value: Any) -> str | None:
    """The text of a reasoning field: itself, or what stands in its object or list."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        found = [_words(one) for one in value]
    elif isinstance(value, dict):
        found = [_words(value[name]) for name in _WORDS if name in value]
    else:
        return None
    words = [one for one in found if one is not None]
    return "".join(words) if words or not value else None
