"""The follow kit: claims, recovery, letters and cancels, among several processes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tailrace.core.errors import CallerError, NotFound, SeqConflict
from tailrace.core.events import TaskInProgress, TaskInputRequired
from tailrace.core.items import InputRequest
from tailrace.core.run_object import client_view
from tailrace.ports import MAX_ATTEMPTS, Bus, Store
from tailrace.ports.bus import OpenBus
from tailrace.ports.store import OpenStore
from tailrace.runtime.agents.functions import restartable
from tailrace.runtime.event_log.pipeline import Pipeline
from tailrace.runtime.event_log.whole_state import whole_state
from tailrace.runtime.runs import all_runs as running
from tailrace.runtime.runs.all_runs import Runs
from tailrace.runtime.tasks.inbox import receive
from tailrace.runtime.tasks.task import Task
from tailrace.testing.follow_kit.setup import SOON, FollowTests, process
from tailrace.testing.waiting import until

SHORT = 0.3
"""A lease that a test can wait for."""


async def quick(task: Task) -> None:
    """Answers at once."""
    with task.message() as message:
        message.text("Done.")


async def endless(task: Task) -> None:
    """Writes text until it is stopped."""
    with task.message() as message:
        while True:
            message.text("tick ")
            await task.drain()
            await asyncio.sleep(0.01)


async def stubborn(task: Task) -> None:
    """Ignores being cancelled."""
    while True:
        try:
            await endless(task)
        except asyncio.CancelledError:
            task.notice("Never!")


async def asking(task: Task) -> None:
    """Asks a person and repeats the answer."""
    request = InputRequest(id="r1", kind="input", message="Which city?")
    task.emit(TaskInputRequired(task_id=task.task_id, requests=[request]))
    answer = await receive(task)
    with task.message() as message:
        message.text(str(answer["value"]))


async def view(runs: Runs, run_id: str) -> dict[str, Any]:
    """The run as its clients see it."""
    return client_view(await runs.state(run_id))


async def at_the_end(runs: Runs, run_id: str) -> dict[str, Any]:
    """The run as its clients see it when it has ended."""
    assert await runs.reader.ended(run_id, 30.0)
    return await view(runs, run_id)


async def spoken(runs: Runs, run_id: str) -> None:
    """Wait until the run's agent has written text."""
    async for _ in runs.follow(run_id):
        if (await view(runs, run_id)).get("output"):
            return


async def lost_run(store: Store, bus: Bus, runs: Runs, agent: str, claims: int = 1) -> str:
    """A run whose worker died in the middle of a message, with an unanswered call."""
    run_id = await runs.start(agent, "?")
    for _ in range(claims):
        claim = await store.take_over(run_id, "the dead", SHORT)
    assert claim is not None
    state = await whole_state(store, run_id)
    task = Task(Pipeline(store, bus).writer(run_id, claim.epoch, state), run_id)
    task.emit(TaskInProgress(task_id=run_id))
    with task.call("look_up") as call:
        call.arguments("{}")
    call.result({"found": 1})
    with task.call("send_mail") as call:
        call.arguments("{}")
    call.start()
    writing = task.message()
    writing.__enter__().text("Half an ans")  # it never leaves the block
    await task.drain()
    return run_id


