"""A thread as the messages that a client of a format starts from."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ag_ui.core import Message
from pydantic import TypeAdapter

from tailrace import Agent, Tailrace, Task, tool
from tailrace.models import Scripted, call, say, think
from tailrace.server.access.auth import Principal
from tests.node import run_node
from tests.serving import client_of

_MESSAGES: TypeAdapter[Any] = TypeAdapter(list[Message])


@tool
async def get_weather(city: str) -> dict[str, str]:
    """Current weather."""
    return {"city": city, "sky": "clear"}


async def parrot(task: Task) -> str:
    """Repeats what it reads."""
    return f"You said {task.text}"


def app_at(path: Path, **options: Any) -> Tailrace:
    weather = Agent(
        "weather",
        model=Scripted([think("Hm."), call("get_weather", city="Paris")], [say("Clear.[^1]")]),
        tools=[get_weather],
    )
    picker = Agent("picker", model=Scripted([call("pick_colour", of="hats")], [say("A fine one.")]))
    return Tailrace([weather, picker, parrot], path / "log.db", **options)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = app_at(tmp_path)
    async with app.running(), client_of(app) as made:
        yield made


async def turn(client: httpx.AsyncClient, agent: str, text: Any, thread: str = "t") -> str:
    """A run of a thread, to its end."""
    answer = await client.post(f"/threads/{thread}/runs", json={"agent": agent, "input": text})
    assert answer.status_code == 201, answer.text
    run_id: str = answer.json()["run_id"]
    await client.get(f"/runs/{run_id}/events")
    return run_id


async def listed(client: httpx.AsyncClient, form: str, thread: str = "t") -> list[dict[str, Any]]:
    answer = await client.get(f"/threads/{thread}", params={"format": form})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found


def in_sdk(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the AI SDK would send to a model for these messages, after its validation."""
    [found] = json.loads(run_node(["vercel_messages.mjs"], stdin=json.dumps([messages])))
    made: list[dict[str, Any]] = found
    return made


async def test_use_chat_starts_from_the_thread(client: httpx.AsyncClient) -> None:
    first = await turn(client, "weather", "Paris?")
    second = await turn(client, "parrot", "Thanks.")
    messages = await listed(client, "vercel-ui")
    assert [(one["role"], one["id"]) for one in messages] == [
        ("user", f"{first}_in0"),
        ("assistant", first),
        ("user", f"{second}_in2"),
        ("assistant", second),
    ]
    kinds = [part["type"] for part in messages[1]["parts"]]
    assert kinds == ["step-start", "reasoning", "dynamic-tool", "text", "source-document"]
    call_part = messages[1]["parts"][2]
    assert (call_part["state"], call_part["input"]) == ("output-available", {"city": "Paris"})
    assert json.loads(call_part["output"][0]["text"]) == {"city": "Paris", "sky": "clear"}
    assert messages[1]["metadata"]["status"] == "completed"
    roles = [one["role"] for one in in_sdk(messages)]
    assert roles == ["user", "assistant", "user", "assistant"]


async def test_a_chat_finds_the_messages_that_it_sent(client: httpx.AsyncClient) -> None:
    asked = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hats"}]}
    tools = [{"type": "function", "name": "pick_colour", "parameters": {"type": "object"}}]
    start = {"agent": "picker", "input": asked, "options": {"tools": tools}}
    run_id = (await client.post("/threads/t/runs", json=start)).json()["run_id"]
    await client.get(f"/runs/{run_id}/events")
    [user, answer] = await listed(client, "vercel-ui")
    assert user == asked
    part = answer["parts"][1]
    assert (part["type"], part["state"]) == ("tool-pick_colour", "input-available")
    done = {**part, "state": "output-available", "output": "red"}
    sent = {**answer, "parts": [*answer["parts"][:1], done]}
    body = {"id": "t", "agent": "picker", "messages": [asked, sent]}
    assert (await client.post("/api/chat", json=body)).status_code == 200
    [user, answer] = await listed(client, "vercel-ui")
    assert answer["id"] == sent["id"]
    kinds = [one["type"] for one in answer["parts"]]
    assert kinds == ["step-start", "tool-pick_colour", "step-start", "text"]
    assert answer["parts"][1]["output"] == "red"
    assert [one["role"] for one in in_sdk([user, answer])] == [
        *("user", "assistant", "tool", "assistant")
    ]


async def test_open_ai_clients_start_from_input_items(client: httpx.AsyncClient) -> None:
    first = await turn(client, "weather", "Paris?")
    await turn(client, "parrot", "Thanks.")
    items = await listed(client, "openai-responses")
    kinds = [item["type"] for item in items]
    assert kinds == ["message", "reasoning", "mcp_call", "message", "message", "message"]
    assert items[0]["content"] == [{"type": "input_text", "text": "Paris?"}]
    whole = (await client.get(f"/v1/responses/resp_{first}")).json()
    assert items[1:4] == whole["output"]
    body = {"model": "parrot", "input": [*items, {"role": "user", "content": "Bye."}]}
    answer = (await client.post("/v1/responses", json=body)).json()
    assert answer["status"] == "completed"


