"""Streams of providers, and what the ingest makes of them: see `tests/cases.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace.ingest.anthropic_messages.reader import AnthropicMessages
from tailrace.ingest.base import Notebook, Outcome
from tailrace.ingest.openai_chat.reader import OpenAIChat
from tailrace.ingest.openai_responses.reader import OpenAIResponses
from tailrace.ingest.vercel_ui.reader import VercelUi
from tests.cases import cases, check
from tests.ingest import streams

ROOT = Path(__file__).parent / "cases"
READERS: dict[str, streams.Make] = {
    "anthropic-messages": AnthropicMessages,
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAIResponses,
    "vercel-ui": lambda sink: VercelUi(sink, lambda _name: "client"),
}
each = pytest.mark.parametrize("case", cases(ROOT), ids=lambda path: str(path.relative_to(ROOT)))


def test_every_reader_has_cases() -> None:
    assert {case.parent.name for case in cases(ROOT)} == set(READERS)


@each
def test_a_stream_becomes_the_expected_object(case: Path) -> None:
    make, lines = READERS[case.parent.name], streams.lines(case / "stream.jsonl")
    book, outcome = streams.ingested(make, lines)
    check(case, _result(book, outcome, lines))
    streams.check_readable(streams.ingested(make, lines)[0])


@pytest.mark.long(always=True)
@each
def test_a_stream_that_is_cut_anywhere_ends_legally(case: Path) -> None:
    make, lines = READERS[case.parent.name], streams.lines(case / "stream.jsonl")
    for count in range(len(lines)):
        streams.check_readable(streams.ingested(make, lines[:count])[0])


def _result(book: Notebook, outcome: Outcome, lines: list[str]) -> dict[str, Any]:
    """The outcome, the object with its private parts, and the events that were kept raw."""
    shown, raws = streams.shown(book), streams.kept_raw(book)
    ended = {name: value for name, value in msgspec.to_builtins(outcome).items() if value}
    found = {"outcome": ended, "output": [_bare(item) for item in shown["output"]]}
    found |= {name: value for name, value in shown.items() if name not in _ELSEWHERE}
    private = shown.get("private", {})
    if raws and private.get("raw") == raws[-1][1]:  # the fold keeps the last raw event
        del private["raw"]
    found |= {"private": private} if private else {}
    return found | ({"kept_raw": _by_line(raws, lines)} if raws else {})


_ELSEWHERE = ("task_id", "status", "reason", "error", "output", "private")


def _bare(item: dict[str, Any]) -> dict[str, Any]:
    """An item without what is the same in every case: our id, the role, the text once more."""
    left_out = ("id", "content") if item["type"] == "message" else ("id",)
    return {
        name: value
        for name, value in item.items()
        if name not in left_out and (name, value) != ("role", "assistant")
    }


def _by_line(raws: list[tuple[str, Any]], lines: list[str]) -> list[dict[str, Any]]:
    """The events that were kept raw, each by the number of its line if it is that line."""
    events = [json.loads(line) if line.startswith("{") else line for line in lines]
    return [
        {"type": kind, "line": events.index(raw) + 1}
        if raw in events
        else {"type": kind, "raw": raw}
        for kind, raw in raws
    ]
