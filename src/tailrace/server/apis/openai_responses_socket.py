"""OpenAI's Responses API over a WebSocket: each `response.create` message is a run.

A message with answers to approvals goes on with the run that waits for them.

The events are those of the HTTP stream, a JSON text each. A connection has one response at a time;
later messages wait. If a client closes the connection, its run goes on and can be retrieved by its
id, as with the HTTP stream.

A response with `store: false` can be continued on its own connection only. The connection keeps its
conversation in memory, because the run is deleted soon after its end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple

import msgspec
from starlette.types import Message, Receive, Scope, Send

from tailrace.core.errors import CallerError, Stopping, TailraceError
from tailrace.core.values import Json, json_text, quoted
from tailrace.runtime.event_log.store_retry import within
from tailrace.runtime.runs.all_runs import Runs
from tailrace.server import request_fields
from tailrace.server.access.admission import admitted
from tailrace.server.access.auth import Unauthorized
from tailrace.server.access.guard import INTERNAL, STORE_SECONDS, status_of
from tailrace.server.request_body import MAX_BODY_BYTES, decode_json, too_large
from tailrace.server.streams.run_stream import RunStream
from tailrace.server.transport.asgi import reset
from tailrace.server.transport.connections import Connection, Connections
from tailrace.wire import openai_responses

OPEN_SECONDS = 3600.0
"""How long a connection may be open (Open Responses, "WebSocket Reconnects")."""

WAITING = 16
WAITING_BYTES = 1024 * 1024
"""How many messages, and bytes, may wait for the end of a response. Then the client has to wait,
too."""

logger = logging.getLogger("tailrace")


class ConnectionExpired(CallerError):
    """A WebSocket was open for an hour; open another."""

    code = "websocket_connection_limit_reached"


class UnstoredConversation(msgspec.Struct, frozen=True):
    """The conversation up to a response that is not stored: its items, as an `input` has them."""

    response_id: str
    items: list[Json]


class Segment(NamedTuple):
    """What a response shows of a run: what it does after this many pauses."""

    run_id: str
    number: int = 0
    again: bool = False
    """The client has had the response: it gets the requests for approvals alone."""

    @property
    def wire(self) -> openai_responses.ResponsesFormat:
        """The format of the response."""
        if self.again:
            return openai_responses.RequestsFormat(self.number)
        return openai_responses.FORMAT.after(self.number)


Begin = Callable[[Json, UnstoredConversation | None], Awaitable[Segment]]
"""Starts the run of a request, which may continue a window, or goes on with a run that waits."""

_CLOSE: dict[type[TailraceError], int] = {
    Stopping: 1012,  # service restart
    ConnectionExpired: 1001,  # going away
    Unauthorized: 1008,  # policy violation
}


class WaitingMessages(asyncio.Queue[Message]):
    """The messages that wait. A message may have 16 MiB, so their bytes count as well."""

    def __init__(self) -> None:
        super().__init__(WAITING)
        self._bytes = 0

    def full(self) -> bool:
        """Whether the next message has to wait for room."""
        return super().full() or self._bytes >= WAITING_BYTES

    def _put(self, item: Message) -> None:
        self._bytes += _size(item)
        super()._put(item)

    def _get(self) -> Message:
        item: Message = super()._get()
        self._bytes -= _size(item)
        return item


class ResponsesSocket(Connection):
    """One client at `/v1/responses`, from the handshake to the end of its connection."""

    def __init__(self, begin: Begin, connections: Connections) -> None:
        super().__init__(connections, connections.sender())
        self._begin = begin
        self._window: UnstoredConversation | None = None
        self._messages = WaitingMessages()

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the client until it leaves or the server ends the connection."""
        await receive()  # websocket.connect
        await send({"type": "websocket.accept"})
        self._task = asyncio.current_task()
        reader = asyncio.ensure_future(self._read(receive))
        expiry = asyncio.get_running_loop().call_later(OPEN_SECONDS, self.cut, "expired")
        self._connections.enter(self)
        try:
            while True:
                await self._answer(await self._messages.get(), send)
        except asyncio.CancelledError:
            if self._why is None or self._task is None or self._task.uncancel() > 0:
                raise  # not by `cut`
            if self._why == "slow":
                await reset(send)
        except OSError:
            return  # the client is gone
        finally:
            reader.cancel()
            expiry.cancel()
            self._connections.leave(self)
        if (last := _LAST.get(self._why)) is not None:
            await _send(send, _error(last))
            await send({"type": "websocket.close", "code": _CLOSE[type(last)]})

    async def _read(self, receive: Receive) -> None:
        while (message := await receive())["type"] != "websocket.disconnect":
            await self._messages.put(message)
        self.cut("left")

    async def _answer(self, message: Message, send: Send) -> None:
        """Answer one message: the events of its response, or an error."""
        window, body = self._window, {}
        try:
            body = _object(message)
            _check(body)
            found = await self._start(body, window)
            await self._stream(found, send)
            if body.get("store") is False:
                self._window = await _window(self._runs, found)
        except TailraceError as error:
            if window is not None and body.get("previous_response_id") == window.response_id:
                self._window = None  # Open Responses: a failed turn evicts what it continues
            await _send(send, _error(error))
        except (OSError, asyncio.CancelledError):
            raise
        except Exception:
            logger.exception("a message at /v1/responses failed")
            about = {"type": "internal", "code": "internal", "message": INTERNAL, "param": None}
            await _send(send, {"type": "error", "status": 500, "error": about})

    async def _start(self, body: Json, window: UnstoredConversation | None) -> Segment:
        """Begin the run of a message. It counts as a request of its own."""
        sender = self._sender
        assert sender is not None
        if not await self.is_allowed():
            raise Unauthorized("The API key is no longer valid. Connect again with a valid key.")
        quota = None
        if sender.allowance is not None:
            sender.allowance.request()
            quota = sender.allowance.runs
        admitted.set(replace(sender, runs=sender.runs.of(sender.runs.owner or "", quota)))
        # This connection is the stream of the run, so it must not count against its own limit.
        self.count(-1)
        try:
            with within(STORE_SECONDS):
                return await self._begin(body, window)
        finally:
            self.count(1)

    @property
    def _runs(self) -> Runs:
        return admitted.get().runs

    async def _stream(self, found: Segment, send: Send) -> None:
        source = RunStream(self._runs, found.wire, found.run_id)
        rest = b""
        try:
            while (chunk := await source.next()) is not None:
                *frames, rest = (rest + chunk).split(b"\n\n")
                for frame in frames:
                    await self._write(send, frame)
                if source.over:
                    return
        finally:
            await source.close()

    async def _write(self, send: Send, frame: bytes) -> None:
        """Send the data of a frame. Heartbeats and `[DONE]` belong to the HTTP stream."""
        _, _, data = frame.partition(b"data: ")
        if data.startswith(b"{"):
            self.writing_since = time.monotonic()
            await send({"type": "websocket.send", "text": data.decode()})
            self.writing_since = None
            self._connections.sent_bytes += len(data)


