"""Runs of one principal do not delay those of another."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.buses.local import LocalBus
from tailrace.core.codec import encode_event
from tailrace.core.events import TaskCreated, recorded
from tailrace.ports import NewRun
from tailrace.runtime.runs.all_runs import Runs
from tailrace.runtime.runs.quota import LimitReached, RunQuota
from tailrace.runtime.tasks.task import Task
from tailrace.runtime.workers.worker import Worker
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.waiting import until


async def sleeps(task: Task) -> None:
    await asyncio.Event().wait()


async def answers(task: Task) -> str:
    return "Here."


async def filled(store: SqliteStore, owner: str, count: int) -> None:
    """Runs of an owner that wait for a worker."""
    for start in range(0, count, 500):
        await asyncio.gather(
            *(
                store.create(
                    NewRun(
                        run_id=f"{owner}{n}",
                        agent="sleeps",
                        thread_id=f"t{n}",
                        owner=owner,
                        public=encode_event(
                            recorded(TaskCreated(task_id=f"{owner}{n}", agent="sleeps"), 1)
                        ),
                    )
                )
                for n in range(start, min(start + 500, count))
            )
        )


async def test_5000_sleeping_runs_of_one_principal_do_not_delay_anothers() -> None:
    store = await SqliteStore.open(":memory:")
    agents = {"sleeps": sleeps, "answers": answers}
    ids = iter(range(100))
    runs = Runs(
        store, LocalBus(), agents, new_id=lambda: str(next(ids)), now=lambda: 1.0, worker=False
    )
    await filled(store, "ann", 5000)
    worker = Worker(store, runs.bus, agents, name="w", max_runs=16)
    worker.start()
    try:
        async with asyncio.timeout(60):
            await until(lambda: len(worker.runs) == 8)  # half of the slots, and no more
            info = await runs.of("bob").create("answers", "?")
            assert await runs.reader.ended(info.run_id, 30)
            # A second principal that sleeps gets half of the rest, and a third still finds a slot.
            await filled(store, "eve", 100)
            worker.wake()
            await until(lambda: sum(one.startswith("eve") for one in worker.runs) == 4)
            info = await runs.of("bob").create("answers", "?")
            assert await runs.reader.ended(info.run_id, 30)
            await until(lambda: len(worker.runs) == 12)
    finally:
        await worker.stop()
        await runs.close()


async def test_the_limit_of_unfinished_runs_holds_for_all_processes() -> None:
    store = await SqliteStore.open(":memory:")
    await filled(store, "ann", 3)  # as another process started them
    one, two = (RunQuota(store, "ann", 5) for _ in range(2))
    await one.take()
    await two.take()  # a run that starts elsewhere is counted when it is stored
    one.give()
    two.give()
    await filled(store, "annie", 9)
    await store.create(
        NewRun(run_id="more1", agent="sleeps", thread_id="t", owner="ann", public=b"{}")
    )
    await store.create(
        NewRun(run_id="more2", agent="sleeps", thread_id="t", owner="ann", public=b"{}")
    )
    for quota in (one, two):
        with pytest.raises(LimitReached, match="5 unfinished runs"):
            await quota.take()
    await store.close()
