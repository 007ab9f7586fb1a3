"""The answer of a chat completion as items: reasoning, text, calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from tailrace.core import events as ev
from tailrace.core.event_sink import Sink
from tailrace.core.items import Annotation, Image, ImageUrl, RawAnnotation, Status
from tailrace.core.text_writers import PartWriter, TextWriter
from tailrace.core.values import dict_of
from tailrace.core.writers import MessageWriter
from tailrace.ingest.base import ExecutorOf
from tailrace.ingest.openai_chat.calls import API, ChatCalls
from tailrace.ingest.openai_chat.reasoning import FIELDS, ChatReasoning, is_thought
from tailrace.ingest.openai_chat.values import GatheredFields, annotation_of
from tailrace.ingest.openai_responses.values import unplaced
from tailrace.ingest.unknown import unknown_names

_AUDIO = ("data", "transcript")
_IMAGE = frozenset(("type", "image_url", "index"))


class ChatAnswer:
    """Writes the deltas of a choice.

    Reasoning ends where text or a call begins. Text ends where reasoning or a call begins. Text
    that comes later is another item.
    """

    def __init__(self, sink: Sink, executor_of: ExecutorOf) -> None:
        self.unknown: set[str] = set()
        """The names of fields of the current chunk that are not known."""
        self.left: dict[str, Any] = {}
        """What has no place in an item when the answer ends."""
        self._sink = sink
        self._calls = ChatCalls(sink, executor_of, self._turn_to_calls)
        self._thoughts = ChatReasoning(sink, self.unknown, self._close_message)
        self._is_thought = False  # whether the content of this delta is a thought
        self._message: MessageWriter | None = None
        self._text: TextWriter | None = None
        self._refusal: PartWriter | None = None
        self._annotations: list[Any] = []
        self._early: list[tuple[Annotation, Any]] = []
        self._cited: set[bytes] = set()
        self._logprobs = GatheredFields()
        self._audio = GatheredFields(_AUDIO)
        self._is_written = False  # a transcript is written only if there is no content

    def delta(self, delta: dict[str, Any]) -> None:
        """Take a delta of the message."""
        self.unknown.update(unknown_names(delta, _KNOWN))
        self._thoughts.delta(delta)
        self._is_thought = is_thought(delta)
        for name, take in self._PARTS.items():
            value = delta.get(name)
            if value is not None and not take(self, value):
                self.unknown.add(name)

    def logprobs(self, logprobs: Mapping[str, Any]) -> None:
        """Take the probabilities of tokens, for the open message."""
        for name, values in logprobs.items():
            self._logprobs.add(name, values)

    def cite_sources(self, name: str, sources: Any) -> None:
        """Add the sources of the whole answer as a citation without a range."""
        if self._text is None:
            self.left[name] = sources
        else:
            self._text.annotate(RawAnnotation(raw={"type": name, name: sources}))

    @property
    def is_whole(self) -> bool:
        """Whether each call has a name and complete arguments."""
        return self._calls.are_whole

    def close(self, *, is_whole: bool) -> bool:
        """Close open items; return whether a call lacks its name or the end of its arguments."""
        status: Status = "completed" if is_whole else "incomplete"
        self._close_message(status)
        if self._early:
            self.left["annotations"] = [raw for _, raw in self._early]
        if self._logprobs:
            self.left["logprobs"] = self._logprobs.all()
        self._thoughts.close(status)
        is_truncated, nameless = self._calls.finish(is_whole=is_whole)
        if nameless:
            self.left["tool_calls"] = nameless
        return is_truncated or bool(nameless)

    # --- the message -----------------------------------------------------------------------------

    def _open_message(self) -> MessageWriter:
        self._thoughts.close()
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
        self._is_written = self._is_written or bool(value)
        if isinstance(value, str):
            self._say(self._thoughts.visible_text(value, is_thought=self._is_thought))
            return True
        if isinstance(value, list):  # Mistral
            for part in value:
                if not self._content_part(part):
                    self.unknown.add("content")
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
            return self._thoughts.part(part)
        if kind == "reference":
            self._cite(part)
            return True
        known = ["type"]
        if kind == "image_url":
            is_known = self._image(part)
        elif kind == "refusal":
            is_known = self._refuse(part.get("refusal"))
        elif kind == "text" and isinstance(part.get("text"), str):
            self._say(part["text"])
            is_known = True
            if self._annotate(part.get("annotations")):
                known.append("annotations")
        else:
            return False
        if is_known:
            self.unknown.update(unknown_names(part, (*known, kind), "content."))
        return is_known

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
                self.unknown.add("images")
            else:
                self.unknown.update(unknown_names(image, _IMAGE, "images."))
        return True

    def _image(self, image: Any) -> bool:
        place = dict_of(image).get("image_url")
        url = place.get("url") if isinstance(place, dict) else place
        if not isinstance(url, str) or not url:
            return False
        message = self._open_message()
        self._close_text()
        message.whole(Image(image_url=ImageUrl(url=url)))
        if isinstance(place, dict):
            self.unknown.update(unknown_names(place, ("url",), "image_url."))
        return True

    def _listen(self, audio: Any) -> bool:
        if not isinstance(audio, dict):
            return False
        self._open_message()
        for name, value in audio.items():
            self._audio.add(name, value)
        transcript = audio.get("transcript")
        if isinstance(transcript, str) and not self._is_written:
            self._say(transcript)
        return True

    def _annotate(self, annotations: Any) -> bool:
        if not isinstance(annotations, list):
            return False
        for raw in annotations:
            key = msgspec.json.encode(raw)
            if key not in self._cited:  # some servers repeat the whole list in every chunk
                self._cited.add(key)
                self._cite(raw)
        return True

    def _cite(self, raw: Any) -> None:
        """Take a citation; it waits until its range is in the text."""
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
        self._annotations, self._logprobs = [], GatheredFields()
        self._audio = GatheredFields(_AUDIO)

    # --- calls -----------------------------------------------------------------------------------

    def _tool_calls(self, value: Any) -> bool:
        if isinstance(value, dict) and isinstance(value.get("function"), dict):
            value = [value]  # older versions of Text Generation Inference
        if not isinstance(value, list):
            return False
        fragments = [fragment for fragment in value if isinstance(fragment, dict)]
        self._calls.fragments(fragments)
        if len(fragments) < len(value):
            self.unknown.add("tool_calls")
        return True

    def _function_call(self, value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        self._calls.legacy(value)
        return True

    def _turn_to_calls(self) -> None:
        self._thoughts.close()
        self._close_message()

    _PARTS: ClassVar[dict[str, Callable[[ChatAnswer, Any], bool]]] = {
        "content": _content,
        "refusal": _refuse,
        "images": _images,
        "audio": _listen,
        "annotations": _annotate,
        "tool_calls": _tool_calls,
        "function_call": _function_call,
    }
    """The method for each field; it returns False if the value is unknown."""


_KNOWN = frozenset(
    (
        *("role", "content", "refusal", "images", "audio", "annotations"),
        *("tool_calls", "function_call", *FIELDS),
    )
)
