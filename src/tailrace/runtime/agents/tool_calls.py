"""The tool calls of one model turn: checked, approved, run in parallel, each with its result.

Every call gets a result. Unknown tools, invalid arguments, denied approvals, errors of the tool and
limits are results too. The model reads the error and goes on.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Iterable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tailrace.core import closing_events
from tailrace.core import events as ev
from tailrace.core.errors import CallerError, InvalidToolOutput, StorageError, TailraceError
from tailrace.core.items import ErrorInfo, Image, InputRequest, TextPart, ToolResult
from tailrace.core.tool_output import ToolOutput, tool_output
from tailrace.core.values import json_text
from tailrace.core.writers import ImageWriter, ResultWriter
from tailrace.runtime.agents.handoff import Handoff
from tailrace.runtime.agents.limits import named
from tailrace.runtime.agents.sub_agents import AgentTool, delegate, run_below, run_unlogged
from tailrace.runtime.diagnostics.failures import ToolError, retrieve_error, tool_failure
from tailrace.runtime.diagnostics.telemetry import execute_tool, operation
from tailrace.runtime.tasks.blobs import shown_blocks, tool_result
from tailrace.runtime.tasks.call_writer import PendingCall
from tailrace.runtime.tasks.open_result import OpenResult
from tailrace.runtime.tasks.task import CALL_CANCELLED, Answer, Task, close_asked
from tailrace.runtime.tools.outputs import Notify, Output, PartialImage
from tailrace.runtime.tools.parameters import InvalidArguments
from tailrace.runtime.tools.tool import Context, Tool

if TYPE_CHECKING:
    from tailrace.runtime.agents.loop import Loop

OUTCOME_UNKNOWN = ErrorInfo(
    code="interrupted", message="The tool was interrupted. It is not known whether it has run."
)

BEYOND_CLIENT = ErrorInfo(
    code="client_cannot",
    message="The client cannot carry out calls of a sub-agent. Go on without this tool.",
)

QUICK_SECONDS = 1.0
"""How long people are not asked yet, while other tools of the same turn run."""

CLEAN_UP_SECONDS = 0.5
"""How long the tools of a task that is stopped may clean up before their calls are closed."""


class _Plan(msgspec.Struct, frozen=True):
    """A call that can be carried out; `request` is what a person has to answer first."""

    call: PendingCall
    tool: Tool
    arguments: dict[str, Any]
    request: InputRequest | None


class _Mistake(Exception):
    """A call that cannot be carried out, with the error that the model reads."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.error = ErrorInfo(code=code, message=message)


async def settle(loop: Loop, calls: list[PendingCall]) -> int:
    """Give each of the calls its result; how many of them were mistakes of the model."""
    most, left = loop.limits.fan_out, loop.calls_left(len(calls))
    plans: list[_Plan] = []
    mistakes = 0
    for index, call in enumerate(calls):
        try:
            if most is not None and index >= most:
                reason = f"A turn may have no more calls than {named('fan_out', most)}."
                raise _Mistake("max_fan_out", reason)
            if left is not None and index >= left:
                raise _Mistake("max_tool_calls", "No more calls are allowed; answer without them.")
            plan = _planned(loop, call)
            if isinstance(plan.tool, Handoff):
                _check_first(plans)
            plans.append(plan)
        except _Mistake as mistake:
            mistakes += 1
            write_error(loop.task, call, mistake.error)
    are_done = asyncio.Event()
    ready = [plan for plan in plans if plan.request is None]
    asking = [plan for plan in plans if plan.request is not None]
    works = [_answer_at_once(loop, ready, are_done)] if ready else []
    if asking:
        works.append(_answer_later(loop, asking, are_done if ready else None))
    await _in_parallel(works, loop.task)
    return mistakes


async def _answer_at_once(loop: Loop, plans: list[_Plan], are_done: asyncio.Event) -> None:
    """Carry out the calls that need no person."""
    try:
        await _in_parallel(_answer(loop, plan) for plan in plans)
    finally:
        are_done.set()


async def _answer_later(loop: Loop, plans: list[_Plan], others: asyncio.Event | None) -> None:
    """Ask people for all calls at once, and carry out what they allow.

    Other tools of the turn get a moment to end first. A response of OpenAI's API ends with the
    requests, and calls that still run then have no end there.
    """
    requests = [plan.request for plan in plans if plan.request is not None]
    if others is not None and not loop.has_asked(requests):
        loop.held_back = requests
        with suppress(TimeoutError):
            async with asyncio.timeout(QUICK_SECONDS):
                await others.wait()
    loop.announce(requests)
    await _in_parallel(_answer(loop, plan) for plan in plans)


