"""What a model call makes of an answer: its end, its cost, its value."""

from __future__ import annotations

import json
from tailrace.ingest.base import Notebook
from tailrace.ports import Request
from tailrace.runtime.calling import call_model
from tailrace.testing.simulator import Recorded, Simulator
from tests.models.talking import HASTY, model_at, texts


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
