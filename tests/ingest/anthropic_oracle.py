"""What a stream of Anthropic's says, by plain concatenation; it knows nothing of the ingest.

Beside it, what the next request would hold if it were made from a task's object.
"""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]

_PIECES = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("partial_json", "json"),
}
_KINDS = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
}
_WAITING = (None, "end_turn", "tool_use", "stop_sequence")


class StreamedBlock:
    """A content block so far."""

    def __init__(self, start: Json) -> None:
        self.block = dict(start)
        self.pieces = {"text": "", "thinking": "", "json": ""}
        self.citations = list(start.get("citations") or [])
        # Results come whole when they begin.
        self.stopped = str(start["type"]).endswith("tool_result")
        self.followed = False
        """Whether another block began after it had stopped."""

    def more(self, delta: Json) -> None:
        if delta["type"] in _PIECES:
            source, target = _PIECES[delta["type"]]
            self.pieces[target] += delta[source]
        elif delta["type"] == "citations_delta":
            self.citations.append(delta["citation"])
        elif delta["type"] in ("signature_delta", "compaction_delta"):
            self.block.update({name: one for name, one in delta.items() if name != "type"})

    @property
    def is_call(self) -> bool:
        return str(self.block["type"]).endswith("tool_use")

    @property
    def is_unknown(self) -> bool:
        """Whether it is a block that any delta may be about."""
        kind = str(self.block["type"])
        return not (self.is_call or kind.endswith(("thinking", "tool_result")) or kind == "text")

    @property
    def arguments(self) -> str:
        """A call's arguments as they were streamed, or came whole."""
        given = self.block.get("input")
        return self.pieces["json"] or (json.dumps(given) if given else "")

    def text(self, name: str) -> str:
        return (self.block.get(name) or "") + self.pieces[name]

    def whole(self) -> Json:
        block = dict(self.block)
        block.pop("citations", None)
        for name in ("text", "thinking"):
            if name in block or self.pieces[name]:
                block[name] = self.text(name)
        if self.citations:
            block["citations"] = self.citations
        if self.is_call:
            block["input"] = json.loads(self.arguments or "{}")
        return block


class StreamedMessage:
    """One message."""

    def __init__(self, start: Json) -> None:
        self.id = start.get("id")
        self.stop_reason = start.get("stop_reason") or None
        self.usage = dict(start.get("usage") or {})
        self.ended = False
        self.open: dict[int, StreamedBlock] = {}
        self.strays: dict[tuple[int, str], StreamedBlock] = {}
        self.blocks = [StreamedBlock(block) for block in start.get("content") or []]
        for at, block in enumerate(self.blocks):
            block.stopped, block.followed = True, at + 1 < len(self.blocks)

    def begin(self, index: int, start: Json) -> None:
        for before in self.blocks:
            before.followed = before.followed or before.stopped
        self._left(index)
        self.open[index] = StreamedBlock(start)
        self.blocks.append(self.open[index])

    def taking(self, index: int, delta: Json) -> StreamedBlock | None:
        """The block that a delta is for: one of its own kind, wherever it came."""
        streamed, kind = self.open.get(index), _KINDS.get(delta["type"])
        if kind is None or (streamed and (streamed.block["type"] == kind or streamed.is_unknown)):
            return streamed
        if (index, kind) not in self.strays and delta.get(kind):
            for before in self.blocks:
                before.followed = before.followed or before.stopped
            self.strays[index, kind] = StreamedBlock({"type": kind, kind: ""})
            self.blocks.append(self.strays[index, kind])
        return self.strays.get((index, kind))

    def stop(self, index: int) -> None:
        for streamed in (self.open.pop(index, None), *self._left(index)):
            if streamed is not None:
                streamed.stopped = True

    def _left(self, index: int) -> list[StreamedBlock | None]:
        return [self.strays.pop((index, kind), None) for kind in ("text", "thinking")]

    def end(self) -> None:
        """All blocks are whole now, except a call that has not stopped."""
        self.ended = True
        for streamed in (*self.open.values(), *self.strays.values()):
            streamed.stopped = streamed.stopped or not streamed.is_call

    def sendable(self) -> list[Json]:
        """The blocks that came whole, which is what may ever be sent back or carried out."""
        return [
            streamed.whole()
            for at, streamed in enumerate(self.blocks)
            if self._is_whole(at, streamed)
        ]

    def _is_whole(self, at: int, streamed: StreamedBlock) -> bool:
        if not streamed.stopped:
            return False
        if streamed.block["type"] == "text":
            # A message item holds the texts that follow each other; it is whole or it is not.
            run = [streamed]
            for other in (*self.blocks[at + 1 :], None):
                if other is None:
                    return self.ended and all(one.stopped for one in run)
                if other.block["type"] != "text":
                    break
                run.append(other)
            return all(one.stopped for one in run)
        if streamed.is_call and streamed.arguments:
            try:
                return isinstance(json.loads(streamed.arguments), dict)
            except ValueError:
                return False
        if streamed.is_call:
            return streamed.followed or (self.ended and self.stop_reason in _WAITING)
        return True


