"""What a user declares: an agent is an async function that writes one run."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial, wraps

from tailrace.core.errors import CallerError
from tailrace.runtime.task import TaskWriter

Agent = Callable[[TaskWriter], Awaitable[None]]
"""It writes through a `TaskWriter`, and lives apart from every connection."""


def restartable(agent: Agent) -> Agent:
    """Declare that an agent may be called again on a run that it had begun.

    Nobody can enter a function in the middle. So a run whose worker was lost ends as failed
    (`interrupted`), unless its agent says by this that it looks at what is there (`task.node`) and
    goes on from it.
    """
    check_agents({getattr(agent, "__name__", type(agent).__name__): agent})

    @wraps(agent)
    async def call(task: TaskWriter) -> None:
        await agent(task)

    call.restartable = True  # type: ignore[attr-defined]
    return call


def is_restartable(agent: Agent) -> bool:
    """Whether the agent declared it."""
    return getattr(agent, "restartable", False) is True


def check_agents(agents: Mapping[str, Agent]) -> None:
    """Raise `CallerError` for an agent that is not an async function of the task.

    A synchronous function would block the event loop for all other runs, and returns no awaitable.
    """
    if not isinstance(agents, Mapping):
        raise CallerError('Name the agents: write Tailrace({"name": agent}).')
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
