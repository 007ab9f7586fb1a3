"""The bounds of a text: the event that closes a text must be able to repeat it.

`text.done` repeats the whole text with its annotations, `arguments.done` the whole arguments. If
they were larger than one event, no event could close the item, and the run could never end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tailrace.core import codec
from tailrace.core.errors import StreamTooLarge

WIDEST = 6
"""Most bytes of a code point in JSON."""


def code_points() -> int:
    """Number of code points that always fit into an event."""
    return codec.MAX_OPEN_BYTES // WIDEST


def json_bytes(value: Any) -> int:
    """The size of an annotation as an element of a JSON list."""
    return len(msgspec.json.encode(value)) + 1


class PartBound:
    """Refuses text and annotations that would make a part too large.

    The text is encoded only when it may be too large, and not again until that is possible again.
    """

    __slots__ = ("_sure",)

    def __init__(self) -> None:
        self._sure = 0

    def check(self, length: int, beside: int, text: Callable[[], str]) -> None:
        """Raise `StreamTooLarge` if `length` code points and `beside` bytes of annotations are
        too much for an event.
        """
        worst = length * WIDEST + beside
        if worst > codec.MAX_OPEN_BYTES and worst > self._sure:
            room = codec.MAX_OPEN_BYTES - beside - len(msgspec.json.encode(text()))
            if room < 0:
                raise StreamTooLarge(
                    f"A text with its annotations would be more than {codec.MAX_OPEN_BYTES} bytes "
                    "of JSON. Close it and continue in a new part, or store it as a blob and send "
                    "its URL."
                )
            self._sure = worst + room