_LAST: dict[str, TailraceError] = {
    "stopping": Stopping("The server is stopping; connect again."),
    "refused": Unauthorized("The API key is no longer valid. Connect again with a valid key."),
    "expired": ConnectionExpired("The connection was open for an hour; connect again."),
}
"""The last error of a connection that the server ends."""


def _size(message: Message) -> int:
    return len(message.get("text") or message.get("bytes") or b"")


def _object(message: Message) -> Json:
    """The JSON object in a message."""
    sent = message.get("text")
    raw = sent.encode() if sent is not None else message.get("bytes") or b""
    if len(raw) > MAX_BODY_BYTES:
        raise too_large()
    body = decode_json(raw)
    if not isinstance(body, dict):
        raise CallerError(f"The message is {quoted(body)}; send a JSON object.")
    return body


def _check(body: Json) -> None:
    """Refuse what a WebSocket cannot do. `stream` is ignored: there is always a stream."""
    if body.get("type") != "response.create":
        raise request_fields.wrong("type", body.get("type"), '"response.create"')
    if body.get("background") is True:
        advice = "`background` does not work over a WebSocket; use POST /v1/responses."
        raise CallerError(advice, param="background")
    if body.get("generate") is False:
        raise CallerError("`generate: false` is not supported; leave it out.", param="generate")


async def _window(runs: Runs, found: Segment) -> UnstoredConversation | None:
    """The conversation up to the end of a response; None if it is too large to be kept."""
    state = (await runs.look(found.run_id)).state
    items = openai_responses.without_approvals(openai_responses.run_items(state))
    if len(msgspec.json.encode(items)) > MAX_BODY_BYTES:
        return None
    return UnstoredConversation(openai_responses.response_id(found.run_id, found.number), items)


def _error(error: TailraceError) -> Json:
    """An error as an event, with the status that a request would get."""
    param = getattr(error, "param", None)
    about = {"type": error.code, "code": error.code, "message": str(error), "param": param}
    return {"type": "error", "status": status_of(type(error)), "error": about}


async def _send(send: Send, event: Json) -> None:
    await send({"type": "websocket.send", "text": json_text(event)})
