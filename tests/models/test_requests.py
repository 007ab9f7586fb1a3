"""What each provider is sent, and the official SDKs against the simulator."""

from __future__ import annotations

from typing import Any, get_args

import anthropic
import openai
import pytest

from tailrace.core import events as ev
from tailrace.core.items import Usage
from tailrace.ingest.base import Notebook
from tailrace.models import UnknownModel, open_model
from tailrace.models import anthropic_messages as anthropic_model
from tailrace.models import openai_chat as chat_model
from tailrace.models import openai_responses as openai_model
from tailrace.models.scripted import Scripted
from tailrace.models.scripted.script import call, cut, fail, say, think
from tailrace.models.transport import MissingKey, MissingSdk
from tailrace.ports.model import Effort, OutputSchema, Request, ToolSpec
from tailrace.runtime.model_calls.call import call_model
from tailrace.runtime.model_calls.request_check import InvalidRequest, check_request
from tailrace.testing.provider_rules.anthropic_messages.fields import messages_errors
from tailrace.testing.simulator import RecordedAnswer, Simulator
from tests.ingest.streams import recordings
from tests.models.talking import APIS, HASTY, WEATHER, Talk, model_at, texts, weather_talk

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
PICTURE = "data:image/png;base64,iVBORw0KGgo="
FULL = Request(
    input=[{"role": "user", "content": "Hello?"}],
    instructions="Be brief.",
    tools=[WEATHER],
    tool_choice="get_weather",
    parallel_calls=False,
    output=OutputSchema(schema=SCHEMA),
    effort="low",
    summary="auto",
    max_output_tokens=500,
    temperature=0.5,
    store=False,
    options={"metadata": {"user_id": "u1"}, "temperature": None},
)


def test_a_request_to_openai_says_all_of_it() -> None:
    assert openai_model.request_body("m", FULL) == {
        "model": "m",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "input": FULL.input,
        "instructions": "Be brief.",
        "tools": [
            {
                "type": "function",
                "name": "get_weather",
                "description": "The weather of a city.",
                "parameters": WEATHER.parameters,
                "strict": False,
            }
        ],
        "tool_choice": {"type": "function", "name": "get_weather"},
        "parallel_tool_calls": False,
        "text": {
            "format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}
        },
        "reasoning": {"effort": "low", "summary": "auto"},
        "max_output_tokens": 500,
        "metadata": {"user_id": "u1"},
    }


@pytest.mark.parametrize(("given", "sent"), [(1, 16), (16, 16), (17, 17), (None, None)])
def test_a_limit_below_the_least_of_openai_is_raised_to_it(
    given: int | None, sent: int | None
) -> None:
    body = openai_model.request_body("m", Request(input=[], max_output_tokens=given))
    assert body.get("max_output_tokens") == sent


def test_a_model_that_does_not_reason_is_not_asked_for_sealed_reasoning() -> None:
    for model in ("gpt-4.1-mini", "ft:gpt-4o:mine", "gpt-5-chat-latest"):
        assert "include" not in openai_model.request_body(model, FULL)
    assert "include" in openai_model.request_body("gpt-5-mini", FULL)


def test_a_request_for_a_chat_completion_says_all_of_it() -> None:
    body = chat_model.request_body("m", FULL, host="api.openai.com")
    assert body == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "system", "content": "Be brief."}, *(FULL.input or [])],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "get_weather",
                    "description": "The weather of a city.",
                    "parameters": WEATHER.parameters,
                },
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "parallel_tool_calls": False,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
        },
        "reasoning_effort": "low",
        "max_completion_tokens": 500,
        "store": False,
        "metadata": {"user_id": "u1"},
    }
    assert chat_model.request_body("m", FULL)["max_tokens"] == 500


def test_a_request_to_anthropic_says_all_of_it() -> None:
    assert anthropic_model.request_body("m", FULL) == {
        "model": "m",
        "stream": True,
        "max_tokens": 500,
        "messages": FULL.input,
        "system": [{"type": "text", "text": "Be brief."}],
        "tools": [
            {
                "name": "get_weather",
                "description": "The weather of a city.",
                "input_schema": WEATHER.parameters,
            }
        ],
        "tool_choice": {
            "type": "tool",
            "name": "get_weather",
            "disable_parallel_tool_use": True,
        },
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        "metadata": {"user_id": "u1"},
    }


