"""Finds the handler of a request, and sends the response that it returns.

Starlette's own application would keep a dozen frames in memory under each open stream, and every
chunk would pass through them. Here a response is sent after its handler has returned.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tailrace.core.errors import NotFound, TailraceError
from tailrace.core.ids import check_id
from tailrace.runtime.diagnostics.log_fields import about_run
from tailrace.runtime.event_log.store_retry import within
from tailrace.runtime.tasks.blobs import BLOB_PATH
from tailrace.server.access.guard import INTERNAL, STORE_SECONDS, deny, error_response, failure
from tailrace.server.mount import prefixed

Handler = Callable[[Request], Awaitable[ASGIApp]]
Admit = Callable[[HTTPConnection, str | None], Awaitable[None]]

logger = logging.getLogger("tailrace")


class Router:
    """Sends each request to the handler of its path and method. `/runs/` is the same as `/runs`."""

    def __init__(
        self,
        routes: Sequence[Route],
        enter: Admit | None = None,
        sockets: Mapping[str, Callable[[], ASGIApp]] | None = None,
        requests: Counter[tuple[str, str, int]] | None = None,
    ) -> None:
        """`enter` is awaited before a request is answered, and raises an error to refuse it.

        `sockets` make the handler of each WebSocket, by path. `requests` counts the answers by
        method, route and status. No route begins with a parameter.
        """
        self._routes: dict[str, list[Route]] = {}
        for route in routes:
            self._routes.setdefault(_first_segment(route.path), []).append(route)
        self._sockets = sockets or {}
        self._requests = requests if requests is not None else Counter()
        self._enter = enter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        root = scope.get("root_path", "")
        if scope["type"] == "websocket":
            await self._connect(scope, receive, prefixed(root, send) if root else send)
            return
        # Other tasks get a turn before each request. Short reads of a store never wait. So a client
        # in the same process that asks again and again, as in tests, would keep the event loop.
        await asyncio.sleep(0)
        with within(STORE_SECONDS):
            route, response = await self._response(scope, receive)
        if root and not scope["path"].removeprefix(root).startswith(BLOB_PATH):
            send = prefixed(root, send)
        try:
            await response(scope, receive, send)
        finally:
            # Other methods and paths are what clients make up: without end.
            method = scope["method"] if route else ""
            self._requests[method, route, getattr(response, "status_code", 200)] += 1

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a WebSocket to its handler, after the same checks as for a request."""
        path = scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/")
        connect = self._sockets.get(path)
        with within(STORE_SECONDS):
            answer = await self._admitted(HTTPConnection(scope), path if connect else None)
        if answer is None and connect is None:
            answer = error_response(404, NotFound.code, f"There is no WebSocket at {path}.")
        elif answer is None and connect is not None:
            try:
                handler = connect()
            except TailraceError as error:
                answer = failure(error)
            else:
                await handler(scope, receive, send)
        if answer is not None:
            await deny(answer, scope, receive, send)

    async def _response(self, scope: Scope, receive: Receive) -> tuple[str, ASGIApp]:
        """The path of the request's route, "" for none, and the response."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if len(path) > 1 and path.endswith("/"):
            scope = {**scope, "path": scope["path"].rstrip("/")}
        allowed: set[str] = set()
        named: set[str] = set()  # of a route without parameters, which such a path belongs to
        missed: str | None = None  # a route that takes other methods only
        for route in self._routes.get(_first_segment(path), ()):
            match, found = route.matches(scope)
            if match is Match.FULL:
                request = Request({**scope, **found}, receive)
                refused = await self._admitted(request, route.path)
                return route.path, refused or await _call(route.endpoint, request)
            if match is Match.PARTIAL:
                missed = missed or route.path
                allowed |= route.methods or set()
                if not route.param_convertors:
                    named |= route.methods or set()
        if (refused := await self._admitted(Request(scope), missed)) is not None:
            return "", refused
        if not allowed:
            message = f"There is nothing at {path}; GET / lists the routes."
            return "", error_response(404, NotFound.code, message)
        methods = ", ".join(sorted(named or allowed))
        message = f"{path} does not take {scope['method']}; use {methods}."
        if (other := _ELSEWHERE.get((scope["method"], missed or ""))) is not None:
            message += f" {other}"
        response = error_response(405, "method_not_allowed", message)
        response.headers["allow"] = methods
        return "", response

    async def _admitted(self, request: HTTPConnection, route: str | None) -> Response | None:
        """None for a request that may pass, else its answer."""
        if self._enter is not None:
            try:
                await self._enter(request, route)
            except TailraceError as error:
                return failure(error)
        return None


_ELSEWHERE = {("GET", "/runs"): "GET /threads lists the threads with their newest run."}
"""What other routes do that clients look for at these."""


def _first_segment(path: str) -> str:
    return path[1:].partition("/")[0]


async def _call(handler: Handler, request: Request) -> ASGIApp:
    """The handler's response, or the response to the error that it raised."""
    try:
        for param, value in request.path_params.items():
            check_id(value, param)
        return await handler(request)
    except TailraceError as error:
        return failure(error)
    except ClientDisconnect:
        return Response(status_code=400)  # the client left while it sent the request
    except Exception:
        named = request.path_params
        logger.exception(
            "%s %s failed",
            *(request.method, request.url.path),
            extra=about_run(named.get("run_id", ""), thread=named.get("thread_id", "")),
        )
        return error_response(500, "internal", INTERNAL)
