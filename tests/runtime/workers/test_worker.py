"""Processes end between any two steps, and another process finishes what they began."""

from __future__ import annotations

import asyncio
import gc
import os
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from tailrace.app import Tailrace
from tailrace.buses.local import LocalBus
from tailrace.core.errors import CallerError, StorageBusy, StorageError
from tailrace.core.fold import State
from tailrace.core.run_object import client_view
from tailrace.core.state import TaskNode
from tailrace.models import Scripted, call, say
from tailrace.ports import Batch, Claim
from tailrace.runtime.agents.agent import Agent
from tailrace.runtime.agents.functions import AgentFunction, restartable
from tailrace.runtime.diagnostics import crash_points
from tailrace.runtime.event_log import wakeups
from tailrace.runtime.event_log.emitter import Emitter
from tailrace.runtime.followers import tail
from tailrace.runtime.runs.all_runs import Runs
from tailrace.runtime.tasks.task import Task
from tailrace.runtime.workers.worker import Worker
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.follow_kit.setup import CountingStore
from tailrace.testing.waiting import until
from tests import forked
from tests.runtime.workers.crashing import AGENTS, LEASE, RUN
from tests.runtime.workers.processes import opened_runs, worker_of

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
    "park.after": "ask",
}
"""What a process has to do to come to each place."""


def test_every_crash_point_has_a_scenario() -> None:
    assert set(SCENARIOS) == set(crash_points.POINTS)


@pytest.mark.parametrize(
    ("point", "times"),
    [(point, 1) for point in crash_points.POINTS]
    + [(point, n) for point in ("append.before", "append.after", "publish.after") for n in (2, 3)],
)
async def test_a_process_that_ends_there_loses_nothing_that_was_shown(
    tmp_path: Path, point: str, times: int
) -> None:
    database = tmp_path / "log.db"
    done = await asyncio.to_thread(
        forked.run,
        *("-m", "tests.runtime.workers.crashing", database, SCENARIOS[point]),
        env={**os.environ, "TAILRACE_CRASH_AT": f"{point}:{times}"},
    )
    assert done.returncode == crash_points.STATUS, done.stderr
    shown = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.endswith("}"))
    async with asyncio.timeout(120):
        await finish(database, point, shown)


