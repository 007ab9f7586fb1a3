"""The time at work of a run that several workers had."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tailrace import Agent, Limits, tool
from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.core.items import InputRequest
from tailrace.models import Scripted, call, say
from tailrace.runtime.event_log.work_clock import WorkClock
from tailrace.stores.sqlite.store import SqliteStore
from tests.runtime.agents.test_agent_takeover import Log, leave, log_of, running, set_free


class Run:
    """A log that is written at the times that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.state = State()
        self.clock = self.another()
        self.emit(ev.TaskCreated(task_id="r"))
        self.emit(ev.TaskInProgress(task_id="r"))

    def another(self) -> WorkClock:
        """The clock of a worker that reads the log now."""
        return WorkClock(self.state, lambda: self.now)

    def emit(self, event: ev.Event) -> None:
        private = None
        if not isinstance(event, ev.TaskCreated):
            private = self.clock.noted(event, None)
        self.state.apply(ev.recorded(event, self.state.sequence_number + 1), private)

    def ask(self, name: str, task_id: str = "r") -> None:
        request = InputRequest(id=name, kind="input")
        self.emit(ev.TaskInputRequired(task_id=task_id, requests=[request]))

    def answer(self, name: str, task_id: str = "r") -> None:
        self.emit(ev.TaskInputReceived(task_id=task_id, request_id=name))

    def passes(self, seconds: float, counted: float) -> None:
        """Let time pass; every worker must count so much in all."""
        self.now += seconds
        assert self.clock.seconds("r") == self.another().seconds("r") == counted


def test_time_goes_on_whichever_worker_looks() -> None:
    run = Run()
    run.passes(5, 5)
    run.clock = run.another()
    run.passes(2, 7)


def test_waiting_for_people_does_not_count_also_if_they_are_asked_several_things() -> None:
    run = Run()
    run.passes(5, 5)
    run.ask("a")
    run.passes(100, 5)
    run.ask("b")
    run.passes(100, 5)
    run.clock = run.another()
    run.answer("a")
    run.passes(100, 5)
    run.answer("b")
    run.passes(3, 8)
    run.ask("c")
    run.passes(100, 8)
    run.answer("c")
    run.passes(1, 9)


def test_a_run_of_an_older_version_has_no_time() -> None:
    state = State()
    state.apply(ev.recorded(ev.TaskCreated(task_id="r"), 1))
    assert WorkClock(state).seconds("r") == 0.0


def begun_earlier(log: Log, seconds: float) -> Log:
    """The log of a run that began so much earlier."""
    found: Log = []
    for public, private in log:
        hidden = msgspec.json.decode(private) if private else {}
        if "begun" in hidden:
            hidden["begun"]["at"] -= seconds
        found.append((public, msgspec.json.encode(hidden) if hidden else b""))
    return found


async def test_a_time_limit_goes_on_where_the_lost_worker_was(tmp_path: Path) -> None:
    @tool(idempotent=True)
    async def look() -> str:
        """Looks."""
        return "It is there."

    child = Agent("child", model=Scripted([call("look")], [say("There.")]), tools=[look])
    model = Scripted([call("child", prompt="?")], [say("Done.")])
    agent = Agent("a", model=model, tools=[child.as_tool()], limits=Limits(seconds=60))
    async with running(tmp_path / "whole.db", agent) as app:
        run = await app.start("a", "?", run_id="run_000")
        assert (await run.result()).status == "completed"
        whole = await log_of(app._runs.store, run.id)
    for name, seconds, wanted in (("a", 50, "completed"), ("b", 70, "incomplete")):
        store = SqliteStore(str(tmp_path / f"{name}.db"))
        await leave(store, "run_000", begun_earlier(whole[: len(whole) // 2], seconds))
        await set_free(store, ["run_000"])
        await store.close()
        async with running(tmp_path / f"{name}.db", agent) as app:
            result = await (await app.run("run_000")).result()
        assert result.status == wanted
        assert result.reason == (None if wanted == "completed" else "max_seconds=60")
