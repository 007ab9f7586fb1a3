"""Repairs of OpenAI's `response` object and its items.

Clients read reasoning from `summary` (the Vercel AI SDK and pydantic-ai, for example). The raw
`content` stays, because the backend may need it in the next turn.
"""

from __future__ import annotations

from typing import Any

from tailrace.core.values import Json, list_of
from tailrace.repair.frames import encoded

_STATUSES = {
    "response.created": "in_progress",
    "response.queued": "queued",
    "response.in_progress": "in_progress",
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
LIFECYCLE = frozenset(_STATUSES)
"""The events that contain the `response`."""

TERMINAL = frozenset(
    ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
)
"""The events that end a stream."""

_PARTS = {
    "message": (("content", "output_text"),),
    "reasoning": (("content", "reasoning_text"), ("summary", "summary_text")),
}


def summary_text(text: str) -> Json:
    """A part of a summary."""
    return {"type": "summary_text", "text": text}


def texts(item: Json, name: str, type_: str) -> list[str]:
    """The texts of a type in an item's `content` or `summary`."""
    return [
        part["text"]
        for part in listed(item, name)
        if isinstance(part, dict)
        and part.get("type") == type_
        and isinstance(part.get("text"), str)
    ]


def listed(holder: Json, name: str) -> list[Any]:
    """A field that should be a list; empty if it is missing or has another type."""
    return list_of(holder.get(name))


def use_typed_parts(item: Json) -> bool:
    """Replace a plain text by a list of typed parts, and correct parts of type `text`.

    The arguments of a call become text if they are an object.
    """
    changed = False
    if item.get("type") == "function_call" and isinstance(item.get("arguments"), dict):
        item["arguments"] = encoded(item["arguments"]).decode()
        changed = True
    for name, type_ in _PARTS.get(str(item.get("type")), ()):
        before = item.get(name)
        parts = [before] if isinstance(before, str) else before
        if isinstance(parts, list):
            straight = [_typed(part, type_) for part in parts if part != ""]
            if straight != before:
                item[name] = straight
                changed = True
    return changed


def _typed(part: Any, type_: str) -> Any:
    extra: Json = {"annotations": []} if type_ == "output_text" else {}
    if isinstance(part, str):
        return {"type": type_, "text": part, **extra}
    if isinstance(part, dict) and part.get("type") == "text":
        return {**extra, **part, "type": type_}
    return part


def fill_summary(item: Json) -> bool:
    """Copy raw reasoning to the summary, if the item has no summary."""
    if item.get("type") != "reasoning" or texts(item, "summary", "summary_text"):
        return False
    raw = [text for text in texts(item, "content", "reasoning_text") if text]
    if not raw and isinstance(item.get("summary"), list):
        return False
    item["summary"] = [summary_text(text) for text in raw]
    return True


def fill_response(response: Json, kind: str, known: Json) -> bool:
    """Fill in the fields that all clients need; `known` has them from earlier events.

    The id never changes: openai-python refuses a stream whose lifecycle events disagree.
    """
    changed = False
    if response.get("id") != known["id"]:
        response["id"] = known["id"]
        changed = True
    defaults: Json = {
        "object": "response",
        "created_at": known["created_at"],
        "status": _STATUSES[kind],
        "model": known["model"],
        "output": [],
    }
    for name, value in defaults.items():
        if response.get(name) is None:
            response[name] = value
            changed = True
    return changed


def unwrapped(event: Json, kind: str) -> bool:
    """Move a bare response to the field `response` of its lifecycle event.

    agentscope-runtime sends `event: response.failed` with the response as data.
    """
    if isinstance(event.get("response"), dict):
        return False
    inner = {name: value for name, value in event.items() if name not in ("type", "response")}
    number = inner.pop("sequence_number", None)
    event.clear()
    event.update(type=kind, response=inner)
    if number is not None:
        event["sequence_number"] = number
    return True
