"""Streams that end before their run: at their own last frame, and a resume after it is answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tailrace.app import Tailrace
from tailrace.core.events import TaskInputRequired
from tailrace.core.items import InputRequest
from tailrace.core.sse import Parser
from tailrace.ports import NewRun
from tailrace.runtime import recovery
from tailrace.runtime.task import TaskWriter
from tailrace.testing._follow import all_seen

LAST_FRAMES = {
    "openai-responses": b"event: response.failed\n",
    "openai-chat": b'"code":"interrupted"',
    "anthropic-messages": b"event: error\n",
}
"""In the last frame of each format that cannot take back what it has sent."""


class Stage:
    """An agent that begins again or asks when the test says so, and ends with the test."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.end = asyncio.Event()

    async def begin_again(self, task: TaskWriter) -> None:
        task.message().__enter__().text("It is rai")
        await task.drain()
        await self.go_on.wait()
        recovery.begin_again(task)
        await task.drain()
        await self.end.wait()

    async def ask(self, task: TaskWriter) -> None:
        with task.message() as message:
            message.text("Which city?")
        await task.drain()
        await self.go_on.wait()
        request = InputRequest(id="r1", kind="input", message="Which city?")
        task.emit(TaskInputRequired(task_id=task.task_id, requests=[request]))
        await task.drain()
        await self.end.wait()


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
async def app(tmp_path: Path, stage: Stage) -> AsyncIterator[Tailrace]:
    agents = {"begin_again": stage.begin_again, "ask": stage.ask}
    made = Tailrace(agents, tmp_path / "log.db")
    async with made.running():
        yield made
        stage.end.set()


@pytest.fixture
async def client(app: Tailrace) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as made:
        yield made


async def followed(
    app: Tailrace, client: httpx.AsyncClient, stage: Stage, agent: str, wire: str
) -> tuple[str, bytes]:
    """The run, and its whole stream, from a client that was there before the stage went on."""
    run_id = await app.runs.start(agent, "?")
    path = f"/runs/{run_id}/events"
    async with asyncio.timeout(10):
        coming = asyncio.ensure_future(client.get(path, params={"format": wire}))
        await all_seen(app.runs.reader, run_id)
        stage.go_on.set()
        answer = await coming
    assert (await app.runs.info(run_id)).ended_at is None
    return run_id, answer.content


@pytest.mark.parametrize("wire", LAST_FRAMES)
async def test_a_stream_ends_at_its_last_frame_although_the_run_goes_on(
    app: Tailrace, client: httpx.AsyncClient, stage: Stage, wire: str
) -> None:
    _, content = await followed(app, client, stage, "begin_again", wire)
    assert b"It is rai" in content
    assert LAST_FRAMES[wire] in content


async def test_a_resume_after_the_last_frame_is_answered_at_once(
    app: Tailrace, client: httpx.AsyncClient, stage: Stage
) -> None:
    run_id, content = await followed(app, client, stage, "begin_again", "openai-responses")
    *_, before, last = (json.loads(one.data) for one in Parser().feed(content))
    path = f"/v1/responses/{run_id}"
    async with asyncio.timeout(10):
        for cursor, rest in ((before, [last]), (last, [])):
            query = {"stream": "true", "starting_after": cursor["sequence_number"]}
            answer = await client.get(path, params=query)
            assert answer.status_code == 200
            assert [json.loads(one.data) for one in Parser().feed(answer.content)] == rest


async def test_a_chat_that_waits_for_people_ends_its_response(
    app: Tailrace, client: httpx.AsyncClient, stage: Stage
) -> None:
    """The AI SDK sends an answer only when no response is open."""
    run_id, content = await followed(app, client, stage, "ask", "vercel-ui")
    assert content.endswith(b"data: [DONE]\n\n")
    info = await app.runs.info(run_id)
    async with asyncio.timeout(10):
        again = await client.get(f"/api/chat/{info.thread_id}/stream")
    assert again.content.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("name", ["openai-chat", "anthropic-messages"])
async def test_a_stream_that_cannot_be_read_ends_with_an_error_and_is_not_empty(name: str) -> None:
    app = Tailrace({}, "sqlite://:memory:", worker=False)
    public = b'{"type":"task.created","task_id":"r","sequence_number":1,"protocol":2}'
    async with asyncio.timeout(20), app.running():
        await app.runs.store.create(NewRun(run_id="r", agent="a", thread_id="t", public=public))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.get("/runs/r/events", params={"format": name})
    assert LAST_FRAMES[name] in answer.content
