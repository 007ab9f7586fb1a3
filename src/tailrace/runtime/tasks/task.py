"""A task in the hands of its agent: what it reads, and how it writes its run.

    with task.reasoning() as thinking:
        thinking.summary("Which city? ")
    with task.call("get_weather") as call:
        call.arguments('{"city":"Paris"}')
    call.result({"temperature": "15C"})
    with task.message() as message:
        message.text("It is 15C.[^1]")
    await task.drain()

A block closes the item that it opened. If an exception leaves the block, the item ends `incomplete`
or `failed`, so an agent may catch its own error and continue.

Writing never waits. An agent awaits `drain()` where it wants backpressure. Ids come from the
event's place in the log, so they are unique in the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, TypeVar, overload

import msgspec

from tailrace.core import closing_events
from tailrace.core import events as ev
from tailrace.core.closing_events import TOOL_INTERRUPTED
from tailrace.core.errors import CallerError, NotFound, TailraceError
from tailrace.core.fold import State
from tailrace.core.items import (
    ContentPart,
    ErrorInfo,
    Executor,
    InputRequest,
    ToolCall,
    Usage,
)
from tailrace.core.references import ReferencePool
from tailrace.core.run_object import client_view
from tailrace.core.state import TaskNode
from tailrace.core.tool_arguments import arguments_value
from tailrace.core.tool_output import plain_json
from tailrace.core.writers import MessageWriter, ReasoningWriter
from tailrace.history import Api, History, Load, Mode, history, reachable
from tailrace.history.inputs import last_question
from tailrace.runtime.event_log.emitter import Emitter
from tailrace.runtime.tasks.blobs import blob_loader
from tailrace.runtime.tasks.call_writer import CallWriter, PendingCall, error_info
from tailrace.runtime.tasks.task_sink import TaskSink

CALL_CANCELLED = ErrorInfo(code="cancelled", message="The call was cancelled.")

MCP_APPROVAL = "mcp_approval_request"
"""The kind of a call that an MCP server of the provider makes only if a person approves it."""

ItemWriter = TypeVar("ItemWriter", ReasoningWriter, MessageWriter, CallWriter)

WITHDRAWN = "The agent continued without an answer."


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person answered: `approved` to an approval, `value` to a question.

    `task.ask` returns it, and `run.send` takes it.
    """

    request_id: str
    approved: bool | None = None
    value: Any = None
    reason: str | None = None


