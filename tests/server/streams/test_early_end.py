"""Streams that end before their run: at their own last frame, and a resume after it is answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tailrace import Agent, tool
from tailrace.app import Tailrace
from tailrace.core.events import TaskInputRequired
from tailrace.core.items import InputRequest
from tailrace.core.sse import SseParser
from tailrace.models import Scripted, call, say
from tailrace.ports import Batch, NewRun
from tailrace.runtime.tasks.task import Task
from tailrace.runtime.workers import recovery
from tailrace.server.streams.thread_stream import ThreadStream
from tailrace.testing.follow_kit.setup import all_seen
from tailrace.wire.formats import FORMATS
from tailrace.wire.task import TaskFormat
from tests.serving import client_of

LAST_FRAMES = {
    "openai-responses": b"event: response.failed\n",
    "openai-chat": b'"type":"stream_cut"',
    "anthropic-messages": b"event: error\n",
}
"""In the last frame of each format that cannot take back what it has sent."""


class Stage:
    """An agent that begins again or asks when the test says so, and ends with the test."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.end = asyncio.Event()

    async def begin_again(self, task: Task) -> None:
        task.message().__enter__().text("It is rai")
        await task.drain()
        await self.go_on.wait()
        recovery.begin_again(task)
        await task.drain()
        await self.end.wait()

    async def ask(self, task: Task) -> None:
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


async def followed(
    app: Tailrace, client: httpx.AsyncClient, stage: Stage, agent: str, wire: str
) -> tuple[str, bytes]:
    """The run, and its whole stream, from a client that was there before the stage went on."""
    run_id = await app._runs.start(agent, "?")
    path = f"/runs/{run_id}/events"
    async with asyncio.timeout(120):
        coming = asyncio.ensure_future(client.get(path, params={"format": wire}))
        await all_seen(app._runs.reader, run_id)
        stage.go_on.set()
        answer = await coming
    assert (await app._runs.info(run_id)).ended_at is None
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
    *_, before, last, done = (one.data for one in SseParser().feed(content))
    assert done == "[DONE]"
    path = f"/v1/responses/{run_id}"
    async with asyncio.timeout(120):
        for cursor, rest in ((before, [last, done]), (last, [done])):
            number = json.loads(cursor)["sequence_number"]
            query = {"stream": "true", "starting_after": number}
            answer = await client.get(path, params=query)
            assert answer.status_code == 200
            assert [one.data for one in SseParser().feed(answer.content)] == rest


async def test_a_chat_that_waits_for_people_ends_its_response(
    app: Tailrace, client: httpx.AsyncClient, stage: Stage
) -> None:
    """The AI SDK sends an answer only when no response is open."""
    run_id, content = await followed(app, client, stage, "ask", "vercel-ui")
    assert content.endswith(b"data: [DONE]\n\n")
    info = await app._runs.info(run_id)
    async with asyncio.timeout(120):
        again = await client.get(f"/api/chat/{info.thread_id}/stream")
    assert again.content.endswith(b"data: [DONE]\n\n")


UNREADABLE = {
    "unsupported_protocol": (
        b'{"type":"task.created","task_id":"r","sequence_number":1,"protocol":2}'
    ),
    "malformed_event": b'{"type":"task.created","task_id":5,"sequence_number":1}',
}


@pytest.mark.parametrize("goes_on", [False, True], ids=["first", "more"])
@pytest.mark.parametrize("code", UNREADABLE)
@pytest.mark.parametrize("name", FORMATS)
async def test_a_run_that_cannot_be_read_is_an_error_and_no_empty_stream(
    name: str, code: str, goes_on: bool
) -> None:
    app = Tailrace({}, "sqlite://:memory:", worker=False)
    run = NewRun(run_id="r", agent="a", thread_id="t", public=UNREADABLE[code])
    second = b'{"type":"task.in_progress","task_id":"r","sequence_number":2}'
    batch = Batch(run_id="r", epoch=1, first_seq=2, publics=[second], privates=[b""])
    async with asyncio.timeout(120), app.running():
        await app._runs.store.create(run)
        if goes_on:
            assert await app._runs.store.append([batch]) == [None]
        async with client_of(app) as client:
            answer = await client.get("/runs/r/events", params={"format": name})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, code)


@pytest.mark.parametrize("name", ["task", "run"])
async def test_a_resume_before_an_event_that_cannot_be_read_is_an_error(name: str) -> None:
    """A client whose stream broke off there connects again with its cursor."""
    app = Tailrace({}, "sqlite://:memory:", worker=False)
    first = b'{"type":"task.created","task_id":"r","sequence_number":1,"agent":"a"}'
    run = NewRun(run_id="r", agent="a", thread_id="t", public=first)
    broken = b'{"type":"task.in_progress","task_id":5,"sequence_number":2}'
    batch = Batch(run_id="r", epoch=1, first_seq=2, publics=[broken], privates=[b""])
    async with asyncio.timeout(120), app.running():
        await app._runs.store.create(run)
        assert await app._runs.store.append([batch]) == [None]
        async with client_of(app) as client:
            query = {"format": name, "after": "1-1"}
            answer = await client.get("/runs/r/events", params=query)
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "malformed_event")