class WorkerTests(FollowTests):
    """Each run is worked on once, by some worker."""

    async def test_a_run_is_worked_on_wherever_there_is_a_worker(
        self, open_store: OpenStore, open_bus: OpenBus
    ) -> None:
        async with process(open_store, open_bus, {"a": quick}, worker=False) as server:
            early = await server.start("a", "?")
            async with process(open_store, open_bus, {"a": quick}):
                for run_id in (early, await server.start("a", "?")):
                    shown = await at_the_end(server, run_id)
                    assert shown["status"] == "completed"
                    assert shown["output"][0]["block_list"][0]["text"] == "Done."

    async def test_many_runs_and_several_workers_each_run_once(
        self, open_store: OpenStore, open_bus: OpenBus
    ) -> None:
        async with (
            process(open_store, open_bus, {"a": quick}) as first,
            process(open_store, open_bus, {"a": quick}) as second,
        ):
            ids = [await runs.start("a", n) for n in range(20) for runs in (first, second)]
            for run_id in ids:
                shown = await at_the_end(second, run_id)
                assert (shown["status"], len(shown["output"])) == ("completed", 1)
                assert (await first.info(run_id)).attempts == 1

    async def test_a_worker_takes_only_agents_that_it_has(
        self, open_store: OpenStore, open_bus: OpenBus
    ) -> None:
        async with (
            process(open_store, open_bus, {"a": quick, "b": quick}, worker=False) as server,
            process(open_store, open_bus, {"b": quick}),
        ):
            other, ours = await server.start("a", "?"), await server.start("b", "?")
            assert (await at_the_end(server, ours))["status"] == "completed"
            assert (await server.info(other)).attempts == 0

    async def test_a_run_longer_than_its_lease_stays_with_its_worker(
        self, open_store: OpenStore, open_bus: OpenBus
    ) -> None:
        async def patient(_: Task) -> None:
            await asyncio.sleep(3 * SHORT)  # longer than the lease: that is the point

        async with (
            process(open_store, open_bus, {"a": patient}, lease=SHORT) as first,
            process(open_store, open_bus, {"a": patient}, lease=SHORT),
        ):
            run_id = await first.start("a", "?")
            assert (await at_the_end(first, run_id))["status"] == "completed"
            assert (await first.info(run_id)).attempts == 1

    async def test_the_run_of_a_lost_worker_ends_as_interrupted_and_keeps_what_it_had(
        self, open_store: OpenStore, open_bus: OpenBus, store: Store, bus: Bus
    ) -> None:
        async with process(open_store, open_bus, {"a": quick}, worker=False) as server:
            run_id = await lost_run(store, bus, server, "a")
            async with process(open_store, open_bus, {"a": quick}):
                shown = await at_the_end(server, run_id)
        assert (shown["status"], shown["error"]["code"]) == ("failed", "interrupted")
        *_, message, result = shown["output"]
        assert message["block_list"][0]["text"] == "Half an ans"
        assert message["status"] == "incomplete"
        assert (result["type"], result["error"]["code"]) == ("tool_result", "interrupted")

    async def test_a_restartable_agent_goes_on_and_what_was_half_does_not_count(
        self, open_store: OpenStore, open_bus: OpenBus, store: Store, bus: Bus
    ) -> None:
        agents = {"a": restartable(quick)}
        async with process(open_store, open_bus, agents, worker=False) as server:
            run_id = await lost_run(store, bus, server, "a")
            async with process(open_store, open_bus, agents):
                shown = await at_the_end(server, run_id)
        assert (shown["status"], shown["attempt"]) == ("completed", 2)
        kinds = [(item["type"], item.get("status")) for item in shown["output"]]
        assert kinds == [
            ("tool_call", None),
            ("tool_result", None),
            ("tool_call", None),
            ("tool_result", "failed"),
            ("message", None),
        ]
        assert shown["output"][3]["error"]["code"] == "interrupted"
        assert shown["output"][4]["block_list"][0]["text"] == "Done."

    async def test_a_restarted_agent_issues_no_number_twice(
        self, open_store: OpenStore, open_bus: OpenBus, store: Store, bus: Bus
    ) -> None:
        async def citing(task: Task) -> None:
            for found in (2, 1):
                with task.call("look_up") as call:
                    call.arguments("{}")
                call.result({"found": found})

        agents = {"a": restartable(citing)}
        async with process(open_store, open_bus, agents, worker=False) as server:
            run_id = await lost_run(store, bus, server, "a")
            async with process(open_store, open_bus, agents):
                shown = await at_the_end(server, run_id)
        results = [item for item in shown["output"] if item["type"] == "tool_result"]
        numbers = [block.get("id") for item in results for block in item["block_list"]]
        assert numbers == [1, 2, 1]

    async def test_a_run_that_kills_its_workers_is_given_up(
        self, open_store: OpenStore, open_bus: OpenBus, store: Store, bus: Bus
    ) -> None:
        agents = {"a": restartable(quick)}
        async with process(open_store, open_bus, agents, worker=False) as server:
            run_id = await lost_run(store, bus, server, "a", claims=MAX_ATTEMPTS)
            async with process(open_store, open_bus, agents):
                shown = await at_the_end(server, run_id)
        assert (shown["status"], shown["error"]["code"]) == ("failed", "too_many_attempts")

    async def test_a_worker_that_lost_its_run_stops_and_writes_nothing_more(
        self, open_store: OpenStore, open_bus: OpenBus, store: Store
    ) -> None:
        stopped = asyncio.Event()

        async def silent(task: Task) -> None:
            with task.message() as message:
                message.text("Here.")
                await task.drain()
                try:
                    await asyncio.sleep(3600)
                finally:
                    stopped.set()
                    message.text("Too late.")

        async with process(open_store, open_bus, {"a": silent}, lease=SHORT) as runs:
            run_id = await runs.start("a", "?")
            await spoken(runs, run_id)
            assert await store.take_over(run_id, "another", 60.0) is not None
            await stopped.wait()
            worker = runs.worker
            assert worker is not None
            await until(lambda: not worker.runs)
            assert "late" not in str(await store.read(run_id, 0))
            assert (await runs.info(run_id)).ended_at is None

    async def test_a_worker_that_stops_leaves_restartable_runs_to_the_next(
        self, open_store: OpenStore, open_bus: OpenBus
    ) -> None:
        async with process(open_store, open_bus, {"a": quick}, worker=False) as server:
            async with process(open_store, open_bus, {"a": restartable(endless)}) as first:
                run_id = await server.start("a", "?")
                await spoken(server, run_id)
                stopping = time.monotonic()
            assert time.monotonic() - stopping < SOON
            assert first.worker is not None
            async with process(open_store, open_bus, {"a": restartable(quick)}):
                shown = await at_the_end(server, run_id)
            assert (shown["status"], shown["attempt"]) == ("completed", 2)
            assert time.monotonic() - stopping < 2 * SOON  # the lease of 60 s was not waited for

    async def test_a_worker_that_stops_closes_runs_that_cannot_be_continued(
        self, open_store: OpenStore, open_bus: OpenBus
    ) -> None:
        async with process(open_store, open_bus, {"a": quick}, worker=False) as server:
            async with process(open_store, open_bus, {"a": stubborn}):
                run_id = await server.start("a", "?")
                await spoken(server, run_id)
                stopping = time.monotonic()
            assert time.monotonic() - stopping < SOON
            shown = await at_the_end(server, run_id)
            assert (shown["status"], shown["error"]["code"]) == ("failed", "interrupted")

    async def test_an_answer_reaches_the_agent_that_asked(
        self, open_store: OpenStore, open_bus: OpenBus, store: Store
    ) -> None:
        async with (
            process(open_store, open_bus, {"a": asking}) as runs,
            process(open_store, open_bus, {"a": asking}, worker=False) as server,
        ):
            run_id = await server.start("a", "?")
            async for _ in server.follow(run_id):
                if (await view(server, run_id))["status"] == "input_required":
                    break
            worker = runs.worker
            assert worker is not None
            # It holds no lease and no slot while it waits for people.
            await until(lambda: worker.parked == [run_id] and not worker.runs)
            with pytest.raises(CallerError):
                await server.send(run_id, {"request_id": 5})
            await server.send(run_id, {"request_id": "r1", "value": "Paris"})
            shown = await at_the_end(server, run_id)
            assert shown["output"][0]["block_list"][0]["text"] == "Paris"
            assert await store.letters([run_id]) == {}
            with pytest.raises(CallerError):
                await runs.send(run_id, "more")
            with pytest.raises(NotFound):
                await runs.send("missing", "more")


