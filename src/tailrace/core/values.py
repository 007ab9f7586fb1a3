"""Values of foreign JSON, read with care: any field may hold anything.

Each function returns the value if it has the wanted type, else an empty value or None.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from tailrace.core.codec import MAX_INTEGER

Json: TypeAlias = dict[str, Any]

MOST_TOKENS = 2**48
"""The limit of a count of tokens: sums of such counts are exact."""

_LONGEST_WORD = 1000
_LONGEST_QUOTE = 80
_LONGEST_NUMBER = 10**40


def text_of(value: Any) -> str:
    """The text, or an empty text."""
    return value if isinstance(value, str) else ""


def text_or_none(value: Any) -> str | None:
    """The text, which may be empty, or None."""
    return value if isinstance(value, str) else None


def word_of(value: Any) -> str | None:
    """A name or an id: a text that is not empty and not very long."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_WORD:
        return None
    return value if "\x00" not in value else None


def dict_of(value: Any) -> Json:
    """The object, or an empty object."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """The list, or an empty list."""
    return value if isinstance(value, list) else []


def dicts_of(value: Any) -> list[Json]:
    """The objects of a list."""
    return [member for member in list_of(value) if isinstance(member, dict)]


def index_of(value: Any) -> int | None:
    """A position in a list or text."""
    return value if type(value) is int and 0 <= value < MAX_INTEGER else None


def number_of(value: Any) -> float | None:
    """A number that is not negative and that every reader can hold."""
    return value if type(value) in (int, float) and 0 <= value <= MAX_INTEGER else None


def count_of(value: Any) -> int | None:
    """A count of tokens; some servers send it as 5.0."""
    number = number_of(value)
    return int(number) if number is not None and number < MOST_TOKENS and number % 1 == 0 else None


def json_text(value: Any) -> str:
    """The JSON of a value, as text."""
    return msgspec.json.encode(value).decode()


def quoted(value: Any) -> str:
    """A caller's value for an error message.

    A long text is cut. What a list or an object holds is not shown: it may be long, or a secret.
    """
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, dict):
        return "an object" if value else "an empty object"
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) >= _LONGEST_NUMBER:
        return "a very large number"
    shown = ascii(value[:_LONGEST_QUOTE] if isinstance(value, str) else value)
    return shown if len(shown) <= _LONGEST_QUOTE else f"{shown[:_LONGEST_QUOTE]}…"
