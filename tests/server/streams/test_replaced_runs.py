"""Runs that ask people, after their client went on from an earlier message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace import Agent, Tailrace, Task, tool
from tailrace.core.errors import StorageBusy
from tailrace.models import Scripted, call, say
from tailrace.ports import Request, RunInfo
from tailrace.server.streams.abandoned import CONTINUED, REPLACED

DEADLINE = 30.0


@tool(needs_approval=True)
async def send_mail(to: str) -> str:
    """Sends a mail."""
    return f"sent to {to}"


class Mails(Scripted):
    """A model that sends a mail in each turn."""

    def stream(self, request: Request) -> AsyncIterator[list[str]]:
        return Scripted([call("send_mail", to="ada")]).stream(request)


async def parrot(task: Task) -> str:
    """Says what it hears."""
    return f"I hear {task.text}"


class Works:
    """An agent that works until the test ends it."""

    def __init__(self) -> None:
        self.end = asyncio.Event()

    async def works(self, task: Task) -> None:
        """Works."""
        await self.end.wait()


@asynccontextmanager
async def serving(app: Tailrace) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application that runs."""
    transport = httpx.ASGITransport(app=app)
    async with (
        app.running(),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Tailrace]:
    mailer = Agent("mailer", model=Mails([]), tools=[send_mail])
    agent = Works()
    agents: dict[str, Any] = {"mailer": mailer, "parrot": parrot, "works": agent.works}
    made = Tailrace(agents, tmp_path / "log.db")
    async with made.running():
        yield made
        agent.end.set()


def user(text: str) -> dict[str, Any]:
    return {"id": f"m_{text}", "role": "user", "parts": [{"type": "text", "text": text}]}


def of_run(run: RunInfo) -> dict[str, Any]:
    """The message of a run, as a page sends it back that has left the stream at once."""
    about = {"metadata": {"task_id": run.run_id}, "parts": [{"type": "step-start"}]}
    return {"id": run.run_id, "role": "assistant", **about}


async def chat(
    app: Tailrace,
    client: httpx.AsyncClient,
    messages: list[Any],
    agent: str = "mailer",
    *,
    thread: str = "c",
    key: str | None = None,
) -> RunInfo:
    body = {"id": thread, "messages": messages, "agent": agent}
    headers = {"idempotency-key": key} if key is not None else {}
    async with asyncio.timeout(DEADLINE):
        answer = await client.post("/api/chat", json=body, headers=headers)
    assert answer.status_code == 200
    found = await app._runs.latest(thread)
    assert found is not None
    return found


async def until_cancelled(app: Tailrace, run: RunInfo, reason: str = REPLACED) -> None:
    async with asyncio.timeout(DEADLINE):
        async for _ in app._runs.follow(run.run_id):
            pass
    root = (await app._runs.look(run.run_id)).state.root
    assert root is not None
    assert (root.status, root.reason) == ("cancelled", reason)


async def settled(app: Tailrace, client: httpx.AsyncClient) -> None:
    """Wait until a run that is replaced now is cancelled: those before it are, too."""
    replaced = await chat(app, client, [user("Hi")], thread="other")
    await chat(app, client, [user("Hi")], thread="other")
    await until_cancelled(app, replaced)


async def is_open(app: Tailrace, run: RunInfo) -> bool:
    return (await app._runs.info(run.run_id)).ended_at is None