def messages_of(events: list[str]) -> list[StreamedMessage]:
    """The messages of a stream; a start that is repeated begins nothing, an error ends all."""
    messages: list[StreamedMessage] = []
    for line in events:
        event = json.loads(line)
        kind = event["type"]
        last = messages[-1] if messages else None
        if kind == "error":
            break
        if kind == "message":
            messages.append(StreamedMessage(event))
            messages[-1].ended = True
        elif kind == "message_start":
            if last is None or last.id != event["message"].get("id"):
                messages.append(StreamedMessage(event["message"]))
        elif last is not None and not last.ended:
            _apply(last, kind, event)
    return messages


def _apply(last: StreamedMessage, kind: str, event: Json) -> None:
    if kind == "content_block_start":
        last.begin(event["index"], event["content_block"])
    elif kind == "content_block_delta":
        streamed = last.taking(event["index"], event["delta"])
        if streamed is not None:
            streamed.more(event["delta"])
    elif kind == "content_block_stop":
        last.stop(event["index"])
    elif kind == "message_delta":
        usage = event.get("usage") or {}
        delta = event.get("delta") or {}
        last.stop_reason = delta.get("stop_reason") or last.stop_reason
        last.usage.update({name: one for name, one in usage.items() if one is not None})
    elif kind == "message_stop":
        last.end()


_EVENTS = ("message", "message_start", "message_delta", "message_stop", "ping")
_BLOCK_EVENTS = ("content_block_start", "content_block_stop")
_DELTAS = (*_PIECES, "citations_delta", "signature_delta", "compaction_delta")


def unshown(lines: list[str]) -> list[Json]:
    """The events that say something which no item has a place for."""
    events = [json.loads(line) for line in lines]
    known = (*_EVENTS, *_BLOCK_EVENTS)
    return [
        event
        for event in events
        if event["type"] not in known and (event.get("delta") or {}).get("type") not in _DELTAS
    ]


def sent_back(shown: Json) -> list[Json]:
    """The content blocks that a task's whole object gives back, completed items only."""
    blocks: list[Json] = []
    for item in shown["output"]:
        if item.get("status", "completed") == "incomplete":
            continue
        private = item["private"]
        raw = private.get("raw")
        if raw is not None:
            blocks += raw if isinstance(raw, list) else [raw]
        elif item["type"] == "message":
            blocks += [{"type": "text", "text": block["text"]} for block in item["block_list"]]
        elif private["provider"].get("type") == "redacted_thinking":
            blocks.append({"type": "redacted_thinking", "data": private["encrypted_content"]})
        elif item["type"] == "reasoning":
            thinking = "".join(part["text"] for part in item["summary"])
            signature = private.get("signature", "")
            blocks.append({"type": "thinking", "thinking": thinking, "signature": signature})
        else:
            assert item["type"] == "tool_call", item
            ident = private["provider"].get("call_id", item["call_id"])
            arguments = json.loads(item["arguments"])
            name = item["name"]
            blocks.append({"type": "tool_use", "id": ident, "name": name, "input": arguments})
    return blocks


def sealed(value: Any) -> list[str]:
    """What only Anthropic can read: none of it is for clients."""
    if isinstance(value, list | tuple):
        return [one for part in value for one in sealed(part)]
    if not isinstance(value, dict):
        return []
    if value.get("type") == "redacted_thinking":
        return [value["data"]]
    return [
        one
        for name, part in value.items()
        for one in (
            [part] if name.startswith("encrypted_") or name == "signature" else sealed(part)
        )
        if one and isinstance(one, str)
    ]


def leaves(value: Any) -> list[str]:
    """All strings in a result that are for people: neither types nor sealed."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [leaf for one in value for leaf in leaves(one)]
    if isinstance(value, dict):
        return [
            leaf
            for name, one in value.items()
            if name not in ("type", "media_type", "stop_reason")
            and not name.startswith("encrypted_")
            for leaf in leaves(one)
        ]
    return []


def beside_of(usage: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls that a message's own totals leave out."""
    iterations = usage.get("iterations") or ()
    return [one for one in iterations if one["type"] in ("compaction", "advisor_message")]
