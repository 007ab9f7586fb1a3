"""`GET /agents`: what clients may know of the agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tailrace import Agent, Tailrace, Task, tool
from tailrace.models import Scripted, say
from tailrace.runtime.tools.tool import Tool
from tests.serving import client_of

SECRET = "do-not-show"


class Answer(msgspec.Struct):
    colour: str


@tool(needs_approval=True)
async def paint(colour: str) -> str:
    """Paints the wall."""
    return colour


class Later:
    """A source of tools that are known at run time."""

    async def tools(self) -> list[Tool]:
        raise AssertionError("a description must not open it")


async def plain(task: Task) -> str:
    """Says hello.

    More about it.
    """
    return "Hello"


class Spoken:
    """Not a description of an agent."""

    async def __call__(self, task: Task) -> str:
        return "Hello"


async def details(path: Path) -> dict[str, Any]:
    model = Scripted([say("{}")])
    painter = Agent(
        "painter",
        model=model,
        description="Paints walls.",
        instructions=SECRET,
        tools=[
            paint,
            Tool("pick", executor="client"),
            {"type": "mcp", "server_label": "x", "headers": {"authorization": SECRET}},
            Later(),
        ],
        output=Answer,
        options={"key": SECRET},
        deps=SECRET,
    )
    agents: dict[str, Any] = {"painter": painter, "plain": plain, "other": Spoken()}
    app = Tailrace(agents, path / "log.db")
    async with app.running(), client_of(app) as client:
        answer = await client.get("/agents")
    assert SECRET not in answer.text
    assert answer.json()["agents"] == ["other", "painter", "plain"]
    return {one.pop("name"): one for one in answer.json()["details"]}


async def test_agents_are_described_with_their_schemas_and_without_secrets(tmp_path: Path) -> None:
    found = await details(tmp_path)
    empty: dict[str, Any] = {"model": None, "tools": [], "more_tools": False, "output_schema": None}
    assert found["plain"] == {"description": "Says hello.", **empty}
    assert found["other"] == {"description": "", **empty}
    painter = found["painter"]
    assert (painter["description"], painter["model"]) == ("Paints walls.", "scripted")
    assert painter["more_tools"] is True
    assert painter["output_schema"]["properties"] == {"colour": {"type": "string"}}
    [paints, picks, mcp] = painter["tools"]
    assert paints["parameters"]["properties"]["colour"]["type"] == "string"
    assert (paints["executor"], paints["needs_approval"]) == ("server", True)
    assert (paints["description"], picks["executor"]) == ("Paints the wall.", "client")
    assert mcp == {
        "name": "mcp",
        "description": "",
        "parameters": None,
        "executor": "provider",
        "needs_approval": False,
    }
