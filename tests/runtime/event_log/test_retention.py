"""Retention by itself: what was kept long enough goes, step by step, in every process at once."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace.app import Tailrace
from tailrace.core.errors import StorageError
from tailrace.core.run_object import client_view
from tailrace.core.snapshot import restore
from tailrace.core.sse import SseParser
from tailrace.ports import Store
from tailrace.runtime.event_log import retention
from tailrace.runtime.event_log.retention import Retention
from tailrace.runtime.event_log.whole_state import whole_state
from tailrace.runtime.tasks.task import Task
from tailrace.stores import open_store
from tailrace.testing.follow_kit.setup import CountingStore
from tailrace.testing.waiting import until
from tests.serving import client_of

DEADLINE = 120.0


async def agent(task: Task) -> None:
    with task.call("look") as call:
        call.arguments("{}")
    call.start()
    await task.drain()
    call.result("It is sunny.")
    with task.message() as message:
        message.text("It is sunny.[^1]")


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/log.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def app(database: str) -> AsyncIterator[Tailrace]:
    made = Tailrace({"a": agent}, database)
    async with asyncio.timeout(DEADLINE), made.running():
        yield made


@pytest.fixture
async def store(app: Tailrace) -> Store:
    return app._runs.store


async def finished(app: Tailrace, **options: Any) -> str:
    run_id = await app._runs.start("a", "?", **options)
    assert await app._runs.reader.ended(run_id, 120)
    return run_id


async def is_trimmed(store: Store, run_id: str) -> bool:
    info = await store.info(run_id)
    return info is not None and info.trimmed_to > 0


async def answers_404(client: httpx.AsyncClient, path: str) -> bool:
    return (await client.get(path)).status_code == 404


async def test_first_the_events_go_and_then_the_run(app: Tailrace, store: Store) -> None:
    run_id = await finished(app)
    whole = await whole_state(store, run_id)
    assert not await Retention(store).sweep()
    assert len(await store.read(run_id, 0)) == whole.sequence_number
    assert not await Retention(store, keep_events=-1).sweep()
    info = await store.info(run_id)
    assert info is not None
    assert info.trimmed_to == info.last_seq == whole.sequence_number
    assert client_view(await app._runs.state(run_id)) == client_view(whole)
    # What only the model saw is still there: the next turn needs it.
    root, kept = whole.root, (await whole_state(store, run_id)).root
    assert root is not None
    assert kept is not None
    assert [one.private for one in kept.output()] == [one.private for one in root.output()]
    assert not await Retention(store, keep_events=-1).sweep()
    assert not await Retention(store, keep_events=-1, keep_runs=-1).sweep()
    assert await store.info(run_id) is None


async def test_a_run_that_is_not_to_be_kept_is_deleted_soon(app: Tailrace, store: Store) -> None:
    kept, gone = await finished(app), await finished(app, forget=True)
    await Retention(store).sweep()
    assert await store.info(gone) is not None
    await Retention(store, forget_after=-1).sweep()
    assert await store.info(gone) is None
    assert await store.info(kept) is not None


async def test_what_only_deleted_runs_used_is_collected(
    app: Tailrace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await finished(app)
    digest = await store.put_blob(b"a large picture", "image/png", run_id)
    await Retention(store, keep_runs=-1).sweep()
    assert await store.blob(digest) is not None
    monkeypatch.setattr(retention, "UNUSED_BLOB_SECONDS", -1)
    await Retention(store, keep_runs=-1).sweep()
    assert await store.blob(digest) is None


async def test_a_run_whose_worker_was_killed_after_its_end_is_joined_later(
    app: Tailrace, store: Store
) -> None:
    run_id = await finished(app)  # its own worker joins its rows two seconds later
    assert await store.unjoined(-1) == [run_id]
    await Retention(store).sweep()
    assert await store.unjoined(-1) == [run_id]
    assert not await Retention(store, join_after=-1).sweep()
    assert await store.unjoined(-1) == []


async def test_one_pass_does_a_bounded_amount_of_work(
    app: Tailrace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "AT_ONCE", 2)
    runs = [await finished(app) for _ in range(5)]
    sweeper = Retention(store, keep_events=-1)
    left = []
    for more in (True, True, False):
        assert await sweeper.sweep() is more
        found = [await store.info(run_id) for run_id in runs]
        left.append(sum(not info.trimmed_to for info in found if info is not None))
    assert left == [3, 1, 0]


async def test_several_processes_may_do_it_at_once(
    app: Tailrace, store: Store, database: str
) -> None:
    runs = [await finished(app) for _ in range(20)]
    others = [await open_store(database) for _ in range(3)]
    views = [client_view(await app._runs.state(run_id)) for run_id in runs]
    sweepers = [Retention(one, keep_events=-1) for one in (store, *others)]
    await asyncio.gather(*(one.sweep() for one in sweepers))
    assert [client_view(await app._runs.state(run_id)) for run_id in runs] == views
    sweepers = [Retention(one, keep_events=-1, keep_runs=-1) for one in (store, *others)]
    sweepers += [Retention(one, keep_events=-1) for one in (store, *others)]
    await asyncio.gather(*(one.sweep() for one in sweepers))
    assert await store.latest_runs() == []
    for one in others:
        await one.close()


async def test_a_run_that_is_deleted_while_it_is_read_is_passed_over(
    app: Tailrace, store: Store
) -> None:
    class Deleting(CountingStore):
        """A store from which another process deletes the run meanwhile."""

        def __getattr__(self, name: str) -> Any:
            method = super().__getattr__(name)

            async def call(*args: Any, **kwargs: Any) -> Any:
                if name == "read_lines":
                    await store.delete(args[0])
                return await method(*args, **kwargs)

            return call

    run_id = await finished(app)
    watched: Any = Deleting(store)
    await Retention(watched, keep_events=-1).sweep()
    assert await store.info(run_id) is None
    assert "trim" not in [name for name, _ in watched.calls]


async def test_it_runs_by_itself_and_outlives_a_store_that_fails(
    app: Tailrace, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = await finished(app)
    watched: Any = CountingStore(store)
    failures = [StorageError("The disk failed."), RuntimeError("our own mistake")]
    watched.fail = lambda name: failures.pop() if failures and name == "expired" else None
    sweeper = Retention(watched, keep_events=-1, every=0.01)
    sweeper.start()
    with caplog.at_level(logging.WARNING):
        await until(lambda: is_trimmed(store, run_id))
    await sweeper.stop()
    await sweeper.stop()
    assert caplog.text.count("retention failed and will try again") == 2


async def test_those_behind_a_run_that_cannot_be_trimmed_do_not_wait_for_it(
    app: Tailrace, store: Store
) -> None:
    damaged, *others = [await finished(app) for _ in range(3)]

    class Damaged(CountingStore):
        """A store that cannot read one of its runs."""

        def __getattr__(self, name: str) -> Any:
            method = super().__getattr__(name)

            async def call(*args: Any, **kwargs: Any) -> Any:
                if name == "read_lines" and args[0] == damaged:
                    raise StorageError("The log is damaged.")
                return await method(*args, **kwargs)

            return call

    watched: Any = Damaged(store)
    sweeper = Retention(watched, keep_events=-1)
    with pytest.raises(StorageError, match="damaged"):
        await sweeper.sweep()
    assert not await sweeper.sweep()
    found = [await store.info(run_id) for run_id in (damaged, *others)]
    assert [bool(info and info.trimmed_to) for info in found] == [False, True, True]


async def test_a_reader_over_http_learns_that_events_were_trimmed(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started by the application, in a process with a worker, as configured there."""
    monkeypatch.setattr(retention, "SWEEP_SECONDS", 0.02)
    app = Tailrace({"a": agent}, database, keep_events=timedelta(0))
    async with asyncio.timeout(DEADLINE), app.running(), client_of(app) as client:
        answer = await client.post("/runs", json={"agent": "a", "input": "?"})
        run_id = answer.json()["run_id"]
        await until(lambda: is_trimmed(app._runs.store, run_id))
        view = (await client.get(f"/runs/{run_id}")).json()
        assert view["status"] == "completed"
        answer = await client.get(f"/runs/{run_id}/events", headers={"Last-Event-ID": "2-3"})
        frames = [json.loads(one.data) for one in SseParser().feed(answer.content)]
        gap, snapshot = frames
        assert (gap["type"], gap["reason"]) == ("task.gap", "trimmed")
        assert client_view(restore(json.dumps(snapshot["state"]).encode())) == view

        answer = await client.post("/runs", json={"agent": "a", "input": "?", "store": False})
        gone = f"/runs/{answer.json()['run_id']}"
        app._runs.retention._forget_after = 0.0
        await until(lambda: answers_404(client, gone))
        assert (await client.get(f"/runs/{run_id}")).status_code == 200


async def test_only_true_and_false_say_whether_a_run_is_stored(app: Tailrace) -> None:
    async with client_of(app) as client:
        body: dict[str, object] = {"agent": "a", "model": "a", "input": "?", "store": "no"}
        for path in ("/runs", "/v1/responses"):
            answer = await client.post(path, json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
        body = {"model": "a", "input": "?", "store": False}
        answer = await client.post("/v1/responses", json=body)
        assert answer.json()["store"] is False
        run_id = answer.json()["id"].removeprefix("resp_")
    await Retention(app._runs.store, forget_after=-1).sweep()
    assert await app._runs.store.info(run_id) is None


async def test_a_process_without_a_worker_leaves_it_to_others(database: str) -> None:
    app = Tailrace({"a": agent}, database, worker=False, keep_events=timedelta(0))
    async with app.running():
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "retention"]
    app._worker = True
    async with asyncio.timeout(DEADLINE), app.running():
        await until(lambda: any(task.get_name() == "retention" for task in asyncio.all_tasks()))
