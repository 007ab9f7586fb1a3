"""Chat completions of OpenAI and of compatible servers.

Each chunk has a `delta` of a growing message; only the `finish_reason` marks an end. So items are
closed when something else begins or at the end of the stream. A call is completed only after a
`finish_reason` that completes the answer, and never with partial arguments. Some servers
(Snowflake Cortex) send no `finish_reason`. There, `[DONE]` or the final usage ends an answer whose
calls have complete JSON.

A chunk with unknown fields is kept whole in `task.raw`, once per new set of unknown names.
`<think>` tags in the content stay: they are text of the model.
"""

from __future__ import annotations

from typing import Any

from tailrace.core import events as ev
from tailrace.core.event_sink import Sink
from tailrace.core.items import ErrorInfo
from tailrace.core.values import count_of, dict_of
from tailrace.ingest.base import ExecutorOf, Outcome, is_stop, keep_raw, read_json, server_tools
from tailrace.ingest.openai_chat.calls import API
from tailrace.ingest.openai_chat.items import ChatAnswer
from tailrace.ingest.openai_chat.reasoning import DETAILS, NAMES
from tailrace.ingest.openai_chat.values import (
    error_info,
    is_completion,
    outcome_of,
    reported_error,
    usage_of,
)
from tailrace.ingest.unknown import EMPTY, UnknownFields, unknown_names

_HEAD = ("id", "model", "created", "system_fingerprint", "service_tier", "provider")
_SOURCES = ("citations", "search_results")
"""Lists of sources of an answer (xAI, Perplexity)."""
# `obfuscation` is padding that hides the length of a chunk.
_CHUNK = frozenset((*_HEAD, *_SOURCES, "choices", "object", "usage", "error", "obfuscation"))
_MOST_OTHERS = 10_000
"""How many pieces of other choices a `task.raw` holds."""
_KIND = "chat.completion.chunk"
_GOING_ON = ("", "null")
"""Values that mean no `finish_reason`."""
_CHOICE: dict[str, type] = {
    "index": int,
    "finish_reason": str,
    "error": object,
    **dict.fromkeys(("delta", "message", "logprobs", "usage"), dict),
}
"""What a choice holds; a field of another type counts as unknown."""


