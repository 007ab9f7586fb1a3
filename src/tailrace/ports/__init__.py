"""The ports: what the runtime needs from a store, a bus, a model and a wire format.

Adapters keep these promises. The interface of a wire format is in `wire/base.py`.
"""

from __future__ import annotations

from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.log_lines import LogLines
from tailrace.ports.bus import Bus, Mirror, OpenBus, Subscription
from tailrace.ports.model import Model, OutputSchema, Request, ToolSpec, host_of
from tailrace.ports.store import (
    MAX_ATTEMPTS,
    Batch,
    Blobs,
    Claim,
    EventLog,
    Head,
    Inbox,
    InboxLetter,
    NewRun,
    OpenStore,
    Queue,
    RunInfo,
    Snapshot,
    StateSource,
    Store,
    Tokens,
    Trimmed,
    Unread,
)
from tailrace.wire.base import Cursor, Encoder, Format, Frame, whole_number

__all__ = [
    "MAX_ATTEMPTS",
    "Batch",
    "Blobs",
    "Bus",
    "Claim",
    "Cursor",
    "Encoder",
    "EventLog",
    "Format",
    "Frame",
    "Head",
    "Inbox",
    "InboxLetter",
    "LogLines",
    "Mirror",
    "Model",
    "NewRun",
    "OpenBus",
    "OpenStore",
    "OutputSchema",
    "Queue",
    "Recorded",
    "Request",
    "RunInfo",
    "Snapshot",
    "State",
    "StateSource",
    "Store",
    "Subscription",
    "Tokens",
    "ToolSpec",
    "Trimmed",
    "Unread",
    "host_of",
    "whole_number",
]
