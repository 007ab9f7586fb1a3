"""A conversation as the `UIMessage[]` that `useChat` starts from.

A message is what the AI SDK's reducer (`processUIMessageStream`) makes of a run's chunks. So a page
that loads the list shows the same as a page that followed the streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tailrace.core.errors import MalformedJson
from tailrace.core.fold import State
from tailrace.core.items import FilePart, ImageUrlPart
from tailrace.core.partial_json import PartialJson
from tailrace.core.state import TaskNode
from tailrace.core.tool_arguments import decoded
from tailrace.core.values import Json
from tailrace.history.content import HistoryPart, joined, plain
from tailrace.history.inputs import ClientOutput, InputCall, InputMessage, read_input
from tailrace.wire.base import DONE_FRAME, Frame, frame_json
from tailrace.wire.vercel_ui.chunks import image_type
from tailrace.wire.vercel_ui.object import START_STEP, UiMessage

_ROLES = ("user", "assistant", "system")
_TEXTS = ("text", "reasoning")
_TOOL_STATES = {
    "tool-input-available": "input-available",
    "tool-input-error": "output-error",
    "tool-output-available": "output-available",
    "tool-output-error": "output-error",
}


def ui_messages(chain: Sequence[State]) -> list[Json]:
    """The messages of a chain of runs: the input of each run, then its answer."""
    messages: list[Json] = []
    for state in chain:
        if state.root is not None:
            _add_input(messages, state.root)
            _add_answer(messages, state)
    return messages


# --- input ---------------------------------------------------------------------------------------


def _add_input(messages: list[Json], root: TaskNode) -> None:
    value: Any = root.facts.get("input")
    is_list = isinstance(value, list) and any(map(_is_ui_message, value))
    for given in value if is_list else [value]:
        ident = f"{root.task_id}_in{len(messages)}"
        if _is_ui_message(given):
            named = given["id"] if isinstance(given.get("id"), str) else ident
            parts = [dict(part) for part in given["parts"]]
            _put(messages, {**given, "id": named, "parts": parts})
        else:
            _read(messages, [given] if is_list else given, root)


def _is_ui_message(value: Any) -> bool:
    """Whether a value is a message that a page sent, with parts."""
    if not isinstance(value, dict) or value.get("role") not in _ROLES:
        return False
    parts = value.get("parts")
    return isinstance(parts, list) and bool(parts) and all(isinstance(part, dict) for part in parts)


def _put(messages: list[Json], message: Json) -> None:
    """Add a message. A page that ran a tool sends the answer again, with the tool's output."""
    for index, known in enumerate(messages):
        if known["id"] == message["id"]:
            messages[index] = message
            return
    messages.append(message)


def _read(messages: list[Json], value: Any, root: TaskNode) -> None:
    """Read an input of another API."""
    for given in read_input(value):
        ident = f"{root.task_id}_in{len(messages)}"
        if isinstance(given, InputMessage):
            role = given.role if given.role in _ROLES else "system"
            parts = [_part(piece) for piece in given.pieces]
            messages.append({"id": ident, "role": role, "parts": parts})
        elif isinstance(given, InputCall):
            part = {
                "type": "dynamic-tool",
                "toolName": given.name,
                "toolCallId": given.call_id,
                "state": "input-available",
                "input": decoded(given.arguments, given.arguments),
            }
            messages.append({"id": ident, "role": "assistant", "parts": [part]})
        elif isinstance(given, ClientOutput):
            _take_output(messages, given)


def _part(piece: HistoryPart) -> Json:
    if isinstance(piece, ImageUrlPart):
        url = piece.image_url.url
        return {"type": "file", "url": url, "mediaType": image_type(url)}
    if isinstance(piece, FilePart):
        name = {} if piece.name is None else {"filename": piece.name}
        return {"type": "file", "url": piece.url, "mediaType": piece.mime_type, **name}
    return {"type": "text", "text": plain(piece)}


def _take_output(messages: list[Json], given: ClientOutput) -> None:
    """Give a call of the client its output."""
    text = joined(given.pieces)
    for message in messages:
        for part in message["parts"]:
            if part.get("toolCallId") == given.call_id:
                part["state"] = "output-error" if given.failed else "output-available"
                part |= {"errorText": text} if given.failed else {"output": decoded(text, text)}


