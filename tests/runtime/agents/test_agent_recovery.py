"""An agent whose worker is lost, or that is cancelled, in the middle of anything; and what follows.

A worker that stops at once leaves the log of a run as a killed one does: nothing is closed. Another
worker, with a model that may answer differently, goes on from the log.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tailrace import (
    Agent,
    Context,
    Limits,
    Tailrace,
    Task,
    ToolError,
    file,
    image,
    partial_image,
    streaming_tool,
    tool,
)
from tailrace.core import events as ev
from tailrace.core.errors import StorageError
from tailrace.core.fold import State
from tailrace.core.items import Text
from tailrace.models import Patience
from tailrace.models.scripted import Scripted, call, fail, say, silence, think
from tailrace.runtime.diagnostics import crash_points
from tailrace.runtime.runs.run import Result, Run
from tailrace.testing.simulator import Simulator
from tailrace.testing.waiting import until
from tests import forked
from tests.effort import SOAK
from tests.runtime.agents.agent_crashing import RUN, application
from tests.runtime.agents.simulated import opened

SLOW = 0.01
"""Words a second: a text is at its first word until the test stops it."""

LONG = "word " * 100


@asynccontextmanager
async def running(path: Path, *agents: Any) -> AsyncIterator[Tailrace]:
    app = Tailrace(agents, database=path / "log.db", grace=timedelta(0))
    async with app.running(), asyncio.timeout(120):
        yield app


class Desk:
    """Tools that count how often they run, and hang until they are let go."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.open = asyncio.Event()

    def tools(self) -> list[Any]:
        @tool
        async def quick() -> str:
            """Returns at once."""
            self.runs.append("quick")
            return "quick"

        @tool
        async def slow() -> str:
            """Hangs."""
            self.runs.append("slow")
            await self.open.wait()
            return "slow"

        @tool(idempotent=True)
        async def again() -> str:
            """Hangs, and may run twice."""
            self.runs.append("again")
            await self.open.wait()
            return "again"

        return [quick, slow, again]


async def reach(run: Run, found: Callable[[Any], bool]) -> None:
    """Wait until the run comes to an event."""
    async for event in run.events():
        if found(event):
            return
    raise AssertionError("the run ended before")


async def left_and_continued(
    path: Path, before: Any, after: Any, found: Callable[[Any], bool], ready: Any = None
) -> tuple[Result, list[Any]]:
    """Stop a worker at an event, and let another worker finish the run; its result and events."""
    async with running(path, before) as app:
        run = await app.start(before.name, "Is it sunny?")
        await reach(run, found)
        if ready is not None:
            await until(ready)
    async with running(path, after) as app:
        run = await app.run(run.id)
        result = await run.result()
        events = [event async for event in run.events()]
    state = State()
    for event in events:
        state.apply(event)  # the stream is legal from its first event to its last
    return result, events


def is_delta(event: Any) -> bool:
    return isinstance(event, ev.TextDelta | ev.SummaryTextDelta | ev.ArgumentsDelta)


@pytest.mark.parametrize(
    "begun",
    [
        [think(LONG, pace=SLOW)],
        [think("Hm."), say(LONG, pace=SLOW)],
        [think("Hm."), call("quick"), call("slow", text=LONG), silence()],
    ],
    ids=["reasoning", "text", "arguments"],
)
async def test_an_unfinished_turn_is_superseded_and_asked_for_again(
    tmp_path: Path, begun: Any
) -> None:
    desk = Desk()
    before = Agent("a", model=Scripted(begun), tools=desk.tools())
    after = Agent("a", model=Scripted([say("Sunny.")]), tools=desk.tools())
    made = [step for step in begun if step != silence()]
    last = type(made[-1]).__name__

    def found(event: Any) -> bool:
        if last == "Call":
            return isinstance(event, ev.ArgumentsDelta) and event.output_index == 2
        return isinstance(event, ev.SummaryTextDelta if last == "Think" else ev.TextDelta)

    result, events = await left_and_continued(tmp_path, before, after, found)
    assert (result.status, result.text) == ("completed", "Sunny.")
    assert [item["type"] for item in result.items] == ["message"]
    assert desk.runs == []
    [attempt] = [event for event in events if isinstance(event, ev.TaskAttempt)]
    assert attempt.reason == "worker_stopped"
    assert len(attempt.superseded) == len(made)


