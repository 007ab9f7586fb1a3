"""Runs in Redis for readers of their own: one event in one entry, as the `run` format says it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis as Client

from tailrace.app import Tailrace
from tailrace.buses.redis import mirror as mirrors
from tailrace.buses.redis.bus import RedisBus
from tailrace.buses.redis.mirror import RedisMirror
from tailrace.core.fold import State
from tailrace.core.sse import SseParser
from tailrace.ports import Store
from tailrace.runtime.diagnostics.log_fields import fields_of
from tailrace.runtime.event_log.pipeline import Pipeline
from tailrace.runtime.tasks.task import Task
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.follow_kit.setup import begun
from tests.services import Redis
from tests.serving import client_of
from tests.written_agent import assistant

DEADLINE = 120.0


@pytest.fixture
async def client(redis: Redis) -> AsyncIterator[Any]:
    async with Client.from_url(redis.url) as made:
        yield made


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = SqliteStore(tmp_path / "log.db")
    yield made
    await made.close()


async def entries(client: Any, key: str) -> list[dict[str, Any]]:
    """What a reader of the stream gets, its `data` read as JSON."""
    found = []
    for _, fields in await client.xrange(key):
        entry = {name.decode(): value.decode() for name, value in fields.items()}
        found.append({**entry, "data": json.loads(entry["data"])})
    return found


async def test_the_mirror_has_each_run_as_its_stream_has_it(
    tmp_path: Path, redis: Redis, client: Any
) -> None:
    app = Tailrace({"a": assistant(0.0)}, tmp_path / "log.db", bus=f"{redis.url}?mirror=true")
    expected = []
    async with asyncio.timeout(DEADLINE), app.running(), client_of(app) as http:
        for _ in range(2):
            run_id = await app._runs.start("a", "?", thread_id="t")
            answer = await http.get(f"/runs/{run_id}/events", params={"format": "run"})
            expected += [json.loads(frame.data) for frame in SseParser().feed(answer.content)]
    found = await entries(client, "tailrace:thread:t")
    assert found == expected
    assert [list(one) for one in found] == [["type", "threadId", "runId", "data"]] * len(found)
    assert 0 < await client.ttl("tailrace:thread:t") <= mirrors.MIRROR_SECONDS


async def test_without_being_asked_there_is_no_mirror(
    tmp_path: Path, redis: Redis, client: Any
) -> None:
    app = Tailrace({"a": assistant(0.0)}, tmp_path / "log.db", bus=redis.url)
    async with asyncio.timeout(DEADLINE), app.running():
        run_id = await app._runs.start("a", "?", thread_id="t")
        assert await app._runs.reader.ended(run_id, 120)
    assert await client.keys("tailrace:thread:*") == []


async def test_a_writer_that_takes_a_run_over_goes_on_in_the_middle(
    store: Store, redis: Redis, client: Any
) -> None:
    bus = await RedisBus.open(redis.url, mirror=True)
    lost = await begun(store, bus, "run_1")
    Task(lost, "run_1").step("work").__enter__()
    await lost.drain()
    claim = await store.take_over("run_1", "another worker", 60)
    assert claim is not None
    emitter = Pipeline(store, bus, mirror=bus.mirror).writer("run_1", claim.epoch, lost.state)
    task = Task(emitter, "run_1")
    with task.message() as message:
        message.text("On it goes.")
    await task.drain()
    await bus.close()
    found = await entries(client, "tailrace:thread:t")
    assert [(one["type"], one["data"]["stage"]) for one in found] == [
        ("text.start", "work"),
        ("text.delta", "work"),
    ]


async def test_a_mirror_that_fails_is_reported_once_and_the_run_goes_on(
    store: Store, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_command: Any) -> None:
        raise RuntimeError("no place")

    bus = await RedisBus.open(redis.url)
    emitter = await begun(store, bus, "run_1")
    mirrored = Pipeline(store, bus, mirror=RedisMirror(broken, "p"))
    task = Task(mirrored.writer("run_1", emitter.epoch, emitter.state), "run_1")
    for text in ("one", "two"):
        with task.message() as message:
            message.text(text)
        await task.drain()
    assert caplog.text.count("mirroring run run_1 to Redis failed") == 1
    assert "no place" in caplog.text
    [line] = [one for one in caplog.records if "mirroring run" in one.message]
    assert fields_of(line) == {"run": "run_1", "agent": "a", "thread": "t"}
    await bus.close()


def test_runs_without_an_end_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrors, "MAX_RUNS", 3)
    mirror = RedisMirror(lambda _command: None, "p")
    for number in range(10):
        mirror.begin(f"run_{number}", State())
    assert list(mirror._encoders) == ["run_7", "run_8", "run_9"]
    mirror.show("run_1", [])
