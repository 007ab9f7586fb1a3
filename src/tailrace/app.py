"""The composition root: the only file that names concrete adapters.

app = Tailrace(agents={"assistant": assistant}, database="sqlite:///tailrace.db")   # it speaks ASGI
async with app.running():                                                           # or in-process
    run_id = await app.runs.start("assistant", "Is it sunny in Paris?")
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.types import Receive, Scope, Send

from tailrace.buses.local import LocalBus
from tailrace.runtime.runs import Agent, Runs
from tailrace.server.routes import LOOPBACK, Server
from tailrace.stores import open_store
from tailrace.wire import openai_responses, task, vercel_ui
from tailrace.wire.base import Format

FORMATS: Mapping[str, Format] = {
    wire.name: wire for wire in (task.FORMAT, openai_responses.FORMAT, vercel_ui.FORMAT)
}


class Tailrace:
    """Agents, a log and a server, put together; an ASGI application.

    `database` is a file's path or an URL: `sqlite:///file.db`, `sqlite://:memory:`,
    `postgresql://user@host/name`.
    """

    def __init__(
        self,
        agents: Mapping[str, Agent],
        database: str | Path = "tailrace.db",
        *,
        hosts: frozenset[str] = LOOPBACK,
    ) -> None:
        self.agents = agents
        self.database = database
        self.hosts = hosts
        self._runs: Runs | None = None
        self._server: Server | None = None

    @property
    def runs(self) -> Runs:
        """The runs, while the application is running."""
        if self._runs is None:
            raise RuntimeError("Not running: use `async with app.running()`, or serve it.")
        return self._runs

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the log, and on the way out stop what runs and close it."""
        self._runs = Runs(
            await open_store(self.database),
            LocalBus(),
            self.agents,
            new_id=lambda: secrets.token_hex(8),
            now=time.time,
        )
        self._server = Server(self._runs, FORMATS, self.hosts)
        try:
            yield
        finally:
            await self._runs.close()
            self._runs = self._server = None

    def stop_streams(self) -> None:
        """End every open stream, so that a server can stop; clients come back with their cursor."""
        if self._server is not None:
            self._server.stopping.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Speak ASGI."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif self._server is not None:
            await self._server.app(scope, receive, send)
        else:
            raise RuntimeError("Not running: the server must send the lifespan events.")

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            async with self.running():
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.shutdown.complete"})
