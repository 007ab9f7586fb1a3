"""Server-sent events over raw ASGI, until the stream ends or the client leaves.

A server may have tens of thousands of open streams without traffic. So the end of the server and
the check for clients that do not read are handled once for all streams.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from inspect import unwrap
from typing import Any, Literal, Protocol

from starlette.types import Receive, Scope, Send

from tailrace.core.errors import Stopping, StorageBusy, TailraceError
from tailrace.core.json_pieces import PIECE_BYTES, SEND_BYTES, cut
from tailrace.runtime.fanout import WriteNow
from tailrace.runtime.offload import SharedBytes
from tailrace.runtime.store_retry import limit_of_wait, within
from tailrace.server.access import AdmittedRequest, admitted
from tailrace.server.auth import Unauthorized
from tailrace.server.guard import STORE_SECONDS, failure
from tailrace.wire.base import Format

WRITE_SECONDS = 30.0
"""How long a client may refuse to read before its stream is cut; its cursor stays valid."""

RECHECK_SECONDS = 30.0
"""How often the keys of open streams are checked again."""

SETTLE_SECONDS = 0.5
"""How long a server that stops waits for streams that are about to end."""

_GOODBYES = {
    "stopping": "The server is stopping; connect again.",
    "refused": "The API key is no longer valid.",
}
"""What a client reads that is sent away, by the reason for it."""

_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: on, for 0 seconds

logger = logging.getLogger("tailrace")


class StreamSource(Protocol):
    """The bytes of a stream: a run's or a thread's, in one format."""

    @property
    def wire(self) -> Format:
        """The format of the stream."""

    @property
    def log_extra(self) -> dict[str, Any]:
        """The run or thread of a log line: `log_fields.about_run`."""

    async def next(self, write: WriteNow | None = None, /) -> bytes | None:
        """Wait for the next bytes, and return all that are ready; None after the end.

        The first call waits for no event: its result may be empty. While a later call waits, it may
        send bytes with `write`.
        """

    @property
    def over(self) -> bool:
        """Whether the last bytes were returned. They are then sent as the last chunk."""

    async def close(self) -> None:
        """Stop following. `next` is not called again."""

    def closing(self, reason: str) -> bytes:
        """The frames that end the stream before the run's end."""


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

    def response(
        self, source: StreamSource, headers: Mapping[str, str] | None = None
    ) -> SseResponse:
        """A response that sends this source; `LimitReached` if the sender has too many."""
        return SseResponse(source, self, self.sender(), headers)

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
        return self._why in _GOODBYES

    def cut(self, why: Reason) -> None:
        """End the stream early. The first reason counts.

        Bytes that are being sent come before a goodbye: without them, the frames after them would
        follow a gap, and the cursor in the goodbye would be beyond it. A client that leaves
        meanwhile, or refuses to read, gets no goodbye.
        """
        waits = self._has_unsent and self._is_sent_away()
        if self._task is not None and (self._why is None or waits):
            self._why = why
            if not (self._has_unsent and why in _GOODBYES):
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
                raise Unauthorized(_GOODBYES["refused"]) from None
            raise Stopping("The server is stopping, and the run goes on. Ask again.") from None
        finally:
            self._connections.leave(self)


