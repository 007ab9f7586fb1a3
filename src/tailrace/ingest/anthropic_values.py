"""Anthropic's values in the protocol's words: what a result shows, its error, its citations."""

from __future__ import annotations

from typing import Any, TypeGuard

import msgspec

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

Json = dict[str, Any]

MOST_TOKENS = 2**48
"""Counts beyond this are none: so many of those below can be added up and still be exact."""


def visible(value: Any) -> Any:
    """A provider's value without what is sealed in it, which only the provider can read."""
    if isinstance(value, dict):
        return {
            name: visible(one)
            for name, one in value.items()
            if not name.startswith("encrypted_") and name != "signature"
        }
    if isinstance(value, list):
        return [visible(one) for one in value]
    return value


def keepable(value: Any) -> bool:
    """Whether a value may be kept: an item holds it some levels further down than it came."""
    for _ in range(10):
        value = [value]
    try:
        check_value(value)
    except InvalidValue:
        return False
    return True


def more_than(block: Json, *known: str) -> bool:
    """Whether a block has fields beyond these: then only the block itself can be sent back."""
    return not block.keys() <= {"type", *known}


def decoded(text: str) -> Any:
    """The value that a JSON text is, or None."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def citation_of(citation: Any, length: int) -> Annotation:
    """A source on the web as a link over all of the text; a place in a document as it came."""
    if isinstance(citation, dict):
        # A search result of the application's own names its source by any word, often a URL.
        url, title = citation.get("url") or citation.get("source"), citation.get("title")
        if length and isinstance(url, str) and url.startswith(("https://", "http://")):
            return UrlCitation(
                url=url,
                title=title if isinstance(title, str) else "",
                start_index=0,
                end_index=length,
            )
    return RawAnnotation(raw=visible(citation))


def result_error(block: Json) -> ErrorInfo | None:
    """Why Anthropic's tool failed, if it did."""
    content = block.get("content")
    if isinstance(content, dict) and isinstance(content.get("error_code"), str):
        code, said = content["error_code"], content.get("error_message")
        message = said if said and isinstance(said, str) else f"The tool failed: {code}."
        return ErrorInfo(code=code, message=message)
    if block.get("is_error") is True:
        return ErrorInfo(code="tool_error", message="The tool reported an error.")
    return None


def result_blocks(content: Any) -> list[Block]:
    """What clients see of a result: texts and images as such, anything else as data."""
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
        cited = part.get("citations")
        cited = cited if isinstance(cited, list) else []
        return Text(text=text, annotations=[citation_of(one, len(text)) for one in cited])
    if kind == "image" and (url := _image_url(part.get("source"))):
        return Image(image_url=ImageUrl(url=url))
    return Data(data=visible(part), name=kind if isinstance(kind, str) else None)


def _image_url(source: Any) -> str | None:
    if not isinstance(source, dict):
        return None
    url, data, mime = source.get("url"), source.get("data"), source.get("media_type")
    if isinstance(data, str) and isinstance(mime, str):
        return f"data:{mime};base64,{data}"
    return url if isinstance(url, str) else None


def is_count(value: Any) -> TypeGuard[int]:
    """Whether this is a number of tokens that can be added up."""
    return type(value) is int and 0 <= value < MOST_TOKENS


def count_of(counts: Any, name: str) -> int:
    """A count, if it is one."""
    count = counts.get(name) if isinstance(counts, dict) else None
    return count if is_count(count) else 0
