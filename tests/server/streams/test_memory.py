"""Clients of a large run that stop reading: what they cost the server, and the other clients."""

from __future__ import annotations

import asyncio
import json
import re
import select
import socket
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from benchmarks.client import Server
from benchmarks.memory import Crowd, Found, measure, write_run
from tailrace.app import Tailrace
from tailrace.core.events import OutputItemAdded
from tailrace.core.json_pieces import SEND_BYTES
from tailrace.core.run_object import client_view
from tailrace.core.sse import SseParser
from tailrace.runtime.event_log.offload import LARGE_BYTES, build
from tailrace.runtime.followers import follow
from tailrace.runtime.followers.fanout import RECENT_WHOLES
from tailrace.runtime.tasks.inbox import receive
from tailrace.runtime.tasks.task import Task
from tailrace.server.streams import large_json
from tailrace.server.streams.run_stream import RunStream
from tailrace.server.transport import connections
from tailrace.wire import openai_responses, task
from tailrace.wire.base import Format, opened
from tailrace.wire.formats import FORMATS
from tests.server.raw_backend import serving
from tests.serving import Served, client_of

RUN_BYTES = 15_000_000
FIRST_BYTES = 6_000_000
"""What a process takes for its first requests, however small the run is."""
PAGE = "https://page.example"


@pytest.mark.parametrize(
    "crowd",
    [
        Crowd("readers", "/runs/{}/events", 20),
        Crowd("snapshots", "/runs/{}/events?snapshot=true", 20),
        Crowd("responses", "/runs/{}/events?snapshot=true&format=openai-responses", 20),
        Crowd("agents", "/runs/{}/events?snapshot=true&format=agents", 20),
        Crowd("objects", "/runs/{}", 20),
    ],
    ids=lambda crowd: crowd.title,
)
def test_clients_that_stop_reading_take_at_most_twice_what_the_run_weighs(
    crowd: Crowd, large_run: tuple[Path, str]
) -> None:
    database, run_id = large_run
    served = Served(database)
    try:
        found = measure(Server(served.url, served.pid), run_id, crowd, settled=0.5)
    finally:
        served.kill()
    assert found.grown < 2 * RUN_BYTES + FIRST_BYTES


@pytest.mark.parametrize("name", ["task", "openai-responses", "agents", "vercel-ui"])
def test_clients_that_stop_reading_share_the_snapshot_of_a_run_that_goes_on(
    name: str, tmp_path: Path
) -> None:
    found = _crowd_at_work(tmp_path, name, size=RUN_BYTES, clients=20)
    assert found.grown < 2 * RUN_BYTES + FIRST_BYTES


def test_while_a_snapshot_of_100_mb_is_built_and_50_clients_stall_the_server_answers(
    tmp_path: Path,
) -> None:
    # 0.3 s and 70 MB on a busy machine; 40 s where the state is built on the event loop, and 2 GB
    # where clients do not share it.
    found = _crowd_at_work(tmp_path, "vercel-ui", size=100_000_000, clients=50, settled=3)
    assert found.slowest < 10
    assert found.grown < 200_000_000


def _crowd_at_work(
    place: Path, name: str, *, size: int, clients: int, settled: float = 0.5
) -> Found:
    """What clients cost that join a run of this size while it goes on, and read nothing."""
    crowd = Crowd("snapshots", f"/runs/{{}}/events?snapshot=true&format={name}", clients)
    served = Served(place / "log.db")
    try:
        body = {"agent": "lengthy", "input": size}
        run_id = httpx.post(f"{served.url}/runs", json=body).json()["run_id"]
        with httpx.stream("GET", f"{served.url}/runs/{run_id}/events", timeout=120) as stream:
            assert any("task.notice" in line for line in stream.iter_lines())
        return measure(Server(served.url, served.pid), run_id, crowd, settled)
    finally:
        served.kill()


