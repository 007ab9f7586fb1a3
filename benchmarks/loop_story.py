"""What every contender of the loop's benchmark does: the tool, the calls, the deltas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

PROMPT = "How many rivers are there?"
CALL_ID = "call_1"
ask = "ask"
"""The name of the tool that is the next agent."""


async def look_up(topic: str) -> str:
    """Looks a topic up."""
    return f"There are three {topic}."


def name_of(level: int) -> str:
    """The tool that an agent calls; the innermost is level 1."""
    return "look_up" if level == 1 else ask


def asks(level: int, field: str = "prompt") -> dict[str, Any]:
    """The arguments of its call; `field` is what the next agent's input is called."""
    return {"topic": "rivers"} if level == 1 else {field: PROMPT}


def has_result(roles: Sequence[Any]) -> bool:
    """Whether the tool has answered: the next turn is the answer."""
    return "tool" in roles


async def deltas(count: int, depth: int, level: int) -> AsyncIterator[str]:
    """The share of one agent; it yields to the loop after each, as a network does."""
    share = count // depth + (count % depth if level == depth else 0)
    for _ in range(share):
        await asyncio.sleep(0)
        yield "four"
