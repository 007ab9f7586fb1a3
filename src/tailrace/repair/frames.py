"""Splits a server-sent stream into frames without loss, and rewrites single frames.

`core.sse.SseParser` drops what it does not need. A proxy keeps everything that it does not
understand: comments, ids, unknown fields, line ends.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from tailrace.core import sse
from tailrace.core.values import Json

# Two line ends in a row. A CR at the end of the buffer may be half of a CRLF, so it waits for the
# next byte. A server that ends lines with CR alone would have each frame delayed; none is known.
_BLANK = re.compile(rb"(?>\r\n|\n|\r(?!\Z)){2}")
_ENDED = re.compile(rb"(?>\r\n|\n|\r){2}\Z")
_BOM = b"\xef\xbb\xbf"


class RawFrame(NamedTuple):
    """Bytes to pass on; `whole` if they are a complete frame that can be parsed."""

    raw: bytes
    whole: bool


class FrameSplitter:
    """Cuts a stream after each blank line, in linear time.

    A frame above the limit is passed on in pieces that are not parsed, so memory stays bounded.
    """

    __slots__ = ("_buffer", "_limit", "_loose")

    def __init__(self, limit: int = sse.MAX_PARSED_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._loose = False

    def feed(self, chunk: bytes) -> list[RawFrame]:
        """The frames that this chunk completes, and pieces of a frame above the limit."""
        buffer = self._buffer
        # The last old bytes may be a line end and a waiting CR; earlier bytes were searched before.
        at = max(0, len(buffer) - 3)
        buffer += chunk
        pieces: list[RawFrame] = []
        start = 0
        while found := _BLANK.search(buffer, at):
            at = found.end()
            whole = not self._loose and at - start <= self._limit
            pieces.append(RawFrame(bytes(buffer[start:at]), whole))
            self._loose = False
            start = at
        del buffer[:start]
        if len(buffer) > self._limit or (self._loose and len(buffer) > 1):
            pieces.append(RawFrame(bytes(buffer[:-1]), whole=False))
            del buffer[:-1]
            self._loose = True
        return pieces

    def rest(self) -> RawFrame:
        """The bytes after the last blank line."""
        rest = RawFrame(bytes(self._buffer), whole=not self._loose)
        self._buffer.clear()
        return rest


def is_ended(raw: bytes) -> bool:
    """Whether these bytes end with a blank line."""
    return _ENDED.search(raw) is not None


def fields(raw: bytes) -> tuple[str | None, str]:
    """The data of a frame, or None, and its event name."""
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
    """The data of a frame as an object, or None if it is not an object."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def rewritten(raw: bytes, value: Json, event: str | None = None) -> bytes:
    """The same frame with other data, and with another event name if `event` is given.

    Its other lines stay, such as comments and the `id:` for a reconnect.
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
    """Compact JSON in a single line; non-ASCII text is escaped only if it has a lone surrogate."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
