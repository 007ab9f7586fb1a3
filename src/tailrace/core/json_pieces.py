"""Encode large JSON in pieces.

A call of the JSON encoder holds the GIL until it returns. Encoding a state of many megabytes at
once would stop every other thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

PIECE_BYTES = 256 * 1024
"""Size of a piece that is read or encoded. A larger event or item is one piece."""

SEND_BYTES = 64 * 1024
"""Size of a piece that is sent: what servers buffer for a client anyway."""

SHARED_BYTES = 4096
"""Equal strings, or equal lists, of this size or more share their bytes."""

_encode = msgspec.json.Encoder().encode


def object_pieces(value: dict[str, Any]) -> Iterator[bytes]:
    """The JSON of an object in pieces; its lists are encoded entry by entry."""
    before = b"{"
    for key, field in value.items():
        name = _encode(key)
        if isinstance(field, list) and field:
            yield b"%b%b:[" % (before, name)
            yield from entry_pieces(field)
            before = b"],"
        else:
            before = b"%b%b:%b," % (before, name, _encode(field))
    yield b"%b}" % before.removesuffix(b",")


def entry_pieces(values: Iterable[Any]) -> Iterator[bytes]:
    """The entries of a list with commas, as many per piece as fit."""
    waiting: list[bytes] = []
    size = 0
    for value in values:
        if size > PIECE_BYTES:
            yield b",".join(waiting) + b","
            waiting, size = [], 0
        waiting.append(_encode(value))
        size += len(waiting[-1])
    yield b",".join(waiting)


def shared(value: Any, known: dict[bytes, bytes]) -> Iterator[bytes]:
    """The JSON of a value in pieces. A long string that is in `known` is that object, not a copy.

    Values that repeat long texts, encoded with the same `known`, take the memory of each text once.
    """
    waiting: list[bytes] = []
    for piece in _tokens(value):
        if len(piece) < SHARED_BYTES:
            waiting.append(piece)
        else:
            yield b"".join(waiting)
            yield known.setdefault(piece, piece)
            waiting = []
    yield b"".join(waiting)


def _tokens(value: Any) -> Iterator[bytes]:
    """The JSON of a value, with each long string apart."""
    if not isinstance(value, dict | list) or _is_plain(value):
        yield _encode(value)
    elif isinstance(value, dict):
        before = b"{"
        for key, field in value.items():
            yield b"%b%b:" % (before, _encode(key))
            yield from _tokens(field)
            before = b","
        yield b"}"
    else:
        before = b"["
        for field in value:
            yield before
            yield from _tokens(field)
            before = b","
        yield b"]"


def _is_plain(value: Any, depth: int = 2) -> bool:
    """Whether a value has no long string and is not deep; a list of citations is plain."""
    if isinstance(value, dict | list):
        fields = value.values() if isinstance(value, dict) else value
        return depth > 0 and all(_is_plain(field, depth - 1) for field in fields)
    return not isinstance(value, str) or len(value) < SHARED_BYTES


def cut_pieces(parts: Iterable[bytes], size: int = SEND_BYTES) -> Iterator[bytes]:
    """The same bytes in pieces of at most `size` bytes."""
    waiting: list[bytes] = []
    held = 0
    for part in parts:
        if held and held + len(part) > size:
            yield b"".join(waiting)
            waiting, held = [], 0
        if len(part) > size:
            whole = memoryview(part)
            for start in range(0, len(part), size):
                yield bytes(whole[start : start + size])
        elif part:
            waiting.append(part)
            held += len(part)
    if held:
        yield b"".join(waiting)
