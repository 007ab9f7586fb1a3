"""Two runs on one thread, as `busy_thread` says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tailrace import Agent, Tailrace, tool
from tailrace.errors import CallerError, ThreadBusy
from tailrace.events import ToolCallStarted
from tailrace.models import Scripted, call, say, think
from tailrace.runtime.runs.run import Run


@asynccontextmanager
async def running(path: Path, **options: Any) -> AsyncIterator[Tailrace]:
    agent = Agent("a", model=Scripted([think("word " * 100, pace=0.01)], [say("Sunny.")]))
    quick = Agent("quick", model=Scripted([say("Sunny.")]))
    app = Tailrace([agent, quick], database=path / "log.db", **options)
    async with app.running(), asyncio.timeout(120):
        yield app
        for info in await app._runs.store.latest_runs():
            await app._runs.cancel(info.run_id)


async def test_both_runs_of_a_thread_go_on_by_default(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        first = await app.start("a", "?", thread="t")
        second = await app.start("quick", "And now?", thread="t")
        assert (await second.result()).status == "completed"
        assert (await app._runs.info(first.id)).ended_at is None


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


def test_a_server_refuses_the_second_run_with_a_status_that_no_sdk_repeats(tmp_path: Path) -> None:
    agent = Agent("a", model=Scripted([think("word " * 100, pace=0.01)]))
    app = Tailrace([agent], database=tmp_path / "log.db", busy_thread="reject")
    with TestClient(app, base_url="http://localhost") as client:
        body = {"agent": "a", "input": "?", "thread_id": "t"}
        first = client.post("/runs", json=body)
        assert first.status_code == 201
        second = client.post("/runs", json=body)
        assert (second.status_code, second.json()["error"]["code"]) == (423, "thread_busy")
        client.post(f"/runs/{first.json()['run_id']}/cancel", json={})


@asynccontextmanager
async def queueing(path: Path, **options: Any) -> AsyncIterator[tuple[Tailrace, asyncio.Event]]:
    """An app whose agent answers a run when the event is set, with what it read."""
    go = asyncio.Event()

    @tool
    async def look(topic: str) -> str:
        """Waits, then returns."""
        await go.wait()
        return f"Found {topic}."

    def answer(turn: int) -> list[Any]:
        return [call("look", topic=str(turn))] if turn % 2 == 0 else [say(f"Turn {turn}.[^1]")]

    agent = Agent("a", model=Scripted(answer), tools=[look], busy_thread="queue")
    app = Tailrace([agent], database=path / "log.db", **options)
    async with app.running(), asyncio.timeout(120):
        try:
            yield app, go
        finally:
            for info in await app._runs.store.latest_runs():
                await app._runs.cancel(info.run_id)


async def begun(run: Run) -> None:
    """Wait until the run's tool has started."""
    async for event in run.events():
        if isinstance(event, ToolCallStarted):
            return


async def test_a_queued_run_waits_for_the_first_and_continues_it(tmp_path: Path) -> None:
    async with queueing(tmp_path) as (app, go):
        first = await app.start("a", "One?", thread="t")
        second = await app.start("a", "Two?", thread="t")
        third = await app.start("a", "Three?", thread="t")
        await begun(first)
        other = await app.start("a", "Elsewhere?", thread="u")
        await begun(other)  # the worker looked for runs after `second` and `third` were there
        for run in (second, third):
            state = await app._runs.state(run.id)
            assert state.root is not None
            assert state.root.status == "queued"
            assert (await app._runs.info(run.id)).attempts == 0
        assert app._runs.worker is not None
        assert set(app._runs.worker.runs) == {first.id, other.id}
        go.set()
        result = await third.result()
        assert result.status == "completed"
        assert result.text == "Turn 5.[^1]"  # the model read both turns of both earlier runs
        infos = [await app._runs.info(run.id) for run in (first, second, third)]
        assert [info.previous_run_id for info in infos] == [None, first.id, second.id]
        assert infos[0].ended_at is not None
        assert infos[1].ended_at is not None
        assert infos[0].ended_at <= infos[1].ended_at


async def test_numbers_of_a_queued_run_continue_those_of_the_run_before(tmp_path: Path) -> None:
    async with queueing(tmp_path) as (app, go):
        await app.start("a", "One?", thread="t")
        second = await app.start("a", "Two?", thread="t")
        go.set()
        result = await second.result()
        assert result.object["reference_start"] == 2
        [found] = [item for item in result.items if item["type"] == "tool_result"]
        assert found["block_list"][0]["id"] == 2
        [message] = [item for item in result.items if item["type"] == "message"]
        [note] = message["block_list"][0]["annotations"]
        assert note["reference_id"] == 1  # of the first run


async def test_a_queued_run_can_be_cancelled_while_it_waits(tmp_path: Path) -> None:
    async with queueing(tmp_path) as (app, go):
        first = await app.start("a", "One?", thread="t")
        second = await app.start("a", "Two?", thread="t")
        third = await app.start("a", "Three?", thread="t")
        await begun(first)
        await second.cancel("Not needed.")
        stopped = await second.result()
        assert (stopped.status, stopped.reason, stopped.items) == ("cancelled", "Not needed.", [])
        assert (await app._runs.info(first.id)).ended_at is None
        assert (await app._runs.info(third.id)).attempts == 0
        go.set()
        assert (await third.result()).status == "completed"


async def test_a_queued_run_begins_in_another_process_after_a_crash(tmp_path: Path) -> None:
    async with queueing(tmp_path) as (app, go):
        first = await app.start("a", "One?", thread="t")
        second = await app.start("a", "Two?", thread="t")
        await begun(first)
        # The first process dies: it keeps its claim and does nothing more.
        assert app._runs.worker is not None
        await app._runs.store.release(first.id, (await app._runs.info(first.id)).epoch)
        app._runs.worker._draining = True
        async with queueing(tmp_path) as (other, gone):
            gone.set()
            result = await (await other.run(second.id)).result()
            assert result.status == "completed"
            assert (await other._runs.info(first.id)).ended_at is not None
        go.set()


@pytest.mark.parametrize("busy", ["queue", "reject", "interrupt"])
async def test_of_runs_created_at_the_same_moment_one_is_first(tmp_path: Path, busy: Any) -> None:
    agent = Agent("a", model=Scripted([think("word " * 100, pace=0.01)]), busy_thread=busy)
    app = Tailrace([agent], database=tmp_path / "log.db")
    async with app.running(), asyncio.timeout(120):
        starts = [app.start("a", "?", thread="t") for _ in range(4)]
        found = await asyncio.gather(*starts, return_exceptions=True)
        refused = [one for one in found if isinstance(one, ThreadBusy)]
        assert len(refused) == (3 if busy == "reject" else 0)
        infos = await app._runs.of_thread("t")
        alive = [info for info in infos if info.ended_at is None]
        assert len(alive) == (4 if busy == "queue" else 1)
        previous = [info.previous_run_id for info in infos]
        assert previous == [None, *(info.run_id for info in infos[:-1])]
        for info in reversed(alive):
            await app._runs.cancel(info.run_id)


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(CallerError, match="run, reject, queue, interrupt"):
        Tailrace([], busy_thread="wait")  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="run, reject, queue, interrupt"):
        Agent("a", model=Scripted([say("Hello.")]), busy_thread="wait")  # type: ignore[arg-type]
