"""Agents as tools: isolation, citations, limits, failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tailrace import (
    Agent,
    Context,
    Limits,
    Tailrace,
    ToolError,
    ask_for_help,
    streaming_tool,
    tool,
)
from tailrace.core import events as ev
from tailrace.core.items import ToolCall, ToolResult
from tailrace.models.scripted import Scripted, call, cut, fail, say, think
from tailrace.runtime.model_calls.call import Patience
from tailrace.runtime.runs.run import Result


@tool
async def get_weather(city: str) -> str:
    """Current weather."""
    return f"{city}: sunny"


def weather(**options: Any) -> Agent:
    model = Scripted(
        [think("Which city?"), call("get_weather", city="Paris")], [say("Sunny in Paris.[^1]")]
    )
    return Agent("weather", model=model, tools=[get_weather], description="Weather.", **options)


@asynccontextmanager
async def running(path: Path, agent: Any) -> AsyncIterator[Tailrace]:
    app = Tailrace([agent], database=path / "log.db")
    async with app.running(), asyncio.timeout(120):
        yield app


async def played(path: Path, agent: Any) -> tuple[Result, list[Any]]:
    async with running(path, agent) as app:
        run = await app.start(agent.name, "Is it sunny in Paris?")
        events = [event async for event in run.events()]
        return await run.result(), events


async def test_a_child_works_under_the_id_of_its_call_and_its_caller_reads_its_answer_only(
    tmp_path: Path,
) -> None:
    model = Scripted([call("weather", prompt="Paris?")], [say("Yes.[^1]")])
    result, events = await played(tmp_path, Agent("a", model=model, tools=[weather().as_tool()]))
    container, message = result.items[1:]
    [created] = [e for e in events if isinstance(e, ev.TaskCreated) and e.parent_task_id]
    assert created.task_id == created.call_id == container["call_id"]
    assert created.input == "Paris?"
    inside = [item["type"] for item in container["block_list"]]
    assert inside == ["reasoning", "tool_call", "tool_result", "message"]
    assert message["block_list"][0]["annotations"][0]["reference_id"] == 1
    [imported] = [event for event in events if isinstance(event, ev.ReferenceImported)]
    assert imported.source_task_id == created.task_id
    added = [e for e in events if isinstance(e, ev.OutputItemAdded) and e.item.id.startswith("fco")]
    assert added[0].sequence_number < created.sequence_number  # the container comes first
    sent = str(result.to_input_list())
    assert "Sunny in Paris." in sent
    assert "Which city?" not in sent
    assert "get_weather" not in sent


async def test_three_levels_in_parallel_stay_apart(tmp_path: Path) -> None:
    def level(name: str, below: Agent) -> Agent:
        model = Scripted(
            [call(below.name, prompt="left"), call(below.name, prompt="right")],
            [say(f"{name} knows.[^1]")],
        )
        return Agent(name, model=model, tools=[below.as_tool()])

    agent = level("top", level("middle", weather()))
    result, events = await played(tmp_path, agent)
    created = [e for e in events if isinstance(e, ev.TaskCreated) and e.parent_task_id]
    assert len(created) == 2 + 4
    assert len({e.task_id for e in created}) == 6
    sent = str(result.to_input_list())
    assert "middle knows." in sent
    assert "Sunny in Paris." not in sent
    assert result.text == "top knows.[^1]"


async def test_a_child_that_does_not_stream_leaves_its_answer_and_its_usage(tmp_path: Path) -> None:
    model = Scripted([call("weather", prompt="Paris?")], [say("Yes.[^1]")])
    agent = Agent("a", model=model, tools=[weather().as_tool(streaming=False)])
    result, events = await played(tmp_path, agent)
    assert not any(isinstance(e, ev.TaskCreated) and e.parent_task_id for e in events)
    texts = [block["text"] for block in result.items[1]["block_list"]]
    assert texts == ["Paris: sunny", "Sunny in Paris.[^1]"]
    assert result.items[2]["block_list"][0]["annotations"][0]["reference_id"] == 1
    assert sum(isinstance(event, ev.TaskUsage) for event in events) == 4  # two of each agent
    assert "get_weather" not in str(result.to_input_list())


@pytest.mark.parametrize("streaming", [True, False])
async def test_the_usage_of_a_run_has_each_call_of_its_sub_agents_once(
    tmp_path: Path, streaming: bool
) -> None:
    below: Agent = weather()
    for name in ("middle", "top"):
        model = Scripted([call(below.name, prompt="Paris?")], [say("Sunny.")])
        below = Agent(name, model=model, tools=[below.as_tool(streaming=streaming)])
    result, events = await played(tmp_path, below)
    usages = [event.usage for event in events if isinstance(event, ev.TaskUsage)]
    assert len(usages) == result.object["usage"]["calls"] == 6  # two of each agent
    assert result.object["usage"]["input_tokens"] == sum(usage.input_tokens for usage in usages)
    assert result.usage.output_tokens == sum(usage.output_tokens for usage in usages)
    counts = [task["usage"]["calls"] for task in result.object.get("tasks", [])]
    assert counts == ([4, 2] if streaming else [])


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_childs_tool_knows_its_run_and_thread(tmp_path: Path, streaming: bool) -> None:
    places: list[Any] = []

    @tool
    async def look(ctx: Context) -> str:
        """Looks around."""
        places.append((ctx.run_id, ctx.thread_id, ctx.metadata))
        return "Seen."

    child = Agent("child", model=Scripted([call("look")], [say("Seen.")]), tools=[look])
    model = Scripted([call("child", prompt="?")], [say("Yes.")])
    agent = Agent("a", model=model, tools=[child.as_tool(streaming=streaming)])
    async with running(tmp_path, agent) as app:
        run = await app.start("a", "?", thread="t1", metadata={"user": "ada"})
        await run.result()
    assert places == [(run.id, "t1", {"user": "ada"})]


async def test_a_child_that_does_not_stream_cannot_ask_people(tmp_path: Path) -> None:
    @tool(needs_approval=True)
    async def pay() -> str:
        """Pays."""
        raise AssertionError

    @tool
    async def wonder(ctx: Context) -> str:
        """Asks a question."""
        return str(await ctx.task.ask("Which city?"))

    paid: list[Any] = []

    def look(ctx: Context) -> str:
        results = [item for item in ctx.task.state["output"] if item["type"] == "tool_result"]
        paid[:] = [item["error"]["message"] for item in results]
        return ""

    child = Agent(
        "child",
        model=Scripted([call("pay"), call("wonder")], [say("I could not.")]),
        tools=[pay, wonder],
        instructions=look,
    )
    model = Scripted([call("child", prompt="?")], [say("Alas.")])
    agent = Agent("a", model=model, tools=[child.as_tool(streaming=False)])
    result, events = await played(tmp_path, agent)
    assert (result.status, result.items[1]["block_list"][0]["text"]) == (
        "completed",
        "I could not.",
    )
    assert len(paid) == 2
    assert all("cannot ask people" in message for message in paid)
    assert not any(isinstance(event, ev.TaskInputRequired) for event in events)


async def test_a_childs_failure_is_a_result_and_its_caller_goes_on(tmp_path: Path) -> None:
    broken = Agent("broken", model=Scripted([fail("key_refused")]), patience=Patience(retries=0))
    model = Scripted([call("broken", prompt="?")], [say("It cannot be reached.")])
    for streaming in (True, False):
        place = tmp_path / str(streaming)
        place.mkdir()
        agent = Agent("a", model=model, tools=[broken.as_tool(streaming=streaming)])
        result, _ = await played(place, agent)
        assert result.text == "It cannot be reached."
        assert result.items[1]["error"]["code"] == "key_refused"


async def test_children_that_do_not_stream_stop_at_the_limits_above_them(tmp_path: Path) -> None:
    """Two at a time, three levels deep; each model call has 10 tokens or more."""
    model = Scripted([call("get_weather", city="Paris")])  # it never stops calling
    below = Agent("weather", model=model, tools=[get_weather])
    for name in ("middle", "upper"):
        asks = [call(below.name, prompt="?"), call(below.name, prompt="And?")]
        tools = [below.as_tool(streaming=False)]
        below = Agent(name, model=Scripted(asks, [say("Sunny.")]), tools=tools)
    agent = Agent(
        "a",
        model=Scripted([call("upper", prompt="?")], [say("Sunny.")]),
        tools=[below.as_tool(streaming=False)],
        limits=Limits(tokens=150),
    )
    result, _ = await played(tmp_path, agent)
    assert (result.status, result.object["reason"]) == ("incomplete", "max_tokens=150")
    assert result.items[1]["error"]["message"].endswith("max_tokens=150")
    # The calls that were on their way count, too: four children were at work at the same time.
    used = result.usage.input_tokens + result.usage.output_tokens
    assert 150 <= used < 200


async def test_a_child_has_limits_of_its_own(tmp_path: Path) -> None:
    below = weather(limits=Limits(turns=1))
    model = Scripted([call("weather", prompt="?")], [say("It gave up.")])
    result, events = await played(tmp_path, Agent("a", model=model, tools=[below.as_tool()]))
    [end] = [event for event in events if isinstance(event, ev.TaskIncomplete)]
    assert end.reason == "max_turns=1"
    assert "max_turns=1" in result.items[1]["error"]["message"]
    assert result.text == "It gave up."


async def test_a_retry_of_one_sub_agent_leaves_the_usage_of_the_others_in_the_run(
    tmp_path: Path,
) -> None:
    retried = asyncio.Event()

    class Broken(Scripted):
        """Its answer breaks off twice. The request after a broken answer leaves that out."""

        def stream(self, request: Any) -> Any:
            answer: list[Any] = [say("B.")] if request.attempt > 2 else [say("Half"), cut()]
            return Scripted(answer).stream(request)

    class Waiting(Scripted):
        async def stream(self, request: Any) -> Any:
            await retried.wait()
            async for frames in super().stream(request):
                yield frames

    def seen(_text: str) -> None:
        retried.set()

    hasty = Patience(first_wait=0.001)
    one = Agent("one", model=Broken([say("x")]), patience=hasty, output_guardrails=[seen])
    two = Agent("two", model=Waiting([say("C.")]))
    both = [call("one", prompt="?"), call("two", prompt="?")]
    boss = Agent("boss", model=Scripted(both, [say("Done.")]), tools=[one.as_tool(), two.as_tool()])
    result, events = await played(tmp_path, boss)
    usages = [event.usage for event in events if isinstance(event, ev.TaskUsage)]
    assert (result.text, result.object["usage"]["calls"]) == ("Done.", len(usages))
    assert result.usage.output_tokens == sum(usage.output_tokens for usage in usages)
    notices = [event for event in events if isinstance(event, ev.Notice)]
    assert len(notices) == 2


async def test_usage_and_limits_count_the_whole_tree(tmp_path: Path) -> None:
    model = Scripted([call("weather", prompt="?")], [say("Never said.")])
    agent = Agent("a", model=model, tools=[weather().as_tool()], limits=Limits(tokens=15))
    result, events = await played(tmp_path, agent)
    assert (result.status, result.object["reason"]) == ("incomplete", "max_tokens=15")
    child = [e for e in events if isinstance(e, ev.TaskIncomplete) and e.task_id != "a"]
    assert child[0].reason == "max_tokens=15"


async def test_an_agent_that_calls_itself_stops_at_the_depth(tmp_path: Path) -> None:
    agent = Agent(
        "a", model=Scripted([call("a", prompt="again")], [say("Enough.")]), limits=Limits(depth=3)
    )
    agent.add_tools(agent.as_tool())
    result, events = await played(tmp_path, agent)
    created = [e for e in events if isinstance(e, ev.TaskCreated) and e.parent_task_id]
    assert len(created) == 3
    assert result.status == "completed"
    items = [event.item for event in events if isinstance(event, ev.OutputItemDone)]
    [error] = [item.error for item in items if isinstance(item, ToolResult) and item.error]
    assert error.code == "max_depth"
    assert "max_depth=3" in error.message


async def test_ask_for_help_delegates_to_an_agent_by_name(tmp_path: Path) -> None:
    asks = call("ask_for_help", name="weather", description="Knows the weather.", prompt="Paris?")
    model = Scripted([asks], [say("Sunny.[^1]")])
    agent = Agent("a", model=model, tools=[ask_for_help(weather())])
    result, events = await played(tmp_path, agent)
    [created] = [e for e in events if isinstance(e, ev.TaskCreated) and e.parent_task_id]
    assert (created.agent, created.input) == ("weather", "Paris?")
    assert result.text == "Sunny.[^1]"


async def test_ask_for_help_without_agents_makes_a_helper(tmp_path: Path) -> None:
    asks = call("ask_for_help", name="Weather Agent", description="Be kind.", prompt="Paris?")
    agent = Agent("a", model=Scripted([asks], [say("Sunny.")]), tools=[ask_for_help])
    agent.limits = Limits(depth=1)
    result, events = await played(tmp_path, agent)
    created = [e.agent for e in events if isinstance(e, ev.TaskCreated) and e.parent_task_id]
    assert created == ["Weather_Agent"]
    assert result.text == "Sunny."


async def test_ask_for_help_of_an_unknown_agent_is_an_error_that_the_model_reads(
    tmp_path: Path,
) -> None:
    asks = call("ask_for_help", name="nobody", prompt="?")
    agent = Agent("a", model=Scripted([asks], [say("Sorry.")]), tools=[ask_for_help(weather())])
    result, _ = await played(tmp_path, agent)
    assert "weather" in result.items[1]["error"]["message"]
    assert result.text == "Sorry."


async def test_a_function_can_be_a_sub_agent(tmp_path: Path) -> None:
    from tailrace.runtime.agents.sub_agents import AgentTool

    async def echo(task: Any) -> str:
        return f"You said: {task.text}"

    echo.name = "echo"  # type: ignore[attr-defined]
    tool_ = AgentTool(echo, name="echo", description="Repeats.")
    model = Scripted([call("echo", prompt="hello")], [say("Done.")])
    result, _ = await played(tmp_path, Agent("a", model=model, tools=[tool_]))
    assert "You said: hello" in str(result.to_input_list())


@pytest.mark.parametrize("asked_by", ["model", "tool"])
async def test_a_child_can_be_cancelled_alone_and_its_caller_reads_it(
    tmp_path: Path, asked_by: str
) -> None:
    below = Agent("below", model=Scripted([say("word " * 100, pace=0.01)]))

    @tool
    async def child(prompt: str, ctx: Context) -> str:
        """Asks an agent itself."""
        return await ctx.ask(below, prompt)

    asks = child if asked_by == "tool" else below.as_tool("child")
    model = Scripted([call("child", prompt="?"), call("get_weather", city="P")], [say("Without.")])
    async with running(tmp_path, Agent("a", model=model, tools=[asks, get_weather])) as app:
        run = await app.start("a", "?")
        async for event in run.events():
            if isinstance(event, ev.TextDelta):
                await run.cancel("Too slow.", task_id=event.task_id)
                await run.cancel("Again.", task_id=event.task_id)
                break
        result = await run.result()
        events = [event async for event in run.events()]
    assert (result.status, result.text) == ("completed", "Without.")
    [end] = [event for event in events if isinstance(event, ev.TaskCancelled)]
    assert (end.reason, end.task_id == run.id) == ("Too slow.", False)
    failed = [item["error"]["message"] for item in result.items if item.get("status") == "failed"]
    assert failed == ["The sub-agent ended without an answer: Too slow."]


async def test_a_cancel_ends_the_whole_tree_also_where_a_tool_ignores_it(tmp_path: Path) -> None:
    began = asyncio.Event()
    go = asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Ignores that it is cancelled."""
        began.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    child = Agent("child", model=Scripted([think("Hm."), call("stubborn")]), tools=[stubborn])
    model = Scripted([say("I ask."), call("child", prompt="?")], [say("Never.")])
    async with running(tmp_path, Agent("a", model=model, tools=[child.as_tool()])) as app:
        run = await app.start("a", "?")
        await began.wait()
        async with asyncio.timeout(120):
            await run.cancel("The user left.")
            result = await run.result()
        events = [event async for event in run.events()]
        go.set()
    assert (result.status, result.reason) == ("cancelled", "The user left.")
    assert result.text == "I ask."
    assert result.usage.output_tokens > 0
    ends = [e.task_id for e in events if isinstance(e, ev.TaskCancelled)]
    assert len(ends) == 2
    assert ends[-1] == run.id
    items = [e.item for e in events if isinstance(e, ev.OutputItemDone)]
    calls = {item.call_id for item in items if isinstance(item, ToolCall)}
    assert calls == {item.call_id for item in items if isinstance(item, ToolResult)}