def _check_first(plans: list[_Plan]) -> None:
    """Refuse a handoff behind another handoff of the same turn."""
    first = next((plan.tool for plan in plans if isinstance(plan.tool, Handoff)), None)
    if first is not None:
        raise _Mistake("second_handoff", f"{first.agent.name} takes over; only one agent can.")


def _planned(loop: Loop, call: PendingCall) -> _Plan:
    kind, found = call.item.kind, loop.tool_of(call.item)
    if found is None:
        missing = f"Calls of the kind {kind!r} cannot be carried out here."
        if kind in ("function", "custom"):
            known = ", ".join(loop.tools) or "none"
            missing = f"There is no tool {call.name!r}; there are: {known}."
        raise _Mistake("unknown_tool", missing)
    try:
        arguments = found.validate(call.arguments)
        if isinstance(found, AgentTool):
            found.chosen(arguments, loop.agent)
    except InvalidArguments as error:
        raise _Mistake(error.code, str(error)) from None
    except Exception as error:  # a type of the tool's own may raise anything
        failed = tool_failure(loop.task._sink.emitter.logged.run_id, call.name, error)
        raise _Mistake(InvalidArguments.code, failed.message) from error
    is_asked = not loop.is_beyond_client(call.executor)
    return _Plan(call, found, arguments, _request(call, found, arguments) if is_asked else None)


def _request(call: PendingCall, tool: Tool, arguments: dict[str, Any]) -> InputRequest | None:
    if call.executor == "client":
        return output_request(call)
    if tool.asks_approval(arguments):
        ident, message = f"req_{call.call_id}", f"Run {call.name}?"
        return InputRequest(id=ident, kind="approval", call_id=call.call_id, message=message)
    return None


def output_request(call: PendingCall) -> InputRequest:
    """What asks a client for the output of a call."""
    ident, message = f"req_{call.call_id}", f"Carry out {call.name} and send its result."
    return InputRequest(id=ident, kind="input", call_id=call.call_id, message=message)


async def take_outputs(loop: Loop) -> bool:
    """Write the outputs that the client sent with its approvals; whether no call is left."""
    task, inputs, is_whole = loop.task, loop.task._sink.emitter.inputs, True
    for call in loop.client_calls():
        request, answer = output_request(call), None
        is_asked = any(asked.id == request.id for asked in task._sink.node.requests)
        has_come = is_asked and inputs is not None and inputs.has_answer(request.id)
        if has_come or request.id in task._sink.node.answers:
            answer = await task.ask(request)
        if answer is None or answer.value is None:
            is_whole = False
            continue
        try:
            await _write(task, call, answer.value, OpenResult.of(task, call.call_id), "")
        except InvalidToolOutput as error:
            write_error(task, call, ErrorInfo(code=error.code, message=str(error)))
    return is_whole


async def _in_parallel(works: Iterable[Any], asking: Task | None = None) -> None:
    """Run the calls at the same time. A call that is cancelled alone has its result already.

    If all are cancelled, the questions of the task `asking` are closed before the others end.
    """
    running = asyncio.get_running_loop()
    tasks = [running.create_task(work) for work in works]
    if not tasks:
        return
    for task in tasks:  # retrieve every error: only the first is raised below
        task.add_done_callback(retrieve_error)
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError as error:
        if asking is not None:
            asking._sink.after(error, lambda: close_asked(asking, CALL_CANCELLED))
        for task in tasks:
            task.cancel()
        # Not longer: a tool may ignore the cancel, and the run has to end.
        await asyncio.wait(tasks, timeout=CLEAN_UP_SECONDS)
        raise
    for task in tasks:
        if not task.cancelled():
            task.result()


async def _answer(loop: Loop, plan: _Plan) -> None:
    """Carry one call out, and write its result."""
    call = plan.call
    about = execute_tool(call.name, call.call_id)
    try:
        with operation("execute_tool", call.name, **about) as span:
            with loop.task.at_work():
                await _carry_out(loop, plan)
            result = loop.task._sink.node.call_results.get(call.call_id)
            span.fail(getattr(result.item, "error", None) if result is not None else None)
    except StorageError:
        raise
    except TailraceError as error:
        if loop.task._sink.emitter.failure is not None:
            raise
        write_error(loop.task, call, ErrorInfo(code=error.code, message=str(error)))
    # `SystemExit` in a tool must not end the process.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        write_error(
            loop.task, call, tool_failure(loop.task._sink.emitter.logged.run_id, call.name, error)
        )


