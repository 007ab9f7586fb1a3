"""The store or the bus is away: clients learn it soon, the log once, and the server lives."""

from __future__ import annotations

import asyncio
import gc
import re
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from tailrace.app import Tailrace
from tailrace.core.events import TaskInProgress
from tailrace.runtime.diagnostics.log_fields import fields_of
from tailrace.runtime.event_log import outage, store_retry
from tailrace.runtime.event_log.pipeline import Pipeline
from tailrace.runtime.event_log.whole_state import whole_state
from tailrace.runtime.runs import all_runs
from tailrace.runtime.tasks.task import Task
from tailrace.server import router
from tailrace.server.access import guard
from tailrace.server.streams import sse_response
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.waiting import until
from tests import forked
from tests.services import Postgres, Redis
from tests.serving import client_of

BODY = {"agent": "a", "input": "?"}
ASKED = 40
"""How many requests `answers` sends."""


async def agent(task: Task) -> None:
    with task.message() as message:
        message.text("It is sunny.")


@pytest.fixture
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests wait for the store a quarter of the time."""
    for module in (router, sse_response):
        monkeypatch.setattr(module, "STORE_SECONDS", guard.STORE_SECONDS / 4)
    monkeypatch.setattr(outage, "SLOW_SECONDS", outage.SLOW_SECONDS / 10)


@pytest.fixture
async def app(postgres_url: str, redis: Redis, short_limits: None) -> AsyncIterator[Tailrace]:
    made = Tailrace({"a": agent}, postgres_url, bus=redis.url)
    async with asyncio.timeout(120), made.running():
        yield made


@pytest.fixture
async def reported(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """Nothing may reach the loop's exception handler, or the log of asyncio."""
    found: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: found.append(what))
    yield
    gc.collect()
    await asyncio.sleep(0)
    assert found == []
    assert [one.getMessage() for one in caplog.records if one.name == "asyncio"] == []


async def until_ready(client: httpx.AsyncClient) -> None:
    async def is_ready() -> bool:
        return (await client.get("/ready")).status_code == 200

    await until(is_ready)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged of the store's outages."""
    return [text.partition(":")[0] for text in caplog.messages if text.startswith("the store is")]


async def answers(client: httpx.AsyncClient, run_id: str) -> list[httpx.Response]:
    """One request of each kind, and more at once than there are connections."""
    asked = [
        client.get(f"/runs/{run_id}"),
        client.get(f"/runs/{run_id}/events"),
        client.get(f"/runs/{run_id}/events?snapshot=true"),
        client.get("/threads/t/events"),
        client.post(f"/runs/{run_id}/cancel", json={}),
        client.post(f"/runs/{run_id}/input", json={"answer": 1}),
        client.post("/v1/responses", json={"model": "a", "input": "?"}),
        client.get(f"/v1/responses/resp_{run_id}"),
        client.post("/api/chat", json={"id": "c", "messages": [{"role": "user", "parts": []}]}),
        client.get("/api/chat/c/stream"),
        *(client.post("/runs", json=BODY) for _ in range(30)),
    ]
    assert len(asked) == ASKED
    return list(await asyncio.gather(*asked))


