"""The values inside OpenAI's events: read with care, because any field may hold anything.

Each function takes whatever stands there and gives the value that the protocol has for it, or
None.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tailrace.core.errors import MalformedJson
from tailrace.core.items import (
    Annotation,
    ErrorInfo,
    FileCitation,
    RawAnnotation,
    Status,
    UrlCitation,
    Usage,
)
from tailrace.core.partial_json import PartialJson
from tailrace.ingest.base import cost_of

API = "openai_responses"
"""What this API is called in private parts and raw events."""

_LONGEST_WORD = 1000
_ENDS: dict[Any, Status] = {"completed": "completed", "incomplete": "incomplete"}


def as_dict(value: Any) -> dict[str, Any]:
    """An object, or an empty one."""
    return value if isinstance(value, dict) else {}


def dicts(value: Any) -> list[dict[str, Any]]:
    """The objects of a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def parts_of(value: Any, kind: str) -> list[dict[str, Any]]:
    """The parts of an item; some backends have texts in their place, or one text for all."""
    found = value if isinstance(value, list) else [value]
    named = [{"type": kind, "text": one} if isinstance(one, str) else one for one in found]
    return dicts(named)


def as_word(value: Any) -> str | None:
    """A name or an id: neither empty nor as long as a text."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_WORD:
        return None
    return value if "\x00" not in value else None


def as_text(value: Any) -> str | None:
    """A text, maybe empty."""
    return value if isinstance(value, str) else None


def as_index(value: Any) -> int | None:
    """A place in a list."""
    return value if type(value) is int and value >= 0 else None


def as_end(value: Any) -> Status | None:
    """A status that ends an item."""
    return _ENDS.get(value) if isinstance(value, str) else None


def as_arguments(value: Any) -> str | None:
    """The text of a call's arguments; some backends send the object itself."""
    return as_json(value) if isinstance(value, dict) else as_text(value)


def as_json(value: Any) -> str:
    """A value as the text of a call's arguments."""
    return msgspec.json.encode(value).decode()


def same_json(one: str, two: str) -> bool:
    """Whether two texts are the same JSON, spaces and order aside."""
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(two))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def is_json(text: str) -> bool:
    """Whether a text is JSON at all."""
    return same_json(text, text)


def is_beginning(text: str) -> bool:
    """Whether a text is JSON as far as it goes, but not all of it."""
    if not text or is_json(text):
        return False
    so_far = PartialJson()
    try:
        so_far.feed(text)
    except MalformedJson:
        return False
    return not so_far.complete


NOTHING: tuple[Any, ...] = (None, [], {})
"""What a field says nothing with."""


def has_more(value: dict[str, Any], known: Iterable[str]) -> bool:
    """Whether an object says something in fields that we have no place for."""
    return any(value[name] not in NOTHING for name in value.keys() - known)


# --- annotations -------------------------------------------------------------------------------

_RANGE = ("start_index", "end_index")
_URL = frozenset(("type", "url", "title", *_RANGE))
_FILE = frozenset(("type", "file_id", "filename", "index", "container_id", *_RANGE))


def annotation_of(raw: dict[str, Any]) -> Annotation:
    """A citation in the protocol's words; raw if it has none for it."""
    kind = raw.get("type")
    start, end = (as_index(raw.get(name)) for name in _RANGE)
    if kind == "url_citation":
        url = as_text(raw.get("url"))
        if url is not None:
            title = as_text(raw.get("title")) or ""
            if start is None or end is None:
                start = end = 0  # no place: `unplaced` lets it cover the text
            return UrlCitation(url=url, start_index=start, end_index=end, title=title)
    elif kind in ("file_citation", "container_file_citation", "file_path"):
        file_id = as_text(raw.get("file_id"))
        if file_id is not None:
            return FileCitation(
                file_id=file_id,
                filename=as_text(raw.get("filename")) or "",
                index=as_index(raw.get("index")),
                container_id=as_text(raw.get("container_id")),
                start_index=start if end is not None else None,
                end_index=end if start is not None else None,
            )
    return RawAnnotation(raw=raw)


