"""The content blocks of Anthropic's messages as items.

`open_block` chooses the item by the type of the block; `reader.py` has the table of types.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from tailrace.core import events as ev
from tailrace.core.event_sink import Sink
from tailrace.core.items import RawItem, Status
from tailrace.core.tool_arguments import decoded
from tailrace.core.values import MOST_TOKENS, Json, count_of, json_text, list_of, text_or_none
from tailrace.core.writers import ArgumentsWriter, ReasoningWriter, ResultWriter
from tailrace.ingest.anthropic_messages.texts import TextMessage
from tailrace.ingest.anthropic_messages.values import (
    COMPACTED,
    keepable,
    result_blocks,
    result_error,
    visible,
)
from tailrace.ingest.base import ExecutorOf
from tailrace.ingest.unknown import has_unknown

API = "anthropic_messages"
"""The name of this API in private parts and raw events."""


class OpenBlock(Protocol):
    """A content block between its start and its stop."""

    is_call: bool
    """Whether the block is a call."""

    def delta(self, delta: Json) -> bool:
        """Take a delta; False if this type of block has no such delta."""
        ...

    def stop(self) -> None:
        """Complete the block."""
        ...

    def cut(self) -> None:
        """End the block as incomplete."""
        ...


class MessageContext:
    """The state that the blocks of a stream share."""

    def __init__(self, sink: Sink, executor_of: ExecutorOf) -> None:
        self.sink = sink
        self.executor_of = executor_of
        self.message_id: str | None = None
        self.texts: TextMessage | None = None
        """The message of the next text block, if the last block was a text."""
        self.calls: dict[str, str | None] = {}
        """From the provider's id of a call to ours, or None if the provider sends no result."""
        self.unsure: list[_CallBlock] = []
        """Calls that stopped without arguments: they have no arguments, or were cut."""
        self.has_broken_call = False
        """Whether a call of the current message is incomplete."""

    def private(self, provider: Json | None = None, **sealed: Any) -> ev.Private:
        """The private part of an item of the current message."""
        facts = {"api": API, "message_id": self.message_id, **(provider or {})}
        kept = {name: value for name, value in facts.items() if value is not None}
        return ev.Private(provider=kept, **sealed)

    def leave_texts(self) -> None:
        """End the message of the last text block: the next block is not a text."""
        if self.texts is not None:
            self.texts.leave()
            self.texts = None

    def settle(self, *, whole: bool) -> None:
        """Complete or cut the calls without arguments."""
        for call in self.unsure:
            if whole:
                call.complete("{}", {})
            else:
                call.cut()
        self.unsure.clear()


def open_block(answer: MessageContext, block: Json) -> OpenBlock:
    """Begin the item of a content block; an unknown block is kept raw."""
    kind = block.get("type")
    if kind == "text":
        if answer.texts is None:
            answer.texts = TextMessage(answer.sink, answer.private)
        return answer.texts.open(block)
    answer.leave_texts()
    if kind == "thinking":
        return _ThinkingBlock(answer, block)
    if kind == "redacted_thinking" and isinstance(block.get("data"), str):
        return _RedactedBlock(answer, block)
    if kind in _CALLS and isinstance(block.get("name"), str):
        return _CallBlock(answer, block)
    if isinstance(kind, str) and kind.endswith("tool_result"):
        if not _wrote_result(answer, block):
            _RawBlock(answer, block).stop()
        return _WholeBlock()
    return _RawBlock(answer, block)


# --- thinking ----------------------------------------------------------------------------------


class _Block(ABC):
    """A block that is closed in one way, completed or not."""

    is_call = False

    @abstractmethod
    def _close(self, status: Status) -> None:
        """Close what was written of the block."""

    def stop(self) -> None:
        self._close("completed")

    def cut(self) -> None:
        self._close("incomplete")