@pytest.fixture(scope="module")
def large_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    database = tmp_path_factory.mktemp("large") / "log.db"
    return database, write_run(str(database), RUN_BYTES)


async def talker(work: Task) -> None:
    for _ in range(4):
        with work.message() as message:
            message.text("x" * 1_000_000)
        await work.drain()


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Tailrace]:
    made = Tailrace({"a": talker}, tmp_path / "log.db", origins=[PAGE])
    async with made.running(), asyncio.timeout(120):
        yield made


async def finished(app: Tailrace) -> str:
    run_id = await app._runs.start("a", "?")
    assert await app._runs.reader.ended(run_id, 120)
    return run_id


@pytest.mark.parametrize(
    "path",
    [
        "/runs/{}",
        "/v1/responses/resp_{}",
        "/runs/{}/events?snapshot=true",
        "/runs/{}/events?snapshot=true&format=vercel-ui",
    ],
)
async def test_a_large_state_that_is_being_built_holds_up_no_other_client(
    path: str, app: Tailrace
) -> None:
    run_id = await finished(app)
    go = threading.Event()
    async with client_of(app) as client:
        # The builder has other work.
        busy = asyncio.ensure_future(build(LARGE_BYTES + 1, partial(go.wait, 10)))
        await asyncio.sleep(0)
        asked = [asyncio.ensure_future(client.get(path.format(run_id))) for _ in range(2)]
        try:
            for _ in range(20):
                assert (await client.get("/health")).status_code == 200
            assert not any(one.done() for one in asked)
        finally:
            go.set()
        assert await busy
        first, second = await asyncio.gather(*asked)
    # Each client waits for another time before it connects again.
    bodies = [re.sub(rb"^retry: \d+\n", b"", one.content) for one in (first, second)]
    assert bodies[0] == bodies[1]
    assert len(bodies[0]) > 4_000_000


async def test_a_large_run_is_the_same_object_for_clients_as_for_python(app: Tailrace) -> None:
    run_id = await finished(app)
    state = await app._runs.state(run_id)
    async with client_of(app) as client:
        answer = await client.get(f"/runs/{run_id}")
        assert answer.headers["content-length"] == str(len(answer.content))
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == client_view(state)
        head = await client.head(f"/runs/{run_id}")
        assert (head.headers, head.content) == (answer.headers, b"")
        answer = await client.get(f"/v1/responses/resp_{run_id}")
        assert answer.json() == openai_responses.response_object(state)


@pytest.mark.parametrize("path", ["/runs/{}/events", "/runs/{}"])
@pytest.mark.parametrize("header", ["accept: */*", f"origin: {PAGE}"])
async def test_a_client_that_stops_reading_is_reset_and_its_cursor_stays_valid(
    path: str, header: str, app: Tailrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.3)
    monkeypatch.setattr(large_json, "WRITE_SECONDS", 0.3)
    run_id = await finished(app)
    async with serving(app) as url:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", int(url.rpartition(":")[2])))
            line = f"GET {path.format(run_id)} HTTP/1.1"
            client.sendall(f"{line}\r\nhost: localhost\r\n{header}\r\n\r\n".encode())
            waiting = select.poll()
            waiting.register(client, select.POLLHUP | select.POLLERR)
            # The client reads nothing, and gets the closing frame all the same.
            assert await asyncio.to_thread(waiting.poll, 20_000)
        async with httpx.AsyncClient(base_url=url, trust_env=False) as other:
            whole = SseParser().feed((await other.get(f"/runs/{run_id}/events")).content)
            rest = await other.get(f"/runs/{run_id}/events", params={"after": whole[2].id})
    assert SseParser().feed(rest.content) == whole[3:]


async def lengthy(work: Task) -> None:
    await talker(work)
    with work.message() as message:
        for word in await receive(work):
            message.text(word)
            await work.drain()


