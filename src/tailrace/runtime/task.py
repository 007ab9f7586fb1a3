"""How an agent writes its run: reasoning, calls, results, sub-agents, messages.

    with task.reasoning() as thinking:
        thinking.summary("Which city? ")
    with task.call("get_weather") as call:
        call.arguments('{"city":"Paris"}')
    call.result({"temperature": "15C"})
    with task.message() as message:
        message.text("It is 15C.[^1]")
    await task.drain()

A block closes what it opened. If an exception passes, the item ends `incomplete` or `failed`, so an
agent may catch its own error and go on.

Nothing here waits but `drain()`, which an agent awaits where it wants backpressure. Ids come from
the event's place in the log, so they are unique in the run without any chance involved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from tailrace.core import closing
from tailrace.core import events as ev
from tailrace.core.errors import TailraceError
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, Executor, Item, Message, ToolResult, Usage
from tailrace.core.references import Pool, import_citations
from tailrace.core.state import TaskNode, TextNode
from tailrace.core.tool_output import tool_output
from tailrace.core.writers import (
    ArgumentsWriter,
    MessageWriter,
    ReasoningWriter,
    ResultWriter,
    Sink,
)
from tailrace.runtime.pipeline import Emitter


def runs_of_item(item_id: str) -> list[str]:
    """The ids that the run of an item may have: see `TaskWriter.new_id`."""
    run = item_id.partition("_")[2].rpartition("_")[0]
    return [f"run_{run}", run] if run else []


ItemWriter = TypeVar("ItemWriter", ReasoningWriter, MessageWriter, "CallWriter")

AGENT_FAILED = ErrorInfo(code="agent_error", message="The agent failed.")


class TaskWriter(Sink):
    """Writes one task: the run's root, or a sub-agent below a call."""

    def __init__(self, emitter: Emitter, task_id: str, pool: Pool | None = None) -> None:
        self.emitter = emitter
        self._task_id = task_id
        self.pool = pool or Pool(self.node.reference_start)

    @property
    def task_id(self) -> str:
        """The task: the run's id, or the call that a sub-agent answers."""
        return self._task_id

    @property
    def node(self) -> TaskNode:
        """The task as folded so far."""
        return self.emitter.state.tasks[self.task_id]

    @property
    def input(self) -> Any:
        """What the task was asked."""
        return self.node.facts.get("input")

    async def chain(self) -> list[State]:
        """The conversation: the runs that this run continues, oldest first, then this run.

        A model reads it: `Request(chain=await task.chain())`.
        """
        return [*await self.emitter.earlier(), self.emitter.state]

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

    def free_call_id(self, _wanted: str) -> str:
        """An id that no other call of the thread has.

        A provider repeats its ids from answer to answer (`call_0`), so none of them is kept. The
        ingest remembers the provider's id in the private part.
        """
        return self.new_id("call")

    def knows(self, number: int) -> bool:
        """Whether the task's pool issued this reference number."""
        return self.pool.knows(number)

    def add(self, item: Item, private: ev.Private | None = None) -> int:
        """Open an item; its `output_index`."""
        index = len(self.node.items)
        event = ev.OutputItemAdded(task_id=self.task_id, output_index=index, item=item)
        self.emit(event, private)
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

        def finish() -> None:
            if self.node.steps[index].is_open:
                self.emit(ev.StepFinished(task_id=self.task_id, step_index=index))

        try:
            yield
        except BaseException as error:
            self.after(error, finish)
            raise
        finish()

    @contextmanager
    def reasoning(self) -> Iterator[ReasoningWriter]:
        """What the agent thinks."""
        with self._closed(ReasoningWriter(self)) as writer:
            yield writer

    @contextmanager
    def message(self) -> Iterator[MessageWriter]:
        """What the agent says."""
        with self._closed(MessageWriter(self)) as writer:
            yield writer

    @contextmanager
    def call(self, name: str, *, executor: Executor = "server") -> Iterator[CallWriter]:
        """The agent asks for a tool; after the block, the call is final."""
        with self._closed(CallWriter(self, name, executor)) as writer:
            yield writer

    @contextmanager
    def _closed(self, writer: ItemWriter) -> Iterator[ItemWriter]:
        """Close an item after its block; as incomplete if an exception passes."""
        try:
            yield writer
        except BaseException as error:
            writer.is_open = False
            self.after(error, lambda: self._close(writer.index))
            raise
        # The task may have been ended inside the block, and its items with it.
        if self.node.items[writer.index].is_open:
            with self.emitter.closing():
                writer.finish()

    def _close(self, index: int) -> None:
        """End an item as far as it came: from the state, which a refused event left as it was."""
        node = self.node.items[index]
        for event in closing.close_item(self.node, node) if node.is_open else ():
            self.emit(event)

    def after(self, error: BaseException, close: Callable[[], None]) -> None:
        """Close what `error` leaves open, unless the run is not ours any more.

        What an abandoned coroutine, or a worker that gives the run up, leaves open is closed by the
        worker that continues the run. An event that is refused here must not hide `error`.
        """
        if not isinstance(error, GeneratorExit) and self.emitter.is_ours:
            with suppress(TailraceError), self.emitter.closing():
                close()

    def notice(self, message: str, data: Any = None) -> None:
        """Tell the person who watches."""
        self.emit(ev.Notice(task_id=self.task_id, message=message, data=data))

    def usage(self, usage: Usage) -> None:
        """Account for one model call."""
        self.emit(ev.TaskUsage(task_id=self.task_id, usage=usage))

    def complete(self) -> None:
        """End the task with its answer, unless it has ended."""
        if not self.node.ended:
            with self.emitter.closing():
                self.emit(ev.TaskCompleted(task_id=self.task_id))

    def fail(self, error: ErrorInfo) -> None:
        """End the task, whatever is open in it, with an error."""
        self._end(ev.TaskFailed(task_id=self.task_id, error=error))

    def cancel(self, reason: str) -> None:
        """End the task, whatever is open in it; what it had is kept."""
        self._end(ev.TaskCancelled(task_id=self.task_id, reason=reason))

    def _end(self, last: ev.Event) -> None:
        if not self.node.ended:
            with self.emitter.closing():
                for event in closing.ending(self.node, last):
                    self.emit(event)


