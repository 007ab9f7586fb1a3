"""`POST /v1/messages` of the real server, asked by Anthropic's packages from PyPI and npm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from anthropic import (
    Anthropic,
    APIStatusError,
    BadRequestError,
    DefaultHttpxClient,
    NotFoundError,
    beta_tool,
)

from tests.node import run_node
from tests.serving import Served

ASKED: Any = {
    "model": "assistant",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Is it sunny?"}],
}
PICK: Any = {"name": "pick", "description": "Picks.", "input_schema": {"type": "object"}}


@pytest.fixture
def client(served: Served) -> Iterator[Anthropic]:
    with Anthropic(base_url=served.url, api_key="test", max_retries=0) as client:
        yield client


def test_an_answer_is_one_message(client: Anthropic) -> None:
    found = client.messages.create(**ASKED)
    assert (found.type, found.role, found.model) == ("message", "assistant", "assistant")
    assert found.id.startswith("msg_run_")
    assert found.stop_reason == "end_turn"
    assert found.content[-1].type == "text"
    assert "tool_use" not in [block.type for block in found.content]
    assert found.usage.output_tokens > 0


def test_the_stream_says_the_same_as_the_object(client: Anthropic) -> None:
    whole = client.messages.create(**ASKED)
    with client.messages.stream(**ASKED) as stream:
        seen = [event.type for event in stream]
        final = stream.get_final_message()

    def content_of(message: Any) -> Any:
        names = ("text", "thinking", "name", "input")
        return [[getattr(block, name, None) for name in names] for block in message.content]

    assert seen.count("text") > 2
    assert content_of(final) == content_of(whole)
    assert (final.stop_reason, final.usage) == (whole.stop_reason, whole.usage)


def test_thinking_is_signed_and_may_come_back(client: Anthropic) -> None:
    asked: Any = {**ASKED, "model": "recalls", "thinking": {"type": "enabled", "budget_tokens": 1}}
    first = client.messages.create(**asked)
    thinking = first.content[0]
    assert thinking.type == "thinking"
    assert (thinking.thinking, thinking.signature[:3]) == ("Hm.", "rs_")
    messages = [
        *asked["messages"],
        {"role": "assistant", "content": [block.to_dict() for block in first.content]},
        {"role": "user", "content": "And now?"},
    ]
    second = client.messages.create(**{**asked, "messages": messages})
    last = second.content[-1]
    assert last.type == "text"
    assert last.text.endswith("And now?")
    assert "Hm." not in last.text


def test_the_agent_reads_the_whole_conversation(client: Anthropic) -> None:
    messages: Any = [
        {"role": "user", "content": [{"type": "text", "text": "I am Ada."}]},
        {"role": "assistant", "content": "Hello Ada."},
        {"role": "user", "content": "Who am I?"},
    ]
    for system in ("Be short.", [{"type": "text", "text": "Be short."}]):
        asked: Any = {**ASKED, "model": "recalls", "messages": messages, "system": system}
        last = client.messages.create(**asked).content[-1]
        assert last.type == "text"
        assert last.text == "Be short. | I am Ada. | Hello Ada. | Who am I?"


@pytest.mark.parametrize("streams", [False, True])
def test_a_tool_of_the_client_ends_the_run_and_its_result_is_in_the_next_post(
    client: Anthropic, streams: bool
) -> None:
    messages: list[Any] = [{"role": "user", "content": "pick"}]
    asked: Any = {**ASKED, "model": "recalls", "messages": messages, "tools": [PICK]}
    if streams:
        with client.messages.stream(**asked) as stream:
            found = stream.get_final_message()
    else:
        found = client.messages.create(**asked)
    assert found.stop_reason == "tool_use"
    call = found.content[-1]
    assert call.type == "tool_use"
    assert (call.name, call.input) == ("pick", {})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "the red one"}
    messages.append({"role": "assistant", "content": [one.to_dict() for one in found.content]})
    messages.append({"role": "user", "content": [result]})
    last = client.messages.create(**asked).content[-1]
    assert last.type == "text"
    assert last.text == "pick() | pick | None | the red one"


@pytest.mark.parametrize("streams", [False, True])
def test_the_tool_runner_sends_only_the_result_of_its_tool(
    client: Anthropic, streams: bool
) -> None:
    @beta_tool
    def pick() -> str:
        """Picks."""
        return "the red one"

    asked: Any = {**ASKED, "model": "picker", "tools": [pick], "stream": streams}
    runner = client.beta.messages.tool_runner(**asked)
    last = runner.until_done().content[-1]
    assert last.type == "text"
    assert last.text == "A fine colour."


def test_a_thread_sends_new_messages_only_and_knows_the_others(served: Served) -> None:
    bodies: list[Any] = []
    http = DefaultHttpxClient(
        event_hooks={"request": [lambda request: bodies.append(json.loads(request.content))]}
    )
    with Anthropic(base_url=served.url, api_key="-", max_retries=0, http_client=http) as client:
        thread: Any = client.beta.messages.thread(
            model="recalls", max_tokens=9, system="Be short.", tools=[PICK]
        )
        call: Any = thread.send({"role": "user", "content": "pick"}).content[-1]
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "the red one"}
        thread.send({"role": "user", "content": [result]})
        last: Any = thread.send({"role": "user", "content": "And now?"}).content[-1]
        assert "Be short. | pick | None | the red one" in last.text
        assert last.text.endswith("And now?")
        assert [len(body["messages"]) for body in bodies] == [1, 1, 1]
        assert not bodies[-1].keys() & {"system", "tools"}

        httpx.delete(f"{served.url}/v1/responses/{thread.previous_message_id[4:]}")
        again: Any = thread.send({"role": "user", "content": "Still there?"}).content[-1]
    assert "Be short. | pick | None | the red one" in again.text
    assert again.text.endswith("Still there?")
    assert [len(body["messages"]) for body in bodies[3:]] == [1, 7], "the thread was lost"


def test_a_failed_run_is_an_error_that_the_sdk_does_not_repeat(served: Served) -> None:
    asked: Any = {**ASKED, "model": "broken"}
    with Anthropic(base_url=served.url, api_key="test", max_retries=5) as client:
        before = len(httpx.get(f"{served.url}/threads").json()["threads"])
        with pytest.raises(APIStatusError) as raised:
            client.messages.create(**asked)
        body: Any = raised.value.body
        assert (raised.value.status_code, body["type"]) == (424, "error")
        assert body["error"]["type"] == "api_error"
        assert len(httpx.get(f"{served.url}/threads").json()["threads"]) == before + 1
        with client.messages.stream(**asked) as stream, pytest.raises(APIStatusError):
            stream.until_done()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"messages": []}, "`messages` is empty; send at least one"),
        ({"messages": [{"role": "tool", "content": "?"}]}, "`messages[0].role` is 'tool'"),
        ({"max_tokens": "many"}, "`max_tokens` is 'many'; it must be a whole number"),
        ({"system": 1}, "`system` is 1; it must be a string"),
        ({"tools": {}}, "`tools` is an empty object; it must be a list"),
        ({"temperature": "hot"}, "`temperature` is 'hot'; it must be a number"),
        ({"thread": {"type": "fork"}}, "`thread.type` is 'fork'; it must be create or continue"),
        ({"thread": {"type": "continue"}}, "`previous_message_id` is missing; it must be a string"),
    ],
)
def test_a_wrong_field_is_named(client: Anthropic, asked: Any, message: str) -> None:
    with pytest.raises(BadRequestError) as raised:
        client.messages.create(**ASKED, extra_body=asked)
    error: Any = raised.value.body
    assert error["type"] == "error"
    assert error["error"]["type"] == "invalid_request_error"
    assert message in error["error"]["message"]


def test_an_unknown_model_is_not_found(client: Anthropic) -> None:
    for ask in (client.messages.create, client.messages.count_tokens):
        asked = {**ASKED, "model": "claude-9"}
        if ask == client.messages.count_tokens:
            del asked["max_tokens"]
        with pytest.raises(NotFoundError, match="Unknown agent 'claude-9'"):
            ask(**asked)


def test_either_header_names_the_key_and_any_version_is_fine(served: Served) -> None:
    for headers in ({"x-api-key": "k"}, {"authorization": "Bearer k"}):
        versioned = {**headers, "anthropic-version": "2023-06-01"}
        answer = httpx.post(f"{served.url}/v1/messages", json=ASKED, headers=versioned, timeout=30)
        assert answer.status_code == 200


def test_tokens_are_estimated_without_a_run(served: Served, client: Anthropic) -> None:
    before = len(httpx.get(f"{served.url}/threads").json()["threads"])
    image: Any = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "A" * 100_000},
    }

    def count(text: str, *more: Any, **asked: Any) -> int:
        content: Any = [{"type": "text", "text": text}, *more]
        messages: Any = [{"role": "user", "content": content}]
        asking: Any = {"model": "assistant", "messages": messages, **asked}
        return client.messages.count_tokens(**asking).input_tokens

    short = count("Is it sunny?")
    assert 3 <= short < 60
    assert count("Is it sunny? " * 1000) - short == pytest.approx(3250, rel=0.05)
    assert count("Is it sunny?", image) - short == pytest.approx(1500, rel=0.05)
    assert count("Is it sunny?", tools=[PICK]) > short
    assert count("Is it sunny?", system="Be short.") > short
    assert len(httpx.get(f"{served.url}/threads").json()["threads"]) == before


def test_options_are_kept_under_the_names_of_the_responses_api(
    served: Served, client: Anthropic
) -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    asked: Any = {
        **ASKED,
        "tools": [PICK, search],
        "tool_choice": {"type": "tool", "name": "pick", "disable_parallel_tool_use": True},
        "extra_body": {"temperature": 0.5},
        "metadata": {"user_id": "u"},
        "output_config": {"effort": "low"},
    }
    found = client.messages.create(**asked)
    shown = httpx.get(f"{served.url}/runs/{found.id.removeprefix('msg_')}").json()
    function = {"type": "function", "name": "pick", "description": "Picks."}
    assert shown["options"] == {
        "client_calls": "complete",
        "max_output_tokens": 100,
        "parallel_tool_calls": False,
        "reasoning": {"effort": "low"},
        "temperature": 0.5,
        "tool_choice": {"type": "function", "name": "pick"},
        "tools": [{**function, "parameters": {"type": "object"}}],
        "user": "u",
    }


def test_the_package_from_npm_reads_an_answer(served: Served) -> None:
    asking = json.dumps({"baseURL": served.url, "model": "assistant"})
    [answer] = json.loads(run_node(["anthropic_sdk.mjs", asking], stdin=""))
    assert answer["seen"][-1] == "message_stop"
    assert answer["final"]["stop_reason"] == "end_turn"
    assert answer["final"]["content"][-1]["type"] == "text"
