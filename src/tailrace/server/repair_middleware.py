"""ASGI middleware that repairs the Responses answers of any application, and nothing else.

    app = ResponsesCompat(app)

`tailrace.repair.stream` describes the repairs. This file connects it to ASGI.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tailrace.repair.answer import repaired_body
from tailrace.repair.stream import ResponsesRepair
from tailrace.server.access.guard import error_response

MAX_BODY_BYTES = 32 * 1024 * 1024
"""A larger answer that is not a stream passes unchanged, so that memory stays bounded."""

Headers = list[tuple[bytes, bytes]]

_PATHS = re.compile(r"/responses(/[^/]+(/cancel)?)?/?\Z")
_CURSOR = b"starting_after"
_SSE = (b"data:", b"event:", b"id:", b"retry:", b":")
_OF_THE_BYTES = frozenset(
    (b"content-length", b"content-md5", b"digest", b"content-digest", b"repr-digest")
)
"""Headers that no longer match a body that was changed."""


class BackendCut(Exception):
    """The backend's answer broke off after it had begun. The client sees the message."""


class ResponsesCompat:
    """Wraps an ASGI application whose `…/responses` strict clients cannot read.

    Streams are repaired frame by frame, JSON answers as a whole. Other paths, types and errors
    pass unchanged. If the application fails inside a stream, the client gets an error frame, and
    the server gets the exception.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        is_ours = scope["type"] == "http" and _PATHS.search(scope["path"]) is not None
        if not is_ours or scope["method"] == "HEAD":
            await self._app(scope, receive, send)
            return
        scope, after = _from_the_start(scope)
        answer = _Answer(send, after)
        try:
            await self._app(scope, receive, answer.send)
        except BackendCut as error:
            if not await answer.cut(str(error)):
                raise
        except Exception:
            await answer.cut("The backend failed in the middle of its answer.", refuse=False)
            raise
        else:
            await answer.cut("The backend stopped in the middle of its answer.")


def _from_the_start(scope: Scope) -> tuple[Scope, int | None]:
    """The request for the application: uncompressed, and never from a cursor.

    Repaired streams have our numbers, because frames are inserted. So a resume repairs the stream
    again from its start, and sends what follows the cursor.
    """
    headers = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
    changed = {**scope, "headers": [*headers, (b"accept-encoding", b"identity")]}
    pairs = scope["query_string"].split(b"&")
    cursors = [pair.partition(b"=")[2] for pair in pairs if pair.partition(b"=")[0] == _CURSOR]
    after = cursors[-1] if cursors else b""
    if scope["method"] != "GET" or not (after.isdigit() and len(after) < 16):
        return changed, None
    rest = [pair for pair in pairs if pair.partition(b"=")[0] != _CURSOR]
    changed["query_string"] = b"&".join(rest)
    return changed, int(after)


class _Answer:
    """An answer that is passed on, repaired as a stream, or collected and repaired whole."""

    def __init__(self, send: Send, after: int | None) -> None:
        self._send = send
        self._after = after
        self._repair: ResponsesRepair | None = None
        self._held: Message | None = None
        self._body = bytearray()

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            await self._start(message)
        elif kind == "http.response.body" and self._repair is not None:
            await self._stream(self._repair, message)
        elif kind == "http.response.body" and self._held is not None:
            await self._gather(self._held, message)
        else:
            await self._pass_unchanged()
            await self._send(message)

    async def _start(self, message: Message) -> None:
        headers: Headers = list(message.get("headers", ()))
        kind = _value(headers, b"content-type").partition(b";")[0].strip().lower()
        readable = message["status"] == 200 and not _value(headers, b"content-encoding")
        if readable and kind == b"text/event-stream":
            await self._start_stream(message)
        elif readable and kind == b"application/json":
            self._held = message
        else:
            await self._send(message)

    async def _start_stream(self, start: Message) -> ResponsesRepair:
        repair = ResponsesRepair(uuid.uuid4().hex, int(time.time()), after=self._after)
        self._repair = repair
        await self._send({**start, "headers": _without_length(start.get("headers", ()))})
        return repair

    async def _stream(self, repair: ResponsesRepair, message: Message) -> None:
        more = message.get("more_body", False)
        body = repair.feed(message.get("body", b""))
        if not more:
            body += repair.end()
            self._repair = None
        if body or not more:
            await self._send({**message, "body": body})

    async def _gather(self, start: Message, message: Message) -> None:
        if not self._body and message.get("body", b"").lstrip().startswith(_SSE):
            # Some backends call a stream JSON. Clients read it as a stream all the same.
            self._held = None
            await self._stream(await self._start_stream(start), message)
            return
        self._body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(self._body) > MAX_BODY_BYTES:
            await self._pass_unchanged(more=more)
        elif not more:
            before = bytes(self._body)
            after = repaired_body(before, uuid.uuid4().hex)
            if after is not before:
                length = (b"content-length", b"%d" % len(after))
                start = {**start, "headers": [*_without_length(start.get("headers", ())), length]}
            self._held = None
            await self._send(start)
            await self._send({**message, "body": after})

    async def _pass_unchanged(self, *, more: bool = True) -> None:
        """Send the collected answer unchanged: it is too large, or not a Responses answer."""
        if self._held is not None:
            start, self._held = self._held, None
            await self._send(start)
            body = {"type": "http.response.body", "body": bytes(self._body), "more_body": more}
            self._body.clear()
            await self._send(body)

    async def cut(self, message: str, *, refuse: bool = True) -> bool:
        """End an answer that the application left open; False if no answer is open.

        A stream ends with an error frame. A collected answer was not sent yet, so an error takes
        its place; without `refuse` the server sends the error.
        """
        if self._repair is not None:
            body = self._repair.cut(message)
            self._repair = None
            await self._send({"type": "http.response.body", "body": body, "more_body": False})
            return True
        if self._held is not None and refuse:
            self._held = None
            answer = error_response(502, "upstream_cut", message)
            headers = answer.raw_headers
            await self._send({"type": "http.response.start", "status": 502, "headers": headers})
            await self._send({"type": "http.response.body", "body": answer.body})
            return True
        return False


def _value(headers: Headers, name: bytes) -> bytes:
    return next((value for key, value in headers if key.lower() == name), b"")


def _without_length(headers: Iterable[Any]) -> Headers:
    return [(key, value) for key, value in headers if key.lower() not in _OF_THE_BYTES]
