"""What a Responses stream says, read naively: from its items' own last words, or its deltas.

Written without the ingest: no state machine, no correlation but `output_index`. It gives plain
tuples, one list for the stream and one for the object that the ingest made of it.
"""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]
_TEXT_OF_CALL = {
    "function_call": ("function", "arguments"),
    "custom_tool_call": ("custom", "input"),
    "mcp_call": ("mcp", "arguments"),
    "mcp_approval_request": ("mcp_approval_request", "arguments"),
    "code_interpreter_call": ("code_interpreter", "code"),
}
_ASKED = {
    "web_search_call": "web_search",
    "file_search_call": "file_search",
    "image_generation_call": "image_generation",
    "mcp_list_tools": "mcp_list_tools",
}
_OURS = {
    "shell_call": ("shell", "action"),
    "local_shell_call": ("local_shell", "action"),
    "apply_patch_call": ("apply_patch", "operation"),
    "computer_call": ("computer", "action"),
}
"""Calls that are carried out here; those in the provider's container are the provider's."""


def responses(events: list[Json]) -> list[list[Json]]:
    """The stream cut where another response begins."""
    found: list[list[Json]] = [[]]
    for event in events:
        if event.get("type") == "response.created" and found[-1]:
            found.append([])
        found[-1].append(event)
    return found


_SHOWN = tuple(
    f"response.{name}"
    for name in (
        *("created", "queued", "in_progress", "completed", "incomplete", "failed", "output_"),
        *("content_part.", "refusal.", "reasoning_", "function_call_", "custom_tool_call_", "mcp_"),
        *("web_search_call.", "file_search_call.", "code_interpreter_call", "image_generation_"),
    )
)


def unshown(lines: list[str]) -> list[Json]:
    """The events that say something which no item has a place for."""
    events = [json.loads(line) for line in lines]
    return [event for event in events if not event["type"].startswith(_SHOWN)]


def _deltas(events: list[Json], kind: str, place: str) -> dict[tuple[int, int], str]:
    texts: dict[tuple[int, int], str] = {}
    for event in events:
        if event.get("type") == kind:
            key = (event["output_index"], event.get(place, 0))
            texts[key] = texts.get(key, "") + event["delta"]
    return texts


def _likely(events: list[Json]) -> dict[tuple[int, int], list[Any]]:
    """How likely the tokens of each text were, as far as its deltas say so."""
    found: dict[tuple[int, int], list[Any]] = {}
    for event in events:
        if event.get("type") == "response.output_text.delta":
            key = (event["output_index"], event.get("content_index", 0))
            found.setdefault(key, []).extend(event.get("logprobs") or [])
    return found


def _last_word(whole: str, streamed: str) -> str:
    """What was shown cannot be taken back: a whole text counts only if it goes on from there."""
    return whole if whole.startswith(streamed) else streamed


def _annotation(raw: Json, text: str) -> Any:
    kind = raw["type"]
    if kind == "url_citation":
        # A link that names no place is about the whole text.
        start, end = raw.get("start_index"), raw.get("end_index")
        place = (start, end) if start is not None and start < end else (0, len(text))
        return ("url", raw["url"], raw.get("title") or "", *place)
    if kind in ("file_citation", "container_file_citation", "file_path"):
        names = ("file_id", "filename", "container_id", "index", "start_index", "end_index")
        return ("file", *(raw.get(name) for name in names))
    return ("raw", raw)


def expected_of(lines: list[str]) -> list[Any]:
    """The finished items of a stream, in order."""
    found: list[Any] = []
    for events in responses([json.loads(line) for line in lines]):
        items: dict[int, Json] = {}
        for event in events:
            if event.get("type") in ("response.output_item.added", "response.output_item.done"):
                items[event["output_index"]] = event["item"]
            elif event.get("type") == "response.completed" and not items:
                items.update(enumerate(event["response"].get("output") or ()))
        texts = _deltas(events, "response.output_text.delta", "content_index")
        partials: dict[int, int] = {}
        for event in events:
            if event.get("type") == "response.image_generation_call.partial_image":
                place = event["output_index"]
                partials[place] = partials.get(place, 0) + 1
        likely = _likely(events)
        for place, item in items.items():
            found += _item(place, item, texts, partials.get(place, 0))
            if item["type"] == "message":
                parts = [part.get("logprobs") for part in item["content"]]
                streamed = [likely.get((place, at), []) for at in range(len(parts))]
                found.append(("logprobs", [a or b for a, b in zip(parts, streamed, strict=True)]))
        for event in events:
            usage = (event.get("response") or {}).get("usage")
            if usage:
                details = usage.get("output_tokens_details") or {}
                read = usage.get("input_tokens_details") or {}
                counts = (usage["input_tokens"], usage["output_tokens"])
                cached = (read.get("cached_tokens", 0), read.get("cache_write_tokens", 0))
                found.append(("usage", *counts, *cached, details.get("reasoning_tokens", 0)))
    return found


