"""Processes end at every edge between two steps, and another one finishes what they began."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.buses.local import LocalBus
from tailrace.core.fold import State
from tailrace.core.view import client_view
from tailrace.runtime import crash
from tailrace.runtime.runs import Runs
from tailrace.runtime.task import TaskWriter
from tailrace.runtime.worker import Worker
from tailrace.stores.sqlite import SqliteLog
from tests.runtime.crashing import AGENTS, LEASE, RUN

ROOT = Path(__file__).parents[2]

SCENARIOS = {
    "create.before": "run",
    "create.after": "run",
    "claim.after": "run",
    "append.before": "run",
    "append.after": "run",
    "publish.after": "run",
    "recover.after": "recover",
    "post.before": "cancel",
    "post.after": "cancel",
    "acknowledge.before": "cancel",
    "acknowledge.after": "answer",
    "take_over.after": "take over",
    "release.before": "stop",
}
"""What a process has to do to come to each place."""


def test_every_crash_point_has_a_scenario() -> None:
    assert set(SCENARIOS) == set(crash.POINTS)


@pytest.mark.parametrize(
    ("point", "times"),
    [(point, 1) for point in crash.POINTS]
    + [(point, n) for point in ("append.before", "append.after", "publish.after") for n in (2, 3)],
)
async def test_a_process_that_ends_there_loses_nothing_that_was_shown(
    tmp_path: Path, point: str, times: int
) -> None:
    database = tmp_path / "log.db"
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tests.runtime.crashing", str(database), SCENARIOS[point]],
        cwd=ROOT,
        env={**os.environ, "TAILRACE_CRASH_AT": f"{point}:{times}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == crash.STATUS, done.stderr
    shown = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.endswith("}"))
    async with asyncio.timeout(60):
        await finish(database, point, shown)


async def finish(database: Path, point: str, shown: dict[str, str]) -> None:
    """Let another process take over, and hold the log against what the first one showed."""
    runs = Runs(
        SqliteLog(database),
        LocalBus(),
        AGENTS,
        new_id=lambda: "9",
        now=lambda: 1.0,
        lease=LEASE,
    )
    runs.open()
    try:
        info = await runs.store.info(RUN)
        if point == "create.before":
            assert info is None
            return
        assert info is not None
        if info.agent == "endless again" or point == "post.before":
            await runs.cancel(RUN)
        if SCENARIOS[point] == "answer":
            # Acknowledged means acted upon: the agent had it, and can't be asked again.
            assert await runs.store.letters([RUN]) == {}
        assert await runs.reader.ended(RUN, 30)
        state = State()
        for one in await runs.store.read(RUN, 0):
            state.apply(one.event)
            seen = shown.pop(str(one.event.sequence_number), one.public.decode())
            assert seen == one.public.decode()
        assert not shown
        view = client_view(state)
        cancelled = SCENARIOS[point] in ("cancel", "take over", "stop")
        if cancelled and point != "post.before":
            assert view["status"] == "cancelled"
        elif SCENARIOS[point] == "recover":
            assert (view["status"], view["attempt"]) == ("completed", 3)
        elif point in ("create.after", "claim.after") or (
            point == "append.before" and view["status"] == "completed"
        ):
            assert view["status"] == "completed"
        elif view["status"] == "failed":
            assert view["error"]["code"] == "interrupted"
    finally:
        await runs.close()


def test_a_crash_point_that_is_none_is_refused_and_unset_costs_nothing() -> None:
    with pytest.raises(ValueError, match=r"nowhere"):
        crash.armed("nowhere:1")
    crash.armed("")("append.before")
    crash.armed("append.after:2")("append.after")


async def test_a_worker_has_no_more_runs_than_it_may(tmp_path: Path) -> None:
    at_once: list[int] = []
    working: set[str] = set()

    async def counted(task: TaskWriter) -> None:
        working.add(task.task_id)
        at_once.append(len(working))
        await task.drain()
        working.discard(task.task_id)

    store, bus = SqliteLog(tmp_path / "log.db"), LocalBus()
    ids = iter(range(1000))
    runs = Runs(
        store,
        bus,
        {"a": counted},
        new_id=lambda: str(next(ids)),
        now=lambda: 1.0,
        worker=False,
    )
    started = [await runs.start("a", n) for n in range(20)]
    worker = Worker(store, bus, {"a": counted}, name="w", max_runs=3)
    worker.start()
    for run_id in started:
        assert await runs.reader.ended(run_id, 30)
    await worker.stop()
    await runs.close()
    assert len(at_once) == 20
    assert max(at_once) <= 3


async def test_rows_are_joined_while_a_run_goes_on_and_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.runtime.pipeline.CRUMBS", 8)
    monkeypatch.setattr("tailrace.runtime.worker.TIDY_SECONDS", 0.01)
    go_on = asyncio.Event()

    async def talker(task: TaskWriter) -> None:
        for number in range(20):
            task.notice(str(number))
            await task.drain()
        await go_on.wait()
        for number in range(3):
            task.notice(str(number))
            await task.drain()

    store = SqliteLog(tmp_path / "log.db")
    runs = Runs(store, LocalBus(), {"talker": talker}, new_id=lambda: "9", now=lambda: 1.0)
    runs.open()

    repack, joined = store.repack, asyncio.Queue[int]()

    async def watched(run_id: str) -> None:
        await repack(run_id)
        joined.put_nowait(len(await store.read_lines(run_id, 0)))

    monkeypatch.setattr(store, "repack", watched)
    try:
        async with asyncio.timeout(30):
            run_id = await runs.start("talker", {})
            rows = await joined.get()
            assert rows < (await runs.info(run_id)).last_seq - 4  # some were written meanwhile
            go_on.set()
            async for _ in runs.follow(run_id):
                pass
            while await joined.get() > 2:  # its first event is of an epoch of its own
                pass
    finally:
        await runs.close()