@pytest.mark.parametrize(
    ("schema", "is_form"),
    [
        ({"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}, True),
        (
            {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"anyOf": [SCHEMA]}},
                "$defs": {"A": {"type": "object", "properties": {}}},
            },
            True,
        ),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, False),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, False),
        ({"type": "object", "properties": {"a": {"type": ["string", "null"]}}}, False),
        ({"type": "object", "properties": {"a": {}}}, False),
    ],
)
def test_anthropic_gets_a_schema_that_it_takes_or_reads_it(schema: Any, is_form: bool) -> None:
    request = Request(
        input=FULL.input, instructions="Be brief.", output=OutputSchema(schema=schema)
    )
    body = anthropic_model.request_body("claude-opus-5", request)
    assert list(messages_errors(body)) == []
    assert ("output_config" in body) == is_form
    assert ('"object"' in str(body["system"])) != is_form


def test_anthropic_thinks_on_top_of_what_it_may_say_and_without_a_temperature() -> None:
    request = Request(input=[], effort="high", max_output_tokens=500, temperature=0.5)
    body = anthropic_model.request_body("m", request)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 16_000}
    assert body["max_tokens"] == 16_500
    assert "temperature" not in body


@pytest.mark.parametrize("effort", ["minimal", "low", "medium", "high", "xhigh", "max"])
def test_the_smallest_model_that_thinks_may_put_out_what_is_asked_of_it(effort: Any) -> None:
    body = anthropic_model.request_body("claude-opus-4-1", Request(input=[], effort=effort))
    assert 1024 <= body["thinking"]["budget_tokens"] < body["max_tokens"] <= 32_000
    if effort == "max":
        none = anthropic_model.request_body("claude-opus-4-1", Request(input=[], effort="none"))
        assert "thinking" not in none


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("claude-3-7-sonnet-latest", "enabled"),
        ("claude-opus-4-20250514", "enabled"),
        ("claude-sonnet-4", "enabled"),
        ("anthropic/claude-sonnet-4.5", "enabled"),
        ("claude-haiku-4-5-20251001", "enabled"),
        ("claude-opus-4-5", "enabled"),
        ("claude-sonnet-4-6", "adaptive"),
        ("claude-opus-4-8", "adaptive"),
        ("claude-opus-4-10", "adaptive"),
        ("claude-opus-5", "adaptive"),
        ("claude-fable-5-2", "adaptive"),
        ("kimi-k2-thinking", "enabled"),
    ],
)
def test_newer_claude_models_get_an_effort(model: str, kind: str) -> None:
    request = Request(input=[], effort="high", output=OutputSchema(schema=SCHEMA))
    body = anthropic_model.request_body(model, request)
    assert body["thinking"]["type"] == kind
    assert body["output_config"].get("effort") == ("high" if kind == "adaptive" else None)
    assert body["output_config"]["format"]["schema"] == SCHEMA


def test_adaptive_thinking_is_shown_and_gives_way_to_a_tool_that_has_to_be_called() -> None:
    def made(model: str = "claude-opus-5", **fields: Any) -> Any:
        body = anthropic_model.request_body(model, Request(input=[], **fields))
        return body.get("thinking"), body.get("output_config"), body.get("temperature")

    shown = {"type": "adaptive", "display": "summarized"}
    assert made(temperature=0.5) == (None, None, 0.5)
    assert made(summary="auto") == (shown, None, None)
    assert made(effort="minimal", temperature=0.5) == (shown, {"effort": "low"}, None)
    assert made(effort="none") == (None, {"effort": "low"}, None)
    assert made("claude-sonnet-4-6", effort="none", temperature=0.5) == (None, None, 0.5)
    assert made(effort="xhigh") == (shown, {"effort": "xhigh"}, None)
    assert made("claude-opus-4-6", effort="xhigh") == (shown, {"effort": "high"}, None)
    forced = made(effort="max", tools=[WEATHER], tool_choice="required")
    assert forced == (None, {"effort": "max"}, None)


CLAUDES = (
    "claude-sonnet-4-5",
    "claude-opus-4-6",
    "claude-opus-4-8",
    "claude-mythos-preview",
    "claude-sonnet-5",
    "claude-opus-5-5",
    "claude-fable-5-2",
    "claude-novel-7",
)