async def test_ag_ui_clients_start_from_messages(client: httpx.AsyncClient) -> None:
    asked = {"id": "u1", "role": "user", "content": "Paris?"}
    body: dict[str, Any] = {"threadId": "t", "runId": "r1", "messages": [asked]}
    await client.post("/ag-ui/weather", json=body)
    messages = await listed(client, "ag-ui")
    _MESSAGES.validate_python(messages)
    assert messages[0] == asked
    assert [one["role"] for one in messages] == [
        *("user", "reasoning", "assistant", "tool", "assistant")
    ]
    again = {"id": "u2", "role": "user", "content": "Thanks."}
    body = {"threadId": "t", "runId": "r2", "messages": [*messages, again]}
    await client.post("/ag-ui/parrot", json=body)
    later = await listed(client, "ag-ui")
    assert later[:-1] == [*messages, again]
    assert later[-1]["content"] == "You said Thanks."


async def test_each_format_reads_the_input_of_the_others(client: httpx.AsyncClient) -> None:
    asked = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}
    await client.post("/api/chat", json={"id": "t", "agent": "parrot", "messages": [asked]})
    assert (await listed(client, "openai-responses"))[0]["content"] == [
        {"type": "input_text", "text": "Hello"}
    ]
    assert (await listed(client, "ag-ui"))[0]["content"] == "Hello"


async def test_a_branch_shows_the_runs_that_it_continues(client: httpx.AsyncClient) -> None:
    first = await turn(client, "parrot", "one")
    await turn(client, "parrot", "two")
    body = {"agent": "parrot", "input": "three", "previous_run_id": first}
    run_id = (await client.post("/threads/t/runs", json=body)).json()["run_id"]
    await client.get(f"/runs/{run_id}/events")
    texts = [one["content"] for one in await listed(client, "ag-ui")]
    assert texts == ["one", "You said one", "three", "You said three"]


async def test_a_run_that_was_forked_is_shown_as_cancelled_there(
    client: httpx.AsyncClient,
) -> None:
    first = await turn(client, "weather", "Paris?")
    last = (await client.get("/threads/t")).json()["runs"][0]["last_seq"]
    for seq in range(1, last + 1):
        body = {"agent": "parrot", "input": "two", "previous_run_id": first, "previous_seq": seq}
        run_id = (await client.post("/threads/t/runs", json=body)).json()["run_id"]
        await client.get(f"/runs/{run_id}/events")
        messages = await listed(client, "vercel-ui")
        assert messages[1]["metadata"]["status"] == ("completed" if seq == last else "cancelled")
        states = {part.get("state", "done") for part in messages[1]["parts"]}
        assert states <= {"done", "output-available", "output-error"}, seq
        items = await listed(client, "openai-responses")
        assert "in_progress" not in [item.get("status") for item in items], seq
    assert (await client.get(f"/runs/{first}")).json()["status"] == "completed"


async def test_an_unknown_thread_is_404_and_a_format_without_messages_400(
    client: httpx.AsyncClient,
) -> None:
    for form in ("vercel-ui", "openai-responses", "ag-ui"):
        assert (await client.get(f"/threads/none?format={form}")).status_code == 404
    await turn(client, "parrot", "one")
    for form in ("task", "anthropic-messages", "nothing"):
        refused = await client.get(f"/threads/t?format={form}")
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (400, "unknown_format")
        assert error["param"] == "format"
        assert "use openai-responses or vercel-ui or ag-ui." in error["message"]


async def test_a_thread_of_another_principal_is_unknown(tmp_path: Path) -> None:
    app = app_at(tmp_path, auth=lambda request: Principal(request.headers["x-user"]))
    async with app.running(), client_of(app) as made:
        made.headers["x-user"] = "ann"
        await turn(made, "parrot", "one")
        for form in ("vercel-ui", "openai-responses", "ag-ui"):
            assert len(await listed(made, form)) == 2
        made.headers["x-user"] = "eve"
        for form in ("vercel-ui", "openai-responses", "ag-ui"):
            assert (await made.get(f"/threads/t?format={form}")).status_code == 404


async def test_a_large_conversation_is_sent_in_pieces(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await turn(client, "parrot", "one")
    small = await listed(client, "ag-ui")
    monkeypatch.setattr("tailrace.server.apis.native.LARGE_BYTES", 1)
    assert await listed(client, "ag-ui") == small


async def test_a_deleted_run_ends_the_conversation(client: httpx.AsyncClient) -> None:
    first, second, _ = [await turn(client, "parrot", text) for text in ("one", "two", "three")]
    await client.delete(f"/v1/responses/resp_{second}")
    assert [one["content"] for one in await listed(client, "ag-ui")] == ["three", "You said three"]
    assert (await client.get(f"/runs/{first}")).status_code == 200, "it is still stored"