class CallWriter(ArgumentsWriter):
    """A tool call, and then what came of it."""

    def __init__(self, task: TaskWriter, name: str, executor: Executor) -> None:
        self._task = task
        super().__init__(task, name, executor=executor)

    def start(self) -> None:
        """The tool is about to run. Await `drain()` before its first line."""
        self._task.emit(ev.ToolCallStarted(**self.place))

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
        result = ResultWriter(self._task, self.call_id)
        for block in admitted.block_list:
            result.whole(block, partial_images)
        result.finish(ev.Private(content=admitted.content))

    def fail(self, error: ErrorInfo) -> None:
        """The tool did not return."""
        ResultWriter(self._task, self.call_id).fail(error)

    @contextmanager
    def delegate(self, agent: str, input: Any = None) -> Iterator[TaskWriter]:
        """Let a sub-agent answer the call.

        Its events stand in the same log under its own `task_id`. When the block ends, the parent
        gets the child's message and the references that it cited, and nothing else from inside.
        """
        parent = self._task
        result = ResultWriter(parent, self.call_id)
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
        try:
            yield child
        except BaseException as raised:
            parent.after(raised, partial(_cut, child, result, raised))
            raise
        child.complete()
        if not parent.node.items[result.index].is_open:
            return  # the parent was ended inside the block
        if child.node.error is not None:
            result.fail(child.node.error)
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
        private = ev.Private(content=imported.content)
        if child.node.status != "completed":
            result.fail(_no_answer(child.node), private)
            return
        # Only what the result itself says: the child's items show up in its list by themselves.
        item = ToolResult(id=result.id, call_id=self.call_id)
        parent.done(result.index, item, private)


def _cut(child: TaskWriter, result: ResultWriter, raised: BaseException) -> None:
    """End a sub-agent out of which an exception came, and the result that holds it."""
    if isinstance(raised, asyncio.CancelledError):
        child.cancel("It was cancelled.")
    else:
        child.fail(AGENT_FAILED)
    result.fail(child.node.error or _no_answer(child.node))


def _no_answer(child: TaskNode) -> ErrorInfo:
    """What the parent's model reads of a sub-agent that ended without an answer."""
    why = f": {child.reason}" if child.reason else "."
    return ErrorInfo(
        code=child.status or "incomplete", message=f"The sub-agent ended without an answer{why}"
    )


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
