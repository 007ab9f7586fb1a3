"""Fields of request bodies: each is of its type, or the caller learns which is not."""

from __future__ import annotations

from typing import Any, TypeVar

from tailrace.core.errors import CallerError
from tailrace.core.ids import check_id
from tailrace.wire import openai_responses

T = TypeVar("T")

Body = dict[str, Any]

_NAMES: dict[type, str] = {bool: "true or false", dict: "an object", str: "a string"}

_METADATA_PAIRS, _METADATA_KEY, _METADATA_VALUE = 16, 64, 512
"""OpenAI's limits on `metadata`."""


def text(body: Body, name: str, advice: str) -> str:
    """A string that must be there."""
    value = body.get(name)
    if not isinstance(value, str):
        raise CallerError(f"`{name}` must be a string: {advice}.", param=name)
    return value


def optional(body: Body, name: str, kind: type[T]) -> T | None:
    """A value of this type, or nothing."""
    value = body.get(name)
    if value is not None and not isinstance(value, kind):
        raise CallerError(f"`{name}` must be {_NAMES[kind]}.", param=name)
    return value


def optional_id(body: Body, name: str) -> str | None:
    """An id that follows the rule for ids, or nothing."""
    value = optional(body, name, str)
    return None if value is None else check_id(value, name)


def response_input(body: Body) -> str | list[Body]:
    """The `input` of a Responses request: a text, or a list of items."""
    value = body.get("input")
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(map(_is_item, value)):
        raise CallerError("`input` must be a string or a list of items.", param="input")
    return value


def response_options(body: Body) -> Body:
    """The options of a Responses request, which every response repeats."""
    kept = openai_responses.echoed(body)
    for name in openai_responses.ECHOED:
        if body.get(name) is not None and name not in kept:
            raise CallerError(f"`{name}` has a value of the wrong type.", param=name)
    return kept


def response_metadata(body: Body) -> dict[str, str] | None:
    """The `metadata` of a Responses request: up to 16 short strings, by name."""
    found = optional(body, "metadata", dict)
    if found is None:
        return None
    fits = len(found) <= _METADATA_PAIRS and all(
        len(name) <= _METADATA_KEY and isinstance(value, str) and len(value) <= _METADATA_VALUE
        for name, value in found.items()
    )
    if not fits:
        raise CallerError(
            f"`metadata` takes {_METADATA_PAIRS} strings of {_METADATA_VALUE} characters, "
            f"with names of {_METADATA_KEY}.",
            param="metadata",
        )
    return found


def chat_messages(body: Body) -> list[Body]:
    """The messages that `useChat` sends."""
    value = body.get("messages")
    if not isinstance(value, list) or not value or not all(map(_is_item, value)):
        raise CallerError("`messages` must be a list of messages.", param="messages")
    return value


def _is_item(value: Any) -> bool:
    """Whether a value has the form of a message or an item: what is inside of it fits too."""
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(name), str | None) for name in ("type", "role"))
        and (isinstance(value.get("content"), str) or _is_parts(value.get("content")))
        and _is_parts(value.get("parts"))
    )


def _is_parts(value: Any) -> bool:
    return value is None or (
        isinstance(value, list) and all(isinstance(part, dict) for part in value)
    )
