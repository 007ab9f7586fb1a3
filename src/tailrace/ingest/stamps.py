"""What a provider's events say beyond what is read of them is kept, but not with each of them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec

_MOST_PLACES = 64
"""Of how many places (blocks, items) it is remembered what was said last."""


class Stamps:
    """What the events about one place (a block, an item) were stamped with last, by their type.

    Some servers stamp each of a thousand deltas alike. Only the first of these stamps is news, and
    only its hash is remembered.
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, dict[str, int]] = {}

    def is_new(self, kind: str, place: Hashable, said: dict[str, Any]) -> bool:
        """Whether the event of this type before this one was stamped otherwise."""
        mark = hash(msgspec.json.encode(said))
        marks = self._last.get(place)
        if marks is None:
            if len(self._last) == _MOST_PLACES:
                del self._last[next(iter(self._last))]
            marks = self._last[place] = {}
        if marks.get(kind) == mark:
            return False
        marks[kind] = mark
        return True

    def forget(self, place: Hashable) -> None:
        """Another block or item begins at this place, so what it says is news."""
        self._last.pop(place, None)
