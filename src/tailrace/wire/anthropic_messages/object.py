"""A run as Anthropic's `message` object: the events of its replay, put together."""

from __future__ import annotations

from tailrace.core.fold import State
from tailrace.core.state_copy import copy_state
from tailrace.core.tool_arguments import decoded
from tailrace.core.values import Json
from tailrace.wire.anthropic_messages.encoder import MessagesEncoder
from tailrace.wire.base import frame_json

_TEXTS = ("text", "thinking", "signature")


def message_object(state: State) -> Json:
    """The run as a `message`; `{"type": "error", "error": …}` if the run has no answer."""
    message: Json = {}
    block: Json = {}
    arguments: list[str] = []
    for frame in MessagesEncoder(copy_state(state), joined=True).opening():
        event = frame_json(frame)
        kind = event["type"]
        if kind == "error":
            return dict(event)
        if kind == "message_start":
            message = event["message"]
        elif kind == "content_block_start":
            block, arguments = event["content_block"], []
            message["content"].append(block)
        elif kind == "content_block_delta":
            delta = event["delta"]
            if "partial_json" in delta:
                arguments.append(delta["partial_json"])
                block["input"] = decoded("".join(arguments)) or {}
            elif "citation" in delta:
                block.setdefault("citations", []).append(delta["citation"])
            for name in _TEXTS:
                if name in delta:
                    block[name] += delta[name]
        elif kind == "message_delta":
            message |= event["delta"]
            message["usage"] = event["usage"]
    return message