@pytest.mark.parametrize("wire", FORMATS.values(), ids=lambda wire: wire.name)
async def test_clients_that_share_the_snapshot_of_a_run_each_get_all_later_events(
    wire: Format, tmp_path: Path
) -> None:
    app = Tailrace({"a": lengthy}, tmp_path / "log.db")
    async with app.running(), asyncio.timeout(120):
        run_id = await app._runs.start("a", "?")
        async for batch in app._runs.follow(run_id):
            if isinstance(batch[-1].event, OutputItemAdded):  # the agent waits in its last message
                break
        state = await app._runs.state(run_id)
        streams = [RunStream(app._runs, wire, run_id, snapshot=True) for _ in range(3)]
        held = [[await stream.next()] for stream in streams]
        assert len({id(stream._opening) for stream in streams}) == 1
        # One client has the whole opening before the run goes on, the others stand in it.
        while streams[0]._piece is not None:
            held[0].append(await streams[0].next())
        assert streams[0].closing("Bye.") == b"".join(opened(wire, state, 1)[0].close("Bye."))
        await app._runs.send(run_id, ["and ", "so ", "on"])
        assert await app._runs.reader.ended(run_id, 60)
        for stream, pieces in zip(streams, held, strict=True):
            pieces += [piece async for piece in stream]
        events = [one async for batch in app._runs.follow(run_id, state) for one in batch]
    encoder, frames = opened(wire, state, events[0].epoch)
    expected = b"".join([*frames, *(frame for one in events for frame in encoder.encode(one))])
    for pieces in held:
        assert re.sub(rb"^retry: \d+\n\n", b"", b"".join(filter(None, pieces))) == expected


async def test_nothing_is_sent_into_the_middle_of_an_opening(app: Tailrace) -> None:
    run_id = await finished(app)
    stream = RunStream(app._runs, task.FORMAT, run_id, snapshot=True)
    first = await stream.next()
    assert first is not None
    assert not stream.over
    assert stream.closing("Bye.") == b""
    pieces = [first] + [piece async for piece in stream]
    assert max(map(len, pieces)) <= SEND_BYTES
    [event] = SseParser().feed(b"".join(pieces))
    assert json.loads(event.data)["type"] == "task.snapshot"


async def test_the_stored_state_of_an_ended_run_is_sent_as_it_is(
    app: Tailrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await finished(app)

    async def opening() -> tuple[bytes, RunStream]:
        stream = RunStream(app._runs, task.FORMAT, run_id, snapshot=True)
        first = await stream.next() or b""
        return re.sub(rb"^retry: \d+\n\n", b"", first), stream

    with monkeypatch.context() as patched:
        patched.setattr(follow, "public_part", lambda _: None)
        first, stream = await opening()
        restored = first + b"".join([piece async for piece in stream])
    monkeypatch.delattr(RunStream, "_opened")  # which restores the state
    streams = [await opening() for _ in range(2)]
    assert len({id(stream._opening) for _, stream in streams}) == 1
    for first, stream in streams:
        assert first + b"".join([piece async for piece in stream]) == restored


async def brief(work: Task) -> None:
    with work.message() as message:
        message.text("word " * 4_000)


async def test_the_answers_of_some_ended_runs_are_kept_for_the_next_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Tailrace({"a": brief}, tmp_path / "log.db")
    async with app.running(), client_of(app) as client, asyncio.timeout(120):
        runs = [await finished(app) for _ in range(RECENT_WHOLES + 1)]

        async def snapshots() -> list[bytes]:
            asked = [await client.get(f"/runs/{one}/events?snapshot=true") for one in runs]
            return [re.sub(rb"^retry: \d+\n\n", b"", one.content) for one in asked]

        first = await snapshots()
        assert len(app._runs.streams.wholes._values) == RECENT_WHOLES
        del runs[0]
        monkeypatch.delattr(follow, "public_part")  # which unpacks a stored state
        assert await snapshots() == first[1:]
        await app._runs.delete(runs[0])
        assert (await client.get(f"/runs/{runs[0]}/events?snapshot=true")).status_code == 404
