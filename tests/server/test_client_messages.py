"""`/api/chat` and `/ag-ui`: all messages that a client sends count, and no others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace import Agent, Tailrace, Task, tool
from tailrace.models import Scripted, call, say, think
from tests.serving import client_of

Json = dict[str, Any]


@tool
async def get_weather(city: str) -> dict[str, str]:
    """Current weather."""
    return {"city": city}


async def echo(task: Task) -> str:
    """Answers with what its model would read."""
    return json.dumps([_read(item) for item in (await task.history()).items])


def _read(item: Json) -> list[Any]:
    content = item.get("content")
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    return [item.get("role") or item["type"], content or item.get("name") or item.get("output")]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    weather = Agent(
        "weather",
        model=Scripted([think("Hm."), call("get_weather", city="Paris")], [say("Clear.[^1]")]),
        tools=[get_weather],
    )
    app = Tailrace([echo, weather], tmp_path / "log.db")
    async with app.running(), client_of(app) as made:
        yield made


def user(text: str, ident: str = "") -> Json:
    return {"id": ident or text, "role": "user", "parts": [{"type": "text", "text": text}]}


async def chat(client: httpx.AsyncClient, messages: list[Json], agent: str = "echo") -> list[Any]:
    """Ask in the chat `t`: what the model of the agent reads."""
    answer = await client.post("/api/chat", json={"id": "t", "agent": agent, "messages": messages})
    assert answer.status_code == 200, answer.text
    if agent != "echo":
        return []
    [*_, last] = await shown(client)
    found: list[Any] = json.loads(last["parts"][-1]["text"])
    return found


async def shown(client: httpx.AsyncClient, form: str = "vercel-ui") -> list[Json]:
    """The chat after a reload."""
    found: list[Json] = (await client.get("/threads/t", params={"format": form})).json()
    return found


# --- messages that the server does not have ------------------------------------------------------


async def test_a_chat_that_was_deleted_keeps_its_calls(client: httpx.AsyncClient) -> None:
    await chat(client, [user("Sunny?")], "weather")
    messages = await shown(client)
    await client.delete("/threads/t")
    assert await chat(client, [*messages, user("And?")]) == [
        ["user", "Sunny?"],
        ["function_call", "get_weather"],
        ["function_call_output", '{"city":"Paris"}'],
        ["assistant", "Clear.[^1]"],
        ["user", "And?"],
    ]
    assert (await shown(client))[:3] == [*messages, user("And?")]