class OpenAIChat:
    """Reads a chat completion; of several choices, the first with content."""

    def __init__(self, sink: Sink, executor_of: ExecutorOf = server_tools) -> None:
        self._sink = sink
        self._answer = ChatAnswer(sink, executor_of)
        self._choice: int | None = None
        self._streamed: set[str] = set()  # the fields that came in deltas
        self._beside: dict[str, Any] = {}  # the last message that stood beside a delta
        self._spoke: set[int] = set()
        self._finish_reasons: dict[int, str] = {}
        self._error: ErrorInfo | None = None
        self._usage: dict[str, Any] | None = None
        self._says_end = False  # whether `[DONE]` or the final usage came last
        self._head: dict[str, Any] = {}
        self._sources: dict[str, Any] = {}
        self._unknown = UnknownFields(sink, API)
        self._others: list[Any] = []
        self._is_over = False
        self._outcome: Outcome | None = None

    def feed(self, data: str | bytes) -> None:
        """Take the next chunk; chunks after `[DONE]` are ignored."""
        if self._is_over:
            return
        if is_stop(data):
            self._is_over = self._says_end = True
            return
        self._chunk(read_json(data))

    def end(self) -> Outcome:
        """Close open items and return the outcome."""
        if self._outcome is None:
            self._is_over = True
            self._outcome = self._close()
        return self._outcome

    def _chunk(self, chunk: dict[str, Any]) -> None:
        names = self._answer.unknown
        names.clear()
        names.update(unknown_names(chunk, _CHUNK, "chunk."))
        if not isinstance(chunk.get("usage", {}), dict | None):
            names.add("chunk.usage")
        for name in _HEAD:
            # The first value that is not empty: a model router begins with empty values.
            if chunk.get(name) and (name == "service_tier" or name not in self._head):
                self._head[name] = chunk[name]
        for name in _SOURCES:
            if chunk.get(name):
                self._sources[name] = chunk[name]  # whole each time, and by some in every chunk
        error = reported_error(chunk)
        choices = chunk.get("choices")
        if isinstance(choices, list):
            for choice in choices:
                error = self._one_choice(choice) or error
        elif choices not in EMPTY:
            names.add("chunk.choices")
        if error:
            self._error = self._error or error_info(error)
            keep_raw(self._sink, API, _KIND, chunk)
        else:
            self._unknown.keep(_KIND, names, chunk)
        self._note_usage(chunk, chunk.get("x_groq"))
        self._note_end(choices, chunk.get("usage"))
        if len(self._others) >= _MOST_OTHERS:
            self._keep_left({})

    def _one_choice(self, choice: Any) -> Any:
        """Take a choice; return the error that it reports, if any."""
        if not isinstance(choice, dict):
            self._others.append(choice)
            return None
        index = choice.get("index")
        index = index if type(index) is int else self._choice or 0
        if index not in self._spoke and _speaks(choice):
            self._spoke.add(index)
            if self._choice is None:
                self._choice = index
        self._note_finish(index, choice.get("finish_reason"))
        if self._choice not in (None, index):
            self._others.append(choice)
            return None
        for name, value in choice.items():
            if value not in EMPTY and not isinstance(value, _CHOICE.get(name, ())):
                self._answer.unknown.add(f"choice.{name}")
        self._note_usage(choice)  # Moonshot has it here
        delta, message = choice.get("delta"), choice.get("message")
        if isinstance(delta, dict):
            self._streamed.update(name for name, value in delta.items() if value)
            self._answer.delta(delta)
            if isinstance(message, dict):
                self._beside = message
        elif isinstance(message, dict):
            self._message(message)
        if isinstance(choice.get("logprobs"), dict):
            self._answer.logprobs(choice["logprobs"])
        return choice.get("error")

    def _message(self, message: dict[str, Any]) -> None:
        """Take a whole message; at the end of a stream it repeats the deltas."""
        new = {name: value for name, value in message.items() if name not in self._streamed}
        if self._streamed & NAMES:
            # The same reasoning, but maybe sealed as in no delta.
            self._answer.unknown.update(name for name in DETAILS if new.get(name))
            new = {name: value for name, value in new.items() if name not in NAMES}
        self._answer.delta(new)

    def _note_finish(self, index: int, reason: Any) -> None:
        # Some servers send `stop` at the end, which does not undo a `length`.
        is_final = not is_completion(self._finish_reasons.get(index, "stop"))
        if isinstance(reason, str) and reason not in _GOING_ON and not is_final:
            self._finish_reasons[index] = reason

    @property
    def _finish_reason(self) -> str | None:
        """The reason of the choice with content, or of an empty choice: some mix them up."""
        silent = (choice for choice in self._finish_reasons if choice not in self._spoke)
        return self._finish_reasons.get(0 if self._choice is None else self._choice) or next(
            (self._finish_reasons[choice] for choice in silent), None
        )

    def _note_usage(self, *holders: Any) -> None:
        """Note the counts so far: the last counts are final."""
        for holder in holders:
            usage = dict_of(holder).get("usage")
            if usage and isinstance(usage, dict):
                self._usage = usage
                return

    def _note_end(self, choices: Any, usage: Any) -> None:
        """Note the end: usage is final if no text comes with it or after it."""
        speaks = isinstance(choices, list) and any(
            _speaks(choice) for choice in choices if isinstance(choice, dict)
        )
        counted = isinstance(usage, dict) and count_of(usage.get("completion_tokens"))
        self._says_end = not speaks and (self._says_end or bool(counted))

    def _close(self) -> Outcome:
        self._answer.unknown.clear()
        self._message(self._beside)
        self._unknown.keep(_KIND, self._answer.unknown, {"choices": [{"message": self._beside}]})
        finish_reason = self._finish_reason
        says_end = self._says_end and self._choice is not None and self._answer.is_whole
        implied = "stop" if says_end else None
        outcome = outcome_of(finish_reason or implied, self._error)
        is_whole = outcome.status == "completed"
        for name, sources in self._sources.items():
            self._answer.cite_sources(name, sources)
        if self._answer.close(is_whole=is_whole) and is_whole:
            outcome = Outcome(status="incomplete", reason="truncated_tool_call")
        facts = {"response_id" if name == "id" else name: self._head[name] for name in self._head}
        if finish_reason is not None:
            facts["finish_reason"] = finish_reason
        if self._usage is not None:
            self._write_usage(self._usage, facts)
            facts = {}
        self._keep_left({"response": facts, "delta": self._answer.left})
        return outcome

    def _keep_left(self, left: dict[str, Any]) -> None:
        """Keep what has no place in an item, and the other choices since the last time."""
        left["choices"], self._others = self._others, []
        left = {name: value for name, value in left.items() if value}
        if left:
            keep_raw(self._sink, API, _KIND, left)

    def _write_usage(self, raw: dict[str, Any], facts: dict[str, Any]) -> None:
        usage = usage_of(raw, facts.get("model"), facts.get("service_tier"))
        private = ev.Private(provider={"api": API, **facts, "usage": raw})
        self._sink.emit(ev.TaskUsage(task_id=self._sink.task_id, usage=usage), private)


def _speaks(choice: dict[str, Any]) -> bool:
    """Whether a choice has more than a role."""
    messages = [choice.get("delta"), choice.get("message")]
    return any(
        value
        for message in messages
        if isinstance(message, dict)
        for name, value in message.items()
        if name != "role"
    )