async def test_agents_may_follow_each_other_in_one_task(tmp_path: Path) -> None:
    first = Agent("first", model=Scripted([say("One.")]))
    second = Agent("second", model=Scripted([say("Never.")], [say("Two.")]))

    async def both(task: Any) -> None:
        with task.step("first"):
            await first(task)
        with task.step("second"):
            await second(task)

    async with running(tmp_path, both) as app:
        result = await (await app.start("both", "?")).result()
    texts = [item["block_list"][0]["text"] for item in result.items]
    assert texts == ["One.", "Two."]


async def test_a_tool_may_ask_several_agents(tmp_path: Path) -> None:
    broken = Agent("broken", model=Scripted([fail("key_refused")]), patience=Patience(retries=0))

    @tool
    async def compare(ctx: Context) -> str:
        """Asks two agents at the same time, and a broken one."""
        found = await asyncio.gather(ctx.ask(weather(), "here"), ctx.ask(weather(), "there"))
        both = list(found)
        try:
            await ctx.ask(broken, "?")
        except ToolError as error:
            both.append(str(error))
        return " | ".join(both)

    agent = Agent("a", model=Scripted([call("compare")], [say("Equal.[^1]")]), tools=[compare])
    result, events = await played(tmp_path, agent)
    created = [e for e in events if isinstance(e, ev.TaskCreated) and e.parent_task_id]
    call_id = result.items[0]["call_id"]
    assert [e.task_id for e in created] == [call_id, f"{call_id}_2", f"{call_id}_3"]
    assert {e.call_id for e in created} == {call_id}
    inside = [item["type"] for item in result.items[1]["block_list"]]
    assert inside.count("message") == 2
    assert inside[-1] == "text"
    sent = str(result.to_input_list())
    assert sent.count("Sunny in Paris.[^1]") == 2  # the same source has the same number
    assert "get_weather" not in sent
    assert result.text == "Equal.[^1]"
    [imported] = [event for event in events if isinstance(event, ev.ReferenceImported)]
    assert (imported.task_id, imported.reference_id) == (events[0].task_id, 1)
    assert imported.source_task_id in {e.task_id for e in created}
    assert result.items[2]["block_list"][0]["annotations"][0]["reference_id"] == 1


