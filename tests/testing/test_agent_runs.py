"""Tests of agents as users write them: `run_agent`, its assertions, exported runs, cuts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace import Agent, InputRequest, Task, ToolError, Usage, tool
from tailrace.core.codec import encode_event
from tailrace.demo import assistant
from tailrace.errors import CallerError
from tailrace.models import Scripted, call, cut, say, silence, tries
from tailrace.runtime.agents.functions import AgentFunction
from tailrace.testing import AgentRun, check_resume, read_run, replay_run, run_agent


@tool
async def get_weather(city: str) -> dict[str, str]:
    """Current weather in a city."""
    return {"city": city, "temperature": "15C"}


@tool
async def broken() -> str:
    """Fails."""
    raise ToolError("out of order", "The tool is out of order.")


script = Scripted([call("get_weather", city="Paris")], [say("It is 15C.[^1]")])
weather = Agent("weather", model=script, tools=[get_weather, broken])


async def spender(task: Task) -> None:
    with task.message() as message:
        message.text("See the page.")
        message.cite("https://example.org/page", title="A page")
    task.usage(Usage(model="m", input_tokens=1, output_tokens=1, cost=0.5))


@pytest.fixture(scope="module")
def demo_run() -> AgentRun:
    import asyncio

    return asyncio.run(run_agent(assistant(pace=0), "Plan a day.", answer=True))


async def test_a_run_has_its_result_its_events_and_its_calls() -> None:
    run = await run_agent(weather, "Is it sunny?")
    assert run.result.text == "It is 15C.[^1]"
    assert [event.sequence_number for event in run.events] == list(range(1, len(run.events) + 1))
    [made] = run.calls
    assert (made.name, made.arguments, made.failed, made.agent) == (
        *("get_weather", {"city": "Paris"}, False, "weather"),
    )
    assert "15C" in made.result


async def test_the_calls_and_citations_of_sub_agents_count(demo_run: AgentRun) -> None:
    names = [call.name for call in demo_run.calls]
    assert names == ["get_weather", "paint", "guide", "archivist", "search", "book_table"]
    assert demo_run.assert_called("search").agent == "archivist"
    assert demo_run.assert_called("guide").result.startswith("Walk in the Jardin du Luxembourg")
    assert demo_run.assert_cited("1612").agent
    assert demo_run.result.output is not None


async def test_a_source_that_two_calls_returned_is_cited_once() -> None:
    twice = Scripted([call("get_weather", city="Paris")] * 2, [say("It is 15C.[^1]")])
    run = await run_agent(weather, "Is it sunny?", model=twice)
    assert [cited.text.count("15C") for cited in run.citations] == [1]


async def test_an_assertion_says_what_happened_instead() -> None:
    run = await run_agent(weather, "Is it sunny?")
    assert run.assert_called("get_weather", city="Paris") == run.calls[0]
    assert run.assert_cited("15C").reference_id == 1
    run.assert_not_called("broken")
    run.assert_cost(at_most=0)
    with pytest.raises(AssertionError, match=r"'paint' was not called. Calls: get_weather"):
        run.assert_called("paint")
    with pytest.raises(
        AssertionError, match=r'not called with {"city":"Rome"}, but with {"city":"P'
    ):
        run.assert_called("get_weather", city="Rome")
    with pytest.raises(AssertionError, match=r'was called with {"city":"Paris"}'):
        run.assert_not_called("get_weather")
    with pytest.raises(AssertionError, match=r"No message cites '20C'. Cited sources: .*15C"):
        run.assert_cited("20C")


async def test_a_cost_and_a_page_that_an_own_agent_wrote() -> None:
    run = await run_agent(spender)
    assert run.assert_cited("example.org").text == "A page"
    run.assert_cost(at_most=0.5)
    with pytest.raises(AssertionError, match=r"cost \$0.500000, more than \$0.400000"):
        run.assert_cost(at_most=0.4)

    async def free(task: Task) -> None:
        task.say("Hi.")

    with pytest.raises(AssertionError, match="cost of the run is not known"):
        (await run_agent(free)).assert_cost(at_most=1)


async def test_a_failed_tool_is_seen() -> None:
    run = await run_agent(weather, "?", model=Scripted([call("broken")], [say("Sorry.")]))
    assert run.assert_called("broken").failed
    assert "out of order" in run.calls[0].result


async def test_a_model_is_replaced_for_the_length_of_a_run() -> None:
    other = Agent("other", model="openai:gpt-5-mini", tools=[weather.as_tool()])
    models = {
        "other": Scripted([call("weather", prompt="?")], [say("Ok.")]),
        "weather": Scripted([say("Rain.")]),
    }
    run = await run_agent(other, "?", model=models)
    assert run.assert_called("weather").arguments == {"prompt": "?"}
    assert (other._opened, weather._opened) == (None, script)
    with pytest.raises(CallerError, match=r"Unknown agent 'stylist'; use other, weather"):
        await run_agent(other, model={"stylist": script})
    with pytest.raises(CallerError, match="chooses its model itself"):
        await run_agent(spender, model=script)


async def test_a_question_without_an_answer_fails_at_once() -> None:
    asked: list[InputRequest] = []

    async def asks(task: Task) -> str:
        return f"You say {(await task.ask('Which city?')).value}."

    def answer(request: InputRequest) -> str:
        asked.append(request)
        return "Rome"

    assert (await run_agent(asks, answer=answer)).result.text == "You say Rome."
    assert [request.message for request in asked] == ["Which city?"]
    with pytest.raises(CallerError, match="asks for an input: 'Which city"):
        await run_agent(asks)


async def test_a_run_that_does_not_end_is_stopped_with_its_last_event() -> None:
    silent = Agent("silent", model=Scripted([silence()]))
    with pytest.raises(TimeoutError, match=r"not ended after 0.2 s. Its last event is task.in_pro"):
        await run_agent(silent, "?", timeout=0.2)


# --- exported runs -------------------------------------------------------------------------------


def export(run: AgentRun, path: Path) -> Path:
    path.write_bytes(b"".join(encode_event(event) + b"\n" for event in run.events))
    return path


async def test_an_exported_run_is_read_and_replayed(demo_run: AgentRun, tmp_path: Path) -> None:
    path = export(demo_run, tmp_path / "demo.jsonl")
    assert read_run(path).calls == demo_run.calls
    replayed: AgentFunction = replay_run(path, pace=100_000)
    again = await run_agent(replayed, "Plan a day.", answer=True)
    assert again.calls == demo_run.calls
    assert again.citations == demo_run.citations
    assert again.result.text == demo_run.result.text
    assert [type(event) for event in again.events] == [type(event) for event in demo_run.events]
    ids = [{event.task_id for event in run.events} for run in (again, demo_run)]
    assert not ids[0] & ids[1]


async def test_a_file_that_is_not_an_exported_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("")
    with pytest.raises(CallerError, match=r"trace.jsonl has no events"):
        read_run(path)
    path.write_text("\n{}\n")
    with pytest.raises(CallerError, match=r"trace.jsonl, line 2 is not an event"):
        read_run(path)


# --- cuts ----------------------------------------------------------------------------------------


async def test_every_format_survives_a_cut_after_every_event() -> None:
    run = await check_resume(weather, "Is it sunny?")
    run.assert_called("get_weather")
    retried = Scripted(tries([say("It"), cut()], [say("It is sunny.")]))
    assert (await check_resume(weather, model=retried)).result.text == "It is sunny."
    with pytest.raises(CallerError, match="Unknown format 'xml'; use task"):
        await check_resume(weather, formats=["xml"])