async def test_a_run_that_asks_is_cancelled_when_its_message_is_regenerated(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    first = await chat(app, client, [user("Hi")])
    again = await chat(app, client, [user("Hi")])
    assert again.run_id != first.run_id
    await until_cancelled(app, first)
    assert await is_open(app, again)


async def test_a_run_that_asks_is_cancelled_when_its_chat_goes_on_without_an_answer(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    first = await chat(app, client, [user("Hi")])
    second = await chat(app, client, [user("Hi"), of_run(first), user("Well?")])
    assert second.previous_run_id == first.run_id
    await until_cancelled(app, first, CONTINUED)
    assert await is_open(app, second)


@pytest.mark.parametrize("again", [False, True])
async def test_a_run_that_is_answered_with_a_message_does_what_is_allowed_and_asks_no_more(
    tmp_path: Path, again: bool
) -> None:
    """It has another question: at once, or after the call that was approved."""
    calls = [call("send_mail", to="ada"), call("send_mail", to="bob")]
    script = [[one] for one in calls] if again else [calls]
    mailer = Agent("mailer", model=Scripted(*script, [say("Both.")]), tools=[send_mail])
    app = Tailrace([mailer, parrot], tmp_path / "log.db")
    async with serving(app) as client:
        first = await chat(app, client, [user("Hi")])
        shown = (await client.get("/threads/c?format=vercel-ui")).json()
        part = shown[1]["parts"][1]
        part["state"] = "approval-responded"
        part["approval"]["approved"] = True
        second = await chat(app, client, [*shown, user("Thanks.")], "parrot")
        await until_cancelled(app, first, CONTINUED)
        assert second.previous_run_id == first.run_id
        root = (await app._runs.look(first.run_id)).state.root
        assert root is not None
        statuses = [result.item.status for result in root.call_results.values()]
        assert statuses == ["completed", "failed"]


async def test_runs_after_an_edited_message_are_cancelled(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    first = await chat(app, client, [user("Hi")], "parrot")
    second = await chat(app, client, [user("Hi"), of_run(first), user("Well?")])
    edited = await chat(app, client, [user("Hi"), of_run(first), user("Now!")])
    await until_cancelled(app, second)
    assert await is_open(app, edited)


async def test_a_message_that_is_to_wait_leaves_the_run_before_it_its_questions(
    tmp_path: Path,
) -> None:
    mailer = Agent("mailer", model=Mails([]), tools=[send_mail], busy_thread="queue")
    app = Tailrace([mailer, parrot], tmp_path / "log.db")
    async with serving(app) as client:
        first = await chat(app, client, [user("Hi")])
        body = {"id": "c", "messages": [user("Hi"), of_run(first), user("Well?")]}
        waiting = asyncio.create_task(client.post("/api/chat", json=body))
        async with asyncio.timeout(DEADLINE):
            async for run in app._runs.thread_runs("c", 2):
                if run is not None:
                    break
        other = await chat(app, client, [user("Hi")], thread="other")
        await chat(app, client, [user("Hi")], "parrot", thread="other")
        await until_cancelled(app, other)
        assert await is_open(app, first)
        assert (await client.delete("/api/chat/c/stream")).status_code == 204
        assert not await is_open(app, first), "both runs are stopped"
        async with asyncio.timeout(DEADLINE):
            await waiting


async def test_a_run_that_works_is_left_to_end(app: Tailrace, client: httpx.AsyncClient) -> None:
    run_id = await app._runs.start("works", "Hi", thread_id="c")
    asks = await chat(app, client, [user("Hi")])
    await chat(app, client, [user("Hello")], "parrot")
    await until_cancelled(app, asks)
    assert (await app._runs.info(run_id)).ended_at is None


async def test_ag_ui_cancels_what_a_client_no_longer_shows(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    found = []
    for run_id in ("one", "two"):
        body = {"threadId": "c", "runId": run_id, "messages": [{"role": "user", "content": "Hi"}]}
        async with asyncio.timeout(DEADLINE):
            assert (await client.post("/ag-ui/mailer", json=body)).status_code == 200
        found.append(await app._runs.info(run_id))
    await until_cancelled(app, found[0])
    assert await is_open(app, found[1])


async def test_ag_ui_cancels_a_run_that_asks_when_its_client_goes_on_without_an_answer(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    messages: list[Any] = []
    found = []
    for run_id in ("one", "two", "three"):
        messages.append({"id": f"u_{run_id}", "role": "user", "content": "Hi"})
        body = {"threadId": "c", "runId": run_id, "messages": messages}
        async with asyncio.timeout(DEADLINE):
            assert (await client.post("/ag-ui/mailer", json=body)).status_code == 200
        found.append(await app._runs.info(run_id))
        for earlier in found[:-1]:
            await until_cancelled(app, earlier, CONTINUED)
        shown = (await client.get("/threads/c?format=ag-ui")).json()
        # A client that followed the streams has no result of a call that was cancelled later.
        messages = [one for one in shown if one["role"] != "tool"]
    assert [run.previous_run_id for run in found] == [None, "one", "two"]


@pytest.mark.parametrize("path", ["/runs", "/v1/responses"])
async def test_branches_of_other_apis_exist_side_by_side(
    app: Tailrace, client: httpx.AsyncClient, path: str
) -> None:
    first = await chat(app, client, [user("Hi")], "parrot")
    asks = await chat(app, client, [user("Hi"), of_run(first), user("Send it.")])
    body: dict[str, Any] = {"agent": "parrot", "input": "?", "previous_run_id": first.run_id}
    if path == "/v1/responses":
        body = {"model": "parrot", "input": "?", "previous_response_id": f"resp_{first.run_id}"}
    assert (await client.post(path, json=body)).is_success
    branch = await app._runs.latest("c")
    assert branch is not None
    assert branch.previous_run_id == first.run_id
    async with asyncio.timeout(DEADLINE):
        async for _ in app._runs.follow(branch.run_id):
            pass
    await settled(app, client)
    assert await is_open(app, asks)


async def test_a_request_that_is_sent_again_cancels_no_newer_run(
    app: Tailrace, client: httpx.AsyncClient
) -> None:
    await chat(app, client, [user("Hi")], "parrot")
    first = await chat(app, client, [user("Hi")], "parrot", key="k")
    asks = await chat(app, client, [user("Hi"), of_run(first), user("Send it.")])
    await chat(app, client, [user("Hi")], "parrot", key="k")
    await settled(app, client)
    assert await is_open(app, asks)


async def test_a_replaced_run_that_cannot_be_read_is_logged(
    app: Tailrace,
    client: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    logged = asyncio.Event()

    async def away(*_: Any, **__: Any) -> Any:
        logged.set()
        raise StorageBusy("The store is away.")

    await chat(app, client, [user("Hi")])
    monkeypatch.setattr(type(app._runs), "of_thread", away)
    with caplog.at_level(logging.WARNING, "tailrace"):
        await chat(app, client, [user("Hi")])
        async with asyncio.timeout(DEADLINE):
            await logged.wait()
    assert "were not cancelled: The store is away." in caplog.text
