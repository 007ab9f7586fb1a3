"""Server-sent events: encode frames that no content can forge, and parse streams cut anywhere.

Rules: WHATWG HTML, section 9.2 "Server-sent events" (9.2.5 the grammar, 9.2.6 the interpretation).
Frames use LF only and end with a blank line, so that parsers which split on `\\n\\n` work too.
"""

from __future__ import annotations

import re

import msgspec

from tailrace.core.errors import InvalidFrame, StreamTooLarge

MAX_PARSED_BYTES = 32 * 1024 * 1024
"""Most bytes of an unfinished event in the parser: twice the limit of our own events."""

DONE = "[DONE]"
"""The data of the last event of OpenAI's streams and of the AI SDK's: not JSON."""

_BOM = b"\xef\xbb\xbf"
# As integers: a search for an integer is four times as fast as a search for bytes of length 1.
_LF, _CR = b"\n\r"
_BREAKS = re.compile("[\r\n\0]")
# Fifteen digits are 30,000 years. Python refuses 4,300 digits.
_RETRY = re.compile(rb"[0-9]{1,15}")


class SseEvent(msgspec.Struct, frozen=True):
    """A parsed event; `id` is the last event id when it was dispatched."""

    data: str
    event: str = "message"
    id: str = ""


def frame(data: bytes, *, event: str | None = None, id: str | None = None) -> bytes:
    """Encode an event. Any data stays one event.

    Data with line breaks becomes several `data:` lines, which a parser joins with LF. A line break
    or NUL in a name or id raises `InvalidFrame`, because the rest would be read as other fields.
    U+2028 and U+0085 are not line breaks here.
    """
    if _LF in data or _CR in data:
        data = _normal(data).replace(b"\n", b"\ndata: ")
    if event is None:
        if id is None:
            return b"data: %b\n\n" % data
        return b"id: %b\ndata: %b\n\n" % (_value(id), data)
    if id is None:
        return b"event: %b\ndata: %b\n\n" % (_value(event), data)
    return b"event: %b\nid: %b\ndata: %b\n\n" % (_value(event), _value(id), data)


def comment(text: str = "") -> bytes:
    """Encode a comment, which keeps a connection alive and which no client shows."""
    return b": " + _normal(_utf8(text)).replace(b"\n", b"\n: ") + b"\n\n"


def retry(milliseconds: int) -> bytes:
    """Encode how long an EventSource waits before it reconnects."""
    if milliseconds < 0:
        raise InvalidFrame(f"retry is {milliseconds} milliseconds. Use 0 or more.")
    return b"retry: %d\n\n" % milliseconds


def _normal(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _value(text: str) -> bytes:
    # Control characters and surrogates are not printable; nearly every field is.
    if text.isprintable():
        return text.encode()
    if _BREAKS.search(text):
        raise InvalidFrame(
            "The name or id of an event has CR, LF or NUL, which would forge a frame. Remove it."
        )
    return _utf8(text)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidFrame(
            "The text has a lone surrogate, which is not Unicode. Replace it."
        ) from error


class SseParser:
    """Parses events from chunks that may be cut anywhere, even inside a character.

    Lines are split as bytes and decoded when complete. No UTF-8 character contains CR or LF, so the
    result is the specification's "decode, then split". Time is linear in the bytes. An incomplete
    event at the end of the stream is discarded, as the specification demands.
    """

    __slots__ = (
        "_after_cr",
        "_data",
        "_event",
        "_first",
        "_held",
        "_id",
        "_limit",
        "_rest",
        "last_event_id",
        "retry",
    )

    def __init__(self, max_event_bytes: int = MAX_PARSED_BYTES) -> None:
        self._limit = max_event_bytes
        self._rest = bytearray()  # an incomplete line; grows in amortised O(1)
        self._after_cr = False
        self._first = True
        self._data: list[bytes] = []
        self._held = 0  # bytes of the lines behind `_data`
        self._event = ""
        self._id = ""
        self.last_event_id = ""
        """The id to reconnect with: the id of the last complete event."""
        self.retry: int | None = None
        """Milliseconds before a reconnect, as the server demanded; None before it did."""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that this chunk completes.

        Raises `StreamTooLarge` if an event exceeds the limit. Close the stream then: other events
        of the chunk are lost.
        """
        if self._after_cr and chunk:
            # The CR ended its line at once, so that no event waits for the next byte. An LF right
            # behind it belongs to the same line break.
            self._after_cr = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if not chunk:
            return []
        lines = chunk.splitlines()  # of bytes: at CR, LF and CRLF, nothing else
        rest = b""
        if chunk.endswith(b"\r"):
            self._after_cr = True
        elif not chunk.endswith(b"\n"):
            rest = lines.pop()
        if lines and self._rest:
            lines[0] = bytes(self._rest + lines[0])
            self._rest.clear()
        events: list[SseEvent] = []
        for line in lines:
            if self._first:
                self._first = False
                line = line.removeprefix(_BOM)
            if line:
                self._field(line)
            else:
                self._dispatch(events)
        self._check(len(self._rest) + len(rest))
        self._rest += rest
        return events

    def _check(self, size: int) -> None:
        if self._held + size > self._limit:
            raise StreamTooLarge(
                f"An event of the stream has more than {self._limit} bytes. Close the stream."
            )

    def _field(self, line: bytes) -> None:
        size = len(line) + 1
        self._check(size)
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            # Count the whole line: a million empty `data` lines take memory too.
            self._held += size
        elif name == b"event":
            self._event = _text(value)
        elif name == b"id":
            if b"\0" not in value:
                self._id = _text(value)
        elif name == b"retry" and _RETRY.fullmatch(value):
            self.retry = int(value)
        # Comments (no name) and unknown fields are ignored.

    def _dispatch(self, events: list[SseEvent]) -> None:
        self.last_event_id = self._id
        if self._data:
            events.append(
                SseEvent(_text(b"\n".join(self._data)), self._event or "message", self._id)
            )
            self._data.clear()
            self._held = 0
        self._event = ""


def _text(raw: bytes) -> str:
    # The specification decodes with replacement: invalid bytes never end a stream.
    return raw.decode("utf-8", "replace")
