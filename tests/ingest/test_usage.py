"""Counts of tokens: each API is read by the same rule."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.core import events as ev
from tailrace.ingest.anthropic_messages.reader import AnthropicMessages
from tailrace.ingest.openai_chat.reader import OpenAIChat
from tailrace.ingest.openai_responses.reader import OpenAIResponses
from tailrace.ingest.run import RunEvents
from tailrace.ingest.vercel_ui.reader import VercelUi
from tests.ingest import streams

Json = dict[str, Any]


def anthropic_messages(count: Any) -> list[Json]:
    message = {"id": "m", "usage": {"input_tokens": count, "output_tokens": 1}}
    return [{"type": "message_start", "message": message}, {"type": "message_stop"}]


def openai_chat(count: Any) -> list[Json]:
    usage = {"prompt_tokens": count, "completion_tokens": 1}
    return [{"choices": [{"index": 0, "delta": {"content": "Hi"}}], "usage": usage}]


def openai_responses(count: Any) -> list[Json]:
    usage = {"input_tokens": count, "output_tokens": 1}
    return [{"type": "response.completed", "response": {"id": "r", "usage": usage}}]


def run_events(count: Any) -> list[Json]:
    return [{"type": "run.finished", "data": {"inputTokens": count, "outputTokens": 1}}]


def vercel_ui(count: Any) -> list[Json]:
    usage = {"inputTokens": count, "outputTokens": 1}
    return [{"type": "finish", "messageMetadata": {"usage": usage}}]


APIS: list[tuple[Any, streams.Make]] = [
    (anthropic_messages, AnthropicMessages),
    (openai_chat, OpenAIChat),
    (openai_responses, OpenAIResponses),
    (run_events, RunEvents),
    (vercel_ui, VercelUi),
]


@pytest.mark.parametrize(
    ("sent", "read"),
    [(5, 5), (5.0, 5), (2**48 - 1, 2**48 - 1)]
    + [(other, 0) for other in (1.5, -1, -1.0, 2**48, 1e300, "5", True, None, [5])],
)
@pytest.mark.parametrize(("stream", "make"), APIS)
def test_every_api_reads_a_count_of_tokens_by_the_same_rule(
    stream: Any, make: streams.Make, sent: Any, read: int
) -> None:
    lines = [json.dumps(event) for event in stream(sent)]
    book, _ = streams.ingested(make, lines)
    usages = [event.usage for event, _ in book.take() if isinstance(event, ev.TaskUsage)]
    assert [(usage.input_tokens, usage.output_tokens) for usage in usages] == [(read, 1)]
