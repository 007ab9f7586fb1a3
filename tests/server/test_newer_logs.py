"""Logs of a newer version, with new values of enumerations: every route reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from tailrace.app import Tailrace
from tailrace.ports import MAX_ATTEMPTS, Batch, NewRun
from tailrace.runtime.agents.functions import restartable
from tailrace.runtime.tasks.task import Task
from tailrace.wire.formats import FORMATS
from tests.convert.streams import read
from tests.traces import FOLDER

RUN = "run_1"
WORDS = {"new_executor": "Looked.", "new_item_status": "Half.", "new_request_kind": "This."}
"""The traces with a new value, and what their messages say."""

calls: list[str] = []


@restartable
async def agent(task: Task) -> None:
    """An agent whose worker dies each time."""
    calls.append(task.run_id)
    await asyncio.Event().wait()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "log.db")


@pytest.fixture
async def app(database: str) -> AsyncIterator[Tailrace]:
    made = Tailrace({"a": agent}, database, worker=False)
    async with asyncio.timeout(120), made.running():
        yield made


async def stored(app: Tailrace, trace: str, *, ended: bool = True) -> list[bytes]:
    """Store the log of a trace; without its end if it has not `ended`."""
    lines = (FOLDER / trace / "events.jsonl").read_bytes().splitlines()
    first, *later = lines if ended else lines[:-1]
    run = NewRun(run_id=RUN, agent="a", thread_id="t", public=first)
    batch = Batch(
        run_id=RUN, epoch=1, first_seq=2, publics=later, privates=[b""] * len(later), ended=ended
    )
    await app._runs.store.create(run)
    assert await app._runs.store.append([batch]) == [None]
    return lines


@pytest.mark.parametrize("trace", WORDS)
async def test_every_route_shows_a_run_with_a_new_value(
    app: Tailrace, client: httpx.AsyncClient, trace: str
) -> None:
    lines = await stored(app, trace)
    words = WORDS[trace]
    view = (await client.get(f"/runs/{RUN}")).json()
    assert (view["status"], words in str(view["output"])) == ("completed", True)
    assert view["unknown"], "the events with the new value are kept"
    for seq in range(1, len(lines) + 1):
        assert (await client.get(f"/runs/{RUN}", params={"at": seq})).status_code == 200
    for path, query in (
        (f"/runs/{RUN}/events", {"snapshot": "true"}),
        (f"/v1/responses/resp_{RUN}", {}),
        (f"/v1/responses/resp_{RUN}", {"stream": "true"}),
        ("/threads/t", {"format": "vercel-ui"}),
        ("/threads/t", {"format": "openai-responses"}),
        ("/threads/t", {"format": "ag-ui"}),
        ("/ag-ui/a", {"threadId": "t"}),
    ):
        answer = await client.get(path, params=query)
        assert (answer.status_code, words in answer.text) == (200, True), (path, answer.text)


@pytest.mark.parametrize("trace", WORDS)
async def test_every_format_streams_a_run_with_a_new_value_to_its_end(
    app: Tailrace, client: httpx.AsyncClient, trace: str
) -> None:
    lines = await stored(app, trace)
    for name in FORMATS:
        answer = await client.get(f"/runs/{RUN}/events", params={"format": name})
        assert (answer.status_code, WORDS[trace] in answer.text) == (200, True), name
        if name == "task":
            sent = [line.removeprefix(b"data: ") for line in answer.content.splitlines()]
            assert [line for line in sent if line.startswith(b"{")] == lines
        else:
            read(name, answer.content)


@pytest.mark.parametrize("trace", WORDS)
async def test_a_run_with_a_new_value_is_ended_past_its_attempts(
    app: Tailrace, client: httpx.AsyncClient, database: str, trace: str
) -> None:
    await stored(app, trace, ended=False)
    for _ in range(MAX_ATTEMPTS):
        assert await app._runs.store.take_over(RUN, "the dead", 0.0) is not None
    calls.clear()
    worker = Tailrace({"a": agent}, database, grace=timedelta(0))
    async with worker.running():
        assert await app._runs.reader.ended(RUN, 120)
    view = (await client.get(f"/runs/{RUN}")).json()
    assert (view["status"], view["error"]["code"]) == ("failed", "too_many_attempts")
    assert calls == [], "the agent is not started again"
    assert (await app._runs.info(RUN)).attempts == MAX_ATTEMPTS + 1