class Task:
    """One task of a run: the run itself, or a sub-agent. An agent reads and writes it."""

    def __init__(self, emitter: Emitter, task_id: str, pool: ReferencePool | None = None) -> None:
        self._sink = TaskSink(emitter, task_id, pool)

    @property
    def task_id(self) -> str:
        """The task: the run's id, or the call that a sub-agent answers."""
        return self._sink.task_id

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._sink.emitter.run_id

    @property
    def thread_id(self) -> str:
        """The conversation that the run belongs to."""
        return str(self._sink.emitter.facts.get("thread_id") or "")

    @property
    def owner(self) -> str:
        """The id of the principal that started the run; "" for no principal."""
        return self._sink.emitter.owner

    @property
    def metadata(self) -> Any:
        """The metadata that the run was started with; clients can read it."""
        return self._sink.emitter.facts.get("metadata")

    @property
    def agent(self) -> str:
        """The name of the agent that works on the task."""
        return str(self._sink.node.speaker or "")

    @property
    def input(self) -> Any:
        """The input, as the client sent it."""
        return self._sink.node.facts.get("input")

    @property
    def text(self) -> str:
        """What the user wrote last, in one or several messages, which are joined by line breaks.

        A client without a server-side history sends the whole conversation each time: messages
        before the last answer are in `input`. An input that is not a message, such as an object,
        is shown as JSON.
        """
        return last_question(self.input)

    @property
    def options(self) -> dict[str, Any]:
        """The options that the run was started with."""
        found = (self._sink.node.facts.get("options"), self._sink.node.private.get("options"))
        return {
            key: kept
            for options in found
            if isinstance(options, dict)
            for key, kept in options.items()
        }

    @property
    def state(self) -> dict[str, Any]:
        """The task so far, as its clients see it (PROTOCOL.md, section 5)."""
        return client_view(self._sink.emitter.state, self.task_id)

    async def chain(self) -> list[State]:
        """The runs of the conversation, oldest first, then this run.

        A model request takes them: `Request(chain=await task.chain())`. Other runs share the
        states of earlier runs, so do not change them.
        """
        return [*await self._sink.emitter.earlier(), self._sink.emitter.state]

    async def history(
        self,
        api: Api = "openai_responses",
        mode: Mode = "drop",
        *,
        model: str | None = None,
        host: str | None = None,
        store: bool = True,
        load: Load = reachable,
    ) -> History:
        """The conversation for the next model request: earlier runs, then this run.

        `history.request()` has the fields to send. A sub-agent has its own history only. The
        options are those of `tailrace.history.history`.
        """
        chain = await self.chain()
        child = None if self.task_id == self.run_id else self.task_id
        if load is reachable:
            load = await blob_loader(self._sink.emitter.blobs, self.owner, chain, child)
        kept = {"model": model, "host": host, "store": store, "load": load}
        return history(chain, api, mode, task_id=child, **kept)  # type: ignore[arg-type]

    def emit(self, event: ev.Event, private: ev.Private | None = None) -> None:
        """Record any event of this task; the methods below write the common events."""
        self._sink.emit(event, private)

    async def drain(self) -> None:
        """Wait until what was written is durable."""
        await self._sink.emitter.drain()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A named stage of the agent.

        If an exception leaves it, it ends `incomplete`, with the steps that are open inside it.
        """
        index = len(self._sink.node.steps)
        self.emit(ev.StepStarted(task_id=self.task_id, step_index=index, name=name))
        try:
            yield
        except BaseException as error:
            sink = self._sink
            sink.after(error, lambda: sink.write(closing_events.close_steps(sink.node, index)))
            raise
        # The task may have been ended inside the block, and its steps with it.
        if self._sink.node.steps[index].is_open:
            self.emit(ev.StepFinished(task_id=self.task_id, step_index=index))

    @contextmanager
    def reasoning(self) -> Iterator[ReasoningWriter]:
        """Write a reasoning item."""
        with self._closed(ReasoningWriter(self._sink)) as writer:
            yield writer

    @contextmanager
    def message(self) -> Iterator[MessageWriter]:
        """Write a message."""
        with self._closed(MessageWriter(self._sink)) as writer:
            yield writer

    @contextmanager
    def call(
        self, name: str, *, call_id: str | None = None, executor: Executor = "server"
    ) -> Iterator[CallWriter]:
        """Write a tool call; after the block, the call is final.

        A `call_id` that the agent chooses must be new in the run. The run's id is added to it, so
        that no other run of the thread has the call's id, `call.call_id`. `answer` and `ask`
        take either. Without `call_id`, an id is made.
        """
        with self._closed(CallWriter(self, name, executor, call_id)) as writer:
            yield writer

    def calls(self, executor: Executor = "server") -> list[PendingCall]:
        """The completed calls that have no result yet, for example those that a model made."""
        return [
            PendingCall(self, node.item, node.output_index)
            for call_id, node in self._sink.node.calls.items()
            if isinstance(node.item, ToolCall)
            and node.item.executor == executor
            and node.item.status == "completed"
            and call_id not in self._sink.node.call_results
            and not node.is_open
            and not node.superseded
        ]

    def answer(self, call: PendingCall | CallWriter | ToolCall | str, value: Any) -> None:
        """Write the result of a call, named by its item or its call id.

        `value` is a string, JSON, or the two lists of the protocol. `task.calls()` has the calls
        that wait for a result.
        """
        pending_call(self, call).result(value)

    def _id_of(self, call: PendingCall | CallWriter | ToolCall | str) -> str:
        """The id of a call, also by the id that the agent chose."""
        if not isinstance(call, str):
            return call.call_id
        own = self._sink.own_call_id(call)
        return own if own in self._sink.node.calls and call not in self._sink.node.calls else call

    @contextmanager
    def _closed(self, writer: ItemWriter) -> Iterator[ItemWriter]:
        """Close an item after its block; as incomplete if an exception passes."""
        try:
            yield writer
        except BaseException as error:
            writer.is_open = False
            self._sink.after(error, lambda: self._close(writer.index))
            raise
        # The task may have been ended inside the block, and its items with it.
        if self._sink.node.items[writer.index].is_open:
            with self._sink.emitter.closing():
                writer.finish()

    def _close(self, index: int) -> None:
        """End an item with the parts that the state has: a refused event did not change it."""
        node = self._sink.node.items[index]
        if node.is_open:
            self._sink.write(closing_events.close_item(self._sink.node, node))

    def notice(self, message: str, data: Any = None) -> None:
        """Show a message to the people who watch. The model does not see it."""
        self.emit(ev.Notice(task_id=self.task_id, message=message, data=data))

    def progress(
        self, message: str | None = None, current: float | None = None, total: float | None = None
    ) -> None:
        """Show how far the task is. It replaces the progress before."""
        self.emit(ev.Progress(task_id=self.task_id, message=message, current=current, total=total))

    def usage(self, usage: Usage | None = None, **fields: Any) -> None:
        """Count a model call: a `Usage`, or its fields, such as `input_tokens=12`."""
        try:
            counted = msgspec.structs.replace(usage or Usage(), **fields)
            counted = msgspec.convert(msgspec.structs.asdict(counted), Usage)
        except (TypeError, msgspec.ValidationError) as error:
            raise CallerError(
                f"`task.usage` got wrong fields: {error}. Pass fields of `Usage`."
            ) from error
        self.emit(ev.TaskUsage(task_id=self.task_id, usage=counted))

    def output(self, value: Any, name: str | None = None) -> None:
        """Write the answer as a JSON value, once in a task: structured output.

        `value` may also be a dataclass, a msgspec struct or a pydantic model, whose name is the
        default of `name`.
        """
        plain = plain_json(value)
        if name is None and not isinstance(value, dict | list | tuple | str | int | float):
            name = type(value).__name__ if value is not None else None
        self.emit(ev.StructuredOutputDone(task_id=self.task_id, value=plain, name=name))

    async def ask(
        self,
        question: str | InputRequest,
        *,
        kind: Literal["input", "approval"] = "input",
        call: PendingCall | CallWriter | ToolCall | str | None = None,
        schema: Any = None,
    ) -> Answer:
        """Ask the people who watch, and wait for their answer.

        An approval may name the `call` that it is about; `schema` is the JSON Schema of the value.
        While the run waits it holds no worker: put work beside the question into `at_work()`.
        After a restart, a question that is still pending is not asked again, and a request whose
        id is answered returns that answer.
        """
        request = question if isinstance(question, InputRequest) else None
        if request is None:
            call_id = None if call is None else self._id_of(call)
            request = self._asked(kind, call_id, str(question), schema)
        if request.id in self._sink.node.answers:
            found = self._sink.node.answers[request.id]
            return msgspec.convert({**found, "request_id": request.id}, Answer)
        if self._sink.emitter.inputs is None:
            raise CallerError(
                f"The agent {self.agent} cannot ask people: it is a sub-agent with "
                "`streaming=False`, or has no worker. Ask in the agent that calls it."
            )
        if all(asked.id != request.id for asked in self._sink.node.requests):
            announce(self, [request])
        answer = await self._sink.emitter.inputs.receive(self, request.id)
        return msgspec.convert(answer, Answer)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Work beside a question: in this block the run is not parked, although it waits in `ask`.

        A parked run has no lease. If its process dies, no worker knows before the answer comes.
        """
        inputs = self._sink.emitter.inputs
        if inputs is None:
            yield
            return
        with inputs.busy():
            yield

    def _asked(
        self, kind: Literal["input", "approval"], call_id: str | None, message: str, schema: Any
    ) -> InputRequest:
        """The pending request with this content that no `ask` waits for, or a new request."""
        inputs = self._sink.emitter.inputs
        for asked in self._sink.node.requests:
            same = (asked.kind, asked.call_id, asked.message, asked.schema)
            if same == (kind, call_id, message, schema) and not (
                inputs and inputs.awaits(asked.id)
            ):
                return asked
        ident = self._sink.new_id("req")
        return InputRequest(id=ident, kind=kind, call_id=call_id, message=message, schema=schema)

    def say(self, text: str) -> None:
        """Write a whole message."""
        with self.message() as message:
            message.text(text)

    def complete(self) -> None:
        """End the task with its answer, unless it has ended.

        Questions without an answer are withdrawn: the agent did not wait for them.
        """
        if not self._sink.node.ended:
            with self._sink.emitter.closing():
                for request in list(self._sink.node.requests):
                    self.emit(
                        ev.TaskInputReceived(
                            task_id=self.task_id, request_id=request.id, reason=WITHDRAWN
                        )
                    )
                self.emit(ev.TaskCompleted(task_id=self.task_id))

    def incomplete(self, reason: str) -> None:
        """End the task without a full answer; its output is kept.

        `reason` says why, for example `max_output_tokens`.
        """
        self._end(ev.TaskIncomplete(task_id=self.task_id, reason=reason))

    @overload
    def fail(self, error: ErrorInfo, /) -> None: ...
    @overload
    def fail(self, code: str, message: str, /) -> None: ...
    def fail(self, error: ErrorInfo | str, message: str = "", /) -> None:
        """End the task with an error: its code and message. Clients see both."""
        self._end(ev.TaskFailed(task_id=self.task_id, error=error_info(error, message)))

    def cancel(self, reason: str) -> None:
        """End the task because it was stopped; its output is kept, and its calls get a result."""
        with self._sink.emitter.closing():
            close_calls(self, CALL_CANCELLED)
        self._end(ev.TaskCancelled(task_id=self.task_id, reason=reason))

    def _end(self, last: ev.Event) -> None:
        if not self._sink.node.ended:
            with self._sink.emitter.closing():
                self._sink.write(closing_events.ending(self._sink.node, last))


