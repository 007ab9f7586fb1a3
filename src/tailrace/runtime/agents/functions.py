"""Agents by name: async functions that write a run, or objects that are called like them."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial, wraps
from typing import Any

from tailrace.core.errors import CallerError
from tailrace.runtime.tasks.task import Task

AgentFunction = Callable[[Task], Awaitable[object]]
"""An async function that writes a run through its `Task`. Text that it returns is a message."""

NamedAgents = Mapping[str, AgentFunction]

logger = logging.getLogger("tailrace")


async def call_agent(agent: AgentFunction, task: Task) -> None:
    """Let an agent work on a task, and write the text that it returns as a message."""
    returned = await agent(task)
    if isinstance(returned, str):
        if returned and not task._sink.node.ended:
            task.say(returned)
    elif returned is not None:
        logger.warning(
            "run %s: agent %s returned a value of type %s, which is dropped; return text, or write"
            " a value with `task.output(value)`",
            *(task.run_id, task.agent, type(returned).__name__),
        )


def restartable(agent: AgentFunction) -> AgentFunction:
    """Declare that an agent may be called again on a run that it had begun.

    A function cannot be entered in the middle. So a run whose worker was lost ends as failed
    (`interrupted`), unless its agent is restartable. A restartable agent reads `task.state` and
    continues from it.
    """
    check_agents({getattr(agent, "__name__", type(agent).__name__): agent})

    @wraps(agent)
    async def call(task: Task) -> object:
        return await agent(task)

    call.restartable = True  # type: ignore[attr-defined]
    return call


def named_agents(agents: Any) -> NamedAgents:
    """Agents by name, checked. In a list, an agent's name is its `name` or its `__name__`."""
    if isinstance(agents, Mapping):
        check_agents(agents)
        return agents
    if isinstance(agents, str) or not isinstance(agents, Iterable):
        raise CallerError('Pass the agents as a list or by name: `Tailrace({"name": agent})`.')
    found: dict[str, AgentFunction] = {}
    for agent in agents:
        name = getattr(agent, "name", None) or getattr(agent, "__name__", None)
        if not isinstance(name, str) or name == "<lambda>":
            raise CallerError(
                f'This agent has no name: {agent!r}. Write `Tailrace({{"name": agent}})`.'
            )
        if name in found:
            raise CallerError(f"Two agents are named {name!r}; write `Tailrace({{name: agent}})`.")
        found[name] = agent
    check_agents(found)
    return found


def is_restartable(agent: AgentFunction) -> bool:
    """Whether the agent may be called again on a run that it had begun."""
    return getattr(agent, "restartable", False) is True


def check_agents(agents: NamedAgents) -> None:
    """Raise `CallerError` for an agent that is not an async function of the task.

    A synchronous function would block the event loop for all other runs, and returns no awaitable.
    """
    for name, agent in agents.items():
        called = agent.func if isinstance(agent, partial) else agent
        if inspect.isasyncgenfunction(called):
            raise CallerError(
                f"Agent {name!r} yields. Remove `yield`, and write the text with"
                " `with task.message() as message: message.text(...)`."
            )
        method = getattr(called, "__call__", None)  # noqa: B004  # an object may have an async one
        if not inspect.iscoroutinefunction(called) and not inspect.iscoroutinefunction(method):
            raise CallerError(
                f"Agent {name!r} is not an async function. Write it with `async def`, and call"
                " blocking code with `await asyncio.to_thread(...)`."
            )
        try:
            inspect.signature(agent).bind(None)
        except TypeError as error:
            raise CallerError(
                f"Agent {name!r} must take the task and nothing else ({error}). Write"
                " `async def agent(task)`."
            ) from error


def unknown_agent(name: str, known: Iterable[str]) -> str:
    """The error message for a name that no agent has."""
    names = ", ".join(sorted(known))
    advice = f"use {names}." if names else "pass agents to `Tailrace([...])`."
    return f"Unknown agent {name[:80]!r}; {advice}"
