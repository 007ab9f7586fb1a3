"""Checks before any route: whose page may talk to us, and in which language.

A server on loopback is reachable from every web page that its user opens. So the `Host` must be one
of ours (against DNS rebinding), and a body must be JSON, which a foreign page cannot send without
asking first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
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
from tailrace.runtime.retry import within
from tailrace.server.response import STREAM, EventStream

LOOPBACK = frozenset(("localhost", "127.0.0.1", "[::1]"))

STORE_SECONDS = 4.0
"""How long a request waits for the store; then the answer is 503."""

MAX_BODY_BYTES = 16 * 1024 * 1024

_STATUS: tuple[tuple[type[TailraceError], int], ...] = (
    (NotFound, 404),
    (UnknownFormat, 400),
    (InvalidCursor, 400),
    (StreamTooLarge, 413),
    (StorageError, 503),
    (Stopping, 503),
    (CallerError, 400),
)


class Door:
    """Middleware: refuses strangers' pages before anything else sees them, and sends streams.

    With `any_body` a body need not be JSON, for whoever passes requests on.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str], *, any_body: bool = False) -> None:
        self._app = app
        self._hosts = hosts
        self._any_body = any_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it here."""
        if scope["type"] == "http":
            refusal = self._refusal(dict(scope["headers"]), scope["method"])
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)
        stream: EventStream | None = scope.get(STREAM)
        if stream is not None:
            await stream.answer(receive, send)

    def _refusal(self, headers: dict[bytes, bytes], method: str) -> Response | None:
        host = _host_of(headers.get(b"host", b"").decode("latin-1"))
        if host not in self._hosts:
            return error_response(421, "wrong_host", "This server does not answer for that host.")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and _host_of(origin.partition("://")[2]) not in self._hosts:
            return error_response(403, "wrong_origin", "Pages of other sites may not ask here.")
        if method == "POST" and not self._any_body:
            kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip()
            if kind.lower() != "application/json":
                message = "Send the body as JSON, with content-type: application/json."
                return error_response(415, "not_json", message)
        return None


def _host_of(authority: str) -> str:
    """The name in `name:port`, also for `[::1]:port`."""
    if authority.startswith("["):
        return authority.partition("]")[0] + "]"
    return authority.partition(":")[0].lower()


def error_response(status: int, code: str, message: str) -> Response:
    """An error in the protocol's shape (section 10), which OpenAI's clients read as well."""
    body = {"error": {"code": code, "message": message, "type": code, "param": None}}
    headers = {"retry-after": "1"} if code in (StorageBusy.code, Stopping.code) else None
    return Response(msgspec.json.encode(body), status, headers, "application/json")


def json_response(value: object, status: int = 200) -> Response:
    """Any value as JSON."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def read_json(request: Request) -> dict[str, object]:
    """The body as a JSON object, within bounds, or the caller's error."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise StreamTooLarge(f"The body is larger than {MAX_BODY_BYTES} bytes.")
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CallerError(f"The body is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise CallerError("The body must be a JSON object.")
    return value


Handler = Callable[[Request], Awaitable[object]]


def answering(handler: Handler) -> Handler:
    """Turn our errors into answers that say whose fault it is."""

    async def answer(request: Request) -> object:
        try:
            with within(STORE_SECONDS):
                return await handler(request)
        except TailraceError as error:
            status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
            return error_response(status, error.code, str(error))

    return answer


def truthy(value: Any) -> bool:
    """`true`, `1` and so on; `false` in a query is false, although it is a non-empty string."""
    return str(value).lower() in ("1", "true", "yes", "on")
