"""The open connections of a server: how many a sender has, and which are cut.

A server may have tens of thousands of open streams without traffic. So one
check for all streams finds clients that do not read, or whose key was revoked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Literal

from tailrace.core.errors import Stopping, TailraceError
from tailrace.server.access.admission import AdmittedRequest, admitted
from tailrace.server.access.auth import Unauthorized

WRITE_SECONDS = 30.0
"""How long a client may refuse to read before its stream is cut; its cursor stays valid."""

RECHECK_SECONDS = 30.0
"""How often the keys of open streams are checked again."""

SETTLE_SECONDS = 0.5
"""How long a server that stops waits for streams that are about to end."""

CLOSING_REASONS = {
    "stopping": "The server is stopping; connect again.",
    "refused": "The API key is no longer valid.",
}
"""The reason that a client gets when the server closes its stream."""


class Connections:
    """The streams that a server has open."""

    def __init__(self) -> None:
        self._open: set[Connection] = set()
        self._stopping = False
        self.sent_bytes = 0
        self._none_open = asyncio.Event()
        self._none_open.set()
        self._check: asyncio.TimerHandle | None = None
        self._rechecked = time.monotonic()
        self._recheck: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        """The number of open streams."""
        return len(self._open)

    def sender(self) -> AdmittedRequest | None:
        """The sender of the current request; `LimitReached` if it has too many streams open."""
        found = admitted.get(None)
        if found is not None and found.allowance is not None and not found.runs.started:
            found.allowance.check_stream()
        return found

    def stop(self) -> None:
        """End all streams, and each later stream as soon as it begins. Clients connect again."""
        self._stopping = True
        for stream in self._open:
            stream.cut("stopping")

    async def settle(self) -> None:
        """Wait a moment for streams of ended runs to send their last frame."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._none_open.wait()

    def enter(self, stream: Connection) -> None:
        """Register a stream that begins."""
        self._open.add(stream)
        self._none_open.clear()
        stream.count(1)
        if self._stopping:
            stream.cut("stopping")
        if self._check is None:
            self._check_later()

    def leave(self, stream: Connection) -> None:
        """Remove a stream that has ended."""
        self._open.discard(stream)
        stream.count(-1)
        if not self._open:
            self._none_open.set()
        if not self._open and self._check is not None:
            self._check.cancel()
            self._check = None

    def _check_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._check = loop.call_later(WRITE_SECONDS / 10, self._cut_slow)

    def _cut_slow(self) -> None:
        """Cut clients that have not read for too long. A timeout around each write costs more."""
        too_long = time.monotonic() - WRITE_SECONDS
        for stream in self._open:
            if stream.writing_since is not None and stream.writing_since < too_long:
                stream.cut("slow")
        if time.monotonic() - self._rechecked > RECHECK_SECONDS and self._recheck is None:
            self._rechecked = time.monotonic()
            self._recheck = asyncio.ensure_future(self._cut_refused())
        self._check_later()

    async def _cut_refused(self) -> None:
        """Cut the streams whose key is no longer valid."""
        try:
            for stream in tuple(self._open):
                if not await stream.is_allowed():
                    stream.cut("refused")
        finally:
            self._recheck = None


Reason = Literal["left", "slow", "stopping", "refused", "expired", "over"]
"""Why a connection ends before its stream does; `over` if it does not."""


class Connection:
    """An open connection: it counts for its sender, and can be cut from outside of its task."""

    __slots__ = ("_connections", "_has_unsent", "_sender", "_task", "_why", "writing_since")

    def __init__(self, connections: Connections, sender: AdmittedRequest | None) -> None:
        self._sender = sender
        self._connections = connections
        self._task: asyncio.Task[Any] | None = None
        self._why: Reason | None = None
        self._has_unsent = False
        self.writing_since: float | None = None

    def count(self, change: int) -> None:
        """Count the stream among those of its sender."""
        if self._sender is not None and self._sender.allowance is not None:
            self._sender.allowance.streams += change

    async def is_allowed(self) -> bool:
        """Whether the sender's key is still valid; also if this cannot be found out now."""
        if self._sender is None or self._sender.still_valid is None:
            return True
        try:
            return await self._sender.still_valid()
        except TailraceError:
            return True

    def _is_sent_away(self) -> bool:
        return self._why in CLOSING_REASONS

    def cut(self, why: Reason) -> None:
        """End the stream early. The first reason counts.

        Bytes already being sent are finished first. Otherwise the closing frame's cursor would be
        after frames that the client never got. A client that leaves meanwhile, or refuses to read,
        gets no closing frame.
        """
        waits = self._has_unsent and self._is_sent_away()
        if self._task is not None and (self._why is None or waits):
            self._why = why
            if not (self._has_unsent and why in CLOSING_REASONS):
                self._task.cancel()


class WaitingRequest(Connection):
    """A request that waits for the end of a run, without a stream. It counts as a stream."""

    __slots__ = ()

    def __init__(self, connections: Connections) -> None:
        # Not `connections.sender()`: the run has begun, so it is too late to refuse the request.
        super().__init__(connections, admitted.get(None))

    async def until(self, end: Awaitable[None]) -> None:
        """Wait for this; `Stopping` if the server stops, `Unauthorized` if the key is revoked."""
        self._task = asyncio.current_task()
        self._connections.enter(self)
        try:
            await end
        except asyncio.CancelledError:
            if self._why is None or self._task is None or self._task.uncancel() > 0:
                raise  # not by `cut`
            if self._why == "refused":
                raise Unauthorized(CLOSING_REASONS["refused"]) from None
            raise Stopping("The server is stopping, and the run goes on. Ask again.") from None
        finally:
            self._connections.leave(self)
