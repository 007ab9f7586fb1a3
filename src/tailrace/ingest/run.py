"""The run envelope as a source: `{type, threadId, runId, data}`, ours or another backend's.

    run.started  run.finished  run.error
    step.start   step.finish
    text.start   text.delta    text.end       correlated by `messageId`
    tool.start   tool.args     tool.end  tool.result     by `toolCallId`
    agent.switched

The arguments of a call come whole in `tool.args`. A call without arguments is incomplete, unless it
has a result. The usage in `text.end` is the sum so far, as we write it; if a count falls, each
message counts for itself.

The envelope has no reasoning, images, pause or cancel; see `wire.run`.
After `run.gap` the run is sent again from its beginning; known parts are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tailrace.core import events as ev
from tailrace.core.event_sink import Sink
from tailrace.core.items import Data, ErrorInfo, File, StepEnd, Text, Usage
from tailrace.core.text_writers import TextWriter
from tailrace.core.values import Json, count_of, dict_of, json_text, list_of, number_of, text_of
from tailrace.core.writers import ArgumentsWriter, MessageWriter, ResultWriter
from tailrace.ingest.base import (
    ExecutorOf,
    Outcome,
    keep_raw,
    read_json,
    refuse_second_run,
    server_tools,
)

API = "run"

_COUNTS = (("input_tokens", "inputTokens"), ("output_tokens", "outputTokens"))
_AMOUNTS = (("cost", "cost"), ("latency_ms", "latencyMs"))
_LITE = (None, "unknown")
"""The `result_type` of an answer that is nothing but its text."""


def run_facts(first: str) -> Json:
    """The ids of the run and the thread in the first event."""
    event = read_json(first)
    run_id, thread_id = event.get("runId"), event.get("threadId")
    if not isinstance(run_id, str) or not run_id:
        return {}
    facts: Json = {"task_id": run_id}
    if isinstance(thread_id, str) and thread_id != run_id:
        facts["thread_id"] = thread_id
    return facts


class RunEvents:
    """Reads a run, event by event.

    Its tools are the backend's own, whatever their names: it sends their results.
    """

    def __init__(self, sink: Sink, _executor_of: ExecutorOf = server_tools) -> None:
        self._sink = sink
        self._run_id = ""
        self._messages: dict[str, _RunMessage] = {}
        self._calls: dict[str, _Call] = {}
        self._steps: list[tuple[int, str]] = []
        self._step_count = 0
        self._speaker: str | None = None
        self._attempt = 1
        self._used: dict[str, float] = {}
        self._has_output = False
        self._is_partial = False
        self._failure: Json = {}
        self._outcome: Outcome | None = None

    def feed(self, data: str | bytes) -> None:
        """Take the next event. Nothing of a run follows its end, but another run may."""
        event = read_json(data)
        run_id = text_of(event.get("runId"))
        refuse_second_run(self._run_id, run_id)
        self._run_id = self._run_id or run_id
        if self._outcome is not None:
            return
        kind, body = event.get("type"), event.get("data")
        take = self._TAKE.get(kind) if isinstance(kind, str) else None
        if take is None or not take(self, dict_of(body)):
            keep_raw(self._sink, API, text_of(kind), event)

    def end(self) -> Outcome:
        """Close open items and return the outcome of the run."""
        outcome = self._outcome or Outcome(status="cut")
        for message in self._messages.values():
            message.message.finish("incomplete")
        for call in self._calls.values():
            call.writer.finish("incomplete")
        return outcome

    # --- the run ---------------------------------------------------------------------------------

    def _started(self, _data: Json) -> bool:
        return True

    def _finished(self, data: Json) -> bool:
        self._note_usage(data)
        if self._is_partial or data.get("status") == "incomplete":
            reason = text_of(data.get("reason")) or "incomplete"
            self._outcome = Outcome(status="incomplete", reason=reason)
        else:
            self._outcome = Outcome(status="completed")
        return True

    def _error(self, data: Json) -> bool:
        self._note_usage(data)
        message = text_of(data.get("message")) or "The run failed."
        code = text_of(data.get("code"))
        if not code and self._failure.get("message") == message:
            code = text_of(self._failure.get("code"))
        if code == "cancelled":
            self._outcome = Outcome(status="cancelled", reason=message)
        else:
            error = ErrorInfo(code=code or "run_error", message=message)
            self._outcome = Outcome(status="failed", error=error)
        return True

    def _step_start(self, data: Json) -> bool:
        name = data.get("stepName")
        if not isinstance(name, str):
            return False
        event = ev.StepStarted(task_id=self._sink.task_id, step_index=self._step_count, name=name)
        self._sink.emit(event)
        self._steps.append((self._step_count, name))
        self._step_count += 1
        return True

    def _step_finish(self, data: Json) -> bool:
        name = data.get("stepName")
        # A step ends together with the steps inside of it.
        if not any(name == step for _, step in reversed(self._steps)):
            return False
        ended = None
        status: StepEnd = "incomplete" if data.get("status") == "incomplete" else "completed"
        while ended != name:
            index, ended = self._steps.pop()
            self._sink.emit(
                ev.StepFinished(task_id=self._sink.task_id, step_index=index, status=status)
            )
        return True

    def _switched(self, data: Json) -> bool:
        agent = data.get("agent")
        if not isinstance(agent, str):
            return False
        if agent != self._speaker:  # sent again after a gap
            self._speaker = agent
            reason = text_of(data.get("reason")) or None
            task_id = self._sink.task_id
            self._sink.emit(ev.AgentSwitched(task_id=task_id, agent=agent, reason=reason))
        return True

    # --- messages --------------------------------------------------------------------------------

    def _text_start(self, data: Json) -> bool:
        ident = data.get("messageId")
        if not isinstance(ident, str):
            return False
        if ident in self._messages:
            self._messages[ident].begin_again()
        else:
            self._messages[ident] = _RunMessage(self._sink)
        return True

    def _text_delta(self, data: Json) -> bool:
        ident, piece = data.get("messageId"), data.get("delta")
        if not isinstance(ident, str) or not isinstance(piece, str):
            return False
        message = self._messages.get(ident)
        if message is None:
            message = self._messages[ident] = _RunMessage(self._sink)
        left = message.add(piece)
        if left:
            # Another text under the id of a message that is over.
            message = self._messages[ident] = _RunMessage(self._sink)
            message.add(left)
        return True

    def _text_end(self, data: Json) -> bool:
        ident = data.get("messageId")
        if not isinstance(ident, str):
            return False
        output = dict_of(data.get("workerAgentOutput"))
        answer = text_of(output.get("answer"))
        message = self._messages.get(ident)
        if message is None or message.is_another(answer):
            message = self._messages[ident] = _RunMessage(self._sink)
        if not message.message.is_open:
            return True
        message.fill(answer)
        is_rich = _is_rich(output)
        is_whole = is_rich or output.get("status") not in ("failed", "partial_success")
        self._is_partial = not is_whole
        kept = {"api": API, "id": ident, "stage": data.get("stage"), "output": output}
        private = ev.Private(provider={name: value for name, value in kept.items() if value})
        message.message.finish("completed" if is_whole else "incomplete", private)
        if is_rich and not self._has_output:
            self._has_output = True
            task_id = self._sink.task_id
            self._sink.emit(ev.StructuredOutputDone(task_id=task_id, value=output))
        if not is_whole:
            self._note_failure(output.get("error"), message.message)
        self._note_usage(data)
        return True

    def _note_failure(self, error: Any, writer: MessageWriter) -> None:
        self._failure = dict_of(error)
        if self._failure.get("code") == "interrupted":
            # Another answer follows in its place; see `wire.run.outputs`.
            self._attempt += 1
            event = ev.TaskAttempt(
                task_id=self._sink.task_id,
                attempt=self._attempt,
                reason="interrupted",
                superseded=[writer.id],
            )
            self._sink.emit(event)
            self._failure, self._is_partial = {}, False

    def _note_usage(self, data: Json) -> None:
        counts: dict[str, float] = {}
        for names, value_of in ((_COUNTS, count_of), (_AMOUNTS, number_of)):
            for ours, theirs in names:
                if (value := value_of(data.get(theirs))) is not None:
                    counts[ours] = value
        model = data.get("model")
        if not counts:
            return
        if all(counts.get(name, 0) >= before for name, before in self._used.items()):
            more = {name: value - self._used.get(name, 0) for name, value in counts.items()}
        else:
            more = counts
        self._used = counts
        if any(more.values()):
            named = model if isinstance(model, str) and model else None
            usage = Usage(model=named, **more)  # type: ignore[arg-type]  # counts are integers
            self._sink.emit(ev.TaskUsage(task_id=self._sink.task_id, usage=usage))

    # --- tools -----------------------------------------------------------------------------------

    def _tool_start(self, data: Json) -> bool:
        return self._call_of(data) is not None

    def _call_of(self, data: Json) -> _Call | None:
        ident, name = data.get("toolCallId"), data.get("toolName")
        if not isinstance(ident, str) or not ident:
            return None
        if ident not in self._calls:
            if not isinstance(name, str) or not name:
                return None
            self._calls[ident] = _Call(self._sink, ident, name)
        return self._calls[ident]

    def _tool_args(self, data: Json) -> bool:
        call, args = self._call_of(data), data.get("args")
        if call is None:
            return False
        if isinstance(args, dict):
            call.complete(args)
        return True

    def _tool_result(self, data: Json) -> bool:
        output = data.get("toolAgentOutput")
        if not isinstance(output, dict):
            return False
        named = {"toolCallId": output.get("tool_call_id"), "toolName": output.get("tool_name")}
        call = self._call_of({**named, **{k: v for k, v in data.items() if v}})
        if call is None:
            return False
        args = output.get("tool_call_args")
        # The tool has run, so its call is complete, even if its arguments never came.
        call.complete(args if isinstance(args, dict) else None)
        call.answer(output)
        return True

    _TAKE: ClassVar[dict[str, Callable[[RunEvents, Json], bool]]] = {
        "run.started": _started,
        "run.finished": _finished,
        "run.error": _error,
        "step.start": _step_start,
        "step.finish": _step_finish,
        "agent.switched": _switched,
        "text.start": _text_start,
        "text.delta": _text_delta,
        "text.end": _text_end,
        "tool.start": _tool_start,
        "tool.args": _tool_args,
        "tool.end": _tool_start,
        "tool.result": _tool_result,
    }
    """The method for each event; it returns False if the event is to be kept raw."""


class _RunMessage:
    """A message, and how much of it was sent again after a gap."""

    def __init__(self, sink: Sink) -> None:
        self.message = MessageWriter(sink)
        self._text: TextWriter | None = None
        self._again: int | None = None  # how far

    def begin_again(self) -> None:
        """Note that the message is sent again after a gap."""
        self._again = 0

    def add(self, piece: str) -> str:
        """Append a piece. Returns the text that does not belong to this finished message."""
        before, at = "", self._again
        if at is not None:
            known = self._written[at : at + len(piece)]
            if known and piece.startswith(known):
                at, piece = at + len(known), piece[len(known) :]
            before = self._written[:at]
            self._again = None if piece else at
        if piece and self.message.is_open:
            self._open().add(piece)
            return ""
        return before + piece if piece else ""

    @property
    def _written(self) -> str:
        return "" if self._text is None else self._text.text

    def is_another(self, answer: str) -> bool:
        """Whether a message that began again, but did not stream, has another answer."""
        is_over = not self.message.is_open and self._again == 0
        return is_over and bool(answer) and answer != self._written

    def fill(self, answer: str) -> None:
        """The whole answer, for writers who do not stream it."""
        if answer and not self._written:
            self._open().add(answer)

    def _open(self) -> TextWriter:
        if self._text is None:
            self._text = self.message.text_block()
        return self._text


class _Call:
    """A call with what came of it."""

    def __init__(self, sink: Sink, ident: str, name: str) -> None:
        self._sink = sink
        self.writer = ArgumentsWriter(sink, name, call_id=ident, executor="server")
        self._has_result = False

    def complete(self, args: Json | None) -> None:
        """Complete the call with its arguments; None if they never came."""
        if self.writer.is_open:
            text = "" if args is None else json_text(args)
            self.writer.arguments_done(text)
            self.writer.finish()

    def answer(self, output: Json) -> None:
        """What the tool gave; the first answer stands."""
        if self._has_result:
            return
        self._has_result = True
        result = ResultWriter(self._sink, self.writer.call_id)
        summary = text_of(output.get("result_summary"))
        is_failed = output.get("status") == "failed"
        if summary and not is_failed:
            result.whole(Text(text=summary))
        for attachment in list_of(output.get("attachments")):
            if (file := _attachment(attachment)) is not None:
                result.whole(file)
        if output.get("ui_hints"):
            result.whole(Data(data=output["ui_hints"], name="ui_hints"))
        private = ev.Private(provider={"api": API, "output": output})
        if is_failed:
            result.fail(ErrorInfo(code="tool_error", message=summary), private)
        else:
            result.finish(private)


def _attachment(raw: Any) -> File | None:
    if not isinstance(raw, dict) or not isinstance(raw.get("url"), str):
        return None
    fields = {name: raw[name] for name in ("bucket", "path") if isinstance(raw.get(name), str)}
    mime_type = text_of(raw.get("mime_type")) or "application/octet-stream"
    return File(url=raw["url"], mime_type=mime_type, **fields)


def _is_rich(output: Json) -> bool:
    """Whether an answer has more than its text: the structured output of the agent."""
    result_type = output.get("result_type")
    return result_type not in _LITE or any(
        output.get(name) for name in ("key_points", "suggested_actions", "ui_hints")
    )
