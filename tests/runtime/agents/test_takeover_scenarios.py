"""A worker takes over runs of many kinds behind every event: a table of scenarios.

As in `test_agent_takeover`, the log of a whole run is cut after event n, and another worker goes on
from there, with a strict provider as the model. Then the next turn of the conversation begins.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace import Agent, Context, Memory, mcp_server, notify, streaming_tool, tool
from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.core.items import Text, ToolResult
from tailrace.models import call, say, think
from tailrace.runtime.runs.run import Result
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.simulator import Simulator
from tests.effort import SOAK
from tests.runtime.agents.simulated import opened
from tests.runtime.agents.test_agent_takeover import (
    APIS,
    NEXT,
    WHOLE,
    Log,
    Ran,
    continued,
    cut_behind,
    decoded,
    facts,
    leave,
    log_of,
    places,
    running,
    set_free,
    whole_run,
)
from tests.runtime.tools.test_from_mcp import SHOP


class Scenario(msgspec.Struct, frozen=True):
    """An agent, what its provider answers, and how its run ends."""

    agent: Callable[[Any, Ran], Agent]
    script: Callable[[str, int], list[Any]]
    """From the text of a request, and the number of the results in it."""
    end: dict[str, Any]
    """Attributes of the result."""
    once: frozenset[str] = frozenset()
    """The tools that may not run twice."""


def results_in(text: str) -> int:
    marks = ('"function_call_output"', '"role":"tool"', '"type":"tool_result"')
    return sum(text.count(mark) for mark in marks)


# --- the scenarios -------------------------------------------------------------------------------


def handoff(model: Any, ran: Ran) -> Agent:
    @tool
    async def refund(ctx: Context) -> str:
        """May not run twice."""
        return ran.note(ctx, "refund")

    billing = Agent("billing", model=model, instructions="BILLING", tools=[refund])
    return Agent("a", model=model, instructions="TRIAGE", handoffs=[billing])


def handoff_script(text: str, results: int) -> list[Any]:
    if "TRIAGE" in text:
        if results:
            return [say("The transfer failed.")]
        return [think("Hm."), say("One moment."), call("transfer_to_billing", reason="Money.")]
    return [say("Paid back.")] if results > 1 else [think("So."), call("refund")]


def nested(model: Any, ran: Ran) -> Agent:
    def named(name: str, *tools: Any) -> Agent:
        @tool(name=f"find_{name}")
        async def find(ctx: Context) -> str:
            """May not run twice."""
            return ran.note(ctx, f"find_{name}")

        return Agent(name, model=model, instructions=f"I am {name}.", tools=[find, *tools])

    middle = named("middle", named("low").as_tool())
    return named("a", middle.as_tool())


def nested_script(text: str, results: int) -> list[Any]:
    name, below = next(pair for pair in NESTED if f"I am {pair[0]}." in text)
    if results:
        return [say("All.[^1][^2]" if below else "Low.[^1]")]
    asked = [call(below, prompt="?")] if below else []
    return [think("Hm."), call(f"find_{name}"), *asked]


NESTED = (("a", "middle"), ("middle", "low"), ("low", None))


def streamed(model: Any, ran: Ran) -> Agent:
    @streaming_tool
    async def survey(ctx: Context) -> AsyncIterator[Any]:
        """Shows its progress, and may not run twice."""
        ran.note(ctx, "survey")
        yield notify("asking", progress=0.5)
        yield Text(text="half")
        yield notify("still asking", data={"left": 1})
        yield "whole"

    @streaming_tool(idempotent=True)
    async def count(ctx: Context) -> AsyncIterator[Any]:
        """Shows its progress, and may run twice."""
        ran.note(ctx, "count")
        yield notify("counting", progress=0.5)
        yield {"count": 3}

    return Agent("a", model=model, tools=[survey, count])


def streamed_script(text: str, results: int) -> list[Any]:
    return [say("Three.")] if results else [think("Hm."), call("survey"), call("count")]


class Trip(msgspec.Struct):
    city: str


def typed(model: Any, ran: Ran) -> Agent:
    @tool
    async def look(ctx: Context) -> str:
        """May not run twice."""
        return ran.note(ctx, "look")

    return Agent("a", model=model, tools=[look], output=Trip)


def typed_script(text: str, results: int) -> list[Any]:
    if not results:
        return [call("look")]
    is_corrected = "Your last answer was refused" in text
    return [think("So."), say('{"city": "Paris"}' if is_corrected else "Paris, I think.")]


def withheld(model: Any, ran: Ran) -> Agent:
    @tool
    async def look(ctx: Context) -> str:
        """May not run twice."""
        return ran.note(ctx, "look")

    def no_secret(text: str) -> str | None:
        return "The answer has a secret." if "sk-1" in text else None

    return Agent("a", model=model, tools=[look], output_guardrails=[no_secret])


def withheld_script(text: str, results: int) -> list[Any]:
    if NEXT in text:
        assert "sk-1" not in text
        return [say("Sunny.")]
    return [think("So."), say("It is sk-1.")] if results else [call("look")]


def refused(model: Any, ran: Ran) -> Agent:
    def no_question(text: str) -> str | None:
        return "No questions." if text == "?" else None

    return Agent("a", model=model, input_guardrails=[no_question])


def refused_script(text: str, results: int) -> list[Any]:
    raise AssertionError("the model was asked")


def shop(model: Any, ran: Ran) -> Agent:
    return Agent(
        "a",
        model=model,
        instructions=lambda ctx: f"Customer {ctx.run_id}.",
        tools=[mcp_server(command=SHOP, only={"add", "buy"})],
    )


SCENARIOS = {
    "handoff": Scenario(
        handoff,
        handoff_script,
        {"status": "completed", "text": "Paid back."},
        frozenset({"refund", "transfer_to_billing"}),
    ),
    "nested": Scenario(
        nested,
        nested_script,
        {"status": "completed", "text": "All.[^1][^2]"},
        frozenset({"find_low", "find_middle", "find_a"}),
    ),
    "streamed": Scenario(
        streamed, streamed_script, {"status": "completed", "text": "Three."}, frozenset({"survey"})
    ),
    "typed": Scenario(
        typed, typed_script, {"status": "completed", "output": Trip("Paris")}, frozenset({"look"})
    ),
    "withheld": Scenario(withheld, withheld_script, {"status": "failed"}, frozenset({"look"})),
    "shop": Scenario(
        shop, lambda *_: [], {"status": "completed", "text": "Bought."}, frozenset({"buy"})
    ),
    "refused": Scenario(refused, refused_script, {"status": "failed"}),
}


def check(scenario: Scenario, before: Log, after: Log, ran: list[str], result: Result) -> None:
    """What holds for each run that was continued from a log."""
    assert after[: len(before)] == before
    state = State()
    for event in decoded(after):
        state.apply(event)
    assert all(task.ended for task in state.tasks.values())
    for name, value in scenario.end.items():
        assert getattr(result, name) == value, (result.error, result.items)
    started, done = facts(before)
    for name, times in Counter(ran).items():
        assert times == 1
        assert name not in done, f"{name} has a result, and ran again"
        assert name not in scenario.once or name not in started, f"{name} had started"
    codes = {
        node.item.error.code
        for task in state.tasks.values()
        for node in task.output()
        if isinstance(node.item, ToolResult) and node.item.error
    }
    assert codes <= {"interrupted"}, codes
    for task in state.tasks.values():
        assert len(task.call_results) == len(
            [node for node in task.calls.values() if not node.superseded]
        )


def shop_script(text: str, results: int, book: Path) -> list[Any]:
    customer = re.search(r"Customer (run_\d+)", text)
    assert customer is not None
    bought = call("buy", customer=customer[1], book=str(book))
    return [say("Bought.")] if results else [think("Hm."), call("add", a=1, b=2), bought]


def api_of(name: str) -> list[str]:
    """The APIs with which a scenario is tried: all in `make soak`."""
    place = list(SCENARIOS).index(name)
    return APIS if SOAK else [APIS[place % len(APIS)]]


@pytest.mark.parametrize(
    ("name", "api"), [(name, api) for name in SCENARIOS for api in api_of(name)]
)
async def test_a_worker_takes_over_behind_every_event(tmp_path: Path, name: str, api: str) -> None:
    scenario, ran, book = SCENARIOS[name], Ran(), tmp_path / "book"
    provider: Simulator

    def script(_: int) -> list[Any]:
        text = msgspec.json.encode(provider.requests[-1]).decode()
        if NEXT in text and name != "withheld":
            return [say('{"city": "Paris"}' if name == "typed" else "Sunny.")]
        if name == "shop":
            return shop_script(text, results_in(text), book)
        return scenario.script(text, results_in(text))

    def held(before: Log, after: Log, made: list[str], result: Result) -> None:
        bought = book.read_text().split() if book.exists() else []
        made = made + ["buy"] * bought.count(result.object["task_id"])
        check(scenario, before, after, made, result)

    async with Simulator(script) as provider, opened(api, provider) as model:
        agent = scenario.agent(model, ran)
        whole, result = await whole_run(tmp_path / "whole.db", agent)
        held(whole[:1], whole, ran.by_run.get(WHOLE, []), result)
        cuts = cut_behind(whole, places(len(whole), api))
        await continued(tmp_path / "once.db", agent, ran, cuts, held)
    assert provider.refusals == []


# --- a run that compacts its conversation -------------------------------------------------------

EARLIER = ["run_e01", "run_e02", "run_e03"]
SUMMARY = "They spoke of rivers."


def long_script(text: str) -> list[Any]:
    if "SUMMARIZE" in text:
        return [think("Long."), say(SUMMARY)]
    return [think("Hm."), say("An answer.")] if results_in(text) else [think("So."), call("look")]


def compacting(model: Any, ran: Ran) -> Agent:
    agent = typed(model, ran)
    memory = Memory(max_tokens=20, keep_runs=1, instructions="SUMMARIZE")
    return Agent("a", model=model, tools=agent.tools, memory=memory)


@pytest.mark.parametrize("api", APIS)
async def test_a_worker_takes_over_a_run_that_compacts_its_conversation(
    tmp_path: Path, api: str
) -> None:
    ran = Ran()
    provider: Simulator

    def script(_: int) -> list[Any]:
        text = msgspec.json.encode(provider.requests[-1]).decode()
        return [say("Sunny.")] if NEXT in text else long_script(text)

    async with Simulator(script) as provider, opened(api, provider) as model:
        agent = compacting(model, ran)
        plain = Agent("a", model=model, tools=agent.tools)
        async with running(tmp_path / "log.db", plain) as app:
            for place, run_id in enumerate(EARLIER):
                question = f"Question {place} is about the rivers of France."
                previous = EARLIER[place - 1] if place else None
                run = await app.start("a", question, run_id=run_id, previous_run=previous)
                await run.result()
        async with running(tmp_path / "log.db", agent) as app:
            run = await app.start("a", "?", run_id=WHOLE, previous_run=EARLIER[-1])
            assert (await run.result()).object["compacted"]["summary"] == SUMMARY
            whole = await log_of(app._runs.store, WHOLE)
        cuts = cut_behind(whole, places(len(whole), api))
        store = await SqliteStore.open(tmp_path / "log.db")
        for run_id, log in cuts.items():
            await leave(store, run_id, log, EARLIER[-1])
        await set_free(store, list(cuts))
        await store.close()
        ran.by_run.clear()
        async with running(tmp_path / "log.db", agent) as app:
            for run_id, log in cuts.items():
                result = await (await app.run(run_id)).result()
                assert (result.status, result.text) == ("completed", "An answer.")
                after = await log_of(app._runs.store, run_id)
                assert after[: len(log)] == log
                made = [one for one in decoded(after) if isinstance(one, ev.HistoryCompacted)]
                assert [one.summary for one in made] == [SUMMARY]
                assert ran.by_run.get(run_id, []).count("look") == ("look" not in facts(log)[0])
                again = await (await app.start("a", NEXT, previous_run=run_id)).result()
                assert again.status == "completed"
                sent = msgspec.json.encode(provider.requests[-1]).decode()
                assert SUMMARY in sent
                assert "Question 0" not in sent
    assert provider.refusals == []
