"""Chat completions, as OpenAI streams them and as many others do who say that they are compatible.

The stream is a list of chunks, each with a `delta` of one growing message; nothing says that a text
or a call has ended but the `finish_reason` of the whole. So items are closed when something else
begins or when the stream is over, and a call is completed only after a `finish_reason` that says
so, and never with the mere beginning of its arguments. Some servers (Snowflake Cortex) send no
`finish_reason`. There, `[DONE]` or the final usage ends an answer whose calls are whole JSON.

What this version has no name for is kept once a stream, in the private part of one `task.raw`; what
changes with every chunk in as many as it takes.
`<think>` tags in the content are left alone: they are what the model said.
"""

from __future__ import annotations

from typing import Any

from tailrace.core import events as ev
from tailrace.core.items import ErrorInfo
from tailrace.core.writers import Sink
from tailrace.ingest.base import (
    ExecutorOf,
    Outcome,
    as_number,
    is_stop,
    keep_raw,
    read_json,
    server_tools,
)
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
from tailrace.ingest.openai_chat_thoughts import DETAILS, NAMES

_HEAD = ("id", "model", "created", "system_fingerprint", "service_tier", "provider")
_SOURCES = ("citations", "search_results")
"""Lists of what an answer rests on (xAI, Perplexity)."""
# `obfuscation` is padding against eavesdroppers who count bytes.
_CHUNK = frozenset((*_HEAD, *_SOURCES, "choices", "object", "usage", "error", "obfuscation"))
_MOST_CHANGES = 10_000
"""How many values of changing fields, and pieces of other choices, one `task.raw` holds."""
_GOING_ON = ("", "null")
"""What some servers say for no `finish_reason`."""
_CHOICE: dict[str, type] = {
    "index": int,
    "finish_reason": str,
    "error": object,
    **dict.fromkeys(("delta", "message", "logprobs", "usage"), dict),
}
"""What a choice holds; what is of another type is kept like what nobody knows."""


class OpenAIChat:
    """Reads the chunks of one chat completion; of several choices, the first that speaks."""

    def __init__(self, sink: Sink, executor_of: ExecutorOf = server_tools) -> None:
        self._sink = sink
        self._answer = Answer(sink, executor_of)
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
        self._of_chunks = Gathered(())
        self._of_choices = Gathered(())
        self._gathered = {
            "chunk": self._of_chunks,
            "choice": self._of_choices,
            "delta": self._answer.rest,
        }
        self._others: list[Any] = []
        self._is_over = False
        self._outcome: Outcome | None = None

    def feed(self, data: str | bytes) -> None:
        """Take the next chunk. Nothing follows `[DONE]`."""
        if self._is_over:
            return
        if is_stop(data):
            self._is_over = self._says_end = True
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
        if not isinstance(chunk.get("usage"), dict):
            self._of_chunks.add("usage", chunk.get("usage"))
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
        self._note_end(choices, chunk.get("usage"))
        changed = self._of_chunks.changed + self._of_choices.changed + self._answer.rest.changed
        if changed + len(self._others) >= _MOST_CHANGES:
            self._keep(self._changes())

    def _one_choice(self, choice: Any) -> None:
        if not isinstance(choice, dict):
            self._others.append(choice)
            return
        index = choice.get("index")
        index = index if type(index) is int else self._choice or 0
        if index not in self._spoke and _speaks(choice):
            self._spoke.add(index)
            if self._choice is None:
                self._choice = index
        self._note_finish(index, choice.get("finish_reason"))
        if self._choice not in (None, index):
            self._others.append(choice)
            return
        for name, value in choice.items():
            kind = _CHOICE.get(name)
            if kind is None or (value is not None and not isinstance(value, kind)):
                self._of_choices.add(name, value)
        self._note_error(choice.get("error"))
        self._note_usage(choice)  # Moonshot has it here
        delta, message = choice.get("delta"), choice.get("message")
        if isinstance(delta, dict):
            self._streamed.update(name for name, one in delta.items() if one)
            self._answer.delta(delta)
            if isinstance(message, dict):
                self._beside = message
        elif isinstance(message, dict):
            self._message(message)
        if isinstance(choice.get("logprobs"), dict):
            self._answer.logprobs(choice["logprobs"])

    def _message(self, message: dict[str, Any]) -> None:
        """An answer that was not streamed; at the end of one that was it repeats what came."""
        new = {name: one for name, one in message.items() if name not in self._streamed}
        if self._streamed & NAMES:
            for name in DETAILS:  # the same reasoning, but maybe sealed as it was in no delta
                self._answer.rest.add(name, new.get(name))
            new = {name: one for name, one in new.items() if name not in NAMES}
        self._answer.delta(new)

    def _note_finish(self, index: int, reason: Any) -> None:
        # Some send a `stop` behind everything, which does not undo a `length`.
        is_final = not is_completion(self._finish_reasons.get(index, "stop"))
        if isinstance(reason, str) and reason not in _GOING_ON and not is_final:
            self._finish_reasons[index] = reason

    @property
    def _finish_reason(self) -> str | None:
        """Of the choice that spoke, or of one that says nothing else: some end the wrong one."""
        silent = (one for one in self._finish_reasons if one not in self._spoke)
        return self._finish_reasons.get(0 if self._choice is None else self._choice) or next(
            (self._finish_reasons[one] for one in silent), None
        )

    def _note_error(self, raw: Any) -> None:
        if raw:
            self._error = self._error or error_info(raw)
            self._of_chunks.add("error", raw)

    def _note_usage(self, *holders: Any) -> None:
        """Counts so far: the last ones stand."""
        for holder in holders:
            usage = holder.get("usage") if isinstance(holder, dict) else None
            if usage and isinstance(usage, dict):
                self._usage = usage
                return

    def _note_end(self, choices: Any, usage: Any) -> None:
        """Usage is final when nothing is said beside it or behind it; other counts are so far."""
        said = isinstance(choices, list) and any(
            _speaks(one) for one in choices if isinstance(one, dict)
        )
        counted = isinstance(usage, dict) and as_number(usage.get("completion_tokens"))
        self._says_end = not said and (self._says_end or bool(counted))

    def _close(self) -> Outcome:
        self._message(self._beside)
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
        gathered = {name: one.all() for name, one in self._gathered.items()}
        self._keep({"response": facts, **gathered, **self._changes()})
        return outcome

    def _changes(self) -> dict[str, Any]:
        """What was not the same in every chunk, and what other choices said, since last time."""
        others, self._others = self._others, []
        settled = {name: one.settle() for name, one in self._gathered.items()}
        changes = {name: found for name, found in settled.items() if found}
        return {"choices": others, "changes": changes}

    def _write_usage(self, raw: dict[str, Any], facts: dict[str, Any]) -> None:
        usage = usage_of(raw, facts.get("model"), facts.get("service_tier"))
        private = ev.Private(provider={"api": API, **facts, "usage": raw})
        self._sink.emit(ev.TaskUsage(task_id=self._sink.task_id, usage=usage), private)

    def _keep(self, rest: dict[str, Any]) -> None:
        rest = {name: value for name, value in rest.items() if value}
        if rest:
            keep_raw(self._sink, API, "chat.completion.chunk", rest)


def _speaks(choice: dict[str, Any]) -> bool:
    """Whether a choice says more than who speaks."""
    said = [choice.get("delta"), choice.get("message")]
    return any(
        value
        for one in said
        if isinstance(one, dict)
        for name, value in one.items()
        if name != "role"
    )