def unplaced(annotation: Annotation, raw: dict[str, Any], length: int) -> Annotation:
    """What becomes of a citation whose range is not in its text, which is so long.

    A file is cited without a range then. Of an empty one nothing is known but that the answer rests
    on that page (xAI says 0 to 0), so it covers the text, as Anthropic's citations do.
    """
    if isinstance(annotation, FileCitation):
        return msgspec.structs.replace(annotation, start_index=None, end_index=None)
    is_page = isinstance(annotation, UrlCitation) and annotation.start_index == annotation.end_index
    if is_page and length:
        return msgspec.structs.replace(annotation, start_index=0, end_index=length)
    return RawAnnotation(raw=raw)


def says_more(raw: dict[str, Any], annotation: Annotation) -> bool:
    """Whether the provider's citation holds more than ours, which is not raw."""
    known = _URL if isinstance(annotation, UrlCitation) else _FILE
    return raw["type"] == "file_path" or has_more(raw, known)


# --- images ------------------------------------------------------------------------------------

_SNIFFED = {"iVBOR": "png", "/9j/": "jpeg", "UklGR": "webp", "R0lGOD": "gif", "PHN2Z": "svg+xml"}


def image_url(value: Any, image_format: Any) -> str | None:
    """Where an image is: providers send base64, or a URL."""
    data = as_text(value)
    if not data:
        return None
    if data.startswith(("http://", "https://", "data:")):
        return data
    kind = as_word(image_format)
    if kind is None:
        kind = next((name for start, name in _SNIFFED.items() if data.startswith(start)), "png")
    return f"data:image/{ {'jpg': 'jpeg', 'svg': 'svg+xml'}.get(kind, kind) };base64,{data}"


# --- the end of a response ---------------------------------------------------------------------

_USAGE = frozenset(("input_tokens", "output_tokens", "total_tokens"))
_DETAILS = (
    ("input_tokens_details", "cached_tokens"),
    ("input_tokens_details", "cache_write_tokens"),
    ("output_tokens_details", "reasoning_tokens"),
)


def _count(value: Any) -> int:
    if isinstance(value, float) and value.is_integer() and value < 2**53:
        value = int(value)
    return as_index(value) or 0


def usage_of(usage: dict[str, Any], model: str | None, service_tier: str | None) -> Usage:
    """What the model call used."""
    cached, written, thought = (
        _count(as_dict(usage.get(group)).get(name)) for group, name in _DETAILS
    )
    return Usage(
        model=model,
        input_tokens=_count(usage.get("input_tokens")),
        output_tokens=_count(usage.get("output_tokens")),
        cached_input_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=thought,
        cost=cost_of(usage),
        service_tier=service_tier,
    )


def usage_says_more(usage: dict[str, Any]) -> bool:
    """Whether the provider counts something that `Usage` does not."""
    groups = {group for group, _ in _DETAILS}
    return has_more(usage, _USAGE | groups) or any(
        has_more(as_dict(usage.get(group)), [name for owner, name in _DETAILS if owner == group])
        for group in groups
    )


_REASONS = {"max_tokens": "max_output_tokens"}


def reason_of(response: dict[str, Any]) -> str:
    """Why a response is incomplete, in OpenAI's own words."""
    reason = as_word(as_dict(response.get("incomplete_details")).get("reason"))
    return _REASONS.get(reason, reason) if reason else "unknown"


def error_of(value: Any, default: str = "The provider failed.") -> ErrorInfo:
    """What went wrong, from an error's object or its bare message."""
    if isinstance(value, str):
        value = {"message": value}
    error = as_dict(value)
    code, kind = as_word(error.get("code")), as_word(error.get("type"))
    if not code or code == "server_error":
        # The list of codes is short; servers that have more words put them into `type`.
        code = kind or code or "provider_error"
    return ErrorInfo(
        code=code if code != "error" else "provider_error",
        message=as_text(error.get("message")) or default,
        param=as_text(error.get("param")),
    )
