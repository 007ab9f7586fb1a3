"""Anthropic's Messages API: the stream of one answer, or the answer as one object.

Its blocks stand in `anthropic_blocks`; here is their order, the message around them, and its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from tailrace.core import events as ev
from tailrace.core.errors import MalformedEvent
from tailrace.core.items import ErrorInfo, Refusal, Usage
from tailrace.core.writers import MessageWriter, Sink
from tailrace.ingest.anthropic_blocks import API, Answer, OpenBlock, open_block
from tailrace.ingest.anthropic_unread import NO_FACTS, unread
from tailrace.ingest.anthropic_values import Json, count_of, keepable
from tailrace.ingest.base import (
    ExecutorOf,
    Outcome,
    cost_of,
    is_stop,
    keep_raw,
    read_json,
    server_tools,
)
from tailrace.ingest.stamps import Stamps

_STOPPED = {"max_tokens": "max_output_tokens"}
"""Stop reasons that have another name here."""

_ANSWERED = (None, "end_turn", "tool_use", "stop_sequence")
"""Stop reasons of a model that said what it had to say."""

_STRAYS = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
}
"""Deltas that may come without a block of their kind, and which kind that is."""

_SHORTEST_DEEP_EVENT = 180
"""JSON with fewer characters cannot nest too deep: each level takes two."""

_LONGEST_PIECE = 64 * 1024
"""Up to here a delta needs no look at how much it weighs."""


class _Piece(msgspec.Struct, forbid_unknown_fields=True):
    """Base of the deltas that append a text: nearly every event of a stream is one."""


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
    `thinking`                   `reasoning` with one part of summary; its signature is private
    `redacted_thinking`          `reasoning` without parts; its data is `encrypted_content`
    `tool_use`                   `tool_call`, completed only by a stop after whole arguments
    `server_tool_use`            `tool_call`, executor `provider`, kind: the tool's name
    `mcp_tool_use`               `tool_call`, executor `provider`, kind `mcp`, with server label
    `*_tool_result`              `tool_result` of that call, if the task has it and it has none
                                 yet: texts, images, and data blocks named after their type;
                                 `failed` with the provider's error code
    anything else                `raw` item (compaction, fallback, container uploads, …)
    ===========================  ================================================================

    So the items, in their order, are the content array, in its order. Privately each has
    `provider.message_id`, and `raw` where the item alone does not give the block back: in all
    built-in calls and results, raw items, and wherever a block has fields that are not named here.
    In a message `raw` is a list, one block each; an empty one says that nothing is to be sent back.
    What is sealed (`encrypted_…`) stands there only.

    Each message has one `task.usage`, when it ends; compaction and advisors, which its totals
    leave out, have their own before it. `message_delta` repeats the totals of
    `message_start`, so its numbers replace those. `input_tokens` counts the whole input, as with
    OpenAI: what was read from the cache (`cached_input_tokens`) and written to it
    (`cache_write_tokens`) is part of it, which Anthropic counts apart. Privately `raw` is the
    message without its content: usage as it came, container, context management, stop details.

    The outcome: `end_turn`, `tool_use` and `stop_sequence` are `completed`; any other stop reason
    is `incomplete` under its own name (`pause_turn`, `refusal`, `model_context_window_exceeded`,
    …), but for `max_tokens`, which is `max_output_tokens` everywhere here. A refusal's explanation
    is shown as a refusal block, for it is all that there is to read; it is not sent back. `error`
    is `failed` with Anthropic's own code (`overloaded_error`, …). Without `message_stop` the stream
    was `cut`; so it was if the model waits for a call that came broken (`incomplete_call`).

    Fields of an event that are not named here, outside of its block or message, are kept in a
    `task.raw` beside it: privately the event without what was taken. What each delta of a block
    says alike is kept once; Bedrock's padding is not. The tokens that hidden thinking is said to
    have taken so far are added up (`provider.estimated_tokens`).

    Servers that only resemble Anthropic's are read by what they mean: text and thinking that come
    in a block of another kind, or in none, are a block of their own, and what has not stopped by
    `message_stop` is whole, calls excepted.

    A stream may hold several messages, one after the other. A second start of the same message is
    ignored; another message's start cuts the one before it short.
    """

    def __init__(self, sink: Sink, executor_of: ExecutorOf = server_tools) -> None:
        self._sink = sink
        self._answer = Answer(sink, executor_of)
        self._stamps = Stamps()
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
        """Take a delta that is nothing but a piece of text, without a look at all its values.

        That look takes longer than all the rest. Whatever is unusual is left to `_take`.
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
            raise MalformedEvent("The provider sent no event: it has no type.")
        if len(data) >= _SHORTEST_DEEP_EVENT and not keepable(event):
            raise MalformedEvent("The provider sent an event that nests too deep to be kept.")
        read = self._read.get(kind)
        if self._error is not None or read is None or not read(event):
            keep_raw(self._sink, API, kind[:200], event)
        elif (rest := unread(event)) and self._stamps.is_new(kind, _index(event), rest):
            keep_raw(self._sink, API, kind[:200], rest)

    def end(self) -> Outcome:
        """Close what is open, and say how the call ended."""
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

    # Each of these reads one kind of event, and says whether it understood it.

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
            return False  # nor is a message told twice
        self._begin(message)
        return True

    def _message(self, event: Json) -> bool:
        """A whole message, as it comes without streaming."""
        return self._message_start({"message": event}) and self._message_stop({})

    def _begin(self, message: Json) -> None:
        ident, content = message.get("id"), message.get("content")
        self._stage = "live"
        self._facts = {name: one for name, one in message.items() if name != "content"}
        self._usage = {}
        self._answer.message_id = ident if isinstance(ident, str) else None
        self._answer.has_broken_call = False
        self._count(message.get("usage"))
        # An answer that only goes on with a provider's own code may begin with whole blocks.
        for block in content if isinstance(content, list) else ():
            self._started(block if isinstance(block, dict) else {"raw": block}).stop()

    def _started(self, block: Json) -> OpenBlock:
        self._answer.settle(whole=True)
        to = block.get("to")
        if block.get("type") == "fallback" and isinstance(to, dict) and "model" in to:
            self._facts["model"] = to["model"]  # it is the one that answers, and that is paid
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
        self._stamps.forget(index)
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
            self._answer.settle(whole=False)  # a call that stopped without any has some after all
        return (block is not None and block.delta(delta)) or self._strayed(index, delta)

    def _strayed(self, index: int | None, delta: Json) -> bool:
        """Take a piece of text or thinking whose block is of another kind, or never began.

        Servers that translate other APIs think in a text block (LiteLLM), or talk in a call's
        (SGLang). It is what the model said, so it is shown, in a block of its own.
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
        delta = event.get("delta")
        self._learn(event)
        self._learn(delta if isinstance(delta, dict) else {})
        self._count(event.get("usage"))

    def _learn(self, facts: Json) -> None:
        """More about the message. What is null says nothing, so what was said before stands.

        For no reason to stop, some servers say an empty one.
        """
        self._facts.update(
            (name, one)
            for name, one in facts.items()
            if one is not None and name not in NO_FACTS and (name, one) != ("stop_reason", "")
        )

    def _failed(self, event: Json) -> bool:
        error = event.get("error")
        facts = error if isinstance(error, dict) else {}
        code, message = facts.get("type"), facts.get("message") or error
        self._error = ErrorInfo(
            code=code if isinstance(code, str) else "provider_error",
            message=message if isinstance(message, str) else "The provider failed.",
        )
        return False  # kept raw as well: it may say more, such as the request's id

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage.update((name, one) for name, one in usage.items() if one is not None)

    def _close(self, *, whole: bool) -> None:
        """End the message: what has not stopped by itself stays incomplete."""
        reason = self._stop_reason
        self._answer.settle(whole=whole and reason in _ANSWERED)
        for block in (*self._open.values(), *self._strays.values()):
            # Some servers never say that a block stops. What the model said is whole all the same;
            # what it wants done is not.
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
        total = _usage_of(self._usage, model if isinstance(model, str) else None)
        usage = msgspec.structs.replace(
            total,
            cost=cost_of(self._usage),
            service_tier=tier if isinstance(tier, str) else None,
        )
        self._report_beside(usage)
        provider = {"api": API, "response_id": self._answer.message_id, "model": usage.model}
        if isinstance(container, dict):
            provider["container"] = container.get("id")
        self._sink.emit(
            ev.TaskUsage(task_id=self._sink.task_id, usage=usage),
            ev.Private(
                provider={name: one for name, one in provider.items() if one is not None},
                raw={**self._facts, "usage": self._usage},
            ),
        )

    def _report_beside(self, message: Usage) -> None:
        """Count what the message's own totals leave out, each call by its own model."""
        iterations = self._usage.get("iterations")
        for one in iterations if isinstance(iterations, list) else ():
            if isinstance(one, dict) and one.get("type") in _BESIDE:
                model = one.get("model")
                usage = _usage_of(one, model if isinstance(model, str) else message.model)
                # The message's time and, where a gateway tells it, its cost include this call's.
                cost = None if message.cost is None else 0.0
                usage = msgspec.structs.replace(usage, latency_ms=0.0, cost=cost)
                self._sink.emit(ev.TaskUsage(task_id=self._sink.task_id, usage=usage))


_BESIDE = ("compaction", "advisor_message")
"""Iterations that are billed and not part of a message's totals, by Anthropic's `usage`."""


def _usage_of(counts: Json, model: str | None) -> Usage:
    """Counts in our words: cached input is input too."""
    read = count_of(counts, "cache_read_input_tokens")
    written = count_of(counts, "cache_creation_input_tokens")
    return Usage(
        model=model,
        input_tokens=count_of(counts, "input_tokens") + read + written,
        output_tokens=count_of(counts, "output_tokens"),
        cached_input_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=count_of(counts.get("output_tokens_details"), "thinking_tokens"),
    )


def _index(event: Json) -> int | None:
    """Which block an event is about; all that have no number are one."""
    index = event.get("index")
    return index if type(index) is int else None
