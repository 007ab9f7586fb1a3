"""A stream's response, spoken to in ASGI: clients that leave, refuse to read or are sent away."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tailrace.app import Tailrace
from tailrace.core.errors import MalformedEvent, StorageBusy, StorageError
from tailrace.core.fold import State
from tailrace.core.json_pieces import PIECE_BYTES
from tailrace.runtime.followers.fanout import Stream, WriteNow
from tailrace.runtime.tasks.inbox import receive
from tailrace.server.streams.resume_point import ResumePoint
from tailrace.server.streams.run_stream import RunStream
from tailrace.server.streams.sse_response import SseResponse, StreamSource
from tailrace.server.transport import connections as open_connections
from tailrace.server.transport.connections import Connections
from tailrace.testing.waiting import until
from tailrace.wire import task
from tailrace.wire.base import Cursor
from tailrace.wire.formats import FORMATS


class Ticking:
    """A source that gives its pieces, then waits, ends or fails."""

    wire = task.FORMAT
    log_extra: ClassVar[dict[str, Any]] = {"fields": {"run": "r"}}

    def __init__(self, *pieces: bytes, then: Exception | str = "waits") -> None:
        self._pieces = list(pieces)
        self._then = then
        self.closed = False

    async def next(self, _write: WriteNow | None = None, /) -> bytes | None:
        if self._pieces:
            return self._pieces.pop(0)
        if isinstance(self._then, Exception):
            raise self._then
        if self._then == "waits":
            await asyncio.Event().wait()
        return None

    @property
    def over(self) -> bool:
        return self._then == "over" and not self._pieces

    async def close(self) -> None:
        self.closed = True

    def closing(self, reason: str) -> bytes:
        return b"closing: " + reason.encode()


class Client:
    """The other end: what it got, when it leaves, and whether it reads at all."""

    def __init__(self, *, reads: bool = True) -> None:
        self.got: list[Any] = []
        self.leaves = asyncio.Event()
        self.reads_on = asyncio.Event()
        self.refused = asyncio.Event()
        if reads:
            self.reads_on.set()

    async def receive(self) -> Any:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body" and not self.reads_on.is_set():
            self.refused.set()
            await self.reads_on.wait()  # as uvicorn: it waits, then writes
        self.got.append(message)

    @property
    def bodies(self) -> list[tuple[bytes, bool]]:
        return [(one["body"], one["more_body"]) for one in self.got[1:]]

    async def until(self, count: int) -> None:
        await until(lambda: len(self.got) >= count)


async def answering(
    connections: Connections, source: StreamSource, client: Client
) -> asyncio.Task[None]:
    scope = {"type": "http", "method": "GET", "path": "/"}
    answer = SseResponse(source, connections)
    return asyncio.ensure_future(answer(scope, client.receive, client.send))


async def ended(answer: asyncio.Task[None]) -> None:
    async with asyncio.timeout(120):
        await answer


async def test_a_stream_that_ends_is_sent_whole() -> None:
    source, client = Ticking(b"1", b"2", then="ends"), Client()
    await ended(await answering(Connections(), source, client))
    assert client.got[0]["status"] == 200
    assert client.bodies == [(b"1", True), (b"2", True), (b"", False)]
    assert source.closed
    assert all(one.cancelling() for one in asyncio.all_tasks() if one.get_name() == "client")


async def test_the_last_bytes_of_a_stream_that_is_over_are_sent_as_the_last() -> None:
    source, client = Ticking(b"1", b"2", then="over"), Client()
    await ended(await answering(Connections(), source, client))
    assert client.bodies == [(b"1", True), (b"2", False)]
    assert source.closed


async def test_a_client_that_leaves_is_followed_for_no_more() -> None:
    source, client = Ticking(b"1"), Client()
    answer = await answering(Connections(), source, client)
    await client.until(2)
    client.leaves.set()
    await ended(answer)
    assert source.closed
    assert client.bodies == [(b"1", True)]


async def test_a_client_that_refuses_to_read_is_cut_and_the_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_connections, "WRITE_SECONDS", 0.2)
    connections = Connections()
    stuck, fine = Client(reads=False), Client()
    slow = await answering(connections, Ticking(b"1"), stuck)
    other = await answering(connections, Ticking(b"1"), fine)
    await ended(slow)
    assert not other.done()
    fine.leaves.set()
    await ended(other)


async def test_a_server_that_stops_ends_all_streams_and_those_that_begin_later() -> None:
    connections = Connections()
    early, late = Client(), Client()
    first = await answering(connections, Ticking(b"1"), early)
    await early.until(2)
    connections.stop()
    await ended(first)
    await ended(await answering(connections, Ticking(b"1"), late))
    goodbye = (b"closing: The server is stopping; connect again.", False)
    assert early.bodies == [(b"1", True), goodbye]
    assert late.bodies[-1] == goodbye


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize("resumed", [False, True])
async def test_a_server_that_stops_never_answers_with_an_empty_stream_that_looks_whole(
    name: str, resumed: bool
) -> None:
    """Clients of `EventSource` come back by themselves; others need an error to read."""
    wire = FORMATS[name]
    app = Tailrace({}, "sqlite://:memory:")
    async with app.running():
        point = ResumePoint(Cursor(5)) if resumed and wire.resumable else None
        source = RunStream(app._runs, wire, "r", point)
        connections, client = Connections(), Client()
        connections.stop()
        await ended(await answering(connections, source, client))
    status, body = client.got[0]["status"], b"".join(sent["body"] for sent in client.got[1:])
    if wire.preamble():
        assert (status, body) == (200, b"")
    elif status == 503:
        assert b"stopping" in body
        assert (b"retry-after", b"1") in client.got[0]["headers"]
    else:
        assert b"connect again" in body


@pytest.mark.parametrize("piece", [b"1", b"1" * 3 * PIECE_BYTES])
async def test_bytes_that_a_client_does_not_read_yet_come_before_the_closing_frame(
    piece: bytes,
) -> None:
    connections, client = Connections(), Client(reads=False)
    source = Ticking(piece, b"2")
    answer = await answering(connections, source, client)
    async with asyncio.timeout(120):
        await client.refused.wait()
    connections.stop()
    client.reads_on.set()
    await ended(answer)
    goodbye = b"closing: The server is stopping; connect again."
    assert b"".join(body for body, _ in client.bodies) == piece + goodbye
    assert source.closed


async def test_a_client_that_is_sent_away_and_refuses_to_read_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_connections, "WRITE_SECONDS", 0.2)
    connections, client = Connections(), Client(reads=False)
    answer = await answering(connections, Ticking(b"1"), client)
    async with asyncio.timeout(120):
        await client.refused.wait()
    connections.stop()
    await ended(answer)
    assert client.bodies == []


async def test_a_client_that_reads_too_late_for_a_server_that_stops_gets_no_closing_frame() -> None:
    connections, client = Connections(), Client(reads=False)
    answer = await answering(connections, Ticking(b"1"), client)
    async with asyncio.timeout(120):
        await client.refused.wait()
    connections.stop()
    answer.cancel()  # as uvicorn does after its grace
    client.reads_on.set()
    await ended(answer)
    assert client.bodies == []


async def test_a_log_that_fails_ends_the_stream_in_its_own_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source, client = Ticking(b"1", then=StorageError("gone")), Client()
    with caplog.at_level(logging.WARNING, "tailrace"):
        await ended(await answering(Connections(), source, client))
    assert client.bodies[-1] == (b"closing: The stream broke off; connect again.", False)
    assert "gone" in caplog.text


async def test_a_broken_connection_ends_the_response_quietly() -> None:
    source, client = Ticking(b"1", then=ConnectionResetError()), Client()
    await ended(await answering(Connections(), source, client))
    assert client.bodies == [(b"1", True)]


async def test_an_error_before_the_first_bytes_has_a_status_of_its_own() -> None:
    for error, status in ((StorageBusy("away"), 503), (MalformedEvent("Not an event."), 500)):
        source, client = Ticking(then=error), Client()
        await ended(await answering(Connections(), source, client))
        assert [one["type"] for one in client.got] == ["http.response.start", "http.response.body"]
        assert client.got[0]["status"] == status
        assert error.code.encode() in client.got[1]["body"]
        assert source.closed


async def test_our_own_bug_is_not_hidden() -> None:
    source, client = Ticking(b"1", then=ZeroDivisionError()), Client()
    with pytest.raises(ZeroDivisionError):
        await ended(await answering(Connections(), source, client))
    assert source.closed


async def test_a_cancel_from_outside_is_passed_on() -> None:
    source, client = Ticking(b"1"), Client()
    answer = await answering(Connections(), source, client)
    await client.until(2)
    answer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answer
    assert source.closed


def test_a_stream_that_is_not_sent_yet_cannot_be_cut() -> None:
    stream = SseResponse(Ticking(), Connections())
    stream.cut("left")


async def test_a_stream_that_is_cut_before_its_first_bytes_ends_as_if_it_had_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = FORMATS["openai-responses"]
    app = Tailrace({"waits": receive}, tmp_path / "log.db", grace=timedelta(0))
    async with app.running():
        stream = RunStream(app._runs, wire, await app._runs.start("waits", "?"), snapshot=True)

        async def cut(self: Stream, *, wait: bool = True) -> bytes | None:
            raise asyncio.CancelledError

        monkeypatch.setattr(Stream, "next", cut)
        with pytest.raises(asyncio.CancelledError):
            await stream.next()
        # Another number would be a cursor behind frames that the client never got.
        assert stream.closing("Bye.") == b"".join(wire.at(State()).close("Bye."))
        await stream.close()
