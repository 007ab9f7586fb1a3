"""Chat completions, whole streams: everything arrives exactly once, however a stream is cut."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tailrace.ingest.base import Notebook
from tailrace.ingest.openai_chat import OpenAIChat
from tests.ingest.streams import (
    FIXTURES,
    as_frames,
    check_cut_everywhere,
    check_readable,
    fed_in_chunks,
    ingested,
    lines,
    random_sizes,
    recordings,
    shown,
)

API = "chat-completions"
STREAMS = recordings(API)
# Where plain concatenation is no oracle, because the provider does not keep to the API's rules:
# `test_each_shape_gives_what_was_said` has what they mean.
_UNRULY = frozenset(
    (
        *("missing-indexes", "missing-ids-and-indexes", "ollama-objects-for-arguments"),
        *("gemini-index-zero-for-all", "call-repeated-at-the-end", "call-without-a-name"),
        *("openai-custom-tool", "mistral-references", "openai-legacy-function-call"),
    )
)


# --- a separate reading of the same stream: plain concatenation by field -------------------------


def said(events: list[str]) -> dict[str, Any]:
    """What the chunks say, field by field, of choice 0."""
    found: dict[str, Any] = {"text": "", "reasoning": "", "refusal": "", "calls": {}, "usage": None}
    for event in map(json.loads, events):
        found["usage"] = event.get("usage") or found["usage"]
        for choice in event.get("choices", []):
            found["usage"] = choice.get("usage") or found["usage"]
            delta = choice.get("delta") or choice.get("message") or {}
            if choice["index"] == 0:
                _add_delta(found, delta)
    return found


def _add_delta(found: dict[str, Any], delta: dict[str, Any]) -> None:
    content: Any = delta.get("content") or ""
    for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        if part["type"] == "thinking":
            found["reasoning"] += "".join(one["text"] for one in part["thinking"])
        else:
            found["text"] += part["text"]
    details = delta.get("reasoning_details") or []
    in_details = "".join(one.get("text") or one.get("summary") or "" for one in details)
    fields = ("reasoning_content", "reasoning", "reasoning_text")
    found["reasoning"] += next((delta[name] for name in fields if delta.get(name)), in_details)
    found["refusal"] += delta.get("refusal") or ""
    for at, fragment in enumerate(delta.get("tool_calls") or []):
        call = found["calls"].setdefault(fragment.get("index", at), {"name": "", "arguments": ""})
        function = fragment["function"]
        name = function.get("name") or ""
        call["name"] += "" if name == call["name"] else name
        call["arguments"] += function.get("arguments") or ""
        call["id"] = call.get("id") or fragment.get("id")


def written(book: Notebook) -> dict[str, Any]:
    """The same of what we wrote."""
    found: dict[str, Any] = {"text": "", "reasoning": "", "refusal": "", "calls": []}
    for item in shown(book).get("output", []):
        if item["type"] == "tool_call":
            found["calls"].append(item)
        for part in [*(item.get("summary") or []), *(item.get("block_list") or [])]:
            where = "reasoning" if item["type"] == "reasoning" else part["type"]
            if where != "image":
                found[where] += part.get("text", part.get("refusal"))
    return found


def check_against_plain_concatenation(book: Notebook, events: list[str]) -> None:
    expected, found = said(events), written(book)
    for name in ("text", "reasoning", "refusal"):
        assert found[name] == expected[name]
    calls = list(expected["calls"].values())
    assert [(one["name"], one["arguments"]) for one in found["calls"]] == [
        (one["name"], one["arguments"]) for one in calls
    ]
    for one, two in zip(found["calls"], calls, strict=True):
        if two["id"]:
            assert two["id"] in (one["call_id"], one["private"]["provider"].get("call_id"))
    usage: Any = shown(book).get("usage")
    raw = expected["usage"]
    if raw is None:
        assert usage is None
    else:
        assert usage["calls"] == 1
        assert usage["input_tokens"] == raw["prompt_tokens"]
        assert usage["output_tokens"] in (
            raw["completion_tokens"],
            raw["total_tokens"] - raw["prompt_tokens"],
        )
        assert shown(book)["private"]["provider"]["usage"] == raw


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_everything_arrives_exactly_once(path: Path) -> None:
    events = lines(path)
    book, outcome = ingested(OpenAIChat, [*events, "[DONE]"])
    assert outcome.status != "cut"
    if path.stem not in _UNRULY:
        check_against_plain_concatenation(book, events)
    check_readable(book)


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_cut_after_any_chunk_it_ends_legally_and_nothing_may_be_called(path: Path) -> None:
    events = lines(path)
    check_cut_everywhere(OpenAIChat, events)
    finished = next(
        (at for at, event in enumerate(events) if _finishes(json.loads(event))), len(events)
    )
    for count in {*range(min(finished, 15)), *range(max(0, finished - 15), finished)}:
        book, outcome = ingested(OpenAIChat, events[:count])
        assert outcome.status in ("cut", "failed")
        calls = written(book)["calls"]
        assert all(call["status"] == "incomplete" for call in calls)
        if path.stem not in _UNRULY and "late-name" not in path.stem:
            assert written(book)["text"] == said(events[:count])["text"]
        check_readable(book)


def _finishes(chunk: dict[str, Any]) -> bool:
    return any(choice.get("finish_reason") for choice in chunk.get("choices", []))


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_the_size_of_the_chunks_on_the_wire_does_not_matter(path: Path) -> None:
    events = lines(path)
    whole, _ = ingested(OpenAIChat, events)
    stream = as_frames([*events, "[DONE]"])
    for sizes in (random_sizes(1), itertools.repeat(1), itertools.repeat(65_536)):
        book, outcome = fed_in_chunks(OpenAIChat, stream, sizes)
        assert shown(book) == shown(whole)
        assert outcome.status != "cut"


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_cut_after_any_byte_it_ends_legally(path: Path) -> None:
    stream = as_frames(lines(path))
    step = max(1, len(stream) // 50)
    for end in {*range(0, len(stream), step), *range(max(0, len(stream) - 20), len(stream))}:
        book, outcome = fed_in_chunks(OpenAIChat, stream[:end], itertools.repeat(65_536))
        assert book.node.ended
        for call in written(book)["calls"] if outcome.status == "cut" else ():
            assert call["status"] == "incomplete"


# --- the shapes ----------------------------------------------------------------------------------

PARIS, ROME = '{"city":"Paris"}', '{"city":"Rome"}'
_SHAPES: dict[str, tuple[str, str | None, list[tuple[str, ...]]]] = {
    "azure-content-filter": ("incomplete", "content_filter", [("text", "Well")]),
    "call-repeated-at-the-end": ("completed", None, [("call_a", "weather", PARIS)]),
    "call-without-a-name": ("incomplete", "truncated_tool_call", [("text", "Hm.")]),
    "copilot-opaque-reasoning": (
        *("completed", None),
        [("reasoning", "Mulling."), ("text", "Fine.")],
    ),
    "deepseek-interrupted": (
        *("incomplete", "insufficient_system_resource"),
        [("text", "Once upon")],
    ),
    "deepseek-think-tags": ("completed", None, [("text", "<think>\nhm\n</think>\n\nYes.")]),
    "finished-with-a-partial-call": (
        *("incomplete", "truncated_tool_call"),
        [("call_a", "weather", '{"city":"Par', "incomplete")],
    ),
    "gemini-index-zero-for-all": (
        *("completed", None),
        [("call_a", "weather", PARIS), ("call_b", "weather", ROME), ("call_c", "time", "{}")],
    ),
    "gemini-thought-signature": ("completed", None, [("call_a", "weather", PARIS)]),
    "groq-error": ("failed", None, [("text", "He")]),
    "late-name-and-id": ("completed", None, [("call_1_3", "weather", PARIS)]),
    "litellm-thinking-blocks": ("completed", None, [("reasoning", "So be it"), ("text", "Ok")]),
    "missing-ids": (
        *("completed", None),
        [("call_1_3", "weather", PARIS), ("call_1_6", "weather", ROME)],
    ),
    "missing-ids-and-indexes": (
        *("completed", None),
        [
            ("call_1_3", "weather", PARIS),
            ("call_1_7", "weather", ROME),
            ("call_1_9", "time", ""),
            ("call_1_16", "date", ""),
        ],
    ),
    "missing-indexes": (
        *("completed", None),
        [("call_a", "weather", PARIS), ("call_b", "weather", ROME)],
    ),
    "mistral-references": (
        *("completed", None),
        [("reasoning", "Look it up."), ("text", "Paris it is.")],
    ),
    "moonshot-usage-in-the-choice": ("completed", None, [("text", "Hi")]),
    "name-in-pieces": ("completed", None, [("call_a", "get_weather", PARIS)]),
    "ollama-objects-for-arguments": (
        *("completed", None),
        [
            ("call_1_3", "weather", PARIS),
            ("call_1_5", "weather", ROME),
            ("call_1_7", "now", "{}"),
        ],
    ),
    "ollama-reasoning": ("completed", None, [("reasoning", "Let me see."), ("text", "Four.")]),
    "openai-audio": ("completed", None, [("message",)]),
    "openai-custom-tool": ("completed", None, [("call_a", "shell", "ls -l {")]),
    "openai-cut-by-length": (
        *("incomplete", "max_output_tokens"),
        [("call_a", "weather", '{"city":"Pa', "incomplete")],
    ),
    "openai-error-in-stream": ("failed", None, [("text", "Let me")]),
    "openai-legacy-function-call": ("completed", None, [("call_1_3", "weather", PARIS)]),
    "openai-logprobs": ("completed", None, [("text", "Hi!")]),
    "openai-parallel-calls": (
        *("completed", None),
        [("call_a", "weather", PARIS), ("call_b", "time", '{"zone":"UTC"}')],
    ),
    "openai-refusal": ("completed", None, [("refusal", "I can't help with that.")]),
    "openai-two-choices": ("completed", None, [("text", "Heads")]),
    "openai-web-search": ("completed", None, [("text", "Sunny in Paris.")]),
    "openai-whole-answer": (
        *("completed", None),
        [("text", "Hello."), ("call_a", "weather", PARIS)],
    ),
    "openrouter-error": ("failed", None, [("text", "Hel")]),
    "openrouter-image": (
        *("completed", None),
        [("text", "Here: "), ("image",), ("text", "That is all.")],
    ),
    "openrouter-reasoning-details": (
        *("completed", None),
        [("reasoning", "Thinking."), ("text", "Done."), ("reasoning", "")],
    ),
    "openrouter-summaries-without-text": (
        *("completed", None),
        [("reasoning", "**Plan** first."), ("text", "Yes.")],
    ),
    "perplexity-citations": ("completed", None, [("text", "Paris[1].")]),
    "text-between-calls": (
        *("completed", None),
        [
            ("text", "First. "),
            ("call_a", "weather", PARIS),
            ("text", "Then. "),
            ("call_b", "weather", ROME),
        ],
    ),
    "vllm-error": ("failed", None, [("text", "One")]),
    "vllm-new-id-for-every-fragment": (
        *("completed", None),
        [("chatcmpl-tool-1", "weather", PARIS)],
    ),
    "vllm-reasoning-and-calls": (
        *("completed", None),
        [
            ("reasoning", "Hm."),
            ("text", "Checking."),
            ("chatcmpl-tool-1", "weather", PARIS),
            ("chatcmpl-tool-2", "weather", ROME),
        ],
    ),
    "vllm-usage-in-every-chunk": ("completed", None, [("text", "ab")]),
    "xai-citations": ("completed", None, [("reasoning", "Search."), ("text", "News.")]),
}


def outline(book: Notebook) -> list[tuple[str, ...]]:
    """The items in short."""
    found: list[tuple[str, ...]] = []
    for item in shown(book).get("output", []):
        if item["type"] == "tool_call":
            call = (item["call_id"], item["name"], item["arguments"])
            found.append((*call, item["status"]) if "status" in item else call)
        elif item["type"] == "reasoning":
            found.append(("reasoning", "".join(part["text"] for part in item["summary"])))
        else:
            blocks = item["block_list"] or [{"type": "message"}]
            texts = [block.get("text", block.get("refusal")) for block in blocks]
            kinds = [block["type"] for block in blocks]
            found += [
                (kind, text) if text else (kind,) for kind, text in zip(kinds, texts, strict=True)
            ]
    return found


def test_every_fixture_has_its_meaning_here() -> None:
    assert {path.stem for path in (FIXTURES / API).glob("*.jsonl")} == set(_SHAPES)


@pytest.mark.parametrize("name", _SHAPES)
def test_each_shape_gives_what_was_said(name: str) -> None:
    book, outcome = ingested(OpenAIChat, lines(FIXTURES / API / f"{name}.jsonl"))
    assert (outcome.status, outcome.reason, outline(book)) == _SHAPES[name]