async def test_a_finished_tool_does_not_run_again_and_a_running_one_is_interrupted(
    tmp_path: Path,
) -> None:
    desk = Desk()
    model = Scripted([think("Hm."), call("quick"), call("slow")], [say("Half of it.")])
    agent = Agent("a", model=model, tools=desk.tools())
    result, _ = await left_and_continued(
        tmp_path,
        agent,
        agent,
        lambda event: isinstance(event, ev.OutputItemDone) and event.item.id.startswith("fco"),
        lambda: "slow" in desk.runs,
    )
    assert desk.runs.count("quick") == desk.runs.count("slow") == 1
    assert [item["type"] for item in result.items] == [
        *("reasoning", "tool_call", "tool_call", "tool_result", "tool_result", "message")
    ]
    assert result.items[4]["error"]["code"] == "interrupted"
    assert "interrupted" in str(result.to_input_list())
    assert result.text == "Half of it."


async def test_a_run_that_another_worker_takes_from_two_running_tools_leaves_no_error_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pytest keeps the errors of log lines, and asyncio reports an error when it is collected.
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)
    taken, failed = asyncio.Event(), list[str]()

    @tool
    async def work(name: str, ctx: Context) -> None:
        """Finds that its run is lost."""
        ctx.task.notice(name)
        await taken.wait()
        ctx.task.notice("done")
        try:
            await ctx.task.drain()
        except StorageError:
            failed.append(name)
            raise

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    model = Scripted([call("work", name="first"), call("work", name="second")])
    async with running(tmp_path, Agent("a", model=model, tools=[work])) as app:
        run = await app.start("a", "?")
        async for event in run.events():
            if isinstance(event, ev.Notice) and event.message == "second":
                break
        assert await app._runs.store.take_over(run.id, "another", 60.0) is not None
        taken.set()
        await until(lambda: len(failed) == 2)
    gc.collect()
    assert reported == []


async def test_a_running_idempotent_tool_runs_again(tmp_path: Path) -> None:
    desk = Desk()
    agent = Agent("a", model=Scripted([call("again")], [say("Done.")]), tools=desk.tools())
    async with running(tmp_path, agent) as app:
        run = await app.start("a", "?")
        await reach(run, lambda event: isinstance(event, ev.ToolCallStarted))
        await until(lambda: desk.runs == ["again"])
    desk.open.set()
    async with running(tmp_path, agent) as app:
        result = await (await app.run(run.id)).result()
    assert desk.runs == ["again", "again"]
    assert result.items[1]["block_list"][0]["text"] == "again"


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("place", ["text", "tool"])
async def test_a_sub_agent_goes_on_in_its_own_task(tmp_path: Path, levels: int, place: str) -> None:
    desk = Desk()

    def tree(*answers: Any) -> Agent:
        agent = Agent("child", model=Scripted(*answers), tools=desk.tools())
        for level in range(levels):
            model = Scripted([call(agent.name, prompt="?")], [say(f"Level {level}.")])
            agent = Agent(f"above{level}", model=model, tools=[agent.as_tool()])
        return agent

    second = [say(LONG, pace=SLOW)] if place == "text" else [call("slow")]
    before = tree([call("quick")], second)
    after = tree([call("quick")], second if place == "tool" else [say("Sunny.")], [say("Sunny.")])

    def found(event: Any) -> bool:
        return isinstance(event, ev.TextDelta if place == "text" else ev.OutputItemDone)

    ready = None if place == "text" else lambda: "slow" in desk.runs
    result, events = await left_and_continued(tmp_path, before, after, found, ready)
    created = [e for e in events if isinstance(e, ev.TaskCreated) and e.parent_task_id]
    assert len(created) == levels
    assert desk.runs.count("quick") == 1
    assert desk.runs.count("slow") == (place == "tool")
    assert result.status == "completed"
    ends = [e.task_id for e in events if isinstance(e, ev.TaskCompleted)]
    assert ends == [*(e.task_id for e in reversed(created)), result.object["task_id"]]
    if place == "tool":
        assert "interrupted" in str(result.object)


