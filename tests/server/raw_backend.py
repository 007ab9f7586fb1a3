"""A backend that says exactly what a test tells it to, byte by byte, over a real socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Exchange:
    """One request that arrived, and the connection to answer on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head = b""
        self.body = b""

    async def read(self) -> None:
        self.head = await self.reader.readuntil(b"\r\n\r\n")
        length = self.header(b"content-length")
        if length:
            self.body = await self.reader.readexactly(int(length))
        elif self.header(b"transfer-encoding"):
            while size := int(await self.reader.readline(), 16):
                self.body += await self.reader.readexactly(size)
                await self.reader.readline()
            await self.reader.readline()

    @property
    def line(self) -> bytes:
        return self.head.partition(b"\r\n")[0]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        lines = self.head.split(b"\r\n")[1:-2]
        return [(line.partition(b": ")[0], line.partition(b": ")[2]) for line in lines]

    def header(self, name: bytes) -> bytes | None:
        return next((v for k, v in self.headers if k.lower() == name), None)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def left(self) -> bool:
        """Wait until the other side has closed the connection."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True


Answer = Callable[[Exchange], Awaitable[None]]


@asynccontextmanager
async def backend(answer: Answer) -> AsyncIterator[str]:
    """Serve with `answer`; the connection is closed when it returns. Gives the address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        exchange = Exchange(reader, writer)
        try:
            await exchange.read()
            await answer(exchange)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.close()


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[str]:
    """An ASGI application behind a real server in this loop; gives its address."""
    config = uvicorn.Config(
        app, port=0, log_level="critical", ws="none", server_header=False, date_header=False
    )
    started = asyncio.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started.set()

    server = Server(config)
    running = asyncio.ensure_future(server.serve())
    try:
        async with asyncio.timeout(120):
            await started.wait()
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await running
