"""A conversation as AG-UI's messages, as `MESSAGES_SNAPSHOT` has them.

An answer is what `@ag-ui/client` makes of a run's events (`defaultApplyEvents`). So a client that
starts from the list holds the same as a client that followed the streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tailrace.core.data_url import read_data_url
from tailrace.core.fold import State
from tailrace.core.items import FilePart, ImageUrlPart, TextPart
from tailrace.core.values import Json, dict_of, text_or_none
from tailrace.history.content import HistoryPart, joined, plain
from tailrace.history.inputs import ClientOutput, InputCall, InputMessage, is_aside, read_input
from tailrace.wire.base import Frame, frame_json


def messages_of(chain: Sequence[State], opening: Callable[[State], list[Frame]]) -> list[Json]:
    """The messages of a chain of runs. `opening` has the events of a run so far."""
    conversation = _Messages()
    for state in chain:
        if state.root is not None:
            conversation.read(state.root.facts.get("input"), state.root.task_id)
            for frame in opening(state):
                conversation.take(frame_json(frame))
    return conversation.all


class _Messages:
    def __init__(self) -> None:
        self.all: list[Json] = []
        self._by_id: dict[str, Json] = {}
        self._calls: dict[str, Json] = {}

    def read(self, value: Any, run_id: str) -> None:
        """Add the input of a run. A message keeps the id that its client gave it."""
        is_named = isinstance(value, list) and any(map(_own_id, value))
        for group in [[item] for item in value] if is_named else [value]:
            named = _own_id(group[0]) if is_named else None
            if is_named and is_aside(group[0]):
                self._add({"id": f"{run_id}_in{len(self.all)}", **group[0]})
            for given in read_input(group):
                ident = f"{run_id}_in{len(self.all)}"
                if named is not None and named not in self._by_id:
                    ident = named
                self._add_given(given, ident)

    def _add_given(self, given: Any, ident: str) -> None:
        if isinstance(given, InputMessage):
            content: Any = joined(given.pieces)
            if given.role == "user" and not all(isinstance(p, TextPart) for p in given.pieces):
                content = [_part(piece) for piece in given.pieces]
            self._add({"id": ident, "role": given.role, "content": content})
        elif isinstance(given, InputCall):
            self._call(ident, given.call_id, given.name, given.arguments, {})
        elif isinstance(given, ClientOutput):
            text = joined(given.pieces)
            error = {"error": text} if given.failed else {}
            result = {"id": ident, "role": "tool", "content": text, "toolCallId": given.call_id}
            self._result(result | error)

    def take(self, event: Json) -> None:
        """Apply an event of a run."""
        kind, tag = event["type"], {}
        if "subagentRunId" in event:
            tag = {"subagentRunId": event["subagentRunId"]}
        if kind == "TEXT_MESSAGE_START":
            role = event.get("role", "assistant")
            self._add({"id": event["messageId"], "role": role, "content": "", **tag})
        elif kind == "REASONING_MESSAGE_START":
            self._add({"id": event["messageId"], "role": "reasoning", "content": "", **tag})
        elif kind in ("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT"):
            self._by_id[event["messageId"]]["content"] += event["delta"]
        elif kind == "TOOL_CALL_START":
            self._call(event["toolCallId"], event["toolCallId"], event["toolCallName"], "", tag)
        elif kind == "TOOL_CALL_ARGS":
            self._calls[event["toolCallId"]]["arguments"] += event["delta"]
        elif kind == "TOOL_CALL_RESULT":
            about = {"id": event["messageId"], "role": "tool", "content": event["content"]}
            self._result({**about, "toolCallId": event["toolCallId"], **tag})
        elif kind == "ACTIVITY_SNAPSHOT":
            about = {"activityType": event["activityType"], "content": event["content"]}
            self._add({"id": event["messageId"], "role": "activity", **about, **tag})

    def _add(self, message: Json) -> None:
        """Add a message; it replaces a message with the same id, as progress does."""
        known = self._by_id.get(message["id"])
        if known is None:
            self.all.append(message)
            self._by_id[message["id"]] = message
        else:
            known.update(message)

    def _call(self, ident: str, call_id: str, name: str, arguments: str, tag: Json) -> None:
        function = {"name": name, "arguments": arguments}
        self._calls[call_id] = function
        calls = [{"id": call_id, "type": "function", "function": function}]
        self._add({"id": ident, "role": "assistant", "toolCalls": calls, **tag})

    def _result(self, result: Json) -> None:
        """Put a result behind its call and the results that are there."""
        place = len(self.all)
        for index, message in enumerate(self.all):
            if any(call["id"] == result["toolCallId"] for call in message.get("toolCalls", ())):
                place = index + 1
                while place < len(self.all) and self.all[place]["role"] == "tool":
                    place += 1
                break
        self.all.insert(place, result)
        self._by_id[result["id"]] = result


def _own_id(item: Any) -> str | None:
    ident = dict_of(item).get("id")
    return text_or_none(ident)


def _part(piece: HistoryPart) -> Json:
    if isinstance(piece, ImageUrlPart):
        return {"type": "image", "source": _source(piece.image_url.url, None)}
    if isinstance(piece, FilePart):
        kind = piece.mime_type.partition("/")[0]
        kind = kind if kind in ("image", "audio", "video") else "document"
        return {"type": kind, "source": _source(piece.url, piece.mime_type)}
    return {"type": "text", "text": plain(piece)}


def _source(url: str, mime_type: str | None) -> Json:
    found = read_data_url(url)
    if found is not None:
        return {"type": "data", "value": found[1], "mimeType": found[0]}
    return {"type": "url", "value": url, **({"mimeType": mime_type} if mime_type else {})}
