"""A run that waits for people holds no lease and no slot, and goes on when the answer comes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.buses.local import LocalBus
from tailrace.core.events import TaskInputRequired
from tailrace.core.items import ErrorInfo, InputRequest
from tailrace.core.run_object import client_view
from tailrace.runtime.agents.functions import AgentFunction, restartable
from tailrace.runtime.runs import all_runs as running
from tailrace.runtime.runs.all_runs import Runs
from tailrace.runtime.tasks.inbox import receive
from tailrace.runtime.tasks.task import Task
from tailrace.runtime.workers.worker import Worker
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.waiting import until
from tests.runtime.workers.processes import opened_runs, worker_of

LEASE = 0.5

ANSWER = {"request_id": "r1", "value": "Paris"}

_ids = itertools.count(1)


def ask(task: Task) -> None:
    request = InputRequest(id="r1", kind="input", message="Which city?")
    task.emit(TaskInputRequired(task_id=task.task_id, requests=[request]))


async def asking(task: Task) -> None:
    """Asks once, also when it is called again, and repeats the answer."""
    if not task._sink.node.requests:
        ask(task)
    answer = await receive(task)
    with task.message() as message:
        message.text(str(answer["value"]))


async def both(task: Task) -> None:
    """Waits for its answer, then reads the other input."""
    answer = await task.ask(InputRequest(id="r1", kind="input", message="Which city?"))
    task.say(f"{answer.value}, {(await receive(task))['value']}")


async def side_by_side(task: Task) -> None:
    """Waits for its answer and for other input at the same time."""
    request = InputRequest(id="r1", kind="input", message="Which city?")
    answer, other = await asyncio.gather(task.ask(request), receive(task))
    task.say(f"{answer.value}, {other['value']}")


async def impatient(task: Task) -> None:
    """Waits only for a while."""
    ask(task)
    try:
        await asyncio.wait_for(receive(task), LEASE)
    except TimeoutError:
        await asyncio.sleep(3 * LEASE)  # longer than a lease: it has to be kept again
        task.fail(ErrorInfo(code="no_answer", message="No city."))


async def quick(task: Task) -> None:
    with task.message() as message:
        message.text("Done.")


AGENTS: dict[str, AgentFunction] = {
    "asking": asking,
    "again": restartable(asking),
    "both": restartable(both),
    "side by side": side_by_side,
    "impatient": impatient,
    "quick": quick,
}


@asynccontextmanager
async def process(database: Path, *, worker: bool = True) -> AsyncIterator[Runs]:
    runs = Runs(
        SqliteStore(database),
        LocalBus(),
        AGENTS,
        new_id=lambda: f"{next(_ids):08}",
        now=lambda: 1.0,
        worker=worker,
        lease=LEASE,
    )
    async with opened_runs(runs):
        yield runs


async def parked_again(worker: Worker, run_ids: list[str], letter: int) -> None:
    """Wait until these runs are parked and have read the letter with this number."""
    await until(
        lambda: (
            sorted(worker.parked) == sorted(run_ids)
            and all(live.last_letter == letter for live in worker._parked.values())
        )
    )


async def outcome(runs: Runs, run_id: str) -> tuple[str, int]:
    assert await runs.reader.ended(run_id, 120)
    shown: dict[str, Any] = client_view(await runs.state(run_id))
    ending = shown.get("error", {}).get("code") or shown.get("reason")
    if not ending:
        ending = shown["output"][-1]["block_list"][0]["text"]
    return ending, (await runs.info(run_id)).attempts


async def test_runs_that_wait_for_people_hold_no_slot(tmp_path: Path) -> None:
    async with process(tmp_path / "log.db") as runs:
        worker = worker_of(runs)
        worker._max_runs = 3
        waiting = [await runs.start("asking", n) for n in range(20)]
        await until(lambda: len(worker.parked) == 20)
        assert worker.runs == []
        assert await outcome(runs, await runs.start("quick", "?")) == ("Done.", 1)
        await asyncio.sleep(2 * LEASE)  # they hold no lease that could end
        for run_id in waiting:
            await runs.send(run_id, ANSWER)
        for run_id in waiting:
            assert await outcome(runs, run_id) == ("Paris", 1)
        await until(lambda: worker.parked == worker.runs == [])


async def test_runs_with_a_letter_that_does_not_answer_them_hold_no_slot_and_lose_no_letter(
    tmp_path: Path,
) -> None:
    async with process(tmp_path / "log.db") as runs:
        worker = worker_of(runs)
        worker._max_runs = 3
        waiting = [await runs.start("both", n) for n in range(6)]
        await parked_again(worker, waiting, 0)
        for run_id in waiting:
            await runs.send(run_id, {"value": "by train"})
        await parked_again(worker, waiting, 1)
        assert await outcome(runs, await runs.start("quick", "?")) == ("Done.", 1)
        for run_id in waiting:
            await runs.send(run_id, ANSWER)
        for run_id in waiting:
            assert await outcome(runs, run_id) == ("Paris, by train", 1)
            assert await runs.store.letters([run_id]) == {}


@pytest.mark.parametrize("begins", ["before the question waits", "while the run is parked"])
async def test_a_run_is_not_parked_while_it_works_beside_its_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    begin, end = asyncio.Event(), asyncio.Event()

    async def works_beside(task: Task) -> None:
        async def work() -> str:
            await begin.wait()
            with task.at_work():
                await end.wait()
                return "by train"

        request = InputRequest(id="r1", kind="input", message="Which city?")
        answer, how = await asyncio.gather(task.ask(request), work())
        task.say(f"{answer.value}, {how}")

    monkeypatch.setitem(AGENTS, "works beside", works_beside)
    async with process(tmp_path / "log.db") as runs:
        worker = worker_of(runs)
        if begins == "before the question waits":
            begin.set()
        run_id = await runs.start("works beside", "?")
        if begins == "while the run is parked":
            await until(lambda: worker.parked == [run_id])
            begin.set()
        await until(lambda: worker.runs == [run_id] and worker._live[run_id].was_called)
        await asyncio.sleep(2 * LEASE)  # long enough to park it
        assert await outcome(runs, await runs.start("quick", "?")) == ("Done.", 1)
        assert (run_id in worker.runs, worker.parked) == (True, [])
        end.set()
        await until(lambda: worker.parked == [run_id])
        await runs.send(run_id, ANSWER)
        assert await outcome(runs, run_id) == ("Paris, by train", 1)


async def test_a_run_whose_letter_is_taken_is_not_parked_until_the_letter_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, acknowledged = asyncio.Event(), asyncio.Event()
    async with process(tmp_path / "log.db") as runs:
        acknowledge = runs.store.acknowledge

        async def held_back(run_id: str, number: int) -> None:
            taken.set()
            await acknowledged.wait()
            await acknowledge(run_id, number)

        monkeypatch.setattr(runs.store, "acknowledge", held_back)
        worker = worker_of(runs)
        run_id = await runs.start("side by side", "?")
        await until(lambda: worker.parked == [run_id])
        await runs.send(run_id, {"value": "by train"})
        await taken.wait()
        assert await outcome(runs, await runs.start("quick", "?")) == ("Done.", 1)
        assert (worker.parked, run_id in worker.runs) == ([], True)
        acknowledged.set()
        await parked_again(worker, [run_id], 1)
        await runs.send(run_id, ANSWER)
        assert await outcome(runs, run_id) == ("Paris, by train", 1)


async def test_the_worker_that_has_the_agent_goes_on_although_others_look_for_runs(
    tmp_path: Path,
) -> None:
    async with process(tmp_path / "log.db") as one:
        run_id = await one.start("asking", "?")
        await until(lambda: worker_of(one).parked == [run_id])
        async with process(tmp_path / "log.db"), process(tmp_path / "log.db") as other:
            await other.send(run_id, ANSWER)
            assert await outcome(other, run_id) == ("Paris", 1)


async def test_a_parked_run_is_cancelled_by_the_worker_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "CANCEL_SECONDS", 120.0)  # the canceller waits for the worker
    async with process(tmp_path / "log.db") as runs:
        run_id = await runs.start("asking", "?")
        await until(lambda: worker_of(runs).parked == [run_id])
        async with asyncio.timeout(60):
            await runs.cancel(run_id, "Enough.")
        assert await outcome(runs, run_id) == ("Enough.", 1)


async def test_an_agent_that_stops_waiting_has_its_lease_again(tmp_path: Path) -> None:
    async with process(tmp_path / "log.db") as runs:
        run_id = await runs.start("impatient", "?")
        await until(lambda: worker_of(runs).parked == [run_id])
        await until(lambda: worker_of(runs).runs == [run_id])
        async with process(tmp_path / "log.db"):
            assert await outcome(runs, run_id) == ("no_answer", 1)


@pytest.mark.parametrize(
    ("agent", "ending"),
    [("again", ("Paris", 2)), ("asking", ("interrupted", 2)), ("both", ("Paris, by train", 2))],
)
async def test_when_the_worker_of_a_parked_run_is_lost_the_answer_wakes_it_elsewhere(
    tmp_path: Path, agent: str, ending: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.runtime.workers.worker.FIRST_GO_SECONDS", LEASE)
    lost = Runs(
        SqliteStore(tmp_path / "log.db"),
        LocalBus(),
        AGENTS,
        new_id=lambda: "lost",
        now=lambda: 1.0,
        lease=LEASE,
    )
    lost.open()
    run_id = await lost.start(agent, "?")
    worker = worker_of(lost)
    await parked_again(worker, [run_id], 0)
    if agent == "both":
        await lost.send(run_id, {"value": "by train"})
        await parked_again(worker, [run_id], 1)
    for task in (*worker._loops, *worker._working):
        task.cancel()  # as a kill does: nothing is released, nothing is closed
    async with process(tmp_path / "log.db") as runs:
        await asyncio.sleep(2 * LEASE)
        assert (await runs.info(run_id)).attempts == 1  # it waits for people, not for a worker
        await runs.send(run_id, ANSWER)
        assert await outcome(runs, run_id) == ending
    await lost.close()


async def test_a_worker_that_stops_releases_parked_runs_or_ends_them(tmp_path: Path) -> None:
    async with process(tmp_path / "log.db", worker=False) as server:
        async with process(tmp_path / "log.db") as first:
            run_ids = [await server.start(agent, "?") for agent in ("again", "asking")]
            await until(lambda: sorted(worker_of(first).parked) == sorted(run_ids))
        assert await outcome(server, run_ids[1]) == ("interrupted", 1)
        async with process(tmp_path / "log.db"):
            await server.send(run_ids[0], ANSWER)
            assert await outcome(server, run_ids[0]) == ("Paris", 1)


async def test_a_run_that_a_stopping_worker_released_does_not_count_as_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, extended = asyncio.Event(), asyncio.Event()
    async with process(tmp_path / "log.db") as runs:
        store, worker = runs.store, worker_of(runs)
        extend, release = store.extend, store.release

        async def extend_after_release(*given: Any) -> set[str]:
            await released.wait()
            lost = await extend(*given)
            extended.set()
            return lost

        async def release_before_extend(*given: Any) -> None:
            await release(*given)
            released.set()
            async with asyncio.timeout(30):
                await extended.wait()

        run_id = await runs.start("again", "?")
        await until(lambda: worker.parked == [run_id])
        monkeypatch.setattr(store, "extend", extend_after_release)
        monkeypatch.setattr(store, "release", release_before_extend)
    assert extended.is_set()
    assert worker._metrics.lost_runs == 0


async def test_a_parked_run_that_another_process_ended_is_let_go(tmp_path: Path) -> None:
    async with process(tmp_path / "log.db") as runs:
        worker = worker_of(runs)
        run_id = await runs.start("asking", "?")
        await until(lambda: worker.parked == [run_id])
        assert await runs.store.take_over(run_id, "another", 60.0) is not None
        await until(lambda: worker.parked == worker.runs == [])
        await until(lambda: not worker._working)
