"""Every format over HTTP: cut after every frame, continued by another process and after a restart.

A format with cursors gets exactly the rest. A format without them gets a legal replay of the same
answer.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tailrace.core.sse import SseParser
from tailrace.testing.waiting import until
from tailrace.wire.base import ThreadFormat
from tailrace.wire.formats import FORMATS
from tests.effort import CUTS, sample
from tests.server.followers import SECONDS, Follower, open_client
from tests.server.format_clients import frames_of, held
from tests.serving import Served

THREAD = "t"


class Processes(NamedTuple):
    """Two servers on one store; only the first works on runs."""

    works: Served
    reads: Served
    gate: Path


@pytest.fixture(params=["sqlite", "postgres-redis"])
def processes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Processes]:
    database, environment = str(tmp_path / "log.db"), {"TAILRACE_TEST_GATE": str(tmp_path)}
    if request.param == "postgres-redis":
        database = request.getfixturevalue("postgres_url")
        environment["TAILRACE_TEST_BUS"] = request.getfixturevalue("redis_url")
    works = Served(database, environment=environment)
    reads = Served(database, environment={**environment, "TAILRACE_TEST_WORKER": "no"})
    yield Processes(works, reads, tmp_path)
    works.kill()
    reads.kill()


def cursor_of(frame: bytes) -> str:
    """The `id:` of a frame, or OpenAI's `sequence_number`; empty for `[DONE]`."""
    [event] = SseParser().feed(frame)
    if event.id or event.data == "[DONE]":
        return event.id or ""
    return str(json.loads(event.data).get("sequence_number", ""))


def last_cursor(frames: list[bytes]) -> tuple[int, str]:
    """The last cursor that a client has, and the number of frames up to it."""
    found = [(count, cursor) for count, one in enumerate(frames, 1) if (cursor := cursor_of(one))]
    return found[-1] if found else (0, "")


def way_back(url: str, name: str, run_id: str, cursor: str) -> str:
    """Where a client of a format continues after its last cursor, or asks for a replay."""
    if name == "openai-responses":
        after = f"&starting_after={cursor}" if cursor else ""
        return f"{url}/v1/responses/resp_{run_id}?stream=true{after}"
    if FORMATS[name].resumable:
        return f"{url}/runs/{run_id}/events?format={name}" + (f"&after={cursor}" if cursor else "")
    if name == "vercel-ui":
        return f"{url}/api/chat/{THREAD}/stream"
    if name == "ag-ui":
        return f"{url}/ag-ui/stepped?threadId={THREAD}"
    return f"{url}/runs/{run_id}/events?format={name}&snapshot=true"


async def started(http: httpx.AsyncClient, processes: Processes) -> str:
    """The id of a run that goes on step by step."""
    asked = {"agent": "stepped", "input": "?", "thread_id": THREAD}
    answer = await http.post(f"{processes.works.url}/runs", json=asked)
    return str(answer.json()["run_id"])


async def test_a_client_that_is_cut_anywhere_continues_on_another_process_and_after_a_restart(
    processes: Processes,
) -> None:
    async with open_client() as http, asyncio.timeout(SECONDS):
        run_id = await started(http, processes)
        whole = await cut_while_it_goes_on(http, processes, run_id)
        await asyncio.to_thread(processes.works.restart)
        url = processes.works.url
        for name, frames in whole.items():
            if FORMATS[name].resumable:
                await cut_after_its_end(http, url, name, run_id, frames)
            else:
                replay = await http.get(way_back(url, name, run_id, ""))
                assert held(name, frames_of(replay.content)) == held(name, frames), name
            if isinstance(FORMATS[name], ThreadFormat):
                thread = f"{url}/threads/{THREAD}/events?format={name}"
                await cut_the_thread(http, thread, len(frames))


async def cut_while_it_goes_on(
    http: httpx.AsyncClient, processes: Processes, run_id: str
) -> dict[str, list[bytes]]:
    """After every step, resume every format on the process that does not work on the run."""
    url = processes.reads.url
    whole = {name: Follower(http, f"{url}/runs/{run_id}/events?format={name}") for name in FORMATS}
    cuts: list[tuple[str, int, Follower]] = []
    seen = step = 0
    log = whole["task"]
    while True:
        await until(lambda: len(log.frames) > seen or log.has_ended)  # noqa: B023
        if log.has_ended:
            break
        seen = len(log.frames)
        for name, follower in whole.items():
            count, cursor = last_cursor(follower.frames)
            cuts.append((name, count, Follower(http, way_back(url, name, run_id, cursor))))
        await until(lambda: all(one.is_open or one.has_ended for *_, one in cuts))
        (processes.gate / f"step {step}").touch()
        step += 1
    assert step > 10
    found = {name: await follower.end() for name, follower in whole.items()}
    for name, count, follower in cuts:
        rest = await follower.end()
        if FORMATS[name].resumable:
            assert found[name][:count] + rest == found[name], (name, count)
        else:
            assert held(name, rest) == held(name, found[name]), (name, count)
    return found


async def cut_after_its_end(
    http: httpx.AsyncClient, url: str, name: str, run_id: str, frames: list[bytes]
) -> None:
    """Resume after each frame; after the last there is nothing, which an EventSource must hear."""
    for count, frame in enumerate(frames, 1):
        if cursor := cursor_of(frame):
            rest = await http.get(way_back(url, name, run_id, cursor))
            assert rest.status_code == (200 if count < len(frames) else 204), (name, count)
            assert frames_of(rest.content) == frames[count:], (name, count)


async def cut_the_thread(http: httpx.AsyncClient, url: str, count: int) -> None:
    """The stream of a thread never ends, so each is read as far as its run goes."""
    whole = await first_frames(http, url, "", count)
    for place in sample(range(1, count), CUTS):
        rest = await first_frames(http, url, cursor_of(whole[place - 1]), count - place)
        assert rest == whole[place:], (url, place)


async def first_frames(http: httpx.AsyncClient, url: str, cursor: str, count: int) -> list[bytes]:
    """So many frames of a stream."""
    content = b""
    headers = {"last-event-id": cursor} if cursor else {}
    async with http.stream("GET", url, headers=headers) as response:
        async for piece in response.aiter_bytes():
            content += piece
            frames = frames_of(content[: content.rfind(b"\n\n") + 2])
            if len(frames) >= count:
                return frames
    raise AssertionError(f"{url} ended")


async def test_a_response_resumed_after_the_error_of_a_stopping_server_is_the_rest_of_a_replay(
    processes: Processes,
) -> None:
    async with open_client() as http, asyncio.timeout(SECONDS):
        run_id = await started(http, processes)
        path = f"/v1/responses/resp_{run_id}?stream=true"
        cut = Follower(http, f"{processes.reads.url}{path}")
        for step in range(4):
            seen = len(cut.frames)
            await until(lambda: len(cut.frames) > seen)  # noqa: B023
            (processes.gate / f"step {step}").touch()
        await asyncio.to_thread(processes.reads.kill, signal.SIGTERM)
        *before, error = await cut.end()
        processes.reads.start()
        for step in range(4, 60):
            (processes.gate / f"step {step}").touch()
        url = f"{processes.works.url}{path}"
        replay = frames_of((await http.get(url)).content)
        assert replay[: len(before)] == before
        rest = await http.get(f"{url}&starting_after={cursor_of(error)}")
        assert frames_of(rest.content) == replay[len(before) :]