async def test_a_tool_that_asked_an_agent_when_its_worker_was_lost_is_interrupted(
    tmp_path: Path,
) -> None:
    child = Agent("child", model=Scripted([say("word " * 100, pace=0.01)]))

    @tool
    async def compare(ctx: Context) -> str:
        """Asks an agent."""
        return await ctx.ask(child, "?")

    agent = Agent("a", model=Scripted([call("compare")], [say("Lost.")]), tools=[compare])
    app = Tailrace([agent], database=tmp_path / "log.db", grace=timedelta(0))
    async with app.running(), asyncio.timeout(120):
        run = await app.start("a", "?")
        async for event in run.events():
            if isinstance(event, ev.TextDelta):
                break
    async with running(tmp_path, agent) as app:
        result = await (await app.run(run.id)).result()
    assert result.items[1]["error"]["code"] == "interrupted"
    assert result.text == "Lost."


async def test_a_streaming_tool_may_yield_the_events_of_its_own_sub_agent(tmp_path: Path) -> None:
    @streaming_tool
    async def foreign(ctx: Context) -> AsyncIterator[Any]:
        """Runs an agent of another library."""
        task = ctx.call_id
        facts: dict[str, Any] = {"parent_task_id": ctx.task.task_id, "call_id": ctx.call_id}
        yield ev.TaskCreated(task_id=task, agent="foreign", **facts)
        yield ev.TaskInProgress(task_id=task)
        yield ev.Notice(task_id=task, message="at work")
        yield "done"

    @streaming_tool
    async def liar(ctx: Context) -> AsyncIterator[Any]:
        """Writes into a task that is not its own."""
        yield ev.Notice(task_id=ctx.run_id, message="forged")
        yield "done"

    model = Scripted([call("foreign"), call("liar")], [say("Two.")])
    result, events = await played(tmp_path, Agent("a", model=model, tools=[foreign, liar]))
    assert result.text == "Two."
    notices = [event.message for event in events if isinstance(event, ev.Notice)]
    assert notices == ["at work"]
    [error] = [item["error"] for item in result.items if item.get("status") == "failed"]
    assert "not of a sub-agent" in error["message"]
    [end] = [event for event in events if isinstance(event, ev.TaskCancelled)]
    assert end.reason == "Its tool ended."
