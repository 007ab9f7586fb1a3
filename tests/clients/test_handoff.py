"""A handoff in the Python SDKs, unchanged: `model` names the agent that speaks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, RunConfig, Runner
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.openai import OpenAIResponsesModel as PydanticResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.serving import Served

ANSWER = "You get 5 euros back."
ASKED: Any = [{"role": "user", "content": "My invoice is wrong."}]


class Clients:
    """The SDKs of both vendors on one server."""

    def __init__(self, openai: AsyncOpenAI, anthropic: AsyncAnthropic) -> None:
        self.openai = openai
        self.anthropic = anthropic


@pytest.fixture
async def clients(served: Served) -> AsyncIterator[Clients]:
    keys: Any = {"api_key": "test", "max_retries": 0}
    async with AsyncExitStack() as stack:
        yield Clients(
            await stack.enter_async_context(AsyncOpenAI(base_url=f"{served.url}/v1", **keys)),
            await stack.enter_async_context(AsyncAnthropic(base_url=served.url, **keys)),
        )


def _changes(models: list[str | None]) -> list[str | None]:
    """The models without repetitions."""
    return [name for name, before in zip(models, [None, *models], strict=False) if name != before]


async def test_openai_responses(clients: Clients) -> None:
    models: list[str | None] = []
    async with clients.openai.responses.stream(model="triage", input=ASKED) as stream:
        async for event in stream:
            models += [event.response.model] if hasattr(event, "response") else []
        response = await stream.get_final_response()
    assert _changes(models) == ["triage", "billing"]
    assert (response.output_text, response.model) == (ANSWER, "billing")
    again = await clients.openai.responses.retrieve(response.id)
    assert again.model == "billing"
    whole = await clients.openai.responses.create(model="triage", input=ASKED)
    assert (whole.output_text, whole.model) == (ANSWER, "billing")


async def test_chat_completions(clients: Clients) -> None:
    models: list[str | None] = []
    completions = clients.openai.chat.completions
    async with completions.stream(model="triage", messages=ASKED) as stream:
        async for event in stream:
            models += [event.chunk.model] if event.type == "chunk" else []
        done = await stream.get_final_completion()
    assert _changes(models) == ["triage", "billing"]
    assert done.choices[0].message.content == ANSWER
    whole = await completions.create(model="triage", messages=ASKED)
    assert (whole.choices[0].message.content, whole.model) == (ANSWER, "billing")


async def test_anthropic_messages(clients: Clients) -> None:
    models: list[str | None] = []
    about: Any = {"model": "triage", "max_tokens": 99, "messages": ASKED}
    async with clients.anthropic.messages.stream(**about) as stream:
        async for event in stream:
            if event.type == "message_start":
                models.append(event.message.model)
            elif event.type == "content_block_start":
                models.append(getattr(event, "model", models[-1]))
            elif event.type == "message_delta":
                models.append(getattr(event.delta, "model", None))
        message: Any = await stream.get_final_message()
    assert _changes(models) == ["triage", "billing"]
    assert (message.content[-1].text, message.stop_reason) == (ANSWER, "end_turn")
    assert message.usage.output_tokens > 0
    whole: Any = await clients.anthropic.messages.create(**about)
    assert (whole.content[-1].text, whole.model) == (ANSWER, "billing")


@pytest.mark.parametrize("name", ["responses", "chat", "messages"])
async def test_pydantic_ai(clients: Clients, name: str) -> None:
    agent = PydanticAgent(_pydantic_model(clients, name))
    result = await agent.run("My invoice is wrong.")
    async with agent.run_stream("My invoice is wrong.") as stream:
        output = await stream.get_output()
    assert (result.output, output) == (ANSWER, ANSWER)
    assert result.usage.output_tokens == stream.usage.output_tokens > 0
    whole, streamed = _model_of(result), _model_of(stream)
    # Of a Messages stream it reads the model only at the start.
    assert (whole, streamed) == ("billing", "triage" if name == "messages" else "billing")


def _model_of(result: Any) -> Any:
    return result.all_messages()[-1].model_name


def _pydantic_model(clients: Clients, name: str) -> Model:
    openai = OpenAIProvider(openai_client=clients.openai)
    if name == "responses":
        return PydanticResponsesModel("triage", provider=openai)
    if name == "chat":
        return OpenAIChatModel("triage", provider=openai)
    return AnthropicModel("triage", provider=AnthropicProvider(anthropic_client=clients.anthropic))


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("kind", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
async def test_openai_agents(clients: Clients, kind: Any, streams: bool) -> None:
    agent = Agent[Any]("A", model=kind("triage", clients.openai))
    quiet = RunConfig(tracing_disabled=True)
    result: Any
    if streams:
        result = Runner.run_streamed(agent, "My invoice is wrong.", run_config=quiet)
        async for _ in result.stream_events():
            pass
    else:
        result = await Runner.run(agent, "My invoice is wrong.", run_config=quiet)
    assert result.final_output == ANSWER
    turn = [*result.to_input_list(), {"role": "user", "content": "Thanks."}]
    assert (await Runner.run(agent, turn, run_config=quiet)).final_output == ANSWER
