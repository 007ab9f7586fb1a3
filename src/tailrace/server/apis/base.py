"""What the APIs share: the runs, a run as one object, a run as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route
from starlette.types import ASGIApp

from tailrace.core.fold import State
from tailrace.core.json_pieces import encoded
from tailrace.runtime.offload import LARGE_BYTES, Parts, build
from tailrace.runtime.runs import Runs
from tailrace.runtime.store_retry import within
from tailrace.server import request_fields
from tailrace.server.abandoned import AbandonableStream, AbandonedRuns
from tailrace.server.access import visit
from tailrace.server.guard import json_response
from tailrace.server.resume_point import ResumePoint
from tailrace.server.run_stream import RunStream
from tailrace.server.sse_response import (
    Connections,
    LargeJsonResponse,
    SseResponse,
    WaitingRequest,
    client_left,
)
from tailrace.wire.base import Format


class HttpApi:
    """An API of the server: `routes` are what it answers."""

    abandoned: AbandonedRuns
    """Cancels runs without clients, for formats without a way back."""

    def __init__(self, formats: Mapping[str, Format], connections: Connections) -> None:
        self.formats = formats
        self.connections = connections

    @property
    def runs(self) -> Runs:
        """The runs that belong to the sender of the current request; others do not exist."""
        return visit.get().runs

    def routes(self) -> list[Route]:
        """The routes of this API."""
        raise NotImplementedError

    def sockets(self) -> dict[str, Callable[[], ASGIApp]]:
        """The WebSockets of this API: what makes the handler of each, by path."""
        return {}

    def agent(self, body: dict[str, Any], field: str = "model") -> str:
        """The name of the agent in a request; `NotFound` with the field for an unknown agent."""
        name = request_fields.text(body, field, "name one of GET /agents")
        self.runs.check_agent(name, field)
        return name

    async def object(
        self, run_id: str, view: Callable[..., dict[str, Any]], *which: int
    ) -> ASGIApp:
        """The run as one object. Requests at the same time share the bytes of a large run.

        `which` names a part of the run, for a view that needs it.
        """
        look = await self.runs.look(run_id)
        if look.weight <= LARGE_BYTES:
            return json_response(view(look.state, *which))
        key = (run_id, view.__name__, look.state.sequence_number, *which)
        make = partial(build, look.weight, lambda: Parts(encoded(view(look.state, *which))))
        return LargeJsonResponse(await self.runs.streams.answers.get(key, make))

    def stream(
        self,
        wire: Format,
        run_id: str,
        point: ResumePoint | None = None,
        *,
        snapshot: bool = False,
    ) -> SseResponse:
        """The run as a stream, from its start, after a cursor or with a snapshot."""
        return self.connections.response(
            RunStream(self.runs, wire, run_id, point, snapshot=snapshot)
        )

    async def ended(self, run_id: str) -> None:
        """Wait for the end of a run, however long it takes; `Stopping` if the server stops."""
        await self.until(self._followed(run_id))

    async def until(self, end: Awaitable[None]) -> None:
        """Wait for this, however long it takes; `Stopping` if the server stops."""
        with within(None):
            await WaitingRequest(self.connections).until(end)

    async def _followed(self, run_id: str) -> None:
        async for _ in self.runs.follow(run_id):
            pass


class OneWayApi(HttpApi):
    """An API without a way back: a run that its client leaves is cancelled after a while."""

    def only_stream(self, wire: Format, run_id: str) -> SseResponse:
        """The run as the stream of its only client."""
        return self.connections.response(AbandonableStream(self.runs, wire, run_id, self.abandoned))

    async def answer(
        self, request: Request, run_id: str, view: Callable[[State], dict[str, Any]]
    ) -> ASGIApp:
        """The run as one object, at its end; status 500 for an object with an `error`."""
        await self._ended_or_left(request, run_id)
        look = await self.runs.look(run_id)
        made = await build(look.weight, lambda: view(look.state))
        if "error" in made:
            failed = json_response(made, 500)
            # The SDKs would start another run.
            failed.headers["x-should-retry"] = "false"
            return failed
        if look.weight <= LARGE_BYTES:
            return json_response(made)
        return LargeJsonResponse(await build(look.weight, lambda: Parts(encoded(made))))

    async def _ended_or_left(self, request: Request, run_id: str) -> None:
        end = asyncio.ensure_future(self.ended(run_id))
        left = asyncio.ensure_future(client_left(request.receive))
        try:
            await asyncio.wait((end, left), return_when=asyncio.FIRST_COMPLETED)
            if not end.done():
                raise ClientDisconnect
            await end
        finally:
            for waiting in (end, left):
                waiting.cancel()
            await asyncio.gather(end, left, return_exceptions=True)
            self.abandoned.left(run_id)
