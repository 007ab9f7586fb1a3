"""A run as OpenAI's `chat.completion` object: the chunks of its replay, put together."""

from __future__ import annotations

from typing import Any

from tailrace.core.fold import State
from tailrace.core.state_copy import copy_state
from tailrace.core.values import Json
from tailrace.wire.base import DONE_FRAME, Frame, frame_json
from tailrace.wire.openai_chat.encoder import ChatEncoder

_HEAD = ("id", "created", "model")


def completion(state: State) -> Json:
    """The run as a `chat.completion`; `{"error": …}` if the run has no answer."""
    frames: list[Frame] = []
    ChatEncoder(copy_state(state), replay=frames)
    chunks = [frame_json(frame) for frame in frames if frame != DONE_FRAME]
    message: Json = {"role": "assistant", "content": None, "refusal": None}
    choice: Json = {"index": 0, "message": message, "logprobs": None, "finish_reason": None}
    found: Json = {"object": "chat.completion", "choices": [choice], "usage": None}
    for chunk in chunks:
        if "error" in chunk:
            return {"error": chunk["error"]}
        found |= {name: chunk[name] for name in _HEAD}
        found["usage"] = chunk.get("usage")
        for piece in chunk["choices"]:
            for name, value in piece.pop("delta").items():
                _add(message, name, value)
            choice |= piece
    return found


def _add(message: Json, name: str, value: Any) -> None:
    """Add a delta's field to the message."""
    if name == "tool_calls":
        calls = message.setdefault(name, [])
        for entry in value:
            if entry.pop("index") < len(calls):
                calls[-1]["function"]["arguments"] += entry["function"]["arguments"]
            else:
                calls.append(entry)
    elif isinstance(value, list):
        entries = [{key: entry[key] for key in entry if key != "index"} for entry in value]
        message.setdefault(name, []).extend(entries)
    elif name != "role" and value:
        message[name] = (message.get(name) or "") + value