async def _carry_out(loop: Loop, plan: _Plan) -> None:
    task, call, tool, arguments = loop.task, plan.call, plan.tool, plan.arguments
    changed = ""
    if loop.is_beyond_client(call.executor):
        call.fail(BEYOND_CLIENT)
        return
    if plan.request is not None:
        [answer] = await loop.ask([plan.request])
        if answer.approved is False or (answer.approved is None and call.executor != "client"):
            _deny(call, answer)
            return
        if call.executor == "client":
            await _write(task, call, answer.value, OpenResult.of(task, call.call_id), "")
            return
        if isinstance(answer.value, dict):
            text = json_text(answer.value)
            changed = f"A person changed the arguments to {text}."
            try:
                arguments = tool.validate(answer.value)
            except InvalidArguments as error:
                call.fail(error.code, f"{changed} {error}")
                return
    started = task._sink.node.calls[call.call_id].started
    if isinstance(tool, AgentTool) and tool.shows_events:
        await _start(loop, call, started=started)
        await delegate(loop, call, tool, arguments)
        return
    if started and not tool.idempotent:
        _withdraw(task, call)
        write_error(task, call, OUTCOME_UNKNOWN)
        return
    await _start(loop, call, started=started)
    if isinstance(tool, AgentTool):
        await run_unlogged(loop, call, tool, arguments)
        return
    await _invoke(loop, call, tool, arguments, changed)


class _ToolTask(Task):
    """The task as a tool sees it: a question keeps its id when the tool runs again.

    So a question that is pending is not asked twice, and an answer is not lost.
    """

    def __init__(self, loop: Loop, call_id: str) -> None:
        task = loop.task
        super().__init__(task._sink.emitter, task.task_id, task._sink.pool)
        self._loop = loop
        self._call_id = call_id
        self._times: Counter[str] = Counter()

    async def ask(self, question: str | InputRequest, **about: Any) -> Answer:
        """Ask as `Task.ask` does. The time limits stand still meanwhile."""
        kind = question.kind if isinstance(question, InputRequest) else about.get("kind")
        if kind == "approval":
            self._loop.ask_for_outputs()
        self._loop.hold_nothing_back()
        with self._loop.clocks_stopped():
            return await super().ask(question, **about)

    def _asked(
        self, kind: Literal["input", "approval"], call_id: str | None, message: str, schema: Any
    ) -> InputRequest:
        content = msgspec.json.encode((kind, call_id, message, schema))
        name = f"req_{self._call_id}.{zlib.crc32(content):08x}"
        self._times[name] += 1
        ident = f"{name}.{self._times[name]}"
        return InputRequest(id=ident, kind=kind, call_id=call_id, message=message, schema=schema)


def _withdraw(task: Task, call: PendingCall) -> None:
    """Close the questions of a tool that was interrupted: no tool waits for their answers."""
    others = {f"req_{call_id}" for call_id in task._sink.node.calls if call_id != call.call_id}
    for request in list(task._sink.node.requests):
        if request.id.rsplit(".", 2)[0] in others:
            continue
        task.emit(
            ev.TaskInputReceived(
                task_id=task.task_id,
                request_id=request.id,
                approved=False,
                reason="The tool that asked was interrupted.",
            )
        )


async def _start(loop: Loop, call: PendingCall, *, started: bool) -> None:
    """Record that the tool starts, durably: after a crash it is known to have started."""
    if not started:
        loop.task.emit(ev.ToolCallStarted(**call._place))  # noqa: SLF001
    await loop.task.drain()


async def _invoke(
    loop: Loop, call: PendingCall, tool: Tool, arguments: dict[str, Any], changed: str
) -> None:
    task, agent = loop.task, loop.agent
    shown: ResultWriter | None = OpenResult.of(task, call.call_id)
    earlier = [child for child in task._sink.node.children if child.call_id == call.call_id]
    sharpening: ImageWriter | None = None
    cites: set[int] = set()

    async def ask(below: Any, prompt: str) -> str:
        nonlocal shown
        shown = shown or ResultWriter(task._sink, call.call_id)
        answer, cited = await run_below(loop, call, below, prompt, earlier)
        cites.update(cited)
        return answer

    shown_task = _ToolTask(loop, call.call_id)
    context = Context(shown_task, call.call_id, agent=agent.name, deps=agent.deps, ask=ask)
    async with aclosing(tool.invoke(arguments, context)) as pieces:
        async for piece in pieces:
            if isinstance(piece, Output):
                await _write(task, call, piece.value, shown, changed, cites)
                return
            if isinstance(piece, Notify):
                _show(task, call, piece)
            elif isinstance(piece, ev.Event):
                shown = shown or ResultWriter(task._sink, call.call_id)
                _pass_on(task, call, piece)
            else:
                is_partial = isinstance(piece, PartialImage)
                given = piece.image if isinstance(piece, PartialImage) else piece
                blocks = await shown_blocks(given, task._sink.emitter.blobs, task.run_id)
                shown = shown or ResultWriter(task._sink, call.call_id)
                for block in blocks:
                    if not isinstance(block, Image):
                        shown.whole(block)
                        continue
                    sharpening = sharpening or shown.image_block()
                    if is_partial:
                        sharpening.partial(block.image_url.url)
                    else:
                        sharpening.done(block.image_url.url)
                        sharpening = None
            await task.drain()


