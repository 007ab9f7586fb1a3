"""Citations that name no place in their text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.convert import Transcoder, target_names

URL = "https://weather.example/paris"
PLACE = {"start_index": 0, "end_index": 6}

TARGETS = [name for name in target_names() if name != "run"]  # which shows no citations


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
    shown = [place for value in values_of(bare_out) for place in places_of(value)]
    if target == "anthropic-messages":  # a citation there is about its whole text block
        assert shown == [(None, None)]
        assert bare_out.count(b'"type":"text"') == 1
    else:
        assert set(shown) == {(0, len("Sunny."))}
    if target == "json":  # one early, the other when the text ends: the same object
        assert bare_out == placed_out


def values_of(stream: bytes) -> list[Any]:
    """The JSON values of a stream, of lines or of one document."""
    if stream.startswith(b"{\n"):
        return [json.loads(stream)]
    lines = (line.removeprefix(b"data: ") for line in stream.splitlines())
    return [json.loads(line) for line in lines if line.startswith(b"{")]


def places_of(value: Any) -> list[tuple[Any, Any]]:
    """The range of each link to `URL`, at any depth."""
    if isinstance(value, list):
        return [place for one in value for place in places_of(one)]
    if not isinstance(value, dict):
        return []
    if value.get("url") == URL and value.get("type") != "source-url" and "sourceType" not in value:
        return [(value.get("start_index"), value.get("end_index"))]
    if "startIndex" in value:
        return [(value["startIndex"], value["endIndex"])]
    return [place for one in value.values() for place in places_of(one)]


def convert(events: list[str], source: str, target: str) -> bytes:
    transcoder = Transcoder(source, target)
    out = transcoder.feed(b"".join(b"data: %b\n\n" % event.encode() for event in events))
    out += transcoder.end()
    assert transcoder.error is None
    return out
