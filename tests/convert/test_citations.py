"""Citations that name no place in their text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.convert import Transcoder

URL = "https://weather.example/paris"
PLACE = {"start_index": 0, "end_index": 6}

APIS = ["openai-responses", "openai-chat", "anthropic-messages", "vercel-ui"]
TARGETS = ["task", *APIS, "jsonl", "json"]
"""Those that show citations."""


def responses(annotation: dict[str, Any]) -> list[dict[str, Any]]:
    text = {"type": "output_text", "text": "Sunny.", "annotations": [annotation]}
    where = {"item_id": "m", "output_index": 0, "content_index": 0}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    response = {"id": "r", "object": "response", "model": "gpt", "output": []}
    item = {**message, "content": [text]}
    empty = {**message, "status": "in_progress", "content": []}
    begun = {"type": "output_text", "text": "", "annotations": []}
    added = {"annotation_index": 0, "annotation": annotation}
    return [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": empty},
        {"type": "response.content_part.added", **where, "part": begun},
        {"type": "response.output_text.delta", **where, "delta": "Sunny."},
        {"type": "response.output_text.annotation.added", **where, **added},
        {"type": "response.output_text.done", **where, "text": "Sunny."},
        {"type": "response.content_part.done", **where, "part": text},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {
            "type": "response.completed",
            "response": {**response, "status": "completed", "output": [item]},
        },
    ]


def chat(annotation: dict[str, Any]) -> list[dict[str, Any]]:
    about = {name: value for name, value in annotation.items() if name != "type"}
    entry = {"type": "url_citation", "url_citation": about}
    head = {"id": "c", "object": "chat.completion.chunk", "model": "gpt"}
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"role": "assistant", "content": "Sunny."}, None),
        ({"annotations": [entry]}, None),
        ({}, "stop"),
    ]
    return [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        for delta, reason in deltas
    ]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", ["openai-responses", "openai-chat"])
@pytest.mark.parametrize("missing", [("start_index", "end_index"), ("end_index",)])
def test_a_link_without_a_place_is_shown_over_the_whole_text(
    missing: tuple[str, ...], source: str, target: str
) -> None:
    placed = {"type": "url_citation", "url": URL, "title": "Paris", **PLACE}
    bare = {name: value for name, value in placed.items() if name not in missing}
    make = responses if source == "openai-responses" else chat
    bare_out, placed_out = (
        convert([json.dumps(event) for event in make(annotation)], source, target)
        for annotation in (bare, placed)
    )
    assert URL.encode() in bare_out
    if target == "json":  # one early, the other when the text ends: the same object
        assert bare_out == placed_out


def convert(events: list[str], source: str, target: str) -> bytes:
    transcoder = Transcoder(source, target)
    out = transcoder.feed(b"".join(b"data: %b\n\n" % event.encode() for event in events))
    out += transcoder.end()
    assert transcoder.error is None
    return out
