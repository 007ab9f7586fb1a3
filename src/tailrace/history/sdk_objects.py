"""Lists for `sanitize` as JSON: of dicts, of objects of an SDK, or a string.

Invalid JSON items are removed later. A value that is not JSON is an error of the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tailrace.core.errors import CallerError


def as_json(items: Any) -> list[Any]:
    """The entries of a list; a string is a message of the user."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    if isinstance(items, Mapping | bytes) or not isinstance(items, Iterable):
        raise CallerError(
            f"Expected a list of items or messages, not {type(items).__name__}. Pass a list."
        )
    return [_entry(index, item) for index, item in enumerate(items)]


def _entry(index: int, item: Any) -> Any:
    item = _dumped(item)
    if isinstance(item, str):
        return {"role": "user", "content": item}
    if isinstance(item, dict):
        changed = {
            name: [_dumped(member) for member in value]
            for name, value in item.items()
            if isinstance(value, list) and any(hasattr(member, "model_dump") for member in value)
        }
        return {**item, **changed} if changed else item
    if item is None or isinstance(item, int | float | list):
        return item
    raise CallerError(
        f"Item {index} is a value of type {type(item).__name__}. "
        "Pass dicts, strings or objects of an SDK."
    )


def _dumped(value: Any) -> Any:
    """An object of OpenAI's or Anthropic's SDK as the SDK sends it."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        return value
    excluded = getattr(value, "__api_exclude__", None)
    return dump(mode="json", by_alias=True, exclude_unset=True, exclude=excluded)
