"""An answer reaches the task that asked for it, once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.buses.local import LocalBus
from tailrace.core.errors import CallerError, NotFound
from tailrace.core.events import TaskInputReceived, TaskInputRequired, TextDone
from tailrace.core.items import InputRequest
from tailrace.core.run_object import client_view
from tailrace.runtime.agents.functions import AgentFunction
from tailrace.runtime.runs.all_runs import Runs
from tailrace.runtime.tasks.call_writer import CallWriter
from tailrace.runtime.tasks.inbox import receive
from tailrace.runtime.tasks.task import Task
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.waiting import until
from tests.runtime.tasks.begun import begun_in
from tests.runtime.workers.processes import opened_runs

_ids = itertools.count(1)
_later = asyncio.Event()


def ask(task: Task, request_id: str) -> None:
    request = InputRequest(id=request_id, kind="approval")
    task.emit(TaskInputRequired(task_id=task.task_id, requests=[request]))


def say(task: Task, *answers: Any) -> None:
    with task.message() as message:
        message.text(" ".join(str(answer["value"]) for answer in answers))


async def twice(task: Task) -> None:
    ask(task, "r1")
    first = await receive(task)
    ask(task, "r2")
    say(task, first, await receive(task))


def calls_of(task: Task) -> list[CallWriter]:
    calls = []
    for _ in range(2):
        with task.call("delegate") as call:
            call.arguments("{}")
        calls.append(call)
    return calls


async def delegating(task: Task) -> None:
    """Two sub-agents wait at the same time."""

    async def child(call: CallWriter, request_id: str) -> None:
        with call.delegate("child") as writer:
            ask(writer, request_id)
            say(writer, await receive(writer))

    first, second = calls_of(task)
    await asyncio.gather(child(first, "r1"), child(second, "r2"))


async def one_later(task: Task) -> None:
    """The first sub-agent waits for any letter, and the second asks but receives later."""
    first, second = calls_of(task)
    with first.delegate("child") as any_letter, second.delegate("child") as asking:
        ask(asking, "r1")
        say(any_letter, await receive(any_letter))
        await any_letter.drain()
        await _later.wait()
        say(asking, await receive(asking))


async def for_its_child(task: Task) -> None:
    """The parent receives what its sub-agent asked for."""
    with task.call("delegate") as call:
        call.arguments("{}")
    with call.delegate("child") as child:
        ask(child, "r1")
        say(child, await receive(task))


AGENTS: dict[str, AgentFunction] = {
    "twice": twice,
    "delegating": delegating,
    "for its child": for_its_child,
    "one later": one_later,
}


@asynccontextmanager
async def process(database: Path) -> AsyncIterator[Runs]:
    runs = Runs(
        SqliteStore(database),
        LocalBus(),
        AGENTS,
        new_id=lambda: f"{next(_ids):08}",
        now=lambda: 1.0,
    )
    async with opened_runs(runs):
        yield runs


async def parked(runs: Runs, run_id: str, *pending: str) -> None:
    """Wait until the run waits for exactly these answers, and every letter is acted upon."""
    worker = runs.worker
    assert worker is not None

    async def waits() -> bool:
        await until(lambda: worker.parked == [run_id])
        state = await runs.state(run_id)
        asked = [request.id for task in state.tasks.values() for request in task.requests]
        return asked == list(pending) and await runs.store.letters([run_id]) == {}

    await until(waits)


async def until_empty(runs: Runs, run_id: str) -> None:
    async def is_empty() -> bool:
        return not await runs.store.letters([run_id])

    await until(is_empty)


async def texts(runs: Runs, run_id: str) -> list[str]:
    """The answers of the run's tasks, each after its end."""
    assert await runs.reader.ended(run_id, 120)
    view: dict[str, Any] = client_view(await runs.state(run_id))
    assert view["status"] == "completed", view
    own = [item for item in view["output"] if item["type"] == "message"]
    inner = [
        item
        for result in view["output"]
        if result["type"] == "tool_result"
        for item in result["block_list"]
        if item["type"] == "message"
    ]
    return [item["block_list"][0]["text"] for item in (*inner, *own)]


async def test_an_answer_that_is_sent_twice_answers_only_its_own_request(tmp_path: Path) -> None:
    async with process(tmp_path / "log.db") as runs:
        run_id = await runs.start("twice", "?")
        await parked(runs, run_id, "r1")
        await runs.send(run_id, {"request_id": "r1", "value": "one"})
        await runs.send(run_id, {"request_id": "r1", "value": "again"})
        await parked(runs, run_id, "r2")
        await runs.send(run_id, {"request_id": "r1", "value": "late"})
        await parked(runs, run_id, "r2")
        await runs.send(run_id, {"request_id": "r2", "value": "two"})
        assert await texts(runs, run_id) == ["one two"]


async def test_an_answer_to_a_request_that_the_run_never_made_is_refused(tmp_path: Path) -> None:
    async with process(tmp_path / "log.db") as runs:
        run_id = await runs.start("twice", "?")
        await parked(runs, run_id, "r1")
        with pytest.raises(NotFound, match=r"no request 'r9'\. Its open requests: r1") as raised:
            await runs.send(run_id, {"request_id": "r9", "value": "lost"})
        assert raised.value.param == "request_id"
        with pytest.raises(NotFound, match="no run nowhere"):
            await runs.send("nowhere", {"request_id": "r9"})


async def test_each_sub_agent_receives_the_answer_to_its_own_request(tmp_path: Path) -> None:
    async with process(tmp_path / "log.db") as runs:
        run_id = await runs.start("delegating", "?")
        await parked(runs, run_id, "r1", "r2")
        await runs.send(run_id, {"request_id": "r2", "value": "two"})
        await parked(runs, run_id, "r1")
        await runs.send(run_id, {"request_id": "r1", "value": "one"})
        assert await texts(runs, run_id) == ["one", "two"]


async def test_a_parent_may_receive_the_answer_to_a_request_of_its_sub_agent(
    tmp_path: Path,
) -> None:
    async with process(tmp_path / "log.db") as runs:
        run_id = await runs.start("for its child", "?")
        await parked(runs, run_id, "r1")
        await runs.send(run_id, {"request_id": "r1", "value": "one"})
        assert await texts(runs, run_id) == ["one"]
        received = [
            one.event
            for one in await runs.store.read(run_id, 0)
            if isinstance(one.event, TaskInputReceived)
        ]
        assert [event.task_id != run_id for event in received] == [True]


async def test_a_letter_that_waits_for_its_task_stays_in_the_store(tmp_path: Path) -> None:
    _later.clear()
    async with process(tmp_path / "log.db") as runs:
        run_id = await runs.start("one later", "?")
        await parked(runs, run_id, "r1")
        await runs.send(run_id, {"request_id": "r1", "value": "one"})
        await runs.send(run_id, {"value": "any"})
        async for batch in runs.follow(run_id):
            if any(isinstance(one.event, TextDone) for one in batch):
                break
        letters = (await runs.store.letters([run_id]))[run_id]
        assert b'"one"' in letters[0].body  # a worker that takes the run over reads it again
        _later.set()
        assert await texts(runs, run_id) == ["any", "one"]
        await until_empty(runs, run_id)


async def test_a_task_without_a_worker_cannot_receive(tmp_path: Path) -> None:
    async with begun_in(tmp_path, "r", agent="a") as (task, _, _):
        with pytest.raises(CallerError, match="The agent a receives no input: it is a sub-agent"):
            await receive(task)
