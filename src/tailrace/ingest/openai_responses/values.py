"""Values of OpenAI's events in our types: annotations, images, usage, errors."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.core.data_url import base64_url
from tailrace.core.items import (
    Annotation,
    ErrorInfo,
    FileCitation,
    RawAnnotation,
    Status,
    UrlCitation,
    Usage,
)
from tailrace.core.values import (
    count_of,
    dict_of,
    dicts_of,
    index_of,
    json_text,
    text_or_none,
    word_of,
)
from tailrace.ingest.base import cost_of
from tailrace.ingest.unknown import has_unknown

API = "openai_responses"
"""The name of this API in private parts and raw events."""

_ENDS: dict[Any, Status] = {"completed": "completed", "incomplete": "incomplete"}


def parts_of(value: Any, kind: str) -> list[dict[str, Any]]:
    """The parts of an item; some backends send texts, or a single text."""
    found = value if isinstance(value, list) else [value]
    named = [{"type": kind, "text": part} if isinstance(part, str) else part for part in found]
    return dicts_of(named)


def as_end(value: Any) -> Status | None:
    """A status that ends an item."""
    return _ENDS.get(value) if isinstance(value, str) else None


def as_arguments(value: Any) -> str | None:
    """The text of a call's arguments; some backends send the object itself."""
    return json_text(value) if isinstance(value, dict) else text_or_none(value)


# --- annotations -------------------------------------------------------------------------------

_RANGE = ("start_index", "end_index")
_URL = frozenset(("type", "url", "title", *_RANGE))
_FILE = frozenset(("type", "file_id", "filename", "index", "container_id", *_RANGE))


def annotation_of(raw: dict[str, Any]) -> Annotation:
    """A citation as an annotation; a raw annotation if its type is unknown."""
    kind = raw.get("type")
    start, end = (index_of(raw.get(name)) for name in _RANGE)
    if kind == "url_citation":
        url = text_or_none(raw.get("url"))
        if url is not None:
            title = text_or_none(raw.get("title")) or ""
            if start is None or end is None:
                start = end = 0  # no place: `unplaced` lets it cover the text
            return UrlCitation(url=url, start_index=start, end_index=end, title=title)
    elif kind in ("file_citation", "container_file_citation", "file_path"):
        file_id = text_or_none(raw.get("file_id"))
        if file_id is not None:
            return FileCitation(
                file_id=file_id,
                filename=text_or_none(raw.get("filename")) or "",
                index=index_of(raw.get("index")),
                container_id=text_or_none(raw.get("container_id")),
                start_index=start if end is not None else None,
                end_index=end if start is not None else None,
            )
    return RawAnnotation(raw=raw)


def unplaced(annotation: Annotation, raw: dict[str, Any], length: int) -> Annotation:
    """The annotation of a citation whose range is not in its text of this length.

    A file loses its range. A page with an empty range (xAI sends 0 to 0) covers the whole text, as
    Anthropic's citations do.
    """
    if isinstance(annotation, FileCitation):
        return msgspec.structs.replace(annotation, start_index=None, end_index=None)
    is_page = isinstance(annotation, UrlCitation) and annotation.start_index == annotation.end_index
    if is_page and length:
        return msgspec.structs.replace(annotation, start_index=0, end_index=length)
    return RawAnnotation(raw=raw)


def citation_has_unknown(raw: dict[str, Any], annotation: Annotation) -> bool:
    """Whether the provider's citation has more than our annotation."""
    known = _URL if isinstance(annotation, UrlCitation) else _FILE
    return raw["type"] == "file_path" or has_unknown(raw, known)


# --- images ------------------------------------------------------------------------------------

_SNIFFED = {"iVBOR": "png", "/9j/": "jpeg", "UklGR": "webp", "R0lGOD": "gif", "PHN2Z": "svg+xml"}


def image_url(value: Any, image_format: Any) -> str | None:
    """The URL of an image: providers send base64 or a URL."""
    data = text_or_none(value)
    if not data:
        return None
    if data.startswith(("http://", "https://", "data:")):
        return data
    kind = word_of(image_format)
    if kind is None:
        kind = next((name for start, name in _SNIFFED.items() if data.startswith(start)), "png")
    kind = {"jpg": "jpeg", "svg": "svg+xml"}.get(kind, kind)
    return base64_url(data, f"image/{kind}")


# --- the end of a response ---------------------------------------------------------------------

_USAGE = frozenset(("input_tokens", "output_tokens", "total_tokens"))
_DETAILS = (
    ("input_tokens_details", "cached_tokens"),
    ("input_tokens_details", "cache_write_tokens"),
    ("output_tokens_details", "reasoning_tokens"),
)


def usage_of(usage: dict[str, Any], model: str | None, service_tier: str | None) -> Usage:
    """The usage of a model call."""
    cached, written, thought = (
        count_of(dict_of(usage.get(group)).get(name)) or 0 for group, name in _DETAILS
    )
    return Usage(
        model=model,
        input_tokens=count_of(usage.get("input_tokens")) or 0,
        output_tokens=count_of(usage.get("output_tokens")) or 0,
        cached_input_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=thought,
        cost=cost_of(usage),
        service_tier=service_tier,
    )


def usage_has_unknown(usage: dict[str, Any]) -> bool:
    """Whether the provider's usage has counts that `Usage` lacks."""
    groups = {group for group, _ in _DETAILS}
    return has_unknown(usage, _USAGE | groups) or any(
        has_unknown(dict_of(usage.get(group)), [name for owner, name in _DETAILS if owner == group])
        for group in groups
    )


_REASONS = {"max_tokens": "max_output_tokens"}


def reason_of(response: dict[str, Any]) -> str:
    """The reason of an incomplete response."""
    reason = word_of(dict_of(response.get("incomplete_details")).get("reason"))
    return _REASONS.get(reason, reason) if reason else "unknown"


def error_of(value: Any, default: str = "The provider failed.") -> ErrorInfo:
    """The error, from an object or a bare message."""
    if isinstance(value, str):
        value = {"message": value}
    error = dict_of(value)
    code, kind = word_of(error.get("code")), word_of(error.get("type"))
    if not code or code == "server_error":
        # Servers with more codes than OpenAI put them into `type`.
        code = kind or code or "provider_error"
    return ErrorInfo(
        code=code if code != "error" else "provider_error",
        message=text_or_none(error.get("message")) or default,
        param=text_or_none(error.get("param")),
    )
