"""Whether the arguments of a tool call are complete, and which value they are.

A call is made from complete arguments only: a partial call whose text happens to parse must not
run. Ingest, wire and history ask here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.core.errors import MalformedJson
from tailrace.core.partial_json import PartialJson

NOT_JSON = object()
"""A default for `decoded` that is not a JSON value."""


def decoded(text: str, default: Any = None) -> Any:
    """The value of a JSON text, or `default` if the text is not JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return default


def is_json(text: str) -> bool:
    """Whether a text is complete JSON."""
    return decoded(text, NOT_JSON) is not NOT_JSON


def same_json(text: str, other: str) -> bool:
    """Whether two texts are the same JSON, white space and order aside."""
    value = decoded(text, NOT_JSON)
    return value is not NOT_JSON and bool(value == decoded(other))


def is_beginning(text: str) -> bool:
    """Whether a text is the beginning of JSON and not all of it: the arguments were cut."""
    if not text or is_json(text):
        return False
    so_far = PartialJson()
    try:
        so_far.feed(text)
    except MalformedJson:
        return False
    return not so_far.complete


def arguments_object(text: str) -> dict[str, Any] | None:
    """The object that complete arguments are, empty for no text; None if they are not an object."""
    value = decoded(text or "{}")
    return value if isinstance(value, dict) else None
