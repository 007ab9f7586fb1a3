"""Ten turns of a client that keeps its own list, with the official SDKs: mended, and as it is.

The same conversation, with reasoning and tools in every turn, against a provider that forgives
nothing. Without mending it fails in the words that made people ask for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from tailrace.history import sanitize
from tailrace.testing.simulator import Simulator
from tests.models.talking import weather_talk

Mend = Callable[[list[Any]], list[Any]]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}


def as_it_is(items: list[Any]) -> list[Any]:
    return items


def without_earlier_reasoning(items: list[Any]) -> list[Any]:
    """The list after a correction that follows only the first of the two errors."""
    turns = [at for at, item in enumerate(items) if isinstance(item, dict) and "role" in item]
    return [
        item
        for at, item in enumerate(items)
        if at > turns[-1] or getattr(item, "type", "") != "reasoning"
    ]


async def responses_talk(provider: Simulator, mend: Mend, *, loses: bool = False) -> None:
    tools: Any = [{"type": "function", "name": "get_weather", "parameters": PARAMETERS}]
    kept: list[Any] = []
    async with openai.AsyncOpenAI(base_url=provider.openai_url, api_key="any") as client:
        for number in range(10):
            kept.append({"role": "user", "content": f"Question {number}?"})
            for _ in range(2):
                response = await client.responses.create(
                    model="test-model",
                    input=mend(kept),
                    tools=tools,
                    reasoning={"effort": "low"},
                )
                kept += response.output
                calls = [item.call_id for item in response.output if item.type == "function_call"]
                if loses and number % 3 == 0:
                    break  # it was stopped: nothing was called
                for call_id in calls:
                    kept.append(
                        {"type": "function_call_output", "call_id": call_id, "output": "15C"}
                    )


async def messages_talk(provider: Simulator, mend: Mend, *, loses: bool = True) -> None:
    tools: Any = [{"name": "get_weather", "input_schema": PARAMETERS}]
    kept: list[Any] = []
    async with anthropic.AsyncAnthropic(base_url=provider.url, api_key="any") as client:
        for number in range(10):
            kept.append({"role": "user", "content": f"Question {number}?"})
            for _ in range(2):
                message = await client.messages.create(
                    model="test-model",
                    max_tokens=2048,
                    messages=mend(kept),
                    tools=tools,
                    thinking=THINKING,
                )
                kept.append({"role": "assistant", "content": message.content})
                calls = [block.id for block in message.content if block.type == "tool_use"]
                if loses and number % 3 == 0:
                    break
                results = [
                    {"type": "tool_result", "tool_use_id": one, "content": "15C"} for one in calls
                ]
                if results:
                    kept.append({"role": "user", "content": results})


async def chat_talk(provider: Simulator, mend: Mend, *, loses: bool = True) -> None:
    function = {"name": "get_weather", "parameters": PARAMETERS}
    tools: Any = [{"type": "function", "function": function}]
    kept: list[Any] = []
    async with openai.AsyncOpenAI(base_url=provider.openai_url, api_key="any") as client:
        for number in range(10):
            kept.append({"role": "user", "content": f"Question {number}?"})
            for _ in range(2):
                answer = await client.chat.completions.create(
                    model="test-model", messages=mend(kept), tools=tools
                )
                message = answer.choices[0].message
                kept.append(message)
                if loses and number % 3 == 0:
                    break
                kept += [
                    {"role": "tool", "tool_call_id": call.id, "content": "15C"}
                    for call in message.tool_calls or ()
                ]


TALKS: Any = {
    "openai_responses": responses_talk,
    "anthropic_messages": messages_talk,
    "openai_chat": chat_talk,
}


@pytest.mark.parametrize("loses", [False, True])
@pytest.mark.parametrize("api", TALKS)
async def test_a_list_that_is_mended_before_each_call_is_never_refused(
    api: Any, loses: bool
) -> None:
    async with Simulator(weather_talk) as provider:
        await TALKS[api](provider, lambda items: sanitize(items, api), loses=loses)
    assert provider.refusals == []
    assert len(provider.requests) == (16 if loses else 20)


@pytest.mark.parametrize(
    ("api", "mend", "loses", "error"),
    [
        ("openai_responses", as_it_is, False, "Item with id 'rs_sim0_0' not found."),
        (
            "openai_responses",
            without_earlier_reasoning,
            False,
            (
                "Item 'fc_sim0_1' of type 'function_call' was provided without its required "
                "'reasoning' item: 'rs_sim0_0'."
            ),
        ),
        (
            "anthropic_messages",
            as_it_is,
            True,
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after:",
        ),
        (
            "openai_chat",
            as_it_is,
            True,
            (
                "An assistant message with 'tool_calls' must be followed by tool messages "
                "responding to each 'tool_call_id'."
            ),
        ),
    ],
)
async def test_as_it_is_it_fails_in_the_known_words(
    api: str, mend: Mend, loses: bool, error: str
) -> None:
    async with Simulator(weather_talk) as provider:
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)):
            await TALKS[api](provider, mend, loses=loses)
    [refusal] = provider.refusals
    assert refusal.message.startswith(error)
