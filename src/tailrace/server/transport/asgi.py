"""The connection below ASGI: to reset it, to write at once, and to learn that the client left."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from inspect import unwrap
from typing import Any, Protocol

from starlette.types import Receive, Send

_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: on, for 0 seconds


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
        """Send bytes of an answer that has begun; False if `send` has to.

        The bytes may wait for `write_kept`, or the next turn of the event loop.
        """

    def write_kept(self) -> None:
        """Send the bytes that wait: other bytes follow them."""


def watched_connection(send: Send) -> WatchedConnection | None:
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
