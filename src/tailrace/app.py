"""The composition root: the only file that names concrete adapters.

app = Tailrace(agents={"assistant": assistant}, database="sqlite:///tailrace.db")   # it speaks ASGI
async with app.running():                                                           # or in-process
    run = await app.start("assistant", "Is it sunny in Paris?")
    print((await run.result()).text)
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.types import Receive, Scope, Send

from tailrace.app_arguments import bus_opener, check_auth, store_opener, with_formats
from tailrace.buses import mirror_of
from tailrace.core.errors import CallerError, TailraceError
from tailrace.models import open_model
from tailrace.ports.bus import Bus, OpenBus
from tailrace.ports.store import OpenStore, Store
from tailrace.runtime.agents.agent import Agent
from tailrace.runtime.agents.busy_thread import BusyThread, check_busy_thread
from tailrace.runtime.agents.functions import AgentFunction, named_agents
from tailrace.runtime.agents.unknown_keywords import checks_names
from tailrace.runtime.event_log.retention import FOREVER
from tailrace.runtime.runs.all_runs import Runs
from tailrace.runtime.runs.run import Run
from tailrace.server.access.auth import ApiKeys, Authenticate
from tailrace.server.access.guard import failure
from tailrace.server.access.limits import ServerLimits
from tailrace.server.access.origins import checked_hosts, checked_origins
from tailrace.server.metrics import registry, served
from tailrace.server.server import Server
from tailrace.server.signals import on_stop_signal
from tailrace.server.streams.run_stream import run_frames
from tailrace.settings import Settings, read_settings
from tailrace.wire.base import Format
from tailrace.wire.formats import format_named


class Tailrace:
    """Agents, a log and a server, put together; an ASGI application.

    `agents` are named by a mapping, or listed: then functions are named by their `__name__`, and
    objects by their `name`.

    `store` is a store of your own instead of `database`, or an async function that opens it; it is
    closed when the application stops. `bus` may also be a bus of your own. `formats` are wire
    formats of your own, beside ours.

    `auth` finds the sender of a request: `ApiKeys("keys.json")`, or a function that takes the
    request and returns a `Principal`, or None to refuse it. Runs belong to the principal
    that started them; they do not exist for others. `limits` is what each principal may use
    (`ServerLimits`).

    The other parameters are settings; docs/reference/settings.md explains them. A setting that is
    left out comes from its variable (`TAILRACE_DATABASE`), from the file `tailrace.toml`, or is the
    default.

    Mounted into another application, it starts with the first request and stops with the event
    loop, unless that application's lifespan enters `running()`.
    """

    @checks_names
    def __init__(
        self,
        agents: Mapping[str, AgentFunction] | Iterable[AgentFunction],
        database: str | Path | None = None,
        *,
        store: Store | OpenStore | None = None,
        formats: Sequence[Format] = (),
        bus: str | Bus | OpenBus | None = None,
        worker: bool | UnsetType = UNSET,
        keep_events: timedelta | UnsetType | None = UNSET,
        keep_runs: timedelta | UnsetType | None = UNSET,
        lease: timedelta | UnsetType = UNSET,
        max_attempts: int | UnsetType = UNSET,
        max_runs: int | UnsetType = UNSET,
        grace: timedelta | UnsetType = UNSET,
        hosts: Iterable[str] | UnsetType = UNSET,
        origins: Iterable[str] | UnsetType = UNSET,
        inspector: bool | UnsetType = UNSET,
        inspector_images: Iterable[str] | UnsetType = UNSET,
        cancel_abandoned: timedelta | UnsetType | None = UNSET,
        auth: Authenticate | None = None,
        keys: str | Path | None = None,
        limits: ServerLimits | None = None,
        secret: str | None = None,
        busy_thread: BusyThread | UnsetType = UNSET,
        database_replica: str | None = None,
        database_connections: int | UnsetType = UNSET,
    ) -> None:
        self.agents = named_agents(agents)
        """The agents, by their names."""
        self._open_models()
        self._formats = with_formats(formats)
        self._store = store
        check_auth(auth)
        self._given_auth = auth
        given: dict[str, Any] = {
            "worker": worker,
            "keep_events": keep_events,
            "keep_runs": keep_runs,
            "lease": lease,
            "max_attempts": max_attempts,
            "max_runs": max_runs,
            "grace": grace,
            "hosts": hosts,
            "origins": origins,
            "inspector": inspector,
            "inspector_images": inspector_images,
            "cancel_abandoned": cancel_abandoned,
            "busy_thread": busy_thread,
            "database_connections": database_connections,
        }
        # None leaves these to the variable or the file.
        named = {"database": database, "bus": bus, "keys": keys, "secret": secret or None}
        named["database_replica"] = database_replica
        given |= {name: UNSET if value is None else value for name, value in named.items()}
        if limits is not None:
            given |= {
                f"limits.{name}": value for name, value in msgspec.to_builtins(limits).items()
            }
        self._configure(
            read_settings({name: value for name, value in given.items() if value is not UNSET})
        )
        self._opened: Runs | None = None
        self._server: Server | None = None
        self._starting: asyncio.Future[Server]
        self._hosting: asyncio.Task[None] | None = None

    def _configure(self, settings: Settings) -> None:
        """Use these settings from the next start on; a wrong value is a `CallerError`."""
        _check(settings)
        self._settings = settings
        # A store of the user's replaces a database that only a variable or a file names.
        database = settings["database"]
        if self._store is not None and settings.origin("database") not in ("code", "flag"):
            database = None
        self._open_store = store_opener(
            database,
            self._store,
            replica=settings["database_replica"],
            connections=settings["database_connections"],
        )
        self._open_bus = bus_opener(settings["bus"])
        self._worker: bool = settings["worker"]
        self._hosts = checked_hosts(settings["hosts"])
        self._origins = checked_origins(settings["origins"])
        images = settings["inspector_images"]
        self._inspector_images = checked_origins(images, "inspector_images")
        self._auth = self._given_auth
        if settings["keys"] and (self._auth is None or settings.origin("keys") == "flag"):
            self._auth = ApiKeys(settings["keys"])
        self._limits = ServerLimits(
            **{name: settings[f"limits.{name}"] for name in ServerLimits.__struct_fields__}
        )

    @property
    def _runs(self) -> Runs:
        """The runs, while the application is running."""
        if self._opened is None:
            raise CallerError("Not running: use `async with app.running()`, or serve it.")
        return self._opened

    async def start(
        self,
        agent: str,
        input: Any = None,
        *,
        thread: str | None = None,
        previous_run: str | msgspec.UnsetType | None = msgspec.UNSET,
        previous_seq: int | None = None,
        run_id: str | None = None,
        options: Any = None,
        metadata: Any = None,
        store: bool = True,
        owner: str = "",
    ) -> Run:
        """Start a run; it is stored before this returns.

        The run continues `previous_run`, and so is in its thread. With `thread` alone it continues
        the newest run of that thread; `previous_run=None` begins a conversation. `previous_seq`
        forks the previous run: the new run continues it as it was after this event. With
        `store=False` the run is deleted a minute after its end. `owner` is the id of the principal
        that sees it; without `auth` leave it empty.
        """
        info = await self._runs.create(
            agent,
            input,
            thread_id=thread,
            previous_run_id=previous_run,
            previous_seq=previous_seq,
            run_id=run_id,
            options=options,
            metadata=metadata,
            owner=owner,
            forget=not store,
        )
        return Run(self._runs, info.run_id, info.thread_id, self._frames)

    async def run(self, run_id: str) -> Run:
        """Return the run with this id, or raise `NotFound`."""
        info = await self._runs.info(run_id)
        return Run(self._runs, run_id, info.thread_id, self._frames)

    def _frames(self, run_id: str, name: str, after: str | None) -> AsyncGenerator[bytes, None]:
        wire = format_named(self._formats, name)
        cursor = wire.cursor(after) if after is not None else None
        return run_frames(self._runs, wire, run_id, cursor)

    def _open_models(self) -> None:
        for agent in self.agents.values():
            if isinstance(agent, Agent):
                agent._open_models(open_model)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the store and the bus, and on the way out stop what runs and close them.

        A stop signal drains at once, because servers wait for open streams before they leave this
        block. A second signal ends the wait.
        """
        self._open_models()
        store = await self._open_store()
        try:
            bus = await self._open_bus()
        except BaseException:
            await store.close()
            raise
        runs, self._server = self._built(store, bus)
        self._opened = runs
        loop = asyncio.get_running_loop()
        stopping: list[asyncio.Task[None]] = []

        def stop() -> None:
            if stopping:
                self._hurry()
            else:
                stopping.append(loop.create_task(self.drain()))

        with on_stop_signal(lambda: loop.call_soon_threadsafe(stop)):
            try:
                runs.open()
                yield
            finally:
                await self.drain()
                await asyncio.gather(*stopping, return_exceptions=True)
                await runs.close()
                for agent in self.agents.values():
                    if isinstance(agent, Agent):
                        await agent._close()  # noqa: SLF001
                self._opened = self._server = None

    def _built(self, store: Store, bus: Bus) -> tuple[Runs, Server]:
        """The runs of a store, and their HTTP APIs."""
        settings = self._settings
        runs = Runs(
            store,
            bus,
            self.agents,
            new_id=lambda: secrets.token_hex(8),
            now=time.time,
            worker=self._worker,
            lease=settings["lease"].total_seconds(),
            max_attempts=settings["max_attempts"],
            max_runs=settings["max_runs"],
            keep_events=_seconds(settings["keep_events"]),
            keep_runs=_seconds(settings["keep_runs"]),
            mirror=mirror_of(bus),
            busy_thread=settings["busy_thread"],
        )
        server = Server(
            runs,
            self._formats,
            self._hosts,
            self._origins,
            inspector=settings["inspector"],
            inspector_images=self._inspector_images,
            abandoned_seconds=_seconds(settings["cancel_abandoned"]),
            auth=self._auth,
            limits=self._limits,
            secret=settings["secret"],
        )
        return runs, server

    @contextmanager
    def _metrics(self) -> Iterator[str | None]:
        """Show the numbers of this process at the address of the setting `metrics`; its URL."""
        if self._settings["metrics"] is None or self._server is None:
            yield None
            return
        found = registry(self._runs, self._server.connections)
        with served(found, *self._settings["metrics"]) as url:
            yield url

    async def drain(self) -> None:
        """Accept no new runs, let the others finish for `grace`, then end all streams.

        Restartable runs that are left over are released to other workers; the others end as failed
        (`interrupted`).
        """
        if self._opened is not None and self._server is not None:
            await self._opened.drain(self._settings["grace"].total_seconds())
            await self._server.connections.settle()
            self._server.stop()

    def _hurry(self) -> None:
        """End the wait of `drain` at once."""
        if self._opened is not None and self._opened.worker is not None:
            self._opened.worker.hurry()

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


def _check(settings: Settings) -> None:
    """Raise `CallerError` for durations and numbers that make no sense."""
    if settings["lease"] < timedelta(seconds=1) or settings["max_attempts"] < 1:
        raise CallerError(
            f"`lease` is {settings['lease']} and `max_attempts` is {settings['max_attempts']}; "
            "they must be at least 1 s and at least 1."
        )
    if settings["grace"] < timedelta(0):
        raise CallerError(f"`grace` is {settings['grace']}; it must not be negative.")
    check_busy_thread(settings["busy_thread"])
    events, runs = settings["keep_events"], settings["keep_runs"]
    if any(kept is not None and kept < timedelta(0) for kept in (events, runs)):
        raise CallerError(
            f"`keep_events` is {events} and `keep_runs` is {runs}; they must not be negative."
        )
    if events is not None and runs is not None and runs < events:
        raise CallerError(
            f"`keep_runs` ({runs}) is shorter than `keep_events` ({events}): a deleted run "
            "keeps no events. Make `keep_runs` at least as long."
        )


def _seconds(kept: timedelta | None) -> float:
    return FOREVER if kept is None else kept.total_seconds()
