"""A limit on cost, with prices of the user's own, over a tree of agents and over HTTP."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace import Agent, Limits, Tailrace, tool
from tailrace.models import call, open_model, say
from tailrace.ports import Model
from tailrace.testing import Simulator
from tests.runtime.agents.test_takeover_scenarios import results_in
from tests.serving import client_of


@tool
def look() -> str:
    """Looks around."""
    return "trees"


def tree(model: Model, *, streaming: bool) -> Agent:
    """Three levels: `top` asks `middle` without end, which asks `low` twice, which looks twice."""
    low = Agent("low", model=model, instructions="I am low.", tools=[look])
    below = [low.as_tool(streaming=streaming)]
    middle = Agent("middle", model=model, instructions="I am middle.", tools=below)
    below = [middle.as_tool(streaming=streaming)]
    limits = Limits(cost=0.75)
    return Agent("top", model=model, instructions="I am top.", tools=below, limits=limits)


def script(body: dict[str, Any]) -> list[Any]:
    text = msgspec.json.encode(body).decode()
    results = results_in(text)
    if "I am low." in text:
        return [call("look")] if results < 2 else [say("Low.")]
    if "I am middle." in text:
        return [call("low", prompt="?")] if results < 2 else [say("Middle.")]
    return [call("middle", prompt="?")]


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_limit_on_cost_counts_the_whole_tree_with_the_users_prices(
    tmp_path: Path, streaming: bool
) -> None:
    asked: list[str] = []

    def price(name: str, _usage: Any) -> float:
        asked.append(name)
        return 0.1

    async with Simulator(lambda _: script(provider.requests[-1])) as provider:
        model = open_model("anthropic:model-1", base_url=provider.url, api_key="any", prices=price)
        app = Tailrace([tree(model, streaming=streaming)], database=tmp_path / "log.db")
        async with app.running(), client_of(app) as client, asyncio.timeout(120):
            made = await client.post("/runs", json={"agent": "top", "input": "?"})
            run = await app.run(made.json()["run_id"])
            result = await run.result()
            shown = (await client.get(f"/runs/{run.id}?format=task")).json()
        await model.close()
    assert (result.status, result.reason) == ("incomplete", "max_cost=0.75")
    assert len(provider.requests) == len(asked) == 8  # the call that passes the limit is the last
    assert result.usage.cost == pytest.approx(0.8)
    assert set(asked) == {"model-1"}
    assert (shown["status"], shown["reason"]) == ("incomplete", "max_cost=0.75")


@pytest.mark.parametrize(
    ("price", "limit", "calls"),
    [
        (0.1, 0.3, 3),
        (0.1, 0.8, 8),
        (0.1, 1, 10),
        (0.01, 0.06, 6),
        (0.1, 0.1 + 0.2, 3),
        (1e-7, 0, 0),
    ],
)
async def test_a_limit_on_cost_is_exact_at_its_border(
    tmp_path: Path, price: float, limit: float, calls: int
) -> None:
    """A sum of floats is a little less, or more, than the sum that a person calculates."""
    async with Simulator([call("look")]) as provider:
        model = open_model(
            "openai:model-1",
            base_url=provider.openai_url,
            api_key="any",
            prices=lambda _name, _usage: price,
        )
        agent = Agent("a", model=model, tools=[look], limits=Limits(cost=limit))
        app = Tailrace([agent], tmp_path / "log.db")
        async with app.running(), asyncio.timeout(120):
            result = await (await app.start("a", "?")).result()
        await model.close()
    assert result.status == "incomplete"
    assert len(provider.requests) == calls


async def test_a_limit_on_cost_goes_on_counting_in_the_worker_that_takes_over(
    tmp_path: Path,
) -> None:
    """The first worker spends 0.5 and is lost while a tool runs."""
    hanging, begun = asyncio.Event(), asyncio.Event()

    @tool(idempotent=True)
    async def wait_for_it() -> str:
        """Waits."""
        begun.set()
        await hanging.wait()
        return "here"

    def waiting(body: dict[str, Any]) -> list[Any]:
        text = msgspec.json.encode(body).decode()
        return [call("look")] if results_in(text) != 4 else [call("wait_for_it")]

    async with Simulator(lambda _: waiting(provider.requests[-1])) as provider:
        model = open_model(
            "openai:model-1",
            base_url=provider.openai_url,
            api_key="any",
            prices=lambda _name, _usage: 0.1,
        )
        agent = Agent("a", model=model, tools=[look, wait_for_it], limits=Limits(cost=0.65))
        app = Tailrace([agent], tmp_path / "log.db", grace=timedelta(0))
        async with app.running(), asyncio.timeout(120):
            run = await app.start("a", "?")
            await begun.wait()
        hanging.set()
        app = Tailrace([agent], tmp_path / "log.db")
        async with app.running(), asyncio.timeout(120):
            result = await (await app.run(run.id)).result()
        await model.close()
    assert (result.status, result.reason) == ("incomplete", "max_cost=0.65")
    assert len(provider.requests) == 7
