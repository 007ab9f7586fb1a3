"""The calls of a UI message: their inputs, what they gave, and the approvals that they wait for.

Everything is correlated by `toolCallId`, in whatever order it comes. A call is made only when its
whole input has come; what it gave waits for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from tailrace.core import events as ev
from tailrace.core.items import Block, ErrorInfo, Executor, InputRequest
from tailrace.core.writers import ArgumentsWriter, ResultWriter, Sink
from tailrace.ingest.base import ExecutorOf
from tailrace.ingest.vercel_values import API, Json, about_us, error_of, output_blocks, text_of

_NOTHING = object()


class Children(Protocol):
    """The sub-agents that work on calls."""

    def are_at_work(self, call_id: str, tasks: list[str]) -> bool:
        """Whether a result must stay open: for a sub-agent of the call, or one that it names."""
        ...


class _Call:
    """What is known of one call."""

    def __init__(self, ident: str) -> None:
        self.ident = ident
        self.writer: ArgumentsWriter | None = None
        self.status = "in_progress"
        self.value: Any = _NOTHING
        self.is_text = False
        self.result: ResultWriter | None = None
        self.is_answered = False
        self.error: ErrorInfo | None = None
        self.early: list[str] = []  # of its input, before its start
        self.outputs: list[Json] = []  # before its input
        self.preliminary: Any = _NOTHING


class Calls:
    """Writes the calls and their results."""

    def __init__(
        self, sink: Sink, executor_of: ExecutorOf, before: Callable[[], None], children: Children
    ) -> None:
        """`before` is called when a call begins: what was said before it is whole."""
        self._sink = sink
        self._executor_of = executor_of
        self._before = before
        self._children = children
        self._calls: dict[str, _Call] = {}
        self._streaming: dict[str, _Call] = {}
        self._cut: list[tuple[_Call, str]] = []
        self._settling: dict[str, _Call] = {}  # answered, but sub-agents are still at work
        self.writers: dict[str, ArgumentsWriter] = {}
        """The calls that have begun, by the stream's own id."""
        self.is_ours = False
        """Whether the stream is one of our own, so that its outputs are blocks."""
        self.requests: dict[str, InputRequest] = {}
        """What people are asked, by the id of the request."""

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
        """A call begins; again, if it is known."""
        call, name = self._call(chunk), text_of(chunk.get("toolName"))
        if call is None or not name:
            return False
        if call.writer is None:
            self._open(call, name, chunk)
        return True

    def delta(self, chunk: Json) -> bool:
        """More of an input, which may have had no start."""
        call, piece = self._call(chunk), chunk.get("inputTextDelta")
        if call is None or not isinstance(piece, str):
            return False
        if call.writer is None:
            call.early.append(piece)
        elif call.writer.is_open:
            call.writer.arguments(piece)
        return True

    def available(self, chunk: Json) -> bool:
        """The whole input."""
        call = self._begun(chunk)
        if call is None or "input" not in chunk:
            return False
        self._complete(call, chunk)
        return True

    def failed(self, chunk: Json) -> bool:
        """An input that is no good: a whole one that was refused, or one that was cut."""
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
        about = about_us(chunk)
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
        self.writers[call.ident] = call.writer
        call.result, call.is_answered, call.error = None, False, None
        pieces, call.early = call.early, []
        call.writer.arguments("".join(pieces))

    def _executor(self, name: str, kind: str, chunk: Json) -> Executor:
        """Who carries it out. Of one that is not marked the result may come all the same."""
        if not chunk.get("providerExecuted"):
            return self._executor_of(name)
        return "server" if self.is_ours and kind == "function" else "provider"

    def _complete(self, call: _Call, chunk: Json) -> None:
        value, writer = chunk["input"], call.writer
        assert writer is not None
        if call.status != "in_progress":
            if call.value is not _NOTHING and call.value == value:
                return  # told again
            writer = self._another(call, writer, chunk)
        is_text = call.is_text and isinstance(value, str)
        whole = value if is_text else msgspec.json.encode(value).decode()
        if not _says(writer.text, value) and not (not is_text and _is_whole(writer.text)):
            # A value that its checker filled up or mended may be written otherwise than it came.
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
        """What was shown cannot be taken back: the input is that of another call."""
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
        """What a call gave, or that it gave nothing."""
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
        kind, blocks, tasks = chunk["type"], list[Block](), list[str]()
        if kind == "tool-output-available":
            if chunk.get("preliminary"):
                call.preliminary = chunk.get("output")
                return
            blocks, tasks = output_blocks(chunk.get("output"), is_ours=self.is_ours)
        elif kind == "tool-output-denied":
            call.error = error_of(None, "approval_rejected", "The call was not approved.")
        else:
            call.error = error_of(chunk.get("errorText"), "tool_error", "The tool failed.")
        self._write(call, blocks, tasks)

    def _write(self, call: _Call, blocks: list[Block], tasks: list[str]) -> None:
        assert call.writer is not None
        call.is_answered = True
        result = self._result(call)
        for block in blocks:
            result.whole(block)
        if self._children.are_at_work(call.writer.call_id, tasks):
            self._settling[call.writer.call_id] = call
        else:
            self._close(call)

    def _result(self, call: _Call) -> ResultWriter:
        assert call.writer is not None
        if call.result is None:
            self._before()
            call.result = ResultWriter(self._sink, call.writer.call_id)
        return call.result

    def _close(self, call: _Call) -> None:
        result = self._result(call)
        if call.error is None:
            result.finish()
        else:
            result.fail(call.error)

    def for_child(self, ident: str) -> str | None:
        """The call that a sub-agent answers, its result open; None if it has none that can be."""
        call = self._calls.get(ident)
        if call is None or call.status != "completed":
            return None
        if call.is_answered and (call.writer is None or call.writer.call_id not in self._settling):
            return None
        return self._result(call).call_id

    def child_ended(self, call_id: str) -> None:
        """A sub-agent of the call is done; maybe it was the last."""
        call = self._settling.get(call_id)
        if call is not None and not self._children.are_at_work(call_id, []):
            self._close(self._settling.pop(call_id))

    # --- approvals -------------------------------------------------------------------------------

    def ask(self, chunk: Json) -> bool:
        """Somebody has to approve a call."""
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
        """Somebody has said whether."""
        return self.requests.pop(text_of(chunk.get("approvalId")), None) is not None

    def pending(self) -> list[InputRequest]:
        """The requests that wait: not those of calls that went on without an answer."""
        answered = {
            call.writer.call_id
            for call in self._calls.values()
            if call.is_answered and call.writer is not None
        }
        return [one for one in self.requests.values() if one.call_id not in answered]

    # --- steps and the end -----------------------------------------------------------------------

    def reset(self) -> list[str]:
        """Take the step back as far as it was not final; the ids of the items that are gone."""
        self.requests.clear()
        for call in list(self._streaming.values()):
            self._cut_short(call, "", {})
        gone, self._cut = self._cut, []
        for call, _ in gone:
            if call.status == "incomplete":
                self._calls.pop(call.ident, None)
        return [item_id for _, item_id in gone]

    def begin_step(self) -> None:
        """What was told before can no longer be taken back."""
        self._cut.clear()

    def close(self) -> list[Json]:
        """The message is over, and no sub-agent at work; what belongs to no call is given back."""
        left: list[Json] = []
        for call in self._calls.values():
            left += call.outputs
            if call.early:
                about = {"toolCallId": call.ident, "inputTextDelta": "".join(call.early)}
                left.append({"type": "tool-input-delta", **about})
            if call.status == "completed" and not call.is_answered:
                self._interrupt(call)
        for call in list(self._streaming.values()):
            self._cut_short(call, "", {})
        for call in self._settling.values():
            self._close(call)
        return left

    def _interrupt(self, call: _Call) -> None:
        """A tool that did not come to its end; what it had shown stays."""
        if call.preliminary is _NOTHING and call.result is None:
            return
        call.error = ErrorInfo(code="interrupted", message="The tool was interrupted.")
        shown = None if call.preliminary is _NOTHING else call.preliminary
        call.is_answered = True
        result = self._result(call)
        for block in output_blocks(shown, is_ours=self.is_ours)[0]:
            result.whole(block)
        self._close(call)


def _kept(why: Json) -> ev.Private | None:
    """What a chunk said that an item cannot show."""
    found = {name: value for name, value in why.items() if value not in (None, "")}
    return ev.Private(provider={"api": API, **found}) if found else None


def _says(text: str, value: Any) -> bool:
    """Whether the arguments as they were streamed are the input."""
    return bool(text == value or (text and _decoded(text) == value))


def _is_whole(text: str) -> bool:
    """Whether the text can only be whole: an object, a list or a string ends where it ends."""
    return isinstance(_decoded(text), dict | list | str)


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return _NOTHING
