"""An agent whose tool ignores the stop: its run, and every sub-agent in it, ends all the same."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tailrace import Agent, Limits, Tailrace, streaming_tool, tool
from tailrace.core.fold import State
from tailrace.core.items import Text
from tailrace.models import Scripted, call, say, think
from tailrace.runtime.runs.run import Run
from tailrace.testing.waiting import until

WITHIN = 30.0


class Stubborn:
    """Tools that go on after a stop, until the test has ended."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.left: list[str] = []
        self.let_go = threading.Event()

    async def _hold(self, name: str) -> str:
        self.began.append(name)
        while not self.let_go.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.02)
        self.left.append(name)
        return f"{name}: too late"

    def tools(self) -> list[Any]:
        @tool
        async def deaf() -> str:
            """Swallows the cancel."""
            return await self._hold("deaf")

        @tool
        def blocking() -> str:
            """Sleeps in a thread, which cannot be cancelled."""
            self.began.append("blocking")
            self.let_go.wait(120)
            self.left.append("blocking")
            return "blocking: too late"

        @streaming_tool
        async def streaming() -> AsyncIterator[Any]:
            """Shows a block, and then swallows the cancel."""
            yield Text(text="half")
            yield await self._hold("streaming")

        @tool
        async def raising() -> str:
            """Answers the cancel with another error."""
            self.began.append("raising")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ValueError("I do not stop.") from None
            return ""

        return [deaf, blocking, streaming, raising]


NAMES = ["deaf", "blocking", "streaming", "raising"]


@pytest.fixture
def stubborn() -> Iterator[Stubborn]:
    found = Stubborn()
    yield found
    found.let_go.set()


@asynccontextmanager
async def running(path: Path, agent: Agent, stubborn: Stubborn) -> AsyncIterator[Tailrace]:
    app = Tailrace([agent], database=path / "log.db")
    async with app.running(), asyncio.timeout(120):
        try:
            yield app
        finally:
            stubborn.let_go.set()


def tree(stubborn: Stubborn, levels: int, names: list[str]) -> Agent:
    """An agent that calls these tools, below so many others."""
    first: list[Any] = [think("Hm."), say("Let me see."), *(call(name) for name in names)]
    model = Scripted(first, [say("Sunny.")])
    agent = Agent("agent0", model=model, tools=stubborn.tools())
    for level in range(1, levels + 1):
        above = Scripted(
            [think("Hm."), say("Let me ask."), call(agent.name, prompt="?")], [say("Sunny.")]
        )
        agent = Agent(f"agent{level}", model=above, tools=[agent.as_tool()])
    return agent


async def legal(run: Run) -> State:
    state = State()
    async for event in run.events():
        state.apply(event)
    assert all(task.ended for task in state.tasks.values())
    return state


@pytest.mark.parametrize("levels", [0, 2])
@pytest.mark.parametrize("names", [*([name] for name in NAMES), NAMES], ids=[*NAMES, "all"])
async def test_a_cancelled_run_ends_although_its_tools_go_on(
    tmp_path: Path, stubborn: Stubborn, levels: int, names: list[str]
) -> None:
    agent = tree(stubborn, levels, names)
    async with running(tmp_path, agent, stubborn) as app:
        run = await app.start(agent.name, "?", thread="t")
        await until(lambda: sorted(stubborn.began) == sorted(names))
        began = time.monotonic()
        await run.cancel("The user left.")
        result = await run.result()
        assert time.monotonic() - began < WITHIN
        assert (result.status, result.reason) == ("cancelled", "The user left.")
        assert result.text == ("Let me ask." if levels else "Let me see.")
        assert result.usage.output_tokens
        before = await legal(run)
        stubborn.let_go.set()
        await until(lambda: len(stubborn.left) == len(set(names) - {"raising"}))
        # The next turn reads that the calls were cancelled, and the worker works on.
        again = await (await app.start(agent.name, "And now?", thread="t")).result()
        assert (again.status, again.text) == ("completed", "Sunny.")
        assert (await legal(run)).sequence_number == before.sequence_number


@pytest.mark.parametrize("name", NAMES)
async def test_a_sub_agent_that_is_cancelled_alone_ends_although_its_tool_goes_on(
    tmp_path: Path, stubborn: Stubborn, name: str
) -> None:
    agent = tree(stubborn, 1, [name])
    async with running(tmp_path, agent, stubborn) as app:
        run = await app.start(agent.name, "?")
        await until(lambda: stubborn.began == [name])
        [child] = [task for task in (await app._runs.state(run.id)).tasks if task != run.id]
        began = time.monotonic()
        await run.cancel("Enough.", task_id=child)
        result = await run.result()
        assert time.monotonic() - began < WITHIN
        assert (result.status, result.text) == ("completed", "Sunny.")
        state = await legal(run)
        assert (state.tasks[child].status, state.tasks[child].reason) == ("cancelled", "Enough.")


@pytest.mark.parametrize("levels", [0, 1])
@pytest.mark.parametrize("name", NAMES)
async def test_a_time_limit_ends_a_run_although_its_tool_goes_on(
    tmp_path: Path, stubborn: Stubborn, levels: int, name: str
) -> None:
    agent = tree(stubborn, levels, [name])
    agent.limits = Limits(seconds=0.5)
    async with running(tmp_path, agent, stubborn) as app:
        began = time.monotonic()
        run = await app.start(agent.name, "?")
        result = await run.result()
        assert time.monotonic() - began < WITHIN
        assert (result.status, result.reason) == ("incomplete", "max_seconds=0.5")
        await legal(run)


@pytest.mark.parametrize("name", ["deaf", "streaming", "raising"])
async def test_a_worker_that_stops_leaves_the_run_of_a_tool_that_goes_on(
    tmp_path: Path, stubborn: Stubborn, name: str
) -> None:
    agent = tree(stubborn, 1, [name])
    app = Tailrace([agent], database=tmp_path / "log.db")
    async with asyncio.timeout(120):
        async with app.running():
            run = await app.start(agent.name, "?")
            await until(lambda: stubborn.began == [name])
            began = time.monotonic()
            app._hurry()
            await app._runs.drain(0)
            assert time.monotonic() - began < WITHIN
        stubborn.let_go.set()
    other = Tailrace([agent], database=tmp_path / "log.db")
    async with other.running(), asyncio.timeout(120):
        run = await other.run(run.id)
        result = await run.result()
        assert (result.status, result.text) == ("completed", "Sunny.")
        assert "interrupted" in str(result.object)
        await legal(run)
    assert stubborn.began == [name]