def pending_call(task: Task, call: PendingCall | CallWriter | ToolCall | str) -> PendingCall:
    """A call of the task, to start it, report its progress and write its result."""
    call_id = task._id_of(call)  # noqa: SLF001
    node = task._sink.node.calls.get(call_id)
    if node is None or not isinstance(node.item, ToolCall):
        raise NotFound(f"Task {task.task_id} has no call {call_id!r}; see `task.calls()`.")
    return PendingCall(task, node.item, node.output_index)


def announce(task: Task, requests: Sequence[InputRequest]) -> None:
    """Show requests to people, each with the name and the arguments of its call."""
    about = [_with_call(task._sink.node, request) for request in requests]
    task.emit(ev.TaskInputRequired(task_id=task.task_id, requests=about))


def _with_call(task: TaskNode, request: InputRequest) -> InputRequest:
    node = task.calls.get(request.call_id or "")
    if node is None or request.name is not None:
        return request
    assert isinstance(node.item, ToolCall)
    text = node.arguments_text
    arguments = arguments_value(text, text)  # a custom tool takes any text
    return msgspec.structs.replace(request, name=node.item.name, arguments=arguments)


def close_calls(task: Task, error: ErrorInfo) -> None:
    """Give each call without a result this error as its result, in sub-agents too."""
    node = task._sink.node
    if node.ended:
        return
    for child in node.children:
        if not child.ended:
            close_calls(begun_task(task._sink.emitter, child.task_id), error)
    close_asked(task, error)
    for call in _unanswered(task):
        with suppress(TailraceError):
            call.fail(error)