@pytest.mark.parametrize("choice", [None, "required", "get_weather"])
@pytest.mark.parametrize("effort", get_args(Effort))
@pytest.mark.parametrize("model", CLAUDES)
def test_no_claude_refuses_an_effort(model: str, effort: Any, choice: Any) -> None:
    sent = [{"role": "user", "content": "Hi?"}]
    request = Request(input=sent, tools=[WEATHER], tool_choice=choice, effort=effort)
    body = anthropic_model.request_body(model, request)
    assert [*messages_errors(body)] == []


@pytest.mark.parametrize("effort", ["none", "low", "max"])
async def test_current_claude_thinks_over_several_turns(effort: Any) -> None:
    async with Simulator(weather_talk) as provider:
        model = open_model("anthropic:claude-opus-5", base_url=provider.url, api_key="sk-any")
        talk = Talk(model, Request(tools=[WEATHER], effort=effort))
        assert await talk.ask("One?") == "It is sunny, answer 1."
        assert await talk.ask("Two?") == "It is sunny, answer 3."
        await model.close()
    assert provider.refusals == []


OWN: dict[str, Any] = {
    "openai": {"type": "web_search"},
    "openai-chat": {"type": "custom", "custom": {"name": "grep"}},
    "anthropic": {"type": "web_search_20250305", "name": "web_search"},
}


@pytest.mark.parametrize("api", APIS)
async def test_a_providers_own_tool_stands_beside_functions(api: str) -> None:
    async with Simulator([say("Hello")]) as provider:
        model = model_at(provider, api)
        talk = Talk(model, Request(tools=[WEATHER, OWN[api]], tool_choice="auto"))
        assert await talk.ask("Hi?") == "Hello"
        await model.close()
    assert provider.requests[0]["tools"][1] == OWN[api]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"effort": "huge"}, "effort is 'huge': write none, minimal, low, medium, high, xhigh or"),
        ({"summary": "long"}, "summary is 'long': write auto, concise or detailed"),
        ({"history": "all"}, "history is 'all': write drop, encrypted or stored"),
        ({"max_output_tokens": 0}, "max_output_tokens is 0: write a whole number"),
        ({"max_output_tokens": True}, "max_output_tokens is True"),
        ({"temperature": 2.1}, "temperature is 2.1: write a number from 0 to 2"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"tools": [str]}, r"tools\[0\] is <class 'str'>: write a ToolSpec"),
        ({"tools": [ToolSpec(name="get weather")]}, "A tool is named 'get weather': use up to 128"),
        ({"tools": [ToolSpec(name="none")]}, "A tool is named 'none', a value of tool_choice"),
        ({"tools": [WEATHER, WEATHER]}, "Two tools are named 'get_weather'"),
        (
            {"tools": [ToolSpec(name="f", parameters={})]},
            "The parameters of 'f' are not the JSON Schema of an object",
        ),
        ({"tool_choice": "required"}, "tool_choice is 'required', but the request has no tools"),
        ({"tools": [WEATHER], "tool_choice": "f"}, "'f': write auto, none, required or get_wea"),
        ({"output": OutputSchema(schema=SCHEMA, name="my answer")}, "The output is named 'my ans"),
        ({"output": OutputSchema(schema=str)}, "The output's schema is <class 'str'>"),  # type: ignore[arg-type]
    ],
)
async def test_what_no_provider_would_take_is_an_error_before_anything_is_sent(
    fields: Any, message: str
) -> None:
    async with Simulator([say("Never.")]) as provider:
        model = model_at(provider, "openai")
        request = Request(input=[{"role": "user", "content": "Hi"}], **fields)
        with pytest.raises(InvalidRequest, match=message):
            await call_model(model, request, Notebook(), patience=HASTY)
        await model.close()
    assert provider.requests == []


def test_a_tool_in_the_words_of_chat_completions_may_be_chosen() -> None:
    own = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    check_request(Request(input=[], tools=[own], tool_choice="f"))
    with pytest.raises(InvalidRequest, match="write auto, none, required or f"):
        check_request(Request(input=[], tools=[own], tool_choice="g"))