async def finish(database: Path, point: str, shown: dict[str, str]) -> None:
    """Let another process take over, and compare the log with what the first process showed."""
    runs = Runs(
        SqliteStore(database),
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
        if SCENARIOS[point] == "ask":
            await runs.send(RUN, {"request_id": "r1"})
        if SCENARIOS[point] == "answer":
            # Acknowledged means acted upon: the agent had it, and can't be asked again.
            assert await runs.store.letters([RUN]) == {}
        assert await runs.reader.ended(RUN, 120)
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


def test_an_unknown_crash_point_is_refused_and_unset_costs_nothing() -> None:
    with pytest.raises(ValueError, match=r"nowhere"):
        crash_points.armed("nowhere:1")
    crash_points.armed("")("append.before")
    crash_points.armed("append.after:2")("append.after")


async def test_a_worker_has_no_more_runs_than_it_may(tmp_path: Path) -> None:
    at_once: list[int] = []
    working: set[str] = set()

    async def counted(task: Task) -> None:
        working.add(task.task_id)
        at_once.append(len(working))
        await task.drain()
        working.discard(task.task_id)

    store, bus = SqliteStore(tmp_path / "log.db"), LocalBus()
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
        assert await runs.reader.ended(run_id, 120)
    await worker.stop()
    await runs.close()
    assert len(at_once) == 20
    assert max(at_once) <= 3


def runs_of(store: Any, agents: dict[str, AgentFunction], name: str = "", **options: Any) -> Runs:
    """What one process has."""
    ids = iter(range(1000))
    return Runs(
        store,
        LocalBus(),
        agents,
        new_id=lambda: f"{name}{next(ids)}",
        now=lambda: 1.0,
        **{"lease": LEASE, **options},
    )


@asynccontextmanager
async def process(
    store: Any, agents: dict[str, AgentFunction], name: str = "", **options: Any
) -> AsyncIterator[Runs]:
    runs = runs_of(store, agents, name, **options)
    async with opened_runs(runs):
        yield runs


async def has_written(runs: Runs, run_id: str) -> None:
    """Wait until the run's agent has written something durable."""
    async for batch in runs.follow(run_id):
        if batch and batch[-1].event.sequence_number > 2:
            return


async def ended(runs: Runs, run_id: str) -> tuple[str, int]:
    """How the run ended, and how many attempts were counted."""
    assert await runs.reader.ended(run_id, 120)
    shown = client_view(await runs.state(run_id))
    return shown.get("error", {}).get("code", shown["status"]), (await runs.info(run_id)).attempts


async def test_an_agent_that_blocks_the_event_loop_costs_no_other_run_and_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = tmp_path / "log.db"
    lease = 6 * LEASE  # a busy machine may let no thread work for a second
    blocked = asyncio.Event()
    stolen: list[Claim] = []

    async def steal() -> None:
        """What a worker in another process does while this worker is blocked."""
        other = SqliteStore(database)
        until = time.monotonic() + 2 * lease
        while time.monotonic() < until:
            stolen.extend(await other.claim("thief", ["patient", "blocking"], 60, 9))
            await asyncio.sleep(lease / 5)
        await other.close()

    async def patient(task: Task) -> None:
        task.notice("Here.")
        await blocked.wait()

    async def blocking(_task: Task) -> None:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(asyncio.run, steal()).result(20)  # blocks the loop: that is the point
        blocked.set()

    agents: dict[str, AgentFunction] = {"patient": patient, "blocking": blocking}
    async with process(SqliteStore(database), agents, lease=lease) as runs:
        waiting = await runs.start("patient", "?")
        await has_written(runs, waiting)
        culprit = await runs.start("blocking", "?")
        for run_id in (waiting, culprit):
            assert await ended(runs, run_id) == ("completed", 1)
    assert not stolen
    assert "agent blocking blocks the event loop at" in caplog.text
    assert "agent patient" not in caplog.text


async def test_a_worker_keeps_its_runs_when_the_store_was_away_for_longer_than_the_lease(
    tmp_path: Path,
) -> None:
    again = asyncio.Event()

    async def agent(task: Task) -> None:
        task.notice("Before.")
        await task.drain()
        away.set()
        task.notice("Meanwhile.")
        await task.drain()
        again.set()

    away = asyncio.Event()
    store = CountingStore(SqliteStore(tmp_path / "log.db"))
    async with process(store, {"a": agent}) as runs:
        run_id = await runs.start("a", "?")
        await away.wait()
        # Claims still work: the worker finds its own run, whose lease has ended.
        busy = StorageBusy("The store is away.")
        store.fail = lambda name: busy if name in ("append", "extend") else None
        await asyncio.sleep(3 * LEASE)  # the lease ends meanwhile: that is the point
        assert not again.is_set()
        store.fail = lambda _: None
        assert await ended(runs, run_id) == ("completed", 1)


async def test_leases_are_extended_after_a_run_has_ended_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extending, let_go, extended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def short(_: Task) -> None:
        await extending.wait()

    async def long(_: Task) -> None:
        await extended.wait()

    async with process(SqliteStore(tmp_path / "log.db"), {"short": short, "long": long}) as runs:
        store, worker = runs.store, worker_of(runs)
        extend = store.extend

        async def slowly(*given: Any) -> set[str]:
            if let_go.is_set():
                extended.set()
            extending.set()
            await let_go.wait()
            return await extend(*given)

        run_ids = [await runs.start(agent, "?") for agent in ("long", "short")]
        await until(lambda: len(worker.runs) == 2)
        monkeypatch.setattr(store, "extend", slowly)
        await until(lambda: worker.runs == run_ids[:1])
        let_go.set()
        for run_id in run_ids:
            assert await ended(runs, run_id) == ("completed", 1)
    assert worker._metrics.lost_runs == 0


async def test_leases_are_extended_after_a_run_was_lost_before_its_agent_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, lost, extended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    called: list[str] = []

    async def agent(task: Task) -> None:
        called.append(task.run_id)
        await extended.wait()

    async with process(SqliteStore(tmp_path / "log.db"), {"a": agent}) as runs:
        store, worker = runs.store, worker_of(runs)
        extend, read = store.extend, store.read_private

        async def counted(*given: Any) -> set[str]:
            extended.set()
            return await extend(*given)

        async def slowly(*given: Any) -> Any:
            reading.set()
            await lost.wait()
            return await read(*given)

        first = await runs.start("a", "?")
        await until(lambda: called == [first])
        monkeypatch.setattr(store, "read_private", slowly)
        second = await runs.start("a", "?")
        await reading.wait()
        assert await store.take_over(second, "thief", 60.0) is not None
        await until(lambda: worker._metrics.lost_runs == 1)
        monkeypatch.setattr(store, "extend", counted)
        lost.set()
        assert await ended(runs, first) == ("completed", 1)
        await until(lambda: worker.runs == [])
    assert called == [first]


async def test_leases_are_extended_after_an_error_that_is_not_the_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    extended = asyncio.Event()

    async def agent(_: Task) -> None:
        await extended.wait()

    async with process(SqliteStore(tmp_path / "log.db"), {"a": agent}) as runs:
        store = runs.store
        extend = store.extend

        async def well(*given: Any) -> set[str]:
            extended.set()
            return await extend(*given)

        async def badly(*_: Any) -> set[str]:
            monkeypatch.setattr(store, "extend", well)
            raise RuntimeError("What is this?")

        monkeypatch.setattr(store, "extend", badly)
        assert await ended(runs, await runs.start("a", "?")) == ("completed", 1)
    assert "failed to extend its leases" in caplog.text


async def test_a_run_that_is_begun_and_followed_asks_the_store_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "POLL_SECONDS", 60.0)

    async def agent(task: Task) -> None:
        await task.chain()
        for number in range(5):
            task.notice(f"notice {number}")
            await task.drain()

    store = CountingStore(SqliteStore(tmp_path / "log.db"))
    async with process(store, {"a": agent}) as runs:
        run_id = await runs.start("a", "?")
        assert [event async for batch in runs.follow(run_id) for event in batch]
        counts = Counter(name for name, _ in store.calls)
    names = ("snapshot", "read_private", "read_lines", "info", "heads", "read")
    assert {name: counts[name] for name in names} == {**dict.fromkeys(names, 1), "snapshot": 0}