@pytest.mark.parametrize("api", ["openai", "openai-chat", "anthropic"])
async def test_a_worker_that_takes_over_counts_the_turns_of_the_agent_alone(
    tmp_path: Path, api: str
) -> None:
    """Two sub-agents that are not logged use the model too; the third turn is the last allowed."""
    desk = Desk()
    answers: list[list[Any]] = [
        [think("Hm."), call("quiet", prompt="1?"), call("quiet", prompt="2?")],
        [say("One.")],
        [say("Two.")],
        [think("So."), call("again")],
        [call("again")],
    ]
    async with Simulator(*answers) as provider, opened(api, provider) as model:
        quiet = Agent("quiet", model=model)
        agent = Agent(
            "a",
            model=model,
            tools=[*desk.tools(), quiet.as_tool(streaming=False)],
            limits=Limits(turns=3),
        )
        async with running(tmp_path, agent) as app:
            run = await app.start("a", "?")
            await until(lambda: desk.runs == ["again"])
        desk.open.set()
        async with running(tmp_path, agent) as app:
            result = await (await app.run(run.id)).result()
    assert (result.status, result.reason) == ("incomplete", "max_turns=3")
    assert len(provider.requests) == len(answers)


async def test_a_run_that_ended_its_turn_is_only_completed(tmp_path: Path) -> None:
    """A worker is lost between the last event of the answer and the end of the run."""
    held = asyncio.Event()

    async def hold(text: str) -> None:
        await held.wait()

    model = Scripted([say("Sunny.")], [say("Said twice.")])
    before = Agent("a", model=model, output_guardrails=[hold])
    after = Agent("a", model=model)
    result, events = await left_and_continued(
        tmp_path, before, after, lambda event: isinstance(event, ev.TaskUsage)
    )
    assert result.text == "Sunny."
    assert not any(isinstance(event, ev.TaskAttempt) for event in events)


# --- the next turn, with a strict provider -------------------------------------------------------

APIS = ["openai", "openai-chat", "anthropic"]


PLACES: dict[str, Any] = {
    "reasoning": [think(LONG, pace=SLOW)],
    "text": [think("Hm."), say(LONG, pace=SLOW)],
    "arguments": [think("Hm."), call("quick"), call("slow", text=LONG), silence()],
    "tool": [think("Hm."), call("quick"), call("slow")],
    "child": [think("Hm."), call("child", prompt="?")],
}


def is_there(place: str, desk: Desk) -> Callable[[Any], bool]:
    def found(event: Any) -> bool:
        match place:
            case "reasoning":
                return isinstance(event, ev.SummaryTextDelta | ev.ReasoningTextDelta)
            case "text":
                return isinstance(event, ev.TextDelta)
            case "arguments":
                return isinstance(event, ev.ArgumentsDelta) and event.output_index == 2
            case "tool":
                return isinstance(event, ev.ToolCallStarted)
        return isinstance(event, ev.TaskCreated) and event.parent_task_id is not None

    return found


def ways_to_stop() -> list[tuple[str, str, str]]:
    """Where and how a run stops, and its API: all APIs in `make soak`, else in turn."""
    ways = list(itertools.product(PLACES, ["cancel", "crash"]))
    return [
        (place, how, api)
        for number, (place, how) in enumerate(ways)
        for api in (APIS if SOAK else [APIS[number % len(APIS)]])
    ]


@pytest.mark.parametrize(("place", "how", "api"), ways_to_stop())
async def test_the_conversation_goes_on_after_a_cancel_or_a_crash_anywhere(
    tmp_path: Path, place: str, how: str, api: str
) -> None:
    desk = Desk()
    child = Agent("child", model=Scripted([think("Deep."), say(LONG, pace=SLOW)]))
    if how == "crash":
        child = Agent("child", model=Scripted([call("slow")], [say("Child.")]), tools=desk.tools())
    begun = PLACES[place]
    async with Simulator(begun, [say("Sunny.")]) as provider, opened(api, provider) as model:
        agent = Agent("a", model=model, tools=[*desk.tools(), child.as_tool()])
        async with running(tmp_path, agent) as app:
            run = await app.start("a", "Is it sunny?", thread="t")
            await reach(run, is_there(place, desk))
            if how == "cancel":
                await run.cancel("The user left.")
                stopped = await run.result()
                assert (stopped.status, stopped.object["reason"]) == ("cancelled", "The user left.")
        desk.open.set()
        async with running(tmp_path, agent) as app:
            if how == "crash":
                assert (await (await app.run(run.id)).result()).status == "completed"
            again = await (await app.start("a", "And now?", thread="t")).result()
        assert (again.status, again.text) == ("completed", "Sunny.")
        assert provider.refusals == []


