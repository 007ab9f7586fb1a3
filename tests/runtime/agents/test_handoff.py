"""An agent that hands the conversation to another: who speaks, with what, and after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace import Agent, Limits, Tailrace, tool
from tailrace.core import events as ev
from tailrace.core.errors import CallerError
from tailrace.core.fold import State
from tailrace.history import history
from tailrace.models import open_model
from tailrace.models.scripted import Scripted, call, say, think
from tailrace.ports import Request, ToolSpec
from tailrace.runtime.runs.run import Result, Run
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.simulator import Simulator
from tests.runtime.agents.test_agent_takeover import cut_behind, decoded, leave, set_free, whole_run


class Heard(Scripted):
    """A model that keeps the requests that it got."""

    def __init__(self, *turns: Any) -> None:
        super().__init__(*turns)
        self.requests: list[Request] = []

    def stream(self, request: Request) -> Any:
        self.requests.append(request)
        return super().stream(request)


@asynccontextmanager
async def running(path: Path, *agents: Any) -> AsyncIterator[Tailrace]:
    app = Tailrace(agents, database=path / "log.db", grace=timedelta(0))
    async with app.running(), asyncio.timeout(120):
        yield app


async def answer(path: Path, agent: Agent, **options: Any) -> tuple[Result, list[Any]]:
    async with running(path, agent) as app:
        run = await app.start(agent.name, "My invoice is wrong.", **options)
        events = [event async for event in run.events()]
        state = State()
        for event in events:
            state.apply(event)
        return await run.result(), events


def switches(events: list[Any]) -> list[tuple[str, str | None]]:
    return [(one.agent, one.reason) for one in events if isinstance(one, ev.AgentSwitched)]


@tool
async def find_invoice(number: int) -> str:
    """Finds an invoice."""
    return f"Invoice {number}: 5 euros."


async def test_the_model_hands_the_conversation_over_by_a_tool(tmp_path: Path) -> None:
    billing_model = Heard([say("?")], [call("find_invoice", number=7)], [say("It is 5 euros.[^1]")])
    asked = Heard([call("transfer_to_billing", reason="An invoice.")])
    billing = Agent(
        "billing",
        model=billing_model,
        instructions="You do invoices.",
        tools=[find_invoice],
        description="Knows invoices.",
    )
    triage = Agent("triage", model=asked, instructions="You sort.", handoffs=[billing])
    result, events = await answer(tmp_path, triage)
    assert (result.status, result.text) == ("completed", "It is 5 euros.[^1]")
    assert switches(events) == [("billing", "An invoice.")]
    [spec] = asked.requests[0].tools
    assert isinstance(spec, ToolSpec)
    assert (spec.name, "Knows invoices." in spec.description) == ("transfer_to_billing", True)
    assert result.items[1]["block_list"][0]["text"] == "billing takes over."
    assert "id" not in result.items[1]["block_list"][0]
    assert result.object["agent"] == "billing"
    assert result.object["switches"][0]["from"] == "triage"


async def test_the_other_agents_model_instructions_and_tools_are_used_on_the_same_history(
    tmp_path: Path,
) -> None:
    billing_model = Heard([say("Which one?")])
    billing = Agent(
        "billing", model=billing_model, instructions="You do invoices.", tools=[find_invoice]
    )
    triage = Agent(
        "triage",
        model=Scripted([say("One moment."), call("transfer_to_billing")]),
        instructions="You sort.",
        handoffs=[billing],
    )
    result, _ = await answer(tmp_path, triage)
    [request] = billing_model.requests
    assert request.instructions == "You do invoices."
    assert [one.name for one in request.tools if isinstance(one, ToolSpec)] == ["find_invoice"]
    asked, answered, took = history(request.chain[:1], "openai_chat").items[:3]
    assert (asked["content"], answered["content"]) == ("My invoice is wrong.", "One moment.")
    assert took["content"] == "billing takes over."
    assert result.text == "Which one?"


async def test_agents_may_hand_over_in_a_circle_and_limits_go_on(tmp_path: Path) -> None:
    first = Agent("first", model=Scripted([call("transfer_to_second")]), limits=Limits(turns=5))
    second = Agent(
        "second",
        model=Scripted([call("transfer_to_first")]),
        handoffs=[first],
        limits=Limits(turns=1),
    )
    first.add_handoffs(second)
    result, events = await answer(tmp_path, first)
    assert (result.status, result.object["reason"]) == ("incomplete", "max_turns=5")
    assert [agent for agent, _ in switches(events)] == [
        *("second", "first", "second", "first", "second")
    ]
    assert result.object["usage"]["calls"] == 5


async def test_only_the_first_handoff_of_a_turn_counts_and_the_model_reads_why(
    tmp_path: Path,
) -> None:
    left = Agent("left", model=Scripted([say("Left.")]))
    right = Agent("right", model=Scripted([say("Right.")]))
    triage = Agent(
        "triage",
        model=Scripted([call("transfer_to_left"), call("transfer_to_right")]),
        handoffs=[left, right],
    )
    result, events = await answer(tmp_path, triage)
    assert (result.text, switches(events)) == ("Left.", [("left", None)])
    errors = [item["error"]["code"] for item in result.items if "error" in item]
    assert errors == ["second_handoff"]


async def test_the_output_type_is_that_of_the_agent_that_answers(tmp_path: Path) -> None:
    class Price(msgspec.Struct):
        euros: int

    billing = Agent("billing", model=Scripted([say('{"euros": 5}')]), output=Price)
    triage = Agent("triage", model=Scripted([call("transfer_to_billing")]), handoffs=[billing])
    result, _ = await answer(tmp_path, triage)
    assert result.output == Price(euros=5)


async def test_a_sub_agent_may_hand_over_in_its_own_task(tmp_path: Path) -> None:
    billing = Agent("billing", model=Scripted([say("5 euros.")]))
    desk = Agent("desk", model=Scripted([call("transfer_to_billing")]), handoffs=[billing])
    boss = Agent(
        "boss", model=Scripted([call("desk", prompt="How much?")], [say("Done.")]), tools=[desk]
    )
    result, events = await answer(tmp_path, boss)
    [switch] = [event for event in events if isinstance(event, ev.AgentSwitched)]
    [child] = result.object["tasks"]
    assert switch.task_id == child["task_id"] != result.object["task_id"]
    assert (child["agent"], result.object["agent"]) == ("billing", "boss")
    assert "5 euros." in str(result.items[1])


async def test_a_later_turn_starts_with_the_agent_that_the_caller_names(tmp_path: Path) -> None:
    heard = Heard([call("transfer_to_billing")], [say("Hello again.")])
    billing = Agent("billing", model=Scripted([say("5 euros.")]))
    triage = Agent("triage", model=heard, handoffs=[billing])
    async with running(tmp_path, triage, billing) as app:
        await (await app.start("triage", "How much?", thread="t")).result()
        again = await (await app.start("triage", "Hello?", thread="t")).result()
        other = await (await app.start("billing", "And now?", thread="t")).result()
    assert (again.text, again.object["agent"]) == ("Hello again.", "triage")
    assert (other.text, other.object["agent"]) == ("5 euros.", "billing")
    assert len(heard.requests[-1].chain) == 2


# --- recovery ------------------------------------------------------------------------------------


async def reach(run: Run, found: Callable[[Any], bool]) -> None:
    async for event in run.events():
        if found(event):
            return
    raise AssertionError("the run ended before")


SLOW = say("word " * 100, pace=0.01)


def circle(first: Any, second: Any) -> Agent:
    other = Agent("second", model=Scripted(*second))
    agent = Agent("first", model=Scripted(*first), handoffs=[other])
    other.add_handoffs(agent)
    return agent


async def test_a_run_that_is_recovered_goes_on_with_the_agent_that_spoke_last(
    tmp_path: Path,
) -> None:
    before = circle([[call("transfer_to_second")]], [[SLOW]])
    after = circle([[say("No.")]], [[say("Second speaks.")]])
    async with running(tmp_path, before) as app:
        run = await app.start("first", "?")
        await reach(run, lambda event: isinstance(event, ev.TextDelta))
    async with running(tmp_path, after) as app:
        result = await (await app.run(run.id)).result()
    assert (result.text, result.object["agent"]) == ("Second speaks.", "second")


async def test_a_worker_that_is_lost_before_the_switch_leaves_it_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result of the call is in the log, and the event is not."""
    agent = circle([[call("transfer_to_second")]], [[say("Second speaks.")]])
    hanging = asyncio.Event()

    async def hang(*_: Any) -> None:
        await hanging.wait()

    with monkeypatch.context() as patch:
        patch.setattr("tailrace.runtime.agents.loop.Loop._hand_over", hang)
        async with running(tmp_path, agent) as app:
            run = await app.start("first", "?")
            await reach(
                run, lambda e: isinstance(e, ev.OutputItemDone) and e.item.id.startswith("fco")
            )
    async with running(tmp_path, agent) as app:
        result = await (await app.run(run.id)).result()
    assert (result.text, result.object["agent"]) == ("Second speaks.", "second")
    assert len(result.object["switches"]) == 1


