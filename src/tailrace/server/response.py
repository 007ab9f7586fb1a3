"""Server-sent events over raw ASGI: the request's own task writes, another hears the client leave.

A server may have tens of thousands of these open with nothing happening on them, so what they share
(the end of the server, the look at clients that refuse to read) is done once for all of them.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from contextlib import suppress
from inspect import unwrap
from typing import Any, Literal, Protocol

from starlette.types import Receive, Scope, Send

from tailrace.core.errors import StorageBusy, TailraceError
from tailrace.core.pieces import PIECE_BYTES, SEND_BYTES, cut
from tailrace.runtime.building import Parts
from tailrace.wire.base import Format

WRITE_SECONDS = 30.0
"""How long a client may refuse to read before it is cut; it resumes where it was."""

STREAM = "tailrace.stream"
"""Where a request's scope holds the stream that answers it."""

_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: on, for 0 seconds

logger = logging.getLogger("tailrace")


class Source(Protocol):
    """What a stream is made of: a run, or a thread."""

    @property
    def wire(self) -> Format:
        """The format that it is told in."""

    async def next(self) -> bytes | None:
        """The next bytes, as many as have gathered; None after the end."""

    @property
    def over(self) -> bool:
        """Whether it is known that nothing follows: then the last bytes are sent as such."""

    async def close(self) -> None:
        """Stop following; nothing is asked for any more."""

    def closing(self, reason: str) -> bytes:
        """What ends the stream for a client that is sent away."""


SETTLE_SECONDS = 0.5
"""How long a server that stops waits for streams that are about to end by themselves."""


class Connections:
    """The streams that a server has open."""

    def __init__(self) -> None:
        self._open: set[EventStream] = set()
        self._stopping = False
        self._none_open = asyncio.Event()
        self._none_open.set()
        self._look: asyncio.TimerHandle | None = None

    def answer(self, source: Source) -> EventStream:
        """A response that sends this."""
        return EventStream(source, self)

    def stop(self) -> None:
        """Send everybody away, also those who come from now on: they connect again elsewhere."""
        self._stopping = True
        for stream in self._open:
            stream.cut("stopping")

    async def settle(self) -> None:
        """Wait a moment for the streams of runs that have ended: they send their last frame."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._none_open.wait()

    def enter(self, stream: EventStream) -> None:
        """A stream begins."""
        self._open.add(stream)
        self._none_open.clear()
        if self._stopping:
            stream.cut("stopping")
        if self._look is None:
            self._look_later()

    def leave(self, stream: EventStream) -> None:
        """A stream has ended."""
        self._open.discard(stream)
        if not self._open:
            self._none_open.set()
        if not self._open and self._look is not None:
            self._look.cancel()
            self._look = None

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._look = loop.call_later(WRITE_SECONDS / 10, self._look_around)

    def _look_around(self) -> None:
        """Cut who has refused to read for too long: cheaper than a timeout around each write."""
        too_long = time.monotonic() - WRITE_SECONDS
        for stream in self._open:
            if stream.writing_since is not None and stream.writing_since < too_long:
                stream.cut("slow")
        self._look_later()


class EventStream:
    """A response that sends a stream until it ends, the client leaves or the server stops."""

    __slots__ = ("_connections", "_source", "_task", "_why", "writing_since")

    def __init__(self, source: Source, connections: Connections) -> None:
        self._source = source
        self._connections = connections
        self._task: asyncio.Task[Any] | None = None
        self._why: Literal["left", "slow", "stopping", "over"] | None = None
        self.writing_since: float | None = None

    def cut(self, why: Literal["left", "slow", "stopping"]) -> None:
        """End it before its time; the first reason counts."""
        if self._why is None and self._task is not None:
            self._why = why
            self._task.cancel()

    async def __call__(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        """Leave the answer to the door, where nothing of the way through the routes is left.

        An open stream would keep a dozen frames of it in memory, and each chunk would pass them.
        """
        scope[STREAM] = self

    async def head(self, send: Send) -> None:
        """Answer a HEAD request: the headers alone, at once."""
        await self._source.close()
        await self._send_headers(send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_headers(self, send: Send) -> None:
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            **self._source.wire.headers,
        }
        lines = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": lines})

    async def answer(self, receive: Receive, send: Send) -> None:
        """Answer the request."""
        await self._send_headers(send)
        self._task = asyncio.current_task()
        client = asyncio.ensure_future(_left(receive))
        client.add_done_callback(lambda _: self.cut("left"))
        self._connections.enter(self)
        reason = "The stream broke off; connect again."
        try:
            await self._pump(send)
            return
        except asyncio.CancelledError:
            if self._why is None or self._task is None or self._task.uncancel() > 0:
                raise  # it was not us
            if self._why == "slow":
                await _reset(send)
            if self._why != "stopping":
                return
            reason = "The server is stopping; connect again."
        except StorageBusy:
            pass  # the outage is logged once, where it begins
        except TailraceError as failure:
            logger.warning("a stream broke off: %s", failure)
        except OSError:
            return
        finally:
            self._why = self._why or "over"
            self._connections.leave(self)
            client.cancel()
        last = self._source.closing(reason)
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _pump(self, send: Send) -> None:
        source = self._source
        try:
            more = True
            while more:
                chunk = await source.next()
                more = chunk is not None and not source.over
                if chunk is not None and len(chunk) > PIECE_BYTES:
                    for piece in cut((chunk,)):
                        await self._write(send, piece, more=True)
                    chunk = None
                if chunk is not None or not more:
                    await self._write(send, chunk or b"", more=more)
        finally:
            # Here and not by the garbage collector: who left must not be followed for.
            await source.close()

    async def _write(self, send: Send, body: bytes, *, more: bool) -> None:
        self.writing_since = time.monotonic()
        await send({"type": "http.response.body", "body": body, "more_body": more})
        self.writing_since = None
        if len(body) >= SEND_BYTES:
            await asyncio.sleep(0)  # `send` waits only for a client that does not read


class Answer:
    """A large JSON answer, sent a bounded piece at a time to a client that reads it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def __call__(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        """Leave the answer to the door, as a stream does."""
        scope[STREAM] = self

    async def head(self, send: Send) -> None:
        """Answer a HEAD request: the headers alone."""
        await self._send_headers(send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_headers(self, send: Send) -> None:
        size = b"%d" % self._parts.size
        headers = [(b"content-type", b"application/json"), (b"content-length", size)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def answer(self, _receive: Receive, send: Send) -> None:
        """Answer the request."""
        await self._send_headers(send)
        try:
            for piece in cut(self._parts.parts):
                async with asyncio.timeout(WRITE_SECONDS):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await asyncio.sleep(0)  # `send` waits only for a client that does not read
        except TimeoutError:
            await _reset(send)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _reset(send: Send) -> None:
    """Reset the connection of a client that refuses to read.

    ASGI has no message for this. A server that closes the connection keeps the unread bytes until
    the client takes them, and so does the kernel. So ask uvicorn's transport, if there is one.
    """
    transport = getattr(getattr(unwrap(send), "__self__", None), "transport", None)
    if transport is not None:
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        transport.abort()
        await asyncio.sleep(0)  # so that the server knows of it when we return


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