# --- a killed process ----------------------------------------------------------------------------


@pytest.mark.parametrize("times", [4, 10, 16, 20, 24, 28, 32])
async def test_a_process_that_ends_at_a_commit_runs_no_tool_twice(
    tmp_path: Path, times: int
) -> None:
    done = await asyncio.to_thread(
        forked.run,
        *("-m", "tests.runtime.agents.agent_crashing", tmp_path),
        env={**os.environ, "TAILRACE_CRASH_AT": f"append.after:{times}"},
    )
    assert done.returncode in (0, crash_points.STATUS), done.stderr
    app = application(tmp_path)
    async with app.running(), asyncio.timeout(120):
        run = await app.run(RUN)
        result = await run.result()
        events = [event async for event in run.events()]
    state = State()
    for event in events:
        state.apply(event)
    assert (result.status, result.text) == ("completed", "All.")
    ran = (tmp_path / "ran.txt").read_text().split()
    assert ran.count("once") <= 1
    assert ran.count("inside") <= 1
    results = [item for item in result.items if item["type"] == "tool_result"]
    assert len(results) == 3
    for item in results:
        assert item.get("error", {}).get("code") in (None, "interrupted")


PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("final", [PNG + b"3", PNG + b"1"], ids=["same image", "other image"])
async def test_an_idempotent_tool_that_has_shown_blocks_runs_again_and_shows_them_once(
    tmp_path: Path, final: bytes
) -> None:
    runs, open_ = list[int](), asyncio.Event()

    @streaming_tool(idempotent=True)
    async def paint() -> AsyncIterator[Any]:
        """Paints."""
        runs.append(1)
        yield Text(text="half")
        yield partial_image(PNG + b"1")
        yield image(PNG + b"3" if len(runs) == 1 else final)
        yield file("a;b", "table.csv", "text/csv")
        yield partial_image(PNG + b"2")
        await open_.wait()
        yield image(PNG + b"4")
        yield "whole"

    agent = Agent("a", model=Scripted([call("paint")], [say("Done.")]), tools=[paint])
    seen = list[Any]()

    def found(event: Any) -> bool:
        seen.append(event)
        return sum(isinstance(each, ev.ImageDelta) for each in seen) == 2

    async with running(tmp_path, agent) as app:
        run = await app.start("a", "?")
        await reach(run, found)
    open_.set()
    async with running(tmp_path, agent) as app:
        result = await (await app.run(run.id)).result()
    assert len(runs) == 2
    blocks = result.items[1]["block_list"]
    # From the first block that differs on, blocks are shown as well.
    more = [] if final.endswith(b"3") else ["image", "file", "image"]
    assert [block["type"] for block in blocks] == ["text", "image", "file", "image", *more, "text"]
    assert [block["text"] for block in blocks if block["type"] == "text"] == ["half", "whole"]
    assert "status" not in result.items[1]
    assert result.text == "Done."


async def test_from_the_first_block_that_differs_on_a_tool_that_runs_again_adds_its_blocks(
    tmp_path: Path,
) -> None:
    runs, open_ = list[int](), asyncio.Event()

    @streaming_tool(idempotent=True)
    async def find() -> AsyncIterator[Any]:
        """Finds in any order."""
        runs.append(1)
        for text in ("first", "a", "b") if len(runs) == 1 else ("first", "b", "a"):
            yield Text(text=text)
        await open_.wait()

    agent = Agent("a", model=Scripted([call("find")], [say("Done.")]), tools=[find])
    async with running(tmp_path, agent) as app:
        run = await app.start("a", "?")
        await reach(run, lambda event: getattr(event, "item", None) == Text(text="b"))
    open_.set()
    async with running(tmp_path, agent) as app:
        result = await (await app.run(run.id)).result()
    texts = [block["text"] for block in result.items[1]["block_list"]]
    assert texts == ["first", "a", "b", "b", "a"]


