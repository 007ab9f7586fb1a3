"""Clients that leave: the connections of `tailrace serve` call the open stream, without a task."""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ClassVar

import pytest
import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from tailrace.runtime.followers.fanout import WriteNow
from tailrace.server.streams.sse_response import SseResponse
from tailrace.server.transport.connections import CLOSING_REASONS, Connections
from tailrace.server.transport.http_protocol import BoundedHttp
from tailrace.testing.waiting import until
from tailrace.wire import task

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
WITH_BODY = b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"


class Waiting:
    """A source that sends a piece, then waits. Its end can be held up."""

    wire = task.FORMAT
    log_extra: ClassVar[dict[str, Any]] = {"fields": {"run": "r"}}
    over = False

    def __init__(self, ends: asyncio.Event, closes: asyncio.Event) -> None:
        self._ends, self._closes = ends, closes
        self._begun = False
        self.write: WriteNow | None = None
        self.calls = 0
        self.closed = asyncio.Event()

    async def next(self, write: WriteNow | None = None, /) -> bytes | None:
        self.write = write
        self.calls += 1
        if self._begun:
            await self._ends.wait()
            return None
        self._begun = True
        return b"begun"

    async def close(self) -> None:
        self.closed.set()
        await self._closes.wait()

    def closing(self, reason: str) -> bytes:
        return reason.encode()


class App:
    """Answers each request with a stream of its own."""

    def __init__(self) -> None:
        self.connections = Connections()
        self.server = ServerState()
        self.streams: list[Waiting] = []
        self.middleware: Callable[[Send], Send] = lambda send: send
        self.may_begin, self.ends, self.closes = (asyncio.Event() for _ in range(3))
        self.may_begin.set()
        self.closes.set()
        self.answered = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.may_begin.wait()
        source = Waiting(self.ends, self.closes)
        self.streams.append(source)
        await SseResponse(source, self.connections)(scope, receive, self.middleware(send))
        self.answered.set()

    def connection(self) -> BoundedHttp:
        (found,) = self.server.connections
        assert isinstance(found, BoundedHttp)
        return found


@asynccontextmanager
async def serving(app: App) -> AsyncGenerator[tuple[str, int], None]:
    config = uvicorn.Config(app, access_log=False)
    server = await asyncio.get_running_loop().create_server(
        lambda: BoundedHttp(config, app.server, {}), "127.0.0.1", 0
    )
    async with asyncio.timeout(60), server:
        yield server.sockets[0].getsockname()


async def asking(address: tuple[str, int], request: bytes) -> Ends:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    await reader.readuntil(b"begun")
    return reader, writer


def watchers() -> list[Any]:
    return [one for one in asyncio.all_tasks() if one.get_name() == "client"]


async def test_a_client_that_leaves_is_noticed_without_a_task_that_waits_for_it() -> None:
    app = App()
    async with serving(app) as address:
        _, writer = await asking(address, GET)
        assert len(app.connections) == 1
        assert not watchers()
        writer.close()
        await app.answered.wait()
    assert app.streams[0].closed.is_set()
    assert len(app.connections) == 0


@pytest.mark.parametrize("before", [100, 200_000])
async def test_a_client_that_leaves_is_noticed_although_its_body_is_not_asked_for(
    before: int,
) -> None:
    app = App()
    async with serving(app) as address:
        _, writer = await asking(address, WITH_BODY % (300_000, b"x" * before))
        writer.write(b"x" * (300_000 - before))
        writer.close()
        await app.answered.wait()


async def test_a_client_that_leaves_is_noticed_although_its_next_request_waits() -> None:
    app = App()
    async with serving(app) as address:
        _, writer = await asking(address, GET + GET)  # in one read
        connection = app.connection()
        writer.close()
        connection.transport.abort()  # reading is paused, so a write fails, some time
        await app.answered.wait()
    assert len(app.streams) == 1
    assert len(app.connections) == 0


async def test_a_client_that_leaves_is_noticed_although_its_body_has_paused_the_reading() -> None:
    app = App()
    async with serving(app) as address:
        reader, writer = await asyncio.open_connection(*address)
        await until(lambda: app.server.connections)
        app.connection().data_received(WITH_BODY % (100_000, b"x" * 100_000))  # in one read
        await reader.readuntil(b"begun")
        writer.close()
        await app.answered.wait()


async def test_a_client_that_left_before_its_stream_begins_is_noticed() -> None:
    app = App()
    app.may_begin.clear()
    async with serving(app) as address:
        _, writer = await asyncio.open_connection(*address)
        writer.write(GET)
        await until(lambda: app.server.tasks)
        connection = app.connection()
        writer.close()
        await until(lambda: not app.server.connections)
        assert not connection.watch_client(writer.close)
        app.may_begin.set()
        await app.answered.wait()