@pytest.mark.parametrize("api", APIS)
async def test_a_picture_in_and_every_field_are_accepted(api: str) -> None:
    async with Simulator([say("A picture.")]) as provider:
        model = model_at(provider, api)
        fields = {name: getattr(FULL, name) for name in FULL.__struct_fields__ if name != "input"}
        talk = Talk(model, Request(**{**fields, "options": {}}))
        picture = {"type": "input_image", "image_url": PICTURE}
        words = {"type": "input_text", "text": "What is it?"}
        sent = await talk.ask([{"role": "user", "content": [words, picture]}])
        await model.close()
    assert provider.refusals == []
    assert sent == "A picture."
    assert PICTURE.partition(",")[2] in str(provider.requests[0])


# --- the official SDKs ask the simulator --------------------------------------------------------

STORY: Any = ([think("Hm. "), say("Let me see."), call("get_weather", city="Paris")],)


async def test_the_openai_sdk_reads_the_simulators_responses() -> None:
    async with (
        Simulator(*STORY) as provider,
        openai.AsyncOpenAI(base_url=provider.openai_url, api_key="k") as client,
    ):
        async with client.responses.stream(model="m", input="Hello?") as stream:
            async for _ in stream:
                pass
            streamed = await stream.get_final_response()
        whole = await client.responses.create(model="m", input="Hello?")
        for response in (streamed, whole):
            assert response.output_text == "Let me see."
            kinds = [item.type for item in response.output]
            assert kinds == ["reasoning", "message", "function_call"]
        with pytest.raises(openai.BadRequestError, match="not found"):
            await client.responses.create(
                model="m", input="Hello?", previous_response_id="resp_none"
            )


async def test_the_openai_sdk_reads_the_simulators_chat_completions() -> None:
    async with (
        Simulator(*STORY) as provider,
        openai.AsyncOpenAI(base_url=provider.openai_url, api_key="k") as client,
    ):
        messages: Any = [{"role": "user", "content": "Hello?"}]
        whole = await client.chat.completions.create(model="m", messages=messages)
        calls = whole.choices[0].message.tool_calls
        assert calls
        stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
        sent = [chunk.choices[0].delta.content async for chunk in stream if chunk.choices]
        assert "".join(filter(None, sent)) == "Let me see."
        made: Any = {"role": "assistant", "tool_calls": [calls[0].model_dump()]}
        with pytest.raises(openai.BadRequestError, match="reasoning_content"):
            await client.chat.completions.create(model="m", messages=[*messages, made])


async def test_the_anthropic_sdk_reads_the_simulators_messages() -> None:
    async with (
        Simulator(*STORY) as provider,
        anthropic.AsyncAnthropic(base_url=provider.url, api_key="k") as client,
    ):
        messages: Any = [{"role": "user", "content": "Hello?"}]
        asked: Any = {"model": "m", "max_tokens": 99, "messages": messages}
        async with client.messages.stream(**asked) as stream:
            streamed = await stream.get_final_message()
        whole = await client.messages.create(**asked)
        for message in (streamed, whole):
            kinds = [block.type for block in message.content]
            assert kinds == ["thinking", "text", "tool_use"]
            assert message.stop_reason == "tool_use"
        made: Any = {"role": "assistant", "content": whole.model_dump()["content"]}
        more = {**asked, "messages": [*messages, made, messages[0]]}
        with pytest.raises(anthropic.BadRequestError, match="tool_use"):
            await client.messages.create(**more)


@pytest.mark.parametrize("status", [429, 500, 529])
async def test_the_sdks_retry_what_the_simulator_refuses_for_a_while(status: int) -> None:
    failing = [fail("overloaded", status=status, retry_after=0.01)]
    async with (
        Simulator(failing, [say("Hello")]) as provider,
        openai.AsyncOpenAI(base_url=provider.openai_url, api_key="k") as client,
    ):
        assert (await client.responses.create(model="m", input="?")).output_text == "Hello"
    assert len(provider.requests) == 2


async def test_the_sdks_report_a_cut_of_the_simulator() -> None:
    async with (
        Simulator([say("Half of it"), cut("character")]) as provider,
        openai.AsyncOpenAI(base_url=provider.openai_url, api_key="k") as client,
    ):
        stream = await client.responses.create(model="m", input="?", stream=True)
        with pytest.raises(Exception, match=r"peer closed|incomplete|Connection"):
            async for _ in stream:
                pass