def _pass_on(task: Task, call: PendingCall, event: ev.Event) -> None:
    """Record an event of a sub-agent that a tool runs by itself; any other task is refused."""
    if isinstance(event, ev.TaskCreated):
        above = event.parent_task_id or ""
        is_below = event.call_id == call.call_id and above == task.task_id
    else:
        above, is_below = event.task_id, False
    node = task._sink.emitter.state.tasks.get(above)
    while node is not None and node.parent is not None and not is_below:
        is_below = node.parent is task._sink.node and node.call_id == call.call_id
        node = node.parent
    if not is_below:
        raise ToolError(
            f"The tool {call.name} yielded an event of task {event.task_id}, not of a sub-agent "
            "of its call."
        )
    task.emit(event)


def _end_children(task: Task, call: PendingCall, reason: str) -> None:
    """End the sub-agents of a call whose tool has ended."""
    for child in task._sink.node.children:
        if child.call_id == call.call_id and not child.ended:
            last = ev.TaskCancelled(task_id=child.task_id, reason=reason)
            for event in closing_events.ending(child, last):
                task.emit(event)


def _show(task: Task, call: PendingCall, note: Notify) -> None:
    """Show a notification of a tool: as progress of the call, or as a notice."""
    if note.progress is not None:
        call.progress(note.message, note.progress, 1.0)
    if note.progress is None or note.data is not None:
        task.emit(
            ev.Notice(
                task_id=task.task_id, message=note.message, call_id=call.call_id, data=note.data
            )
        )


async def _write(
    task: Task,
    call: PendingCall,
    value: Any,
    shown: ResultWriter | None,
    changed: str,
    cites: Iterable[int] = (),
) -> None:
    """Write what a tool returned, behind the blocks that it has shown already.

    If it returned nothing, the model reads those blocks.
    """
    if value is None and shown is not None:
        value = ToolOutput(tool_output({"block_list": shown.blocks}).message_content, [])
    output = await tool_result(value, task._sink.emitter.blobs, task.run_id)
    if changed:
        parts = [TextPart(text=changed), *output.message_content]
        output = ToolOutput(message_content=parts, block_list=output.block_list)
    admitted = task._sink.pool.admit(output, cites)
    result = shown or ResultWriter(task._sink, call.call_id)
    for block in admitted.block_list:
        result.whole(block)
    _end_children(task, call, "Its tool ended.")
    result.finish(ev.Private(content=admitted.content))


def write_error(task: Task, call: PendingCall, error: ErrorInfo) -> None:
    """Write an error as the result of a call, even if the result is open already."""
    node = task._sink.node
    if node.ended:
        return
    result = node.call_results.get(call.call_id)
    if result is None:
        call.fail(error)
    elif result.is_open:
        with task._sink.emitter.closing():
            _end_children(task, call, error.message)
            for event in closing_events.close_item(node, result):
                if isinstance(event, ev.OutputItemDone) and isinstance(event.item, ToolResult):
                    item = msgspec.structs.replace(event.item, error=error)
                    event = msgspec.structs.replace(event, item=item)
                task.emit(event)


def _deny(call: PendingCall, answer: Answer) -> None:
    if call.executor == "client" and answer.reason:  # the client's tool failed
        call.fail(ToolError.code, answer.reason)
        return
    why = f": {answer.reason}" if answer.reason else "."
    call.fail("denied", f"A person denied the call{why}")


# --- calls of the provider's MCP servers ---------------------------------------------------------


async def settle_approvals(loop: Loop, calls: list[PendingCall]) -> None:
    """Ask people, and write what they decided. What an approved call returns has its own item."""
    try:
        answers = await loop.ask([_approval(loop.task, call) for call in calls])
    except CallerError as error:  # a sub-agent with `streaming=False` cannot ask
        for call in calls:
            call.fail("denied", str(error))
        return
    for call, answer in zip(calls, answers, strict=True):
        if answer.approved:
            ResultWriter(loop.task._sink, call.call_id).finish()
        else:
            _deny(call, answer)


def _approval(task: Task, call: PendingCall) -> InputRequest:
    """The request of a call: that of the log, if it is pending or answered."""
    call_id, answers = call.call_id, task._sink.node.answers
    for request in task._sink.node.requests:
        if request.call_id == call_id:
            return request
    answered = [ident for ident, answer in answers.items() if answer.get("call_id") == call_id]
    return InputRequest(
        id=answered[0] if answered else f"req_{call_id}",
        kind="approval",
        call_id=call_id,
        message=f"May {call.item.server_label or 'the server'} run {call.name}?",
    )
