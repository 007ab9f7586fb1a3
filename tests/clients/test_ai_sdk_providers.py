"""`ai` with `@ai-sdk/openai` and `@ai-sdk/anthropic` from npm, unchanged, on the real server."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from tests.clients.strict import stream_of
from tests.node import run_node
from tests.serving import Served

Json = dict[str, Any]

PROVIDERS = ["openai-responses", "openai-chat", "anthropic-messages"]
HOW = [False, True]
TALKS: dict[str, list[str]] = {
    "assistant": ["Is it sunny?"],
    "weather": ["Paris?"],
    "picker": ["Hat?"],
    "triage": ["My invoice is wrong.", "Thanks."],
    "recalls": ["one", "pick", "two"],
    "broken": ["?"],
}


@pytest.fixture(scope="module")
def talks(served: Served) -> dict[tuple[str, str, bool], Json]:
    """All conversations, side by side in one process; by provider, agent and `generate`."""
    names = list(product(PROVIDERS, TALKS, HOW))
    talks = [
        {"provider": provider, "model": agent, "turns": TALKS[agent], "generate": generate}
        for provider, agent, generate in names
    ]
    plan = {"url": served.url, "talks": talks}
    found = json.loads(run_node(["ai_sdk_providers.mjs"], stdin=json.dumps(plan)))
    return dict(zip(names, found, strict=True))


Talks = dict[tuple[str, str, bool], Json]
each = pytest.mark.parametrize(("provider", "generate"), list(product(PROVIDERS, HOW)))


@each
def test_text_reasoning_server_tools_and_usage(
    served: Served, talks: Talks, provider: str, generate: bool
) -> None:
    for agent, expected in (("assistant", "It is sunny in Paris"), ("weather", "It is clear.[^1]")):
        talk = talks[provider, agent, generate]
        [answer] = talk["answers"]
        assert answer["errors"] == []
        assert "error" not in answer["parts"]
        assert expected in answer["text"]
        # Its provider for chat completions reads no reasoning.
        assert answer.get("reasoning") or provider == "openai-chat"
        assert answer["finish"] == "stop"
        assert answer["usage"]["inputTokens"] > 0
        assert answer["usage"]["outputTokens"] > 0
        assert talk["executed"] == []
        assert stream_of(served, answer["id"], provider).end in ("completed", "stop", "end_turn")


@each
def test_the_client_runs_its_own_tool(talks: Talks, provider: str, generate: bool) -> None:
    talk = talks[provider, "picker", generate]
    [answer] = talk["answers"]
    assert talk["executed"] == [{}]
    assert (answer["text"], answer["errors"]) == ("A fine colour.", [])
    assert len(talk["sent"]) == 2


@each
def test_every_turn_knows_the_turns_before(talks: Talks, provider: str, generate: bool) -> None:
    talk = talks[provider, "recalls", generate]
    assert [answer["errors"] for answer in talk["answers"]] == [[], [], []]
    assert talk["executed"] == [{}]
    read = talk["answers"][-1]["text"]
    for expected in ("one", "pick", "the red one", "two"):
        assert expected in read
    assert read.split(" | ")[-1] == "two"


@each
def test_a_handoff_is_an_answer_like_any_other(talks: Talks, provider: str, generate: bool) -> None:
    talk = talks[provider, "triage", generate]
    for answer in talk["answers"]:
        assert (answer["text"], answer["errors"]) == ("You get 5 euros back.", [])
        assert answer["finish"] == "stop"
        assert answer["usage"]["outputTokens"] > 0
    if generate:
        assert [answer["model"] for answer in talk["answers"]] == ["billing", "billing"]


@each
def test_a_failure_is_an_error_without_its_secret_that_is_not_repeated(
    talks: Talks, provider: str, generate: bool
) -> None:
    talk = talks[provider, "broken", generate]
    [answer] = talk["answers"]
    assert answer["errors"]
    assert "hunter2" not in json.dumps(talk)
    assert len(talk["sent"]) == 1, "each attempt is another run"
