"""How far a text may grow, so that the event that closes it can repeat it.

`text.done` repeats the whole text with its annotations, `arguments.done` the whole arguments. If
they outgrew one event, nothing could close the item any more, and the run could never end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tailrace.core import codec
from tailrace.core.errors import StreamTooLarge

_WIDEST = 6
"""Bytes that JSON may need for one code point."""


def code_points() -> int:
    """Code points that fit into one event whatever they are."""
    return codec.MAX_OPEN_BYTES // _WIDEST


def json_bytes(value: Any) -> int:
    """What an annotation weighs as an element of a JSON list."""
    return len(msgspec.json.encode(value)) + 1


class Room:
    """Refuses what would make one text too heavy.

    The text is weighed only when it may be too heavy, and then not again before that is possible.
    """

    __slots__ = ("_sure",)

    def __init__(self) -> None:
        self._sure = 0

    def check(self, length: int, beside: int, text: Callable[[], str]) -> None:
        """Raise `StreamTooLarge` unless a text of `length` code points may have annotations of
        `beside` bytes.
        """
        worst = length * _WIDEST + beside
        if worst > codec.MAX_OPEN_BYTES and worst > self._sure:
            room = codec.MAX_OPEN_BYTES - beside - len(msgspec.json.encode(text()))
            if room < 0:
                raise StreamTooLarge(
                    f"A text with its annotations would be more than {codec.MAX_OPEN_BYTES} bytes "
                    "of JSON. Close it and go on in a new part, or store it as a blob and send its "
                    "URL."
                )
            self._sure = worst + room
