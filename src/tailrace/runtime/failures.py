"""What clients and the log get of an exception that an agent raised.

Its text may hold a secret: a key in a URL, a customer's data. So clients get a code and an id. The
log has the same id with the types and places of the exception. Its text is logged for level DEBUG.
"""

from __future__ import annotations

import logging
import secrets
import traceback
from collections.abc import Iterator

from tailrace.core.errors import TailraceError
from tailrace.core.items import ErrorInfo

logger = logging.getLogger("tailrace")

_OF_A_GROUP = 10
"""How many exceptions of a group are logged."""


def failure(run_id: str, error: BaseException) -> ErrorInfo:
    """Log what an agent raised; what its clients are shown."""
    ident = f"err_{secrets.token_hex(6)}"
    code = error.code if isinstance(error, TailraceError) else "agent_error"
    logger.error("run %s failed: %s, %s\n%s", run_id, ident, code, "\n".join(_lines(error)))
    logger.debug("run %s failed: %s", run_id, ident, exc_info=error)
    return ErrorInfo(
        code=code, message=f"The agent failed. The server's log says why, under {ident}."
    )


def _lines(error: BaseException) -> Iterator[str]:
    """The types and places of an exception, and of those that led to it, without source lines."""
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
    """The text of an error that our own code raised: it holds no secret (`core.errors`)."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = bool(frames) and str(frames[-1].f_globals.get("__name__")).startswith("tailrace.")
    return f": {error}" if ours and isinstance(error, TailraceError) else ""