class _ThinkingBlock(_Block):
    """Thinking, with the signature that proves it to Anthropic when it is sent back.

    It is written as a summary, because newer models send a summary of their thinking, and because
    clients show summaries and mostly hide raw reasoning.
    """

    def __init__(self, answer: MessageContext, block: Json) -> None:
        self._answer = answer
        self._start = block
        self._writer = ReasoningWriter(answer.sink)
        self._signature = block.get("signature")
        self._estimate: int | None = None
        self._think(block.get("thinking"))

    def _think(self, piece: Any) -> bool:
        if piece and isinstance(piece, str):
            self._writer.summary(piece)
        return isinstance(piece, str)

    def delta(self, delta: Json) -> bool:
        kind = delta.get("type")
        if kind == "thinking_delta":
            if estimate := count_of(delta.get("estimated_tokens")):
                # The only fact about hidden thinking. The sum is limited.
                self._estimate = min((self._estimate or 0) + estimate, MOST_TOKENS)
            return self._think(delta.get("thinking"))
        if kind == "signature_delta" and isinstance(delta.get("signature"), str):
            # Whole each time, as in Anthropic's SDKs: the last signature counts.
            self._signature = delta["signature"]
            return True
        return False

    def _close(self, status: Status) -> None:
        signature = text_or_none(self._signature)
        raw: Json | None = None
        if has_unknown(self._start, ("type", "thinking", "signature")):
            thinking = "".join(part.text for part in self._writer.summaries)
            raw = {**self._start, "thinking": thinking, "signature": signature}
        private = self._answer.private(
            {"estimated_tokens": self._estimate}, signature=signature or None, raw=raw
        )
        self._writer.finish(status, private)


class _RedactedBlock(_Block):
    """Sealed thinking: nothing is shown, all of it is sent back."""

    def __init__(self, answer: MessageContext, block: Json) -> None:
        self._answer = answer
        self._start = block
        self._writer = ReasoningWriter(answer.sink)

    def delta(self, _delta: Json) -> bool:
        return False

    def _close(self, status: Status) -> None:
        private = self._answer.private(
            {"type": "redacted_thinking"},
            encrypted_content=self._start["data"],
            raw=self._start if has_unknown(self._start, ("type", "data")) else None,
        )
        self._writer.finish(status, private)


# --- calls -------------------------------------------------------------------------------------

_CALL = ("type", "id", "name", "input")
"""The known fields of a call."""
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


class _CallBlock:
    """A call of an application's tool, or of a tool that Anthropic runs."""

    is_call = True

    def __init__(self, answer: MessageContext, block: Json) -> None:
        self._answer = answer
        self._start = block
        ident, name, server = block.get("id"), block["name"], block.get("server_name")
        self._id = ident if isinstance(ident, str) and ident else None
        self._by_provider = block["type"] != "tool_use"
        if not self._by_provider:
            kind = "function"
        elif block["type"] == "mcp_tool_use":
            kind = "mcp"
        else:
            kind = name
        self._writer = ArgumentsWriter(
            answer.sink,
            name,
            call_id=self._id,
            kind=kind,
            executor="provider" if self._by_provider else answer.executor_of(name),
            server_label=text_or_none(server),
        )
        if self._id is not None:
            answer.calls[self._id] = None

    def delta(self, delta: Json) -> bool:
        piece = delta.get("partial_json")
        if delta.get("type") != "input_json_delta" or not isinstance(piece, str):
            return False
        self._writer.arguments(piece)
        return True

    def stop(self) -> None:
        """Complete the call only if its arguments are a complete object.

        A call is stopped as usual when the tokens run out, in the middle of its arguments or before
        them.
        """
        text = self._writer.text
        given = self._start.get("input")
        if text:
            arguments = decoded(text)
            if isinstance(arguments, dict):
                self.complete(text, arguments)
            else:
                self.cut()
        elif given and isinstance(given, dict):
            # Calls from within Anthropic's code execution come with their input at once.
            self.complete(json_text(given), given)
        else:
            self._answer.unsure.append(self)

    def complete(self, text: str, arguments: Json) -> None:
        """Complete the call with these arguments."""
        raw = self._raw({**self._start, "input": arguments})
        if raw is not None and not keepable(arguments):
            # Numbers that JavaScript cannot hold: the arguments of the item have them exactly.
            del raw["input"]
        self._writer.arguments_done(text)
        self._writer.finish("completed", self._private(raw))
        if self._id is not None and self._by_provider:
            self._answer.calls[self._id] = self._writer.call_id

    def cut(self) -> None:
        self._answer.has_broken_call = True
        self._writer.finish("incomplete", self._private(self._raw(self._start)))

    def _raw(self, block: Json) -> Json | None:
        """The block, if the item alone is not enough to send it back."""
        is_more = self._by_provider or has_unknown(self._start, _CALL)
        return block if is_more else None

    def _private(self, raw: Json | None) -> ev.Private:
        renamed = self._id if self._id != self._writer.call_id else None
        return self._answer.private({"id": self._id, "call_id": renamed}, raw=raw)


