"""The tree of errors, split by whose fault it is.

    TailraceError
    ├── CallerError            the caller's mistake: mend the call
    │   ├── InvalidCursor      a cursor that is no cursor
    │   ├── InvalidFrame       a field that would forge a server-sent event
    │   ├── InvalidToolOutput  a tool returned something that has no place in the protocol
    │   ├── InvalidValue       a value that JSON, or another language, cannot hold
    │   ├── NotFound           no such run, or not yours
    │   └── UnknownFormat      no wire format of that name
    ├── StreamError            the bytes from outside are at fault
    │   ├── MalformedEvent     not JSON, or a known event with wrong fields
    │   ├── MalformedJson      a text, such as a call's arguments, that can't become JSON any more
    │   ├── StreamCut          it ended too early, or a part of it is missing
    │   └── StreamTooLarge     more than one event may hold
    ├── IllegalEvent           our writer's bug: the event breaks a rule of PROTOCOL.md
    └── StorageError           the log is at fault: nothing was lost that was shown
        ├── SeqConflict        somebody else wrote this place of the log
        └── StorageBusy        too many others, or away for the moment: try again

    Beside it, where they belong to one adapter or port: `tailrace.ports.Trimmed` (retention took
    it) and `tailrace.buses.redis.BusUnavailable` (no Redis when the process starts).

The message says what to do next. It may be shown to a client, so it never holds a secret.
"""

from __future__ import annotations


class TailraceError(Exception):
    """Base of everything that Tailrace raises on purpose; `code` is stable, for programs."""

    code = "error"


class CallerError(TailraceError):
    """The caller can mend it."""

    code = "invalid_request"


class InvalidCursor(CallerError):
    """Not a cursor of this format; never read as "from the start", which replays everything."""

    code = "invalid_cursor"


class InvalidFrame(CallerError):
    """A name, id or comment with a line break in it would forge a frame."""

    code = "invalid_frame"


class InvalidToolOutput(CallerError):
    """A tool's return value that is neither a string, JSON, nor the two lists of the protocol."""

    code = "invalid_tool_output"


class InvalidValue(CallerError):
    """A value that would not survive the way through JSON, a database and another language."""

    code = "invalid_value"


class NotFound(CallerError):
    """No such thing; the same answer as for a thing that belongs to somebody else."""

    code = "not_found"


class UnknownFormat(CallerError):
    """A wire format that is not spoken here."""

    code = "unknown_format"


class StreamError(TailraceError):
    """Bytes from outside that cannot be read."""

    code = "invalid_stream"


class MalformedEvent(StreamError):
    """Bytes that are no JSON, or a known event whose fields are wrong."""

    code = "malformed_event"


class MalformedJson(StreamError):
    """A text that is no JSON, whatever may still follow."""

    code = "malformed_json"


class StreamCut(StreamError):
    """A stream that ended before what it tells did, or that misses a part."""

    code = "stream_cut"


class StreamTooLarge(StreamError):
    """One event larger than the limit: refused before it costs memory."""

    code = "too_large"


class IllegalEvent(TailraceError):
    """An event that the protocol forbids here; `rule` names the row of PROTOCOL.md, section 3."""

    code = "illegal_event"

    def __init__(self, rule: str, message: str) -> None:
        """Keep the rule's name for programs, and say it to people."""
        super().__init__(f"{rule}: {message}")
        self.rule = rule


class StorageError(TailraceError):
    """The log could not be read or written."""

    code = "storage"


class StorageBusy(StorageError):
    """The storage was waited for in vain, but nothing is wrong with it: ask again in a moment."""

    code = "storage_busy"


class SeqConflict(StorageError):
    """The run's log does not end where the writer thinks: it has another writer."""

    code = "seq_conflict"
