"""The chunks of a chat completion, and the message that they make grow."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, ToolCall
from tailrace.core.state import TaskNode
from tailrace.wire.base import Frame
from tailrace.wire.openai_object import usage_json
from tailrace.wire.usage import usage_of_run

Json = dict[str, Any]

DONE: Frame = b"data: [DONE]\n\n"
"""The last frame of every stream: its readers look at nothing behind it."""

_GAP = "\n\n"
_FIELDS = ("content", "refusal", "reasoning_content")
_OPEN_END = b'},"finish_reason":null}]}\n\n'
_json = msgspec.json.Encoder().encode


class Chunks:
    """One message, told piece by piece. It knows how long it is and who spoke last in a field."""

    __slots__ = ("_about", "_annotations", "_delta", "_fields", "_images", "_last", "length")

    def __init__(self, root: TaskNode) -> None:
        """Nothing is said yet; `root` says what is the same in all chunks."""
        facts = root.facts
        about = {
            "id": f"chatcmpl-{root.task_id.removeprefix('chatcmpl-')}",
            "object": "chat.completion.chunk",
            "created": int(facts.get("created_at", 0)),
            "model": facts.get("agent") or facts.get("model") or "",
        }
        self._about = b"data: %b" % _json(about)[:-1]
        self._delta = self._about + b',"choices":[{"index":0,"delta":{'
        self._fields = {name: b'%b"%b":' % (self._delta, name.encode()) for name in _FIELDS}
        self._last: dict[str, object] = {}
        self._annotations = 0
        self._images = 0
        self.length = 0
        """Code points of `content`, in which citations have their places."""

    @property
    def has_spoken(self) -> bool:
        """Whether there is an answer, be it a refusal."""
        return "content" in self._last or "refusal" in self._last

    def begin(self) -> Frame:
        """The first chunk."""
        return self.delta({"role": "assistant", "content": ""})

    def delta(self, fields: Json) -> Frame:
        """Whatever is rare."""
        return b"%b%b%b" % (self._delta, _json(fields)[1:-1], _OPEN_END)

    def say(self, field: str, speaker: object, text: str) -> Frame:
        """More of a text; another speaker begins with a blank line."""
        if self._last.get(field, speaker) != speaker:
            text = _GAP + text
        self._last[field] = speaker
        if field == "content":
            self.length += len(text)
        return b"%b%b%b" % (self._fields[field], _json(text), _OPEN_END)

    def cite(self, citations: list[Json], start: int) -> Frame:
        """Citations of a text that stands at `start`, flat as the Responses API has them."""
        entries = []
        for citation in citations:
            about = {name: value for name, value in citation.items() if name != "type"}
            about["start_index"] += start
            about["end_index"] += start
            index = {"index": self._annotations}
            entries.append({"type": "url_citation", **index, "url_citation": about})
            self._annotations += 1
        return self.delta({"annotations": entries})

    def image(self, url: str) -> Frame:
        """A picture."""
        index, self._images = self._images, self._images + 1
        return self.delta(
            {"images": [{"type": "image_url", "index": index, "image_url": {"url": url}}]}
        )

    def call(self, index: int, call: ToolCall, arguments: str) -> Frame:
        """A call, with the beginning of its arguments."""
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
        """The end of the message, and what it used where anybody said."""
        choice: Json = {"index": 0, "delta": {}, "finish_reason": reason}
        if native is not None:
            choice["native_finish_reason"] = native
        frames = [b'%b,"choices":%b}\n\n' % (self._about, _json([choice]))]
        if usage_of_run(state) is not None:
            usage = _json(_usage(state))
            frames.append(b'%b,"choices":[],"usage":%b}\n\n' % (self._about, usage))
        return [*frames, DONE]


def failure(error: ErrorInfo) -> list[Frame]:
    """What the SDKs raise as an `APIError`, and the end."""
    about = {
        "message": error.message or error.code,
        "type": "server_error",
        "param": error.param,
        "code": error.code,
    }
    return [b"data: %b\n\n" % _json({"error": about}), DONE]


def _usage(state: State) -> Json:
    """What the whole run used, in the words of this API."""
    used = usage_json(state)
    return {
        "prompt_tokens": used["input_tokens"],
        "completion_tokens": used["output_tokens"],
        "total_tokens": used["total_tokens"],
        "prompt_tokens_details": used["input_tokens_details"],
        "completion_tokens_details": used["output_tokens_details"],
    }
