"""The openai-agents package from PyPI, unchanged, with its Responses model on the real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import pytest
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    OpenAIResponsesWSModel,
    RunConfig,
    Runner,
    function_tool,
)
from openai import APIError, AsyncOpenAI

from tests.clients.strict import stream_of
from tests.serving import Served

QUIET = RunConfig(tracing_disabled=True)

MakeAgent: TypeAlias = Callable[..., Agent[Any]]


@pytest.fixture
async def client(served: Served) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="test", max_retries=0) as made:
        yield made


@pytest.fixture(params=[OpenAIResponsesModel, OpenAIResponsesWSModel], ids=["http", "websocket"])
async def agent(request: Any, client: AsyncOpenAI) -> AsyncIterator[MakeAgent]:
    """Makes agents of this package, over each of its transports."""
    models: list[Any] = []

    def made(model: str, *tools: Any) -> Agent[Any]:
        models.append(request.param(model, client))
        return Agent("A", model=models[-1], tools=list(tools))

    yield made
    for model in models:
        await model.close()


async def asked(of: Agent[Any], given: Any, *, streams: bool, **options: Any) -> Any:
    """The result of a run, and the names of its events if it streams."""
    if not streams:
        return await Runner.run(of, given, run_config=QUIET, **options)
    result = Runner.run_streamed(of, given, run_config=QUIET, **options)
    async for _ in result.stream_events():
        pass
    return result


def kinds(result: Any) -> list[str]:
    return [item.type for item in result.new_items]


@pytest.mark.parametrize("streams", [False, True])
async def test_text_reasoning_server_tools_and_usage(
    served: Served, agent: MakeAgent, streams: bool
) -> None:
    result = await asked(agent("assistant"), "Is it sunny?", streams=streams)
    assert "It is sunny in Paris" in result.final_output
    assert {"reasoning_item", "tool_call_item", "message_output_item"} <= set(kinds(result))
    [response] = result.raw_responses
    assert (response.usage.input_tokens, response.usage.output_tokens) == (502, 127)
    found = stream_of(served, response.response_id, "openai-responses")
    assert found.end == "completed"
    assert [item["id"] for item in found.answer] == [item.id for item in response.output]


@pytest.mark.parametrize("streams", [False, True])
async def test_the_client_runs_its_own_tool(agent: MakeAgent, streams: bool) -> None:
    made: list[str] = []

    @function_tool
    def pick() -> str:
        """Picks."""
        made.append("pick")
        return "the red one"

    result = await asked(agent("recalls", pick), "pick", streams=streams)
    assert made == ["pick"]
    assert result.final_output == "pick() | pick | None | the red one"
    scripted = await asked(agent("picker", pick), "Hat?", streams=streams)
    assert scripted.final_output == "A fine colour."


@pytest.mark.parametrize("streams", [False, True])
async def test_the_second_turn_knows_the_first_by_its_items_and_by_its_id(
    agent: MakeAgent, streams: bool
) -> None:
    of = agent("recalls")
    first = await asked(of, "one", streams=streams)
    whole = [*first.to_input_list(), {"role": "user", "content": "two"}]
    named = {"previous_response_id": first.last_response_id}
    for given, options in ((whole, {}), ("two", named)):
        second = await asked(of, given, streams=streams, **options)
        assert second.final_output.startswith("look_up() | one | None | ")
        assert second.final_output.endswith(" | one | two")


@pytest.mark.parametrize("streams", [False, True])
async def test_a_failure_is_an_error_without_its_secret(agent: MakeAgent, streams: bool) -> None:
    with pytest.raises(Exception, match="failed") as raised:
        await asked(agent("broken"), "?", streams=streams)
    assert "hunter2" not in str(raised.value)


async def test_a_client_that_leaves_can_cancel_its_response(
    served: Served, client: AsyncOpenAI, agent: MakeAgent
) -> None:
    result = Runner.run_streamed(agent("endless"), "?", run_config=QUIET)
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.created":
            ident = event.data.response.id
        if event.type == "raw_response_event" and "delta" in event.data.type:
            result.cancel()
            break
    ended = await client.responses.cancel(ident)
    assert ended.status == "cancelled"
    assert stream_of(served, ident, "openai-responses").end == "cancelled"


@pytest.mark.parametrize("streams", [False, True])
async def test_its_chat_model_reads_text_tools_and_failures(
    client: AsyncOpenAI, streams: bool
) -> None:
    @function_tool
    def pick() -> str:
        """Picks."""
        return "the red one"

    def of(model: str) -> Agent[Any]:
        return Agent("A", model=OpenAIChatCompletionsModel(model, client), tools=[pick])

    result = await asked(of("recalls"), "pick", streams=streams)
    assert result.final_output == "pick() | pick | None | the red one"
    with pytest.raises(APIError):
        await asked(of("broken"), "?", streams=streams)