async def test_a_new_run_costs_the_other_runs_nothing(tmp_path: Path) -> None:
    store = CountingStore(SqliteStore(tmp_path / "log.db"))
    runs = runs_of(store, AGENTS, worker=False)
    worker = Worker(store, runs.bus, AGENTS, name="w", poll=60.0)
    worker.start()
    try:
        await until(lambda: _count(store, "claim") == 1)
        for number in range(3):
            await runs.start("endless", "?", run_id=f"run_{number}")
            await until(lambda: len(worker.runs) == number + 1)  # noqa: B023
        await until(lambda: _count(store, "letters") == 3)
        assert [args for name, args in store.calls if name == "letters"] == [
            ([f"run_{number}"],) for number in range(3)
        ]
        await runs.cancel("run_1")
        await until(lambda: worker.runs == ["run_0", "run_2"])
    finally:
        await worker.stop()


async def test_a_lost_hint_is_made_up_for_although_other_hints_come(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "log.db")
    runs = runs_of(store, AGENTS, worker=False)
    worker = Worker(store, runs.bus, AGENTS, name="w")
    worker.start()
    try:
        await runs.start("endless", "?", run_id="run_1")
        await until(lambda: worker.runs == ["run_1"])
        await store.post("run_1", "cancel", b"{}")  # without a hint
        async with asyncio.timeout(10):
            while worker.runs:
                wakeups.wake(runs.bus, wakeups.WORKERS, "run_2")
                await asyncio.sleep(0.01)
    finally:
        await worker.stop()


