"""The chunks of a chat completion."""

from __future__ import annotations

import msgspec

from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, ToolCall
from tailrace.core.state import TaskNode
from tailrace.core.values import Json
from tailrace.wire.base import DONE_FRAME, Frame
from tailrace.wire.projection import model_name, token_counts, usage_of_run

"""The last frame of every stream."""

_GAP = "\n\n"
_FIELDS = ("content", "refusal", "reasoning_content")
_OPEN_END = b'},"finish_reason":null}]}\n\n'
_json = msgspec.json.Encoder().encode


class ChatChunks:
    """Encodes the chunks of a message, and keeps its length and the last item in each field."""

    __slots__ = (
        "_about",
        "_annotations",
        "_delta",
        "_fields",
        "_head",
        "_images",
        "_last",
        "_usage",
        "length",
    )

    def __init__(self, root: TaskNode, *, usage: bool = True) -> None:
        """`usage`: whether the last chunk has it."""
        self._usage = usage
        self._head = {
            "id": f"chatcmpl-{root.task_id.removeprefix('chatcmpl-')}",
            "object": "chat.completion.chunk",
            "created": int(root.facts.get("created_at", 0)),
        }
        self._name(model_name(root))
        self._last: dict[str, object] = {}
        self._annotations = 0
        self._images = 0
        self.length = 0
        """The length of `content` in code points; citations count from its start."""

    def _name(self, agent: str) -> None:
        """Encode what is the same in all chunks of an agent."""
        self._about = b"data: %b" % _json({**self._head, "model": agent})[:-1]
        self._delta = self._about + b',"choices":[{"index":0,"delta":{'
        self._fields = {name: b'%b"%b":' % (self._delta, name.encode()) for name in _FIELDS}

    @property
    def has_answer(self) -> bool:
        """Whether any text or refusal was sent."""
        return "content" in self._last or "refusal" in self._last

    def begin(self) -> Frame:
        """The first chunk."""
        return self.delta({"role": "assistant", "content": ""})

    def switch(self, agent: str) -> Frame:
        """An empty chunk with the name of another agent, which the later chunks have too."""
        self._name(agent)
        return self.delta({})

    def delta(self, fields: Json) -> Frame:
        """A chunk with any fields; the frequent chunks have methods of their own."""
        return b"%b%b%b" % (self._delta, _json(fields)[1:-1], _OPEN_END)

    def text(self, field: str, source: object, text: str) -> Frame:
        """More text in a field, after a blank line if another source wrote to it before."""
        if self._last.get(field, source) != source:
            text = _GAP + text
        self._last[field] = source
        if field == "content":
            self.length += len(text)
        return b"%b%b%b" % (self._fields[field], _json(text), _OPEN_END)

    def citations(self, citations: list[Json]) -> Frame:
        """Citations, each as the fields of a `url_citation`."""
        first, self._annotations = self._annotations, self._annotations + len(citations)
        entries = [
            {"type": "url_citation", "index": index, "url_citation": citation}
            for index, citation in enumerate(citations, first)
        ]
        return self.delta({"annotations": entries})

    def image(self, url: str) -> Frame:
        """An image."""
        index, self._images = self._images, self._images + 1
        return self.delta(
            {"images": [{"type": "image_url", "index": index, "image_url": {"url": url}}]}
        )

    def call(self, index: int, call: ToolCall, arguments: str) -> Frame:
        """A call with the first of its arguments."""
        head: Json = {"index": index, "id": call.call_id}
        if call.kind == "custom":
            custom = {"name": call.name, "input": arguments}
            return self.delta({"tool_calls": [{**head, "type": "custom", "custom": custom}]})
        function = {"name": call.name, "arguments": arguments}
        return self.delta({"tool_calls": [{**head, "type": "function", "function": function}]})

    def arguments(self, index: int, piece: str) -> Frame:
        """More of a call's arguments."""
        entry = b'"tool_calls":[{"index":%d,"function":{"arguments":%b}}]' % (index, _json(piece))
        return b"%b%b%b" % (self._delta, entry, _OPEN_END)

    def finish(self, state: State, reason: str, native: str | None = None) -> list[Frame]:
        """The end of the message, and its usage if any model reported it."""
        choice: Json = {"index": 0, "delta": {}, "finish_reason": reason}
        if native is not None:
            choice["native_finish_reason"] = native
        frames = [b'%b,"choices":%b}\n\n' % (self._about, _json([choice]))]
        if self._usage and usage_of_run(state) is not None:
            usage = _json(_usage(state))
            frames.append(b'%b,"choices":[],"usage":%b}\n\n' % (self._about, usage))
        return [*frames, DONE_FRAME]


def failure(error: ErrorInfo) -> list[Frame]:
    """An error, which the SDKs raise as an `APIError`, and the end.

    If a stream fails before any text, the AI SDK repeats the request, which would be another run.
    It does not if `code` is the status of an error that it never repeats.
    """
    about = {
        "message": error.message or error.code,
        "type": error.code,
        "param": error.param,
        "code": "424",
    }
    return [b"data: %b\n\n" % _json({"error": about}), DONE_FRAME]


def _usage(state: State) -> Json:
    counts = token_counts(state)
    return {
        "prompt_tokens": counts.input_tokens,
        "completion_tokens": counts.output_tokens,
        "total_tokens": counts.input_tokens + counts.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": counts.cached_input_tokens,
            "cache_write_tokens": counts.cache_write_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning_tokens},
    }
