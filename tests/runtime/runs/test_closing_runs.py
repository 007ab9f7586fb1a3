"""Whatever a run's log holds, a cancel ends the run, and so does a worker that recovers it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tailrace.buses.local import LocalBus
from tailrace.core import codec
from tailrace.core import events as ev
from tailrace.core.errors import InvalidValue, StreamTooLarge
from tailrace.core.items import Message, Text, ToolCall
from tailrace.core.run_object import client_view
from tailrace.ports import MAX_ATTEMPTS, Batch
from tailrace.runtime.agents.functions import AgentFunction, restartable
from tailrace.runtime.runs import all_runs as running
from tailrace.runtime.runs.all_runs import Runs
from tailrace.runtime.tasks.task import Task
from tailrace.stores.sqlite.store import SqliteStore


async def never(_task: Task) -> None:
    """An agent that is not called again."""
    raise AssertionError("called")


@asynccontextmanager
async def processes(agent: AgentFunction = never) -> AsyncIterator[Runs]:
    runs = Runs(
        SqliteStore(":memory:"), LocalBus(), {"a": agent}, new_id=lambda: "9", now=lambda: 1.0
    )
    try:
        async with asyncio.timeout(120):
            yield runs
    finally:
        await runs.close()


async def left_behind(runs: Runs, events: list[ev.Event], claims: int = 1) -> str:
    """A run whose worker is gone, with these events after its creation."""
    publics = [codec.encode_event(ev.recorded(one, number)) for number, one in enumerate(events, 2)]
    return await left_with(runs, publics, claims)


async def left_with(
    runs: Runs, publics: list[bytes], claims: int = 1, snapshot: bytes | None = None
) -> str:
    run_id = await runs.start("a", "?")
    for _ in range(claims):
        claim = await runs.store.take_over(run_id, "the dead", 0.0)
    assert claim is not None
    batch = Batch(
        run_id=run_id,
        epoch=claim.epoch,
        first_seq=2,
        publics=publics,
        privates=[b""] * len(publics),
        ended=False,
        snapshot=snapshot,
    )
    assert await runs.store.append([batch]) == [None]
    return run_id


def grown(run_id: str) -> list[ev.Event]:
    """A text that no event can repeat, as an older version let it grow."""
    place = {"task_id": run_id, "item_id": "msg", "output_index": 0, "block_index": 0}
    item = Message(id="msg", role="assistant")
    return [
        ev.TaskInProgress(task_id=run_id),
        ev.OutputItemAdded(task_id=run_id, output_index=0, item=item),
        ev.TextAdded(**place, item=Text(text="")),  # type: ignore[arg-type]
        *(ev.TextDelta(**place, delta="x" * 100) for _ in range(30)),  # type: ignore[arg-type]
    ]


@pytest.fixture(autouse=True)
def small_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_EVENT_BYTES", 2000)
    monkeypatch.setattr(codec, "MAX_OPEN_BYTES", 1500)
    monkeypatch.setattr(running, "CANCEL_SECONDS", 0.05)


async def test_a_run_that_grew_too_far_can_be_cancelled() -> None:
    async with processes() as runs:
        run_id = await left_behind(runs, grown("run_9"))
        await runs.cancel(run_id)
        view = client_view(await runs.state(run_id))
    assert view["status"] == "cancelled"
    [item] = view["output"]
    assert (item["status"], item["block_list"][0]["text"]) == ("incomplete", "x" * 3000)


async def test_a_run_that_grew_too_far_is_ended_by_the_worker_that_recovers_it() -> None:
    async with processes() as runs:
        run_id = await left_behind(runs, grown("run_9"))
        runs.open()
        assert await runs.reader.ended(run_id, 120)
        view = client_view(await runs.state(run_id))
    assert (view["status"], view["error"]["code"]) == ("failed", "interrupted")


async def test_a_cancel_whose_reason_no_event_can_hold_is_refused_before_it_is_stored() -> None:
    async with processes() as runs:
        run_id = await left_behind(runs, grown("run_9"))
        with pytest.raises(StreamTooLarge):
            await runs.cancel(run_id, "x" * 3000)
        with pytest.raises(InvalidValue):
            await runs.cancel(run_id, "\x00")
        assert await runs.store.letters([run_id]) == {}


UNREADABLE = [
    b'{"type":"task.in_progress","task_id":"run_9","sequence_number":2}',
    b'{"type":"task.notice","task_id":"run_9","sequence_number":3}',  # it has no message
]


async def last_event(runs: Runs, run_id: str) -> ev.AnyEvent:
    info = await runs.info(run_id)
    [last] = await runs.store.read(run_id, info.last_seq - 1)
    return last.event


async def test_a_run_whose_log_cannot_be_folded_is_ended_past_its_attempts() -> None:
    async with processes() as runs:
        run_id = await left_with(runs, UNREADABLE, claims=MAX_ATTEMPTS)
        runs.open()
        assert await runs.reader.ended(run_id, 120)
        last = await last_event(runs, run_id)
    assert isinstance(last, ev.TaskFailed)
    assert (last.sequence_number, last.error.code) == (4, "too_many_attempts")


@pytest.mark.parametrize("claims", [1, MAX_ATTEMPTS])
async def test_a_run_that_no_worker_continues_has_a_result_for_each_call(claims: int) -> None:
    """A client that sends its calls back without results would be refused."""
    item = ToolCall(id="fc", call_id="call_1", name="look")
    done = ToolCall(id="fc", call_id="call_1", name="look", arguments="{}")
    place: Any = {"item_id": "fc", "output_index": 0}
    events: list[ev.Event] = [
        ev.TaskInProgress(task_id="run_9"),
        ev.OutputItemAdded(task_id="run_9", output_index=0, item=item),
        ev.ArgumentsDone(task_id="run_9", **place, arguments="{}"),
        ev.OutputItemDone(task_id="run_9", output_index=0, item=done),
        ev.ToolCallStarted(task_id="run_9", **place),
    ]
    async with processes() as runs:
        run_id = await left_behind(runs, events, claims)
        runs.open()
        assert await runs.reader.ended(run_id, 120)
        view = client_view(await runs.state(run_id))
    assert view["error"]["code"] == ("interrupted" if claims == 1 else "too_many_attempts")
    call, result = view["output"]
    assert (result["call_id"], result["status"]) == (call["call_id"], "failed")
    assert result["error"]["code"] == "interrupted"


async def test_a_run_whose_log_cannot_be_folded_can_be_cancelled() -> None:
    async with processes() as runs:
        run_id = await left_with(runs, UNREADABLE)
        await runs.cancel(run_id)
        assert isinstance(await last_event(runs, run_id), ev.TaskCancelled)


NEWER = [
    b'{"type":"task.in_progress","task_id":"run_9","sequence_number":2}',
    (
        b'{"type":"task.output_item.added","task_id":"run_9","sequence_number":3,"output_index":0,'
        b'"item":{"type":"tool_call","id":"fc","call_id":"call_1","name":"look","executor":"edge"}}'
    ),
    (
        b'{"type":"task.input_required","task_id":"run_9","sequence_number":4,'
        b'"requests":[{"id":"r1","kind":"vote"}]}'
    ),
]


async def test_a_run_of_a_newer_version_is_shown_and_recovered() -> None:
    async with processes() as runs:
        run_id = await left_with(runs, NEWER)
        before = client_view(await runs.state(run_id))
        runs.open()
        assert await runs.reader.ended(run_id, 120)
        after = client_view(await runs.state(run_id))
    assert (before["status"], len(before["unknown"])) == ("in_progress", 2)
    assert (after["error"]["code"], len(after["unknown"])) == ("interrupted", 2)


async def test_a_snapshot_of_a_newer_version_is_left_aside() -> None:
    async with processes() as runs:
        run_id = await left_with(runs, NEWER[:1], snapshot=b'{"version":1,"tasks":[{"at":"new"}]}')
        assert client_view(await runs.state(run_id))["status"] == "in_progress"
        await runs.cancel(run_id)
        assert client_view(await runs.state(run_id))["status"] == "cancelled"


async def test_what_a_released_run_was_writing_is_left_open_for_the_next_worker() -> None:
    """That worker closes it and says that it does not count, so it is not shown twice."""

    async def talk(task: Task) -> None:
        with task.message() as message:
            message.text("Half an ans")
            await task.drain()
            await asyncio.Event().wait()

    async with processes(restartable(talk)) as runs:
        runs.open()
        run_id = await runs.start("a", "?")
        async for events in runs.follow(run_id):
            if any(isinstance(one.event, ev.TextDelta) for one in events):
                break
        assert runs.worker is not None
        await runs.worker.stop()
        [item] = client_view(await runs.state(run_id))["output"]
    assert item["status"] == "in_progress"


@pytest.mark.parametrize("lost", [True, False])
async def test_the_log_says_whether_a_worker_was_lost_or_has_stopped(
    lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(task: Task) -> None:
        with task.message() as message:
            message.text("A whole answer.")

    async with processes(restartable(answer)) as runs:
        run_id = await left_behind(runs, grown("run_9")[:2])
        if not lost:
            await runs.store.release(run_id, (await runs.info(run_id)).epoch)
        runs.open()
        events = [one.event async for batch in runs.follow(run_id) for one in batch]
    [attempt] = [event for event in events if isinstance(event, ev.TaskAttempt)]
    assert attempt.reason == ("worker_lost" if lost else "worker_stopped")
    assert ("took over run run_9" in caplog.text) is lost
