"""`GET /api/chat/{id}/stream`: an answer that a client may lack is replayed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message

from tailrace import Agent, Tailrace, Task, tool
from tailrace.models import Scripted, call, say
from tailrace.server.apis import vercel_ui

ASKED = [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}]
DONE = b"data: [DONE]\n\n"
DEADLINE = 30.0


@tool(needs_approval=True)
async def send_mail(to: str) -> str:
    """Sends a mail."""
    return f"sent to {to}"


async def parrot(task: Task) -> str:
    """Says what it hears."""
    return f"I hear {task.text}"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Tailrace]:
    model = Scripted([call("send_mail", to="ada")], [say("Done.")])
    mailer = Agent("mailer", model=model, tools=[send_mail])
    made = Tailrace([parrot, mailer], tmp_path / "log.db")
    async with made.running():
        yield made


@pytest.fixture(autouse=True)
def _arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sent has arrived."""
    monkeypatch.setattr(vercel_ui, "ARRIVAL_SECONDS", -1.0)


async def asked(client: httpx.AsyncClient, chat: str = "c", **fields: Any) -> bytes:
    answer = await client.post("/api/chat", json={"id": chat, "messages": ASKED, **fields})
    assert answer.status_code == 200
    assert answer.content.endswith(DONE)
    return answer.content


class Stalled:
    """A client of a chat's stream that takes no bytes, and leaves when the test says so."""

    def __init__(self, app: Tailrace, chat: str) -> None:
        self._begun, self._left = asyncio.Event(), asyncio.Event()
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": f"/api/chat/{chat}/stream",
            "raw_path": b"",
            "query_string": b"",
            "client": ("127.0.0.1", 5),
            "server": ("localhost", 80),
            "headers": [(b"host", b"localhost")],
        }
        self._response = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self._begun.set()
            await asyncio.Event().wait()

    async def begun(self) -> None:
        async with asyncio.timeout(DEADLINE):
            await self._begun.wait()

    async def leave(self) -> None:
        await self.begun()
        self._left.set()
        async with asyncio.timeout(DEADLINE):
            await self._response


async def started(app: Tailrace, agent: str = "parrot") -> str:
    return await app._runs.start(agent, "Hi", thread_id="c")


async def until_end(app: Tailrace, run_id: str) -> None:
    async with asyncio.timeout(DEADLINE):
        async for _ in app._runs.follow(run_id):
            pass


async def test_an_answer_that_was_sent_to_its_end_is_not_sent_again(
    client: httpx.AsyncClient,
) -> None:
    await asked(client)
    answer = await client.get("/api/chat/c/stream")
    assert (answer.status_code, answer.content) == (204, b"")


async def test_an_answer_that_may_not_have_arrived_is_sent_again(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vercel_ui, "ARRIVAL_SECONDS", 3600.0)
    await asked(client)
    answer = await client.get("/api/chat/c/stream")
    assert answer.content.endswith(DONE)


async def test_an_answer_that_no_client_has_is_sent_once(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    await until_end(app, await started(app))
    answer = await client.get("/api/chat/c/stream")
    assert answer.content.endswith(DONE)
    assert (await client.get("/api/chat/c/stream")).status_code == 204


async def test_a_client_that_left_before_the_last_bytes_gets_them(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    await until_end(app, await started(app))
    await Stalled(app, "c").leave()
    answer = await client.get("/api/chat/c/stream")
    assert b"I hear Hi" in answer.content


async def test_a_client_that_leaves_after_another_had_all_gets_the_answer(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    run_id = await started(app, "mailer")
    stalled = Stalled(app, "c")
    await stalled.begun()
    await app._runs.cancel(run_id)
    assert (await client.get("/api/chat/c/stream")).content.endswith(DONE)
    assert (await client.get("/api/chat/c/stream")).status_code == 204
    await stalled.leave()
    assert (await client.get("/api/chat/c/stream")).content.endswith(DONE)


async def test_what_a_run_did_after_the_pause_that_ended_a_response_is_sent(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    content = await asked(client, agent="mailer")
    assert b"Done." not in content
    paused = await client.get("/api/chat/c/stream")
    assert paused.content.endswith(DONE), "a run that waits has not ended"
    info = await app._runs.latest("c")
    assert info is not None
    look = await app._runs.look(info.run_id)
    [request] = [one.id for task in look.state.tasks.values() for one in task.requests]
    await app._runs.send(info.run_id, {"request_id": request, "approved": True})
    await until_end(app, info.run_id)
    answer = await client.get("/api/chat/c/stream")
    assert b"Done." in answer.content
    assert (await client.get("/api/chat/c/stream")).status_code == 204


async def test_only_the_newest_sent_answers_are_remembered(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vercel_ui, "SENT_ANSWERS", 2)
    for chat in ("a", "b", "c"):
        await asked(client, chat)
    found = [(await client.get(f"/api/chat/{chat}/stream")).status_code for chat in ("b", "c", "a")]
    assert found == [204, 204, 200]
