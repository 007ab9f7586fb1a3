"""A tool that an agent leaves to its client, and that the client did not declare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.serving import Served

GUIDE: Any = {"model": "guide"}
WHERE: Any = {"role": "user", "content": "Where am I?"}


def with_responses(served: Served, *, streams: bool) -> str:
    def turn(given: Any, **options: Any) -> Any:
        if not streams:
            return client.responses.create(**GUIDE, input=given, **options)
        with client.responses.stream(**GUIDE, input=given, **options) as stream:
            return stream.get_final_response()

    with OpenAI(base_url=f"{served.url}/v1", api_key="test", max_retries=0) as client:
        first = turn("Where am I?")
        [call] = first.output
        assert (first.status, call.type, call.name) == ("completed", "function_call", "locate")
        output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Rome"}
        return str(turn([output], previous_response_id=first.id).output_text)


def with_chat(served: Served, *, streams: bool) -> str:
    def turn(messages: Any) -> Any:
        if not streams:
            return client.chat.completions.create(**GUIDE, messages=messages).choices[0]
        with client.chat.completions.stream(**GUIDE, messages=messages) as stream:
            return stream.get_final_completion().choices[0]

    with OpenAI(base_url=f"{served.url}/v1", api_key="test", max_retries=0) as client:
        first = turn([WHERE])
        assert first.finish_reason == "tool_calls"
        [call] = first.message.tool_calls
        called = {"id": call.id, "type": "function", "function": call.function.model_dump()}
        called["function"] = {name: called["function"][name] for name in ("name", "arguments")}
        reply = {"role": "assistant", "tool_calls": [called]}
        output = {"role": "tool", "tool_call_id": call.id, "content": "Rome"}
        return str(turn([WHERE, reply, output]).message.content)


def with_messages(served: Served, *, streams: bool) -> str:
    def turn(messages: Any) -> Any:
        asked: Any = {**GUIDE, "messages": messages, "max_tokens": 100}
        if not streams:
            return client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            return stream.get_final_message()

    with Anthropic(base_url=served.url, api_key="test", max_retries=0) as client:
        first = turn([WHERE])
        assert first.stop_reason == "tool_use"
        [use] = first.content
        reply = {"role": "assistant", "content": [use.model_dump(exclude_none=True)]}
        output = {"type": "tool_result", "tool_use_id": use.id, "content": "Rome"}
        return str(turn([WHERE, reply, {"role": "user", "content": [output]}]).content[0].text)


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("ask", [with_responses, with_chat, with_messages])
def test_a_client_gets_the_agents_call_and_sends_its_output(
    served: Served, ask: Callable[..., str], streams: bool
) -> None:
    assert ask(served, streams=streams) == "You are there."
