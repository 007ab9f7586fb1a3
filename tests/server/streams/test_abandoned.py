"""Runs of APIs without a way back, after their client has left."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from tailrace import Agent, Tailrace, tool
from tailrace.core.errors import StorageBusy
from tailrace.history import history
from tailrace.models import Scripted, call, say
from tailrace.ports import Request
from tailrace.runtime.diagnostics.log_fields import fields_of
from tailrace.runtime.followers import other_processes
from tailrace.runtime.tasks.task import Task
from tailrace.server.streams import abandoned
from tailrace.server.streams.abandoned import UNANSWERED
from tests.serving import Served

ASKED = {"model": "endless", "messages": [{"role": "user", "content": "?"}], "max_tokens": 9}
PATHS = ["/v1/chat/completions", "/v1/messages"]


@tool(needs_approval=True)
def pay() -> str:
    """Pays."""
    return "It was paid."


class Payer(Scripted):
    """Pays, then says what the tool answered."""

    def stream(self, request: Request) -> AsyncIterator[list[str]]:
        read = history(request.chain, "openai_chat").items[-1]
        answer = say(read["content"]) if read["role"] == "tool" else call("pay")
        return Scripted([answer]).stream(request)


PAYER = Agent("payer", model=Payer([say("-")]), tools=[pay])


class Setup:
    """A server with an agent that works until it is stopped."""

    def __init__(self, after: timedelta | None) -> None:
        agents: dict[str, Any] = {"endless": self.endless, "payer": PAYER, "asker": self.asker}
        self.app = Tailrace(agents, ":memory:", cancel_abandoned=after, grace=timedelta(0))
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.stopped = asyncio.Event()
        self.url = ""

    async def endless(self, task: Task) -> None:
        task.say("I begin.")
        await task.drain()
        self.begun.put_nowait(task.run_id)
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()

    async def asker(self, task: Task) -> str:
        self.begun.put_nowait(task.run_id)
        return str((await task.ask("Which city?")).reason)

    async def abandon(self, path: str, *, stream: bool) -> str:
        """Start a run, and close the connection once it works."""
        async with httpx.AsyncClient(base_url=self.url) as client:
            body = {**ASKED, "stream": stream}
            asked = asyncio.create_task(client.post(path, json=body, timeout=60))
            run_id = await asyncio.wait_for(self.begun.get(), 10)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        return run_id

    @property
    def timers(self) -> dict[str, asyncio.TimerHandle]:
        assert self.app._server is not None
        return self.app._server._abandoned._timers


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only process of a store waits less for the answers of others."""
    monkeypatch.setattr(other_processes, "ANSWER_SECONDS", 0.05)


