"""`/api/chat` and `/ag-ui`: all messages that a client sends count, and no others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from tailrace import Agent, Tailrace, Task, image, tool
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
    [text] = [part["text"] for part in last["parts"] if part["type"] == "text"]
    found: list[Any] = json.loads(text)
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


async def ag_ui(client: httpx.AsyncClient, messages: list[Json], run: str = "r") -> list[Any]:
    """Ask in the thread `t`: what the model of the agent reads."""
    body = {"threadId": "t", "runId": run, "messages": messages, "tools": [], "context": []}
    answer = await client.post("/ag-ui/echo", json={**body, "state": {}, "forwardedProps": {}})
    assert answer.status_code == 200, answer.text
    [*_, last] = await shown(client, "ag-ui")
    found: list[Any] = json.loads(last["content"])
    return found


async def test_ag_ui_messages_that_are_not_for_the_model_stay_in_the_conversation(
    client: httpx.AsyncClient,
) -> None:
    messages: list[Json] = [
        {"id": "1", "role": "user", "content": "Hi"},
        {"id": "2", "role": "reasoning", "content": "A thought.", "encryptedValue": "x"},
        {"id": "3", "role": "activity", "activityType": "progress", "content": {"step": 1}},
        {"id": "4", "role": "assistant", "content": "An agent's.", "subagentRunId": "c"},
        {"id": "5", "role": "tool", "content": "x", "toolCallId": "y", "subagentRunId": "c"},
        {"id": "6", "role": "assistant", "content": "Hello."},
        {"id": "7", "role": "user", "content": "And?"},
    ]
    assert await ag_ui(client, messages) == [
        ["user", "Hi"],
        ["assistant", "Hello."],
        ["user", "And?"],
    ]
    assert (await shown(client, "ag-ui"))[:-1] == messages
    items = await shown(client, "openai-responses")
    assert [item["role"] for item in items] == ["user", "assistant", "user", "assistant"]


async def test_ag_ui_refuses_a_request_without_a_message_for_the_model(
    client: httpx.AsyncClient,
) -> None:
    body = {"threadId": "t", "runId": "r", "messages": [{"role": "reasoning", "content": "Hm"}]}
    answer = await client.post("/ag-ui/echo", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")


# --- messages that the client has removed or changed ---------------------------------------------


async def test_an_unchanged_chat_continues_its_run(client: httpx.AsyncClient) -> None:
    await chat(client, [user("Sunny?")], "weather")
    messages = await shown(client)
    for message in messages:  # a page may drop them
        message["parts"] = [part for part in message["parts"] if part["type"] != "reasoning"]
    read = await chat(client, [*messages, user("And?")])
    assert read[2][1].startswith("<referencable-item>"), "the model's own version of the result"
    assert [entry[0] for entry in read] == [
        *("user", "function_call", "function_call_output", "assistant", "user")
    ]


async def test_a_result_that_the_page_changed_is_what_the_model_reads(
    client: httpx.AsyncClient,
) -> None:
    await chat(client, [user("Sunny?")], "weather")
    [question, answer] = await shown(client)
    answer["parts"][2]["output"] = [{"type": "text", "text": "Fog"}]
    assert await chat(client, [question, answer, user("And?")]) == [
        ["user", "Sunny?"],
        ["function_call", "get_weather"],
        ["function_call_output", "Fog"],
        ["assistant", "Clear.[^1]"],
        ["user", "And?"],
    ]
    assert (await shown(client))[:3] == [question, answer, user("And?")]


async def test_an_answer_alone_that_the_page_changed_is_read(client: httpx.AsyncClient) -> None:
    await chat(client, [user("one")])
    [_, answer] = await shown(client)
    changed = {**answer, "parts": [{"type": "text", "text": "No."}]}
    assert await chat(client, [changed]) == [["assistant", "No."]]


async def test_a_page_that_left_early_continues_the_whole_answer(
    client: httpx.AsyncClient,
) -> None:
    await chat(client, [user("Sunny?")], "weather")
    [question, answer] = await shown(client)
    del answer["metadata"]["status"]
    answer["parts"] = answer["parts"][:2]
    read = await chat(client, [question, answer, user("And?")])
    assert [entry[0] for entry in read] == [
        *("user", "function_call", "function_call_output", "assistant", "user")
    ]


async def test_a_fork_stays_a_fork(client: httpx.AsyncClient) -> None:
    """A run that goes on from an earlier message continues the earlier run as the thread has it."""
    await chat(client, [user("one")])
    [run] = (await client.get("/threads/t")).json()["runs"]
    body = {"agent": "echo", "input": user("two"), "previous_run_id": run["run_id"]}
    forked = (await client.post("/threads/t/runs", json={**body, "previous_seq": 2})).json()
    await client.get(f"/runs/{forked['run_id']}/events")
    messages = await shown(client)
    messages[-1]["parts"] = [{"type": "text", "text": "No."}]
    assert await chat(client, [*messages, user("three")]) == [
        ["user", "one"],
        *(["user", "two"], ["assistant", "No."], ["user", "three"]),
    ]
    last = (await client.get("/threads/t")).json()["runs"][-1]
    assert (last["previous_run_id"], last["previous_seq"]) == (run["run_id"], 2)


async def test_a_mounted_server_knows_its_blobs_again(tmp_path: Path) -> None:
    """The page has them with the prefix of the mount."""

    @tool
    async def draw() -> Any:
        """Draws."""
        return image(b"\x89PNG\r\n\x1a\n" + bytes(40_000))

    painter = Agent("painter", model=Scripted([call("draw")], [say("Done.")]), tools=[draw])
    app = Tailrace([echo, painter], tmp_path / "mounted.db")
    host = Starlette()
    host.mount("/ai", app)
    async with app.running(), client_of(host) as made:
        made.base_url = httpx.URL("http://localhost/ai")
        await chat(made, [user("A cat.")], "painter")
        messages = await shown(made)
        assert "/ai/blobs/" in json.dumps(messages)
        await chat(made, [*messages, user("And?")])
        last = (await made.get("/threads/t")).json()["runs"][-1]
        assert last["previous_run_id"] == messages[1]["id"]
        messages[1]["parts"][-1]["text"] = "No."
        await chat(made, [*messages, user("And?")])
        last = (await made.get("/threads/t")).json()["runs"][-1]
        given = (await made.get(f"/runs/{last['run_id']}")).text
        assert last["previous_run_id"] is None
        assert given.count("/ai/blobs/") == json.dumps(messages).count("/ai/blobs/")
