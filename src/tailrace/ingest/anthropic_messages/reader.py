"""Anthropic's Messages API: the stream of an answer, or the whole answer.

This module reads the message and the order of its blocks; `items.py` writes the blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from tailrace.core import events as ev
from tailrace.core.errors import MalformedEvent
from tailrace.core.event_sink import Sink
from tailrace.core.items import ErrorInfo, Refusal, Usage
from tailrace.core.values import Json, count_of, dict_of, dicts_of, list_of, text_or_none
from tailrace.core.writers import MessageWriter
from tailrace.ingest.anthropic_messages.items import API, MessageContext, OpenBlock, open_block
from tailrace.ingest.anthropic_messages.values import NO_FACTS, keepable, unread
from tailrace.ingest.base import (
    ExecutorOf,
    Outcome,
    cost_of,
    is_stop,
    keep_raw,
    read_json,
    server_tools,
)
from tailrace.ingest.unknown import UnknownFields

_STOPPED = {"max_tokens": "max_output_tokens"}
"""Stop reasons with another name in the protocol."""

_ANSWERED = (None, "end_turn", "tool_use", "stop_sequence")
"""Stop reasons of a complete answer."""

_STRAYS = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
}
"""Deltas that may come without a block of their type, and that type."""

_SHORTEST_DEEP_EVENT = 180
"""Shorter JSON cannot be nested too deep: each level takes two characters."""

_LONGEST_PIECE = 64 * 1024
"""Shorter deltas need no check of their size."""


class _Piece(msgspec.Struct, forbid_unknown_fields=True):
    """Base of the deltas that append text: nearly all events of a stream."""


class _TextPiece(_Piece, tag="text_delta"):
    text: str


class _ThinkingPiece(_Piece, tag="thinking_delta"):
    thinking: str
    estimated_tokens: None = None


class _ArgumentsPiece(_Piece, tag="input_json_delta"):
    partial_json: str


class _PieceEvent(msgspec.Struct, forbid_unknown_fields=True, tag="content_block_delta"):
    index: int
    delta: _TextPiece | _ThinkingPiece | _ArgumentsPiece


_decode_piece = msgspec.json.Decoder(_PieceEvent).decode


class AnthropicMessages:
    """Reads Anthropic's Messages stream.

    What becomes of each content block:

    ===========================  ================================================================
    `text`                       a text block of a `message`; texts that follow each other
                                 directly share the message. Citations come at the end of their
                                 block: `url_citation` over all of it where the source has a web
                                 address, else `raw`
    `thinking`                   `reasoning` with a summary part; its signature is private
    `redacted_thinking`          `reasoning` without parts; its data is `encrypted_content`
    `tool_use`                   `tool_call`, completed only by a stop after whole arguments
    `server_tool_use`            `tool_call`, executor `provider`, kind: the tool's name
    `mcp_tool_use`               `tool_call`, executor `provider`, kind `mcp`, with server label
    `*_tool_result`              `tool_result` of that call, if the task has it and it has none
                                 yet: texts, images, and data blocks named after their type;
                                 `failed` with the provider's error code
    anything else                `raw` item (compaction, fallback, container uploads, …)
    ===========================  ================================================================

    So the order of the items is the order of the content array. The private part of each item has
    `provider.message_id`. It has `raw` where history needs the provider's block: for built-in calls
    and results, raw items, and blocks with unknown fields. In a message `raw` is a list of blocks;
    an empty list means that nothing is sent back. Sealed fields (`encrypted_…`) are only there.

    Each message has a `task.usage` when it ends. Compaction and advisors have their own before it,
    because the totals leave them out. The totals of `message_delta` replace those of
    `message_start`. `input_tokens` is the whole input, as with OpenAI: it includes tokens read
    from the cache (`cached_input_tokens`) and written to it (`cache_write_tokens`), which Anthropic
    counts apart. The private `raw` is the message without its content: usage, container, context
    management, stop details.

    The outcome: `end_turn`, `tool_use` and `stop_sequence` are `completed`. Other stop reasons are
    `incomplete` under its own name (`pause_turn`, `refusal`, `model_context_window_exceeded`, …);
    `max_tokens` becomes `max_output_tokens`. The explanation of a refusal is shown as a refusal
    block and is not sent back. `error` is `failed` with Anthropic's code (`overloaded_error`, …).
    A stream without `message_stop` is `cut`, and so is a stream whose call is incomplete
    (`incomplete_call`).

    An event with unknown fields outside of its block or message is kept in `task.raw`, once per
    new set of unknown names. Bedrock's padding does not count. The estimated tokens of hidden
    thinking are added up (`provider.estimated_tokens`).

    Compatible servers: text and thinking in a block of another type, or in no block, become a block
    of their own. Blocks that are open at `message_stop` are complete, except calls.

    A stream may hold several messages. A second start of the same message is ignored; the start of
    another message cuts the message before it.
    """

    def __init__(self, sink: Sink, executor_of: ExecutorOf = server_tools) -> None:
        self._sink = sink
        self._answer = MessageContext(sink, executor_of)
        self._unknown = UnknownFields(sink, API)
        self._open: dict[int | None, OpenBlock] = {}
        self._strays: dict[tuple[int | None, str], OpenBlock] = {}
        self._begun: tuple[int | None, Json] | None = None  # the block start that came just now
        self._stage: Literal["before", "live", "whole"] = "before"
        self._facts: Json = {}
        self._usage: Json = {}
        self._error: ErrorInfo | None = None
        self._read: dict[str, Callable[[Json], bool]] = {
            "content_block_delta": self._content_block_delta,
            "content_block_start": self._content_block_start,
            "content_block_stop": self._content_block_stop,
            "message_start": self._message_start,
            "message_delta": self._message_delta,
            "message_stop": self._message_stop,
            "message": self._message,
            "ping": self._ping,
            "error": self._failed,
        }

    def feed(self, data: str | bytes) -> None:
        """Take the JSON of the next event, or of a whole message."""
        if not self._took_piece(data) and not is_stop(data):
            self._take(data)

    def _took_piece(self, data: str | bytes) -> bool:
        """Take a delta that has only text, without a check of all values.

        The check takes longer than everything else. Unusual deltas are left to `_take`.
        """
        nul = "\\u0000" if isinstance(data, str) else b"\\u0000"
        if self._error is not None or nul in data or len(data) > _LONGEST_PIECE:  # type: ignore[operator]
            return False
        try:
            event = _decode_piece(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return False
        block = self._open.get(event.index)
        if block is None or not block.delta(msgspec.to_builtins(event.delta)):
            return False
        self._begun = None
        return True

    def _take(self, data: str | bytes) -> None:
        event = read_json(data)
        kind = event.get("type")
        if kind is None and event.get("error"):
            kind = "error"  # how proxies report that their upstream failed
        if not isinstance(kind, str):
            raise MalformedEvent("The provider sent an event without a type.")
        if len(data) >= _SHORTEST_DEEP_EVENT and not keepable(event):
            raise MalformedEvent("The provider sent an event that is nested too deep to be kept.")
        read = self._read.get(kind)
        if self._error is not None or read is None or not read(event):
            keep_raw(self._sink, API, kind, event)
        else:
            self._unknown.keep(kind, unread(event), event)

    def end(self) -> Outcome:
        """Close open items and return the outcome."""
        stage = self._stage
        if stage == "live":
            self._close(whole=False)
            self._stage = "before"
        if self._error is not None:
            return Outcome(status="failed", error=self._error)
        if stage != "whole":
            return Outcome(status="cut")
        reason = self._stop_reason
        if reason == "tool_use" and self._answer.has_broken_call:
            return Outcome(status="cut", reason="incomplete_call")
        if reason in _ANSWERED:
            return Outcome(status="completed")
        return Outcome(status="incomplete", reason=_STOPPED.get(reason, reason))

    @property
    def _stop_reason(self) -> str | None:
        reason = self._facts.get("stop_reason")
        return reason if reason and isinstance(reason, str) else None

    # Each of these reads a type of event; it returns False if the event is to be kept raw.

    def _ping(self, _event: Json) -> bool:
        return True

    def _message_start(self, event: Json) -> bool:
        message = event.get("message")
        if not isinstance(message, dict):
            return False
        if self._stage == "live":
            if message.get("id") == self._facts.get("id"):
                if message.get("content"):
                    return False
                self._learn(message)
                self._count(message.get("usage"))
                return True
            self._close(whole=False)
        elif self._stage == "whole" and message.get("id") == self._facts.get("id") is not None:
            return False  # the same message again
        self._begin(message)
        return True

    def _message(self, event: Json) -> bool:
        """Take a whole message, which did not stream."""
        return self._message_start({"message": event}) and self._message_stop({})

    def _begin(self, message: Json) -> None:
        ident, content = message.get("id"), message.get("content")
        self._stage = "live"
        self._facts = {name: value for name, value in message.items() if name != "content"}
        self._usage = {}
        self._answer.message_id = text_or_none(ident)
        self._answer.has_broken_call = False
        self._count(message.get("usage"))
        # An answer that continues the provider's code may begin with whole blocks.
        for block in list_of(content):
            self._started(block if isinstance(block, dict) else {"raw": block}).stop()

    def _started(self, block: Json) -> OpenBlock:
        self._answer.settle(whole=True)
        to = block.get("to")
        if block.get("type") == "fallback" and isinstance(to, dict) and "model" in to:
            self._facts["model"] = to["model"]  # this model answers and is billed
        return open_block(self._answer, block)

    def _content_block_start(self, event: Json) -> bool:
        block, index = event.get("content_block"), _index(event)
        if self._stage == "whole" or not isinstance(block, dict):
            return False
        if (index, block) == self._begun:
            return True
        if self._stage == "before":
            self._begin({})
        before = self._open.pop(index, None)
        if before is not None:
            before.cut()
        self._stop_strays(index)
        self._open[index] = self._started(block)
        self._begun = (index, block)
        return True

    def _content_block_delta(self, event: Json) -> bool:
        self._begun = None
        index, delta = _index(event), event.get("delta")
        if not isinstance(delta, dict):
            return False
        block = self._open.get(index)
        if block is None and delta.get("type") == "input_json_delta" and delta.get("partial_json"):
            # Arguments after the end of their block: calls that seemed to have none are cut.
            self._answer.settle(whole=False)
        return (block is not None and block.delta(delta)) or self._strayed(index, delta)

    def _strayed(self, index: int | None, delta: Json) -> bool:
        """Take text or thinking whose block has another type, or never began.

        Servers that translate other APIs send thinking in a text block (LiteLLM), or text in the
        block of a call (SGLang). It becomes a block of its own.
        """
        kind = delta.get("type")
        target = _STRAYS.get(kind) if isinstance(kind, str) else None
        if target is None or self._stage == "whole":
            return False
        stray = self._strays.get((index, target))
        if stray is None:
            piece = delta.get(target)
            if not piece or not isinstance(piece, str):
                return False
            if self._stage == "before":
                self._begin({})
            stray = self._strays[index, target] = self._started({"type": target})
        return stray.delta(delta)

    def _stop_strays(self, index: int | None) -> bool:
        strays = [self._strays.pop((index, kind), None) for kind in ("thinking", "text")]
        for stray in strays:
            if stray is not None:
                stray.stop()
        return any(strays)

    def _content_block_stop(self, event: Json) -> bool:
        self._begun = None
        index = _index(event)
        block = self._open.pop(index, None)
        if block is not None:
            block.stop()
        return self._stop_strays(index) or block is not None

    def _message_delta(self, event: Json) -> bool:
        delta, usage = event.get("delta"), event.get("usage")
        if self._stage != "live" or not (isinstance(delta, dict) or isinstance(usage, dict)):
            return False
        self._change(event)
        return True

    def _message_stop(self, event: Json) -> bool:
        if self._stage != "live":
            return False
        self._change(event)  # Bedrock's metrics
        self._close(whole=True)
        self._stage = "whole"
        return True

    def _change(self, event: Json) -> None:
        self._learn(event)
        self._learn(dict_of(event.get("delta")))
        self._count(event.get("usage"))

    def _learn(self, facts: Json) -> None:
        """Take facts about the message. Null changes nothing.

        Some servers send an empty `stop_reason` instead of null.
        """
        self._facts.update(
            (name, value)
            for name, value in facts.items()
            if value is not None and name not in NO_FACTS and (name, value) != ("stop_reason", "")
        )

    def _failed(self, event: Json) -> bool:
        error = event.get("error")
        facts = dict_of(error)
        code, message = facts.get("type"), facts.get("message") or error
        self._error = ErrorInfo(
            code=code if isinstance(code, str) else "provider_error",
            message=message if isinstance(message, str) else "The provider failed.",
        )
        return False  # kept raw as well: it may have more fields, such as the request id

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage.update((name, value) for name, value in usage.items() if value is not None)

    def _close(self, *, whole: bool) -> None:
        """End the message; unless it is whole, open blocks end incomplete."""
        reason = self._stop_reason
        self._answer.settle(whole=whole and reason in _ANSWERED)
        for block in (*self._open.values(), *self._strays.values()):
            # Some servers never stop a block. At the end of the message its text is complete, but
            # a call is not.
            if whole and not block.is_call:
                block.stop()
            else:
                block.cut()
        self._open.clear()
        self._strays.clear()
        self._begun = None
        if not whole and self._answer.texts is not None:
            self._answer.texts.status = "incomplete"
        self._answer.leave_texts()
        details = self._facts.get("stop_details")
        if whole and reason == "refusal" and isinstance(details, dict):
            self._explain(details.get("explanation"))
        self._report_usage()

    def _explain(self, explanation: Any) -> None:
        if explanation and isinstance(explanation, str):
            message = MessageWriter(self._sink)
            message.whole(Refusal(refusal=explanation))
            message.finish(private=self._answer.private(raw=[]))

    def _report_usage(self) -> None:
        model, container = self._facts.get("model"), self._facts.get("container")
        tier = self._usage.get("service_tier")
        total = _usage_of(self._usage, text_or_none(model))
        usage = msgspec.structs.replace(
            total,
            cost=cost_of(self._usage),
            service_tier=text_or_none(tier),
        )
        self._report_beside(usage)
        provider = {"api": API, "response_id": self._answer.message_id, "model": usage.model}
        if isinstance(container, dict):
            provider["container"] = container.get("id")
        self._sink.emit(
            ev.TaskUsage(task_id=self._sink.task_id, usage=usage),
            ev.Private(
                provider={name: value for name, value in provider.items() if value is not None},
                raw={**self._facts, "usage": self._usage},
            ),
        )

    def _report_beside(self, message: Usage) -> None:
        """Report usage that the totals of the message leave out, by model."""
        for iteration in dicts_of(self._usage.get("iterations")):
            if iteration.get("type") in _BESIDE:
                model = iteration.get("model")
                usage = _usage_of(iteration, model if isinstance(model, str) else message.model)
                # The time and the cost of the message include this call.
                cost = None if message.cost is None else 0.0
                usage = msgspec.structs.replace(usage, latency_ms=0.0, cost=cost)
                self._sink.emit(ev.TaskUsage(task_id=self._sink.task_id, usage=usage))


_BESIDE = ("compaction", "advisor_message")
"""Iterations that are billed, but not part of the totals of a message."""


def _usage_of(counts: Json, model: str | None) -> Usage:
    """The counts as `Usage`; cached input counts as input."""
    read = count_of(counts.get("cache_read_input_tokens")) or 0
    written = count_of(counts.get("cache_creation_input_tokens")) or 0
    thought = dict_of(counts.get("output_tokens_details")).get("thinking_tokens")
    return Usage(
        model=model,
        input_tokens=(count_of(counts.get("input_tokens")) or 0) + read + written,
        output_tokens=count_of(counts.get("output_tokens")) or 0,
        cached_input_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=count_of(thought) or 0,
    )


def _index(event: Json) -> int | None:
    """The index of the block of an event, or None."""
    index = event.get("index")
    return index if type(index) is int else None
