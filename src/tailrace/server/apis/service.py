"""The service itself: the inspector, its health, its numbers and its description."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tailrace.core.errors import NotFound
from tailrace.runtime.agents.agent import Agent
from tailrace.server import metrics
from tailrace.server.access.guard import json_response
from tailrace.server.apis.base import HttpApi
from tailrace.server.inspector import page_file, plain, wants_page
from tailrace.server.openapi import schemas
from tailrace.server.openapi.document import OBJECT, document, operation
from tailrace.wire.base import ShowsThreads, ThreadFormat

PAGE_FILES: dict[str, Any] = {
    media: {"type": "string"}
    for media in ("text/html", "text/css", "text/javascript", "image/svg+xml")
}


class ServiceApi(HttpApi):
    """What people and programs ask a server about itself."""

    inspector = True
    inspector_images: Sequence[str] = ()
    has_keys = False
    all_routes: list[Route]
    """The routes of every API of the server."""
    _documents: dict[str, Response] = {}
    _registry: Any = None

    def routes(self) -> list[Route]:
        """The routes of PROTOCOL.md, section 13, that read no run."""
        client_file = partial(self.page, folder="client/")
        return [
            Route("/", self.index, methods=["GET"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/ready", self.ready, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/openapi.json", self.openapi, methods=["GET"]),
            Route("/inspector/{file}", self.page, methods=["GET"]),
            Route("/inspector/client/{file}", client_file, methods=["GET"]),
        ]

    @operation(answers={200: {"text/plain": {"type": "string"}, "text/html": {"type": "string"}}})
    async def index(self, request: Request) -> Response:
        """The inspector in a browser; the list of routes elsewhere."""
        if self.inspector and wants_page(request):
            return page_file(request, "index.html", self.inspector_images)
        lines = [
            "Tailrace is running.",
            "",
            "GET  /health, /ready               liveness; readiness",
            "GET  /metrics                      numbers of this process for Prometheus",
            "GET  /agents                       the agents",
            'POST /runs {"agent": …, "input": …}  start a run',
            "GET  /runs/{id}                    the run as one object",
            "GET  /runs/{id}/events             the run as server-sent events",
            "GET  /threads/{id}/events          all its runs, and later runs as they start",
            f"     ?format={' | '.join(self.formats)}",
            "     ?after=CURSOR (or Last-Event-ID)  resume after an event",
            "     ?snapshot=true                the state so far, then the later events",
            "POST /runs/{id}/cancel             stop it",
            "POST /runs/{id}/input {…}          send it an answer",
            "GET  /blobs/{sha256}               a large output of a tool",
            "POST /v1/responses, GET /v1/responses/{id}, POST …/cancel   for OpenAI clients",
            "POST /v1/chat/completions                       for OpenAI's chat clients",
            "POST /v1/messages, /v1/messages/count_tokens    for Anthropic's clients",
            "POST /api/chat, GET /api/chat/{id}/stream       for the Vercel AI SDK",
        ]
        return plain(lines)

    @operation(answers={200: PAGE_FILES, 304: None})
    async def page(self, request: Request, folder: str = "") -> Response:
        """A file of the inspector."""
        if not self.inspector:
            raise NotFound("The inspector is disabled. Set `inspector` to true to see it.")
        return page_file(request, folder + request.path_params["file"], self.inspector_images)

    @operation(answers={200: schemas.Alive})
    async def health(self, _request: Request) -> Response:
        """Liveness: the process answers, whatever the store does."""
        return json_response({"status": "ok"})

    @operation(answers={200: schemas.Ready, 503: schemas.Ready})
    async def ready(self, _request: Request) -> Response:
        """Readiness: runs are accepted, and the store can be read and written.

        A bus that is away costs only time.
        """
        checks = {"store": self.runs.store.check(), "bus": self.runs.bus.check()}
        found = await asyncio.gather(*checks.values(), return_exceptions=True)
        states = ["ok" if failure is None else "away" for failure in found]
        if self.runs.outage.is_full:
            states[0] = "away"
        ready = states[0] == "ok" and self.runs.accepts_runs
        body = {
            "status": "ready" if ready else "not_ready",
            **dict(zip(checks, states, strict=True)),
        }
        response = json_response(body, 200 if ready else 503)
        if not ready:
            response.headers["retry-after"] = "1"
        return response

    @operation(answers={200: {"text/plain": {"type": "string"}}})
    async def metrics(self, request: Request) -> Response:
        """The numbers of this process in the text format of Prometheus.

        They have no names of runs, threads or principals. It needs the extra `metrics`.
        """
        if self._registry is None:
            self._registry = metrics.registry(self.runs, self.connections)
        body, media_type = metrics.page(self._registry, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": media_type, "cache-control": "no-store"})

    @operation(answers={200: OBJECT})
    async def openapi(self, request: Request) -> Response:
        """Every route of the server as OpenAPI 3.1, with the schema of every event."""
        root = request.scope.get("root_path", "")
        if root not in self._documents:
            made = await asyncio.to_thread(document, self.all_routes, root=root, keys=self.has_keys)
            self._name_formats(made["paths"])
            self._name_agents(made["components"]["schemas"])
            self._documents = {root: json_response(made)}
        return self._documents[root]

    def _name_formats(self, paths: dict[str, Any]) -> None:
        """List the formats of this server, where a request names a format."""
        kinds: dict[str, type[Any]] = {
            "/threads/{thread_id}": ShowsThreads,
            "/threads/{thread}/events": ThreadFormat,
        }
        for path, operations in paths.items():
            kind = kinds.get(path, object)
            names = [name for name, wire in self.formats.items() if isinstance(wire, kind)]
            for described in operations.values():
                for parameter in described.get("parameters", ()):
                    if parameter["name"] == "format":
                        parameter["schema"]["enum"] = names

    def _name_agents(self, parts: dict[str, Any]) -> None:
        """List the agents of this server, where a request names an agent."""
        agents = self.runs.agents
        models = [name for name, agent in agents.items() if isinstance(agent, Agent)]
        for part, names in (("AgentName", list(agents)), ("ModelAgentName", models)):
            if names:
                parts[part]["enum"] = sorted(names)
