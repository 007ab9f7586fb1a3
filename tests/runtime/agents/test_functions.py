"""What an agent may be, and what it cannot do to the process that runs it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tailrace.app import Tailrace
from tailrace.buses.local import LocalBus
from tailrace.core.errors import CallerError
from tailrace.core.run_object import client_view
from tailrace.runtime.agents.functions import restartable
from tailrace.runtime.runs.all_runs import Runs
from tailrace.runtime.tasks.task import Task
from tailrace.stores.sqlite.store import SqliteStore


async def quick(task: Task) -> None:
    with task.message() as message:
        message.text("Done.")


class Answering:
    name = ""

    async def __call__(self, task: Task) -> None:
        await quick(task)


def synchronous(_task: Task) -> None:
    pass


class Outcome(BaseException):
    """What some libraries raise; no `Exception`."""


@pytest.mark.parametrize("make", [lambda one: Tailrace({"a": one}), restartable])
def test_a_synchronous_function_is_refused_as_an_agent_with_a_sentence(
    make: Callable[[Any], Any],
) -> None:
    for wrong in (synchronous, functools.partial(synchronous), lambda _: None, "agent"):
        with pytest.raises(CallerError, match="async def"):
            make(wrong)
    for right in (quick, functools.partial(quick), Answering(), restartable(quick)):
        make(right)


@pytest.mark.parametrize("raised", [SystemExit(3), GeneratorExit(), Outcome()])
async def test_an_agent_that_raises_system_exit_fails_its_run_and_not_the_process(
    tmp_path: Path, raised: BaseException
) -> None:
    async def leaving(_task: Task) -> None:
        raise raised

    runs = Runs(
        SqliteStore(tmp_path / "log.db"),
        LocalBus(),
        {"leaving": leaving, "quick": quick},
        new_id=iter("123456789").__next__,
        now=lambda: 1.0,
    )
    runs.open()
    try:
        async with asyncio.timeout(120):
            for agent, status in (("leaving", "failed"), ("quick", "completed")):
                run_id = await runs.start(agent, "?")
                assert await runs.reader.ended(run_id, 120)
                shown = client_view(await runs.state(run_id))
                assert shown["status"] == status
                if status == "failed":
                    assert shown["error"]["code"] == "agent_error"
    finally:
        await runs.close()


@pytest.mark.parametrize("agents", [quick, "agent", [functools.partial(quick)], [Answering()]])
def test_agents_that_have_no_names_are_refused(agents: Any) -> None:
    with pytest.raises(CallerError, match=r"Tailrace\(\{\"name\": agent\}\)"):
        Tailrace(agents)


def test_agents_in_a_list_are_named_by_their_own_names() -> None:
    named = Answering()
    named.name = "helper"
    assert list(Tailrace([quick, named]).agents) == ["quick", "helper"]
    with pytest.raises(CallerError, match="Two agents are named 'quick'"):
        Tailrace([quick, quick])
    with pytest.raises(CallerError, match="async def"):
        Tailrace([synchronous])  # type: ignore[list-item]


def test_an_agent_that_yields_or_does_not_take_the_task_is_refused() -> None:
    async def yields(_task: Task) -> AsyncIterator[str]:
        yield "Hello"

    async def takes_nothing() -> None: ...

    async def takes_more(_task: Task, _database: str) -> None: ...

    wrong: Any
    for wrong, words in (
        (yields, r"task\.message\(\)"),
        (takes_nothing, "must take the task"),
        (takes_more, "must take the task"),
    ):
        with pytest.raises(CallerError, match=words):
            Tailrace({"a": wrong})
    Tailrace({"a": functools.partial(takes_more, _database="x")})
