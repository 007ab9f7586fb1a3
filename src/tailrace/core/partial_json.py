"""The value so far of JSON that still streams, such as a tool call's arguments.

    arguments = PartialJson()
    for piece in ('{"city": "Pa', 'ris", "days": 1', '0}'):
        arguments.feed(piece)
        print(arguments.value)
    # {'city': 'Pa'}, then {'city': 'Paris'}, then {'city': 'Paris', 'days': 10}

Each character is read once, for any pieces and any number of looks at the value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NoReturn

from tailrace.core.codec import MAX_DEPTH
from tailrace.core.errors import MalformedJson

_SPACES = re.compile(r"[ \t\n\r]*").match
_PLAIN = re.compile(r'[^"\\\x00-\x1f\ud800-\udfff]*').match
_DIGITS = re.compile(r"[-+.0-9eE]*").match
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?").fullmatch
_HEX = re.compile(r"[0-9a-fA-F]{4}").fullmatch
_ESCAPED = {
    '"': '"',
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_WORDS: dict[str, tuple[str, bool | None]] = {
    "t": ("true", True),
    "f": ("false", False),
    "n": ("null", None),
}


class PartialJson:
    """Parses JSON in pieces, and shows the certain part of its value.

    * An object shows the keys whose value has begun.
    * A string shows the characters so far, without an unfinished escape.
    * A number shows when it has ended, since `1` may become `12`. `true`, `false` and `null` show
      when they are complete.
    * For a duplicate key the last value counts, as in most parsers.

    So the value only grows: lists and strings get longer, objects get keys.

    It is as strict as the protocol: no NaN or infinity, no lone surrogate, at most 100 levels.
    Integers are exact.
    """

    __slots__ = (
        "_digits",
        "_error",
        "_escape",
        "_growing",
        "_high",
        "_key",
        "_pieces",
        "_read",
        "_rest",
        "_root",
        "_stack",
        "_word",
    )

    def __init__(self) -> None:
        self._root: list[Any] = []
        # The open containers. The lowest is a list of our own for the root value.
        self._stack: list[Any] = [self._root]
        self._key = ""
        self._pieces: list[str] = []  # of a string, since the last look at the value
        self._growing = False  # whether they belong to a value, not to a key
        self._digits: list[str] = []
        self._escape = ""  # the hexadecimal digits of an unfinished escape
        self._high = 0  # the first half of a surrogate pair
        self._word: bool | None = None
        self._rest = ""
        self._error = ""
        # A function and not a bound method, which would make a cycle for the collector.
        self._read: Callable[[PartialJson, str, int], int] = PartialJson._before_value

    def feed(self, piece: str) -> None:
        """Parse the next piece. Raises `MalformedJson` at an error, and from then on.

        The value then is the certain part before the error.
        """
        at, end = 0, len(piece)
        while at < end:
            at = self._read(self, piece, at)

    @property
    def value(self) -> Any:
        """The certain part of the value so far, or None.

        It is not a copy: the same objects grow with each piece. Copy the value to keep it. The
        growing string is updated at each look. CPython extends it in place unless the caller still
        holds it.
        """
        if self._growing and self._pieces:
            self._lengthen()
        return self._root[0] if self._root else None

    @property
    def complete(self) -> bool:
        """Whether the value is complete. A bare number is, once white space follows it."""
        return self._read is PartialJson._after_value and len(self._stack) == 1

    # --- parser states: each takes the piece and a position, and returns the next position ------

    def _before_value(self, piece: str, at: int) -> int:
        char = piece[at]
        if char == '"':
            self._put("")
            self._growing = True
            self._read = PartialJson._in_string
        elif char == "{":
            self._open({}, PartialJson._before_first_key)
        elif char == "[":
            self._open([], PartialJson._before_first_value)
        elif char in "-0123456789":
            self._read = PartialJson._in_number
            return at
        elif char in _WORDS:
            self._rest, self._word = _WORDS[char]
            self._read = PartialJson._in_word
            return at
        else:
            return self._space(piece, at, "a value")
        return at + 1

    def _before_first_value(self, piece: str, at: int) -> int:
        if piece[at] == "]":
            return self._close(at)
        return self._before_value(piece, at)

    def _before_first_key(self, piece: str, at: int) -> int:
        if piece[at] == "}":
            return self._close(at)
        return self._before_key(piece, at)

    def _before_key(self, piece: str, at: int) -> int:
        if piece[at] != '"':
            return self._space(piece, at, "a key in quotes")
        self._read = PartialJson._in_string
        return at + 1

    def _before_colon(self, piece: str, at: int) -> int:
        if piece[at] != ":":
            return self._space(piece, at, "a colon")
        self._read = PartialJson._before_value
        return at + 1

    def _after_value(self, piece: str, at: int) -> int:
        char = piece[at]
        is_object = type(self._stack[-1]) is dict
        if len(self._stack) > 1:
            if char == ",":
                self._read = PartialJson._before_key if is_object else PartialJson._before_value
                return at + 1
            if char == ("}" if is_object else "]"):
                return self._close(at)
        return self._space(piece, at, "a comma or the end")

    def _in_string(self, piece: str, at: int) -> int:
        end = _PLAIN(piece, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        if end > at:
            self._pieces.append(piece[at:end])
        if end == len(piece):
            return end
        char = piece[end]
        if char == '"':
            self._end_string()
        elif char == "\\":
            self._read = PartialJson._in_escape
        else:
            self._refuse("a control character or a lone surrogate in a string")
        return end + 1

    def _in_escape(self, piece: str, at: int) -> int:
        char = piece[at]
        if char == "u":
            self._escape = ""
            self._read = PartialJson._in_hex
        elif char in _ESCAPED and not self._high:
            self._pieces.append(_ESCAPED[char])
            self._read = PartialJson._in_string
        else:
            self._refuse(f"{char!r} after a backslash")
        return at + 1

    def _in_hex(self, piece: str, at: int) -> int:
        taken = piece[at : at + 4 - len(self._escape)]
        self._escape += taken
        if len(self._escape) == 4:
            self._end_hex()
        return at + len(taken)

    def _before_low(self, piece: str, at: int) -> int:
        """After the first half of a surrogate pair only the second half may follow."""
        if piece[at] != "\\":
            self._refuse("a lone surrogate")
        self._read = PartialJson._in_escape
        return at + 1

    def _in_number(self, piece: str, at: int) -> int:
        end = _DIGITS(piece, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        self._digits.append(piece[at:end])
        if end < len(piece):
            self._end_number()
        return end

    def _in_word(self, piece: str, at: int) -> int:
        taken = piece[at : at + len(self._rest)]
        if not self._rest.startswith(taken):
            self._refuse(f"{taken!r} in a word other than true, false and null")
        self._rest = self._rest[len(taken) :]
        if not self._rest:
            self._put(self._word)
            self._read = PartialJson._after_value
        return at + len(taken)

    def _broken(self, _piece: str, _at: int) -> int:
        self._refuse(self._error)

    # --- shared by the states ------------------------------------------------------------------

    def _space(self, piece: str, at: int, wanted: str) -> int:
        end = _SPACES(piece, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        if end == at:
            self._refuse(f"{piece[at]!r} where {wanted} belongs")
        return end

    def _put(self, value: Any) -> None:
        holder = self._stack[-1]
        if type(holder) is dict:
            holder[self._key] = value
        else:
            holder.append(value)

    def _open(self, container: Any, read: Callable[[PartialJson, str, int], int]) -> None:
        if len(self._stack) > MAX_DEPTH:
            self._refuse(f"more than {MAX_DEPTH} levels")
        self._put(container)
        self._stack.append(container)
        self._read = read

    def _close(self, at: int) -> int:
        self._stack.pop()
        self._read = PartialJson._after_value
        return at + 1

    def _end_string(self) -> None:
        if self._growing:
            self._lengthen()
            self._growing = False
            self._read = PartialJson._after_value
        else:
            self._key = "".join(self._pieces)
            self._pieces.clear()
            self._read = PartialJson._before_colon

    def _lengthen(self) -> None:
        holder = self._stack[-1]
        place = self._key if type(holder) is dict else -1
        text = holder[place]
        # CPython extends a string in place if only the local variable holds it.
        holder[place] = ""
        text += "".join(self._pieces)
        holder[place] = text
        self._pieces.clear()

    def _end_hex(self) -> None:
        if not _HEX(self._escape):
            self._refuse(f"{self._escape!r} where four hexadecimal digits belong")
        code = int(self._escape, 16)
        is_low = 0xDC00 <= code <= 0xDFFF
        if is_low != bool(self._high):
            self._refuse("a lone surrogate")
        if 0xD800 <= code <= 0xDBFF:
            self._high = code
            self._read = PartialJson._before_low
            return
        if is_low:
            code = 0x10000 + ((self._high - 0xD800) << 10) + (code - 0xDC00)
            self._high = 0
        self._pieces.append(chr(code))
        self._read = PartialJson._in_string

    def _end_number(self) -> None:
        text = "".join(self._digits)
        self._digits.clear()
        found = _NUMBER(text)
        if found is None:
            self._refuse(f"{text[:40]!r} is not a number")
        value: int | float
        try:
            value = float(text) if found[1] or found[2] else int(text)
        except ValueError:  # Python parses at most 4300 digits: more take quadratic time
            self._refuse("an integer of thousands of digits")
        if value in (math.inf, -math.inf):
            self._refuse("a number beyond the range of doubles")
        self._put(value)
        self._read = PartialJson._after_value

    def _refuse(self, why: str) -> NoReturn:
        self._error = why
        self._read = PartialJson._broken
        raise MalformedJson(f"Not JSON: {why}.")
