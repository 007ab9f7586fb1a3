"""Responses that are read in the background, while a test goes on."""

from __future__ import annotations

import asyncio

import httpx

from tests.server.format_clients import frames_of

SECONDS = 300.0
"""How long a test may take; a busy machine is slow, and slowness is no failure."""


def open_client() -> httpx.AsyncClient:
    """A client for any number of streams at a time."""
    return httpx.AsyncClient(timeout=SECONDS, limits=httpx.Limits(max_connections=None))


class Follower:
    """Reads a stream to its end."""

    def __init__(self, http: httpx.AsyncClient, url: str) -> None:
        self.is_open = False
        self._content = b""
        self._reading = asyncio.ensure_future(self._read(http, url))

    @property
    def frames(self) -> list[bytes]:
        """The whole frames so far."""
        whole, end, _ = self._content.rpartition(b"\n\n")
        return frames_of(whole + end)

    @property
    def has_ended(self) -> bool:
        """Whether the server has closed the response."""
        return self._reading.done()

    def has(self, text: bytes) -> bool:
        """Whether this was received."""
        return text in self._content

    async def end(self) -> list[bytes]:
        """All frames, once the response has ended; half a frame is a failure."""
        await self._reading
        return frames_of(self._content)

    async def _read(self, http: httpx.AsyncClient, url: str) -> None:
        async with http.stream("GET", url) as response:
            # 204: nothing follows the cursor.
            assert response.status_code in (200, 204), (url, response.status_code)
            self.is_open = True
            async for piece in response.aiter_bytes():
                self._content += piece
