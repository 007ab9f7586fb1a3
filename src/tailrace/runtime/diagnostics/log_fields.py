"""Which run a log line is about: the fields `run`, `agent` and `thread` of each line.

A worker sets them for the tasks of a run, so lines of the agent's own code have them too. Other
lines have them as `extra=about_run(...)`. `tailrace.cli.logs` writes them, as text or as JSON.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from tailrace.ports import RunInfo

RUN_FIELDS = ("run", "agent", "thread")

current_fields: ContextVar[Callable[[], dict[str, str]] | None] = ContextVar(
    "current_fields", default=None
)
"""The fields of the run that the current task works on."""


def about(fields: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The `extra` of a log line with these fields, which may be named like those of `LogRecord`."""
    return {"fields": fields}


def about_run(
    run: RunInfo | str = "", agent: str = "", thread: str = ""
) -> dict[str, Mapping[str, Any]]:
    """The `extra` of a log line about a run, as far as the run is known there."""
    values = (run, agent, thread)
    if isinstance(run, RunInfo):
        values = (run.run_id, run.agent, run.thread_id)
    named = zip(RUN_FIELDS, values, strict=True)
    return about({name: value for name, value in named if value})


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of a log line."""
    current = current_fields.get()
    return {**(current() if current is not None else {}), **getattr(record, "fields", {})}
