"""Runs of APIs without a way back, after their client has left."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest
import uvicorn

from tailrace import Tailrace
from tailrace.core.errors import StorageBusy
from tailrace.runtime.task import Task

ASKED = {"model": "endless", "messages": [{"role": "user", "content": "?"}], "max_tokens": 9}
PATHS = ["/v1/chat/completions", "/v1/messages"]


class Setup:
    """A server with an agent that works until it is stopped."""

    def __init__(self, after: timedelta | None) -> None:
        agents = {"endless": self.endless}
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


@pytest.mark.parametrize("stream", [False, True], ids=["object", "stream"])
@pytest.mark.parametrize("path", PATHS)
async def test_a_run_without_a_client_is_cancelled(path: str, stream: bool) -> None:
    async with serving(timedelta(milliseconds=20)) as setup:
        run_id = await setup.abandon(path, stream=stream)
        await asyncio.wait_for(setup.stopped.wait(), 10)
        assert await setup.app.runs.reader.ended(run_id, 120)
        root = (await setup.app.runs.state(run_id)).root
        assert root is not None
        assert (root.status, root.reason) == ("cancelled", "abandoned")


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


async def test_a_store_that_is_away_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = asyncio.Event()

    async def away(*_arguments: Any) -> None:
        tried.set()
        raise StorageBusy("The store is away.")

    async with serving(timedelta(milliseconds=20)) as setup:
        asking = asyncio.create_task(setup.abandon(PATHS[0], stream=True))
        monkeypatch.setattr("tailrace.runtime.runs.Runs.cancel", away)
        run_id = await asking
        await asyncio.wait_for(tried.wait(), 10)
        assert f"run {run_id} has no client and was not cancelled" in caplog.text
