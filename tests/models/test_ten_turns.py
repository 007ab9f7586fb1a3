"""Ten turns with reasoning and tools against a provider that forgives nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.core.state import TextNode
from tailrace.history import Mode
from tailrace.ports import Request
from tailrace.testing.simulator import Simulator
from tests.models.talking import APIS, WEATHER, Talk, model_at, weather_talk

MODES: tuple[Mode, ...] = ("drop", "encrypted", "stored")


@pytest.mark.parametrize("store", [None, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("api", APIS)
async def test_ten_turns_go_by_without_a_single_refusal(
    api: str, mode: Mode, store: bool | None
) -> None:
    async with Simulator(weather_talk) as provider:
        model = model_at(provider, api)
        request = Request(
            tools=[WEATHER], history=mode, store=store, effort="low", instructions="Be brief."
        )
        talk = Talk(model, request)
        answers = [await talk.ask(f"Question {number}?") for number in range(10)]
        await model.close()
    assert provider.refusals == []
    assert answers == [f"It is sunny, answer {2 * n + 1}." for n in range(10)]
    assert len(provider.requests) == 20
    assert [outcome.status for outcome in talk.outcomes] == ["completed"] * 20
    last = provider.requests[-1]
    if api == "openai":
        continued = mode == "stored" and store is None
        assert ("previous_response_id" in last) == continued
        reasoning = [item for item in last["input"] if item["type"] == "reasoning"]
        # Sealed, all of it goes back; else that of the turn; what is stored is not sent again.
        expected = {"encrypted": 19, "drop": 1, "stored": 0 if continued else 1}
        assert len(reasoning) == expected[mode]
    if api == "anthropic":
        thoughts = [
            block
            for message in last["messages"]
            for block in message["content"]
            if block["type"] == "thinking"
        ]
        assert len(thoughts) == (19 if mode == "encrypted" else 1)
        assert last["thinking"]["type"] == "enabled"


def naive_input(talk: Talk, *, keeps_reasoning: bool) -> list[dict[str, Any]]:
    """The next request: all that came, or all but the reasoning."""
    items: list[dict[str, Any]] = []
    for state in talk.chain:
        assert state.root is not None
        items.append({"type": "message", "role": "user", "content": state.root.facts["input"]})
        for _, node in sorted(state.root.items.items()):
            ident = (node.private.get("provider") or {}).get("id")
            text = "".join(p.text for p in node.parts.values() if isinstance(p, TextNode))
            kind = type(node.item).__name__
            if kind == "Reasoning" and keeps_reasoning:
                summary = [{"type": "summary_text", "text": text}]
                items.append({"type": "reasoning", "id": ident, "summary": summary})
            elif kind == "Message":
                content = [{"type": "output_text", "text": text, "annotations": []}]
                message = {"type": "message", "role": "assistant", "content": content}
                items.append({**message, "id": ident})
    return items


@pytest.mark.parametrize(
    ("keeps_reasoning", "error"),
    [
        (True, "Item with id 'rs_sim0_0' not found."),
        (
            False,
            (
                "Item 'msg_sim0_1' of type 'message' was provided without its required "
                "'reasoning' item: 'rs_sim0_0'."
            ),
        ),
    ],
)
async def test_a_list_without_pairs_is_refused_with_the_errors_known_from_the_field(
    keeps_reasoning: bool, error: str
) -> None:
    async with Simulator(weather_talk_without_tools) as provider:
        model = model_at(provider, "openai")
        talk = Talk(model, Request())
        await talk.ask("What tools do you have now?")
        naive = naive_input(talk, keeps_reasoning=keeps_reasoning)
        naive.append({"type": "message", "role": "user", "content": "And the time?"})
        talk.request = Request(input=naive)
        await talk.ask("And the time?")
        mended = Talk(model, Request(), chain=talk.chain[:1])
        await mended.ask("And the time?")
        await model.close()
    assert [one.message for one in provider.refusals] == [error]
    refused = talk.outcomes[-1]
    assert refused.status == "failed"
    assert refused.error is not None
    assert refused.error.code == "request_refused"
    assert error in refused.error.message
    assert mended.outcomes[-1].status == "completed"


def weather_talk_without_tools(number: int) -> Any:
    return weather_talk(2 * number + 1)


async def test_of_ten_turns_without_pairing_all_but_the_first_are_refused() -> None:
    async with Simulator(weather_talk_without_tools) as provider:
        model = model_at(provider, "openai")
        talk = Talk(model, Request())
        for number in range(10):
            await talk.ask(f"Question {number}?")
            naive = naive_input(talk, keeps_reasoning=number % 2 == 0)
            naive.append({"type": "message", "role": "user", "content": "Next?"})
            other = Talk(model, Request(input=naive))
            await other.ask("Next?")
            assert other.outcomes[-1].status == "failed"
        await model.close()
    assert len(provider.refusals) == 10


async def test_a_provider_that_forgot_a_stored_response_is_sent_everything_again() -> None:
    async with Simulator(weather_talk) as provider:
        model = model_at(provider, "openai")
        talk = Talk(model, Request(tools=[WEATHER], history="stored"))
        await talk.ask("First?")
        provider.issued.responses.clear()
        assert await talk.ask("Second?") == "It is sunny, answer 3."
        await model.close()
    assert len(provider.refusals) == 1
    again = provider.requests[3]
    assert "previous_response_id" not in again
    assert [one["content"][0]["text"] for one in again["input"] if one.get("role") == "user"] == [
        "First?",
        "Second?",
    ]
    assert "previous_response_id" in provider.requests[4]
