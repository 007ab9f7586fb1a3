"""Chat completions, as OpenAI streams them and as many others do who say that they are compatible.

The stream is a list of chunks, each with a `delta` of one growing message; nothing says that a text
or a call has ended but the `finish_reason` of the whole. So items are closed when something else
begins or when the stream is over, and a call is completed only after a `finish_reason` that says
so, and never with the mere beginning of its arguments.

What this version has no name for is kept once a stream, in the private part of one `task.raw`.
`<think>` tags in the content are left alone: they are what the model said.
"""

from __future__ import annotations

from typing import Any

from tailrace.core import events as ev
from tailrace.core.items import ErrorInfo
from tailrace.core.writers import Sink
from tailrace.ingest.base import ExecutorOf, Outcome, is_stop, read_json, server_tools
from tailrace.ingest.openai_chat_answer import Answer
from tailrace.ingest.openai_chat_calls import API
from tailrace.ingest.openai_chat_facts import (
    Gathered,
    error_info,
    is_completion,
    outcome_of,
    reported_error,
    usage_of,
)

_HEAD = ("id", "model", "created", "system_fingerprint", "service_tier", "provider")
_SOURCES = ("citations", "search_results")
"""Lists of what an answer rests on (xAI, Perplexity)."""
# `obfuscation` is padding against eavesdroppers who count bytes.
_CHUNK = frozenset((*_HEAD, *_SOURCES, "choices", "object", "usage", "error", "obfuscation"))
_GOING_ON = ("", "null")
"""What some servers say for no `finish_reason`."""
_CHOICE = frozenset(("index", "delta", "message", "finish_reason", "logprobs", "usage", "error"))


class OpenAIChat:
    """Reads the chunks of one chat completion; of several choices, the first that speaks."""

    def __init__(self, sink: Sink, executor_of: ExecutorOf = server_tools) -> None:
        self._sink = sink
        self._answer = Answer(sink, executor_of)
        self._choice: int | None = None
        self._streamed: set[str] = set()  # the fields that came in deltas
        self._finish_reason: str | None = None
        self._error: ErrorInfo | None = None
        self._usage: dict[str, Any] | None = None
        self._head: dict[str, Any] = {}
        self._sources: dict[str, Any] = {}
        self._of_chunks = Gathered(())
        self._of_choices = Gathered(())
        self._others: list[Any] = []
        self._is_over = False
        self._outcome: Outcome | None = None

    def feed(self, data: str | bytes) -> None:
        """Take the next chunk. Nothing follows `[DONE]`."""
        if self._is_over:
            return
        if is_stop(data):
            self._is_over = True
            return
        self._chunk(read_json(data))

    def end(self) -> Outcome:
        """Close what is open, and say how the call ended."""
        if self._outcome is None:
            self._is_over = True
            self._outcome = self._close()
        return self._outcome

    def _chunk(self, chunk: dict[str, Any]) -> None:
        for name in chunk.keys() - _CHUNK:
            self._of_chunks.add(name, chunk[name])
        for name in _HEAD:
            # The first that says something: a model router begins with empty ones.
            if chunk.get(name) and (name == "service_tier" or name not in self._head):
                self._head[name] = chunk[name]
        for name in _SOURCES:
            if chunk.get(name):
                self._sources[name] = chunk[name]  # whole each time, and by some in every chunk
        self._note_error(reported_error(chunk))
        choices = chunk.get("choices")
        if isinstance(choices, list):
            for choice in choices:
                self._one_choice(choice)
        elif choices is not None:
            self._of_chunks.add("choices", choices)
        self._note_usage(chunk, chunk.get("x_groq"))

    def _one_choice(self, choice: Any) -> None:
        index = choice.get("index") if isinstance(choice, dict) else None
        index = index if type(index) is int else 0
        if self._choice is None:
            self._choice = index
        if not isinstance(choice, dict) or index != self._choice:
            self._others.append(choice)
            return
        for name in choice.keys() - _CHOICE:
            self._of_choices.add(name, choice[name])
        self._note_error(choice.get("error"))
        self._note_usage(choice)  # Moonshot has it here
        delta, message = choice.get("delta"), choice.get("message")
        if isinstance(delta, dict):
            self._streamed.update(name for name, one in delta.items() if one)
            self._answer.delta(delta)
        elif isinstance(message, dict):
            # An answer that was not streamed. At the end of one that was, and beside a
            # delta (Perplexity), a message repeats what came.
            self._answer.delta(
                {name: one for name, one in message.items() if name not in self._streamed}
            )
        if isinstance(choice.get("logprobs"), dict):
            self._answer.logprobs(choice["logprobs"])
        self._note_finish(choice.get("finish_reason"))

    def _note_finish(self, reason: Any) -> None:
        # Some send a `stop` behind everything, which does not undo a `length`.
        is_final = self._finish_reason is not None and not is_completion(self._finish_reason)
        if isinstance(reason, str) and reason not in _GOING_ON and not is_final:
            self._finish_reason = reason

    def _note_error(self, raw: Any) -> None:
        if raw and self._error is None:
            self._error = error_info(raw)
            self._of_chunks.add("error", raw)

    def _note_usage(self, *holders: Any) -> None:
        """Counts so far: the last ones stand."""
        for holder in holders:
            usage = holder.get("usage") if isinstance(holder, dict) else None
            if usage and isinstance(usage, dict):
                self._usage = usage
                return

    def _close(self) -> Outcome:
        outcome = outcome_of(self._finish_reason, self._error)
        is_whole = outcome.status == "completed"
        for name, sources in self._sources.items():
            self._answer.cite_sources(name, sources)
        if self._answer.close(is_whole=is_whole) and is_whole:
            outcome = Outcome(status="incomplete", reason="truncated_tool_call")
        facts = {"response_id" if name == "id" else name: self._head[name] for name in self._head}
        if self._finish_reason is not None:
            facts["finish_reason"] = self._finish_reason
        if self._usage is not None:
            self._write_usage(self._usage, facts)
            facts = {}
        rest = {
            "response": facts,
            "chunk": self._of_chunks.all(),
            "choice": self._of_choices.all(),
            "delta": self._answer.rest.all(),
            "choices": self._others,
        }
        self._keep({name: value for name, value in rest.items() if value})
        return outcome

    def _write_usage(self, raw: dict[str, Any], facts: dict[str, Any]) -> None:
        usage = usage_of(raw, facts.get("model"), facts.get("service_tier"))
        private = ev.Private(provider={"api": API, **facts, "usage": raw})
        self._sink.emit(ev.TaskUsage(task_id=self._sink.task_id, usage=usage), private)

    def _keep(self, rest: dict[str, Any]) -> None:
        if rest:
            event = ev.RawEvent(
                task_id=self._sink.task_id, source=API, event_type="chat.completion.chunk"
            )
            self._sink.emit(event, ev.Private(raw=rest))
