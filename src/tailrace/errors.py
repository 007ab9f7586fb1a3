"""Every error that Tailrace raises on purpose in a call of its API.

`TailraceError` is the base of all of them. `CallerError` is the caller's mistake, `StreamError` bad
bytes from outside, `ProviderError` a model provider's fault, `StorageError` the store's. Each has a
stable `code`. The message says what to do next and holds no secret.
"""

from __future__ import annotations

from tailrace.core.errors import (
    BusUnavailable,
    CallerError,
    ConnectTimeout,
    FirstEventTimeout,
    IdleTimeout,
    IllegalEvent,
    InvalidCursor,
    InvalidFrame,
    InvalidToolOutput,
    InvalidValue,
    KeyRefused,
    MalformedEvent,
    MalformedJson,
    NotDrained,
    NotFound,
    Overloaded,
    ProviderCut,
    ProviderError,
    ProviderFailed,
    ProviderTimeout,
    RateLimited,
    RequestRefused,
    RunEnded,
    SeqConflict,
    StateLost,
    Stopping,
    StorageBusy,
    StorageError,
    StorageFull,
    StreamCut,
    StreamError,
    StreamTooLarge,
    TailraceError,
    ThreadBusy,
    UnknownCursor,
    UnknownFormat,
    UnsupportedProtocol,
)
from tailrace.models import InvalidScript, NoRecording, UnknownModel
from tailrace.models.transport import InvalidAddress, InvalidKey, MissingKey, MissingSdk
from tailrace.ports import Trimmed
from tailrace.runtime.diagnostics.failures import ToolError, ToolTimeout
from tailrace.runtime.model_calls.request_check import InvalidRequest, UnknownTool
from tailrace.runtime.runs.quota import LimitReached
from tailrace.runtime.tasks.blobs import OutputTooLarge
from tailrace.runtime.tools.from_mcp import McpUnavailable
from tailrace.runtime.tools.parameters import InvalidArguments, InvalidTool

__all__ = [
    "BusUnavailable",
    "CallerError",
    "ConnectTimeout",
    "FirstEventTimeout",
    "IdleTimeout",
    "IllegalEvent",
    "InvalidAddress",
    "InvalidArguments",
    "InvalidCursor",
    "InvalidFrame",
    "InvalidKey",
    "InvalidRequest",
    "InvalidScript",
    "InvalidTool",
    "InvalidToolOutput",
    "InvalidValue",
    "KeyRefused",
    "LimitReached",
    "MalformedEvent",
    "MalformedJson",
    "McpUnavailable",
    "MissingKey",
    "MissingSdk",
    "NoRecording",
    "NotDrained",
    "NotFound",
    "OutputTooLarge",
    "Overloaded",
    "ProviderCut",
    "ProviderError",
    "ProviderFailed",
    "ProviderTimeout",
    "RateLimited",
    "RequestRefused",
    "RunEnded",
    "SeqConflict",
    "StateLost",
    "Stopping",
    "StorageBusy",
    "StorageError",
    "StorageFull",
    "StreamCut",
    "StreamError",
    "StreamTooLarge",
    "TailraceError",
    "ThreadBusy",
    "ToolError",
    "ToolTimeout",
    "Trimmed",
    "UnknownCursor",
    "UnknownFormat",
    "UnknownModel",
    "UnknownTool",
    "UnsupportedProtocol",
]
