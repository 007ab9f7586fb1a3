"""The log of a server or a worker: lines for people, or a line of JSON for each."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from tailrace.cli.output import Lines
from tailrace.runtime.diagnostics.failures import DebugHint
from tailrace.runtime.diagnostics.log_fields import RUN_FIELDS, fields_of
from tailrace.server import access_log
from tailrace.settings import Settings


def set_up(settings: Settings) -> None:
    """Log as the settings say. An application that has set up its own log keeps it.

    A format that is set explicitly replaces the application's.
    """
    Lines.shape = _as_json if settings["log_format"] == "json" else str
    access_log.logger.setLevel(logging.INFO if settings["access_log"] else logging.CRITICAL)
    root = logging.getLogger()
    if root.handlers and settings.origin("log_format") == "default":
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings["log_format"] == "json" else TextLines())
    root.handlers[:] = [handler]
    root.setLevel(settings["log_level"].upper())
    DebugHint.flag = "--log-level debug"


class JsonLines(logging.Formatter):
    """A line of JSON: time, level, logger, message; run, agent and thread; the access fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        # Not all of Unicode can be encoded: half a surrogate pair cannot.
        text = msgspec.json.encode(_encodable(line))
        return text.decode()


class TextLines(logging.Formatter):
    """A line for people, with the run, agent and thread that its message does not name."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the lines of an exception."""
        first, *rest = record.getMessage().split("\n")
        found = fields_of(record)
        named = [f"{name} {found[name]}" for name in RUN_FIELDS if name in found]
        unnamed = ", ".join(name for name in named if name not in first)
        first += f" ({unnamed})" if unnamed else ""
        line = "\n".join((f"{_time(record)} {record.levelname} {first}", *rest))
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _as_json(line: str) -> str:
    """A line for people as a line of the log, because a container has both in one stream."""
    record = logging.LogRecord("tailrace", logging.INFO, "", 0, line, None, None)
    return JsonLines().format(record)


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _encodable(line: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for name, value in line.items()
    }