def _item(place: int, item: Json, texts: dict[tuple[int, int], str], partials: int) -> list[Any]:
    kind = item["type"]
    if kind == "message":
        parts: list[Any] = []
        for index, part in enumerate(item["content"]):
            if part["type"] == "refusal":
                parts.append(("refusal", part["refusal"]))
                continue
            text = _last_word(part["text"], texts.get((place, index), ""))
            cited = [_annotation(raw, part["text"]) for raw in part.get("annotations") or ()]
            parts.append(("text", text, cited))
        return [("message", item.get("phase"), parts)]
    if kind == "reasoning":
        summary = [part["text"] for part in item["summary"]]
        content = [part["text"] for part in item.get("content") or ()]
        return [("reasoning", summary, content, item.get("encrypted_content"))]
    if kind in _TEXT_OF_CALL:
        named, field = _TEXT_OF_CALL[kind]
        name = item.get("name", named)
        call = ("call", named, name, item.get("server_label"), item[field])
        return [call, *_result(item, partials)]
    if kind in _ASKED:
        return [("call", _ASKED[kind]), *_result(item, partials)]
    if kind in _OURS and "container" not in str(item.get("environment")):
        named, field = _OURS[kind]
        return [("call", named, item[field]), ("sealed item", item)]
    return [("raw", item)]


def _result(item: Json, partials: int) -> list[Any]:
    kind = item["type"]
    if kind in ("function_call", "custom_tool_call", "mcp_approval_request"):
        return []
    blocks: list[Any] = []
    if kind == "mcp_call" and item.get("output"):
        blocks = [item["output"]]
    elif kind == "mcp_list_tools" and item.get("tools"):
        blocks = [item["tools"]]
    elif kind == "code_interpreter_call":
        blocks = [output.get("logs", output.get("url")) for output in item["outputs"] or ()]
    elif kind == "file_search_call":
        blocks = item["results"] or []
    elif kind == "web_search_call" and item.get("action", {}).get("sources"):
        blocks = [item["action"]["sources"]]
    elif kind == "image_generation_call" and item["result"]:
        blocks = [("image", item["result"])]
    return [("result", blocks, partials), ("sealed item", item)]


# --- the same of the object ----------------------------------------------------------------------


def _shown_annotation(shown: Json) -> Any:
    kind = shown["type"]
    if kind == "url_citation":
        names = ("url", "title", "start_index", "end_index")
        return ("url", *(shown.get(name, "" if name == "title" else None) for name in names))
    if kind == "file_citation":
        places = ("file_id", "filename", "container_id", "index", "start_index", "end_index")
        return ("file", *(shown.get(name) for name in places))
    assert kind == "raw"
    return ("raw", shown["raw"])


def _shown_block(block: Json) -> Any:
    if block["type"] == "image":
        url = block["image_url"]["url"]
        return ("image", url.partition(";base64,")[2]) if ";base64," in url else url
    return block["text"] if block["type"] == "text" else block["data"]


def made(whole: Json, partials: dict[str, int]) -> list[Any]:
    """The object in the same words; `partials`: how many images each result went through."""
    results = {item["call_id"]: item for item in whole["output"] if item["type"] == "tool_result"}
    found: list[Any] = []
    for item in whole["output"]:
        assert "status" not in item, f"{item['id']} did not end well"
        kind, private = item["type"], item.get("private", {})
        if kind == "message":
            parts: list[Any] = []
            for block in item["block_list"]:
                if block["type"] == "refusal":
                    parts.append(("refusal", block["refusal"]))
                else:
                    cited = [_shown_annotation(one) for one in block.get("annotations", ())]
                    parts.append(("text", block["text"], cited))
            found.append(("message", item.get("phase"), parts))
            kept = dict(enumerate((private.get("raw") or {}).get("content", ())))
            likely = [kept.get(at, {}).get("logprobs") or [] for at in range(len(parts))]
            found.append(("logprobs", likely))
        elif kind == "reasoning":
            texts = [[part["text"] for part in item.get(name, ())] for name in _REASONING]
            found.append(("reasoning", *texts, private.get("encrypted_content")))
        elif kind == "tool_call":
            found += _shown_call(item, results.get(item["call_id"]), partials)
        elif kind == "raw":
            found.append(("raw", private["raw"]))
    return found


_REASONING = ("summary", "reasoning_text")


def _shown_call(call: Json, result: Json | None, partials: dict[str, int]) -> list[Any]:
    kind = call.get("kind", "function")
    if kind in _ASKED.values():
        found: list[Any] = [("call", kind)]
        json.loads(call["arguments"])
    elif kind in [named for named, _ in _OURS.values()]:
        assert call.get("executor", "server") == "server"
        return [
            ("call", kind, json.loads(call["arguments"])),
            ("sealed item", call["private"]["raw"]),
        ]
    else:
        arguments = call["arguments"]
        found = [("call", kind, call["name"], call.get("server_label"), arguments)]
    if result is not None:
        blocks = [_shown_block(block) for block in result["block_list"]]
        found.append(("result", blocks, partials.get(result["id"], 0)))
        raw = call.get("private", {}).get("raw") or result.get("private", {}).get("raw")
        found.append(("sealed item", raw))
    return found
