"""Long conversations: older turns are compacted, durably, and every provider accepts the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tailrace import Agent, Memory, Tailrace, tool
from tailrace.core import events as ev
from tailrace.core.errors import InvalidValue
from tailrace.history import history
from tailrace.models import open_model
from tailrace.models.scripted import Scripted, call, fail, say, think
from tailrace.ports import Request
from tailrace.runtime.model_calls.call import Patience
from tailrace.runtime.runs.run import Result
from tailrace.testing.simulator import Simulator

HASTY = Patience(first_wait=0.001, retries=0)


class Clerk(Scripted):
    """Answers questions, and summarizes when that is what it is asked."""

    def __init__(self, summary: Any = None) -> None:
        super().__init__([say("x")])
        self.made = summary or say("They spoke of rivers.")
        self.sent: list[str] = []
        self.asked_for: list[str] = []

    def stream(self, request: Request) -> Any:
        sent = str(history(request.chain, "openai_chat").items)
        if request.instructions is not None and "Summarize" in request.instructions:
            self.asked_for.append(sent)
            return Scripted([self.made]).stream(request)
        self.sent.append(sent)
        return Scripted([say(f"Answer {len(self.sent)}.")]).stream(request)


@asynccontextmanager
async def running(path: Path, *agents: Any) -> AsyncIterator[Tailrace]:
    app = Tailrace(agents, database=path / "log.db", grace=timedelta(0))
    async with app.running(), asyncio.timeout(120):
        yield app


async def talk(path: Path, agent: Agent, turns: int) -> list[Result]:
    results = []
    async with running(path, agent) as app:
        for number in range(1, turns + 1):
            run = await app.start(agent.name, f"Question {number}?", thread="t")
            results.append(await run.result())
    return results


SHORT = Memory(max_tokens=25, keep_runs=2)


async def test_older_turns_are_compacted_when_the_history_is_above_its_budget(
    tmp_path: Path,
) -> None:
    model = Clerk()
    results = await talk(tmp_path, Agent("a", model=model, memory=SHORT), 6)
    compacted = [result.object.get("compacted") for result in results]
    assert compacted[:3] == [None] * 3
    assert compacted[3] == {
        "summary": "They spoke of rivers.",
        "run_id": results[0].object["task_id"],
    }
    assert "Question 1?" in model.asked_for[0]
    assert "Question 2?" not in model.asked_for[0]
    assert "They spoke of rivers." in model.sent[3]
    assert "Question 1?" not in model.sent[3]
    assert all(f"Question {kept}?" in model.sent[3] for kept in (2, 3, 4))


async def test_a_later_summary_is_made_of_the_summary_before_and_the_runs_since(
    tmp_path: Path,
) -> None:
    model = Clerk()
    results = await talk(tmp_path, Agent("a", model=model, memory=SHORT), 5)
    assert "They spoke of rivers." in model.asked_for[1]
    assert "Question 2?" in model.asked_for[1]
    assert "Question 1?" not in model.asked_for[1]
    assert results[4].object["compacted"]["run_id"] == results[1].object["task_id"]


async def test_a_summary_has_no_instructions_that_the_agent_does_not_take(tmp_path: Path) -> None:
    model = Clerk()
    agent = Agent("a", model=model, memory=SHORT, client_options=())
    async with running(tmp_path, agent) as app:
        for number in range(1, 5):
            system = {"role": "developer", "content": "Arr."}
            asked = [system, {"role": "user", "content": f"Question {number}?"}]
            await (await app.start("a", asked, thread="t")).result()
    assert "Question 1?" in model.asked_for[0]
    assert "Arr." not in str((model.asked_for, model.sent))


async def test_a_short_conversation_is_not_compacted(tmp_path: Path) -> None:
    model = Clerk()
    results = await talk(tmp_path, Agent("a", model=model, memory=Memory()), 6)
    assert not any("compacted" in result.object for result in results)
    assert model.asked_for == []


async def test_what_is_compacted_already_is_not_compacted_again(tmp_path: Path) -> None:
    model = Clerk(say("long " * 100))
    memory = Memory(max_tokens=25, keep_runs=1)
    async with running(tmp_path, Agent("a", model=model, memory=memory)) as app:
        runs = []
        for number in (1, 2, 3):
            runs.append(await app.start("a", f"Question {number}, which is long?", thread="t"))
            await runs[-1].result()
        # It continues the run that has a summary of all before it; that one run is kept.
        assert len(model.asked_for) == 1
        await (await app.start("a", "Other?", thread="u", previous_run=runs[1].id)).result()
    assert len(model.asked_for) == 2


async def test_the_summary_is_an_event_and_its_usage_counts(tmp_path: Path) -> None:
    agent = Agent("a", model=Clerk(), memory=SHORT)
    await talk(tmp_path, agent, 3)
    async with running(tmp_path, agent) as app:
        run = await app.start("a", "Question 4?", thread="t")
        events = [event async for event in run.events()]
        result = await run.result()
    kinds = [type(event) for event in events]
    assert kinds.index(ev.HistoryCompacted) < kinds.index(ev.OutputItemAdded)
    assert result.object["usage"]["calls"] == 2


@pytest.mark.parametrize("made", [fail("overloaded"), say("  "), call("nothing")])
async def test_a_run_goes_on_without_a_summary_that_cannot_be_made(
    tmp_path: Path, made: Any
) -> None:
    model = Clerk(made)
    agent = Agent("a", model=model, memory=SHORT, patience=HASTY)
    last = (await talk(tmp_path, agent, 4))[-1]
    assert (last.status, "compacted" in last.object) == ("completed", False)
    assert last.object["notices"][0]["data"] == {"code": "not_compacted"}
    assert "Question 1?" in model.sent[-1]


async def test_a_run_that_is_recovered_keeps_its_summary(tmp_path: Path) -> None:
    class Slow(Clerk):
        def stream(self, request: Request) -> Any:
            found = super().stream(request)
            if request.instructions is None and len(self.sent) > 3:
                return Scripted([say("word " * 100, pace=0.01)]).stream(request)
            return found

    slow = Agent("a", model=Slow(), memory=SHORT)
    await talk(tmp_path, slow, 3)
    async with running(tmp_path, slow) as app:
        run = await app.start("a", "Question 4?", thread="t")
        async for event in run.events():
            if isinstance(event, ev.TextDelta):
                break
    model = Clerk(say("Another summary."))
    async with running(tmp_path, Agent("a", model=model, memory=SHORT)) as app:
        result = await (await app.run(run.id)).result()
    assert result.status == "completed"
    assert result.object["compacted"]["summary"] == "They spoke of rivers."
    assert "They spoke of rivers." in model.sent[-1]


def test_a_memory_has_no_negative_budget() -> None:
    with pytest.raises(InvalidValue, match="keep_runs=-1"):
        Memory(keep_runs=-1)
    with pytest.raises(InvalidValue, match="max_tokens=-2"):
        Memory(max_tokens=-2)


@tool
async def get_weather(city: str) -> str:
    """Current weather."""
    return f"{city}: sunny"


@pytest.mark.parametrize("mode", ["drop", "encrypted", "stored"])
@pytest.mark.parametrize("api", ["openai", "openai-chat", "anthropic"])
async def test_ten_turns_with_restarts_and_compaction_are_accepted_by_the_provider(
    tmp_path: Path, api: str, mode: Any
) -> None:
    turns: list[int] = []

    def script(_number: int) -> Any:
        asked = str(provider.requests[-1])
        if "Summarize" in asked:
            return [think("Hm."), say("They spoke of the weather.")]
        turns.append(len(turns))
        if turns[-1] % 2:
            return [think("So."), say(f"Answer {turns[-1]}.")]
        return [think("Hm."), call("get_weather", city=f"City {turns[-1]}")]

    summaries = 0
    memory = Memory(max_tokens=120, keep_runs=2)
    async with Simulator(script) as provider:
        for turn in range(10):
            base = provider.url if api == "anthropic" else provider.openai_url
            model = open_model(f"{api}:model-1", base_url=base, api_key="any")
            agent = Agent("a", model=model, tools=[get_weather], history=mode, memory=memory)
            async with running(tmp_path, agent) as app:
                result = await (await app.start("a", f"Question {turn}?", thread="t")).result()
            await model.close()
            assert (result.status, result.text) == ("completed", f"Answer {2 * turn + 1}.")
            summaries += "compacted" in result.object
        assert provider.refusals == []
    assert summaries > 2
    assert len(provider.requests) == 20 + summaries
    assert "Question 0?" not in str(provider.requests[-1])
    if mode != "stored" or api != "openai":
        assert "They spoke of the weather." in str(provider.requests[-1])


async def test_a_run_may_compact_its_conversation_with_its_input_and_end(tmp_path: Path) -> None:
    clerk = Clerk()
    async with running(tmp_path, Agent("clerk", model=clerk)) as app:
        await (await app.start("clerk", "Question 1?", thread="t")).result()
        options = {"compact": True, "instructions": "Mind the names."}
        run = await app.start("clerk", "Question 2?", thread="t", options=options)
        result = await run.result()
        assert (result.status, result.items) == ("completed", [])
        assert result.object["compacted"]["run_id"] == run.id
        assert "Question 1?" in clerk.asked_for[0]
        assert "Question 2?" in clerk.asked_for[0]
        await (await app.start("clerk", "Question 3?", thread="t")).result()
        assert "They spoke of rivers." in clerk.sent[-1]
        assert "Question 2?" not in clerk.sent[-1]


async def test_a_conversation_that_cannot_be_compacted_fails_the_run(tmp_path: Path) -> None:
    clerk = Agent("clerk", model=Clerk(fail("bad_request", "No.")), patience=HASTY)
    async with running(tmp_path, clerk) as app:
        result = await (await app.start("clerk", "?", options={"compact": True})).result()
        assert result.error is not None
        assert (result.status, result.error.message) == ("failed", "No.")
