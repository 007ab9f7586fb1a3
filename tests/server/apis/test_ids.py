"""Ids from outside: accepted and reachable, or refused with 400, the same on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tailrace.app import Tailrace
from tailrace.runtime.tasks.task import Task
from tests.core.test_ids import BAD, GOOD


async def agent(task: Task) -> None:
    with task.message() as message:
        message.text("It is sunny.")


@pytest.fixture(params=["sqlite", "postgres"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[httpx.AsyncClient]:
    database = "sqlite://:memory:"
    if request.param == "postgres":
        database = request.getfixturevalue("postgres_url")
    app = Tailrace({"a": agent}, database)
    transport = httpx.ASGITransport(app=app)
    async with (
        asyncio.timeout(120),
        app.running(),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as made,
    ):
        yield made


def refusal(answer: httpx.Response) -> tuple[int, str, str]:
    if answer.headers["content-type"].startswith("text/plain"):  # what `useChat` shows
        param = answer.text.split("`")[1]
        error = {"code": "invalid_request", "param": param, "message": answer.text}
    else:
        error = answer.json()["error"]
    assert error["message"].startswith(f"`{error['param']}` is '")
    assert "; it must have 1 to 256 bytes" in error["message"]
    assert len(answer.content) < 500
    return answer.status_code, error["code"], error["param"]


async def test_an_id_that_breaks_the_rule_is_refused_in_every_body(
    client: httpx.AsyncClient,
) -> None:
    # No body may hold U+0000 or half a surrogate pair: those are refused before any field is read.
    for value in [one for one in [*BAD, "x" * 1_000_000] if not {"\x00", "\ud800"} & set(one)]:
        run = {"agent": "a", "input": "?"}
        answer = await client.post("/runs", json=run | {"thread_id": value})
        assert refusal(answer) == (400, "invalid_request", "thread_id")
        answer = await client.post("/runs", json=run | {"previous_run_id": value})
        assert refusal(answer) == (400, "invalid_request", "previous_run_id")
        response = {"model": "a", "input": "?", "previous_response_id": value}
        answer = await client.post("/v1/responses", json=response)
        assert refusal(answer) == (400, "invalid_request", "previous_response_id")
        message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "?"}]}
        answer = await client.post("/api/chat", json={"id": value, "messages": [message]})
        assert refusal(answer) == (400, "invalid_request", "id")
        spoken = [{"role": "user", "content": "?", "id": "u"}]
        asked: dict[str, Any] = {"threadId": "t", "runId": "run_9", "messages": spoken}
        asked |= {"tools": [], "state": {}, "context": [], "forwardedProps": {}}
        for name in ("threadId", "runId"):
            answer = await client.post("/ag-ui/a", json=asked | {name: value})
            assert refusal(answer) == (400, "invalid_request", name)
        answer = await client.get("/ag-ui/a", params={"threadId": value[:1000]})
        assert refusal(answer) == (400, "invalid_request", "threadId")
        continued = {"type": "continue", "previous_message_id": value}
        body = {"model": "a", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}]}
        answer = await client.post("/v1/messages", json=body | {"thread": continued})
        assert answer.status_code in (400, 404)
        assert len(answer.content) < 500


@pytest.mark.parametrize("value", ["a%00b", "a%0Ab", "a%C2%85b", "x" * 257])
async def test_an_id_that_breaks_the_rule_is_refused_in_every_path(
    client: httpx.AsyncClient, value: str
) -> None:
    for method, path, param in (
        ("GET", f"/runs/{value}", "run_id"),
        ("GET", f"/runs/{value}/events", "run_id"),
        ("POST", f"/runs/{value}/cancel", "run_id"),
        ("POST", f"/runs/{value}/input", "run_id"),
        ("GET", f"/threads/{value}", "thread_id"),
        ("DELETE", f"/threads/{value}", "thread_id"),
        ("GET", f"/threads/{value}/events", "thread"),
        ("GET", f"/v1/responses/{value}", "response_id"),
        ("DELETE", f"/v1/responses/{value}", "response_id"),
        ("POST", f"/v1/responses/{value}/cancel", "response_id"),
        ("GET", f"/v1/responses/{value}/input_items", "response_id"),
        ("GET", f"/api/chat/{value}/stream", "thread"),
        ("DELETE", f"/api/chat/{value}/stream", "thread"),
        ("GET", f"/ag-ui/a?threadId={value}", "threadId"),
    ):
        answer = await client.request(method, path, json={} if method == "POST" else None)
        assert refusal(answer) == (400, "invalid_request", param), path


async def test_an_id_inside_the_input_names_nothing_if_it_breaks_the_rule(
    client: httpx.AsyncClient,
) -> None:
    message = {"id": "msg_run_\x00", "role": "assistant", "parts": []}
    named = {"model": "a", "input": [{"type": "item_reference", "id": "msg_run_\x00_0"}]}
    assert (await client.post("/v1/responses", json=named)).status_code in (400, 404)
    chat = {"id": "c", "messages": [message, {"id": "u", "role": "user", "parts": []}]}
    assert (await client.post("/api/chat", json=chat)).status_code in (200, 400)


async def test_a_thread_of_any_id_that_is_accepted_can_be_reached(
    client: httpx.AsyncClient,
) -> None:
    for value in GOOD:
        body = {"agent": "a", "input": "?", "thread_id": value}
        run_id = (await client.post("/runs", json=body)).json()["run_id"]
        async with client.stream("GET", f"/runs/{run_id}/events") as events:
            await events.aread()
        assert (await client.get(f"/runs/{run_id}")).json()["thread_id"] == value
        chat = await client.get(f"/api/chat/{quote(value, safe='')}/stream")
        assert chat.status_code == 200, value
        joined = await client.get("/ag-ui/a", params={"threadId": value})
        assert (joined.status_code, f'"runId":"{run_id}"' in joined.text) == (200, True), value
