"""Checks before any route: the host, the origin, the size of the headers and the type of the body.

A body must be JSON: a browser asks before it sends JSON to another site.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Awaitable
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tailrace.core.errors import (
    CallerError,
    InvalidCursor,
    NotFound,
    RunEnded,
    Stopping,
    StorageError,
    StreamTooLarge,
    TailraceError,
    ThreadBusy,
    UnknownCursor,
    UnknownFormat,
)
from tailrace.runtime.model_calls.request_check import UnknownTool
from tailrace.runtime.runs.quota import LimitReached
from tailrace.server.access.auth import AuthFailed, Unauthorized
from tailrace.server.access.origins import (
    allowing,
    authority_host,
    is_same_origin,
    preflight,
)
from tailrace.server.idempotency import KeyReused
from tailrace.server.request_body import BodyTimeout, BodyTooLarge, TooManyBodies, drop_rest

logger = logging.getLogger("tailrace")

LOOPBACK = frozenset(("localhost", "127.0.0.1", "[::1]"))
_LOOPBACK_ADDRESS = re.compile(r"127(\.[0-9]{1,3}){3}")

STORE_SECONDS = 4.0
"""How long a request waits for the store; then the answer is 503."""

MAX_HEAD_BYTES = 64 * 1024
"""How large a request's path, query and headers may be together."""

_STATUS: tuple[tuple[type[TailraceError], int], ...] = (
    (Unauthorized, 401),
    (AuthFailed, 500),
    (LimitReached, 429),
    (NotFound, 404),
    (UnknownTool, 404),
    (RunEnded, 409),
    (ThreadBusy, 423),
    (UnknownFormat, 400),
    (UnknownCursor, 404),
    (InvalidCursor, 400),
    (BodyTimeout, 408),
    (StreamTooLarge, 413),
    (TooManyBodies, 503),
    (StorageError, 503),
    (Stopping, 503),
    (KeyReused, 422),
    (CallerError, 400),
)


class Guard:
    """Middleware that refuses requests of unknown hosts and origins before any route.

    `origins` are pages that may call from another origin. `is_proxy` is for a proxy that passes
    requests on: a body need not be JSON, and the backend decides what listed pages may read.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: frozenset[str],
        *,
        origins: frozenset[str] = frozenset(),
        is_proxy: bool = False,
        requests: Counter[tuple[str, str, int]] | None = None,
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._origins = origins
        self._is_proxy = is_proxy
        self._requests = requests if requests is not None else Counter()
        self._refused_origins: set[str] = set()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass a request on, or refuse it."""
        # No coroutine of its own: an open stream would keep it, and pass through it at each event.
        if scope["type"] == "websocket":
            refused = self._refusal(scope)
            if refused is not None:
                return deny(refused, scope, receive, send)
        elif scope["type"] == "http":
            origin = _values(scope, b"origin")
            listed = len(origin) == 1 and origin[0].lower() in self._origins
            if listed and not self._is_proxy:
                send = allowing(origin[0], send)
            answer = self._refusal(scope) or self._preflight(scope)
            if answer is not None:
                self._requests["", "", answer.status_code] += 1
                return answer(scope, receive, send)
        return self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        head = len(scope["path"]) + len(scope["query_string"])
        head += sum(len(name) + len(value) for name, value in scope["headers"])
        if head > MAX_HEAD_BYTES:
            message = (
                f"The request's path, query and headers exceed {MAX_HEAD_BYTES} bytes; send less."
            )
            return error_response(431, "head_too_large", message)
        # Not for a proxy, whose backend reads the URL. Not every server has the `raw_path`.
        parts = () if self._is_proxy else (scope.get("raw_path") or b"", scope["query_string"])
        if not all(map(_is_utf8, parts)):
            message = "The path or the query is not UTF-8; encode each id with percent signs."
            return error_response(400, "invalid_request", message)
        hosts = _values(scope, b"host")
        host = authority_host(hosts[0]) if len(hosts) == 1 else None
        if host is None:
            return error_response(400, "bad_host", "Send one Host header: name or name:port.")
        if _LOOPBACK_ADDRESS.fullmatch(host):
            host = "127.0.0.1"  # no page has such a name, and the server may listen on any of them
        if host not in self._hosts:
            return error_response(421, "wrong_host", _WRONG_HOST)
        for origin in _values(scope, b"origin"):
            if origin.lower() not in self._origins and not self._is_own(origin, scope, hosts[0]):
                self._log_refused(origin)
                return error_response(403, "wrong_origin", _WRONG_ORIGIN)
        if scope.get("method") == "POST" and not self._is_proxy and _has_body(scope):
            kind = "".join(_values(scope, b"content-type")).partition(";")[0].strip()
            if kind.lower() != "application/json":
                message = "Send the body as JSON, with content-type: application/json."
                return error_response(415, "not_json", message)
        return None

    def _is_own(self, origin: str, scope: Scope, authority: str) -> bool:
        """Whether a page of this origin came from this server."""
        # Only the browser sets `Sec-Fetch-Site`. A proxy may have changed the `Host`.
        if _values(scope, b"sec-fetch-site") == ["same-origin"]:
            return True
        return is_same_origin(origin, authority, https=scope.get("scheme") in ("https", "wss"))

    def _preflight(self, scope: Scope) -> Response | None:
        """The answer to a browser's preflight request; None for other requests."""
        asked = _values(scope, b"access-control-request-method")
        if scope["method"] != "OPTIONS" or not asked or self._is_proxy:
            return None
        origins = _values(scope, b"origin")
        if not any(origin.lower() in self._origins for origin in origins):
            self._log_refused(", ".join(origins))
            return error_response(403, "wrong_origin", _WRONG_ORIGIN)
        wanted = ", ".join(_values(scope, b"access-control-request-headers"))
        answer = Response(status_code=204)
        answer.raw_headers += preflight(wanted.encode("latin-1"))
        return answer

    def _log_refused(self, origin: str) -> None:
        """Log a refused origin once: browsers do not show pages the answer to a preflight."""
        shown = origin[:_SHOWN]
        if shown not in self._refused_origins and len(self._refused_origins) < _LOGGED_ORIGINS:
            self._refused_origins.add(shown)
            logger.warning("a page of %r was refused; add it to `origins` if it is yours", shown)


