"""A large JSON object as an answer, in bounded pieces."""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope, Send

from tailrace.core.json_pieces import cut_pieces
from tailrace.runtime.event_log.offload import SharedBytes
from tailrace.server.transport.asgi import reset
from tailrace.server.transport.connections import WRITE_SECONDS


class LargeJsonResponse:
    """Sends a large JSON object in bounded pieces, as fast as the client reads them."""

    def __init__(self, parts: SharedBytes) -> None:
        self._parts = parts

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer the request; a HEAD request with the headers alone."""
        size = b"%d" % self._parts.size
        headers = [(b"content-type", b"application/json"), (b"content-length", size)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        pieces = cut_pieces(self._parts.parts) if scope["method"] != "HEAD" else ()
        try:
            for piece in pieces:
                async with asyncio.timeout(WRITE_SECONDS):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await asyncio.sleep(0)  # `send` waits only for a client that does not read
        except TimeoutError:
            await reset(send)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})
