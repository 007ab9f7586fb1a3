"""A proxy in front of one backend: everything passes, and its Responses answers are repaired.

    tailrace proxy --upstream http://localhost:8090

Headers and bodies pass unchanged, except the hop-by-hop headers of RFC 9110, section 7.6.1.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore2
from starlette.types import ASGIApp, Receive, Scope, Send

from tailrace.core.errors import CallerError
from tailrace.server.access.guard import LOOPBACK, Guard, error_response
from tailrace.server.access.origins import checked_origins
from tailrace.server.repair_middleware import BackendCut, Headers, ResponsesCompat

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 600.0
"""How long a backend may send nothing. A model that thinks needs minutes."""

KEEPALIVE_SECONDS = 4.0
"""Shorter than the servers' own limit (uvicorn: 5), so no request meets a closing connection."""

_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"expect",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)

_STOPPING = "The proxy is stopping; ask again."

_STATUSES = range(100, 600)  # RFC 9110, section 15
_CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_DECODINGS = 3
_SEPARATORS = re.compile(r"[/\\]")

logger = logging.getLogger("tailrace")


class _ClientLeft(Exception):
    """The client left before its request was complete."""


class Proxy:
    """The proxy as an ASGI application; `running` opens and closes its connections."""

    def __init__(
        self,
        upstream: str,
        *,
        silence_seconds: float = SILENCE_SECONDS,
        hosts: frozenset[str] = LOOPBACK,
        origins: Iterable[str] = (),
    ) -> None:
        self._forward = _Forward(upstream, silence_seconds)
        self._app: ASGIApp = Guard(
            ResponsesCompat(self._forward), hosts, origins=checked_origins(origins), is_proxy=True
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            try:
                await self._app(scope, receive, send)
            except BackendCut:
                # Half an answer was sent. The server closes the connection of an unfinished answer,
                # so the client sees that it is not complete.
                return
        elif scope["type"] == "websocket":
            await _refuse_websocket(scope, send)
        else:
            await self._lifespan(receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self.running():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @property
    def upstream(self) -> str:
        """The backend's address, as requests are sent to it."""
        return self._forward.name + self._forward.path.decode()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the connections to the backend, and close them at the end of the block."""
        async with self._forward.pool:
            yield

    async def drain(self) -> None:
        """End all open answers: the server stops."""
        self._forward.stopping.set()


class _Forward:
    """Sends each request to the backend and returns its answer, both unread."""

    def __init__(self, upstream: str, silence_seconds: float) -> None:
        self.name, self.path, host = _address(upstream)
        self._timeouts = {
            "connect": CONNECT_SECONDS,
            "read": silence_seconds,
            "write": silence_seconds,
            "pool": CONNECT_SECONDS,
        }
        proxies = {} if proxy_bypass(host) else getproxies()
        outward = proxies.get(self.name.partition(":")[0])
        self.pool = httpcore2.AsyncConnectionPool(
            max_connections=None,
            keepalive_expiry=KEEPALIVE_SECONDS,
            proxy=_outward(outward) if outward else None,
        )
        self.stopping = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, until the client leaves or the server stops."""
        if self.path and _may_leave_prefix(_path_of(scope)):
            message = f"Send a path below {self.path.decode()}, without `..` in it."
            await error_response(400, "path_outside_upstream", message)(scope, receive, send)
            return
        request = _Request(scope, receive)
        exchange = asyncio.ensure_future(self._exchange(scope, request, send))
        left = asyncio.ensure_future(request.left())
        stopping = asyncio.ensure_future(self.stopping.wait())
        tasks = (exchange, left, stopping)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            sent_away = not exchange.done() and not left.done()
        finally:
            # Cancelling the exchange closes its connection, so the backend can stop.
            for task in tasks:
                task.cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(answers[0], Exception):
            raise answers[0]
        if sent_away:
            if request.answered:
                raise BackendCut(_STOPPING)
            await error_response(503, "stopping", _STOPPING)(scope, _nothing, send)

    async def _exchange(self, scope: Scope, request: _Request, send: Send) -> None:
        try:
            async with self.pool.stream(
                scope["method"],
                f"{self.name}/",
                headers=request.headers,
                content=request.body() if request.has_body else None,
                extensions={"timeout": self._timeouts, "target": self._target(scope)},
            ) as answer:
                headers = _end_to_end(answer.headers)
                fault = _fault(answer.status, headers)
                if fault is not None:
                    await self._refuse_invalid(fault, scope, send)
                    return
                request.answered = True
                await send(
                    {"type": "http.response.start", "status": answer.status, "headers": headers}
                )
                async for chunk in answer.aiter_stream():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except _ClientLeft:
            return
        except (
            httpcore2.TimeoutException,
            httpcore2.NetworkError,
            httpcore2.ProtocolError,
            httpcore2.ProxyError,
        ) as error:
            why = f"{type(error).__name__}: {error}".rstrip(": ")
            if request.answered:
                logger.warning("the answer of backend %s broke off: %s", self.name, why)
                raise BackendCut(f"The backend's answer broke off ({why}).") from error
            logger.warning("backend %s did not answer: %s", self.name, why)
            await self._refuse(error, why, scope, send)

    async def _refuse(self, error: Exception, why: str, scope: Scope, send: Send) -> None:
        if isinstance(error, httpcore2.TimeoutException):
            status, code, what = 504, "upstream_timeout", "did not answer in time"
        else:
            status, code, what = 502, "upstream_unreachable", "could not be reached"
        answer = error_response(status, code, f"The backend at {self.name} {what} ({why}).")
        await answer(scope, _nothing, send)

    async def _refuse_invalid(self, fault: str, scope: Scope, send: Send) -> None:
        logger.warning("backend %s sent an invalid answer: %s", self.name, fault)
        message = f"The backend at {self.name} sent an invalid answer: {fault}."
        await error_response(502, "upstream_invalid", message)(scope, _nothing, send)

    def _target(self, scope: Scope) -> bytes:
        path = self.path + _path_of(scope)
        query: bytes = scope["query_string"]
        return path + b"?" + query if query else path


class _Request:
    """A client's request: its headers and body for the backend, and when the client leaves."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self._read = asyncio.Event()
        self.answered = False  # the client has been given a status
        self.headers = [pair for pair in _end_to_end(scope["headers"]) if pair[0] != b"host"]
        given = dict(scope["headers"])
        self.has_body = b"transfer-encoding" in given or given.get(b"content-length", b"0") != b"0"
        if not self.has_body:
            self._read.set()

    async def body(self) -> AsyncIterator[bytes]:
        """The body as it arrives.

        Raises `_ClientLeft` if it breaks off: a chunked body that only ended there would look
        complete to the backend.
        """
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise _ClientLeft
            more = message.get("more_body", False)
            yield message.get("body", b"")
        self._read.set()

    async def left(self) -> None:
        """Return when the client is gone."""
        await self._read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _end_to_end(headers: Headers) -> Headers:
    """The headers without those that concern only one connection."""
    named = b",".join(value for name, value in headers if name.lower() == b"connection")
    hops = _HOP_BY_HOP | {name.strip().lower() for name in named.split(b",")}
    if any(name.lower() == b"transfer-encoding" for name, _ in headers):
        # The chunks are the body. RFC 9112, section 6.3: remove a Content-Length beside them.
        hops |= {b"content-length"}
    return [(name, value) for name, value in headers if name.lower() not in hops]


def _fault(status: int, headers: Headers) -> str | None:
    """Why this answer cannot be passed on; None if it can."""
    if status not in _STATUSES:
        return f"its status is {status}"
    for name, value in headers:
        if _CONTROLS.search(value):
            return f"its header {name.decode('latin-1')!r} has a control character"
    return None


def _path_of(scope: Scope) -> bytes:
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path


def _may_leave_prefix(path: bytes) -> bool:
    """Whether a backend may read this path as outside its prefix.

    Backends differ: some decode `%2e` more than once, read `\\` as `/`, or drop what follows `;`.
    """
    text = path.decode("latin-1")
    for _ in range(_DECODINGS):
        text = unquote(text, "latin-1")
    segments = [segment.partition(";")[0] for segment in _SEPARATORS.split(text)]
    return not path.startswith(b"/") or ".." in segments


async def _nothing() -> dict[str, str]:
    return {"type": "http.disconnect"}


async def _refuse_websocket(scope: Scope, send: Send) -> None:
    """Refuse a WebSocket, with a reason if the server can send one."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1003})
        return
    answer = error_response(501, "no_websocket", "The proxy passes HTTP, not WebSockets.")
    start = {"status": answer.status_code, "headers": answer.raw_headers}
    await send({"type": "websocket.http.response.start", **start})
    await send({"type": "websocket.http.response.body", "body": answer.body})


def _address(upstream: str) -> tuple[str, bytes, str]:
    """A backend's scheme with its host and port, its path, and its host alone."""
    try:
        parts = urlsplit(upstream)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # an invalid port or IPv6 address
        is_address = False
    # The text before an @ may be a password, so the message leaves it out.
    shown = upstream.rpartition("@")[2]
    if not is_address:
        raise CallerError(f"{shown!r} is not the address of a backend; write http://host:port.")
    if parts.username is not None:
        raise CallerError(
            f"The address of {shown} has a name or a password in it. Leave them to the client, in "
            "its Authorization header: the proxy passes it on."
        )
    if parts.query or parts.fragment:
        raise CallerError(
            f"{shown!r} has a query or a fragment; remove it. Clients send their own."
        )
    path = parts.path.rstrip("/")
    return f"{parts.scheme}://{parts.netloc}", path.encode(), str(parts.hostname)


def _outward(url: str) -> httpcore2.Proxy:
    """The environment's proxy, with the name and password in its address."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    auth = None
    if parts.username is not None:
        auth = unquote(parts.username), unquote(parts.password or "")
    return httpcore2.Proxy(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", auth=auth)
