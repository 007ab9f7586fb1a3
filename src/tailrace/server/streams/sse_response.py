"""Server-sent events over raw ASGI, until the stream ends or the client leaves."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from tailrace.core.errors import Stopping, StorageBusy, TailraceError
from tailrace.core.json_pieces import PIECE_BYTES, SEND_BYTES, cut_pieces
from tailrace.runtime.event_log.store_retry import limit_of_wait, within
from tailrace.runtime.followers.fanout import WriteNow
from tailrace.server.access.guard import STORE_SECONDS, failure
from tailrace.server.transport.asgi import (
    WatchedConnection,
    client_left,
    reset,
    watched_connection,
)
from tailrace.server.transport.connections import CLOSING_REASONS, Connection, Connections
from tailrace.wire.base import Format

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


class SseResponse(Connection):
    """Sends a stream until it ends, the client leaves or the server stops."""

    __slots__ = ("_begun", "_cycle", "_headers", "_source", "_wait_left", "_watched", "status_code")

    def __init__(
        self,
        source: StreamSource,
        connections: Connections,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`LimitReached` if the sender of the request has too many streams open."""
        super().__init__(connections, connections.sender())
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
        self._watched = watched = watched_connection(send)
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
            if not isinstance(error, StorageBusy):  # `outage` logs it once
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
        self._write_kept()
        last = self._source.closing(CLOSING_REASONS.get(self._why, reason))
        if not self._begun:
            looks_whole = not last and not self._source.wire.preamble()
            if self._why == "stopping" and looks_whole:  # this client does not reconnect by itself
                await self._refuse(Stopping(CLOSING_REASONS["stopping"]), scope, receive, send)
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
        """Send the stream; False if a closing frame follows."""
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
                    for piece in cut_pieces((chunk,), PIECE_BYTES):
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

    def _write_kept(self) -> None:
        if self._watched is not None:
            self._watched.write_kept()

    async def _write(self, send: Send, body: bytes, *, more: bool) -> None:
        self._write_kept()
        self.writing_since = time.monotonic()
        await send({"type": "http.response.body", "body": body, "more_body": more})
        self.writing_since = None
        self._connections.sent_bytes += len(body)
        if len(body) >= SEND_BYTES:
            await asyncio.sleep(0)  # `send` waits only for a client that does not read
