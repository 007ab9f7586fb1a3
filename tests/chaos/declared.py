"""A declared agent for storms: reasoning, tools, an approval, and sub-agents two levels deep."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from tailrace import Agent, Context, tool
from tailrace.models import Scripted, call, say, think

NAME = "declared"
ANSWER = "All of it is done."
PACE = 12.0
"""Words a second."""


def note(ctx: Context, name: str) -> str:
    """Leave a line in the file of tools; a process that is killed leaves it whole or not at all."""
    path = os.environ["TAILRACE_CHAOS_TOOLS"]
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, f"{ctx.run_id} {ctx.call_id}\n".encode())
    finally:
        os.close(file)
    return name


@tool
async def once(ctx: Context) -> str:
    """May not run twice."""
    note(ctx, "once")
    await asyncio.sleep(0.7)  # a kill finds it at work
    return "once"


@tool(idempotent=True)
async def again() -> str:
    """May run twice."""
    await asyncio.sleep(0.1)
    return "again"


@tool(needs_approval=True)
async def pay(ctx: Context) -> str:
    """May not run twice, nor without approval."""
    return note(ctx, "pay")


def agent() -> Agent:
    """The agent."""
    low = Agent(
        "low",
        model=Scripted([call("once"), call("pay")], [say("Low is done.", pace=PACE)]),
        tools=[once, pay],
    )
    middle = Agent(
        "middle",
        model=Scripted(
            [think("Which one?", pace=PACE), call("once"), call("low", prompt="?")],
            [say("Middle is done.", pace=PACE)],
        ),
        tools=[once, low.as_tool()],
    )
    first: list[Any] = [
        think("Let me think about it.", pace=PACE),
        say("One moment, please.", pace=PACE),
        *(call("once"), call("again"), call("pay"), call("middle", prompt="?")),
    ]
    second: list[Any] = [think("And then?", pace=PACE), call("once"), call("again")]
    model = Scripted(first, second, [say(ANSWER, pace=PACE)])
    return Agent(NAME, model=model, tools=[once, again, pay, middle.as_tool()])