async def test_a_worker_that_is_lost_inside_the_result_of_a_handoff_leaves_the_switch_to_the_next(
    tmp_path: Path,
) -> None:
    billing = Agent("second", model=Scripted([say("?")], [say("Second speaks.")]))
    model = Scripted([call("transfer_to_second")], [say("The transfer failed.")])
    agent = Agent("a", model=model, handoffs=[billing])
    whole, _ = await whole_run(tmp_path / "whole.db", agent)
    kinds = [type(event) for event in decoded(whole)]
    inside = range(kinds.index(ev.ToolCallStarted) + 1, kinds.index(ev.AgentSwitched) + 1)
    assert len(inside) > 3
    store = SqliteStore(str(tmp_path / "log.db"))
    cuts = cut_behind(whole, inside)
    for run_id, log in cuts.items():
        await leave(store, run_id, log)
    await set_free(store, list(cuts))
    await store.close()
    async with running(tmp_path, agent) as app:
        results = [await (await app.run(run_id)).result() for run_id in cuts]
    assert [result.text for result in results] == ["Second speaks."] * len(cuts)
    assert all(len(result.object["switches"]) == 1 for result in results)


async def test_a_run_whose_agent_is_declared_no_more_fails_and_names_it(tmp_path: Path) -> None:
    before = circle([[call("transfer_to_second")]], [[SLOW]])
    after = Agent("first", model=Scripted([say("No.")]))
    async with running(tmp_path, before) as app:
        run = await app.start("first", "?")
        await reach(run, lambda event: isinstance(event, ev.TextDelta))
    async with running(tmp_path, after) as app:
        result = await (await app.run(run.id)).result()
    assert result.error is not None
    assert result.error.code == "agent_unknown"
    assert "'second'" in result.error.message