def close_asked(task: Task, error: ErrorInfo) -> None:
    """Give each call that people are asked about this error as its result.

    A task that is stopped does so first. Once all its other calls have their results, it would
    seem to wait for people.
    """
    asked = {request.call_id for request in task._sink.node.requests}
    for call in _unanswered(task):
        if call.call_id in asked:
            with suppress(TailraceError):
                call.fail(error)


def _unanswered(task: Task) -> list[PendingCall]:
    return [*task.calls("server"), *task.calls("client"), *mcp_approvals(task)]


def mcp_approvals(task: Task) -> list[PendingCall]:
    """The calls of the provider's MCP servers that people have to approve, without a result."""
    return [call for call in task.calls("provider") if call.item.kind == MCP_APPROVAL]


def begun_task(emitter: Emitter, task_id: str) -> Task:
    """A task that the log has begun. It issues no reference number that the log has already."""
    node = emitter.state.tasks[task_id]
    pool = ReferencePool(node.reference_start, contents(node))
    for number in node.numbers:
        pool.reserve(number)
    return Task(emitter, task_id, pool)


def contents(node: TaskNode) -> list[list[ContentPart]]:
    """The contents of all tool results of a task, superseded results included."""
    found = (item.private.get("content") for item in node.items.values())
    return [content for content in found if content is not None]


def interrupt(task: Task, error: ErrorInfo) -> None:
    """End a task with this error because no worker continues it; its calls get a result."""
    with task._sink.emitter.closing():
        close_calls(task, TOOL_INTERRUPTED)
    task.fail(error)


def supersede(task: Task, items: list[str], reason: str) -> None:
    """Begin the next attempt of a task; these items are not part of it."""
    task.emit(
        ev.TaskAttempt(
            task_id=task.task_id,
            attempt=task._sink.node.next_attempt,
            reason=reason,
            superseded=items,
        )
    )