FOLDERS = {
    "openai": "openai-responses",
    "anthropic": "anthropic-messages",
    "openai-chat": "chat-completions",
}


@pytest.mark.parametrize("api", APIS)
async def test_recorded_answers_are_streamed_as_they_came(api: str) -> None:
    for path in recordings(FOLDERS[api])[:4]:
        async with Simulator(RecordedAnswer.read(path)) as provider:
            model = model_at(provider, api)
            book = Notebook()
            asked = Request(input=[{"role": "user", "content": "?"}])
            outcome = await call_model(model, asked, book, patience=HASTY)
            await model.close()
        assert provider.refusals == [], path.name
        assert outcome.status in ("completed", "incomplete", "failed", "cut")
        assert book.node.items, path.name


# --- names, keys and prices ---------------------------------------------------------------------


def test_a_model_is_named_with_its_provider() -> None:
    with pytest.raises(UnknownModel, match="openai:gpt-5"):
        open_model("gpt-5")
    with pytest.raises(UnknownModel, match="openai-chat"):
        open_model("nobody:gpt-5")
    with pytest.raises(UnknownModel, match=r"'openai:' has no model\. Write it after the colon"):
        open_model("openai:")


@pytest.mark.parametrize("api", APIS)
def test_a_missing_key_and_a_missing_sdk_say_what_to_do(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = api.partition("-")[0]
    variable = f"{package.upper()}_API_KEY"
    for name in (variable, "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(MissingKey, match=variable):
        open_model(f"{api}:m")
    assert open_model(f"{api}:m", base_url="http://localhost:1/v1").name == "m"
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(MissingSdk, match=rf"pip install 'tailrace\[{package}\]'"):
        open_model(f"{api}:m")


@pytest.mark.parametrize("api", APIS)
async def test_usage_says_what_it_cost_and_how_long_it_took(api: str) -> None:
    async with Simulator([think("Hm."), say("Hello")]) as provider:
        model = model_at(provider, api, prices=lambda _, usage: usage.output_tokens / 100)
        book = Notebook()
        asked = Request(input=[{"role": "user", "content": "?"}])
        await call_model(model, asked, book, patience=HASTY)
        await model.close()
    (usage,) = [event.usage for event, _ in book.take() if isinstance(event, ev.TaskUsage)]
    assert usage.output_tokens > 0
    assert usage.cost == usage.output_tokens / 100
    assert usage.time_to_first_token_ms is not None
    assert usage.latency_ms is not None
    assert 0 < usage.time_to_first_token_ms <= usage.latency_ms
    assert texts(book) == ["Hello"]


@pytest.mark.parametrize(
    ("script", "first"),
    [
        ([think("Hm."), say("Hello")], "response.reasoning_summary_text.delta"),
        ([say("Hello")], "response.output_text.delta"),
        ([call("look")], "response.output_item.added"),  # it brings the name
    ],
)
async def test_an_announced_token_is_not_the_first_token(script: Any, first: str) -> None:
    clock = 0.0
    times: list[float] = []

    class Slow(Scripted):
        async def stream(self, request: Request) -> Any:
            nonlocal clock
            async for events in super().stream(request):
                clock += 1
                if any(f'"{first}"' in event for event in events):
                    times.append(clock)
                yield events

    book = Notebook()
    await call_model(Slow(script), Request(input=[]), book, patience=HASTY, now=lambda: clock)
    (usage,) = [event.usage for event, _ in book.take() if isinstance(event, ev.TaskUsage)]
    assert usage.time_to_first_token_ms == times[0] * 1000
    assert usage.latency_ms == clock * 1000


def test_list_prices_need_no_network_and_know_what_they_do_not_know() -> None:
    used = Usage(input_tokens=1_000_000, output_tokens=1_000_000)
    for name in ("openai:gpt-4o", "openai-chat:gpt-4o", "anthropic:claude-3-5-haiku-latest"):
        cost = open_model(name, api_key="sk-anything").cost(used)
        assert cost is not None
        assert cost > 0
    unknown = open_model("openai:no-such-model", api_key="sk-anything")
    assert unknown.cost(used) is None
    impossible = Usage(input_tokens=1, cached_input_tokens=5, model="gpt-4o")
    assert unknown.cost(impossible) is None
