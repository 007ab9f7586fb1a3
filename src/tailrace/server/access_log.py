"""The access log: a line for each request, at its end.

It has the path without the query, because a query may hold a ticket; no header and no body. Path
and principal are percent-encoded in the line: a line break or a space in them would forge lines or
fields.
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
        if scope["type"] != "http" or not logger.isEnabledFor(logging.INFO):
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
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app({**scope, PRINCIPAL: sender}, receive, counted)
        finally:
            taken = round(1000 * (time.perf_counter() - began), 1)
            fields: dict[str, Any] = {
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "ms": taken,
                "principal": sender[0] if sender else "",
                "bytes": size,
            }
            safe = (quote(str(field), safe=_SAFE, errors="replace") for field in fields.values())
            line = " ".join(field or "-" for field in safe)
            logger.info("%s", line, extra=about(fields))