@pytest.mark.parametrize("fault", ["hangs", "is stopped"])
async def test_while_the_store_is_away_requests_get_503_soon_and_the_log_two_lines(
    fault: str,
    client: httpx.AsyncClient,
    postgres: Postgres,
    reported: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run_id = (await client.post("/runs", json=BODY)).json()["run_id"]
    ready = await client.get("/ready")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    if fault == "hangs":
        pause = postgres.paused()
        pause.__enter__()
    else:
        await asyncio.to_thread(postgres.stop)
    try:
        begun = time.monotonic()
        for answer in await answers(client, run_id):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.url
            if not answer.url.path.startswith("/api/chat"):  # there it is the sentence alone
                assert answer.json()["error"]["code"] == "storage_busy"
        # The limits are shorter than those in use; without them a request would wait for ever.
        assert time.monotonic() - begun < 30
        ready = await client.get("/ready")
        assert ready.json() == {"status": "not_ready", "store": "away", "bus": "ok"}
        assert (ready.status_code, ready.headers["retry-after"]) == (503, "1")
        assert (await client.get("/health")).json() == {"status": "ok"}
        await until(lambda: lines(caplog))
    finally:
        if fault == "hangs":
            pause.__exit__(None, None, None)
        else:
            await asyncio.to_thread(postgres.start)
    await until_ready(client)
    await until(lambda: len(lines(caplog)) > 1)
    assert (await client.post("/runs", json=BODY)).status_code == 201
    assert [text.partition(" after")[0] for text in lines(caplog)] == [
        "the store is away",
        "the store is back",
    ]
    metrics = (await client.get("/metrics")).text
    # On a busy machine a later call may be slow enough to count as another outage.
    [count] = re.findall(r"^tailrace_store_outages_total (\S+)$", metrics, re.MULTILINE)
    assert float(count) >= 1


@pytest.mark.parametrize("path", ["", "/events", "/events?format=openai-responses"])
async def test_a_request_that_waits_for_the_store_several_times_has_one_limit(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restart of the store that goes away again."""
    limit, slow = 0.5, asyncio.Event()

    def slowed(name: str) -> Callable[..., Any]:
        call = getattr(SqliteStore, name)

        async def wait(*args: Any, **options: Any) -> Any:
            if slow.is_set():
                await asyncio.sleep(limit * 0.6)
            return await call(*args, **options)

        return wait

    for name in ("info", "heads", "read", "read_lines", "snapshot", "state_source", "use_once"):
        monkeypatch.setattr(SqliteStore, name, slowed(name))
    monkeypatch.setattr(router, "STORE_SECONDS", limit)
    monkeypatch.setattr(sse_response, "STORE_SECONDS", limit)
    monkeypatch.setattr(store_retry, "QUICK_SECONDS", 0.0)
    monkeypatch.setattr(store_retry, "LEAST_SECONDS", 0.0)
    app = Tailrace({"a": agent}, tmp_path / "log.db")
    transport = httpx.ASGITransport(app=app)
    async with (
        asyncio.timeout(120),
        app.running(),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        monkeypatch.setattr(router, "STORE_SECONDS", 60.0)
        run_id = (await client.post("/runs", json=BODY)).json()["run_id"]
        assert await app._runs.reader.ended(run_id, 120)
        monkeypatch.setattr(router, "STORE_SECONDS", limit)
        slow.set()
        assert (await client.get(f"/runs/{run_id}{path}")).status_code == 503
        slow.clear()
        assert (await client.get(f"/runs/{run_id}{path}")).status_code == 200


async def test_a_server_that_stops_is_not_ready(app: Tailrace, client: httpx.AsyncClient) -> None:
    await app._runs.drain(0)
    ready = await client.get("/ready")
    assert (ready.status_code, ready.json()["store"]) == (503, "ok")


def test_a_request_waits_for_the_store_less_than_five_seconds() -> None:
    assert guard.STORE_SECONDS < 4.5


async def test_without_its_bus_a_server_is_ready_and_says_so(
    client: httpx.AsyncClient, redis: Redis, reported: None
) -> None:
    for number in (signal.SIGSTOP, signal.SIGKILL):
        assert redis._process is not None
        redis._process.send_signal(number)
        ready = await client.get("/ready")
        assert (ready.status_code, ready.json()) == (
            200,
            {"status": "ready", "store": "ok", "bus": "away"},
        )
        assert (await client.post("/runs", json=BODY)).status_code == 201
    await asyncio.to_thread(redis.restart)
    assert (await client.get("/ready")).json()["bus"] == "ok"


async def test_callers_that_leave_during_faults_leave_nothing_behind(
    app: Tailrace, postgres: Postgres, redis: Redis, reported: None
) -> None:
    begun = 0

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal begun
        begun += 1
        await app(scope, receive, send)

    client = client_of(counted)
    run_id = (await client.post("/runs", json=BODY)).json()["run_id"]

    async def leave() -> None:
        nonlocal begun
        begun = 0
        asked = [asyncio.ensure_future(answers(client, run_id)) for _ in range(2)]
        await until(lambda: begun == 2 * ASKED)
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    with postgres.paused():
        await leave()
    await leave()
    await asyncio.to_thread(redis.stop)
    await asyncio.to_thread(postgres.stop)
    await leave()
    await asyncio.to_thread(redis.start)
    await asyncio.to_thread(postgres.start)
    await leave()
    await until_ready(client)
    await client.aclose()


@pytest.mark.parametrize(("quiet", "logged"), [(3600, 1), (0, 3)], ids=["soon", "later"])
def test_a_full_disk_is_503_until_there_is_space_and_is_logged_again_only_after_a_while(
    tmp_path: Path, quiet: float, logged: int
) -> None:
    """The disk is full three times. An outage that is logged has two lines: its start, its end."""
    done = forked.run("-m", "tests.server.full_disk", tmp_path / "log.db", str(quiet))
    assert done.stdout.split() == ["503", "1", "503", "200", "200", "201"] * 3, done.stderr
    warnings = [text for text in done.stderr.splitlines() if text.startswith("the store is")]
    assert len(warnings) == 2 * logged, done.stderr
    for away, back in zip(warnings[::2], warnings[1::2], strict=True):
        assert "The disk is full" in away or "The disk failed" in away
        assert back.startswith("the store is back after ")


async def test_a_store_that_refuses_to_write_is_away_until_it_takes_writes_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its error is not `StorageBusy`: the store does not know that it will pass."""
    store = SqliteStore(tmp_path / "log.db")
    app = Tailrace({"a": agent}, store=store)

    def refuse(refuses: bool) -> None:
        with store._writer._in_use:
            store._writer._connection.execute(f"pragma query_only = {int(refuses)}").close()

    async with asyncio.timeout(120), app.running(), client_of(app) as client:
        refuse(True)
        refused = await client.post("/runs", json=BODY)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        await until(lambda: lines(caplog))
        assert (await client.get("/ready")).status_code == 503
        refuse(False)
        await until_ready(client)
        await until(lambda: len(lines(caplog)) > 1)
        assert (await client.post("/runs", json=BODY)).status_code == 201
    assert [text.partition(" after")[0] for text in lines(caplog)] == [
        "the store is away",
        "the store is back",
    ]


async def test_a_store_without_room_for_events_is_not_ready_although_it_can_be_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file may not grow, as at the edge of a full disk: what is there can be changed."""
    store = SqliteStore(tmp_path / "log.db")
    app = Tailrace({"a": agent}, store=store)
    large = {"agent": "a", "input": "x" * 100_000}

    def limit(pages: int) -> None:
        with store._writer._in_use:
            store._writer._connection.execute(f"pragma max_page_count = {pages}").close()

    async with asyncio.timeout(120), app.running(), client_of(app) as client:
        limit(1)  # as many as there are
        assert (await client.post("/runs", json=large)).status_code == 503
        await store.check()
        ready = await client.get("/ready")
        assert (ready.status_code, ready.json()["store"]) == (503, "away")
        limit(1_000_000)
        assert (await client.post("/runs", json=large)).status_code == 201
        assert (await client.get("/ready")).status_code == 200
        # Without further writes, it is tried again after a while.
        limit(1)
        assert (await client.post("/runs", json=large)).status_code == 503
        monkeypatch.setattr(outage, "FULL_SECONDS", 0.0)
        await until_ready(client)


@pytest.mark.usefixtures("short_limits")
async def test_an_error_of_one_run_is_no_outage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(tmp_path / "log.db")
    app = Tailrace({"a": agent}, store=store)
    async with asyncio.timeout(120), app.running(), client_of(app) as client:
        run_id = (await client.post("/runs", json=BODY)).json()["run_id"]
        assert await app._runs.reader.ended(run_id, 120)
        damage = "update batches set public = x'00' where run_id = ?"
        await store._writer.call(lambda db: db.execute(damage, (run_id,)).close())
        assert (await client.get(f"/runs/{run_id}/events")).status_code == 503
        assert (await client.get("/ready")).status_code == 200
        assert app._runs.outage.count == 0
    assert lines(caplog) == []


async def test_takeovers_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By another worker, and by a canceller that no worker answers."""
    monkeypatch.setattr(all_runs, "CANCEL_SECONDS", 0.05)
    app = Tailrace({"a": agent}, tmp_path / "log.db", worker=False)
    async with asyncio.timeout(120), app.running():
        run_id = await app._runs.start("a", "?")
        await app._runs.cancel(run_id)
        assert f"run {run_id} (agent a) is ended here" in caplog.text
        [line] = [one for one in caplog.records if "is ended here" in one.message]
        info = await app._runs.info(run_id)
        assert fields_of(line) == {"run": run_id, "agent": "a", "thread": info.thread_id}
        run_id = await app._runs.start("a", "?")
        store = app._runs.store
        (claim,) = await store.claim("lost", ["a"], 0.01)
        state = await whole_state(store, run_id)
        emitter = Pipeline(store, app._runs.bus).writer(run_id, claim.epoch, state)
        emitter.emit(TaskInProgress(task_id=run_id))
        await emitter.drain()
        async with Tailrace({"a": agent}, tmp_path / "log.db").running():
            assert await app._runs.reader.ended(run_id, 120)
        assert f"took over run {run_id} (agent a, thread " in caplog.text
