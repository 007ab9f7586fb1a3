"""Bytes to the JSON texts in them: server-sent events, JSON lines, or one JSON document."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tailrace.core import sse
from tailrace.core.errors import MalformedEvent, StreamTooLarge

STOP = "[DONE]"
"""How many servers end a stream: no JSON, and nothing follows it."""

# Blank lines, and the mark that some editors put before a text: they tell no framing.
_BLANK = b"\xef\xbb\xbf \t\r\n"


class Piece(NamedTuple):
    """One event as it came: its text, and the id of its frame if it had one."""

    data: str
    id: str = ""


class Pieces:
    """Finds out how a stream is framed, and cuts it.

    The first byte tells: no line of a server-sent event that means anything begins with a brace.
    """

    def __init__(self, *, jsonl: bool = False) -> None:
        self._reader: _Frames | _Lines | None = _Lines() if jsonl else None

    def feed(self, chunk: bytes) -> list[Piece]:
        """The pieces that this chunk completes."""
        if self._reader is None:
            chunk = chunk.lstrip(_BLANK)
            if not chunk:
                return []
            self._reader = _Lines() if chunk[:1] in (b"{", b"[") else _Frames()
        return self._reader.feed(chunk)

    def rest(self) -> list[Piece]:
        """What is left when the stream is over, if it is whole.

        Files lose their last line break easily. Half an event is none: the stream was cut there.
        """
        return self._reader.rest() if self._reader is not None else []


class _Frames:
    """Server-sent events."""

    def __init__(self) -> None:
        self._parser = sse.Parser()

    def feed(self, chunk: bytes) -> list[Piece]:
        return [Piece(event.data, event.id) for event in self._parser.feed(chunk)]

    def rest(self) -> list[Piece]:
        return [piece for piece in self.feed(b"\n\n") if _is_whole(piece.data)]


class _Lines:
    """One JSON a line; or, when the first line is none, one JSON over all lines."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._is_first = True
        self._is_document = False

    def feed(self, chunk: bytes) -> list[Piece]:
        self._rest += chunk
        found: list[Piece] = []
        if not self._is_document and b"\n" in chunk:
            *lines, rest = bytes(self._rest).split(b"\n")
            self._rest = bytearray(rest)
            found = self._pieces(lines)
        if len(self._rest) > sse.MAX_EVENT_BYTES:
            raise StreamTooLarge(
                f"An event of more than {sse.MAX_EVENT_BYTES} bytes; the stream is cut."
            )
        return found

    def _pieces(self, lines: list[bytes]) -> list[Piece]:
        found: list[Piece] = []
        for place, line in enumerate(lines):
            text = line.strip(_BLANK).decode("utf-8", "replace")
            if text and self._is_first:
                self._is_first = False
                if not _is_whole(text):
                    # An answer that did not stream, laid out for people.
                    self._is_document = True
                    self._rest[:0] = b"\n".join(lines[place:]) + b"\n"
                    return found
            if text:
                found.append(Piece(text))
        return found

    def rest(self) -> list[Piece]:
        text = bytes(self._rest).strip(_BLANK).decode("utf-8", "replace")
        if _is_whole(text):
            return [Piece(text)]
        if self._is_document:
            raise MalformedEvent("This is neither JSON lines nor one JSON document.")
        return []


def _is_whole(text: str) -> bool:
    if text == STOP:
        return True
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
