"""The calls of a UI message: their inputs, results and approvals.

`toolCallId` joins the chunks of a call, in any order. A call is completed by its whole input; its
result waits for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.core import events as ev
from tailrace.core.closing_events import TOOL_INTERRUPTED
from tailrace.core.event_sink import Sink
from tailrace.core.items import Block, ErrorInfo, Executor, InputRequest
from tailrace.core.tool_arguments import decoded, ends_itself
from tailrace.core.values import Json, json_text, text_of
from tailrace.core.writers import ArgumentsWriter, ResultWriter
from tailrace.ingest.base import ExecutorOf
from tailrace.ingest.vercel_ui.values import API, error_of, our_fields, output_blocks

_NOTHING = object()


class _Call:
    """A call while its chunks come."""

    def __init__(self, ident: str) -> None:
        self.ident = ident
        self.writer: ArgumentsWriter | None = None
        self.status = "in_progress"
        self.value: Any = _NOTHING
        self.is_text = False
        self.is_answered = False
        self.early: list[str] = []  # of its input, before its start
        self.outputs: list[Json] = []  # before its input
        self.preliminary: Any = _NOTHING


class UiCalls:
    """Writes the calls and their results."""

    def __init__(self, sink: Sink, executor_of: ExecutorOf, before: Callable[[], None]) -> None:
        """`before` is called when a call or a result begins: it closes open texts."""
        self._sink = sink
        self._executor_of = executor_of
        self._before = before
        self._calls: dict[str, _Call] = {}
        self._streaming: dict[str, _Call] = {}
        self._cut: list[tuple[_Call, str]] = []
        self.is_ours = False
        """Whether the stream is ours, so that outputs are blocks."""
        self.requests: dict[str, InputRequest] = {}
        """The open requests, by id."""

    def _call(self, chunk: Json) -> _Call | None:
        ident = chunk.get("toolCallId")
        if not isinstance(ident, str) or not ident:
            return None
        call = self._calls.get(ident)
        if call is None:
            call = self._calls[ident] = _Call(ident)
        return call

    # --- inputs ----------------------------------------------------------------------------------

    def start(self, chunk: Json) -> bool:
        """Begin a call; a repeated start is ignored."""
        call, name = self._call(chunk), text_of(chunk.get("toolName"))
        if call is None or not name:
            return False
        if call.writer is None:
            self._open(call, name, chunk)
        return True

    def delta(self, chunk: Json) -> bool:
        """Append to an input, which may have had no start."""
        call, piece = self._call(chunk), chunk.get("inputTextDelta")
        if call is None or not isinstance(piece, str):
            return False
        if call.writer is None:
            call.early.append(piece)
        elif call.writer.is_open:
            call.writer.arguments(piece)
        return True

    def available(self, chunk: Json) -> bool:
        """Take the whole input."""
        call = self._begun(chunk)
        if call is None or "input" not in chunk:
            return False
        self._complete(call, chunk)
        return True

    def failed(self, chunk: Json) -> bool:
        """Take an input that is invalid or was cut."""
        call, given = self._begun(chunk), chunk.get("input")
        if call is None:
            return False
        if given is not None and not isinstance(given, str):
            self._complete(call, chunk)
            self._answer(call, {**chunk, "type": "tool-output-error"})
        elif call.status == "in_progress":
            self._cut_short(call, text_of(given), {"error": chunk.get("errorText")})
        return True

    def _begun(self, chunk: Json) -> _Call | None:
        """The call of a chunk that may be the first to name it."""
        call, name = self._call(chunk), text_of(chunk.get("toolName"))
        if call is not None and call.writer is None:
            if not name:
                return None
            self._open(call, name, chunk)
        return call

    def _open(self, call: _Call, name: str, chunk: Json) -> None:
        self._before()
        about = our_fields(chunk)
        call.is_text = call.is_text or chunk.get("inputEncoding") == "text"
        kind = "custom" if call.is_text else text_of(about.get("kind")) or "function"
        call.writer = ArgumentsWriter(
            self._sink,
            name,
            call_id=call.ident,
            kind=kind,
            executor=self._executor(name, kind, chunk),
            server_label=text_of(about.get("server_label")) or None,
        )
        call.status = "in_progress"
        self._streaming[call.ident] = call
        call.is_answered = False
        pieces, call.early = call.early, []
        call.writer.arguments("".join(pieces))

    def _executor(self, name: str, kind: str, chunk: Json) -> Executor:
        """Who runs the call. A call that is not marked may still get a result."""
        if not chunk.get("providerExecuted"):
            return self._executor_of(name)
        return "server" if self.is_ours and kind == "function" else "provider"

    def _complete(self, call: _Call, chunk: Json) -> None:
        value, writer = chunk["input"], call.writer
        assert writer is not None
        if call.status != "in_progress":
            if call.value is not _NOTHING and call.value == value:
                return  # the same chunk again
            writer = self._another(call, writer, chunk)
        is_text = call.is_text and isinstance(value, str)
        whole = value if is_text else json_text(value)
        if not _says(writer.text, value) and not (not is_text and ends_itself(writer.text)):
            # The backend's validation may have changed the value.
            if not whole.startswith(writer.text):
                self._cut_short(call, "", {"input": value})
                writer = self._another(call, writer, chunk)
            writer.arguments_done(whole)
        del self._streaming[call.ident]
        call.status, call.value = "completed", value
        is_other = not _says(writer.text, value)
        writer.finish("completed", _kept({"input": value}) if is_other else None)
        outputs, call.outputs = call.outputs, []
        for output in outputs:
            self._answer(call, output)

    def _another(self, call: _Call, before: ArgumentsWriter, chunk: Json) -> ArgumentsWriter:
        """Open another call for an input that differs from the streamed text."""
        self._open(call, before.name, chunk)
        assert call.writer is not None
        return call.writer

    def _cut_short(self, call: _Call, given: str, why: Json) -> None:
        assert call.writer is not None
        if given.startswith(call.writer.text):
            call.writer.arguments(given[call.writer.length :])
        del self._streaming[call.ident]
        call.status = "incomplete"
        call.writer.finish("incomplete", _kept(why))
        self._cut.append((call, call.writer.id))

    # --- results ---------------------------------------------------------------------------------

    def output(self, chunk: Json) -> bool:
        """Take the result of a call, or its failure."""
        call = self._call(chunk)
        if call is None or call.status == "incomplete":
            return False
        if call.status == "in_progress":
            call.outputs.append(chunk)
        else:
            self._answer(call, chunk)
        return True

    def _answer(self, call: _Call, chunk: Json) -> None:
        if call.is_answered:
            return
        kind = chunk["type"]
        if kind == "tool-output-available":
            if chunk.get("preliminary"):
                call.preliminary = chunk.get("output")
            else:
                self._write(call, output_blocks(chunk.get("output"), is_ours=self.is_ours))
        elif kind == "tool-output-denied":
            denied = error_of(None, "approval_rejected", "The call was not approved.")
            self._write(call, [], denied)
        else:
            failed = error_of(chunk.get("errorText"), "tool_error", "The tool failed.")
            self._write(call, [], failed)

    def _write(self, call: _Call, blocks: list[Block], error: ErrorInfo | None = None) -> None:
        assert call.writer is not None
        call.is_answered = True
        self._before()
        result = ResultWriter(self._sink, call.writer.call_id)
        for block in blocks:
            result.whole(block)
        if error is None:
            result.finish()
        else:
            result.fail(error)

    # --- approvals -------------------------------------------------------------------------------

    def ask(self, chunk: Json) -> bool:
        """Note a request for approval."""
        call, ident = self._call(chunk), chunk.get("approvalId")
        if call is None or not isinstance(ident, str):
            return False
        call_id = None if call.writer is None else call.writer.call_id
        self.requests[ident] = InputRequest(
            id=ident,
            kind="approval",
            call_id=call_id,
            message=text_of(chunk.get("reason")) or None,
        )
        return True

    def approve(self, chunk: Json) -> bool:
        """Note the answer to a request."""
        return self.requests.pop(text_of(chunk.get("approvalId")), None) is not None

    def pending(self) -> list[InputRequest]:
        """The open requests, without those of calls that have a result."""
        answered = {
            call.writer.call_id
            for call in self._calls.values()
            if call.is_answered and call.writer is not None
        }
        return [request for request in self.requests.values() if request.call_id not in answered]

    # --- steps and the end -----------------------------------------------------------------------

    def reset(self) -> list[str]:
        """Supersede the incomplete calls of the step; return their ids."""
        self.requests.clear()
        for call in list(self._streaming.values()):
            self._cut_short(call, "", {})
        gone, self._cut = self._cut, []
        for call, _ in gone:
            if call.status == "incomplete":
                self._calls.pop(call.ident, None)
        return [item_id for _, item_id in gone]

    def begin_step(self) -> None:
        """Begin a step: earlier calls can no longer be superseded."""
        self._cut.clear()

    def close(self) -> list[Json]:
        """End the message; return the chunks that belong to no call."""
        left: list[Json] = []
        for call in self._calls.values():
            left += call.outputs
            if call.early:
                about = {"toolCallId": call.ident, "inputTextDelta": "".join(call.early)}
                left.append({"type": "tool-input-delta", **about})
            is_waiting = call.status == "completed" and not call.is_answered
            if is_waiting and call.preliminary is not _NOTHING:
                # The tool did not reach its end; its last preliminary output stays.
                blocks = output_blocks(call.preliminary, is_ours=self.is_ours)
                self._write(call, blocks, TOOL_INTERRUPTED)
        for call in list(self._streaming.values()):
            self._cut_short(call, "", {})
        return left


def _kept(why: Json) -> ev.Private | None:
    """The private part with facts that an item cannot show."""
    found = {name: value for name, value in why.items() if value not in (None, "")}
    return ev.Private(provider={"api": API, **found}) if found else None


def _says(text: str, value: Any) -> bool:
    """Whether the streamed arguments are the input."""
    return bool(text == value or (text and decoded(text, _NOTHING) == value))
