"""`openai` and `@anthropic-ai/sdk` from npm, unchanged, on the real server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.clients.strict import stream_of
from tests.node import run_node
from tests.serving import Served

TOKENS = ("input_tokens", "output_tokens")
APIS = ["openai-responses", "websocket", "openai-chat", "anthropic-messages"]


@pytest.fixture(scope="module")
def found(served: Served) -> Any:
    return json.loads(run_node(["npm_sdks.mjs"], stdin=json.dumps({"url": served.url})))


@pytest.mark.parametrize("api", APIS)
def test_text_a_server_tool_reasoning_and_usage(served: Served, found: Any, api: str) -> None:
    answer = found[api]["answer"]
    assert answer["text"] == "It is clear.[^1]"
    assert answer["end"] in ("completed", "stop", "end_turn")
    assert "Hm." in json.dumps(answer)
    names = ("prompt_tokens", "completion_tokens") if api == "openai-chat" else TOKENS
    assert all(answer["usage"][name] > 0 for name in names)
    wire = "openai-responses" if api == "websocket" else api
    assert stream_of(served, answer["id"], wire).end == answer["end"]


@pytest.mark.parametrize("api", APIS)
def test_the_client_runs_its_own_tool(found: Any, api: str) -> None:
    assert found[api]["tool"]["text"] == "A fine colour."


def test_the_tool_runner_of_anthropic_ends_with_the_answer(found: Any) -> None:
    answers = [message["content"][-1]["text"] for message in found["runners"]]
    assert answers == ["A fine colour."] * 2


@pytest.mark.parametrize("api", APIS)
def test_a_handoff_names_the_agent_that_speaks_as_the_model(found: Any, api: str) -> None:
    handoff = found[api]["handoff"]
    assert handoff["text"] == "You get 5 euros back."
    assert handoff["end"] in ("completed", "stop", "end_turn")
    named = [name for name in handoff["models"] if name]
    assert list(dict.fromkeys(named)) == ["triage", "billing"]
    assert named == sorted(named, reverse=True)  # never back to triage


@pytest.mark.parametrize("api", APIS)
def test_the_second_turn_knows_the_first(found: Any, api: str) -> None:
    read = found[api]["memory"]["text"]
    assert read.endswith("one | two")
    assert ("look_up()" in read) == (api != "openai-chat")  # chat completions hide server tools


@pytest.mark.parametrize("api", APIS)
def test_a_failure_is_an_error_without_its_secret(found: Any, api: str) -> None:
    for failure in found[api]["failures"]:
        assert failure["message"]
        assert "hunter2" not in failure["message"]


def test_a_response_that_is_cancelled_ends_its_stream(found: Any) -> None:
    assert found["cancelled"] == {"last": "response.incomplete", "status": "cancelled"}