@asynccontextmanager
async def serving(after: timedelta | None) -> AsyncGenerator[Setup, None]:
    setup = Setup(after)
    server = uvicorn.Server(uvicorn.Config(setup.app, log_level="warning", ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        setup.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield setup
        finally:
            server.should_exit = True
            await task


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("stream", [False, True], ids=["object", "stream"])
@pytest.mark.parametrize("path", PATHS)
async def test_a_run_without_a_client_is_cancelled(path: str, stream: bool) -> None:
    async with serving(timedelta(milliseconds=20)) as setup:
        run_id = await setup.abandon(path, stream=stream)
        await asyncio.wait_for(setup.stopped.wait(), 10)
        assert await setup.app._runs.reader.ended(run_id, 120)
        root = (await setup.app._runs.state(run_id)).root
        assert root is not None
        assert (root.status, root.reason) == ("cancelled", "abandoned")


@pytest.mark.usefixtures("quick")
async def test_a_run_that_another_client_follows_goes_on() -> None:
    async with serving(timedelta(milliseconds=20)) as setup:
        async with httpx.AsyncClient(base_url=setup.url) as client:
            asked = asyncio.create_task(client.post(PATHS[0], json={**ASKED, "stream": True}))
            run_id = await asyncio.wait_for(setup.begun.get(), 10)
            async with client.stream("GET", f"/runs/{run_id}/events") as stream:
                pieces = stream.aiter_bytes()
                await anext(pieces)
                asked.cancel()
                await asyncio.gather(asked, return_exceptions=True)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(setup.stopped.wait(), 0.3)
        await asyncio.wait_for(setup.stopped.wait(), 10)  # that client has left as well


@pytest.mark.parametrize("backend", ["sqlite", "postgres-redis"])
def test_a_run_that_a_client_of_another_server_follows_goes_on(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    # The constants have the same order as those in use. A busy machine is slow to answer.
    looks, answers, cancels = 0.1, 1.5, 0.3
    database = str(tmp_path / "log.db")
    environment = {
        "TAILRACE_CANCEL_ABANDONED": f"{cancels}s",
        "TAILRACE_TEST_LOOK": str(looks),
        "TAILRACE_TEST_ANSWER": str(answers),
    }
    if backend == "postgres-redis":
        database = request.getfixturevalue("postgres_url")
        environment["TAILRACE_TEST_BUS"] = request.getfixturevalue("redis_url")
    left = Served(database, environment=environment)
    other = Served(database, environment=environment)
    try:
        asked = {**ASKED, "stream": True}
        with httpx.stream("POST", left.url + PATHS[0], json=asked, timeout=30) as stream:
            first = next(line for line in stream.iter_lines() if line.startswith("data:"))
        run_id = json.loads(first[5:])["id"].partition("-")[2]
        with httpx.stream("GET", f"{other.url}/runs/{run_id}/events", timeout=30) as stream:
            began = time.monotonic()
            for line in stream.iter_lines():
                assert "task.cancelled" not in line
                if time.monotonic() - began > cancels + answers + 1:
                    break  # after a check
        assert httpx.get(f"{other.url}/runs/{run_id}").json()["status"] == "in_progress"
        deadline = time.monotonic() + 30
        with httpx.Client() as client:  # that client has left as well
            while client.get(f"{left.url}/runs/{run_id}").json()["status"] != "cancelled":
                assert time.monotonic() < deadline
                time.sleep(0.05)
    finally:
        left.kill()
        other.kill()


@pytest.mark.parametrize("stream", [False, True], ids=["object", "stream"])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("agent", ["payer", "asker"])
async def test_a_client_that_cannot_answer_does_not_wait_for_ever(
    agent: str, path: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abandoned, "UNANSWERED_SECONDS", 0.05)
    async with serving(timedelta(seconds=30)) as setup:
        async with httpx.AsyncClient(base_url=setup.url, timeout=30) as client:
            answer = await client.post(path, json={**ASKED, "model": agent, "stream": stream})
        assert answer.status_code == 200
        assert UNANSWERED.split()[2] in answer.text  # a stream has a delta for each word
        assert setup.app._server is not None
        assert not setup.app._server._abandoned._waiting


async def test_an_answer_from_elsewhere_counts_if_it_comes_in_time() -> None:
    async with (
        serving(timedelta(seconds=30)) as setup,
        httpx.AsyncClient(base_url=setup.url, timeout=30) as client,
    ):
        asked = asyncio.create_task(client.post(PATHS[0], json={**ASKED, "model": "asker"}))
        run_id = await asyncio.wait_for(setup.begun.get(), 10)
        run = await setup.app.run(run_id)
        async for event in run.events():
            if event.type == "task.input_required":
                break
        [request] = await run.requests()
        answer = {"request_id": request.id, "value": "Rome", "reason": "It is sunny."}
        assert (await client.post(f"/runs/{run_id}/input", json=answer)).status_code == 202
        assert "It is sunny." in (await asked).text


async def test_runs_may_go_on_without_clients() -> None:
    async with serving(None) as setup:
        await setup.abandon(PATHS[0], stream=True)
        async with httpx.AsyncClient(base_url=setup.url) as client:
            await client.get("/health")  # the server has seen the client leave
        assert setup.timers == {}


async def test_a_server_that_stops_leaves_the_runs_alone() -> None:
    async with serving(timedelta(seconds=30)) as setup:
        run_id = await setup.abandon(PATHS[0], stream=False)
        async with httpx.AsyncClient(base_url=setup.url) as client:
            await client.get("/health")
        assert list(setup.timers) == [run_id]
        timers = setup.timers
    assert timers == {}


@pytest.mark.usefixtures("quick")
async def test_a_store_that_is_away_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = asyncio.Event()

    async def away(*_arguments: Any) -> None:
        tried.set()
        raise StorageBusy("The store is away.")

    async with serving(timedelta(milliseconds=20)) as setup:
        asking = asyncio.create_task(setup.abandon(PATHS[0], stream=True))
        monkeypatch.setattr("tailrace.runtime.runs.all_runs.Runs.cancel", away)
        run_id = await asking
        await asyncio.wait_for(tried.wait(), 10)
        assert f"run {run_id} has no client and was not cancelled" in caplog.text
        [line] = [one for one in caplog.records if "was not cancelled" in one.message]
        assert fields_of(line).keys() == {"run", "agent", "thread"}
