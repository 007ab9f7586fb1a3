"""Every format ends properly, however its run ends: legal to the last frame, closed, no hang."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tailrace.testing.waiting import until
from tailrace.wire.formats import FORMATS
from tests.server.followers import SECONDS, Follower, open_client
from tests.server.format_clients import OPEN, held
from tests.serving import Served

ENDS = f"""
format              completed           failed           cancelled            again               stops
task                task.completed      task.failed      task.cancelled       task.completed      {OPEN}
run                 run.finished        run.error        run.error            run.finished        {OPEN}
agents              response.completed  response.failed  response.incomplete  response.completed  {OPEN}
openai-responses    completed           failed           cancelled            failed              error
openai-chat         stop                error            length               error               error
anthropic-messages  end_turn            error            max_tokens           error               error
vercel-ui           finish              error            abort                finish              error
ag-ui               success             RUN_ERROR        cancelled            RUN_ERROR           RUN_ERROR
"""  # noqa: E501
"""What a strict client of each format reads as the end of its response.

`again` is a run that another worker began again, `stops` a server that stops while the run goes on.
"""

_, COMPLETED, FAILED, CANCELLED, AGAIN, STOPS = (
    dict(zip(FORMATS, column[1:], strict=True))
    for column in zip(*map(str.split, ENDS.strip().splitlines()), strict=True)
)


class Processes(NamedTuple):
    """Two servers on one store; only the first works on runs."""

    works: Served
    reads: Served


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder: Path = tmp_path_factory.mktemp("endings")
    environment = {"TAILRACE_TEST_LEASE": "1", "TAILRACE_TEST_GRACE": "0.1"}
    works = Served(folder / "log.db", environment=environment)
    reads = Served(folder / "log.db", environment={**environment, "TAILRACE_TEST_WORKER": "no"})
    yield Processes(works, reads)
    works.kill()
    reads.kill()


class Followed:
    """A run that is followed in every format."""

    def __init__(self, http: httpx.AsyncClient, url: str, run_id: str) -> None:
        self.run_id = run_id
        events = f"{url}/runs/{run_id}/events"
        self._clients = {name: Follower(http, f"{events}?format={name}") for name in FORMATS}

    async def received(self, text: bytes) -> None:
        """Wait until each client has read this."""
        for client in self._clients.values():
            await until(partial(client.has, text))

    async def ends(self) -> dict[str, str]:
        """How each response ended, once the server has closed all of them."""
        return {name: held(name, await one.end()).end for name, one in self._clients.items()}


async def follow(http: httpx.AsyncClient, url: str, agent: str) -> Followed:
    started = await http.post(f"{url}/runs", json={"agent": agent, "input": "?"})
    return Followed(http, url, started.json()["run_id"])


async def test_a_run_that_completes_fails_or_is_cancelled(processes: Processes) -> None:
    async with open_client() as http, asyncio.timeout(SECONDS):
        url = processes.reads.url
        assert await (await follow(http, url, "assistant")).ends() == COMPLETED
        assert await (await follow(http, url, "broken")).ends() == FAILED
        endless = await follow(http, url, "endless")
        await endless.received(b"tick")
        await http.post(f"{url}/runs/{endless.run_id}/cancel")
        assert await endless.ends() == CANCELLED


async def test_a_run_whose_worker_is_killed(processes: Processes) -> None:
    """It fails, or begins again: then a client that cannot take text back is sent an error."""
    async with open_client() as http, asyncio.timeout(SECONDS):
        url = processes.reads.url
        runs = [await follow(http, url, agent) for agent in ("endless", "begins_again")]
        await runs[0].received(b"tick")
        await runs[1].received(b"Half an ans")
        await asyncio.to_thread(processes.works.restart)
        assert await runs[0].ends() == FAILED
        assert await runs[1].ends() == AGAIN


async def test_a_server_that_stops(processes: Processes) -> None:
    """Its clients come back with their cursor, or read that they have to ask again."""
    async with open_client() as http, asyncio.timeout(SECONDS):
        url = processes.reads.url
        known = len((await http.get(f"{url}/threads")).json()["threads"])
        asked = {"model": "endless", "input": "?"}
        waiting = asyncio.create_task(http.post(f"{url}/v1/responses", json=asked))
        while len((await http.get(f"{url}/threads")).json()["threads"]) == known:
            pass  # the request has not arrived yet
        run = await follow(http, url, "endless")
        await run.received(b"tick")
        assert await asyncio.to_thread(processes.reads.kill, signal.SIGTERM) == 0
        assert await run.ends() == STOPS
        refused = await waiting
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "stopping")
        assert refused.headers["retry-after"] == "1"
    processes.reads.start()
