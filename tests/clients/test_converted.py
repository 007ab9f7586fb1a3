"""Converted streams, read by the official clients of their targets.

What a client shows is compared with what plain concatenation finds in the recording.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from openai.types.responses import Response

from tests.clients.answering import Answers, answering
from tests.convert.streams import converted, source_of
from tests.ingest import chat_oracle
from tests.ingest.anthropic_oracle import StreamedMessage, beside_of, messages_of
from tests.ingest.streams import lines, recordings
from tests.node import run_node

ANTHROPIC = recordings("anthropic-messages")
CHAT = recordings("chat-completions")


@pytest.fixture(scope="module")
def answers() -> Iterator[Answers]:
    with answering() as server:
        yield server


def read_by_openai(answers: Answers, stream: bytes) -> Response:
    """The response that openai-python ends up with."""
    answers.stream = stream
    final: Response | None = None
    with OpenAI(base_url=f"{answers.url}/v1", api_key="test", max_retries=0) as client:
        for event in client.responses.create(model="m", input="?", stream=True):
            if event.type in ("response.completed", "response.incomplete", "response.failed"):
                final = event.response
    assert final is not None
    return final


def whole_blocks(letters: list[StreamedMessage]) -> list[dict[str, Any]]:
    return [block for letter in letters for block in letter.sendable()]


@pytest.mark.parametrize("path", ANTHROPIC, ids=lambda path: path.stem)
def test_openai_python_reads_a_converted_anthropic_stream(answers: Answers, path: Path) -> None:
    events = lines(path)
    stream = converted(source_of(path), "anthropic-messages", "openai-responses")
    response = read_by_openai(answers, stream)
    letters = messages_of(events)
    expected = [block for letter in letters for block in letter.blocks]
    items = [json.loads(item.model_dump_json()) for item in response.output]
    texts = "".join(block.text("text") for block in expected if block.block["type"] == "text")
    shown = "".join(
        part["text"]
        for item in items
        if item["type"] == "message"
        for part in item["content"]
        if part["type"] == "output_text"
    )
    assert shown == texts
    thoughts = [
        block.text("thinking")
        for block in expected
        if block.block["type"] == "thinking" and block.text("thinking")
    ]
    summaries = [
        part["text"] for item in items if item["type"] == "reasoning" for part in item["summary"]
    ]
    assert [text for text in summaries if text] == thoughts
    calls = [
        (block["name"], block["input"])
        for block in whole_blocks(letters)
        if block["type"] == "tool_use"
    ]
    made = [
        (item["name"], json.loads(item["arguments"]))
        for item in items
        if item["type"] == "function_call"
    ]
    assert made == calls
    assert response.usage is not None
    assert response.usage.output_tokens == sum(
        used.get("output_tokens", 0)
        for letter in letters
        for used in (letter.usage, *beside_of(letter.usage))
    )


def read_by_ai_sdk(streams: Iterable[bytes]) -> list[Any]:
    """The messages that the AI SDK's UI stream reader ends up with, and its errors."""
    runs = [[stream.decode()] for stream in streams]
    found: list[Any] = json.loads(run_node(["vercel_read.mjs"], stdin=json.dumps(runs)))
    return found


def test_the_ai_sdk_reads_converted_chat_completions() -> None:
    paths = [path for path in CHAT if path.stem not in chat_oracle.UNRULY]
    streams = [converted(source_of(path), "openai-chat", "vercel-ui") for path in paths]
    for path, found in zip(paths, read_by_ai_sdk(streams), strict=True):
        events, parts = lines(path), found["message"]["parts"]
        failed = any('"error"' in line for line in events)
        assert failed or not found["errors"], path
        assert not [part for part in parts if part.get("state") == "streaming"], path
        text_kinds, thought = ["text", "refusal"], ["reasoning"]
        expected = chat_oracle.expected_of(events)["items"]
        for shown, kinds in (("text", text_kinds), ("reasoning", thought)):
            pieces = [part["text"] for part in parts if part["type"] == shown]
            assert "".join(pieces) == "".join(one for kind, one in expected if kind in kinds), path


CALLING = ("deepseek-tool-call", "groq-tool-call", "openai-parallel-calls")


@pytest.mark.parametrize(
    "path", [path for path in CHAT if path.stem in CALLING], ids=lambda path: path.stem
)
def test_the_ai_sdk_gets_the_calls_of_converted_chat_completions(path: Path) -> None:
    expected: dict[int, dict[str, str]] = {}
    for line in lines(path):
        for choice in json.loads(line).get("choices") or []:
            for call in choice["delta"].get("tool_calls") or []:
                known = expected.setdefault(call["index"], {"name": "", "arguments": ""})
                for field in known:
                    known[field] += call["function"].get(field) or ""
    [found] = read_by_ai_sdk([converted(source_of(path), "openai-chat", "vercel-ui")])
    calls = [part for part in found["message"]["parts"] if part["type"].startswith("tool-")]
    assert [(part["type"], part["state"], part["input"]) for part in calls] == [
        (f"tool-{call['name']}", "input-available", json.loads(call["arguments"]))
        for call in expected.values()
    ]
