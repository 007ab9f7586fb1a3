"""Two runs on one thread, as `busy_thread` says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tailrace import Agent, Tailrace
from tailrace.errors import CallerError, ThreadBusy
from tailrace.models import Scripted, say, think


@asynccontextmanager
async def running(path: Path, **options: Any) -> AsyncIterator[Tailrace]:
    agent = Agent("a", model=Scripted([think("word " * 100, pace=3)], [say("Sunny.")]))
    quick = Agent("quick", model=Scripted([say("Sunny.")]))
    app = Tailrace([agent, quick], database=path / "log.db", **options)
    async with app.running(), asyncio.timeout(20):
        yield app
        for info in await app.runs.store.runs():
            await app.runs.cancel(info.run_id)


async def test_both_runs_of_a_thread_go_on_by_default(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        first = await app.start("a", "?", thread="t")
        second = await app.start("quick", "And now?", thread="t")
        assert (await second.result()).status == "completed"
        assert (await app.runs.info(first.id)).ended_at is None


async def test_a_second_run_of_a_thread_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, busy_thread="reject") as app:
        first = await app.start("a", "?", thread="t")
        with pytest.raises(ThreadBusy, match=first.id):
            await app.start("quick", "And now?", thread="t")
        with pytest.raises(ThreadBusy):
            await app.start("quick", "And now?", previous_run=first.id)
        await app.start("quick", "?", thread="another")
        await first.cancel()
        second = await app.start("quick", "And now?", thread="t")
        assert (await second.result()).text == "Sunny."


async def test_a_second_run_of_a_thread_interrupts_the_first(tmp_path: Path) -> None:
    async with running(tmp_path, busy_thread="interrupt") as app:
        first = await app.start("a", "?", thread="t")
        second = await app.start("quick", "And now?", thread="t")
        stopped = await first.result()
        assert stopped.status == "cancelled"
        assert stopped.reason == "The next run of the thread has begun."
        assert (await second.result()).status == "completed"


def test_a_server_refuses_the_second_run_with_409(tmp_path: Path) -> None:
    agent = Agent("a", model=Scripted([think("word " * 100, pace=3)]))
    app = Tailrace([agent], database=tmp_path / "log.db", busy_thread="reject")
    with TestClient(app, base_url="http://localhost") as client:
        body = {"agent": "a", "input": "?", "thread_id": "t"}
        first = client.post("/runs", json=body)
        assert first.status_code == 201
        second = client.post("/runs", json=body)
        assert (second.status_code, second.json()["error"]["code"]) == (409, "thread_busy")
        client.post(f"/runs/{first.json()['run_id']}/cancel", json={})


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(CallerError, match="run, reject, interrupt"):
        Tailrace([], busy_thread="wait")  # type: ignore[arg-type]