# --- results of Anthropic's own tools ----------------------------------------------------------


class _WholeBlock:
    """A block that came whole, as results do."""

    is_call = False

    def delta(self, _delta: Json) -> bool:
        return False

    def stop(self) -> None:
        """Do nothing: the block is complete."""

    def cut(self) -> None:
        """Do nothing: the block is complete."""


def _wrote_result(answer: MessageContext, block: Json) -> bool:
    """Write a result; False if no call waits for it."""
    ident = block.get("tool_use_id")
    if not isinstance(ident, str):
        return False
    # A result may answer a call of an earlier message, which only the sink knows: that message
    # paused (`pause_turn`), or Anthropic's code called our tool.
    known = ident in answer.calls
    call_id = answer.calls[ident] if known else answer.sink.waiting_call(ident)
    if call_id is None:
        return False
    writer = ResultWriter(answer.sink, call_id)
    renamed = ident if ident != call_id else None
    private = answer.private({"call_id": renamed}, raw=block)
    error = result_error(block)
    if error is None or block.get("is_error") is True:
        for shown in result_blocks(block.get("content")):
            writer.whole(shown)
    if error is None:
        writer.finish(private)
    else:
        writer.fail(error, private)
    answer.calls[ident] = None
    return True


# --- anything else -----------------------------------------------------------------------------

_PIECES = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("partial_json", "input"),
}
"""Deltas that append text: their field, and the field of the block."""


class _RawBlock(_Block):
    """A block of another type: compaction, fallback, and future types.

    Known deltas are applied, so that the whole block can be sent back.
    """

    def __init__(self, answer: MessageContext, block: Json) -> None:
        self._answer = answer
        self._block = dict(block)
        self._citations = [*list_of(block.get("citations"))]
        self._pieces: dict[str, list[str]] = {}
        self._id = answer.sink.new_id("raw")
        self._index = answer.sink.add(self._item("completed"))

    def _item(self, status: Status) -> RawItem:
        return RawItem(id=self._id, raw=visible(self._block), source=API, status=status)

    def delta(self, delta: Json) -> bool:
        kind = delta.get("type")
        if isinstance(kind, str) and kind in _PIECES:
            source, target = _PIECES[kind]
            piece = delta.get(source)
            if isinstance(piece, str):
                self._pieces.setdefault(target, []).append(piece)
                return True
        elif kind == "citations_delta":
            self._citations.append(delta.get("citation"))
            return True
        elif kind == "signature_delta" and isinstance(delta.get("signature"), str):
            self._block["signature"] = delta["signature"]
            return True
        elif kind == "compaction_delta":
            self._block.update((name, delta[name]) for name in COMPACTED if name in delta)
            return True
        return False

    def _close(self, status: Status) -> None:
        for name, pieces in self._pieces.items():
            self._block[name] = self._joined(name, "".join(pieces))
        if self._citations:
            self._block["citations"] = self._citations
        private = self._answer.private(raw=self._block)
        self._answer.sink.done(self._index, self._item(status), private)

    def _joined(self, name: str, text: str) -> Any:
        if name == "input":
            value = decoded(text)
            return value if value is not None and keepable(value) else text
        before = self._block.get(name)
        return before + text if isinstance(before, str) else text
