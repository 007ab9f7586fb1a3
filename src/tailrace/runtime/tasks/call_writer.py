"""A tool call in the hands of its agent: written, started, answered, or given to a sub-agent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from tailrace.core import events as ev
from tailrace.core.ids import check_id
from tailrace.core.items import ErrorInfo, Executor, ToolCall, ToolResult
from tailrace.core.tool_output import tool_output
from tailrace.core.writers import ArgumentsWriter, ResultWriter
from tailrace.runtime.diagnostics.failures import AGENT_FAILED
from tailrace.runtime.diagnostics.telemetry import begin, execute_tool, invoke_agent
from tailrace.runtime.tasks.open_result import OpenResult
from tailrace.runtime.tasks.sub_agent_answer import announce_imports, imported_answer, no_answer

if TYPE_CHECKING:
    from tailrace.runtime.tasks.task import Task

_REFUSED = ErrorInfo(code="invalid_result", message="The result was refused.")


def error_info(error: ErrorInfo | str, message: str) -> ErrorInfo:
    """An error, or the error of a code and a message."""
    return ErrorInfo(code=error, message=message) if isinstance(error, str) else error


class _Answerable:
    """A finished call: it can be started, and gets a result."""

    call_id: str
    name: str
    _task: Task

    @property
    def _place(self) -> dict[str, Any]:
        """The fields by which events name the call's item."""
        raise NotImplementedError

    def start(self) -> None:
        """Record that the tool is about to run. Await `drain()` before its first line."""
        self._task.emit(ev.ToolCallStarted(**self._place))
        about = execute_tool(self.name, self.call_id)
        span = begin("execute_tool", self.name, **about)
        self._task._sink.emitter.operations[self.call_id] = span

    def _ended(self, error: ErrorInfo | None = None) -> None:
        """End the span of a tool that was started."""
        span = self._task._sink.emitter.operations.pop(self.call_id, None)
        if span is not None:
            span.end(error)

    def progress(
        self, message: str | None = None, current: float | None = None, total: float | None = None
    ) -> None:
        """Show how far the tool is."""
        self._task.emit(
            ev.Progress(
                task_id=self._task.task_id,
                call_id=self.call_id,
                message=message,
                current=current,
                total=total,
            )
        )

    @contextmanager
    def _answering(self) -> Iterator[ResultWriter]:
        """Open the result. If part of it is refused, it is closed as failed."""
        result = ResultWriter(self._task._sink, self.call_id)
        try:
            yield result
        except BaseException as raised:
            self._task._sink.after(raised, partial(result.fail, _REFUSED))
            self._ended(_REFUSED)
            raise

    def result(self, value: Any, partial_images: Iterable[str] = ()) -> None:
        """What the tool returned: a string, JSON, or the two lists of the protocol."""
        admitted = self._task._sink.pool.admit(tool_output(value))
        with self._answering() as result:
            for block in admitted.block_list:
                result.whole(block, partial_images)
            result.finish(ev.Private(content=admitted.content))
        self._ended()

    @overload
    def fail(self, error: ErrorInfo, /) -> None: ...
    @overload
    def fail(self, code: str, message: str, /) -> None: ...
    def fail(self, error: ErrorInfo | str, message: str = "", /) -> None:
        """Write an error as the result: the tool did not return. The model reads it."""
        found = error_info(error, message)
        with self._answering() as result:
            result.fail(found)
        self._ended(found)

    @contextmanager
    def delegate(self, agent: str, input: Any = None) -> Iterator[Task]:
        """Let a sub-agent answer the call.

        Its events stand in the same log under its own `task_id`. When the block ends, the parent
        gets the child's message and the references that it cited, and nothing else from inside.
        """
        from tailrace.runtime.tasks.task import begun_task  # it imports this module

        parent = self._task
        result = OpenResult.of(parent, self.call_id) or ResultWriter(parent._sink, self.call_id)
        # If a worker was lost, the sub-agent goes on in its task.
        if self.call_id not in parent._sink.emitter.state.tasks:
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
        child = begun_task(parent._sink.emitter, self.call_id)
        try:
            with invoke_agent(child):
                yield child
        except BaseException as raised:
            parent._sink.after(raised, partial(_cut, child, result, raised))
            raise
        finally:
            self._ended(child._sink.node.error)
        child.complete()
        if not parent._sink.node.items[result.index].is_open:
            return  # the parent was ended inside the block
        if child._sink.node.error is not None:
            result.fail(child._sink.node.error)
            return
        imported = imported_answer(child._sink.node, parent._sink.pool)
        announce_imports(parent._sink, child.task_id, imported)
        private = ev.Private(content=imported.content)
        if child._sink.node.status != "completed":
            result.fail(no_answer(child._sink.node), private)
            return
        # Only what the result itself says: the child's items show up in its list by themselves.
        item = ToolResult(id=result.id, call_id=self.call_id)
        parent._sink.done(result.index, item, private)


def _cut(child: Task, result: ResultWriter, raised: BaseException) -> None:
    """End a sub-agent that raised an exception, and the result that holds it."""
    if isinstance(raised, asyncio.CancelledError):
        child.cancel("It was cancelled.")
    else:
        child.fail(AGENT_FAILED)
    result.fail(child._sink.node.error or no_answer(child._sink.node))


class CallWriter(ArgumentsWriter, _Answerable):
    """A tool call that the agent writes: its arguments, and then its result."""

    def __init__(
        self, task: Task, name: str, executor: Executor, call_id: str | None = None
    ) -> None:
        self._task = task
        super().__init__(task._sink, name, call_id=call_id, executor=executor)

    def _call_id(self, wanted: str | None) -> str:
        if wanted is None:
            return self._task._sink.new_id("call")
        return self._task._sink.own_call_id(check_id(wanted, "call_id"))


class PendingCall(_Answerable):
    """A tool call that is complete and waits for its result."""

    def __init__(self, task: Task, item: ToolCall, index: int) -> None:
        self._task = task
        self.index = index
        self.item = item
        self.call_id = item.call_id
        self.name = item.name
        self.executor = item.executor

    @property
    def arguments(self) -> str:
        """The arguments: JSON, as the model wrote them."""
        node = self._task._sink.node.items[self.index]
        return node.arguments_text

    @property
    def _place(self) -> dict[str, Any]:
        """The fields by which events name the call's item."""
        task_id = self._task.task_id
        return {"task_id": task_id, "item_id": self.item.id, "output_index": self.index}