async def test_agents_that_an_idempotent_tool_has_asked_are_not_asked_twice(
    tmp_path: Path,
) -> None:
    runs, asked = list[int](), list[str]()

    def answer(name: str, pace: float = 0) -> Any:
        def script(turn: int) -> list[Any]:
            asked.append(name)
            if turn == 0:
                return [call("source")]
            return [say(f"{name} says so.[^1]", pace=pace if asked.count(name) < 3 else 0)]

        return Scripted(script)

    @tool
    def source() -> str:
        """A source."""
        return "The source."

    async def plain(task: Task) -> None:
        asked.append("plain")
        with task.message() as message:
            message.text("Plain.")
            await task.drain()
            if len(runs) == 1:
                await asyncio.Event().wait()

    quick = Agent("quick", model=answer("quick"), tools=[source])
    slow = Agent("slow", model=answer("slow", SLOW), tools=[source])
    broken = Agent("broken", model=Scripted([fail("key_refused")]), patience=Patience(retries=0))

    @tool(idempotent=True)
    async def panel(ctx: Context) -> str:
        """Asks agents."""
        runs.append(1)
        with suppress(ToolError):
            await ctx.ask(broken, "?")
        first = await ctx.ask(quick, "?")
        return " ".join([first, *await asyncio.gather(ctx.ask(slow, "?"), ctx.ask(plain, "?"))])

    agent = Agent("a", model=Scripted([call("panel")], [say("Done.[^1]")]), tools=[panel])

    def speaks(event: Any) -> bool:
        return isinstance(event, ev.TextDelta) and event.delta.startswith("slow")

    result, events = await left_and_continued(
        tmp_path, agent, agent, speaks, lambda: "plain" in asked
    )
    assert len(runs) == 2
    assert asked.count("quick") == 2  # two turns, in one run
    assert asked.count("slow") == 3  # its second turn is repeated
    assert asked.count("plain") == 2
    created = [str(e.agent) for e in events if isinstance(e, ev.TaskCreated) and e.call_id]
    assert sorted(created) == ["broken", "broken", "plain", "plain", "quick", "slow"]
    assert (result.status, result.text) == ("completed", "Done.[^1]")
    [answer_block] = [b for b in result.items[1]["block_list"] if b["type"] == "text"]
    assert answer_block["text"].startswith("quick says so.[^")
    assert answer_block["text"].endswith("Plain.")


async def test_a_cancel_without_a_worker_gives_each_call_of_the_tree_a_result(
    tmp_path: Path,
) -> None:
    desk = Desk()

    @tool(needs_approval=True)
    async def pay() -> str:
        """Needs a person."""
        return "paid"

    child = Agent("child", model=Scripted([call("pay")]), tools=[pay])
    model = Scripted([call("pay"), call("slow"), call("child", prompt="?")], [say("Never.")])
    agent = Agent("a", model=model, tools=[pay, *desk.tools(), child.as_tool()])
    async with running(tmp_path, agent) as app:
        run = await app.start("a", "?")
        await reach(run, lambda e: isinstance(e, ev.TaskInputRequired) and e.task_id != run.id)
        await until(lambda: "slow" in desk.runs)
    app = Tailrace([agent], tmp_path / "log.db", worker=False)
    async with app.running(), asyncio.timeout(120):
        await (await app.run(run.id)).cancel()
        result = await (await app.run(run.id)).result()
    assert result.status == "cancelled"
    outputs = [item for item in result.items if item["type"] == "tool_result"]
    assert len(outputs) == 3
    assert {item["error"]["code"] for item in outputs} == {"cancelled", "interrupted"}
    [inside] = [item["block_list"] for item in outputs if item["block_list"]]
    assert [item["type"] for item in inside] == ["tool_call", "tool_result"]
    assert inside[1]["error"]["code"] == "cancelled"