# --- declaration and providers -------------------------------------------------------------------


def test_a_handoff_is_another_agent() -> None:
    agent = Agent("a", model=Scripted([say("x")]))
    with pytest.raises(CallerError, match="pass an Agent"):
        agent.add_handoffs("billing")  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="itself"):
        agent.add_handoffs(agent)


def test_the_models_of_agents_that_take_over_are_opened() -> None:
    other = Agent("b", model="scripted")
    agent = Agent("a", model=Scripted([say("x")]), handoffs=[other])
    agent._open_models(lambda _name: Scripted([say("y")]))
    assert other._opened is not None


@pytest.mark.parametrize("mode", ["drop", "encrypted", "stored"])
@pytest.mark.parametrize("api", ["openai", "openai-chat", "anthropic"])
async def test_every_provider_accepts_the_history_of_another_agent(
    tmp_path: Path, api: str, mode: Any
) -> None:
    turns: list[list[Any]] = [
        [think("Hm."), call("transfer_to_billing", reason="An invoice.")],
        [think("So."), call("find_invoice", number=7)],
        [think("Yes."), say("5 euros.")],
        [think("Well."), say("Hello again.")],
    ]
    async with Simulator(lambda number: turns[number]) as provider:
        base = provider.url if api == "anthropic" else provider.openai_url
        models = [open_model(f"{api}:model-{n}", base_url=base, api_key="any") for n in (1, 2)]
        billing = Agent("billing", model=models[1], tools=[find_invoice], history=mode)
        triage = Agent("triage", model=models[0], handoffs=[billing], history=mode)
        async with running(tmp_path, triage) as app:
            first = await (await app.start("triage", "How much?", thread="t")).result()
            second = await (await app.start("triage", "Hello?", thread="t")).result()
        for model in models:
            await model.close()
        assert provider.refusals == []
    assert (first.text, second.text) == ("5 euros.", "Hello again.")
    assert [one["model"] for one in provider.requests] == [
        *("model-1", "model-2", "model-2", "model-1")
    ]
