"""What Anthropic's events say beyond what is read of them.

The fields of blocks stand privately in their items, those of messages in `task.usage`. Here is what
stands around these, in events that were understood. A field that is null says nothing.
"""

from __future__ import annotations

from tailrace.ingest.anthropic_values import Json, is_count

_EVENTS = {
    "content_block_delta": ("type", "index", "delta"),
    "content_block_start": ("type", "index", "content_block"),
    "content_block_stop": ("type", "index"),
    "message_start": ("type", "message"),
    "ping": ("type",),
}
"""The fields that are read of each event, but for those that change a message."""

NO_FACTS = ("type", "delta", "usage", "id", "content")
"""Of the events that change a message, the fields that are no facts about it. All others are."""

COMPACTED = ("content", "encrypted_content", "signature", "tool_changes")
"""The fields of a compaction; each delta of one replaces those that it has."""

_DELTAS = {
    "text_delta": ("type", "text"),
    "thinking_delta": ("type", "thinking"),
    "input_json_delta": ("type", "partial_json"),
    "signature_delta": ("type", "signature"),
    "citations_delta": ("type", "citation"),
    "compaction_delta": ("type", *COMPACTED),
}
"""The fields that are read of each delta."""

_PADDING = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
"""Bedrock pads events with the beginning of this in `p`, against those who count bytes."""


def unread(event: Json) -> Json:
    """An event that was understood, without what was taken of it; empty if that was all.

    Its type, its index and its delta's type stay, to say what the rest was about.
    """
    rest = _rest_of(event)
    padding = rest.get("p")
    if isinstance(padding, str) and _PADDING.startswith(padding):
        del rest["p"]
    if not rest:
        return {}
    place = {"index": event["index"]} if "index" in event else {}
    return {"type": event["type"], **place, **rest}


def _rest_of(event: Json) -> Json:
    kind = event["type"]
    if kind == "message":
        return _odd(event, usage=dict, content=list)
    if kind not in _EVENTS:
        return _rest_of_change(event)
    rest = _others(event, _EVENTS[kind])
    if kind == "content_block_delta":
        rest.update(_rest_of_delta(event["delta"]))
    elif kind == "message_start" and (odd := _odd(event["message"], usage=dict, content=list)):
        rest["message"] = odd
    return rest


def _rest_of_delta(delta: Json) -> Json:
    kind = delta["type"]
    rest = _others(delta, _DELTAS[kind])
    if kind == "thinking_delta" and is_count(delta.get("estimated_tokens")):
        del rest["estimated_tokens"]  # its block adds them up
    return {"delta": {"type": kind, **rest}} if rest else {}


def _rest_of_change(event: Json) -> Json:
    """Of an event that changes the message: whatever is no fact, or is said in two ways."""
    rest = _odd(event, usage=dict, delta=dict, id=None, content=None)
    delta = event.get("delta")
    if isinstance(delta, dict):
        for name, one in _others(event, NO_FACTS).items():
            if delta.get(name) not in (None, one):
                rest[name] = one
        of_delta = _odd(delta, **dict.fromkeys(NO_FACTS))
        if of_delta:
            rest["delta"] = of_delta
    return rest


def _others(value: Json, known: tuple[str, ...]) -> Json:
    return {name: one for name, one in value.items() if one is not None and name not in known}


def _odd(value: Json, **wanted: type | None) -> Json:
    """The fields that are of another type than the one that is read; None: that are not read."""
    return {
        name: value[name]
        for name, kind in wanted.items()
        if value.get(name) is not None and (kind is None or not isinstance(value[name], kind))
    }
