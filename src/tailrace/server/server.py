"""The server: every API behind one guard."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.runtime.runs.all_runs import Runs
from tailrace.server.access.admission import Access
from tailrace.server.access.auth import Authenticate
from tailrace.server.access.guard import LOOPBACK, Guard
from tailrace.server.access.limits import ServerLimits
from tailrace.server.access.tickets import Tickets
from tailrace.server.access_log import AccessLog
from tailrace.server.apis.ag_ui import AgUiApi
from tailrace.server.apis.anthropic_messages import MessagesApi
from tailrace.server.apis.base import HttpApi
from tailrace.server.apis.native import NativeApi
from tailrace.server.apis.openai_chat import CompletionsApi
from tailrace.server.apis.openai_responses import ResponsesApi
from tailrace.server.apis.service import ServiceApi
from tailrace.server.apis.vercel_ui import ChatApi
from tailrace.server.router import Router
from tailrace.server.streams.abandoned import ABANDONED_SECONDS, AbandonedRuns
from tailrace.server.transport.connections import Connections
from tailrace.wire.base import Format

APIS: tuple[type[HttpApi], ...] = (
    ServiceApi,
    NativeApi,
    ResponsesApi,
    CompletionsApi,
    MessagesApi,
    ChatApi,
    AgUiApi,
)


class Server:
    """The HTTP APIs of the runs of one store."""

    def __init__(
        self,
        runs: Runs,
        formats: Mapping[str, Format],
        hosts: frozenset[str] = LOOPBACK,
        origins: frozenset[str] = frozenset(),
        *,
        inspector: bool = True,
        inspector_images: frozenset[str] = frozenset(),
        abandoned_seconds: float = ABANDONED_SECONDS,
        auth: Authenticate | None = None,
        limits: ServerLimits | None = None,
        secret: str | None = None,
    ) -> None:
        self.connections = Connections()
        self._abandoned = AbandonedRuns(runs, abandoned_seconds)
        apis = [api(formats, self.connections) for api in APIS]
        tickets = Tickets(secret)
        for api in apis:
            api.abandoned = self._abandoned
            if isinstance(api, ServiceApi):
                api.inspector = inspector
                api.inspector_images = sorted(inspector_images)
            if isinstance(api, NativeApi):
                api.tickets = tickets
        self.routes = [route for api in apis for route in api.routes()]
        for api in apis:
            if isinstance(api, ServiceApi):
                api.all_routes, api.has_keys = self.routes, auth is not None
        access = Access(runs, auth, limits, tickets)
        sockets = {path: make for api in apis for path, make in api.sockets().items()}
        requests = runs.metrics.requests
        router = Router(self.routes, access.enter, sockets, requests)
        self.app = AccessLog(Guard(router, hosts, origins=origins, requests=requests))

    def stop(self) -> None:
        """End all streams, and leave the runs to other servers."""
        self._abandoned.stop()
        self.connections.stop()
