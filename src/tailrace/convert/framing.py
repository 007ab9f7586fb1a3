"""Bytes to the JSON texts in them: server-sent events, JSON lines, or a JSON document."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.core import sse
from tailrace.core.errors import MalformedEvent, StreamTooLarge
from tailrace.core.tool_arguments import is_json

# Blank lines and a byte order mark do not show the framing.
_BLANK = b"\xef\xbb\xbf \t\r\n"


class SourceEvent(NamedTuple):
    """An event of a source: its text, and the id of its frame, if any."""

    data: str
    id: str = ""


class SourceFraming:
    """Detects the framing of a stream and splits it into events.

    The first byte decides: no field of a server-sent event begins with a brace.
    """

    def __init__(self, *, jsonl: bool = False) -> None:
        self._reader: _Frames | _Lines | None = _Lines() if jsonl else None

    def feed(self, chunk: bytes) -> list[SourceEvent]:
        """The events that this chunk completes."""
        if self._reader is None:
            chunk = chunk.lstrip(_BLANK)
            if not chunk:
                return []
            self._reader = _Lines() if chunk[:1] in (b"{", b"[") else _Frames()
        return self._reader.feed(chunk)

    def rest(self) -> list[SourceEvent]:
        """The last event at the end of the stream, if it is complete.

        Files often lose their last line break. Half of an event is dropped: the stream was cut.
        """
        return self._reader.rest() if self._reader is not None else []


class _Frames:
    """Server-sent events."""

    def __init__(self) -> None:
        self._parser = sse.SseParser()

    def feed(self, chunk: bytes) -> list[SourceEvent]:
        return [SourceEvent(event.data, event.id) for event in self._parser.feed(chunk)]

    def rest(self) -> list[SourceEvent]:
        return [piece for piece in self.feed(b"\n\n") if _is_whole(piece.data)]


class _Lines:
    """JSON lines; or a JSON document over all lines, if the first line is not JSON."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._is_first = True
        self._is_document = False

    def feed(self, chunk: bytes) -> list[SourceEvent]:
        self._rest += chunk
        found: list[SourceEvent] = []
        if not self._is_document and b"\n" in chunk:
            *lines, rest = bytes(self._rest).split(b"\n")
            self._rest = bytearray(rest)
            found = self._pieces(lines)
        if len(self._rest) > sse.MAX_PARSED_BYTES:
            raise StreamTooLarge(
                f"The source has an event of more than {sse.MAX_PARSED_BYTES} bytes. "
                "Put each event on a line of its own."
            )
        return found

    def _pieces(self, lines: list[bytes]) -> list[SourceEvent]:
        found: list[SourceEvent] = []
        for place, line in enumerate(lines):
            text = line.strip(_BLANK).decode("utf-8", "replace")
            if text and self._is_first:
                self._is_first = False
                if not _is_whole(text):
                    # An answer that did not stream, with line breaks.
                    self._is_document = True
                    self._rest[:0] = b"\n".join(lines[place:]) + b"\n"
                    return found
            if text:
                found.append(SourceEvent(text))
        return found

    def rest(self) -> list[SourceEvent]:
        text = bytes(self._rest).strip(_BLANK).decode("utf-8", "replace")
        if _is_whole(text):
            return [SourceEvent(text)]
        if self._is_document:
            raise MalformedEvent(
                "The source is neither JSON lines nor a JSON document. Check `--from`."
            )
        return []


def _is_whole(text: str) -> bool:
    return text == sse.DONE or is_json(text)
