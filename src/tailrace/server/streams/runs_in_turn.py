"""Streams of several runs as the answer to one request."""

from __future__ import annotations

from collections import deque
from typing import Any

from tailrace.runtime.followers.fanout import WriteNow
from tailrace.server.streams.run_stream import RunStream
from tailrace.wire.base import Format


class RunsInTurn:
    """The bytes of runs one after another: each begins when the stream before it has ended."""

    __slots__ = ("_left", "wire")

    def __init__(self, *streams: RunStream) -> None:
        self._left = deque(streams)
        self.wire: Format = streams[0].wire

    @property
    def log_extra(self) -> dict[str, Any]:
        """The run of a log line."""
        return self._left[0].log_extra

    async def next(self, write: WriteNow | None = None, /) -> bytes | None:
        """Wait for the next bytes; None after the end of the last stream."""
        piece = await self._left[0].next(write)
        while piece is None and len(self._left) > 1:
            await self._left.popleft().close()
            piece = await self._left[0].next(write)
        return piece

    @property
    def over(self) -> bool:
        """Whether the last bytes were returned."""
        return len(self._left) == 1 and self._left[0].over

    async def close(self) -> None:
        """Stop following."""
        for stream in self._left:
            await stream.close()

    def closing(self, reason: str) -> bytes:
        """The frames that end the stream before the end of a run."""
        return self._left[0].closing(reason)
