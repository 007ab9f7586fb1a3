"""One sub-agent of a run that our own UI message stream tells: its items, its stages, its end."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tailrace.core import events as ev
from tailrace.core.citations import from_utf16
from tailrace.core.items import (
    ErrorInfo,
    Image,
    Item,
    Message,
    RawAnnotation,
    RawItem,
    Reasoning,
    ReferenceToBlock,
    Refusal,
    Status,
    Text,
    ToolCall,
    ToolResult,
)
from tailrace.core.state import ENDED
from tailrace.core.writers import (
    ArgumentsWriter,
    MessageWriter,
    ReasoningWriter,
    ResultWriter,
    Sink,
)
from tailrace.ingest.vercel_values import Json, block_of, dict_of, text_of, usage_of

_INTERRUPTED = ErrorInfo(code="interrupted", message="The tool was interrupted.")


class _Step(NamedTuple):
    number: int
    depth: int


class Steps:
    """The named stages of one task, as a stack.

    A stage that is over when it is first heard of may hold the ones that are told behind it: its
    depth tells. So its end waits for whatever else comes (`settle`).
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._open: dict[int, _Step] = {}  # by the stream's number
        self._over: set[int] = set()
        self._seen: set[int] = set()

    def take(self, data: Json) -> bool:
        """A stage began or ended; what comes twice is passed over."""
        number, name, depth = data.get("step_index"), data.get("name"), data.get("depth")
        if type(number) is not int or not isinstance(name, str):
            return False
        is_over = data.get("status") == "completed"
        if number not in self._seen:
            self._start(number, name, depth if type(depth) is int else len(self._open))
            if is_over:
                self._over.add(number)
        elif is_over and number in self._open:
            self._finish(number)
        return True

    def _start(self, number: int, name: str, depth: int) -> None:
        self.settle(depth)
        ours = len(self._seen)
        self._seen.add(number)
        self._open[number] = _Step(ours, depth)
        self._sink.emit(ev.StepStarted(task_id=self._sink.task_id, step_index=ours, name=name))

    def settle(self, depth: int = 0) -> None:
        """End the innermost stages that are over, down to a depth."""
        while self._open:
            innermost = next(reversed(self._open))
            if innermost not in self._over or self._open[innermost].depth < depth:
                return
            self._finish(innermost)

    def _finish(self, number: int | None) -> None:
        """End a stage and those inside of it."""
        ended = None
        while self._open and (number is None or ended != number):
            ended, step = self._open.popitem()
            event = ev.StepFinished(task_id=self._sink.task_id, step_index=step.number)
            self._sink.emit(event)

    def close(self) -> None:
        """End all of them."""
        self._finish(None)


