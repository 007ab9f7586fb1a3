"""A process with three agents, of which the lowest asks people; it may end at a crash point.

    TAILRACE_CRASH_AT=park.after \\
        python -m tests.runtime.agents.nested_asking <folder> <database> [<bus>]

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


def application(folder: Path, database: str, bus: str | None, **options: Any) -> Tailrace:
    """The application; its tools leave a line in a file each time that they run."""

    def ran(name: str) -> str:
        with (folder / "ran.txt").open("a") as file:
            file.write(f"{name}\n")
        return name

    @tool(needs_approval=True)
    def pay(euros: int) -> str:
        """May not run twice, nor without approval."""
        return ran(f"pay-{euros}")

    @tool(executor="client")
    def locate() -> str:
        """The client carries it out."""
        raise NotImplementedError

    @tool
    def note() -> str:
        """May not run twice."""
        return ran("note")

    turns: list[list[Any]] = [
        [think("Deep."), call("pay", euros=5), call("locate")],
        [say("Low.[^1]")],
    ]
    agent = Agent("low", model=Scripted(*turns), tools=[pay, locate])
    for name in ("middle", "top"):
        model = Scripted([call("note"), call(agent.name, prompt="?")], [say(f"{name}.[^1]")])
        agent = Agent(name, model=model, tools=[note, agent.as_tool()])
    return Tailrace([agent], database, bus=bus, lease=timedelta(seconds=1), **options)


async def main(folder: Path, database: str, bus: str | None = None) -> None:
    app = application(folder, database, bus)
    async with app.running(), asyncio.timeout(120):
        try:
            run = await app.start("top", "?", run_id=RUN)
        except CallerError:
            run = await app.run(RUN)
        await run.result()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