class CancelTests(FollowTests):
    """A cancel ends the run in any state and keeps its items."""

    @pytest.mark.parametrize("elsewhere", [False, True])
    async def test_a_live_run_is_cancelled_with_its_partial_answer(
        self, open_store: OpenStore, open_bus: OpenBus, elsewhere: bool
    ) -> None:
        async with (
            process(open_store, open_bus, {"a": endless}) as runs,
            process(open_store, open_bus, {"a": endless}, worker=False) as server,
        ):
            run_id = await runs.start("a", "?")
            await spoken(runs, run_id)
            begun = time.monotonic()
            await (server if elsewhere else runs).cancel(run_id, "Enough.")
            shown = await view(runs, run_id)
            assert time.monotonic() - begun < SOON
            assert (shown["status"], shown["reason"]) == ("cancelled", "Enough.")
            assert shown["output"][0]["status"] == "incomplete"
            assert shown["output"][0]["block_list"][0]["text"].startswith("tick")
            assert (await runs.info(run_id)).attempts == 1
            await server.cancel(run_id)
            assert await view(runs, run_id) == shown
            await server.cancel("missing")

    async def test_a_cancel_before_any_worker_came_ends_the_run(
        self, open_store: OpenStore, open_bus: OpenBus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(running, "CANCEL_SECONDS", 0.1)
        async with process(open_store, open_bus, {"a": quick}, worker=False) as server:
            run_id = await server.start("a", "?")
            await server.cancel(run_id)
            shown = await view(server, run_id)
            assert (shown["status"], shown["output"]) == ("cancelled", [])

    async def test_a_worker_finds_the_cancel_that_came_before_it(
        self, open_store: OpenStore, open_bus: OpenBus, store: Store, bus: Bus
    ) -> None:
        called: list[str] = []

        async def never(task: Task) -> None:
            called.append(task.task_id)

        agents = {"a": restartable(never)}
        async with process(open_store, open_bus, agents, worker=False) as server:
            new, begun = await server.start("a", "?"), await lost_run(store, bus, server, "a")
            for run_id in (new, begun):
                await store.post(run_id, "cancel", b'{"reason":"Early."}')
            async with process(open_store, open_bus, agents):
                for run_id in (new, begun):
                    shown = await at_the_end(server, run_id)
                    assert (shown["status"], shown["reason"]) == ("cancelled", "Early.")
            assert await store.letters([new, begun]) == {}
        assert not called

    async def test_the_run_of_a_dead_writer_is_closed_within_five_seconds(
        self, open_store: OpenStore, open_bus: OpenBus, store: Store, bus: Bus
    ) -> None:
        async with process(open_store, open_bus, {"a": quick}, worker=False) as server:
            run_id = await server.start("a", "?")
            claim = await store.take_over(run_id, "the dead", 3600.0)
            assert claim is not None
            state = await whole_state(store, run_id)
            stale = Pipeline(store, bus).writer(run_id, claim.epoch, state)
            begun = time.monotonic()
            await asyncio.gather(*(server.cancel(run_id) for _ in range(3)))
            assert (await view(server, run_id))["status"] == "cancelled"
            assert time.monotonic() - begun < SOON
            stale.emit(TaskInProgress(task_id=run_id))
            with pytest.raises(SeqConflict):
                await stale.drain()

    async def test_an_agent_that_ignores_it_is_left_behind(
        self, open_store: OpenStore, open_bus: OpenBus
    ) -> None:
        async with process(open_store, open_bus, {"a": stubborn}) as runs:
            run_id = await runs.start("a", "?")
            await spoken(runs, run_id)
            begun = time.monotonic()
            await runs.cancel(run_id)
            assert (await view(runs, run_id))["status"] == "cancelled"
            assert time.monotonic() - begun < SOON
