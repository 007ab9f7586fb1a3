"""Agents as tools: a call that another agent answers.

The sub-agent works on a task of its own, in the same log, under `task_id = call_id`. Its caller's
model reads its answer and the references that the answer cites, and nothing else from inside.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from tailrace.core import events as ev
from tailrace.core.citations import renumber
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, Text, TextPart, Usage
from tailrace.core.references import ADDED, unwrap
from tailrace.core.state import TaskNode
from tailrace.core.writers import ResultWriter
from tailrace.runtime.agents.functions import call_agent, unknown_agent
from tailrace.runtime.agents.limits import named
from tailrace.runtime.diagnostics.failures import ToolError, failure
from tailrace.runtime.diagnostics.telemetry import invoke_agent
from tailrace.runtime.event_log.emitter import Emitter
from tailrace.runtime.tasks.call_writer import PendingCall
from tailrace.runtime.tasks.sub_agent_answer import (
    announce_imports,
    imported_answer,
    message_texts,
    no_answer,
)
from tailrace.runtime.tasks.task import Task, begun_task
from tailrace.runtime.tools.parameters import InvalidArguments
from tailrace.runtime.tools.tool import Context, Tool

if TYPE_CHECKING:
    from tailrace.runtime.agents.agent import Agent
    from tailrace.runtime.agents.loop import Loop

_PROMPT = {"type": "string", "description": "What the agent is asked. It sees nothing else."}


class AgentTool(Tool):
    """A tool whose calls a sub-agent answers. `agent.as_tool()` makes one."""

    def __init__(
        self,
        *agents: Any,
        name: str,
        description: str,
        streaming: bool = True,
        needs_approval: bool = False,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            name,
            function=_unreachable,
            description=description,
            parameters=parameters
            or {"type": "object", "properties": {"prompt": _PROMPT}, "required": ["prompt"]},
            needs_approval=needs_approval,
        )
        self.agents = list(agents)
        self.shows_events = streaming
        """Whether the sub-agent's events are in the log, and not only its answer."""

    def chosen(self, arguments: dict[str, Any], _caller: Agent) -> Any:
        """The agent that answers a call with these arguments."""
        self._check_prompt(arguments)
        return self.agents[0]

    def _check_prompt(self, arguments: dict[str, Any]) -> None:
        if not isinstance(arguments.get("prompt"), str):
            raise InvalidArguments(
                f"The arguments of {self.name} are invalid: prompt must be a text."
            )


class _AskForHelp(AgentTool):
    """Delegates to an agent by name, or to a new agent with the caller's model and tools."""

    def chosen(self, arguments: dict[str, Any], caller: Agent) -> Any:
        self._check_prompt(arguments)
        name = str(arguments.get("name", ""))
        for agent in self.agents:
            if agent.name == name:
                return agent
        if self.agents:
            raise InvalidArguments(unknown_agent(name, [agent.name for agent in self.agents]))
        return type(caller)(
            re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "helper",
            model=caller.model,
            instructions=str(arguments.get("description") or "") or None,
            tools=caller.tools,
            limits=caller.limits,
            deps=caller.deps,
            history=caller.history,
            patience=caller.patience,
        )


def ask_for_help(*agents: Agent, streaming: bool = True) -> AgentTool:
    """The tool `ask_for_help {name, description, prompt}`, which starts a sub-agent.

    With `agents`, `name` is one of theirs. Without, a helper with this name is made: `description`
    is its instructions; model and tools are the caller's.
    """
    name: dict[str, Any] = {"type": "string", "description": "The name of the agent."}
    if agents:
        name["enum"] = [agent.name for agent in agents]
    listed = "".join(f"\n{agent.name}: {agent.description}" for agent in agents)
    return _AskForHelp(
        *agents,
        name="ask_for_help",
        description=f"Asks another agent, and returns its answer.{listed}",
        streaming=streaming,
        parameters={
            "type": "object",
            "properties": {
                "name": name,
                "description": {"type": "string", "description": "What the agent is good at."},
                "prompt": _PROMPT,
            },
            "required": ["name", "prompt"],
        },
    )


def _unreachable(_arguments: dict[str, Any], _context: Context) -> Any:
    raise AssertionError("a sub-agent answers this call")


class _TooDeep(ToolError):
    """Sub-agents are nested deeper than `Limits(depth=…)` allows; the model reads it."""

    code = "max_depth"


def _check_depth(loop: Loop) -> None:
    for level, above in enumerate(loop.loops(), 1):
        most = above.limits.depth
        if most is not None and level > most:
            raise _TooDeep(f"Sub-agents may not be nested deeper than {named('depth', most)}.")


async def delegate(
    loop: Loop, call: PendingCall, tool: AgentTool, arguments: dict[str, Any]
) -> None:
    """Let a sub-agent answer a call; on a call that it had begun, from where it is."""
    agent = tool.chosen(arguments, loop.agent)
    _check_depth(loop)
    with call.delegate(agent.name, arguments["prompt"]) as child:
        await _work(agent, child, loop)