class SseResponse(Connection):
    """Sends a stream until it ends, the client leaves or the server stops."""

    __slots__ = ("_begun", "_cycle", "_headers", "_source", "_wait_left", "_watched", "status_code")

    def __init__(
        self,
        source: StreamSource,
        connections: Connections,
        sender: AdmittedRequest | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(connections, sender)
        self._source = source
        self._headers = headers
        self._begun = False
        self._wait_left = limit_of_wait()  # the request may have waited for the store already
        self._has_unsent = True
        self._watched: WatchedConnection | None = None
        self._cycle: Any = None
        self.status_code = 200

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request; a HEAD request with the headers alone.

        An error before the first bytes has a status of its own. After them the stream breaks off,
        and the client that connects again gets that status.
        """
        if scope["method"] == "HEAD":
            await self._source.close()
            await self._begin(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        self._task = asyncio.current_task()
        self._watched = watched = _watched(send)
        # Not of a wrapped `send`: middleware may count the bytes of the answer, or change them.
        self._cycle = getattr(send, "__self__", None)
        client = None
        if watched is None or not watched.watch_client(self._left):
            client = asyncio.get_running_loop().create_task(client_left(receive), name="client")
            client.add_done_callback(self._left)
        self._connections.enter(self)
        reason = "The stream broke off; connect again."
        try:
            if await self._pump(send):
                return
        except asyncio.CancelledError:
            if self._why is None or self._task is None or self._task.uncancel() > 0:
                raise  # not by `cut`
            unread = self._has_unsent and self._is_sent_away()  # for as long as the server waits
            if self._why == "slow" or unread:
                await reset(send)
            if unread or not self._is_sent_away():
                return
        except TailraceError as error:
            if not isinstance(error, StorageBusy):  # `runtime.outage` logs an outage once
                logger.warning("a stream broke off: %s", error, extra=self._source.log_extra)
            if not self._begun:
                await self._refuse(error, scope, receive, send)
                return
        except OSError:
            return
        finally:
            self._why = self._why or "over"
            self._connections.leave(self)
            if client is not None:
                client.cancel()
            elif watched is not None:
                watched.unwatch_client(self._left)
        last = self._source.closing(_GOODBYES.get(self._why, reason))
        if not self._begun:
            looks_whole = not last and not self._source.wire.preamble()
            if self._why == "stopping" and looks_whole:  # this client does not reconnect by itself
                await self._refuse(Stopping(_GOODBYES["stopping"]), scope, receive, send)
                return
            await self._begin(send)
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _refuse(
        self, error: TailraceError, scope: Scope, receive: Receive, send: Send
    ) -> None:
        refusal = failure(error)
        self.status_code = refusal.status_code
        await refusal(scope, receive, send)

    def _left(self, _client: asyncio.Future[None] | None = None) -> None:
        self.cut("left")

    async def _begin(self, send: Send) -> None:
        self._begun = True
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache, no-store",
            "x-accel-buffering": "no",
            **self._source.wire.headers,
            **(self._headers or {}),
        }
        if self._sender is not None and self._sender.cookie is not None:
            headers["set-cookie"] = self._sender.cookie
        lines = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": lines})

    async def _pump(self, send: Send) -> bool:
        """Send the stream; False if a goodbye shall follow what was sent."""
        source = self._source
        writes_now = self._watched is not None and self._cycle is not None
        try:
            if self._is_sent_away():  # the server is stopping already
                return False
            self._has_unsent = False
            with within(STORE_SECONDS, self._wait_left):
                chunk = await source.next()
            self._has_unsent = True
            await self._begin(send)
            more = True
            while more:
                more = chunk is not None and not source.over
                if chunk is not None and len(chunk) > 2 * PIECE_BYTES:
                    # Larger than a read of the log: clients at the same event share the chunk.
                    for piece in cut((chunk,), PIECE_BYTES):
                        await self._write(send, piece, more=True)
                    chunk = None
                if chunk or not more:
                    await self._write(send, chunk or b"", more=more)
                self._has_unsent = False
                if more:
                    if self._is_sent_away():
                        return False
                    del chunk  # the next may come in hours
                    chunk = await source.next(self._write_now if writes_now else None)
                    self._has_unsent = True
            return True
        finally:
            # Not left to the garbage collector: a stream without a client must not follow a run.
            await source.close()

    def _write_now(self, body: bytes) -> bool:
        """Send bytes without a wait; False if only `_write` can."""
        if len(body) >= SEND_BYTES or self._watched is None:
            return False
        if not self._watched.write_chunk(self._cycle, body):
            return False
        self._connections.sent_bytes += len(body)
        return True

    async def _write(self, send: Send, body: bytes, *, more: bool) -> None:
        self.writing_since = time.monotonic()
        await send({"type": "http.response.body", "body": body, "more_body": more})
        self.writing_since = None
        self._connections.sent_bytes += len(body)
        if len(body) >= SEND_BYTES:
            await asyncio.sleep(0)  # `send` waits only for a client that does not read


class LargeJsonResponse:
    """Sends a large JSON object in bounded pieces, as fast as the client reads them."""

    def __init__(self, parts: SharedBytes) -> None:
        self._parts = parts

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer the request; a HEAD request with the headers alone."""
        size = b"%d" % self._parts.size
        headers = [(b"content-type", b"application/json"), (b"content-length", size)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        pieces = cut(self._parts.parts) if scope["method"] != "HEAD" else ()
        try:
            for piece in pieces:
                async with asyncio.timeout(WRITE_SECONDS):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await asyncio.sleep(0)  # `send` waits only for a client that does not read
        except TimeoutError:
            await reset(send)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def reset(send: Send) -> None:
    """Reset the connection of a client that refuses to read.

    ASGI has no message for this. A server that closes the connection keeps the unread bytes until
    the client takes them, and so does the kernel. So use uvicorn's transport, if there is one.
    """
    transport = _transport(send)
    if transport is not None:
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        transport.abort()
        await asyncio.sleep(0)  # the server learns of it before we return


class WatchedConnection(Protocol):
    """A server's connection that calls back when its client leaves, as `http_protocol` does."""

    def watch_client(self, left: Callable[[], None]) -> bool:
        """Call this when the client leaves; False if `client_left` has to wait for it."""

    def unwatch_client(self, left: Callable[[], None]) -> None:
        """Do not call this again."""

    def write_chunk(self, cycle: Any, body: bytes) -> bool:
        """Send bytes of an answer that has begun; False if `send` has to."""


def _watched(send: Send) -> WatchedConnection | None:
    """The connection of the server, if it calls back. Other servers need `client_left`."""
    transport = _transport(send)
    connection = transport.get_protocol() if transport is not None else None
    return connection if hasattr(connection, "watch_client") else None


def _transport(send: Send) -> Any:
    """The transport of uvicorn's `send`; None under other servers."""
    return getattr(getattr(unwrap(send), "__self__", None), "transport", None)


async def client_left(receive: Receive) -> None:
    """Wait until the client closes its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
