"""What a user declares: an agent is an async function that writes one run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps

from tailrace.runtime.task import TaskWriter

Agent = Callable[[TaskWriter], Awaitable[None]]
"""It writes through a `TaskWriter`, and lives apart from every connection."""


def restartable(agent: Agent) -> Agent:
    """Declare that an agent may be called again on a run that it had begun.

    Nobody can enter a function in the middle. So a run whose worker was lost ends as failed
    (`interrupted`), unless its agent says by this that it looks at what is there (`task.node`) and
    goes on from it.
    """

    @wraps(agent)
    async def call(task: TaskWriter) -> None:
        await agent(task)

    call.restartable = True  # type: ignore[attr-defined]
    return call


def is_restartable(agent: Agent) -> bool:
    """Whether the agent declared it."""
    return getattr(agent, "restartable", False) is True