async def run_below(
    loop: Loop, call: PendingCall, agent: Any, prompt: str, earlier: list[TaskNode]
) -> tuple[str, Collection[int]]:
    """Let a sub-agent work below a call whose tool goes on; its answer, and what that cites.

    The first sub-agent of a call has the call's id, the others a derived id. The references that
    the answer cites are imported, and its markers have the caller's numbers. `earlier` are the
    sub-agents that the tool asked before its worker was lost: they go on, or have answered.
    """
    _check_depth(loop)
    parent = loop.task
    name = getattr(agent, "name", None) or agent.__name__
    known = next((one for one in earlier if _can_go_on(one, agent, name, prompt)), None)
    if known is None:
        child = _begun_below(parent, call, name, prompt)
    else:
        earlier.remove(known)
        child = begun_task(parent._sink.emitter, known.task_id)
    if not child._sink.node.ended:
        try:
            with invoke_agent(child):
                await _work(agent, child, loop)
        except BaseException as error:
            parent._sink.after(error, lambda: child.cancel("It was cancelled."))
            raise
        child.complete()
    if child._sink.node.status != "completed":
        raise ToolError((child._sink.node.error or no_answer(child._sink.node)).message)
    texts = message_texts(child._sink.node)
    imported = imported_answer(child._sink.node, parent._sink.pool)
    announce_imports(parent._sink, child.task_id, imported)
    return "".join(renumber(text, imported.mapping) for text in texts), imported.mapping.values()


def _can_go_on(child: TaskNode, agent: Any, name: str, prompt: str) -> bool:
    """Whether a sub-agent was asked the same, and has answered or can continue."""
    is_same = child.facts.get("agent") == name and child.facts.get("input") == prompt
    can = child.status == "completed" if child.ended else hasattr(agent, "_work_below")
    return is_same and can


def _begun_below(parent: Task, call: PendingCall, name: str, prompt: str) -> Task:
    count = sum(child.call_id == call.call_id for child in parent._sink.node.children)
    task_id = call.call_id if not count else f"{call.call_id}_{count + 1}"
    parent.emit(
        ev.TaskCreated(
            task_id=task_id,
            agent=name,
            parent_task_id=parent.task_id,
            call_id=call.call_id,
            input=prompt,
        )
    )
    parent.emit(ev.TaskInProgress(task_id=task_id))
    return Task(parent._sink.emitter, task_id)


async def _work(agent: Any, child: Task, loop: Loop) -> None:
    """Run an agent on a child's task. Its failure is a result, which its caller's model reads."""
    emitter = child._sink.emitter
    if child.task_id in emitter.cancelled:
        child.cancel(emitter.cancelled[child.task_id])
        return
    job = emitter.children[child.task_id] = asyncio.current_task()
    try:
        # An `Agent` also stops at the limits of the agents above it.
        below = getattr(agent, "_work_below", None)
        await call_agent(partial(below, above=loop) if below is not None else agent, child)
    except asyncio.CancelledError:
        if child.task_id not in emitter.cancelled or job is None:
            raise
        job.uncancel()  # it was meant for the sub-agent alone
        child.cancel(emitter.cancelled[child.task_id])
    except Exception as error:
        if emitter.failure is not None:
            raise
        child.fail(failure(f"run {child.run_id} (agent {child.agent})", error))
    finally:
        emitter.children.pop(child.task_id, None)


# --- without events ----------------------------------------------------------------------------


class UnloggedEmitter(Emitter):
    """Folds a sub-agent's events in memory: nothing of them is stored."""

    def __init__(self, above: Emitter, call_id: str, agent: str, prompt: str) -> None:
        super().__init__(above._pipeline, call_id, above.epoch, State())  # noqa: SLF001
        self._above = above
        self.usages: list[Usage] = []
        """The usage of each call."""
        self.owner = above.owner
        self.emit(ev.TaskCreated(task_id=call_id, agent=agent, input=prompt))
        self.emit(ev.TaskInProgress(task_id=call_id))

    def emit(self, event: ev.Event, private: ev.Private | None = None) -> None:
        """Fold the event."""
        if isinstance(event, ev.TaskUsage):
            self.usages.append(event.usage)
        self.state.apply(ev.recorded(event, self.state.sequence_number + 1), private)

    async def drain(self) -> None:
        """Let others work."""
        await asyncio.sleep(0)

    @property
    def logged(self) -> Emitter:
        """The writer of the run that it is part of."""
        return self._above.logged

    @property
    def is_ours(self) -> bool:
        """Whether the run that it is part of has its writer."""
        return self._above.is_ours


def pass_usage_on(emitter: UnloggedEmitter, task: Task) -> None:
    """Count the usage of what was not logged as usage of the task."""
    for usage in emitter.usages:
        task.usage(usage)


async def run_unlogged(
    loop: Loop, call: PendingCall, tool: AgentTool, arguments: dict[str, Any]
) -> None:
    """Let a sub-agent answer a call; only its answer and its usage are logged."""
    agent = tool.chosen(arguments, loop.agent)
    _check_depth(loop)
    task = loop.task
    emitter = UnloggedEmitter(task._sink.emitter, call.call_id, agent.name, arguments["prompt"])
    child = Task(emitter, call.call_id)
    for above in loop.loops():
        above.unlogged.append(child._sink.node)
    try:
        with invoke_agent(child):
            await _work(agent, child, loop)
        child.complete()
    finally:
        for above in loop.loops():
            above.unlogged.remove(child._sink.node)
        if task._sink.emitter.is_ours and not task._sink.node.ended:
            pass_usage_on(emitter, task)
    if child._sink.node.status != "completed":
        error = child._sink.node.error or no_answer(child._sink.node)
        call.fail(ErrorInfo(code=error.code, message=error.message))
        return
    imported = imported_answer(child._sink.node, task._sink.pool)
    result = ResultWriter(task._sink, call.call_id)
    for part in unwrap(imported.content):
        if isinstance(part, TextPart) and ADDED not in part.tags:
            number = part.id if isinstance(part.id, int) else None
            result.whole(Text(text=part.text, id=number))
    result.finish(ev.Private(content=imported.content))
