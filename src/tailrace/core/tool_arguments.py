"""Whether the arguments of a tool call are complete, and which value they are.

A call is made from complete arguments only: a partial call whose text happens to parse must not
run. Ingest, wire and history ask here.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tailrace.core.errors import MalformedJson
from tailrace.core.partial_json import PartialJson

NOT_JSON = object()
"""A default for `decoded` that is not a JSON value."""


def decoded(text: str, default: Any = None) -> Any:
    """The value of a JSON text, or `default` if the text is not JSON."""
    try:
        return _decode(text)
    except MalformedJson:
        return default


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise MalformedJson(str(error)) from None


def is_json(text: str) -> bool:
    """Whether a text is complete JSON."""
    return decoded(text, NOT_JSON) is not NOT_JSON


def same_json(text: str, other: str) -> bool:
    """Whether two texts are the same JSON, white space and order aside."""
    value = decoded(text, NOT_JSON)
    return value is not NOT_JSON and bool(value == decoded(other))


def are_same(text: Any, other: Any) -> bool:
    """Whether two texts of arguments say the same, as JSON or as plain text."""
    is_text = isinstance(text, str) and isinstance(other, str)
    return bool(text == other) or (is_text and same_json(text, other))


def is_beginning(text: str) -> bool:
    """Whether a text is the beginning of JSON and not all of it: the arguments were cut."""
    if not text or is_json(text):
        return False
    so_far = ArgumentsSoFar()
    so_far.add(text)
    return so_far.state() == "unfinished"


class ArgumentsSoFar:
    """Arguments that come in pieces, and how far they are."""

    __slots__ = ("_is_broken", "_json", "_parsed", "length", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.length = 0
        self._json = PartialJson()
        self._parsed = 0  # how many of the pieces `_json` has read
        self._is_broken = False

    def add(self, piece: str) -> None:
        """Append a piece that is not empty."""
        self.pieces.append(piece)
        self.length += len(piece)

    @property
    def text(self) -> str:
        """The pieces, joined."""
        return "".join(self.pieces)

    def state(self) -> Literal["empty", "unfinished", "whole", "broken"]:
        """How far the arguments are as JSON. Each character is parsed once."""
        if not self.pieces:
            return "empty"
        rest = "".join(self.pieces[self._parsed :])
        self._parsed = len(self.pieces)
        try:
            self._json.feed(rest)
        except MalformedJson:
            self._is_broken = True
        if self._is_broken:
            return "broken"
        return "whole" if self._json.complete else "unfinished"


def ends_itself(text: str) -> bool:
    """Whether a text is JSON that nothing can follow. A number may go on, an object may not."""
    return isinstance(decoded(text), dict | list | str)


def read_arguments(text: str) -> Any:
    """The value of complete arguments, or raise `MalformedJson`.

    Some models write nothing where there is nothing to write: that is an empty object.
    """
    return _decode(text) if text.strip() else {}


def arguments_value(text: str, default: Any = None) -> Any:
    """The value of complete arguments, or `default` if they are not JSON."""
    try:
        return read_arguments(text)
    except MalformedJson:
        return default
