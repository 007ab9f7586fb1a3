"""Which run a log line is about, for logs that programs read.

A worker sets it for the tasks of a run, so lines of the agent's own code have it too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

current_fields: ContextVar[Callable[[], dict[str, str]] | None] = ContextVar(
    "current_fields", default=None
)
"""The fields `run`, `agent` and `thread`. Other lines have them as `extra=about(...)`."""


def about(fields: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The `extra` of a log line with these fields, which may be named like those of `LogRecord`."""
    return {"fields": fields}
