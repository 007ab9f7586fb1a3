"""The Vercel AI SDK's UI message stream as a source: any AI SDK backend's, or ours.

A message is a run. `texts.py` writes its texts and reasoning, `calls.py` its calls and results.
A run waits for an approval that has no answer.

A stream of our own names its run in the metadata of `start`. It gives the root's items, requests
and structured output; its sub-agents, steps, notices and progress are ignored.

Repeated chunks are written once. `reset-step` supersedes the parts of its step that are not
final (`task.attempt`); completed calls stay.

Unknown chunks are kept raw. An `error` does not end a stream: other chunks may follow it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import msgspec

from tailrace.core import events as ev
from tailrace.core.codec import MAX_INTEGER
from tailrace.core.event_sink import Sink
from tailrace.core.items import ErrorInfo, InputRequest
from tailrace.core.values import Json, dict_of, text_of
from tailrace.ingest.base import (
    ExecutorOf,
    Outcome,
    is_stop,
    keep_raw,
    read_json,
    refuse_second_run,
    server_tools,
)
from tailrace.ingest.vercel_ui.calls import UiCalls
from tailrace.ingest.vercel_ui.texts import REASONING, TEXT, UiTexts
from tailrace.ingest.vercel_ui.values import API, error_of, file_of, model_of, outcome_of, usage_of

_SOURCES = ("source-url", "source-document")
_FACTS = ("thread_id", "previous_run_id", "agent")


def message_facts(first: str) -> Json:
    """The facts about the run in the first chunk: its id, agent and model."""
    chunk = read_json(first)
    if chunk.get("type") != "start":
        return {}
    metadata = dict_of(chunk.get("messageMetadata"))
    found: Json = {"model": model_of(metadata)}
    found["task_id"] = text_of(metadata.get("task_id")) or text_of(chunk.get("messageId")) or None
    if text_of(metadata.get("task_id")):
        found |= {name: metadata.get(name) for name in _FACTS}
        found = {name: value for name, value in found.items() if isinstance(value, str)}
        created = metadata.get("created_at")
        if isinstance(created, int | float) and 0 <= created < MAX_INTEGER:
            found["created_at"] = created
    return {name: value for name, value in found.items() if value is not None}


class VercelUi:
    """Reads a message, chunk by chunk."""

    def __init__(self, sink: Sink, executor_of: ExecutorOf = server_tools) -> None:
        self._sink = sink
        self._texts = UiTexts(sink)
        self._calls = UiCalls(sink, executor_of, self._texts.settle)
        self._run_id = ""  # what a stream of our own names its run
        self._metadata: Json = {}
        self._attempt = 1
        self._output: Json | None = None
        self._asked: dict[str, InputRequest] = {}
        self._error: ErrorInfo | None = None
        self._finished: Outcome | None = None
        self._is_done = False
        self._outcome: Outcome | None = None

    def feed(self, data: str | bytes) -> None:
        """Take the next chunk. `[DONE]` completes a message without `finish`."""
        if is_stop(data):
            self._is_done = True
            return
        chunk = read_json(data)
        kind = text_of(chunk.get("type"))
        if kind not in _SOURCES:
            self._texts.settle_text()
        take = self._TAKE.get(kind)
        if take is None and kind.startswith("data-"):
            take = VercelUi._data
        if take is None or not take(self, chunk):
            self._keep(kind, chunk)

    def end(self) -> Outcome:
        """Close open items and return the outcome of the message."""
        if self._outcome is None:
            self._outcome = self._close()
        return self._outcome

    def _keep(self, kind: str, chunk: Json) -> None:
        keep_raw(self._sink, API, kind, chunk)

    # --- the message -----------------------------------------------------------------------------

    def _start(self, chunk: Json) -> bool:
        """Begin the message; a backend that merges answers begins several times."""
        task_id = text_of(dict_of(chunk.get("messageMetadata")).get("task_id"))
        refuse_second_run(self._run_id, task_id)
        self._finished = None
        self._note_metadata(chunk)
        if task_id:
            self._calls.is_ours = True
            self._run_id = task_id
        return True

    def _note_metadata(self, chunk: Json) -> bool:
        self._metadata |= dict_of(chunk.get("messageMetadata"))
        return True

    def _start_step(self, _chunk: Json) -> bool:
        self._supersede(self._texts.left_out())
        self._texts.begin_step()
        self._calls.begin_step()
        return True

    def _finish_step(self, _chunk: Json) -> bool:
        self._texts.end_step()
        return True

    def _reset_step(self, _chunk: Json) -> bool:
        self._asked.clear()
        self._supersede([*self._texts.reset(), *self._calls.reset()])
        return True

    def _supersede(self, gone: list[str]) -> None:
        if gone:
            self._attempt += 1
            event = ev.TaskAttempt(
                task_id=self._sink.task_id,
                attempt=self._attempt,
                reason="reset-step",
                superseded=gone,
            )
            self._sink.emit(event)

    def _finish(self, chunk: Json) -> bool:
        self._note_metadata(chunk)
        self._finished = outcome_of(chunk.get("finishReason"), self._metadata)
        return True

    def _failed(self, chunk: Json) -> bool:
        self._error = self._error or error_of(chunk.get("errorText"), "error", "The answer failed.")
        return True

    def _abort(self, chunk: Json) -> bool:
        reason = text_of(chunk.get("reason")) or None
        self._finished = Outcome(status="cancelled", reason=reason)
        return True

    def _close(self) -> Outcome:
        outcome = self._ending()
        is_whole = outcome.status == "completed"
        left = self._texts.close("completed" if is_whole else "incomplete")
        self._supersede(self._texts.left_out())
        left += self._calls.close()
        for chunk in left:
            self._keep(text_of(chunk.get("type")), chunk)
        if self._output is not None:
            name = text_of(self._output.get("name")) or None
            value, task_id = self._output["value"], self._sink.task_id
            self._sink.emit(ev.StructuredOutputDone(task_id=task_id, value=value, name=name))
        usage = usage_of(self._metadata)
        if usage is not None:
            self._sink.emit(ev.TaskUsage(task_id=self._sink.task_id, usage=usage))
        return outcome

    def _ending(self) -> Outcome:
        if self._error is not None:
            return Outcome(status="failed", error=self._error)
        if self._finished is None:
            return Outcome(status="completed" if self._is_done else "cut")
        requests = {**self._asked, **{request.id: request for request in self._calls.pending()}}
        if requests and self._finished.status == "completed":
            return Outcome(status="completed", requests=list(requests.values()))
        return self._finished

    # --- parts that come whole -------------------------------------------------------------------

    def _file(self, chunk: Json) -> bool:
        block = file_of(chunk)
        if block is None:
            return False
        self._texts.whole(block)
        return True

    def _data(self, chunk: Json) -> bool:
        """A data part of the application, or of our own stream."""
        kind = chunk["type"]
        ours = self._OURS.get(kind) if self._calls.is_ours else None
        if ours is not None:
            return ours(self, chunk)
        if chunk.get("transient"):
            notice = ev.Notice(
                task_id=self._sink.task_id, message=kind, data=chunk.get("data"), level="debug"
            )
            self._sink.emit(notice)
            return True
        self._texts.data(kind.removeprefix("data-"), chunk)
        return True

    def _ignore(self, _chunk: Json) -> bool:
        """Ignore a part that is not about the root's items."""
        return True

    def _structured(self, chunk: Json) -> bool:
        data = chunk.get("data")
        if not isinstance(data, dict) or "value" not in data:
            return False
        self._output = data
        return True

    def _request(self, chunk: Json) -> bool:
        try:
            request = msgspec.convert(chunk.get("data"), InputRequest)
        except (msgspec.ValidationError, ValueError):
            return False
        self._asked[request.id] = request
        return True

    _OURS: ClassVar[dict[str, Callable[[VercelUi, Json], bool]]] = {
        **dict.fromkeys(("data-task", "data-task-item", "data-delta", "data-block"), _ignore),
        **dict.fromkeys(
            ("data-step", "data-notice", "data-progress", "data-agent", "data-history"), _ignore
        ),
        "data-output": _structured,
        "data-request": _request,
    }
    """The parts that our own streams have beside the AI SDK's."""

    _TAKE: ClassVar[dict[str, Callable[[VercelUi, Json], bool]]] = {
        "start": _start,
        "start-step": _start_step,
        "finish-step": _finish_step,
        "reset-step": _reset_step,
        "finish": _finish,
        "error": _failed,
        "abort": _abort,
        "message-metadata": _note_metadata,
        "text-start": lambda self, chunk: self._texts.start(TEXT, chunk),
        "text-delta": lambda self, chunk: self._texts.delta(TEXT, chunk),
        "text-end": lambda self, chunk: self._texts.end(TEXT, chunk),
        "reasoning-start": lambda self, chunk: self._texts.start(REASONING, chunk),
        "reasoning-delta": lambda self, chunk: self._texts.delta(REASONING, chunk),
        "reasoning-end": lambda self, chunk: self._texts.end(REASONING, chunk),
        "source-url": lambda self, chunk: self._texts.source(chunk),
        "source-document": lambda self, chunk: self._texts.source(chunk),
        "file": _file,
        "tool-input-start": lambda self, chunk: self._calls.start(chunk),
        "tool-input-delta": lambda self, chunk: self._calls.delta(chunk),
        "tool-input-available": lambda self, chunk: self._calls.available(chunk),
        "tool-input-error": lambda self, chunk: self._calls.failed(chunk),
        "tool-output-available": lambda self, chunk: self._calls.output(chunk),
        "tool-output-error": lambda self, chunk: self._calls.output(chunk),
        "tool-output-denied": lambda self, chunk: self._calls.output(chunk),
        "tool-approval-request": lambda self, chunk: self._calls.ask(chunk),
        "tool-approval-response": lambda self, chunk: self._calls.approve(chunk),
    }
    """The method for each chunk; it returns False if the chunk is to be kept raw."""
