"""uvicorn's HTTP parser, with limits on headers and trailers, and a call when a client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tailrace.server.access.guard import MAX_HEAD_BYTES

HEAD_SECONDS = 30.0
"""How long a client may take to send a request's headers, or its body after the answer."""


class Chunks:
    """The chunks of many streams, which are written in the next turn of the event loop.

    Socket writes take less CPU without other work between them. The reader of the first chunk is
    still awake when the next chunks arrive, and the code is in the CPU's caches.
    """

    def __init__(self) -> None:
        self._kept: dict[asyncio.Transport, bytes] = {}

    def put(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, chunk: bytes
    ) -> None:
        """Keep a chunk. A connection has one at most, so that its flow control notices a second."""
        if transport in self._kept:
            self.send()
        if not self._kept:
            loop.call_soon(self.send)
        self._kept[transport] = chunk

    def send(self) -> None:
        """Write the chunks."""
        kept, self._kept = self._kept, {}
        for transport, chunk in kept.items():
            transport.write(chunk)


_chunks: WeakKeyDictionary[asyncio.AbstractEventLoop, Chunks] = WeakKeyDictionary()


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection whose headers or trailers are too large, or whose headers are slow."""

    # Apart from uvicorn's attributes: a class shares the keys of at most 30 between its instances.
    __slots__ = ("_answering", "_chunks", "_head_bytes", "_in_head", "_left", "_timer")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = True
        self._timer: asyncio.TimerHandle | None = None
        self._left: Callable[[], None] | None = None
        self._answering: RequestResponseCycle | None = None
        self._chunks = _chunks.setdefault(self.loop, Chunks())

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the headers of the first request."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting, and end the open stream."""
        self._stop_waiting()
        super().connection_lost(exc)
        # uvicorn notifies the newest request only, which may wait behind the stream.
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()
        if self._left is not None:
            self._left()

    def watch_client(self, left: Callable[[], None]) -> bool:
        """Call `left` when the client leaves. False if that needs `receive`.

        An open stream needs no task for it then. A closed connection is noticed only while it is
        read, and `receive` reads the rest of a body.
        """
        if self.cycle.disconnected or self.cycle.more_body or self.flow.read_paused:
            return False
        self._left = left
        return True

    def unwatch_client(self, left: Callable[[], None]) -> None:
        """Forget the function given to `watch_client`, unless the next stream has replaced it."""
        if self._left == left:
            self._left = None

    def write_chunk(self, cycle: RequestResponseCycle, body: bytes) -> bool:
        """Send bytes of an answer that has begun; False if `send` has to, as it may wait.

        They are sent with the chunks of other streams, or by `write_kept`.
        """
        if cycle.disconnected or not cycle.chunked_encoding or cycle.flow.write_paused:
            return False
        if self.transport.is_closing():
            return False
        if body:  # an empty chunk would end the answer
            self._chunks.put(self.loop, self.transport, b"%x\r\n%b\r\n" % (len(body), body))
        return True

    def write_kept(self) -> None:
        """Send the chunks of `write_chunk` now: `send` follows."""
        self._chunks.send()

    def data_received(self, data: bytes) -> None:
        """Count the bytes of the headers, or since the body. The last read may exceed the limit."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        """Wait for the headers of the next request."""
        self._head_bytes = 0
        self._wait_for_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The headers have arrived. `request_body` limits the body."""
        self._head_bytes = 0
        self._stop_waiting()
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. A trailer is dropped: a proxy in front has checked the headers only."""
        if self._in_head:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Count again: only trailers and the frames of chunks are left."""
        self._head_bytes = 0
        super().on_body(body)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def on_message_complete(self) -> None:
        """The body has arrived, maybe after its answer."""
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the rest of a body that was not needed. uvicorn would wait for ever."""
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body:
            self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _wait_for_head(self) -> None:
        self._stop_waiting()
        self._in_head = True
        self._timer = self.loop.call_later(HEAD_SECONDS, self._refuse, b"408 Request Timeout")

    def _stop_waiting(self) -> None:
        self._in_head = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: bytes) -> None:
        if self.transport.is_closing():
            return
        # Not inside another answer, nor as a second answer.
        if self._in_head and (self._answering is None or self._answering.response_complete):
            head = b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status
            self.transport.write(head)
        self.transport.close()