async def test_a_hint_that_its_own_process_sends_lets_a_worker_look_once(tmp_path: Path) -> None:
    store, bus = CountingStore(SqliteStore(tmp_path / "log.db")), LocalBus()
    worker = Worker(store, bus, {}, name="w", poll=60.0)
    worker.start()
    looked = partial(_count, store, "claim")
    try:
        await until(lambda: looked() >= 1)
        worker.wake()
        wakeups.wake(bus, wakeups.WORKERS, "run_1")
        await until(lambda: looked() >= 2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert looked() == 2
        wakeups.wake(bus, wakeups.WORKERS, "run_1")  # of another process
        await until(lambda: looked() >= 3)
    finally:
        await worker.stop()
        await store.close()
    assert not len(bus)


def _count(store: CountingStore, name: str) -> int:
    return sum(called == name for called, _ in store.calls)


async def test_workers_leave_each_other_their_runs_when_the_store_was_away_for_all_of_them(
    tmp_path: Path,
) -> None:
    async def agent(task: Task) -> None:
        task.notice("Before.")
        await task.drain()
        await again.wait()

    again = asyncio.Event()
    busy = StorageBusy("The store is away.")
    stores = [CountingStore(SqliteStore(tmp_path / "log.db")) for _ in range(2)]
    first, second = stores
    async with process(first, {"a": agent}, "first") as runs:
        run_id = await runs.start("a", "?")
        await has_written(runs, run_id)
        async with process(second, {"a": agent}, "second") as others:
            await until(lambda: any(name == "claim" for name, _ in second.calls))
            for store in stores:
                store.fail = lambda _: busy
            second.calls.clear()
            await asyncio.sleep(3 * LEASE)  # the lease ends meanwhile: that is the point
            # A claim that is sent now could still take effect later, when its sender has gone on.
            assert second.calls
            assert not any(name == "claim" for name, _ in second.calls)
            for store in stores:
                store.fail = lambda _: None
            assert others.worker is not None
            others.worker.wake()  # it looks before the first worker has extended its lease
            await until(lambda: any(_claims_of_lost_runs(second)))
            assert not _claims_of_lost_runs(second)[0]
            again.set()
            assert await ended(runs, run_id) == ("completed", 1)


async def test_a_worker_whose_call_waited_for_the_store_leaves_lost_runs_to_their_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, waiting, back = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def agent(_: Task) -> None:
        begun.set()
        await back.wait()

    store = CountingStore(SqliteStore(tmp_path / "log.db"))
    async with process(store, {"a": agent}) as runs:
        letters = runs.store.letters

        async def late(*given: Any) -> Any:
            """Like a pool of connections: it waits for the store, and the call succeeds."""
            waiting.set()
            await back.wait()
            return await letters(*given)

        await runs.start("a", "?")
        await begun.wait()  # from now on only the worker looks for letters
        monkeypatch.setattr(runs.store, "letters", late)
        await waiting.wait()
        await asyncio.sleep(LEASE)  # longer than half a lease: that is the point
        store.calls.clear()
        back.set()
        await until(lambda: bool(_claims_of_lost_runs(store)))
        assert not _claims_of_lost_runs(store)[0]


async def test_a_new_run_need_not_wait_for_leases_that_ended_while_the_store_was_away(
    tmp_path: Path,
) -> None:
    begun = asyncio.Event()

    async def agent(_: Task) -> None:
        begun.set()

    busy = StorageBusy("The store is away.")
    store = CountingStore(SqliteStore(tmp_path / "log.db"))
    async with process(store, {"a": agent}) as runs:
        store.fail = lambda _: busy
        await asyncio.sleep(LEASE)  # longer than half a lease: that is the point
        other = runs_of(SqliteStore(tmp_path / "log.db"), {"a": agent}, "new")
        await other.start("a", "?")
        await other.close()
        store.calls.clear()
        store.fail = lambda _: busy if any(_claims_of_lost_runs(store)) else None
        assert runs.worker is not None
        runs.worker.wake()
        await begun.wait()


def _claims_of_lost_runs(store: CountingStore) -> list[bool]:
    """Of each claim, whether it took lost runs, too."""
    return [args[-1] for name, args in store.calls if name == "claim"]


async def test_a_batch_that_the_store_refuses_holds_up_no_other_run(tmp_path: Path) -> None:
    async def agent(task: Task) -> None:
        task.notice(task.input)
        await task.drain()

    store = SqliteStore(tmp_path / "log.db")
    append = store.append

    async def refusing(batches: list[Batch]) -> list[Exception | None]:
        answers = await append([one for one in batches if b"poison" not in b"".join(one.publics)])
        rest = iter(answers)
        refusal = StorageError("This batch cannot be kept.")
        return [refusal if b"poison" in b"".join(one.publics) else next(rest) for one in batches]

    store.append = refusing  # type: ignore[method-assign]
    async with process(store, {"a": agent}) as runs:
        await runs.start("a", "poison")
        begun = time.monotonic()
        assert await ended(runs, await runs.start("a", "?")) == ("completed", 1)
        assert time.monotonic() - begun < 30


async def test_an_error_of_the_store_that_stays_is_logged_once_and_not_at_every_look(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def agent(_task: Task) -> None:
        pass

    path = tmp_path / "log.db"
    store: Any = CountingStore(SqliteStore(path))
    other = apsw.Connection(str(path))
    other.execute("alter table runs rename to gone")
    worker = Worker(store, LocalBus(), {"a": agent}, name="w", poll=0.01, lease=0.03)
    worker.start()
    async with asyncio.timeout(120):
        await until(lambda: len(store.calls) >= 20)
        # With so short a lease, a busy machine also looks like an agent that blocks the event loop.
        lines = [text for text in caplog.messages if text.startswith("worker w")]
        assert [text.partition(":")[0] for text in lines] == ["worker w cannot look for runs"]
        other.execute("alter table gone rename to runs")
        await worker.stop()
    other.close()
    await store.close()


async def test_restarts_of_a_worker_do_not_count_as_attempts(tmp_path: Path) -> None:
    async def agent(task: Task) -> None:
        task.notice("Here.")
        await task.drain()
        if len(starts) < 20:
            starts.append(task.task_id)
            await asyncio.sleep(3600)

    starts: list[str] = []
    agents: dict[str, AgentFunction] = {"a": restartable(agent)}
    async with process(SqliteStore(tmp_path / "log.db"), agents, worker=False) as server:
        run_id = await server.start("a", "?")
        for number in range(20):
            async with process(SqliteStore(tmp_path / "log.db"), agents, str(number)):
                await until(lambda wanted=number + 1: len(starts) == wanted)  # type: ignore[misc]
        async with process(SqliteStore(tmp_path / "log.db"), agents, "last"):
            assert await ended(server, run_id) == ("completed", 1)


async def test_how_many_workers_may_lose_a_run_is_a_setting(tmp_path: Path) -> None:
    async def agent(_task: Task) -> None:
        pass

    agents: dict[str, AgentFunction] = {"a": restartable(agent)}
    for limit, outcome in ((1, "too_many_attempts"), (2, "completed")):
        store = SqliteStore(tmp_path / f"{limit}.db")
        runs = runs_of(store, agents, max_attempts=limit)
        run_id = await runs.start("a", "?")
        assert await store.take_over(run_id, "the dead", 0.0) is not None
        runs.open()
        assert await ended(runs, run_id) == (outcome, 2)
        assert (runs.metrics.claims, runs.metrics.takeovers) == (1, 1)
        await runs.close()
    with pytest.raises(CallerError, match="max_attempts"):
        Tailrace(agents, max_attempts=0)
    app = Tailrace(agents, tmp_path / "app.db", lease=timedelta(seconds=2), max_attempts=1)
    async with app.running():
        run_id = await app._runs.start("a", "?")
        assert await ended(app._runs, run_id) == ("completed", 1)


async def test_rows_are_joined_while_a_run_goes_on_and_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.runtime.event_log.emitter.BATCHES_TO_JOIN", 8)
    monkeypatch.setattr("tailrace.runtime.workers.row_joiner.LATER_SECONDS", 0.01)
    go_on = asyncio.Event()

    async def talker(task: Task) -> None:
        for number in range(20):
            task.notice(str(number))
            await task.drain()
        await go_on.wait()
        for number in range(3):
            task.notice(str(number))
            await task.drain()

    store = SqliteStore(tmp_path / "log.db")
    runs = Runs(store, LocalBus(), {"talker": talker}, new_id=lambda: "9", now=lambda: 1.0)
    runs.open()

    repack, joined = store.repack, asyncio.Queue[int]()

    async def watched(run_id: str) -> None:
        await store._sweep()  # as after many rows
        await repack(run_id)
        joined.put_nowait(len(await store.read_lines(run_id, 0)))

    monkeypatch.setattr(store, "repack", watched)
    try:
        async with asyncio.timeout(120):
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


async def test_the_state_of_an_ended_run_is_freed_without_the_garbage_collector() -> None:
    """The collector counts objects: a cycle with a few large texts would wait for it for long."""
    writers: list[weakref.ref[Emitter]] = []

    async def speaks(task: Task) -> str:
        writers.append(weakref.ref(task._sink.emitter))
        return "Hello."

    app = Tailrace({"speaks": speaks}, "sqlite://:memory:")
    async with app.running():
        gc.disable()
        try:
            await (await app.start("speaks", "?")).result()
            async with asyncio.timeout(30):
                await until(lambda: writers[0]() is None)
        finally:
            gc.enable()


async def test_an_agents_state_with_sub_agents_is_freed_without_the_garbage_collector() -> None:
    """Neither the cycle of a task and its parent nor a timer of a model call keeps it."""
    below = Agent("below", model=Scripted([say("Below.")]))
    above = Agent(
        "above",
        model=Scripted([call("below", prompt="?")], [say("Above.")]),
        tools=[below.as_tool()],
    )
    app = Tailrace([above], "sqlite://:memory:")

    def count() -> int:
        return sum(type(found) is TaskNode for found in gc.get_objects())

    async with app.running():
        gc.collect()
        gc.disable()
        try:
            before = count()
            await (await app.start("above", "?")).result()
            async with asyncio.timeout(30):
                await until(lambda: count() <= before)
        finally:
            gc.enable()
