"""pydantic-ai from PyPI, unchanged, with three of its models on the real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.messages import ThinkingPart
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.strict import stream_of
from tests.serving import Served

FORMATS = ["openai-responses", "openai-chat", "anthropic-messages"]


class Models:
    """The models of pydantic-ai for our agents, by the format that they read."""

    def __init__(self, served: Served, openai: AsyncOpenAI, anthropic: AsyncAnthropic) -> None:
        self.served = served
        self._openai = OpenAIProvider(openai_client=openai)
        self._anthropic = AnthropicProvider(anthropic_client=anthropic)

    def of(self, name: str, agent: str) -> Model:
        if name == "openai-responses":
            return OpenAIResponsesModel(agent, provider=self._openai)
        if name == "openai-chat":
            return OpenAIChatModel(agent, provider=self._openai)
        return AnthropicModel(agent, provider=self._anthropic)


@pytest.fixture
async def models(served: Served) -> AsyncIterator[Models]:
    keys: Any = {"api_key": "test", "max_retries": 0}
    async with AsyncExitStack() as stack:
        openai = await stack.enter_async_context(AsyncOpenAI(base_url=f"{served.url}/v1", **keys))
        anthropic = await stack.enter_async_context(AsyncAnthropic(base_url=served.url, **keys))
        yield Models(served, openai, anthropic)


class Talk:
    """What an agent of pydantic-ai has after a run."""

    def __init__(self, output: str, messages: list[Any], usage: Any) -> None:
        self.output = output
        self.messages = messages
        self.usage = usage

    def parts(self, kind: type[Any]) -> list[Any]:
        return [p for one in self.messages for p in one.parts if isinstance(p, kind)]


async def asked(agent: Agent[Any, str], text: str, *, streams: bool, **options: Any) -> Talk:
    if streams:
        async with agent.run_stream(text, **options) as stream:
            output = await stream.get_output()
        return Talk(output, stream.all_messages(), stream.usage)
    result = await agent.run(text, **options)
    return Talk(result.output, result.all_messages(), result.usage)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("name", FORMATS)
async def test_text_reasoning_and_usage(models: Models, name: str, streams: bool) -> None:
    agent = Agent(models.of(name, "assistant"))
    talk = await asked(agent, "Is it sunny?", streams=streams)
    assert "It is sunny in Paris" in talk.output
    thoughts = " ".join(part.content for part in talk.parts(ThinkingPart))
    assert "The weather in Paris decides this." in thoughts
    assert (talk.usage.input_tokens, talk.usage.output_tokens) == (502, 127)
    ident = talk.messages[-1].provider_response_id
    assert stream_of(models.served, ident, name).end in ("completed", "stop", "end_turn")


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("name", FORMATS)
async def test_the_client_runs_its_own_tool_and_no_other(
    models: Models, name: str, streams: bool
) -> None:
    made: list[str] = []

    def pick() -> str:
        made.append("pick")
        return "the red one"

    def get_weather(city: str) -> str:
        raise AssertionError(f"the server runs this tool for {city}")

    agent = Agent(models.of(name, "recalls"), tools=[pick])
    assert (await asked(agent, "pick", streams=streams)).output.endswith("the red one")
    assert made == ["pick"]
    agent = Agent(models.of(name, "assistant"), tools=[get_weather])
    assert "sunny" in (await asked(agent, "?", streams=streams)).output


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("name", FORMATS)
async def test_the_second_turn_knows_the_first(models: Models, name: str, streams: bool) -> None:
    agent = Agent(models.of(name, "recalls"))
    first = await asked(agent, "one", streams=streams)
    second = await asked(agent, "two", streams=streams, message_history=first.messages)
    *_, asked_first, answered_first, now = second.output.split(" | ")
    if name == "anthropic-messages":
        assert second.output.startswith("look_up() | one | None | 15 C | ")
    else:
        assert asked_first == "one"
    # The Responses model writes thinking as text for a model that it does not know.
    assert (answered_first.removeprefix("<think>\nHm.\n</think>\n\n"), now) == ("one", "two")


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("name", FORMATS)
async def test_a_failure_is_an_error_without_its_secret(
    models: Models, name: str, streams: bool
) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        await asked(Agent(models.of(name, "broken")), "?", streams=streams)
    assert "hunter2" not in f"{raised.value!r} {raised.value.__cause__!r}"
