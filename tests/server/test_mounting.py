"""The application mounted into another application, which sends it no lifespan events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from tailrace.app import Tailrace
from tailrace.core.errors import CallerError, StorageBusy
from tailrace.ports import Store
from tailrace.runtime.tasks.task import Task
from tailrace.stores import open_store

DEADLINE = 120.0


async def hello(task: Task) -> None:
    with task.message() as message:
        message.text("Hello")


def client(host: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(host)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=DEADLINE)


def mounted(app: Tailrace, **options: Any) -> Starlette:
    host = Starlette(**options)
    host.mount("/ai", app)
    return host


def test_a_mounted_application_starts_with_the_first_request(tmp_path: Path) -> None:
    app = Tailrace({"hello": hello}, tmp_path / "log.db")

    async def use() -> None:
        async with client(mounted(app)) as asking:
            answers = await asyncio.gather(*(asking.get("/ai/agents") for _ in range(5)))
            assert {answer.status_code for answer in answers} == {200}
            runs = app._runs
            body = {"model": "hello", "input": "?"}
            answer = (await asking.post("/ai/v1/responses", json=body)).json()
            assert answer["status"] == "completed"
            assert app._runs is runs

    for _ in range(2):  # it stops with its event loop, and starts again in the next
        asyncio.run(use())
        with pytest.raises(CallerError, match="Not running"):
            _ = app._runs


async def test_links_carry_the_prefix_of_the_mount(tmp_path: Path) -> None:
    app = Tailrace({"hello": hello}, tmp_path / "log.db")
    async with app.running(), client(mounted(app)) as asking:
        answer = await asking.post("/ai/runs", json={"agent": "hello"})
        run_id = answer.json()["run_id"]
        assert answer.json()["events"] == f"/ai/runs/{run_id}/events"
        assert answer.headers["location"] == f"/ai/runs/{run_id}"
        assert "task.completed" in (await asking.get(answer.json()["events"])).text
        assert (await asking.get(answer.headers["location"])).json()["status"] == "completed"
        missing = await asking.get("/ai/api/chat")
        assert missing.headers["content-type"].startswith("text/plain")


async def test_a_composed_lifespan_starts_and_stops_it_with_the_host(tmp_path: Path) -> None:
    app = Tailrace({"hello": hello}, tmp_path / "log.db")

    @asynccontextmanager
    async def lifespan(_host: Starlette) -> AsyncIterator[None]:
        async with app.running():
            yield

    host = mounted(app, lifespan=lifespan)
    async with host.router.lifespan_context(host):
        runs = app._runs
        async with client(host) as asking:
            assert (await asking.get("/ai/health")).status_code == 200
        assert app._runs is runs
    with pytest.raises(CallerError, match="Not running"):
        _ = app._runs


async def test_a_start_that_fails_is_tried_again_by_the_next_request(tmp_path: Path) -> None:
    failures = [StorageBusy("The database is away.")]

    async def open_it() -> Store:
        if failures:
            raise failures.pop()
        return await open_store(tmp_path / "log.db")

    app = Tailrace({"hello": hello}, store=open_it)
    async with client(mounted(app)) as asking:
        refused = await asking.get("/ai/agents")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert (await asking.get("/ai/agents")).status_code == 200
    assert app._hosting is not None
    app._hosting.cancel()
    await asyncio.wait([app._hosting])
