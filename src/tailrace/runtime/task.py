"""How an agent writes its run: reasoning, calls, results, sub-agents, messages.

    with task.reasoning() as thinking:
        thinking.summary("Which city? ")
    with task.call("get_weather") as call:
        call.arguments('{"city":"Paris"}')
    call.result({"temperature": "15C"})
    with task.message() as message:
        message.text("It is 15C.[^1]")
    await task.drain()

Nothing here waits but `drain()`, which an agent awaits where it wants backpressure. Ids come from
the event's place in the log, so they are unique in the run without any chance involved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tailrace.core import closing
from tailrace.core import events as ev
from tailrace.core.citations import CitationScanner
from tailrace.core.items import (
    Block,
    Data,
    ErrorInfo,
    Executor,
    File,
    Image,
    ImageUrl,
    Item,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from tailrace.core.references import Pool, import_citations
from tailrace.core.state import TaskNode, TextNode
from tailrace.core.tool_output import tool_output
from tailrace.runtime.pipeline import Emitter


class TaskWriter:
    """Writes one task: the run's root, or a sub-agent below a call."""

    def __init__(self, emitter: Emitter, task_id: str, pool: Pool | None = None) -> None:
        self.emitter = emitter
        self.task_id = task_id
        self.pool = pool or Pool(self.node.reference_start)

    @property
    def node(self) -> TaskNode:
        """The task as folded so far."""
        return self.emitter.state.tasks[self.task_id]

    @property
    def input(self) -> Any:
        """What the task was asked."""
        return self.node.facts.get("input")

    def emit(self, event: ev.Event, private: ev.Private | None = None) -> None:
        """Record any event of this task; the methods below cover the common ones."""
        self.emitter.emit(event, private)

    async def drain(self) -> None:
        """Wait until what was written is durable."""
        await self.emitter.drain()

    def new_id(self, prefix: str) -> str:
        """An id that no other item of the run has."""
        run = self.emitter.run_id.removeprefix("run_")
        return f"{prefix}_{run}_{self.emitter.state.sequence_number + 1}"

    def add(self, item: Item) -> int:
        """Open an item; its `output_index`."""
        index = len(self.node.items)
        self.emit(ev.OutputItemAdded(task_id=self.task_id, output_index=index, item=item))
        return index

    def done(self, index: int, item: Item, private: ev.Private | None = None) -> None:
        """Close an item."""
        event = ev.OutputItemDone(task_id=self.task_id, output_index=index, item=item)
        self.emit(event, private)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A named stage of the agent."""
        index = len(self.node.steps)
        self.emit(ev.StepStarted(task_id=self.task_id, step_index=index, name=name))
        yield
        self.emit(ev.StepFinished(task_id=self.task_id, step_index=index))

    @contextmanager
    def reasoning(self) -> Iterator[ReasoningWriter]:
        """What the agent thinks."""
        writer = ReasoningWriter(self)
        yield writer
        writer.finish()

    @contextmanager
    def message(self) -> Iterator[MessageWriter]:
        """What the agent says."""
        writer = MessageWriter(self)
        yield writer
        writer.finish()

    @contextmanager
    def call(self, name: str, *, executor: Executor = "server") -> Iterator[CallWriter]:
        """The agent asks for a tool; after the block, the call is final."""
        writer = CallWriter(self, name, executor)
        yield writer
        writer.finish()

    def notice(self, message: str, data: Any = None) -> None:
        """Tell the person who watches."""
        self.emit(ev.Notice(task_id=self.task_id, message=message, data=data))

    def usage(self, usage: Usage) -> None:
        """Account for one model call."""
        self.emit(ev.TaskUsage(task_id=self.task_id, usage=usage))

    def complete(self) -> None:
        """End the task with its answer, unless it has ended."""
        if not self.node.ended:
            self.emit(ev.TaskCompleted(task_id=self.task_id))

    def fail(self, error: ErrorInfo) -> None:
        """End the task, whatever is open in it, with an error."""
        self._end(ev.TaskFailed(task_id=self.task_id, error=error))

    def cancel(self, reason: str) -> None:
        """End the task, whatever is open in it; what it had is kept."""
        self._end(ev.TaskCancelled(task_id=self.task_id, reason=reason))

    def _end(self, last: ev.Event) -> None:
        if not self.node.ended:
            for event in closing.ending(self.node, last):
                self.emit(event)


class ReasoningWriter:
    """A reasoning item: parts of a summary, each in any number of pieces."""

    def __init__(self, task: TaskWriter) -> None:
        self._task = task
        self._id = task.new_id("rs")
        self._index = task.add(Reasoning(id=self._id, summary=[]))
        self._place: dict[str, Any] = {
            "task_id": task.task_id,
            "item_id": self._id,
            "output_index": self._index,
        }
        self._pieces: list[str] | None = None
        self._parts: list[Text] = []

    def summary(self, piece: str) -> None:
        """More of the summary part that is being written."""
        at = len(self._parts)
        if self._pieces is None:
            self._pieces = []
            added = ev.SummaryItemAdded(**self._place, summary_index=at, item=Text(text=""))
            self._task.emit(added)
        self._pieces.append(piece)
        self._task.emit(ev.SummaryTextDelta(**self._place, summary_index=at, delta=piece))

    def next_part(self) -> None:
        """End this part of the summary; the next piece begins another."""
        if self._pieces is not None:
            part = Text(text="".join(self._pieces))
            done = ev.SummaryItemDone(**self._place, summary_index=len(self._parts), item=part)
            self._task.emit(done)
            self._parts.append(part)
            self._pieces = None

    def finish(self) -> None:
        """Close the item."""
        self.next_part()
        self._task.done(self._index, Reasoning(id=self._id, summary=self._parts))


class _Blocks:
    """Writes the blocks of a message or a result, one after the other."""

    def __init__(self, task: TaskWriter, item_id: str, index: int) -> None:
        self._task = task
        self._place: dict[str, Any] = {
            "task_id": task.task_id,
            "item_id": item_id,
            "output_index": index,
        }
        self.blocks: list[Block] = []

    def whole(self, block: Block, partial_images: Iterable[str] = ()) -> None:
        """A block that comes at once; an image may sharpen on the way."""
        place: dict[str, Any] = {**self._place, "block_index": len(self.blocks)}
        if isinstance(block, Text):
            self._task.emit(ev.TextDone(**place, item=block))
        elif isinstance(block, Image):
            empty = Image(image_url=ImageUrl(url=""), id=block.id)
            self._task.emit(ev.ImageAdded(**place, item=empty))
            for number, url in enumerate(partial_images):
                partial = Image(image_url=ImageUrl(url=url), id=block.id)
                self._task.emit(ev.ImageDelta(**place, partial_image_index=number, item=partial))
            self._task.emit(ev.ImageDone(**place, item=block))
        elif isinstance(block, Data):
            self._task.emit(ev.DataDone(**place, item=block))
        elif isinstance(block, File):
            self._task.emit(ev.FileDone(**place, item=block))
        else:
            self._task.emit(ev.RefusalDone(**place, item=block))
        self.blocks.append(block)


class MessageWriter(_Blocks):
    """A message: streamed text whose `[^n]` become citations on the way, and whole blocks."""

    def __init__(self, task: TaskWriter) -> None:
        self._id = task.new_id("msg")
        self._index = task.add(Message(id=self._id, role="assistant", block_list=[]))
        super().__init__(task, self._id, self._index)
        self._scanner: CitationScanner | None = None

    def text(self, piece: str) -> None:
        """More of the text that is being written."""
        place: dict[str, Any] = {**self._place, "block_index": len(self.blocks)}
        if self._scanner is None:
            self._scanner = CitationScanner(self._task.pool.knows)
            self._task.emit(ev.TextAdded(**place, item=Text(text="")))
        self._show(place, self._scanner.feed(piece))

    def _show(self, place: dict[str, Any], scanned: Any) -> None:
        if scanned.text:
            self._task.emit(ev.TextDelta(**place, delta=scanned.text))
        for annotation in scanned.annotations:
            at = len(self._node(place).annotations)
            self._task.emit(ev.AnnotationAdded(**place, annotation_index=at, annotation=annotation))

    def _node(self, place: dict[str, Any]) -> TextNode:
        part = self._task.node.items[self._index].parts[place["block_index"]]
        assert isinstance(part, TextNode)
        return part

    def next_block(self) -> None:
        """End this text; the next piece begins another block."""
        if self._scanner is not None:
            place: dict[str, Any] = {**self._place, "block_index": len(self.blocks)}
            self._show(place, self._scanner.finish())
            node = self._node(place)
            block = Text(text=node.text, annotations=list(node.annotations))
            self._task.emit(ev.TextDone(**place, item=block))
            self.blocks.append(block)
            self._scanner = None

    def image(self, url: str, partial_images: Iterable[str] = ()) -> None:
        """A picture, at once or through ever better ones."""
        self.next_block()
        self.whole(Image(image_url=ImageUrl(url=url)), partial_images)

    def finish(self) -> None:
        """Close the message."""
        self.next_block()
        self._task.done(self._index, Message(id=self._id, role="assistant", block_list=self.blocks))


class CallWriter:
    """A tool call, and then what came of it."""

    def __init__(self, task: TaskWriter, name: str, executor: Executor) -> None:
        self._task = task
        self.call_id = task.new_id("call")
        self._item = ToolCall(
            id=task.new_id("fc"), call_id=self.call_id, name=name, executor=executor
        )
        self._index = task.add(self._item)
        self._pieces: list[str] = []
        self._result_id = ""
        self._result_index = 0

    @property
    def _place(self) -> dict[str, Any]:
        return {
            "task_id": self._task.task_id,
            "item_id": self._item.id,
            "output_index": self._index,
        }

    def arguments(self, piece: str) -> None:
        """More of the arguments' JSON, cut anywhere."""
        self._pieces.append(piece)
        self._task.emit(ev.ArgumentsDelta(**self._place, delta=piece))

    def finish(self) -> None:
        """Close the call: its arguments are whole."""
        arguments = "".join(self._pieces)
        self._task.emit(ev.ArgumentsDone(**self._place, arguments=arguments))
        item = self._item
        whole = ToolCall(
            id=item.id,
            call_id=item.call_id,
            name=item.name,
            arguments=arguments,
            executor=item.executor,
        )
        self._task.done(self._index, whole)

    def start(self) -> None:
        """The tool is about to run. Await `drain()` before its first line."""
        self._task.emit(ev.ToolCallStarted(**self._place))

    def progress(
        self, message: str, current: float | None = None, total: float | None = None
    ) -> None:
        """How far the tool has come."""
        self._task.emit(
            ev.Progress(
                task_id=self._task.task_id,
                call_id=self.call_id,
                message=message,
                current=current,
                total=total,
            )
        )

    def result(self, value: Any, partial_images: Iterable[str] = ()) -> None:
        """What the tool returned: a string, JSON, or the two lists of the protocol."""
        admitted = self._task.pool.admit(tool_output(value))
        self._open_result()
        blocks = _Blocks(self._task, self._result_id, self._result_index)
        for block in admitted.block_list:
            blocks.whole(block, partial_images)
        item = ToolResult(id=self._result_id, call_id=self.call_id, block_list=blocks.blocks)
        self._task.done(self._result_index, item, ev.Private(content=admitted.content))

    def fail(self, error: ErrorInfo) -> None:
        """The tool did not return."""
        self._open_result()
        self._fail_result(error)

    @contextmanager
    def delegate(self, agent: str, input: Any = None) -> Iterator[TaskWriter]:
        """Let a sub-agent answer the call.

        Its events stand in the same log under its own `task_id`. When the block ends, the parent
        gets the child's message and the references that it cited, and nothing else from inside.
        """
        self._open_result()
        parent = self._task
        parent.emit(
            ev.TaskCreated(
                task_id=self.call_id,
                agent=agent,
                parent_task_id=parent.task_id,
                call_id=self.call_id,
                input=input,
            )
        )
        parent.emit(ev.TaskInProgress(task_id=self.call_id))
        child = TaskWriter(parent.emitter, self.call_id)
        yield child
        child.complete()
        error = child.node.error
        if error is not None:
            self._fail_result(error)
            return
        imported = import_citations(_said(child.node), _returned(child.node), parent.pool)
        for number, source in imported.imports:
            parent.emit(
                ev.ReferenceImported(
                    task_id=parent.task_id,
                    reference_id=number,
                    source_task_id=child.task_id,
                    source_reference_id=source,
                )
            )
        item = ToolResult(id=self._result_id, call_id=self.call_id)
        parent.done(self._result_index, item, ev.Private(content=imported.content))

    def _open_result(self) -> None:
        self._result_id = self._task.new_id("fco")
        item = ToolResult(id=self._result_id, call_id=self.call_id, block_list=[])
        self._result_index = self._task.add(item)

    def _fail_result(self, error: ErrorInfo) -> None:
        item = ToolResult(id=self._result_id, call_id=self.call_id, status="failed", error=error)
        self._task.done(self._result_index, item)


def _said(task: TaskNode) -> list[str]:
    """The texts of a task's messages, in order."""
    return [
        part.text
        for node in task.output()
        if isinstance(node.item, Message)
        for _, part in sorted(node.parts.items())
        if isinstance(part, TextNode)
    ]


def _returned(task: TaskNode) -> list[Any]:
    """What a task's own model read of its tools, in order."""
    contents = (node.private.get("content") for node in task.output())
    return [content for content in contents if content is not None]
