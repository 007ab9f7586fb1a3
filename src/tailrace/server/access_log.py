"""The access log: a line for each request and each WebSocket, at its end.

It has the path without the query, because a query may hold a ticket; no header and no body. Path
and principal are percent-encoded in the line: a line break or a space in them would forge lines or
fields. A WebSocket that was accepted has the status 101.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable
from functools import wraps
from typing import Any
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tailrace.runtime.diagnostics.log_fields import about

PRINCIPAL = "tailrace.principal"
"""The list in the ASGI scope that `Access` puts the sender into. Copies of the scope share it."""

_SAFE = "/:@!$&'()*+,;=~"
"""What a path has unencoded, besides letters and digits (RFC 3986, section 3.3)."""

logger = logging.getLogger("tailrace.access")


class AccessLog:
    """Middleware that logs requests while the logger is enabled; else it costs nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request and log it."""
        # No coroutine of its own: an open stream would keep it, and pass through it at each event.
        if scope["type"] == "lifespan" or not logger.isEnabledFor(logging.INFO):
            return self._app(scope, receive, send)
        return self._logged(scope, receive, send)

    async def _logged(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The status of a request without an answer is 499."""
        began = time.perf_counter()
        status, size = 499, 0
        sender: list[str] = []

        @wraps(send)  # `asgi_transport` looks for the server's own `send`
        async def counted(message: Message) -> None:
            nonlocal status, size
            kind = message["type"]
            if kind.endswith("http.response.start"):
                status = message["status"]
            elif kind == "websocket.accept":
                status = 101
            elif kind == "websocket.close" and status == 499:
                status = 403  # the server's answer to a handshake that is closed
            else:
                size += _size(message)
            await send(message)

        try:
            await self._app({**scope, PRINCIPAL: sender}, receive, counted)
        finally:
            taken = round(1000 * (time.perf_counter() - began), 1)
            fields: dict[str, Any] = {
                "method": scope.get("method", "GET"),  # a WebSocket's handshake is a GET
                "path": scope["path"],
                "status": status,
                "ms": taken,
                "principal": sender[0] if sender else "",
                "bytes": size,
            }
            safe = (quote(str(field), safe=_SAFE, errors="replace") for field in fields.values())
            line = " ".join(field or "-" for field in safe)
            logger.info("%s", line, extra=about(fields))


def _size(message: Message) -> int:
    """The bytes of an answer, or of a message of a WebSocket, which may be a text."""
    text = message.get("text")
    return len(
        message.get("body") or message.get("bytes") or b"" if text is None else text.encode()
    )
