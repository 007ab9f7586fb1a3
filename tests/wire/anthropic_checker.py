"""A strict reader of a Messages stream that shares nothing with its writer.

It knows two things: the types that anthropic-python publishes (those of its beta, which name the
blocks of other servers' tools), and the order of Anthropic's own streams, which is what the SDKs
build upon. Whatever it lets pass, they take; what it gives back is what a client ends up with.
"""

from __future__ import annotations

import json
from typing import Any, get_args

from anthropic.types.beta import BetaRawMessageStreamEvent
from pydantic import BaseModel

from tests.wire.frames import events_of

Json = dict[str, Any]

_EVENTS: dict[str, type[BaseModel]] = {
    get_args(model.model_fields["type"].annotation)[0]: model
    for model in get_args(get_args(BetaRawMessageStreamEvent)[0])
}
_PIECES = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
    "mcp_tool_use": ("input_json_delta", "partial_json"),
}
_EMPTY: dict[str, Json] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}
_HANDOFF = {"BetaRawContentBlockStartEvent": {"model"}, "Delta": {"model"}}
"""Fields of our own: the agent that took over."""
_WHOLE = ("mcp_tool_use", "mcp_tool_result")


def _extras(model: Any) -> None:
    if isinstance(model, list):
        for one in model:
            _extras(one)
    if isinstance(model, BaseModel):
        name = type(model).__name__
        extra = set(model.model_extra or ()) - _HANDOFF.get(name, set())
        assert not extra, f"{name} has no {extra}"
        for field in type(model).model_fields:
            _extras(getattr(model, field))


class MessageReader:
    """A client of the stream: feed it frames, look at `content` and how it ended."""

    def __init__(self) -> None:
        self.message: Json | None = None
        self.content: list[Json] = []
        self.stop_reason: str | None = None
        self.usage: Json = {}
        self.error: Json | None = None
        self.is_done = False
        """Whether there was a `message_stop`, or an error."""
        self._open: Json | None = None
        self._pieces: list[str] = []
        self._signed = False
        self._calls: dict[str, bool] = {}
        """The calls by their ids, and whether a result may come for them."""

    def read(self, frames: list[bytes]) -> MessageReader:
        """Take frames, or fail with what is wrong."""
        for event in events_of(frames):
            self._read(event)
        return self

    def texts(self, kind: str = "text") -> list[str]:
        """What the blocks of one kind say."""
        return [block[kind] for block in self.content if block["type"] == kind]

    def _read(self, event: Json) -> None:
        kind = event["type"]
        assert not self.is_done, f"{kind} after the end"
        if kind == "ping":
            assert event == {"type": "ping"}
            return
        if kind == "error":
            self._failed(event)
            return
        _extras(_EVENTS[kind].model_validate_json(json.dumps(event), strict=True))
        if kind == "message_start":
            self._started(event["message"])
            return
        assert self.message is not None, f"{kind} before message_start"
        if kind == "message_delta":
            self._delta(event)
        elif kind == "message_stop":
            assert self.stop_reason is not None, "message_stop before message_delta"
            self.is_done = True
        else:
            assert self.stop_reason is None, f"{kind} after message_delta"
            self._about_block(kind, event)

    def _failed(self, event: Json) -> None:
        assert event.keys() == {"type", "error"}
        assert event["error"].keys() == {"type", "message"}
        assert event["error"]["type"].endswith("_error")
        assert isinstance(event["error"]["message"], str)
        self.error = event["error"]
        self.is_done = True

    def _started(self, message: Json) -> None:
        assert self.message is None, "a stream has one message"
        assert message["id"]
        assert message["content"] == []
        assert message["stop_reason"] is None
        self.message = message

    def _delta(self, event: Json) -> None:
        assert self.stop_reason is None, "message_delta comes once"
        assert self._open is None, "a block is open"
        self.stop_reason, self.usage = event["delta"]["stop_reason"], event["usage"]
        assert self.stop_reason is not None
        if self.stop_reason == "tool_use":
            assert any(block["type"] == "tool_use" for block in self.content)

    def _about_block(self, kind: str, event: Json) -> None:
        if kind == "content_block_start":
            assert self._open is None, "one block at a time"
            assert event["index"] == len(self.content), "indexes count without holes"
            self._begin(event["content_block"])
            return
        assert self._open is not None, f"{kind} without a block"
        assert event["index"] == len(self.content), "an event of another block"
        if kind == "content_block_delta":
            self._more(event["delta"])
        else:
            self._stop()

    def _begin(self, block: Json) -> None:
        kind = block["type"]
        if kind in _EMPTY:
            for name, value in _EMPTY[kind].items():
                assert block[name] == value, f"a {kind} begins empty"
        else:
            assert kind in _WHOLE, f"an unexpected {kind}"
        if kind.endswith("tool_use"):
            assert block["id"]
            assert block["id"] not in self._calls, "ids of calls are new"
            self._calls[block["id"]] = kind == "mcp_tool_use"
        if kind == "mcp_tool_result":
            assert self._calls[block["tool_use_id"]], "no call waits for this result"
            self._calls[block["tool_use_id"]] = False
        self._open, self._pieces, self._signed = dict(block), [], False

    def _more(self, delta: Json) -> None:
        assert self._open is not None
        kind = self._open["type"]
        if delta["type"] == "citations_delta":
            assert kind == "text"
            self._open.setdefault("citations", []).append(delta["citation"])
        elif delta["type"] == "signature_delta":
            assert kind == "thinking"
            assert not self._signed, "a signature comes once"
            assert delta["signature"], "the AI SDK drops thinking without a signature"
            self._signed = True
            self._open["signature"] = delta["signature"]
        else:
            name, field = _PIECES[kind]
            assert delta["type"] == name, f"a {delta['type']} in a {kind}"
            assert not self._signed, "the signature comes last"
            self._pieces.append(delta[field])

    def _stop(self) -> None:
        assert self._open is not None
        block, text = self._open, "".join(self._pieces)
        kind = block["type"]
        if kind == "tool_use":
            block["input"] = json.loads(text)
            assert isinstance(block["input"], dict)
        elif kind == "mcp_tool_use":
            assert json.loads(text or "null") == (None if block["input"] else {})
        elif kind not in _WHOLE:
            assert text, "Anthropic refuses empty texts"
            assert self._signed == (kind == "thinking")
            block[kind] = text
        self.content.append(block)
        self._open = None
