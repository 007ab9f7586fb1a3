"""A process that ends at a crash point.

    python -m tests.runtime.workers.crashing DATABASE SCENARIO

It prints what its own follower was shown, line by line, so that the test can hold it against the
log.
"""

from __future__ import annotations

import asyncio
import sys

from tailrace.buses.local import LocalBus
from tailrace.core.events import TaskInProgress, TaskInputRequired
from tailrace.core.items import InputRequest
from tailrace.runtime.agents.functions import restartable
from tailrace.runtime.event_log.pipeline import Pipeline
from tailrace.runtime.event_log.whole_state import whole_state
from tailrace.runtime.runs import all_runs as running
from tailrace.runtime.runs.all_runs import Runs
from tailrace.runtime.tasks.inbox import receive
from tailrace.runtime.tasks.task import Task
from tailrace.runtime.workers import worker as working
from tailrace.stores.sqlite.store import SqliteStore

RUN = "run_1"
LEASE = 0.5


async def quick(task: Task) -> None:
    with task.message() as message:
        for word in ("One ", "two ", "three."):
            message.text(word)
            await task.drain()


async def endless(task: Task) -> None:
    with task.message() as message:
        while True:
            message.text("tick ")
            await task.drain()
            await asyncio.sleep(0.01)


async def listening(task: Task) -> None:
    await receive(task)
    await quick(task)


async def asking(task: Task) -> None:
    request = InputRequest(id="r1", kind="input", message="Which city?")
    task.emit(TaskInputRequired(task_id=task.task_id, requests=[request]))
    await listening(task)


AGENTS = {
    "asking": asking,
    "quick": quick,
    "endless": endless,
    "listening": listening,
    "again": restartable(quick),
    "endless again": restartable(endless),
}


async def show(runs: Runs) -> None:
    async for batch in runs.follow(RUN):
        for one in batch:
            sys.stdout.write(f"{one.event.sequence_number} {one.public.decode()}\n")
        sys.stdout.flush()


async def spoken(runs: Runs) -> None:
    async for batch in runs.follow(RUN):
        if batch and batch[-1].event.sequence_number > 4:
            return


async def scenario(name: str, runs: Runs) -> None:
    agents = {
        "run": "quick",
        "answer": "listening",
        "ask": "asking",
        "recover": "again",
        "stop": "endless again",
    }
    await runs.start(agents.get(name, "endless"), "?", run_id=RUN)
    showing = asyncio.ensure_future(show(runs))
    if name == "answer":
        await runs.send(RUN, "go on")
    elif name in ("cancel", "take over", "stop"):
        if name != "take over":
            await spoken(runs)
        if name == "stop":
            await runs.close()
            return
        running.CANCEL_SECONDS = 0.1 if name == "take over" else 5.0
        await runs.cancel(RUN)
    elif name == "recover":
        claim = await runs.store.take_over(RUN, "the dead", 0.1)
        assert claim is not None
        state = await whole_state(runs.store, RUN)
        task = Task(Pipeline(runs.store, runs.bus).writer(RUN, claim.epoch, state), RUN)
        task.emit(TaskInProgress(task_id=RUN))
        task.message().__enter__().text("Half")
        await task.drain()
        runs.open()
    await showing


async def main(database: str, name: str) -> None:
    working.FIRST_GO_SECONDS = LEASE
    store = SqliteStore(database)
    ids = iter(range(100))
    runs = Runs(
        store,
        LocalBus(),
        AGENTS,
        new_id=lambda: str(next(ids)),
        now=lambda: 1.0,
        worker=name != "take over",
        lease=LEASE,
    )
    if name != "recover":
        runs.open()
    await scenario(name, runs)
    await runs.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
