"""The sub-agents of a run as our own UI message streams tell them, and what else is only ours.

    data-task        who a sub-agent is and how it fares
    data-task-item   one of its items; it is written when it is done
    data-step, data-notice, data-progress     of the run or of a sub-agent

A stream that somebody joined late tells what is past in few chunks: a sub-agent's end before its
items, a result before the sub-agents below it. So a sub-agent that was not seen to begin closes a
result when it goes on, and one that was over before ends with the message. What has no place in the
run, such as a sub-agent of an unknown call, is left to the caller, who keeps it raw.
"""

from __future__ import annotations

from collections import Counter
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
from tailrace.ingest.vercel_calls import Calls
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


class _Child:
    """One sub-agent: a `Sink` for its items, and what is known of it."""

    def __init__(
        self, sink: Sink, task_id: str, call_id: str, parent: _Child | None, data: Json
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
        return self._task_id

    def emit(self, event: ev.Event, private: ev.Private | None = None) -> None:
        self._sink.emit(event, private)

    def add(self, item: Item, private: ev.Private | None = None) -> int:
        index, self._count = self._count, self._count + 1
        event = ev.OutputItemAdded(task_id=self._task_id, output_index=index, item=item)
        self.emit(event, private)
        return index

    def done(self, index: int, item: Item, private: ev.Private | None = None) -> None:
        if item.status == "incomplete":
            self.cut.append(item.id)
        event = ev.OutputItemDone(task_id=self._task_id, output_index=index, item=item)
        self.emit(event, private)

    def new_id(self, prefix: str) -> str:
        return self._sink.new_id(prefix)

    def free_call_id(self, wanted: str) -> str:
        return self._sink.free_call_id(wanted)

    def knows(self, number: int) -> bool:
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


class Tasks:
    """All sub-agents of the run, and the root's own steps, notices and progress."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._children: dict[str, _Child] = {}
        self._ids = {sink.task_id}
        self._live: Counter[str] = Counter()  # how many work on a call, by its id
        self._born: Counter[str] = Counter()
        self._steps = Steps(sink)
        self._settling: dict[Steps, None] = {}
        self._noticed: set[str] = set()
        self.root_id: str | None = None
        """What the stream calls the root, if it is ours."""
        self.calls: Calls
        """Those of the root: set by whoever makes both."""

    def are_at_work(self, call_id: str, tasks: list[str]) -> bool:
        """Whether a result must stay open: for a sub-agent of the call, or one that it names."""
        return bool(self._live[call_id]) or any(one not in self._children for one in tasks)

    # --- sub-agents ------------------------------------------------------------------------------

    def task(self, chunk: Json) -> bool:
        """A sub-agent begins, or fares otherwise."""
        data = dict_of(chunk.get("data"))
        task_id = data.get("task_id")
        if not isinstance(task_id, str):
            return False
        child = self._children.get(task_id) or self._create(task_id, data)
        if child is None:
            return False
        if not child.is_ended:
            child.data = data
            is_over = data.get("status") in ENDED and not child.is_retold
            if is_over and not child.live_children:
                self._end(child)
        return True

    def _create(self, task_id: str, data: Json) -> _Child | None:
        parent_id, ident = data.get("parent_task_id"), data.get("call_id")
        parent = self._children.get(parent_id) if isinstance(parent_id, str) else None
        if not isinstance(ident, str) or (parent is None and parent_id != self.root_id):
            return None
        if parent is None:
            call_id = self.calls.for_child(ident)
        else:
            result = parent.open_result(ident)
            call_id = None if result is None else result.call_id
        if call_id is None:
            return None
        ours = call_id if not self._born[call_id] else f"{call_id}/{self._born[call_id] + 1}"
        if ours in self._ids:
            return None
        self._ids.add(ours)
        self._born[call_id] += 1
        self._live[call_id] += 1
        child = self._children[task_id] = _Child(self._sink, ours, call_id, parent, data)
        if parent is not None:
            parent.live_children += 1
        self._sink.emit(
            ev.TaskCreated(
                task_id=ours,
                parent_task_id=self._sink.task_id if parent is None else parent.task_id,
                call_id=call_id,
                agent=text_of(data.get("agent")) or None,
                model=text_of(data.get("model")) or None,
            )
        )
        self._sink.emit(ev.TaskInProgress(task_id=ours))
        return child

    def _end(self, child: _Child) -> None:
        child.end()
        self._live[child.call_id] -= 1
        if child.parent is None:
            self.calls.child_ended(child.call_id)
        else:
            child.parent.live_children -= 1
            self._settle(child.parent, child.their_call_id)

    def item(self, chunk: Json) -> bool:
        """An item of a sub-agent, which is written when it is done. Its pieces pass by."""
        data, place = dict_of(chunk.get("data")), text_of(chunk.get("id"))
        child = self._children.get(text_of(data.get("task_id")))
        if child is None:
            return bool(chunk.get("transient"))  # the root's own results come as a call's output
        if child.is_ended or place in child.done_items or data.get("status") == "in_progress":
            return True
        try:
            item = msgspec.convert(data, Item)
        except (msgspec.ValidationError, ValueError):
            return False
        held, child.held = child.held, {}
        for call_id in held:
            self._settle(child, call_id)
        child.take(place, item)
        if isinstance(item, ToolResult):
            if child.has_joined:
                child.held[item.call_id] = None
            else:
                self._settle(child, item.call_id)
        return True

    def _settle(self, child: _Child, call_id: str) -> None:
        """Close a result that has come, unless sub-agents are at work on it or may follow."""
        if child.is_retold or call_id in child.held:
            return
        if call_id in child.closing and not self._live[child.results[call_id].call_id]:
            child.close_result(call_id)

    def knows(self, number: int, about: Json) -> bool:
        """Whether the root can cite a number; a sub-agent's reference is imported for it."""
        if self._sink.knows(number):
            return True
        child = self._children.get(text_of(about.get("task_id")))
        index = about.get("block_index")
        if child is None or child.parent is not None or not isinstance(index, int) or number < 1:
            return False
        place = f"{about['task_id']}/{about.get('output_index')}"
        theirs = child.numbers.get((place, index))
        if theirs is None:
            return False
        self._sink.emit(
            ev.ReferenceImported(
                task_id=self._sink.task_id,
                reference_id=number,
                source_task_id=child.task_id,
                source_reference_id=theirs,
            )
        )
        return True

    # --- what passes by --------------------------------------------------------------------------

    def _of(self, data: Json) -> _Child | Sink | None:
        """The task that a chunk is about, while it lives."""
        task_id = data.get("task_id")
        if task_id == self.root_id:
            return self._sink
        child = self._children.get(text_of(task_id))
        return None if child is None or child.is_ended else child

    def step(self, chunk: Json) -> bool:
        """A named stage that began or ended."""
        data = dict_of(chunk.get("data"))
        task = self._of(data)
        if task is None:
            return False
        steps = task.steps if isinstance(task, _Child) else self._steps
        self._settling[steps] = None
        return steps.take(data)

    def settle_steps(self) -> None:
        """Something else than a stage is told: those that are over hold nothing more."""
        for steps in self._settling:
            steps.settle()
        self._settling.clear()

    def notice(self, chunk: Json) -> bool:
        """Something for the person who watches; its id tells whether it came before."""
        data, ident = dict_of(chunk.get("data")), text_of(chunk.get("id"))
        task, message = self._of(data), data.get("message")
        if task is None or not isinstance(message, str):
            return False
        if ident and ident in self._noticed:
            return True
        self._noticed.add(ident)
        self._sink.emit(
            ev.Notice(
                task_id=task.task_id,
                message=message,
                level=text_of(data.get("level")) or "info",
                data=data.get("data"),
            )
        )
        return True

    def progress(self, chunk: Json) -> bool:
        """How far a call, or a task, has come."""
        data = dict_of(chunk.get("data"))
        task, ident = self._of(data), data.get("call_id")
        if task is None:
            return False
        call_id = None
        if ident is not None:
            calls = task.calls if isinstance(task, _Child) else self.calls.writers
            if not isinstance(ident, str) or ident not in calls:
                return False
            call_id = calls[ident].call_id
        current, total = data.get("current"), data.get("total")
        self._sink.emit(
            ev.Progress(
                task_id=task.task_id,
                call_id=call_id,
                message=text_of(data.get("message")) or None,
                current=current if isinstance(current, int | float) else None,
                total=total if isinstance(total, int | float) else None,
            )
        )
        return True

    # --- steps of the message, and the end -------------------------------------------------------

    def reset(self) -> None:
        """What was cut short of a sub-agent is made again."""
        for child in self._children.values():
            child.supersede()

    def close(self) -> None:
        """The message is over: so are its sub-agents, the innermost first."""
        for child in reversed(self._children.values()):
            if not child.is_ended:
                self._end(child)
        self._steps.close()