def _is_utf8(part: bytes) -> bool:
    """Whether a part of a URL is UTF-8. Else different ids would become one."""
    if b"%" in part:
        try:
            unquote_to_bytes(part).decode()
        except UnicodeDecodeError:
            return False
    return True


_LOGGED_ORIGINS = 10
"""How many refused origins a process logs, so that strangers cannot fill the log."""

_SHOWN = 200
"""How many characters of a refused origin are logged."""

_WRONG_HOST = (
    "This server does not serve the host in the Host header; add it to Tailrace(hosts=[…])."
)
_WRONG_ORIGIN = (
    "Pages of this Origin may not call this server; add it to Tailrace(origins=[…]) or --origins."
)


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _has_body(scope: Scope) -> bool:
    length = _values(scope, b"content-length")
    return bool(_values(scope, b"transfer-encoding")) or length not in ([], ["0"])


_ANTHROPIC = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}
"""Anthropic's names of errors, by status; other errors are `invalid_request_error`."""


class ErrorResponse(Response):
    """An error as JSON. On `/api/chat` it is plain text, because `useChat` shows the body.

    On `/v1/messages` it has Anthropic's shape.
    """

    drops_rest = False
    """Whether the rest of the request's body is read, so that the client can read the answer."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        body = {"error": {"code": code, "message": message, "type": code, "param": param}}
        headers = {}
        if status == 503:
            headers["retry-after"] = "1"
        if status == 401:
            headers["www-authenticate"] = 'Bearer realm="tailrace"'
        if status in (408, 413, 431):
            headers["connection"] = "close"  # the rest of the request is not read
        super().__init__(msgspec.json.encode(body), status, headers, "application/json")
        self._code, self._message = code, message

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the error in the form that the path's clients read."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if self.drops_rest:
            send = _dropping_rest(receive, send)
        kept = {
            name: value
            for name, value in self.headers.items()
            if name not in ("content-type", "content-length")
        }
        if scope["type"] == "http" and path.startswith("/api/chat"):
            plain = PlainTextResponse(self._message, self.status_code, kept)
            await plain(scope, receive, send)
        elif scope["type"] == "http" and path.startswith("/v1/messages"):
            kind = _ANTHROPIC.get(self.status_code, "invalid_request_error")
            error: dict[str, object] = {"type": kind, "message": self._message}
            if self._code == "thread_not_found":
                error["details"] = {"error_code": self._code}  # the SDKs send all messages then
            body = {"type": "error", "error": error}
            shaped = Response(msgspec.json.encode(body), self.status_code, kept, "application/json")
            await shaped(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def _dropping_rest(receive: Receive, send: Send) -> Send:
    """Send an answer, and end it after the rest of the request: the server closes at its end."""

    async def sent(message: Message) -> None:
        if message["type"] != "http.response.body":
            await send(message)
            return
        await send({**message, "more_body": True})
        await drop_rest(receive)
        await send({"type": "http.response.body"})

    return sent


INTERNAL = "The server made a mistake. Its log has the details."


def error_response(status: int, code: str, message: str, param: str | None = None) -> ErrorResponse:
    """An error as PROTOCOL.md, section 10, has it; OpenAI's clients read it too."""
    return ErrorResponse(status, code, message, param)


def json_response(value: object, status: int = 200) -> Response:
    """Any value as JSON."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def status_of(error: type[TailraceError]) -> int:
    """The status of a request that raised an error of this class."""
    return next((status for kind, status in _STATUS if issubclass(error, kind)), 500)


def failure(error: TailraceError) -> Response:
    """The response to a request that raised this error."""
    status, param = status_of(type(error)), getattr(error, "param", None)
    response = error_response(status, error.code, str(error), param)
    response.drops_rest = isinstance(error, BodyTooLarge)
    if isinstance(error, LimitReached):
        response.headers["retry-after"] = str(error.retry_after)
    if isinstance(error, RunEnded):
        response.headers["x-should-retry"] = "false"  # OpenAI's SDKs repeat requests after a 409
    return response


async def deny(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a WebSocket's handshake. Not every server can send the response: then it is 403."""
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await response(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": 1008})
