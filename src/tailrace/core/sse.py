"""Server-sent events: bytes out that nobody can forge, bytes in cut anywhere.

Rules: WHATWG HTML, section 9.2 "Server-sent events" (9.2.5 the grammar, 9.2.6 the interpretation).
What goes out also keeps to CLIENTS' common ground: LF only, a blank line after everything, so
that parsers which split on `\\n\\n` work too.
"""

from __future__ import annotations

import re

import msgspec

from tailrace.core.errors import InvalidFrame, StreamTooLarge

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""What a reader holds of one unfinished event: twice what our own events may weigh."""

_BOM = b"\xef\xbb\xbf"
# As integers: looking for one byte is four times as fast as looking for bytes of length one.
_LF, _CR = b"\n\r"
_BREAKS = re.compile("[\r\n\0]")
# Fifteen digits are 30,000 years; more would only cost time to read (and Python refuses 4,300).
_RETRY = re.compile(rb"[0-9]{1,15}")


class SseEvent(msgspec.Struct, frozen=True):
    """One event as its listeners get it: `id` is the last event id when it was dispatched."""

    data: str
    event: str = "message"
    id: str = ""


def frame(data: bytes, *, event: str | None = None, id: str | None = None) -> bytes:
    """One event, ready to send; whatever the data holds, it stays one event.

    Data with line breaks becomes several `data:` lines, which a reader joins with LF again. A line
    break or NUL in a name or id has no such way out and is refused (`InvalidFrame`): cut there, the
    rest would be read as fields of the sender's choosing. U+2028 and U+0085 break no line here.
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
    """What keeps a silent connection alive: no reader shows it. Several lines stay comments."""
    return b": " + _normal(_utf8(text)).replace(b"\n", b"\n: ") + b"\n\n"


def retry(milliseconds: int) -> bytes:
    """How long an EventSource waits before it connects again."""
    if milliseconds < 0:
        raise InvalidFrame(f"retry takes milliseconds from 0 up, not {milliseconds}.")
    return b"retry: %d\n\n" % milliseconds


def _normal(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _value(text: str) -> bytes:
    # No control character and no surrogate is printable: nearly every field passes at one look.
    if text.isprintable():
        return text.encode()
    if _BREAKS.search(text):
        raise InvalidFrame(
            "An event's name and id hold no CR, LF or NUL: they would forge a frame."
        )
    return _utf8(text)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidFrame("A lone surrogate is no Unicode text; replace it.") from error


class Parser:
    """Reads a stream of events from chunks that may be cut anywhere, even inside a character.

    Lines are cut as bytes and decoded when whole: CR and LF occur inside no character of UTF-8, so
    this is the specification's "decode, then split" without a decoder's state. Time is linear in
    the bytes, however they are cut. What is left when the stream ends is an incomplete event and
    is discarded, as the specification wants: there is nothing to call at the end.
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

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._rest = bytearray()  # a line whose end has not come yet; grows in amortised O(1)
        self._after_cr = False
        self._first = True
        self._data: list[bytes] = []
        self._held = 0  # bytes of the lines behind `_data`
        self._event = ""
        self._id = ""
        self.last_event_id = ""
        """The id to reconnect with: that of the last whole event, so that a cut one comes again."""
        self.retry: int | None = None
        """The server's wish for the time before a reconnect, in milliseconds, once it had one."""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that this chunk completes.

        Raises `StreamTooLarge` when one event outgrows the limit. Give the stream up then: what the
        same chunk completed before is gone with it.
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
            raise StreamTooLarge(f"An event of more than {self._limit} bytes; the stream is cut.")

    def _field(self, line: bytes) -> None:
        size = len(line) + 1
        self._check(size)
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            # The whole line counts: a million empty `data` lines take memory as well.
            self._held += size
        elif name == b"event":
            self._event = _text(value)
        elif name == b"id":
            if b"\0" not in value:
                self._id = _text(value)
        elif name == b"retry" and _RETRY.fullmatch(value):
            self.retry = int(value)
        # Anything else is a comment (no name) or a field of the future: ignored.

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
    # The specification decodes with replacement: bad bytes of a provider never end a stream.
    return raw.decode("utf-8", "replace")
