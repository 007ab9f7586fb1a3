"""What a model call makes of an answer: its end, its cost, its value."""

from __future__ import annotations

import json
from tailrace.core import events as ev
from tailrace.core.view import client_view
from tailrace.ingest.base import Notebook
from tailrace.ports import Request
from tailrace.runtime.calling import call_model
from tailrace.testing.simulator import Recorded, Simulator
from tests.models.talking import HASTY, model_at, texts


async def test_an_advisor_is_paid_by_its_own_price_and_time_counts_once() -> None:
    """The shape of Anthropic's recording `anthropic-advisor-20250301`."""
    iterations = [
        {"type": "message", "input_tokens": 4_000, "output_tokens": 3_000},
        {"type": "advisor_message", "model": "wise", "input_tokens": 2_000, "output_tokens": 50},
        {"type": "compaction", "input_tokens": 60_000, "output_tokens": 500},
    ]
    message = {"id": "m", "model": "fast", "usage": {"input_tokens": 4_000, "output_tokens": 1}}
    usage = {"output_tokens": 3_000, "iterations": iterations}
    answer = Recorded(
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
    told = [event.usage for event, _ in book.take() if isinstance(event, ev.TaskUsage)]
    assert [(one.model, one.cost) for one in told] == [
        ("wise", 200_000),
        ("fast", 60_000),
        ("fast", 4_000),
    ]
    assert [one.latency_ms == 0 for one in told] == [True, True, False]
    total = client_view(book.state)["usage"]
    assert (total["cost"], total["latency_ms"]) == (264_000, told[-1].latency_ms)


async def test_an_answer_without_finish_reason_is_asked_for_once() -> None:
    """As Snowflake Cortex sends it."""
    delta = {"choices": [{"delta": {"content": "Hello"}}], "usage": {}}
    async with Simulator(Recorded((json.dumps(delta), "[DONE]"))) as provider:
        model = model_at(provider, "openai-chat")
        book = Notebook()
        asked = Request(input=[{"role": "user", "content": "?"}])
        outcome = await call_model(model, asked, book, patience=HASTY)
        await model.close()
    assert outcome.status == "completed"
    assert (texts(book), len(provider.requests)) == (["Hello"], 1)
