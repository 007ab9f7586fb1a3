"""`POST /v1/chat/completions` of the real server, asked by the openai package from PyPI."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import APIStatusError, AsyncOpenAI, BadRequestError, NotFoundError, OpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.serving import Served

ASKED: Any = [{"role": "user", "content": "Is it sunny?"}]
PICK: Any = {
    "type": "function",
    "function": {"name": "pick", "parameters": {"type": "object", "properties": {}}},
}


@pytest.fixture
def client(served: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{served.url}/v1", api_key="test", max_retries=0) as client:
        yield client


def test_an_answer_is_one_completion(client: OpenAI) -> None:
    found = client.chat.completions.create(model="assistant", messages=ASKED)
    [choice] = found.choices
    assert found.object == "chat.completion"
    assert found.id.startswith("chatcmpl-run_")
    assert found.model == "assistant"
    assert choice.finish_reason == "stop"
    assert choice.message.content
    assert choice.message.tool_calls is None, "a call of the server is not the client's"
    assert found.usage is not None
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens


def test_the_stream_says_the_same_as_the_object(client: OpenAI) -> None:
    whole = client.chat.completions.create(model="assistant", messages=ASKED)
    with client.chat.completions.stream(
        model="assistant", messages=ASKED, stream_options={"include_usage": True}
    ) as stream:
        seen = [event.type for event in stream]
        final = stream.get_final_completion()
    assert seen.count("content.delta") > 2
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.usage == whole.usage


def test_every_chunk_has_a_choice_unless_usage_was_asked_for(client: OpenAI) -> None:
    stream = client.chat.completions.create(model="assistant", messages=ASKED, stream=True)
    chunks = list(stream)
    assert all(len(chunk.choices) == 1 for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_the_agent_reads_the_whole_conversation(client: OpenAI) -> None:
    messages: Any = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": [{"type": "text", "text": "I am Ada."}]},
        {"role": "assistant", "content": "Hello Ada."},
        {"role": "user", "content": "Who am I?"},
    ]
    found = client.chat.completions.create(model="recalls", messages=messages)
    answer_text = found.choices[0].message.content
    assert answer_text == "Be short. | I am Ada. | Hello Ada. | Who am I?"
    assert found.choices[0].message.model_extra == {"reasoning_content": "Hm."}


@pytest.mark.parametrize("streams", [False, True])
def test_a_tool_of_the_client_ends_the_run_and_its_result_is_in_the_next_post(
    client: OpenAI, streams: bool
) -> None:
    messages: Any = [{"role": "user", "content": "pick"}]
    if streams:
        with client.chat.completions.stream(
            model="recalls", messages=messages, tools=[PICK]
        ) as stream:
            found: Any = stream.until_done().get_final_completion()
    else:
        found = client.chat.completions.create(model="recalls", messages=messages, tools=[PICK])
    [choice] = found.choices
    assert choice.finish_reason == "tool_calls"
    [call] = choice.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("pick", "{}")
    made = {"id": call.id, "type": "function", "function": {"name": "pick", "arguments": "{}"}}
    messages += [
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": call.id, "content": "the red one"},
    ]
    found = client.chat.completions.create(model="recalls", messages=messages, tools=[PICK])
    assert found.choices[0].message.content == "pick() | pick | None | the red one"


async def test_pydantic_ai_runs_its_tool_between_two_posts(served: Served) -> None:
    made: list[str] = []

    def pick() -> str:
        made.append("pick")
        return "the red one"

    async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="test") as client:
        provider = OpenAIProvider(openai_client=client)
        agent = Agent(OpenAIChatModel("recalls", provider=provider), tools=[pick])
        found = await agent.run("pick")
    assert made == ["pick"]
    assert found.output.endswith("the red one")


def test_a_failed_run_is_an_error_that_no_sdk_repeats(served: Served) -> None:
    asked: Any = {"model": "broken", "messages": ASKED}
    with OpenAI(base_url=f"{served.url}/v1", api_key="test", max_retries=5) as client:
        before = len(httpx.get(f"{served.url}/threads").json()["threads"])
        with pytest.raises(APIStatusError) as raised:
            client.chat.completions.create(**asked)
        assert raised.value.status_code == 424
        assert "hunter2" not in str(raised.value)
        assert len(httpx.get(f"{served.url}/threads").json()["threads"]) == before + 1
        with pytest.raises(Exception, match="failed"), client.chat.completions.stream(**asked) as s:
            s.until_done()


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "?"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"n": 2}, "n"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"tools": {}}, "tools"),
        ({"tools": ["pick"]}, "tools[0]"),
        ({"temperature": "hot"}, "temperature"),
    ],
)
def test_a_wrong_field_is_named(client: OpenAI, asked: Any, param: str) -> None:
    with pytest.raises(BadRequestError) as raised:
        client.chat.completions.create(**{"model": "assistant", "messages": ASKED, **asked})
    assert raised.value.param == param


def test_an_unknown_model_is_not_found(client: OpenAI) -> None:
    with pytest.raises(NotFoundError, match="Unknown agent 'gpt-9'"):
        client.chat.completions.create(model="gpt-9", messages=ASKED)


def test_options_are_kept_under_the_names_of_the_responses_api(
    served: Served, client: OpenAI
) -> None:
    found = client.chat.completions.create(
        model="assistant",
        messages=ASKED,
        tools=[PICK],
        tool_choice={"type": "function", "function": {"name": "pick"}},
        max_completion_tokens=99,
        reasoning_effort="low",
        response_format={"type": "json_object"},
        temperature=0.5,
    )
    shown = httpx.get(f"{served.url}/runs/{found.id.removeprefix('chatcmpl-')}").json()
    assert shown["options"] == {
        "client_calls": "complete",
        "max_output_tokens": 99,
        "reasoning": {"effort": "low"},
        "temperature": 0.5,
        "text": {"format": {"type": "json_object"}},
        "tool_choice": {"type": "function", "name": "pick"},
        "tools": [{"type": "function", **PICK["function"]}],
    }
