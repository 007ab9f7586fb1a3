"""An agent as a declaration: the loop with its tools, memory, and what a run's caller sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace import (
    Agent,
    Context,
    Limits,
    Tailrace,
    Tool,
    ToolError,
    notify,
    streaming_tool,
    tool,
)
from tailrace.core import events as ev
from tailrace.core.errors import CallerError, InvalidValue
from tailrace.models import open_model
from tailrace.models.scripted import Scripted, call, cut, fail, say, think, tries
from tailrace.runtime.agents.limits import named
from tailrace.runtime.model_calls.call import Patience
from tailrace.runtime.runs.run import Result, Run
from tailrace.testing import Simulator

HASTY = Patience(first_wait=0.001, retries=1)


@tool
async def get_weather(city: str) -> dict[str, str]:
    """Current weather in a city."""
    return {"temperature": "15C", "condition": "Sunny"}


@streaming_tool
async def survey(topic: str) -> AsyncIterator[Any]:
    """Looks a topic up in several places."""
    yield notify("asking three sources", progress=0.3)
    yield notify("a source is slow")
    yield {"found": 3}


@asynccontextmanager
async def running(path: Path, *agents: Any) -> AsyncIterator[Tailrace]:
    app = Tailrace(agents, database=path / "log.db")
    async with app.running(), asyncio.timeout(120):
        yield app


async def answer(path: Path, agent: Any, text: Any = "Is it sunny?", **options: Any) -> Result:
    async with running(path, agent) as app:
        return await (await app.start(agent.name, text, **options)).result()


async def events_of(run: Run) -> list[Any]:
    return [event async for event in run.events()]


def types(result: Result) -> list[str]:
    return [item["type"] for item in result.items]


async def test_an_agent_calls_its_tool_and_answers_with_the_result(tmp_path: Path) -> None:
    model = Scripted(
        [think("Which city?"), call("get_weather", city="Paris")],
        [say("It is sunny.[^1]")],
    )
    agent = Agent("weather", model=model, tools=[get_weather])
    result = await answer(tmp_path, agent)
    assert (result.status, result.text) == ("completed", "It is sunny.[^1]")
    assert types(result) == ["reasoning", "tool_call", "tool_result", "message"]
    [block] = result.items[-1]["block_list"]
    assert block["annotations"][0]["reference_id"] == 1
    assert result.usage is not None


async def test_the_example_of_the_issue_runs_as_written(tmp_path: Path) -> None:
    weather = Agent(
        "weather",
        model=Scripted([call("get_weather", city="Paris")], [say("15C and sunny.[^1]")]),
        tools=[get_weather],
    )
    assistant = Agent(
        "assistant",
        model=Scripted(
            [call("survey", topic="Paris"), call("weather", prompt="Paris?")],
            [say("Yes, it is sunny.[^2]")],
        ),
        instructions="Be brief.",
        tools=[survey, weather.as_tool(streaming=True)],
    )
    app = Tailrace([assistant], database=tmp_path / "log.db")
    async with app.running(), asyncio.timeout(120):
        run = await app.start("assistant", "Is it sunny in Paris?", thread="t1")
        seen = [event async for event in run.events()]
        result = await run.result()
    assert result.text == "Yes, it is sunny.[^2]"
    assert result.status == "completed"
    assert isinstance(seen[-1], ev.TaskCompleted)
    progress = [event for event in seen if isinstance(event, ev.Progress)]
    assert [(one.message, one.current) for one in progress] == [("asking three sources", 0.3)]
    assert any(isinstance(e, ev.Notice) and e.message == "a source is slow" for e in seen)


async def test_a_tool_starts_only_after_its_start_is_durable(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    @tool
    async def look(ctx: Context) -> str:
        """Reads the log."""
        store = app._runs.store
        recorded = await store.read(ctx.run_id, 0)
        seen.append([type(one.event).__name__ for one in recorded])
        return "ok"

    agent = Agent("a", model=Scripted([call("look")], [say("Done.")]), tools=[look])
    async with running(tmp_path, agent) as app:
        await (await app.start("a", "?")).result()
    assert "ToolCallStarted" in seen[0]


async def test_the_tools_of_a_turn_run_in_parallel_and_each_result_is_shown_at_once(
    tmp_path: Path,
) -> None:
    first_is_shown = asyncio.Event()

    @tool
    async def slow() -> str:
        """Waits until the other result was seen by a client."""
        await first_is_shown.wait()
        return "slow"

    @tool
    async def quick() -> str:
        """Returns at once."""
        return "quick"

    model = Scripted([call("slow"), call("quick")], [say("Both.")])
    agent = Agent("a", model=model, tools=[slow, quick])
    async with running(tmp_path, agent) as app:
        run = await app.start("a", "?")
        async for event in run.events():
            if isinstance(event, ev.OutputItemDone) and event.item.id.startswith("fco"):
                first_is_shown.set()
        result = await run.result()
    assert result.text == "Both."
    assert [item["block_list"][0]["text"] for item in result.items if "fco" in item["id"]] == [
        "quick",
        "slow",
    ]


async def test_the_second_run_of_a_thread_remembers_the_first_after_a_restart(
    tmp_path: Path,
) -> None:
    model = Scripted(
        [call("get_weather", city="Paris")], [say("Sunny.[^1]")], [say("I said: sunny.[^1]")]
    )
    agent = Agent("a", model=model, tools=[get_weather])
    async with running(tmp_path, agent) as app:
        await (await app.start("a", "Is it sunny?", thread="t1")).result()
    async with running(tmp_path, agent) as app:
        result = await (await app.start("a", "What did you say?", thread="t1")).result()
        texts = [item.get("role") or item["type"] for item in result.to_input_list()]
    assert result.text == "I said: sunny.[^1]"
    assert result.items[-1]["block_list"][0]["annotations"][0]["reference_id"] == 1
    assert texts.count("user") >= 1


async def test_a_tool_error_is_a_result_that_the_model_reads(tmp_path: Path) -> None:
    @tool
    async def broken() -> str:
        """Fails."""
        raise ValueError("password=hunter2")

    @tool
    async def polite() -> str:
        """Fails with words for the model."""
        raise ToolError("Try another city.")

    model = Scripted([call("broken"), call("polite")], [say("Sorry.")])
    result = await answer(tmp_path, Agent("a", model=model, tools=[broken, polite]))
    errors = [item["error"]["message"] for item in result.items if item["type"] == "tool_result"]
    assert result.text == "Sorry."
    assert errors[0].startswith("The tool broken failed: ValueError (err_")
    assert errors[1] == "Try another city."
    assert "hunter2" not in str(result.object)


async def test_an_unknown_tool_and_invalid_arguments_are_errors_that_the_model_reads(
    tmp_path: Path,
) -> None:
    model = Scripted(
        [call("get_whether", city="Paris")], [call("get_weather", town=1)], [say("Sorry.")]
    )
    result = await answer(tmp_path, Agent("a", model=model, tools=[get_weather]))
    errors = [item["error"] for item in result.items if item["type"] == "tool_result"]
    assert [error["code"] for error in errors] == ["unknown_tool", "invalid_arguments"]
    assert "get_weather" in errors[0]["message"]
    assert result.text == "Sorry."


async def test_arguments_whose_type_raises_are_an_error_that_the_model_reads(
    tmp_path: Path,
) -> None:
    class Odd(Tool):
        def validate(self, arguments: Any) -> dict[str, Any]:
            raise ZeroDivisionError("secret")

    async def work(arguments: dict[str, Any], context: Context) -> str:
        return "never"

    model = Scripted([call("odd")], [say("Sorry.")])
    result = await answer(tmp_path, Agent("a", model=model, tools=[Odd("odd", function=work)]))
    assert result.text == "Sorry."
    assert result.items[1]["error"]["code"] == "invalid_arguments"
    assert "secret" not in str(result.object)


async def test_a_model_that_only_makes_mistakes_fails_after_a_bounded_number_of_turns(
    tmp_path: Path,
) -> None:
    agent = Agent("a", model=Scripted([call("nothing")]), limits=Limits(mistakes=2))
    result = await answer(tmp_path, agent)
    assert result.status == "failed"
    assert result.error is not None
    assert result.error.code == "invalid_calls"
    assert "max_mistakes=2" in result.error.message
    assert types(result).count("tool_call") == 3


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(turns=2), "max_turns=2"),
        (Limits(tokens=15), "max_tokens=15"),
    ],
)
async def test_a_limit_ends_the_run_with_a_reason_that_names_it(
    tmp_path: Path, limits: Limits, reason: str
) -> None:
    agent = Agent(
        "a", model=Scripted([call("get_weather", city="P")]), tools=[get_weather], limits=limits
    )
    result = await answer(tmp_path, agent)
    assert (result.status, result.object["reason"]) == ("incomplete", reason)


async def test_cost_is_limited(tmp_path: Path) -> None:
    class Dear(Scripted):
        def cost(self, usage: Any) -> float:
            return 0.3

    model = Dear([call("get_weather", city="P")])
    agent = Agent("a", model=model, tools=[get_weather], limits=Limits(cost=0.5))
    result = await answer(tmp_path, agent)
    assert result.object["reason"] == "max_cost=0.5"
    assert types(result).count("tool_call") == 2


async def test_a_limit_on_cost_that_cannot_count_is_shown_once(tmp_path: Path) -> None:
    class Unpriced(Scripted):
        def cost(self, usage: Any) -> None:
            return None

    model = Unpriced([call("get_weather", city="P")], [say("Sunny.")], name="m1")
    agent = Agent("a", model=model, tools=[get_weather], limits=Limits(cost=0.5))
    app = Tailrace([agent], database=tmp_path / "log.db")
    async with app.running(), asyncio.timeout(120):
        run = await app.start("a", "?")
        notices = [e.message async for e in run.events() if isinstance(e, ev.Notice)]
    [notice] = notices
    assert notice.startswith("max_cost=0.5 cannot be counted: the price of m1 is unknown.")


async def test_time_is_limited_and_the_running_tool_gets_a_result(tmp_path: Path) -> None:
    @tool
    async def forever() -> str:
        """Never returns."""
        await asyncio.Event().wait()
        return ""

    agent = Agent(
        "a", model=Scripted([call("forever")]), tools=[forever], limits=Limits(seconds=0.2)
    )
    result = await answer(tmp_path, agent)
    assert (result.status, result.object["reason"]) == ("incomplete", "max_seconds=0.2")
    assert result.items[-1]["error"]["code"] == "cancelled"


async def test_calls_beyond_the_fan_out_get_an_error(tmp_path: Path) -> None:
    calls = [call("get_weather", city=str(n)) for n in range(3)]
    agent = Agent(
        "a",
        model=Scripted(calls, [say("Two.")]),
        tools=[get_weather],
        limits=Limits(fan_out=2),
    )
    result = await answer(tmp_path, agent)
    failed = [item["error"] for item in result.items if item.get("status") == "failed"]
    assert [error["code"] for error in failed] == ["max_fan_out"]
    assert "max_fan_out=2" in failed[0]["message"]
    assert result.text == "Two."


async def test_calls_beyond_the_clients_max_tool_calls_get_an_error(tmp_path: Path) -> None:
    first, *others = [call("get_weather", city=str(n)) for n in range(4)]
    pick = {"type": "function", "name": "pick", "parameters": {"type": "object"}}
    agent = Agent(
        "a", model=Scripted([first], others, [call("pick")], [say("Two.")]), tools=[get_weather]
    )
    options = {"max_tool_calls": 2, "tools": [pick]}
    result = await answer(tmp_path, agent, options=options)
    failed = [item["error"] for item in result.items if item.get("status") == "failed"]
    assert [error["code"] for error in failed] == ["max_tool_calls"] * 2
    # A function of the client is not carried out here, so it does not count.
    assert (result.status, result.items[-1]["name"]) == ("completed", "pick")


async def test_an_error_of_the_provider_fails_the_run_with_its_code(tmp_path: Path) -> None:
    agent = Agent("a", model=Scripted([fail("key_refused")]), patience=HASTY)
    result = await answer(tmp_path, agent)
    assert result.status == "failed"
    assert result.error is not None
    assert result.error.code == "key_refused"


async def test_complete_calls_of_a_cut_answer_run_and_the_partial_items_are_superseded(
    tmp_path: Path,
) -> None:
    model = Scripted(
        tries([call("get_weather", city="Paris"), say("It is"), cut()]), [say("Sunny.")]
    )
    agent = Agent("a", model=model, tools=[get_weather], patience=HASTY)
    result = await answer(tmp_path, agent)
    assert (result.status, result.text) == ("completed", "Sunny.")
    assert types(result) == ["tool_call", "tool_result", "message"]


async def test_an_answer_that_is_cut_again_and_again_fails(tmp_path: Path) -> None:
    agent = Agent("a", model=Scripted([say("It is"), cut()]), patience=HASTY)
    result = await answer(tmp_path, agent)
    assert result.status == "failed"
    assert result.error is not None
    assert result.error.code == "cut"


async def test_instructions_may_be_a_function_and_dependencies_reach_tools(tmp_path: Path) -> None:
    prompts: list[str | None] = []

    class Listening(Scripted):
        def stream(self, request: Any) -> Any:
            prompts.append(request.instructions)
            return super().stream(request)

    @tool
    async def whose(ctx: Context) -> str:
        """Names the user."""
        return str(ctx.deps["user"])

    async def instructions(ctx: Context) -> str:
        return f"You help {ctx.deps['user']}."

    agent = Agent(
        "a",
        model=Listening([call("whose")], [say("Ada.")]),
        instructions=instructions,
        tools=[whose],
        deps={"user": "Ada"},
    )
    result = await answer(tmp_path, agent)
    assert prompts[0] == "You help Ada."
    assert result.items[1]["block_list"][0]["text"] == "Ada"
    # The first result can be cited, so the second call explains how.
    assert prompts[1] is not None
    assert "[^" in prompts[1]


async def test_a_tool_knows_who_asks_also_in_a_sub_agent(tmp_path: Path) -> None:
    known: list[Any] = []

    @tool
    async def whose(ctx: Context) -> None:
        """Notes the principal and the metadata."""
        known.append((ctx.owner, ctx.metadata))

    def asked(name: str, *tools: Any) -> Agent:
        called = [call("whose"), *(call(one.name, prompt="?") for one in tools)]
        return Agent(name, model=Scripted(called, [say("Ann.")]), tools=[whose, *tools])

    agent = asked("a", asked("shown").as_tool(), asked("hidden").as_tool(streaming=False))
    app = Tailrace([agent], database=tmp_path / "log.db")
    async with app.running(), asyncio.timeout(120):
        run = await app.start("a", "?", owner="ann", metadata={"plan": "pro"})
        await run.result()
    assert known == [("ann", {"plan": "pro"})] * 3


@pytest.mark.parametrize(("citations", "expected"), [("Cite!", "Cite!"), (False, None)])
async def test_the_sentence_on_citations_can_be_changed_or_disabled(
    tmp_path: Path, citations: Any, expected: str | None
) -> None:
    prompts: list[str | None] = []

    class Listening(Scripted):
        def stream(self, request: Any) -> Any:
            prompts.append(request.instructions)
            return super().stream(request)

    model = Listening([call("get_weather", city="P")], [say("Done.")])
    await answer(tmp_path, Agent("a", model=model, tools=[get_weather], citations=citations))
    assert prompts == [None, expected]


class Forecast(msgspec.Struct):
    city: str
    degrees: int


async def test_structured_output_is_validated_retried_and_emitted(tmp_path: Path) -> None:
    model = Scripted(
        tries(
            [say('{"city": "Paris"}')],
            [say("It is sunny.")],
            [say('{"city": "Paris", "degrees": 15}')],
        )
    )
    agent = Agent("a", model=model, output=Forecast)
    async with running(tmp_path, agent) as app:
        run = await app.start("a", "?")
        seen = await events_of(run)
        result = await run.result()
    assert result.output == Forecast(city="Paris", degrees=15)
    [done] = [event for event in seen if isinstance(event, ev.StructuredOutputDone)]
    assert done.name == "Forecast"
    assert types(result) == ["message"]


async def test_an_output_that_is_never_valid_fails_the_run(tmp_path: Path) -> None:
    agent = Agent(
        "a", model=Scripted([say("No JSON.")]), output=Forecast, limits=Limits(mistakes=1)
    )
    result = await answer(tmp_path, agent)
    assert result.status == "failed"
    assert result.error is not None
    assert result.error.code == "invalid_output"


async def test_guardrails_stop_a_run_with_a_typed_end(tmp_path: Path) -> None:
    def no_cities(text: str) -> str | None:
        return "No cities here." if "Paris" in text else None

    async def no_secrets(text: str, ctx: Context) -> str | None:
        return f"{ctx.agent} said a secret." if "42" in text else None

    model = Scripted([say("It is 42.")])
    agent = Agent("a", model=model, input_guardrails=[no_cities], output_guardrails=[no_secrets])
    async with running(tmp_path, agent) as app:
        refused = await (await app.start("a", "Paris?")).result()
        withheld = await (await app.start("a", "And?")).result()
    assert refused.error is not None
    assert (refused.status, refused.error.code) == ("failed", "input_guardrail")
    assert refused.items == []
    assert withheld.error is not None
    assert (withheld.error.code, withheld.error.message) == ("output_guardrail", "a said a secret.")
    assert withheld.items == []


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"turns": 0}, "a whole number above 0"),
        ({"turns": 1.5}, "a whole number above 0"),
        ({"fan_out": True}, "a whole number above 0"),
        ({"depth": -1}, "a whole number from 0 up"),
        ({"cost": -0.1}, "a number from 0 up"),
        ({"seconds": 0}, "a number above 0"),
        ({"seconds": float("nan")}, "a number above 0"),
    ],
)
def test_a_limit_that_cannot_be_meant_is_refused(limits: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        Limits(**limits)
    Limits(depth=0, cost=0, tokens=0, mistakes=0, seconds=0.5)


async def test_no_model_reads_an_input_that_a_guardrail_refused(tmp_path: Path) -> None:
    def no_secrets(text: str) -> str | None:
        return "The input has a secret." if "sk-" in text else None

    async with Simulator([say("Sunny.")]) as provider:
        model = open_model("openai:gpt-5", base_url=provider.openai_url, api_key="any")
        agent = Agent("a", model=model, input_guardrails=[no_secrets])
        async with running(tmp_path, agent) as app:
            refused = await (await app.start("a", "My key is sk-1.", thread="t")).result()
            result = await (await app.start("a", "Is it sunny?", thread="t")).result()
        await model.close()
    assert "sk-1" not in str(refused.to_input_list())
    assert result.status == "completed"
    assert "sk-1" not in str(provider.requests)


async def test_a_guardrail_reads_the_whole_conversation_that_a_client_sends(tmp_path: Path) -> None:
    def no_secrets(text: str) -> str | None:
        return "The input has a secret." if "sk-" in text else None

    agent = Agent("a", model=Scripted([say("Sunny.")]), input_guardrails=[no_secrets])
    conversation = [
        {"role": "user", "content": "My key is sk-1."},
        {"role": "assistant", "content": "I see."},
        {"role": "user", "content": "Is it sunny?"},
    ]
    result = await answer(tmp_path, agent, conversation)
    assert result.error is not None
    assert result.error.code == "input_guardrail"


@pytest.mark.parametrize("where", ["input", "output"])
async def test_a_guardrail_that_raises_refuses(where: str, tmp_path: Path) -> None:
    def broken(text: str) -> str | None:
        raise ValueError(f"{text} is a secret")

    guardrails: Any = {f"{where}_guardrails": [broken]}
    result = await answer(tmp_path, Agent("a", model=Scripted([say("42")]), **guardrails))
    assert result.error is not None
    assert result.error.code == f"{where}_guardrail"
    assert result.error.message.startswith("The guardrail failed. The log says why")
    assert result.items == []


async def test_a_function_of_the_client_completes_the_run(tmp_path: Path) -> None:
    model = Scripted([call("get_weather", city="P"), call("open_window", angle=3)], [say("Open.")])
    agent = Agent("a", model=model, tools=[get_weather])
    declared = [{"type": "function", "name": "open_window", "parameters": {"type": "object"}}]
    async with running(tmp_path, agent) as app:
        first = await app.start("a", "?", thread="t", options={"tools": declared})
        result = await first.result()
        assert result.status == "completed"
        assert types(result) == ["tool_call", "tool_call", "tool_result"]
        assert result.items[1]["executor"] == "client"
        output = [
            {
                "type": "function_call_output",
                "call_id": result.items[1]["call_id"],
                "output": "opened",
            }
        ]
        second = await app.start("a", output, thread="t", options={"tools": declared})
        assert (await second.result()).text == "Open."


async def test_a_model_by_name_is_opened_with_the_app_and_closed_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    below = Agent("below", model="openai:gpt-5-mini")
    agent = Agent("a", model="openai:gpt-5-mini", tools=[below.as_tool()])
    with pytest.raises(CallerError, match="not open"):
        _ = agent.model
    app = Tailrace([agent], database=tmp_path / "log.db")
    for _ in range(2):
        async with app.running():
            assert agent.model.name == below.model.name == "gpt-5-mini"
    with pytest.raises(CallerError, match="not open"):
        _ = below.model


def test_declarations_are_checked() -> None:
    with pytest.raises(CallerError, match="Two tools"):
        Agent("a", model=Scripted([say("x")]), tools=[get_weather, get_weather])
    with pytest.raises(CallerError, match="named"):
        Agent("an agent", model=Scripted([say("x")]))
    with pytest.raises(CallerError, match="history"):
        Agent("a", model=Scripted([say("x")]), history="all")  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="as a tool"):
        Agent("a", model=Scripted([say("x")]), tools=[3])
    with pytest.raises(CallerError, match="provider"):
        Tailrace([Agent("a", model="gpt-5")])
    with pytest.raises(CallerError, match="output"):
        Agent("a", model=Scripted([say("x")]), output=object())
    wrongs: list[dict[str, Any]] = [
        {"model": None},
        {"instructions": ["x"]},
        {"limits": {"turns": 3}},
        {"memory": 100},
        {"patience": 3},
        {"tools": get_weather},
        {"handoffs": 3},
        {"input_guardrails": ["x"]},
        {"effort": "huge"},
        {"temperature": "hot"},
    ]
    for wrong in wrongs:
        with pytest.raises(CallerError, match=f"'a': {next(iter(wrong))} is .*write"):
            Agent("a", **{"model": Scripted([say("x")]), **wrong})
    with pytest.raises(CallerError, match="no JSON object"):
        Agent("a", model=Scripted([say("x")]), output=list[int])
    with pytest.raises(CallerError, match="instructions must take nothing, or the `Context`"):
        Agent("a", model=Scripted([say("x")]), instructions=lambda one, two: "x")
    with pytest.raises(CallerError, match="a guardrail must take the text"):
        Agent("a", model=Scripted([say("x")]), input_guardrails=[lambda: None])
    for fitting in (str.upper, lambda *texts: None, lambda text, context=None: None):
        Agent("a", model=Scripted([say("x")]), output_guardrails=[fitting])
    with pytest.raises(CallerError, match=r"Limits\(cost='1'\): write a number"):
        Limits(cost="1")  # type: ignore[arg-type]


def test_a_limit_is_named_with_its_whole_value() -> None:
    assert named("tokens", 1_234_567) == "max_tokens=1234567"
    assert named("cost", 0.1234567) == "max_cost=0.1234567"
    assert named("seconds", 90.0) == "max_seconds=90"
