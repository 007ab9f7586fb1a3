"""Chat completions, whole streams: everything arrives exactly once, however a stream is cut."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tailrace.core.run_object import client_view
from tailrace.ingest.base import Notebook
from tailrace.ingest.openai_chat.reader import OpenAIChat
from tests.effort import CUTS, sample
from tests.ingest import chat_oracle
from tests.ingest.streams import (
    FIXTURES,
    as_frames,
    check_cut_everywhere,
    check_readable,
    cut_after_each,
    fed_in_chunks,
    ingested,
    kept_raw,
    lines,
    random_sizes,
    recordings,
    shown,
)

API = "chat-completions"
pytestmark = pytest.mark.long

STREAMS = recordings(API)


def check_against_plain_concatenation(book: Notebook, events: list[str]) -> None:
    whole = shown(book)
    expected, found = chat_oracle.expected_of(events), chat_oracle.made(whole)
    assert found["items"] == expected["items"]
    assert len(found["calls"]) == len(expected["calls"])
    for one, two in zip(found["calls"], expected["calls"], strict=True):
        assert (one["name"], one["arguments"]) == (two["name"], two["arguments"])
        assert two["id"] in (None, one["id"])
    for name in ("images", "logprobs", "audio", "usage"):
        assert found[name] == expected[name], name
    # Each citation once: as it came, and in our words where there is a text.
    assert sorted(map(json.dumps, found["cited"])) == sorted(map(json.dumps, expected["cited"]))
    assert found["shown"] == len(expected["cited"])
    assert sorted(found["notes"]) == sorted(expected["notes"])
    check_sealed(book, expected["sealed"])
    check_usage(whole, expected["usage"])


def check_sealed(book: Notebook, seals: list[str]) -> None:
    """What only the provider can read is kept for the provider alone."""
    kept = json.dumps(shown(book))
    seen = json.dumps(client_view(book.state))
    for seal in seals:
        assert seal in kept
        assert seal not in seen


def check_usage(whole: dict[str, Any], raw: dict[str, Any] | None) -> None:
    usage = whole.get("usage")
    if raw is None:
        assert usage is None
        return
    assert usage is not None
    assert usage["calls"] == 1
    assert usage["output_tokens"] in (
        raw["completion_tokens"],
        raw["total_tokens"] - raw["prompt_tokens"],
    )
    for name, count in chat_oracle.counted(raw).items():
        assert usage.get(name, 0) == count


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_everything_arrives_exactly_once(path: Path) -> None:
    events = lines(path)
    book, outcome = ingested(OpenAIChat, [*events, "[DONE]"])
    assert outcome.status != "cut"
    if path.stem not in chat_oracle.UNRULY:
        check_against_plain_concatenation(book, events)
    again, _ = ingested(OpenAIChat, [*events, "[DONE]"])
    chunks = [raw for _, raw in kept_raw(again)]
    for found in chat_oracle.unknown(events):
        assert chat_oracle.is_kept(chunks, found), found
    check_readable(book)


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_cut_after_any_chunk_it_ends_legally_and_nothing_may_be_called(path: Path) -> None:
    events = lines(path)
    check_cut_everywhere(OpenAIChat, events)
    finished = next(
        (at for at, event in enumerate(events) if _finishes(json.loads(event))), len(events)
    )
    for _, book, outcome in cut_after_each(OpenAIChat, events[:finished]):
        assert outcome.status in ("cut", "failed")
        assert all(call["status"] == "incomplete" for call in calls_of(book))
    edges = {*range(min(finished, 15)), *range(max(0, finished - 15), finished)}
    for count in sample(sorted(edges), CUTS // 2):
        book, _ = ingested(OpenAIChat, events[:count])
        if path.stem not in chat_oracle.UNRULY and "late-name" not in path.stem:
            check_against_plain_concatenation(book, events[:count])
        check_readable(book)


def calls_of(book: Notebook) -> list[dict[str, Any]]:
    return [item for item in shown(book).get("output", []) if item["type"] == "tool_call"]


def _finishes(chunk: dict[str, Any]) -> bool:
    return any(choice.get("finish_reason") for choice in chunk.get("choices") or ())


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
    ends = {*range(0, len(stream), step), *range(max(0, len(stream) - 20), len(stream))}
    for end in sample(sorted(ends), CUTS // 2):
        book, outcome = fed_in_chunks(OpenAIChat, stream[:end], itertools.repeat(65_536))
        assert book.node.ended
        for call in calls_of(book) if outcome.status == "cut" else ():
            assert call["status"] == "incomplete"


# --- the shapes ----------------------------------------------------------------------------------

PARIS, ROME = '{"city":"Paris"}', '{"city":"Rome"}'
_SHAPES: dict[str, tuple[str, str | None, list[tuple[str, ...]]]] = {
    "anthropic-calls-count-from-one": (
        *("completed", None),
        [("text", "Reading."), ("toolu_a", "weather", PARIS)],
    ),
    "arguments-repeated-at-the-end": ("completed", None, [("toolu_1", "weather", PARIS)]),
    "azure-content-filter": ("incomplete", "content_filter", [("text", "Well")]),
    "call-repeated-at-the-end": ("completed", None, [("call_a", "weather", PARIS)]),
    "call-without-a-name": ("incomplete", "truncated_tool_call", [("text", "Hm.")]),
    "copilot-opaque-in-pieces": (
        *("completed", None),
        [("reasoning", "Mulling."), ("call_a", "weather", PARIS)],
    ),
    "copilot-opaque-reasoning": (
        *("completed", None),
        [("reasoning", "Mulling."), ("text", "Fine.")],
    ),
    "dashscope-empty-ids": ("completed", None, [("call_a", "weather", PARIS)]),
    "databricks-reasoning": (
        *("completed", None),
        [("reasoning", "Let me see."), ("text", "Four.")],
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
    "gateway-signs-the-whole-thought": (
        *("completed", None),
        [("reasoning", "So be it."), ("text", "Ok")],
    ),
    "gemini-index-zero-for-all": (
        *("completed", None),
        [("call_a", "weather", PARIS), ("call_b", "weather", ROME), ("call_c", "time", "{}")],
    ),
    "gemini-thought-signature": ("completed", None, [("call_a", "weather", PARIS)]),
    "gemini-thoughts": (
        *("completed", None),
        [
            ("reasoning", "**Plan**\n\nLook it up."),
            ("text", "Sunny <thought>."),
            ("call_a", "weather", PARIS),
        ],
    ),
    "gemini-whole-thought": (
        *("completed", None),
        [("reasoning", "Blue, I think."), ("text", "Blue.")],
    ),
    "groq-compound": ("completed", None, [("reasoning", "Search."), ("text", "Found.")]),
    "groq-error": ("failed", None, [("text", "He")]),
    "late-name-and-id": ("completed", None, [("call_1_3", "weather", PARIS)]),
    "litellm-thinking-blocks": ("completed", None, [("reasoning", "So be it"), ("text", "Ok")]),
    "message-beside-empty-deltas": (
        *("completed", None),
        [("text", "Hello"), ("call_a", "weather", PARIS)],
    ),
    "minimax-error": ("failed", None, []),
    "minimax-message-at-the-end": (
        *("completed", None),
        [("reasoning", "The user."), ("text", "Hi")],
    ),
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
    "mistral-signed-thinking": (
        *("completed", None),
        [("reasoning", "Need it."), ("D681PevKs", "weather", PARIS)],
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
    "openai-audio": ("completed", None, [("text", "Hello")]),
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
    "qwen-omni-audio": ("completed", None, [("text", "Good day.")]),
    "text-under-another-index": ("completed", None, [("text", "Hello")]),
    "tgi-one-call-at-a-time": ("completed", None, [("call_1_3", "weather", PARIS)]),
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
    "vllm-token-ids": ("completed", None, [("text", "ab")]),
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
def test_each_shape_gives_the_whole_answer(name: str) -> None:
    book, outcome = ingested(OpenAIChat, lines(FIXTURES / API / f"{name}.jsonl"))
    assert (outcome.status, outcome.reason, outline(book)) == _SHAPES[name]
