"""A server-sent stream as whole frames, byte for byte, and frames rewritten as little as can be.

`core.sse.Parser` says what a stream means; whoever passes another server's stream on must also
keep what it does not understand: comments, ids, fields of the future, the way lines end.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from tailrace.core import sse

Json = dict[str, Any]

# Two line ends in a row. A CR at the end of what has come may be half of a CRLF, so it waits for
# the next byte: servers that end lines with CR alone are not known, and would lose a frame's time.
_BLANK = re.compile(rb"(?>\r\n|\n|\r(?!\Z)){2}")
_ENDED = re.compile(rb"(?>\r\n|\n|\r){2}\Z")
_BOM = b"\xef\xbb\xbf"


class Piece(NamedTuple):
    """Bytes to pass on; `whole` if they are one frame that may be looked at."""

    raw: bytes
    whole: bool


class Frames:
    """Cuts a stream behind each blank line, however its bytes arrive, in linear time.

    A frame above the limit is handed on in pieces that nobody looks at, so that memory stays
    bounded and the bytes still arrive.
    """

    __slots__ = ("_buffer", "_limit", "_loose")

    def __init__(self, limit: int = sse.MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._loose = False

    def feed(self, chunk: bytes) -> list[Piece]:
        """The frames that this chunk completes, and what is too large to wait for."""
        buffer = self._buffer
        # The last old bytes may be a line end and a CR that waited; nothing before them can count.
        at = max(0, len(buffer) - 3)
        buffer += chunk
        pieces: list[Piece] = []
        start = 0
        while found := _BLANK.search(buffer, at):
            at = found.end()
            whole = not self._loose and at - start <= self._limit
            pieces.append(Piece(bytes(buffer[start:at]), whole))
            self._loose = False
            start = at
        del buffer[:start]
        if len(buffer) > self._limit or (self._loose and len(buffer) > 1):
            pieces.append(Piece(bytes(buffer[:-1]), whole=False))
            del buffer[:-1]
            self._loose = True
        return pieces

    def rest(self) -> Piece:
        """What the stream ended with, behind the last blank line."""
        rest = Piece(bytes(self._buffer), whole=not self._loose)
        self._buffer.clear()
        return rest


def is_ended(raw: bytes) -> bool:
    """Whether a blank line closes these bytes."""
    return _ENDED.search(raw) is not None


def fields(raw: bytes) -> tuple[str | None, str]:
    """The data of a frame, if it has any, and its event name."""
    data: list[bytes] = []
    event = b""
    for line in raw.removeprefix(_BOM).splitlines():
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif name == b"event":
            event = value.removeprefix(b" ")
    if not data:
        return None, ""
    return b"\n".join(data).decode("utf-8", "replace"), event.decode("utf-8", "replace")


def parsed(data: str) -> Json | None:
    """A frame's data as an object, or None: then it is not for us to read."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def rewritten(raw: bytes, value: Json, event: str | None = None) -> bytes:
    """The same frame with other data, and another event name if one is given.

    Its other lines stay: an `id:` that the client reconnects with, a comment.
    """
    lines: list[bytes] = []
    placed = False
    for line in raw.removeprefix(_BOM).splitlines():
        name = line.partition(b":")[0]
        if name == b"data":
            if not placed:
                lines.append(b"data: " + encoded(value))
                placed = True
        elif name == b"event" and event is not None:
            lines.append(b"event: " + event.encode())
        elif line:
            lines.append(line)
    return b"\n".join(lines) + b"\n\n"


def encoded(value: object) -> bytes:
    """Compact JSON on one line; text stays text, but for half of a surrogate pair."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
