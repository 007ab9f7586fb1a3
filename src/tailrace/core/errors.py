"""All errors, grouped by whose fault it is.

    TailraceError
    ├── CallerError            the caller's mistake: correct the call
    │   ├── InvalidCursor      not a cursor of this format
    │   │   └── UnknownCursor  a cursor, but not of this stream
    │   ├── InvalidFrame       a field that would forge a server-sent event
    │   ├── InvalidToolOutput  a tool's return value has no place in the protocol
    │   ├── InvalidValue       a value that JSON or another language cannot hold
    │   ├── NotDrained         an agent emits faster than the log writes, and never waits
    │   ├── NotFound           no such run, or another owner's
    │   ├── RunEnded           the run has ended and takes no input
    │   ├── ThreadBusy         another run of the thread has not ended
    │   └── UnknownFormat      no wire format of that name
    ├── StreamError            the bytes from outside are at fault
    │   ├── MalformedEvent     not JSON, or a known event with wrong fields
    │   ├── MalformedJson      a text, such as a call's arguments, that is not JSON
    │   ├── StreamCut          a stream ended too early, or a part of it is missing
    │   ├── StreamTooLarge     larger than an event may be
    │   └── UnsupportedProtocol  a run of a newer version of the protocol
    ├── ProviderError          a model's provider fails or refuses the request
    │   ├── RequestRefused     the request is invalid: correct it, a retry does not help
    │   ├── StateLost          the provider deleted the response that the request continues
    │   ├── KeyRefused         the key is invalid
    │   ├── RateLimited        the account's rate limit is reached
    │   ├── Overloaded         the provider is overloaded
    │   ├── ProviderFailed     an internal error of the provider
    │   ├── ProviderCut        the stream was cut
    │   └── ProviderTimeout    no answer in time
    │       └── ConnectTimeout, FirstEventTimeout, IdleTimeout
    ├── BusUnavailable         the bus refuses the connection, or does not answer
    ├── IllegalEvent           our writer's bug: the event breaks a rule of PROTOCOL.md
    ├── Stopping               this process stops and takes no new runs: try again
    └── StorageError           the store fails; events that clients have seen are stored
        ├── SeqConflict        another writer wrote this part of the log
        └── StorageBusy        the store is busy or away: try again
            └── StorageFull    the disk is full: free some space

    Errors of one part are defined in it: `tailrace.errors` has them all.

A message says what to do next. Clients may see it, so it never holds a secret.
"""

from __future__ import annotations


class TailraceError(Exception):
    """Base of all errors of Tailrace; `code` is stable, for programs."""

    code = "error"


class CallerError(TailraceError):
    """A mistake of the caller; `param` is the wrong field of the request."""

    code = "invalid_request"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        """`message` is for people, `param` for programs."""
        super().__init__(message)
        self.param = param


class InvalidCursor(CallerError):
    """Not a cursor of this format. It is never read as "from the start"."""

    code = "invalid_cursor"


class UnknownCursor(InvalidCursor):
    """A cursor, but not of this stream: of another run or format, or no longer stored."""

    code = "unknown_cursor"


class InvalidFrame(CallerError):
    """A name, id or comment with a line break, which would forge a frame."""

    code = "invalid_frame"


class InvalidToolOutput(CallerError):
    """A tool's return value is not a string, JSON, or the two lists of the protocol."""

    code = "invalid_tool_output"


class InvalidValue(CallerError):
    """A value that JSON, a database or another language cannot hold."""

    code = "invalid_value"


class NotDrained(CallerError):
    """An agent emitted too much without `drain()`; the process would run out of memory."""

    code = "not_drained"


class NotFound(CallerError):
    """It does not exist, or belongs to another owner."""

    code = "not_found"


class RunEnded(CallerError):
    """The run has ended and takes no input."""

    code = "run_ended"


class ThreadBusy(CallerError):
    """Another run of the thread has not ended, and `busy_thread` is `reject`."""

    code = "thread_busy"


class UnknownFormat(CallerError):
    """No wire format of that name."""

    code = "unknown_format"


class StreamError(TailraceError):
    """Invalid bytes from outside."""

    code = "invalid_stream"


class MalformedEvent(StreamError):
    """Bytes that are not JSON, or a known event with wrong fields."""

    code = "malformed_event"


class MalformedJson(StreamError):
    """A text that is not JSON, and cannot become JSON."""

    code = "malformed_json"


class StreamCut(StreamError):
    """A stream that ended too early, or misses a part."""

    code = "stream_cut"


class StreamTooLarge(StreamError):
    """An event larger than the limit."""

    code = "too_large"


class UnsupportedProtocol(StreamError):
    """A run whose `task.created` names a newer version of the protocol."""

    code = "unsupported_protocol"


class ProviderError(TailraceError):
    """A model call that failed at the provider.

    `retry_after` are the seconds to wait that the provider demands.
    """

    code = "provider_error"

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        """`message` is for people, `retry_after` for the retry."""
        super().__init__(message)
        self.retry_after = retry_after


class RequestRefused(ProviderError):
    """The provider refuses the request."""

    code = "request_refused"


class StateLost(ProviderError):
    """The provider deleted a stored response: send the whole conversation again."""

    code = "state_lost"


class KeyRefused(ProviderError):
    """The key is invalid, or lacks a permission."""

    code = "key_refused"


class RateLimited(ProviderError):
    """The account's rate limit is reached."""

    code = "rate_limited"


class Overloaded(ProviderError):
    """The provider is overloaded."""

    code = "overloaded"


class ProviderFailed(ProviderError):
    """An internal error of the provider."""

    code = "provider_failed"


class ProviderCut(ProviderError):
    """No connection, or the connection was lost before the answer was complete."""

    code = "cut"


class ProviderTimeout(ProviderError):
    """The provider did not answer in time."""

    code = "timeout"


class ConnectTimeout(ProviderTimeout):
    """No connection in time."""

    code = "connect_timeout"


class FirstEventTimeout(ProviderTimeout):
    """A connection, but no first event in time."""

    code = "first_event_timeout"


class IdleTimeout(ProviderTimeout):
    """The answer stopped while the connection was open."""

    code = "idle_timeout"


class BusUnavailable(TailraceError):
    """The bus (Redis) refuses the connection, or does not answer."""

    code = "bus_unavailable"


class IllegalEvent(TailraceError):
    """An event that the protocol forbids here; `rule` names the row of PROTOCOL.md, section 3."""

    code = "illegal_event"

    def __init__(self, rule: str, message: str) -> None:
        """The message begins with the rule's name."""
        super().__init__(f"{rule}: {message}")
        self.rule = rule


class Stopping(TailraceError):
    """The process stops and takes no new runs. Try again: another process will answer."""

    code = "stopping"


class StorageError(TailraceError):
    """The store could not read or write."""

    code = "storage"


class StorageBusy(StorageError):
    """The store is busy, away or full, and not damaged. Try again in a moment."""

    code = "storage_busy"


class StorageFull(StorageBusy):
    """The store has no room for a write. Free some space and try again."""

    code = "storage_full"


class SeqConflict(StorageError):
    """The run's log does not end where the writer expects: another writer has the run."""

    code = "seq_conflict"