# --- answers -------------------------------------------------------------------------------------


def _add_answer(messages: list[Json], state: State) -> None:
    """Add the chunks of a run to a new message, or to the message that the run continues."""
    message: Json = {"id": "", "role": "assistant", "parts": []}
    frames = UiMessage(state).whole(START_STEP)
    ident = frame_json(frames[0])["messageId"]
    if messages and messages[-1]["id"] == ident:
        message = messages.pop()
    messages.append(reduced(message, frames))


def reduced(message: Json, frames: Iterable[Frame]) -> Json:
    """A message with the chunks of a stream added to it."""
    made = _Message(message)
    for frame in frames:
        if frame != DONE_FRAME:
            made.take(frame_json(frame))
    return message


class _Message:
    def __init__(self, message: Json) -> None:
        self._message = message
        self._parts: list[Json] = message["parts"]
        self._texts: dict[str, Json] = {}

    def take(self, chunk: Json) -> None:
        kind: str = chunk["type"]
        if kind == "start":
            self._message["id"] = chunk["messageId"]
        if "messageMetadata" in chunk:
            known = self._message.get("metadata") or {}
            self._message["metadata"] = {**known, **chunk["messageMetadata"]}
        what, _, stage = kind.partition("-")
        if what in _TEXTS:
            self._text(what, stage, chunk)
        elif what == "tool":
            self._tool(kind, chunk)
        elif what in ("data", "file", "source"):
            if not chunk.get("transient"):
                self._parts.append(chunk)
        elif kind == "start-step":
            self._parts.append({"type": "step-start"})

    def _text(self, what: str, stage: str, chunk: Json) -> None:
        ident = chunk["id"]
        if stage == "start":
            part: Json = {"type": what, "text": "", "state": "streaming"}
            part |= {"id": ident} if what == "reasoning" else {}
            part |= _only(chunk, "providerMetadata")
            self._texts[ident] = part
            self._parts.append(part)
        elif stage == "delta":
            self._texts[ident]["text"] += chunk["delta"]
        else:
            self._texts[ident] |= {"state": "done", **_only(chunk, "citations")}

    def _tool(self, kind: str, chunk: Json) -> None:
        if kind == "tool-input-start":
            name = chunk["toolName"]
            is_dynamic = chunk.get("dynamic") is True
            part = {"type": "dynamic-tool", "toolName": name} if is_dynamic else {}
            part |= {} if is_dynamic else {"type": f"tool-{name}"}
            part |= {"toolCallId": chunk["toolCallId"], "state": "input-streaming"}
            part |= _only(chunk, "providerExecuted", "inputEncoding")
            self._parts.append(part | _about_call(chunk))
            return
        part = next(part for part in self._parts if part.get("toolCallId") == chunk["toolCallId"])
        if kind == "tool-input-delta":
            text = chunk["inputTextDelta"]
            part |= {"rawInput": text, **_partial(text, part.get("inputEncoding") == "text")}
        elif kind == "tool-approval-request":
            why = {"requestReason": chunk["reason"]} if "reason" in chunk else {}
            part |= {"state": "approval-requested", "approval": {"id": chunk["approvalId"], **why}}
        else:
            for name in ("rawInput", "inputEncoding"):
                part.pop(name, None)
            part |= _only(chunk, "input", "output", "errorText", "providerExecuted")
            part |= {"state": _TOOL_STATES[kind], **_about_call(chunk)}


def _only(chunk: Json, *names: str) -> Json:
    return {name: chunk[name] for name in names if name in chunk}


def _about_call(chunk: Json) -> Json:
    found = chunk.get("providerMetadata")
    return {} if found is None else {"callProviderMetadata": found}


def _partial(text: str, is_text: bool) -> Json:
    """The input of a call that is still written."""
    if is_text:
        return {"input": text}
    partial = PartialJson()
    try:
        partial.feed(text)
    except MalformedJson:
        return {}
    return {} if partial.value is None else {"input": partial.value}