class Child:
    """One sub-agent: a `Sink` for its items, and what is known of it."""

    def __init__(
        self, sink: Sink, task_id: str, call_id: str, parent: Child | None, data: Json
    ) -> None:
        self._sink = sink
        self._task_id = task_id
        self.call_id = call_id
        self.their_call_id = text_of(data.get("call_id"))
        self.parent = parent
        self.live_children = 0
        self.data = data
        self.is_retold = data.get("status") in ENDED
        self.has_joined = data.get("status") != "queued"
        self.is_ended = False
        self.steps = Steps(self)
        self.attempt = 1
        self.cut: list[str] = []  # its incomplete items
        self.done_items: set[str] = set()
        self.calls: dict[str, ArgumentsWriter] = {}
        self.results: dict[str, ResultWriter] = {}
        self.closing: dict[str, ErrorInfo | None] = {}  # results that have come, and how
        self.held: dict[str, None] = {}  # those of them that wait for the next item
        self.numbers: dict[tuple[str, int], int] = {}
        self._count = 0
        self._known: set[int] = set()

    @property
    def task_id(self) -> str:
        """The sub-agent, as the run calls it."""
        return self._task_id

    def emit(self, event: ev.Event, private: ev.Private | None = None) -> None:
        """Write an event into the run."""
        self._sink.emit(event, private)

    def add(self, item: Item, private: ev.Private | None = None) -> int:
        """Open an item."""
        index, self._count = self._count, self._count + 1
        event = ev.OutputItemAdded(task_id=self._task_id, output_index=index, item=item)
        self.emit(event, private)
        return index

    def done(self, index: int, item: Item, private: ev.Private | None = None) -> None:
        """Close an item."""
        if item.status == "incomplete":
            self.cut.append(item.id)
        event = ev.OutputItemDone(task_id=self._task_id, output_index=index, item=item)
        self.emit(event, private)

    def new_id(self, prefix: str) -> str:
        """An id of the run."""
        return self._sink.new_id(prefix)

    def free_call_id(self, wanted: str) -> str:
        """`wanted`, unless the run has such a call."""
        return self._sink.free_call_id(wanted)

    def knows(self, number: int) -> bool:
        """Whether a result of its own has the reference."""
        return number in self._known

    # --- items -----------------------------------------------------------------------------------

    def take(self, place: str, item: Item) -> None:
        """Write an item that is done."""
        self.done_items.add(place)
        if isinstance(item, Reasoning):
            self._reasoning(item)
        elif isinstance(item, Message):
            self._message(item)
        elif isinstance(item, ToolCall):
            self._call(item)
        elif isinstance(item, ToolResult):
            self._result(place, item)
        else:
            self._raw(item)

    def _reasoning(self, item: Reasoning) -> None:
        writer = ReasoningWriter(self)
        for text in item.summary or ():
            writer.summary_part().add(text.text)
        for text in item.reasoning_text or ():
            writer.text_part().add(text.text)
        writer.finish(_closed(item.status))

    def _message(self, item: Message) -> None:
        writer = MessageWriter(self, item.phase)
        for block in item.block_list or ():
            if isinstance(block, Text):
                self._text(writer, block)
            elif isinstance(block, Refusal):
                writer.refusal_block().add(block.refusal)
            elif isinstance(block, Image):
                writer.whole(Image(image_url=block.image_url))
            else:
                writer.whole(msgspec.structs.replace(block, id=None))
        writer.finish(_closed(item.status))

    def _text(self, message: MessageWriter, block: Text) -> None:
        writer = message.text_block()
        writer.add(block.text)
        made = writer.block.annotations
        for note in block.annotations:
            start, end = getattr(note, "start_index", None), getattr(note, "end_index", None)
            if start is not None and end is not None:
                start, end = from_utf16(block.text, [start, end])
                note = msgspec.structs.replace(note, start_index=start, end_index=end)
            if note in made:
                continue
            if isinstance(note, ReferenceToBlock):
                note = RawAnnotation(raw=msgspec.to_builtins(note))
            writer.annotate(note)
        writer.done()

    def _call(self, item: ToolCall) -> None:
        if item.call_id in self.calls:
            return
        writer = ArgumentsWriter(
            self,
            item.name,
            call_id=item.call_id or None,
            kind=item.kind,
            executor=item.executor,
            server_label=item.server_label,
        )
        self.calls[item.call_id] = writer
        writer.arguments(item.arguments or "")
        writer.finish(_closed(item.status))
        if item.status != "completed":
            del self.calls[item.call_id]

    def open_result(self, call_id: str) -> ResultWriter | None:
        """The result of a call while it may still get blocks or sub-agents."""
        writer = self.calls.get(call_id)
        if writer is None or self.is_ended:
            return None
        if call_id not in self.results:
            self.results[call_id] = ResultWriter(self, writer.call_id)
        result = self.results[call_id]
        return result if result.is_open else None

    def _result(self, place: str, item: ToolResult) -> None:
        result = self.open_result(item.call_id)
        if result is None or item.call_id in self.closing:
            return  # it has come before
        for index, raw in enumerate(item.block_list or ()):
            block = block_of(msgspec.to_builtins(raw))
            if block is not None:
                result.whole(block)
                number = getattr(block, "id", None)
                if number is not None:
                    self.numbers[place, index] = number
                    self._known.add(number)
        failed = item.error or (None if item.status == "completed" else _INTERRUPTED)
        self.closing[item.call_id] = failed

    def close_result(self, call_id: str) -> None:
        """No sub-agent is at work on the call."""
        result = self.results[call_id]
        failed = self.closing.pop(call_id, _INTERRUPTED)
        if failed is None:
            result.finish()
        else:
            result.fail(failed)

    def _raw(self, item: RawItem) -> None:
        raw = RawItem(id=self.new_id("raw"), raw=item.raw, source=item.source)
        index = self.add(raw)
        self.done(index, msgspec.structs.replace(raw, status=_closed(item.status)))

    def supersede(self) -> None:
        """Its incomplete items are made again."""
        if self.cut and not self.is_ended:
            self.attempt += 1
            gone, self.cut = self.cut, []
            event = ev.TaskAttempt(
                task_id=self._task_id, attempt=self.attempt, reason="reset-step", superseded=gone
            )
            self.emit(event)

    def end(self) -> None:
        """Close what is open, and end as the stream said; its own sub-agents have ended."""
        self.is_ended = True
        for call_id, result in self.results.items():
            if result.is_open:
                self.close_result(call_id)
        self.steps.close()
        usage = usage_of(self.data)
        if usage is not None:
            self.emit(ev.TaskUsage(task_id=self._task_id, usage=usage))
        output = self.data.get("structured_output")
        if isinstance(output, dict) and "value" in output:
            name = text_of(output.get("name")) or None
            value = output["value"]
            done = ev.StructuredOutputDone(task_id=self._task_id, value=value, name=name)
            self.emit(done)
        self.emit(self._last())

    def _last(self) -> ev.Event:
        task_id, status = self._task_id, self.data.get("status")
        reason = text_of(self.data.get("reason"))
        if status == "completed":
            return ev.TaskCompleted(task_id=task_id)
        if status == "incomplete":
            return ev.TaskIncomplete(task_id=task_id, reason=reason or "incomplete")
        if status == "failed":
            error = dict_of(self.data.get("error"))
            code, message = text_of(error.get("code")), text_of(error.get("message"))
            info = ErrorInfo(code=code or "error", message=message)
            return ev.TaskFailed(task_id=task_id, error=info)
        if status != "cancelled":
            reason = "Its parent ended."
        return ev.TaskCancelled(task_id=task_id, reason=reason or None)


def _closed(status: Status) -> Status:
    return "completed" if status == "completed" else "incomplete"
