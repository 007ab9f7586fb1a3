"""People are asked three agents deep, the process is killed, and others go on with the answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tailrace import Answer, Tailrace
from tailrace.core.events import TaskInputReceived, TaskInputRequired
from tailrace.core.fold import State
from tailrace.core.items import InputRequest
from tailrace.runtime.diagnostics import crash_points
from tailrace.testing.waiting import until
from tests.forked import Forked
from tests.runtime.agents.nested_asking import RUN, application

Stored = tuple[str, str | None]


@pytest.fixture(params=["sqlite", "postgres-redis"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Stored:
    if request.param == "sqlite":
        return str(tmp_path / "log.db"), None
    return request.getfixturevalue("postgres_url"), request.getfixturevalue("redis_url")


@asynccontextmanager
async def running(folder: Path, stored: Stored, *, worker: bool) -> AsyncIterator[Tailrace]:
    app = application(folder, *stored, worker=worker)
    async with app.running(), asyncio.timeout(120):
        yield app


async def asked(app: Tailrace) -> list[InputRequest]:
    """The two requests of the run, once it waits for both."""

    async def both() -> list[InputRequest]:
        if not await app._runs.exists(RUN):
            return []
        requests = await (await app.run(RUN)).requests()
        return requests if len(requests) == 2 else []

    found: list[InputRequest] = await until(both)
    return found


def ran(folder: Path) -> list[str]:
    """The tools that have run, in order."""
    file = folder / "ran.txt"
    return file.read_text().split() if file.exists() else []


def answer(request: InputRequest) -> Answer:
    if request.kind == "approval":
        return Answer(request_id=request.id, approved=True, value={"euros": 4})
    return Answer(request_id=request.id, value="Paris")


@pytest.mark.parametrize(
    "crash_at", ["park.after", ""], ids=["while it parks", "when it has asked"]
)
async def test_answers_to_a_nested_run_whose_worker_was_killed_count_once(
    tmp_path: Path, stored: Stored, crash_at: str
) -> None:
    places = [value for value in stored if value is not None]
    command = ["-m", "tests.runtime.agents.nested_asking", str(tmp_path), *places]
    first = Forked(*command, env={**os.environ, "TAILRACE_CRASH_AT": crash_at})
    async with (
        running(tmp_path, stored, worker=False) as here,
        running(tmp_path, stored, worker=False) as there,
    ):
        requests = await asked(here)
        if crash_at:
            assert await asyncio.to_thread(first.wait, 120) == crash_points.STATUS
        else:
            # A note that is killed after its start is interrupted, and does not run again.
            await until(lambda: ran(tmp_path) == ["note", "note"])
            first.kill()
            await asyncio.to_thread(first.wait, 120)
        # Each answer is sent to both servers at the same time, and two workers wait for it.
        others = [Forked(*command), Forked(*command)]
        runs = [await app.run(RUN) for app in (here, there)]
        await asyncio.gather(*(run.send(answer(one)) for one in requests for run in runs))
        result = await runs[1].result()
        events = [event async for event in runs[0].events()]
        for other in others:
            assert await asyncio.to_thread(other.wait, 120) == 0
    state = State()
    for event in events:
        state.apply(event)
    assert (result.status, result.text) == ("completed", "top.[^1]")
    assert all(task.ended for task in state.tasks.values())
    assert sorted(ran(tmp_path)) == ["note", "note", "pay-4"]
    announced = [
        request.id
        for event in events
        if isinstance(event, TaskInputRequired)
        for request in event.requests
    ]
    received = [event.request_id for event in events if isinstance(event, TaskInputReceived)]
    assert sorted(announced) == sorted(received)
    assert len(set(received)) == 2
    assert "Paris" in str(result.items)
