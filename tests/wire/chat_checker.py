"""A strict reader of chat completion streams that shares nothing with their writer.

It holds every chunk to OpenAI's published types and to the order that clients rely on. `expected`
says what it must end up with, from a run's public object alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from openai.types.chat import ChatCompletionChunk

from tests.wire.frames import chunks_of

Json = dict[str, Any]

_HEAD = ("id", "object", "created", "model")
_FINISH_REASONS = ("stop", "length", "content_filter", "tool_calls")
_TEXTS = ("content", "refusal", "reasoning_content")


class ChatReader:
    """Takes chunks one by one, and complains about the first chunk that does not fit."""

    def __init__(self) -> None:
        self.texts = dict.fromkeys(_TEXTS, "")
        self.calls: list[Json] = []
        self.annotations: list[Json] = []
        self.images: list[str] = []
        self.finish_reason: str | None = None
        self.native_finish_reason: str | None = None
        self.usage: Json | None = None
        self.error: Json | None = None
        self.is_done = False
        self.head: Json | None = None

    def read(self, frames: Iterable[bytes]) -> ChatReader:
        for chunk in chunks_of(frames):
            self.take(chunk)
        return self

    def take(self, chunk: Any) -> None:
        assert not self.is_done, "something after [DONE]"
        if chunk == "[DONE]":
            assert self.finish_reason or self.error, "[DONE] without an end"
            self.is_done = True
            return
        assert self.error is None, "something after an error"
        if "error" in chunk:
            assert self.finish_reason is None, "an error after the end"
            assert set(chunk) == {"error"}
            assert set(chunk["error"]) == {"message", "type", "param", "code"}
            assert chunk["error"]["message"]
            self.error = chunk["error"]
            return
        assert self.usage is None, "something after the usage"
        head = {name: chunk.pop(name) for name in _HEAD}
        if self.finish_reason is not None:
            assert chunk.pop("choices") == []
            assert set(chunk) == {"usage"}
            _check_types({**head, "choices": [], **chunk})
            self.usage = chunk["usage"]
            return
        [choice] = chunk.pop("choices")
        assert not chunk, f"unknown fields: {chunk}"
        if self.head is None:
            assert choice["delta"] == {"role": "assistant", "content": ""}
            self.head = head
        else:
            assert {**head, "model": ""} == {**self.head, "model": ""}, "another message"
            if head["model"] != self.head["model"]:
                assert choice["delta"] == {}, "a chunk of its own names another agent"
                self.head = head
            self._delta(choice["delta"])
        self._finish(choice)
        _check_types({**head, "choices": [_published(choice)]})

    def _finish(self, choice: Json) -> None:
        assert choice.pop("index") == 0
        reason = choice["finish_reason"]
        native = choice.pop("native_finish_reason", None)
        assert set(choice) == {"delta", "finish_reason"}
        if reason is None:
            assert native is None
            return
        assert choice["delta"] == {}
        assert reason in _FINISH_REASONS
        assert reason != "tool_calls" or self.calls
        self.finish_reason, self.native_finish_reason = reason, native

    def _delta(self, delta: Json) -> None:
        if not delta:
            return
        [(name, value)] = delta.items()
        if name in _TEXTS:
            assert value
            self.texts[name] += value
        elif name == "tool_calls":
            [entry] = value
            self._call(entry)
        elif name == "annotations":
            for entry in value:
                self._annotation(entry)
        else:
            assert name == "images"
            for entry in value:
                assert entry.pop("index") == len(self.images)
                assert set(entry) == {"type", "image_url"}
                assert entry["type"] == "image_url"
                assert entry["image_url"]["url"]
                self.images.append(entry["image_url"]["url"])

    def _call(self, entry: Json) -> None:
        index = entry["index"]
        if index == len(self.calls):
            assert set(entry) == {"index", "id", "type", entry["type"]}
            body = entry[entry["type"]]
            text = body["arguments" if entry["type"] == "function" else "input"]
            assert entry["type"] == "custom" or text, "no arguments are taken for `{}` by some"
            about = {"id": entry["id"], "type": entry["type"], "name": body["name"]}
            self.calls.append({**about, "arguments": text})
            return
        assert index == len(self.calls) - 1, "a call goes on after another began"
        assert set(entry) == {"index", "function"}
        assert set(entry["function"]) == {"arguments"}
        assert entry["function"]["arguments"]
        call = self.calls[index]
        assert call["type"] == "function"
        assert not _parses(call["arguments"]), "a call looked whole before it was"
        call["arguments"] += entry["function"]["arguments"]

    def _annotation(self, entry: Json) -> None:
        assert set(entry) == {"type", "index", "url_citation"}
        assert entry["type"] == "url_citation"
        assert entry["index"] == len(self.annotations)
        cited = entry["url_citation"]
        assert set(cited) == {"url", "title", "start_index", "end_index"}
        assert 0 <= cited["start_index"] < cited["end_index"] <= len(self.texts["content"])
        self.annotations.append(cited)


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _published(choice: Json) -> Json:
    """The choice without what is no part of the published types."""
    delta = {
        name: value
        for name, value in choice["delta"].items()
        if name not in ("reasoning_content", "annotations", "images")
    }
    delta["tool_calls"] = [
        call for call in delta.get("tool_calls", ()) if call.get("type") != "custom"
    ]
    return {"index": 0, **choice, "delta": delta}


def _check_types(chunk: Json) -> None:
    ChatCompletionChunk.model_validate_json(json.dumps(chunk), strict=True)


# --- what a run must become ----------------------------------------------------------------------


def expected(view: Json, events: list[Json]) -> dict[str, str]:
    """The texts of a run, from its public object; `events` only say which thinking came first."""
    by_speaker: dict[str, list[tuple[Any, str]]] = {name: [] for name in _TEXTS}
    for number, item in enumerate(view["output"]):
        if item["type"] == "message":
            for place, block in enumerate(item["block_list"]):
                if block["type"] == "text":
                    by_speaker["content"].append((number, block["text"]))
                elif block["type"] == "refusal":
                    by_speaker["refusal"].append((number, block["refusal"]))
                elif block["type"] == "file":
                    name = block.get("name") or block.get("path") or "file"
                    by_speaker["content"].append(((number, place), f"[{name}]({block['url']})"))
        elif item["type"] == "reasoning":
            shown = _shown_thinking(view, item, events)
            by_speaker["reasoning_content"] += [
                ((number, p), one["text"]) for p, one in enumerate(shown)
            ]
    return {name: _paragraphs(pieces) for name, pieces in by_speaker.items()}


def _shown_thinking(view: Json, item: Json, events: list[Json]) -> list[Json]:
    """The list whose first part arrived first. Usage may name the item, too: it is no part."""
    for event in events:
        if event["task_id"] != view["task_id"] or event.get("item_id") != item["id"]:
            continue
        if event["type"].startswith("task.reasoning_summary"):
            return list(item.get("summary", ()))
        if event["type"].startswith("task.reasoning_text"):
            return list(item.get("reasoning_text", ()))
    return []


def _paragraphs(pieces: list[tuple[Any, str]]) -> str:
    nonempty = [(who, text) for who, text in pieces if text]
    return "\n\n".join(
        "".join(text for _, text in group) for _, group in groupby(nonempty, key=lambda one: one[0])
    )


def waiting_calls(view: Json) -> list[tuple[str, str, str]]:
    """The calls that a completed run leaves to its client: id, name and arguments."""
    answered = {item["call_id"] for item in view["output"] if item["type"] == "tool_result"}
    return [
        (
            item["call_id"],
            item["name"],
            item["arguments"] or ("" if item.get("kind") == "custom" else "{}"),
        )
        for item in view["output"]
        if item["type"] == "tool_call"
        and item.get("executor") == "client"
        and item["call_id"] not in answered
    ]
