"""Logs an exception of an agent or a tool, and makes the error that clients see.

The exception's text may hold a secret, such as a key in a URL. So clients get a code and an id. The
log has the same id, with the types and places of the exception. Level DEBUG has its text, too.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import traceback
from collections.abc import Iterator
from typing import Any, TypeGuard

from tailrace.core.errors import TailraceError
from tailrace.core.items import ErrorInfo

logger = logging.getLogger("tailrace")

AGENT_FAILED = ErrorInfo(code="agent_error", message="The agent failed.")

_OF_A_GROUP = 10
"""How many exceptions of a group are logged."""


class DebugHint:
    """What a developer does next who needs the text of the exception."""

    flag: str | None = None
    """The flag of the command that has set up the log; None if the application has its own log."""

    @classmethod
    def text(cls) -> str:
        """The end of a log line."""
        if cls.flag is not None:
            return f"{cls.flag} shows the text"
        level = 'logging.getLogger("tailrace").setLevel("DEBUG")'
        # Without a handler, Python prints warnings and errors only.
        if logger.hasHandlers():
            return f"{level} shows the text"
        return f"logging.basicConfig() and {level} show the text"


class ToolError(TailraceError):
    """A tool's failure in words for the model: it reads the message as it is.

    Of any other exception the model reads only the type and an id: its text may hold a secret.
    """

    code = "tool_error"


class ToolTimeout(ToolError):
    """A tool that did not finish within its `timeout`."""

    code = "tool_timeout"


def failure(run: str, error: BaseException, what: str = "agent") -> ErrorInfo:
    """Log an agent's exception; returns the error for clients. `run` describes the run."""
    ident = f"err_{secrets.token_hex(6)}"
    code = error.code if isinstance(error, TailraceError) else "agent_error"
    lines = "\n".join(_lines(error))
    logger.error("%s failed: %s, %s; %s\n%s", run, ident, code, DebugHint.text(), lines)
    logger.debug("%s failed: %s", run, ident, exc_info=error)
    return ErrorInfo(code=code, message=f"The {what} failed. The log says why, under {ident}.")


def tool_failure(run_id: str, tool: str, error: BaseException) -> ErrorInfo:
    """Log a tool's exception; returns the error for the model and the clients.

    A `ToolError`, and an error that our own code raised, has a message for the model. Of any other
    error the model gets the type and the id.
    """
    if isinstance(error, ToolError) or _is_ours(error):
        return ErrorInfo(code=error.code, message=str(error))
    ident = f"err_{secrets.token_hex(6)}"
    lines = "\n".join(_lines(error))
    logger.error("run %s, tool %s failed: %s; %s\n%s", run_id, tool, ident, DebugHint.text(), lines)
    logger.debug("run %s, tool %s failed: %s", run_id, tool, ident, exc_info=error)
    kind = type(error).__name__
    return ErrorInfo(code="tool_error", message=f"The tool {tool} failed: {kind} ({ident}).")


def log_callback_failure(error: BaseException) -> None:
    """Log an exit that a callback of the event loop raised."""
    kind = type(error).__name__
    lines = "\n".join(_lines(error))
    logger.error("a callback raised %s; the process goes on\n%s", kind, lines)
    logger.debug("a callback raised %s", kind, exc_info=error)


def _lines(error: BaseException) -> Iterator[str]:
    """The types and places of an exception and its causes, without source lines."""
    seen: set[int] = set()
    links: list[BaseException | None] = [error]
    while links:
        link = links.pop(0)
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        frames = traceback.extract_tb(link.__traceback__)
        yield f"  {type(link).__module__}.{type(link).__qualname__}{_own_text(link)}"
        for frame in reversed(frames):
            yield f"    {frame.filename}:{frame.lineno} in {frame.name}"
        if isinstance(link, BaseExceptionGroup):
            links += link.exceptions[:_OF_A_GROUP]
        links.append(link.__cause__ or (None if link.__suppress_context__ else link.__context__))


def _own_text(error: BaseException) -> str:
    return f": {error}" if _is_ours(error) else ""


def _is_ours(error: BaseException) -> TypeGuard[TailraceError]:
    """Whether our own code raised this error: then its text holds no secret (`core.errors`)."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = bool(frames) and str(frames[-1].f_globals.get("__name__")).startswith("tailrace.")
    return ours and isinstance(error, TailraceError)


def retrieve_error(done: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a task that was left behind, so that asyncio does not report it."""
    if not done.cancelled():
        done.exception()