async def test_a_stream_that_still_closes_does_not_end_the_watch_of_the_next() -> None:
    app = App()
    app.closes.clear()
    async with serving(app) as address:
        reader, writer = await asking(address, GET)
        app.ends.set()
        await reader.readuntil(b"0\r\n\r\n")
        app.ends.clear()
        writer.write(GET)
        await reader.readuntil(b"begun")
        app.closes.set()
        await app.answered.wait()
        app.answered.clear()
        assert len(app.connections) == 1
        writer.close()
        await app.answered.wait()
    assert len(app.connections) == 0


async def test_a_connection_keeps_nothing_of_a_stream_that_has_ended() -> None:
    app = App()
    async with serving(app) as address:
        _, writer = await asking(address, GET)
        assert app.connection()._left is not None
        app.ends.set()
        await app.answered.wait()
        assert app.connection()._left is None
        writer.close()


async def test_a_stream_writes_chunks_without_its_task() -> None:
    app = App()
    async with serving(app) as address:
        reader, writer = await asking(address, GET)
        write = await writing(app)
        assert all(map(write, (b"news", b"", b"more")))
        assert await reader.readuntil(b"more\r\n") == b"\r\n4\r\nnews\r\n4\r\nmore\r\n"
        assert app.connections.sent_bytes == len(b"begunnewsmore")
        writer.close()
        await app.answered.wait()
        assert not write(b"late")


@pytest.mark.parametrize("stops", [False, True])
async def test_chunks_that_a_stream_wrote_come_before_its_end(stops: bool) -> None:
    app = App()
    async with serving(app) as address:
        reader, writer = await asking(address, GET)
        write = await writing(app)
        # Its task is woken, or cancelled, before the chunk is kept.
        (app.connections.stop if stops else app.ends.set)()
        assert write(b"news")
        reason = CLOSING_REASONS["stopping"].encode()
        last = b"%x\r\n%b\r\n" % (len(reason), reason) if stops else b""
        rest = await reader.readuntil(b"0\r\n\r\n")
        assert rest == b"\r\n4\r\nnews\r\n" + last + b"0\r\n\r\n"
        writer.close()
        await app.answered.wait()


async def test_the_chunks_of_all_streams_are_written_in_the_next_turn() -> None:
    app = App()
    async with serving(app) as address:
        clients = [await asking(address, GET) for _ in range(3)]
        await until(lambda: all(one.calls == 2 for one in app.streams))
        for reader, _ in clients:
            await reader.readuntil(b"\r\n")
        for one in app.streams:
            assert one.write is not None
            assert one.write(b"news")
        assert not any(map(has_come, clients))
        await asyncio.sleep(0)
        assert all(map(has_come, clients))
        for reader, writer in clients:
            assert await reader.readuntil(b"news\r\n") == b"4\r\nnews\r\n"
            writer.close()


def has_come(client: Ends) -> bool:
    """Whether bytes wait in the client's socket."""
    found = client[1].get_extra_info("socket")
    return bool(select.select([found.fileno()], [], [], 0)[0])


def test_nothing_is_written_to_a_connection_that_closes() -> None:
    uvloop.run(_closes())  # a closed transport of uvloop raises an error


async def _closes() -> None:
    app = App()
    async with serving(app) as address:
        _, writer = await asking(address, GET)
        write = await writing(app)
        errors: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, error: errors.append(error))
        assert write(b"kept")
        app.connection().transport.abort()
        assert not write(b"news")
        writer.close()
        await app.answered.wait()
        assert not errors


async def test_nothing_is_written_without_the_task_to_a_client_that_does_not_read() -> None:
    app = App()
    async with serving(app) as address:
        _, writer = await asking(address, GET)
        write = await writing(app)
        piece = b"x" * 10_000
        written = 0
        while write(piece):
            written += len(piece)
            assert written < 100_000_000
        assert app.connection().flow.write_paused
        writer.close()
        app.connection().transport.abort()
        await app.answered.wait()


async def test_a_stream_under_middleware_sends_with_its_task() -> None:
    app = App()

    def counted(send: Send) -> Send:
        @wraps(send)
        async def count(message: Any) -> None:
            await send(message)

        return count

    app.middleware = counted
    async with serving(app) as address:
        _, writer = await asking(address, GET)
        await until_waiting(app)
        assert app.streams[0].write is None
        writer.close()
        await app.answered.wait()


async def until_waiting(app: App) -> None:
    await until(lambda: app.streams[0].calls >= 2)


async def writing(app: App) -> WriteNow:
    """What the first stream writes with, once it waits."""
    await until_waiting(app)
    write = app.streams[0].write
    assert write is not None
    return write


async def test_connections_share_the_names_of_their_attributes() -> None:
    """CPython shares at most 30 of a class; more cost each connection a table of its own."""
    app = App()
    async with serving(app) as address:
        _, writer = await asking(address, GET)
        assert len(vars(app.connection())) <= 30
        writer.close()
        await app.answered.wait()
