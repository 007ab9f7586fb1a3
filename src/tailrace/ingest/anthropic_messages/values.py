"""Values of Anthropic's events in our types, and which fields are read."""

from __future__ import annotations

from typing import Any

from tailrace.core.codec import check_value
from tailrace.core.errors import InvalidValue
from tailrace.core.items import (
    Annotation,
    Block,
    Data,
    ErrorInfo,
    Image,
    ImageUrl,
    RawAnnotation,
    Text,
    UrlCitation,
)
from tailrace.core.values import Json, count_of, list_of, text_of, text_or_none
from tailrace.history.content import source_url
from tailrace.ingest.unknown import EMPTY, unknown_names


def visible(value: Any) -> Any:
    """A value without its sealed fields, which only the provider can read."""
    if isinstance(value, dict):
        return {
            name: visible(member)
            for name, member in value.items()
            if not name.startswith("encrypted_") and name != "signature"
        }
    if isinstance(value, list):
        return [visible(member) for member in value]
    return value


def keepable(value: Any) -> bool:
    """Whether a value can be kept: in an item it is nested some levels deeper."""
    for _ in range(10):
        value = [value]
    try:
        check_value(value)
    except InvalidValue:
        return False
    return True


def citation_of(citation: Any, length: int) -> Annotation:
    """A web source as a link over the whole text; other citations are kept raw."""
    if isinstance(citation, dict):
        # The source of an application's search result may be any text, often a URL.
        url, title = citation.get("url") or citation.get("source"), citation.get("title")
        if length and isinstance(url, str) and url.startswith(("https://", "http://")):
            return UrlCitation(
                url=url,
                title=text_of(title),
                start_index=0,
                end_index=length,
            )
    return RawAnnotation(raw=visible(citation))


def result_error(block: Json) -> ErrorInfo | None:
    """The error of Anthropic's tool, or None."""
    content = block.get("content")
    if isinstance(content, dict) and isinstance(content.get("error_code"), str):
        code, message = content["error_code"], content.get("error_message")
        return ErrorInfo(code=code, message=text_of(message) or f"The tool failed: {code}.")
    if block.get("is_error") is True:
        return ErrorInfo(code="tool_error", message="The tool reported an error.")
    return None


def result_blocks(content: Any) -> list[Block]:
    """The blocks of a result: texts, images, and data for anything else."""
    if content is None:
        return []
    return [_shown_part(part) for part in (content if isinstance(content, list) else [content])]


def _shown_part(part: Any) -> Block:
    if isinstance(part, str):
        return Text(text=part)
    if not isinstance(part, dict):
        return Data(data=part)
    kind, text = part.get("type"), part.get("text")
    if kind in ("text", "advisor_result") and isinstance(text, str):
        cited = list_of(part.get("citations"))
        return Text(text=text, annotations=[citation_of(citation, len(text)) for citation in cited])
    if kind == "image" and (url := source_url(part.get("source"))):
        return Image(image_url=ImageUrl(url=url))
    return Data(data=visible(part), name=text_or_none(kind))


_EVENTS = {
    "content_block_delta": ("type", "index", "delta"),
    "content_block_start": ("type", "index", "content_block"),
    "content_block_stop": ("type", "index"),
    "message_start": ("type", "message"),
    "ping": ("type",),
}
"""The known fields of each event, except events that change a message."""

NO_FACTS = ("type", "delta", "usage", "id", "content")
"""The fields of a changing event that are not facts about the message. Other fields are."""

COMPACTED = ("content", "encrypted_content", "signature", "tool_changes")
"""The fields of a compaction; each delta replaces those that it has."""

_DELTAS = {
    "text_delta": ("type", "text"),
    "thinking_delta": ("type", "thinking"),
    "input_json_delta": ("type", "partial_json"),
    "signature_delta": ("type", "signature"),
    "citations_delta": ("type", "citation"),
    "compaction_delta": ("type", *COMPACTED),
}
"""The known fields of each delta."""

_PADDING = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
"""Bedrock pads events in `p` with the beginning of this text."""


def unread(event: Json) -> set[str]:
    """The names of the fields of an event, its delta and its message that are not read."""
    kind = event["type"]
    if kind == "message":
        return _wrong_types(event, usage=dict, content=list)
    if kind not in _EVENTS:
        names = _unread_of_change(event)
    else:
        names = set(unknown_names(event, _EVENTS[kind]))
        if kind == "content_block_delta":
            names |= _unread_of_delta(event["delta"])
        elif kind == "message_start":
            names |= _wrong_types(event["message"], "message.", usage=dict, content=list)
    padding = event.get("p")
    if isinstance(padding, str) and _PADDING.startswith(padding):
        names.discard("p")
    return names


def _unread_of_delta(delta: Json) -> set[str]:
    kind = delta["type"]
    names = set(unknown_names(delta, _DELTAS[kind], "delta."))
    if kind == "thinking_delta" and count_of(delta.get("estimated_tokens")) is not None:
        names.discard("delta.estimated_tokens")  # its block adds them up
    return names


def _unread_of_change(event: Json) -> set[str]:
    """Of an event that changes the message: fields that are not facts, or differ in its delta."""
    names = _wrong_types(event, usage=dict, delta=dict, id=None, content=None)
    delta = event.get("delta")
    if isinstance(delta, dict):
        for name in unknown_names(event, NO_FACTS):
            if delta.get(name) not in (None, event[name]):
                names.add(name)
        names |= _wrong_types(delta, "delta.", **dict.fromkeys(NO_FACTS))
    return names


def _wrong_types(value: Json, under: str = "", **wanted: type | None) -> set[str]:
    """The names of fields with an unexpected type. None as the type: any value is unexpected."""
    return {
        under + name
        for name, kind in wanted.items()
        if value.get(name) not in EMPTY and (kind is None or not isinstance(value[name], kind))
    }
