"""What a model call makes of an answer: its end, its cost, its value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.core import events as ev
from tailrace.core.run_object import client_view
from tailrace.ingest.base import Notebook
from tailrace.models.scripted import Scripted
from tailrace.models.scripted.script import call, say, think
from tailrace.ports import OutputSchema, Request
from tailrace.runtime.model_calls.call import call_model
from tailrace.testing.simulator import RecordedAnswer, Simulator
from tests.models.talking import APIS, HASTY, WEATHER, model_at, texts

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


async def test_an_advisor_is_paid_by_its_own_price_and_time_counts_once() -> None:
    """The shape of Anthropic's recording `anthropic-advisor-20250301`."""
    iterations = [
        {"type": "message", "input_tokens": 4_000, "output_tokens": 3_000},
        {"type": "advisor_message", "model": "wise", "input_tokens": 2_000, "output_tokens": 50},
        {"type": "compaction", "input_tokens": 60_000, "output_tokens": 500},
    ]
    message = {"id": "m", "model": "fast", "usage": {"input_tokens": 4_000, "output_tokens": 1}}
    usage = {"output_tokens": 3_000, "iterations": iterations}
    answer = RecordedAnswer(
        tuple(
            json.dumps(event)
            for event in (
                {"type": "message_start", "message": message},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
                {"type": "message_stop"},
            )
        )
    )
    prices = {"wise": 100, "fast": 1}
    async with Simulator(answer) as provider:
        model = model_at(
            provider, "anthropic", prices=lambda _, used: prices[used.model] * used.input_tokens
        )
        book = Notebook()
        asked = Request(input=[{"role": "user", "content": "?"}])
        await call_model(model, asked, book, patience=HASTY)
        await model.close()
    usages = [event.usage for event, _ in book.take() if isinstance(event, ev.TaskUsage)]
    assert [(one.model, one.cost) for one in usages] == [
        ("wise", 200_000),
        ("fast", 60_000),
        ("fast", 4_000),
    ]
    assert [one.latency_ms == 0 for one in usages] == [True, True, False]
    total = client_view(book.state)["usage"]
    assert (total["cost"], total["latency_ms"]) == (264_000, usages[-1].latency_ms)


async def test_an_answer_without_finish_reason_is_asked_for_once() -> None:
    """As Snowflake Cortex sends it."""
    delta = {"choices": [{"delta": {"content": "Hello"}}], "usage": {}}
    async with Simulator(RecordedAnswer((json.dumps(delta), "[DONE]"))) as provider:
        model = model_at(provider, "openai-chat")
        book = Notebook()
        asked = Request(input=[{"role": "user", "content": "?"}])
        outcome = await call_model(model, asked, book, patience=HASTY)
        await model.close()
    assert outcome.status == "completed"
    assert (texts(book), len(provider.requests)) == (["Hello"], 1)


def outputs(book: Notebook) -> list[Any]:
    written = [event for event, _ in book.take() if isinstance(event, ev.StructuredOutputDone)]
    return [(event.name, event.value) for event in written]


@pytest.mark.parametrize("api", APIS)
async def test_an_answer_by_a_schema_is_emitted_as_a_value_once(api: str) -> None:
    answers: list[Any] = [
        [say('{"city":"Rome"}'), call("get_weather", city="Paris")],  # not the last answer
        [think("Which? "), say('{"city": "Paris"}')],
        [say('{"city":"Late"}')],
    ]
    async with Simulator(*answers) as provider:
        model = model_at(provider, api)
        book = Notebook()
        asked = Request(
            input=[{"role": "user", "content": "?"}],
            tools=[WEATHER],
            output=OutputSchema(schema=SCHEMA, name="place"),
        )
        for expected in ([], [("place", {"city": "Paris"})], []):
            outcome = await call_model(model, asked, book, patience=HASTY)
            assert outcome.status == "completed"
            assert outputs(book) == expected
        await model.close()


@pytest.mark.parametrize("text", ["It is sunny.", '{"city":', "", '{"n":1e999}', '{"a":"\\u0000"}'])
async def test_words_that_are_not_json_are_not_structured_output(text: str) -> None:
    book = Notebook()
    asked = Request(input=[], output=OutputSchema(schema={}))
    script = [say(text)] if text else [think("Hm.")]
    outcome = await call_model(Scripted(script), asked, book, patience=HASTY)
    assert outcome.status == "completed"
    assert outputs(book) == []


async def test_without_a_schema_json_is_only_words() -> None:
    book = Notebook()
    await call_model(Scripted([say("{}")]), Request(input=[]), book, patience=HASTY)
    assert outputs(book) == []
