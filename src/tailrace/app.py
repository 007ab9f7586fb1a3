"""The composition root: the only file that names concrete adapters.

app = Tailrace(agents={"assistant": assistant}, database="sqlite:///tailrace.db")   # it speaks ASGI
async with app.running():                                                           # or in-process
    run_id = await app.runs.start("assistant", "Is it sunny in Paris?")
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from starlette.types import Receive, Scope, Send

from tailrace.buses import mirror_of, open_bus
from tailrace.core.errors import CallerError, TailraceError
from tailrace.extensions import Opener, store_opener, with_formats
from tailrace.ports import MAX_ATTEMPTS, Store
from tailrace.runtime.agents import Agent, check_agents
from tailrace.runtime.retention import FOREVER
from tailrace.runtime.runs import Runs
from tailrace.runtime.worker import LEASE_SECONDS
from tailrace.server.door import LOOPBACK, failure
from tailrace.server.origins import checked_hosts, checked_origins
from tailrace.server.routes import Server
from tailrace.server.signals import on_stop_signal
from tailrace.wire.base import Format


class Tailrace:
    """Agents, a log and a server, put together; an ASGI application.

    `database` is a file's path or an URL: `sqlite:///file.db`, `sqlite://:memory:`,
    `postgresql://user@host/name`; without it, the file `tailrace.db`. `store` is a store of your
    own instead, or an async function that opens it; it is closed when the application stops.
    `formats` are wire formats besides ours.

    `bus` is how processes that share a database tell each other of news, `redis://host` (with
    `?mirror=true` it also has the runs in the `run` format, for readers of Redis); without one they
    look into the database several times a second. With `worker=False` this process starts runs and
    streams them, and others work on them.

    `keep_events` is how long after its end a run is kept with all its events; after that only its
    final state is, and after `keep_runs` nothing. Both are for ever unless said otherwise.

    `lease` is how long a run stays with a worker that is not heard of. A run that `max_attempts`
    workers have lost is ended as failed. `grace` is how long runs may take to finish when the
    application stops.

    `hosts` are the names that the server answers for, instead of `localhost`. `origins` are the web
    pages that may call it from another origin, such as `http://localhost:3000`; there are none by
    default.

    Mounted into another application, it starts with the first request and stops with the event
    loop, unless that application's lifespan enters `running()`.
    """

    def __init__(
        self,
        agents: Mapping[str, Agent],
        database: str | Path | None = None,
        *,
        store: Store | Opener | None = None,
        formats: Sequence[Format] = (),
        bus: str | None = None,
        worker: bool = True,
        keep_events: timedelta | None = None,
        keep_runs: timedelta | None = None,
        lease: timedelta = timedelta(seconds=LEASE_SECONDS),
        max_attempts: int = MAX_ATTEMPTS,
        grace: timedelta = timedelta(seconds=30),
        hosts: Iterable[str] = LOOPBACK,
        origins: Iterable[str] = (),
    ) -> None:
        check_agents(agents)
        if lease < timedelta(seconds=1) or max_attempts < 1:
            raise CallerError("`lease` must be at least 1 s, and `max_attempts` at least 1.")
        if grace < timedelta(0):
            raise CallerError("`grace` must not be negative.")
        self.agents = agents
        self._open_store = store_opener(database, store)
        self._formats = with_formats(formats)
        self.bus = bus
        self.worker = worker
        self.keep(keep_events, keep_runs)
        self.lease = lease
        self.max_attempts = max_attempts
        self.grace = grace
        self.hosts = checked_hosts(hosts)
        self.origins = checked_origins(origins)
        self._runs: Runs | None = None
        self._server: Server | None = None
        self._starting: asyncio.Future[Server]
        self._hosting: asyncio.Task[None] | None = None

    @property
    def runs(self) -> Runs:
        """The runs, while the application is running."""
        if self._runs is None:
            raise RuntimeError("Not running: use `async with app.running()`, or serve it.")
        return self._runs

    def keep(self, events: timedelta | None, runs: timedelta | None) -> None:
        """Set how long ended runs keep their events, and how long they are kept at all."""
        if any(kept is not None and kept < timedelta(0) for kept in (events, runs)):
            raise CallerError("`keep_events` and `keep_runs` must not be negative.")
        if events is not None and runs is not None and runs < events:
            raise CallerError(
                f"`keep_runs` ({runs}) is shorter than `keep_events` ({events}): a deleted run "
                "keeps no events. Make `keep_runs` at least as long."
            )
        self.keep_events = events
        self.keep_runs = runs

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the store and the bus, and on the way out stop what runs and close them.

        A stop signal drains at once, because servers wait for open streams before they leave this
        block. A second signal ends the wait.
        """
        store = await self._open_store()
        try:
            bus = await open_bus(self.bus)
        except BaseException:
            await store.close()
            raise
        self._runs = runs = Runs(
            store,
            bus,
            self.agents,
            new_id=lambda: secrets.token_hex(8),
            now=time.time,
            worker=self.worker,
            lease=self.lease.total_seconds(),
            max_attempts=self.max_attempts,
            keep_events=_seconds(self.keep_events),
            keep_runs=_seconds(self.keep_runs),
            mirror=mirror_of(bus),
        )
        self._server = Server(runs, self._formats, self.hosts, self.origins)
        runs.open()
        loop = asyncio.get_running_loop()
        stopping: list[asyncio.Task[None]] = []

        def stop() -> None:
            if stopping:
                self.hurry()
            else:
                stopping.append(loop.create_task(self.drain()))

        with on_stop_signal(lambda: loop.call_soon_threadsafe(stop)):
            try:
                yield
            finally:
                await self.drain()
                await asyncio.gather(*stopping)
                await runs.close()
                self._runs = self._server = None

    async def drain(self) -> None:
        """Accept no new runs, let the running ones finish for `grace`, then end all streams.

        Restartable runs that are left over are released to other workers; the others end as failed
        (`interrupted`).
        """
        if self._runs is not None and self._server is not None:
            await self._runs.drain(self.grace.total_seconds())
            await self._server.connections.settle()
            self.stop_streams()

    def hurry(self) -> None:
        """End the wait of `drain` at once."""
        if self._runs is not None and self._runs.worker is not None:
            self._runs.worker.hurry()

    def stop_streams(self) -> None:
        """End every open stream, so that a server can stop; clients come back with their cursor."""
        if self._server is not None:
            self._server.connections.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Speak ASGI."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        try:
            server = self._server or await self._started()
        except TailraceError as error:
            await failure(error)(scope, receive, send)
            return
        await server.app(scope, receive, send)

    async def _started(self) -> Server:
        """Start for a host that sends no lifespan; requests that come meanwhile wait for it."""
        if self._hosting is None or self._hosting.done():
            self._starting = asyncio.get_running_loop().create_future()
            self._hosting = asyncio.create_task(self._host(self._starting))
        return await asyncio.shield(self._starting)

    async def _host(self, starting: asyncio.Future[Server]) -> None:
        """Run until the event loop ends, which cancels this task."""
        try:
            async with self.running():
                assert self._server is not None
                starting.set_result(self._server)
                await asyncio.Event().wait()
        except Exception as error:
            if starting.done():
                raise
            starting.set_exception(error)

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


def _seconds(kept: timedelta | None) -> float:
    return FOREVER if kept is None else kept.total_seconds()