@pytest.mark.parametrize("broken", [b'{"type":"task.in_progress","task_id":5}', b'{"type":'])
@pytest.mark.parametrize("name", FORMATS)
async def test_only_task_sends_a_malformed_event_as_it_is_stored(name: str, broken: bytes) -> None:
    """`task` sends the log unread: its clients are the readers (PROTOCOL.md, 4, rule 9)."""
    app = Tailrace({}, "sqlite://:memory:", worker=False)
    first = b'{"type":"task.created","task_id":"r","sequence_number":1,"agent":"a"}'
    last = b'{"type":"task.completed","task_id":"r","sequence_number":3}'
    run = NewRun(run_id="r", agent="a", thread_id="t", public=first)
    batch = Batch(run_id="r", epoch=1, first_seq=2, publics=[broken, last], privates=[b"", b""])
    async with asyncio.timeout(120), app.running():
        await app._runs.store.create(run)
        assert await app._runs.store.append([batch]) == [None]
        async with client_of(app) as client:
            answer = await client.get("/runs/r/events", params={"format": name})
            state = await client.get("/runs/r")
    if name == "task":
        assert [one.data.encode() for one in SseParser().feed(answer.content)] == [
            first,
            broken,
            last,
        ]
    else:
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "malformed_event")
    assert (state.status_code, state.json()["error"]["code"]) == (500, "malformed_event")


@pytest.mark.parametrize("code", UNREADABLE)
async def test_a_thread_goes_on_after_a_run_that_cannot_be_read(code: str) -> None:
    """Its clients would connect again for ever."""
    app = Tailrace({}, "sqlite://:memory:", worker=False)
    created = b'{"type":"task.created","task_id":"next","sequence_number":1,"agent":"a"}'
    async with asyncio.timeout(120), app.running():
        for run_id, first in (("r", UNREADABLE[code]), ("next", created)):
            await app._runs.store.create(
                NewRun(run_id=run_id, agent="a", thread_id="t", public=first)
            )
        stream = ThreadStream(app._runs, TaskFormat(), "t", newest=await app._runs.latest("t"))
        content = b""
        while b"task.created" not in content:
            content += await stream.next() or b""
        await stream.close()
    gap, event = (json.loads(one.data) for one in SseParser().feed(content))
    assert (gap["type"], gap["reason"]) == ("task.gap", "unreadable")
    assert event["task_id"] == "next"


@tool(needs_approval=True)
async def pay() -> str:
    """Pays."""
    return "paid"


@pytest.mark.parametrize("called", ["pay rest", "rest pay", "pay helper", "helper2 rest"])
async def test_a_cancel_beside_a_question_is_the_end_of_the_stream(
    tmp_path: Path, called: str
) -> None:
    """While a tool runs, a question leaves the stream open. The cancel closes both."""
    resting = asyncio.Event()

    @tool
    async def rest() -> str:
        """Rests."""
        resting.set()
        await asyncio.Event().wait()
        return "rested"

    helper = Agent("helper", model=Scripted([call("rest")]), tools=[rest])
    helper2 = Agent("helper2", model=Scripted([call("pay")]), tools=[pay])
    asked = {name: {"prompt": "Go."} if "helper" in name else {} for name in called.split()}
    script = [call(name, **arguments) for name, arguments in asked.items()]
    tools = [pay, rest, helper.as_tool(), helper2.as_tool()]
    app = Tailrace([Agent("main", model=Scripted(script), tools=tools)], tmp_path / "x.db")
    async with asyncio.timeout(120), app.running(), client_of(app) as client:
        run_id = await app._runs.start("main", "?")
        await resting.wait()
        async for batch in app._runs.follow(run_id):
            if any(isinstance(one.event, TaskInputRequired) for one in batch):
                break
        assert (await client.post(f"/runs/{run_id}/cancel")).json()["status"] == "cancelled"
        for wire, end in (("ag-ui", b'"outcome":{"type":"cancelled"}'), ("vercel-ui", b'"abort"')):
            answer = await client.get(f"/runs/{run_id}/events", params={"format": wire})
            assert end in answer.content


async def test_a_chat_is_asked_for_an_approval_of_its_agent_together_with_a_sub_agents(
    tmp_path: Path,
) -> None:
    """The AI SDK sends approvals only if no other call of the message is open."""
    helper = Agent("helper", model=Scripted([call("pay")], [say("Paid.")]), tools=[pay])
    script = [call("pay"), call("helper", prompt="Go.")]
    agent = Agent("main", model=Scripted(script), tools=[pay, helper.as_tool()])
    app = Tailrace([agent], tmp_path / "x.db")
    async with asyncio.timeout(120), app.running(), client_of(app) as client:
        run_id = await app._runs.start("main", "?")
        answer = await client.get(f"/runs/{run_id}/events", params={"format": "vercel-ui"})
    assert answer.content.count(b'"type":"tool-approval-request"') == 2
