"""A process with an agent, its tools and a sub-agent, that may end at a crash point.

    TAILRACE_CRASH_AT=append.after:5 python -m tests.runtime.agents.agent_crashing <folder>

It starts the run, or finds it begun, and waits for its end.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from tailrace import Agent, Tailrace, tool
from tailrace.errors import CallerError
from tailrace.models import Scripted, call, say, think

RUN = "run_1"


def application(folder: Path) -> Tailrace:
    """The application; its tools leave a line in a file each time that they run."""

    def ran(name: str) -> str:
        with (folder / "ran.txt").open("a") as file:
            file.write(f"{name}\n")
        return name

    @tool
    async def once() -> str:
        """May not run twice."""
        return ran("once")

    @tool(idempotent=True)
    async def again() -> str:
        """May run twice."""
        return ran("again")

    @tool
    async def inside() -> str:
        """May not run twice."""
        return ran("inside")

    child = Agent(
        "child",
        model=Scripted([think("Deep."), call("inside")], [say("From inside.[^1]")]),
        tools=[inside],
    )
    steps: list[Any] = [think("Hm."), call("once"), call("again"), call("child", prompt="?")]
    agent = Agent("a", model=Scripted(steps, [say("All.")]), tools=[once, again, child.as_tool()])
    return Tailrace([agent], database=folder / "log.db", lease=timedelta(seconds=1))


async def main(folder: Path) -> None:
    app = application(folder)
    async with app.running(), asyncio.timeout(120):
        try:
            run = await app.start("a", "?", run_id=RUN)
        except CallerError:
            run = await app.run(RUN)
        await run.result()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
