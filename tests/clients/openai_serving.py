"""A small server of written-out runs, by the format's own `at`, `resume` and `response_object`.

It has the routes of the real one and nothing behind them, so that a test of a client is a test of
the frames alone.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tailrace.core.events import AnyEvent
from tailrace.core.fold import State
from tailrace.testing.wire_kit import as_recorded
from tailrace.wire.openai_responses import FORMAT, response_object
from tests.wire.openai_scripts import Script


def folded(events: list[AnyEvent]) -> State:
    state = State()
    for event in events:
        state.absorb(event)
    return state


def frames_after(events: list[AnyEvent], cursor: str | None) -> Iterator[bytes]:
    """What the real server sends: everything, or the rest after a cursor."""
    recorded = as_recorded(events)
    encoder, after = FORMAT.at(State()), 0
    left: list[bytes] = []
    if cursor is not None:
        place = FORMAT.in_run(FORMAT.cursor(cursor), events[0].task_id)
        after = place.seq
        before = folded(events[: after - 1])
        encoder, left = FORMAT.resume(before, recorded[after - 1], place)
    yield from left
    for one in recorded[after:]:
        yield from encoder.encode(one)


class Serving:
    """Serves scripts by name: the `model` of a request, and its response's id."""

    def __init__(self) -> None:
        self.scripts: dict[str, list[AnyEvent]] = {}
        self.requests: list[dict[str, Any]] = []
        routes = [
            Route("/v1/responses", self._create, methods=["POST"]),
            Route("/v1/responses/{id}", self._retrieve),
        ]
        config = uvicorn.Config(Starlette(routes=routes), port=0, log_level="warning", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            self._thread.join(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.base_url = f"http://127.0.0.1:{port}/v1"

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()

    def add(self, script: Script) -> str:
        """Serve a run; the model to ask for."""
        name = f"script-{len(self.scripts)}"
        self.scripts[name] = script.events
        self.scripts[response_object(script.state)["id"]] = script.events
        return name

    async def _create(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        events = self.scripts[body["model"]]
        if body.get("stream"):
            return self._stream(events, None)
        return JSONResponse(response_object(folded(events)))

    async def _retrieve(self, request: Request) -> Response:
        events = self.scripts[request.path_params["id"]]
        if request.query_params.get("stream") == "true":
            return self._stream(events, request.query_params.get("starting_after"))
        return JSONResponse(response_object(folded(events)))

    def _stream(self, events: list[AnyEvent], cursor: str | None) -> Response:
        async def chunks() -> Any:
            yield FORMAT.heartbeat
            for frame in frames_after(events, cursor):
                yield frame
                yield FORMAT.heartbeat
                await asyncio.sleep(0)

        return StreamingResponse(chunks(), media_type="text/event-stream")


def plain(value: Any) -> Any:
    """A value as JSON has it, to compare what two languages hold."""
    return json.loads(json.dumps(value))
