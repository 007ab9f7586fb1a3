"""The tree of errors, split by whose fault it is.

    TailraceError
    ├── CallerError            the caller's mistake: mend the call
    │   ├── InvalidCursor      a cursor that is no cursor
    │   ├── InvalidFrame       a field that would forge a server-sent event
    │   ├── InvalidToolOutput  a tool returned something that has no place in the protocol
    │   ├── InvalidValue       a value that JSON, or another language, cannot hold
    │   ├── NotDrained         an agent writes faster than the log, and never waits
    │   ├── NotFound           no such run, or not yours
    │   └── UnknownFormat      no wire format of that name
    ├── StreamError            the bytes from outside are at fault
    │   ├── MalformedEvent     not JSON, or a known event with wrong fields
    │   ├── MalformedJson      a text, such as a call's arguments, that can't become JSON any more
    │   ├── StreamCut          it ended too early, or a part of it is missing
    │   ├── StreamTooLarge     more than one event may hold
    │   └── UnsupportedProtocol  a run in a newer version of the protocol
    ├── ProviderError          a model's provider is at fault, or refuses the request
    │   ├── RequestRefused     it does not take the request: mend it, trying again is no use
    │   ├── StateLost          it forgot the response that the request goes on from
    │   ├── KeyRefused         it does not take the key
    │   ├── RateLimited        too much for now
    │   ├── Overloaded         it has too much to do
    │   ├── ProviderFailed     an error inside of it
    │   ├── ProviderCut        the stream broke off
    │   └── ProviderTimeout    it kept us waiting
    │       ├── ConnectTimeout, FirstEventTimeout, IdleTimeout
    ├── IllegalEvent           our writer's bug: the event breaks a rule of PROTOCOL.md
    ├── Stopping               this process takes no new runs: ask another one, or again soon
    └── StorageError           the log is at fault: nothing was lost that was shown
        ├── SeqConflict        somebody else wrote this place of the log
        └── StorageBusy        busy, away or full for the moment: try again

    Beside it, where they belong to one adapter or port: `tailrace.ports.Trimmed` (retention took
    it) and `tailrace.buses.redis.BusUnavailable` (Redis refuses us, or does not answer).

The message says what to do next. It may be shown to a client, so it never holds a secret.
"""

from __future__ import annotations


class TailraceError(Exception):
    """Base of everything that Tailrace raises on purpose; `code` is stable, for programs."""

    code = "error"


class CallerError(TailraceError):
    """The caller can mend it; `param` is the field of the request that is wrong."""

    code = "invalid_request"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        """Keep the field's name for programs."""
        super().__init__(message)
        self.param = param


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


class NotDrained(CallerError):
    """An agent emitted so much without `drain()` that its process would run out of memory."""

    code = "not_drained"


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


class UnsupportedProtocol(StreamError):
    """A run whose `task.created` names a newer version of the protocol."""

    code = "unsupported_protocol"


class ProviderError(TailraceError):
    """A model call that went wrong outside of us.

    `retry_after` are the seconds that the provider asks us to wait.
    """

    code = "provider_error"

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        """Keep what the provider said about when to come back."""
        super().__init__(message)
        self.retry_after = retry_after


class RequestRefused(ProviderError):
    """The provider does not take the request as it is."""

    code = "request_refused"


class StateLost(ProviderError):
    """The provider does not know (any more) what it was to remember: it has to be told again."""

    code = "state_lost"


class KeyRefused(ProviderError):
    """The provider does not take the key, or the key may not do this."""

    code = "key_refused"


class RateLimited(ProviderError):
    """More than the account may have for now."""

    code = "rate_limited"


class Overloaded(ProviderError):
    """The provider has more to do than it can."""

    code = "overloaded"


class ProviderFailed(ProviderError):
    """An error inside of the provider."""

    code = "provider_failed"


class ProviderCut(ProviderError):
    """The connection could not be made, or broke off before the answer was whole."""

    code = "cut"


class ProviderTimeout(ProviderError):
    """The provider kept us waiting for longer than we do."""

    code = "timeout"


class ConnectTimeout(ProviderTimeout):
    """No connection in time."""

    code = "connect_timeout"


class FirstEventTimeout(ProviderTimeout):
    """A connection, but no first event in time."""

    code = "first_event_timeout"


class IdleTimeout(ProviderTimeout):
    """An answer that stopped coming, with the connection still open."""

    code = "idle_timeout"


class IllegalEvent(TailraceError):
    """An event that the protocol forbids here; `rule` names the row of PROTOCOL.md, section 3."""

    code = "illegal_event"

    def __init__(self, rule: str, message: str) -> None:
        """Keep the rule's name for programs, and say it to people."""
        super().__init__(f"{rule}: {message}")
        self.rule = rule


class Stopping(TailraceError):
    """The process stops and takes no new runs; try again, it or another one will answer."""

    code = "stopping"


class StorageError(TailraceError):
    """The log could not be read or written."""

    code = "storage"


class StorageBusy(StorageError):
    """The storage is busy, away or full, and nothing in it is damaged: ask again in a moment."""

    code = "storage_busy"


class SeqConflict(StorageError):
    """The run's log does not end where the writer thinks: it has another writer."""

    code = "seq_conflict"
