"""Checks before any route: the host, the origin, the size of the head and the kind of body.

A body must be JSON, which a page of another site cannot send without asking first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tailrace.core.errors import (
    CallerError,
    InvalidCursor,
    NotFound,
    Stopping,
    StorageBusy,
    StorageError,
    StreamTooLarge,
    TailraceError,
    UnknownFormat,
)
from tailrace.core.ids import check_id
from tailrace.runtime.retry import within
from tailrace.server.body import BodyTimeout, TooManyBodies
from tailrace.server.origins import allowing, host_of, origin_host, preflight
from tailrace.server.response import STREAM, Answer, EventStream

LOOPBACK = frozenset(("localhost", "127.0.0.1", "[::1]"))

STORE_SECONDS = 4.0
"""How long a request waits for the store; then the answer is 503."""

MAX_HEAD_BYTES = 64 * 1024
"""What a request's path, query and headers may have together."""

_STATUS: tuple[tuple[type[TailraceError], int], ...] = (
    (NotFound, 404),
    (UnknownFormat, 400),
    (InvalidCursor, 400),
    (BodyTimeout, 408),
    (StreamTooLarge, 413),
    (TooManyBodies, 503),
    (StorageError, 503),
    (Stopping, 503),
    (CallerError, 400),
)


class Door:
    """Middleware: refuses strangers' pages before anything else sees them, and sends streams.

    `origins` are pages that may call from another origin. With `any_body` a body need not be JSON,
    for a proxy that passes requests on.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: frozenset[str],
        *,
        origins: frozenset[str] = frozenset(),
        any_body: bool = False,
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._origins = origins
        self._any_body = any_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it here."""
        if scope["type"] == "http":
            origin = _values(scope, b"origin")
            if len(origin) == 1 and origin[0].lower() in self._origins:
                send = allowing(origin[0], send)
            answer = self._refusal(scope) or self._preflight(scope)
            if answer is not None:
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)
        stream: EventStream | Answer | None = scope.get(STREAM)
        if stream is not None and scope["method"] == "HEAD":
            await stream.head(send)
        elif stream is not None:
            await stream.answer(receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        head = len(scope["path"]) + len(scope["query_string"])
        head += sum(len(name) + len(value) for name, value in scope["headers"])
        if head > MAX_HEAD_BYTES:
            message = f"The request's head is larger than {MAX_HEAD_BYTES} bytes."
            return error_response(431, "head_too_large", message)
        hosts = _values(scope, b"host")
        host = host_of(hosts[0]) if len(hosts) == 1 else None
        if host is None:
            return error_response(400, "bad_host", "Send one Host header: name or name:port.")
        if host not in self._hosts:
            return error_response(421, "wrong_host", _WRONG_HOST)
        for origin in _values(scope, b"origin"):
            if origin.lower() not in self._origins and origin_host(origin) not in self._hosts:
                return error_response(403, "wrong_origin", _WRONG_ORIGIN)
        if scope["method"] == "POST" and not self._any_body and _has_body(scope):
            kind = "".join(_values(scope, b"content-type")).partition(";")[0].strip()
            if kind.lower() != "application/json":
                message = "Send the body as JSON, with content-type: application/json."
                return error_response(415, "not_json", message)
        return None

    def _preflight(self, scope: Scope) -> Response | None:
        """A browser's question before a request from another origin."""
        asked = _values(scope, b"access-control-request-method")
        if scope["method"] != "OPTIONS" or not asked or self._any_body:
            return None
        if not any(origin.lower() in self._origins for origin in _values(scope, b"origin")):
            return error_response(403, "wrong_origin", _WRONG_ORIGIN)
        wanted = ", ".join(_values(scope, b"access-control-request-headers"))
        answer = Response(status_code=204)
        answer.raw_headers += preflight(wanted.encode("latin-1"))
        return answer


_WRONG_HOST = (
    "This server does not answer for that host; list it in Tailrace(hosts=[…]) to allow it."
)
_WRONG_ORIGIN = (
    "Pages of that origin may not ask here; list it in Tailrace(origins=[…]) to allow it."
)


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _has_body(scope: Scope) -> bool:
    length = _values(scope, b"content-length")
    return bool(_values(scope, b"transfer-encoding")) or length not in ([], ["0"])


class ErrorResponse(Response):
    """An error as JSON; `useChat` shows the body as it is, so there it is the sentence alone."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        body = {"error": {"code": code, "message": message, "type": code, "param": param}}
        headers = {}
        if code in (StorageBusy.code, Stopping.code, TooManyBodies.code):
            headers["retry-after"] = "1"
        if status in (408, 413, 431):
            headers["connection"] = "close"  # the rest of the request is not read
        super().__init__(msgspec.json.encode(body), status, headers, "application/json")
        self._message = message

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it in the form that the path's clients read."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if scope["type"] == "http" and path.startswith("/api/chat"):
            kept = {
                name: value
                for name, value in self.headers.items()
                if name not in ("content-type", "content-length")
            }
            plain = PlainTextResponse(self._message, self.status_code, kept)
            await plain(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def error_response(status: int, code: str, message: str, param: str | None = None) -> Response:
    """An error in the protocol's shape (section 10), which OpenAI's clients read as well."""
    return ErrorResponse(status, code, message, param)


def json_response(value: object, status: int = 200) -> Response:
    """Any value as JSON."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def failure(error: TailraceError) -> Response:
    """The answer to a request that failed, by whose fault it is."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    return error_response(status, error.code, str(error), getattr(error, "param", None))


Handler = Callable[[Request], Awaitable[object]]


def answering(handler: Handler) -> Handler:
    """Turn our errors into answers that say whose fault it is."""

    async def answer(request: Request) -> object:
        try:
            for param, value in request.path_params.items():
                check_id(value, param)
            with within(STORE_SECONDS):
                return await handler(request)
        except TailraceError as error:
            return failure(error)
        except ClientDisconnect:
            return Response(status_code=400)  # the client left inside its own request

    return answer


def truthy(value: Any) -> bool:
    """`true`, `1` and so on; `false` in a query is false, although it is a non-empty string."""
    return str(value).lower() in ("1", "true", "yes", "on")
