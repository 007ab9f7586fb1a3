"""Connections to PostgreSQL that outlive a restart of the server.

A call that loses its connection is made again, on a new one, for a bounded time. It is told that it
may have been done already: only it knows how to see that.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tailrace.core.errors import CallerError, InvalidValue, StorageBusy, StorageError

T = TypeVar("T")

CONNECT_WITHIN = 10.0
"""Seconds for one try to connect; a host that swallows packets would hold us for minutes."""

CLOSE_WITHIN = 1.0
"""Seconds for the server to take leave of a connection."""

IDLE_SECONDS = 300.0
"""A connection that was idle for longer is not trusted: a firewall may have forgotten it."""

LONGEST_PAUSE = 1.0


def split_url(url: str) -> tuple[str, str | None]:
    """The URL as the driver reads it, and the schema that it names for us: `?schema=…`."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise CallerError(f"The database's URL cannot be read: {error}.") from error
    if parts.scheme not in ("postgresql", "postgres"):
        raise CallerError("A PostgreSQL URL looks like postgresql://user:password@host/database.")
    query = parse_qsl(parts.query, keep_blank_values=True)
    schemas = [value for name, value in query if name == "schema"]
    rest = urlencode([(name, value) for name, value in query if name != "schema"])
    return urlunsplit(parts._replace(query=rest)), schemas[-1] if schemas else None


class Pool:
    """Some connections, and the patience to wait for a server that is coming back.

    asyncpg's own pool waits for a query that was cancelled, which takes long when the server hangs.
    Here the connection of such a query is closed at once.
    """

    def __init__(self, url: str, *, size: int, patience: float) -> None:
        pg = _driver()
        self._pg = pg
        parts = urlsplit(url)
        # Never the user and the password: this is said in error messages.
        self.where = f"{parts.netloc.rpartition('@')[2] or 'localhost'}{parts.path}"
        self._url = url
        self._size = size
        self._patience = patience
        self._closed = False
        self._slots = asyncio.Semaphore(size)
        self._idle: list[tuple[Any, float]] = []
        self._lent: set[Any] = set()
        self._connecting: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._away = (
            OSError,
            TimeoutError,
            pg.PostgresConnectionError,
            pg.AdminShutdownError,
            pg.CrashShutdownError,
            pg.CannotConnectNowError,
            pg.InsufficientResourcesError,  # too many connections, a full disk
            pg.PostgresIOError,
            pg.ReadOnlySQLTransactionError,  # a standby that is about to be promoted
            pg.InterfaceError,
            pg.InternalClientError,
        )
        self._lost_race = (pg.TransactionRollbackError, pg.InvalidCachedStatementError)
        self.taken = pg.UniqueViolationError

    async def open(self, first: Callable[[Any], Awaitable[None]]) -> None:
        """Connect, and do what has to be done first; a server that is not there is not awaited."""
        pg = self._pg
        self._loop = asyncio.get_running_loop()
        give_up = asyncio.get_running_loop().time() + self._patience
        while True:
            try:
                async with self._connection(give_up) as db:
                    await first(db)
                return
            except pg.CannotConnectNowError as error:  # it is starting up
                if asyncio.get_running_loop().time() > give_up:
                    await self.close()
                    raise self._failure(error) from error
                await asyncio.sleep(0.1)
            except BaseException as error:
                await self.close()
                if isinstance(error, Exception):
                    raise self._failure_at_start(error) from error
                raise

    async def run(self, work: Callable[[Any, bool], Awaitable[T]]) -> T:
        """Do `work(connection, again)`; `again` when an earlier try may have done it already.

        The pool's connections belong to the event loop that opened it. A call on another loop gets
        a connection of its own and one try.
        """
        if asyncio.get_running_loop() is not self._loop:
            return await self._run_apart(work)
        now = asyncio.get_running_loop().time
        give_up = now() + self._patience
        again = False
        pause = 0.0
        while True:
            if self._closed:
                raise StorageError("The store is closed.")
            try:
                async with self._connection(give_up) as db:
                    return await work(db, again)
            except self._pg.DataError as error:
                raise InvalidValue(f"PostgreSQL cannot keep it: {_reason(error)}.") from error
            except self._lost_race:
                pass
            except self._away as error:
                if now() + pause > give_up:
                    raise StorageBusy(
                        f"PostgreSQL at {self.where} was away for {self._patience:g} s"
                        f" ({_reason(error)}). Nothing that was answered is lost; see to the"
                        " server, then try again."
                    ) from error
                again = True
                # The others are as dead as this one; without this each would cost a try.
                self._drop_idle()
            except self._pg.PostgresError as error:
                raise self._failure(error) from error
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  # only spreads
            pause = min(LONGEST_PAUSE, max(0.02, pause * 2))

    async def _run_apart(self, work: Callable[[Any, bool], Awaitable[T]]) -> T:
        try:
            db = await self._new_connection()
            try:
                return await work(db, False)
            finally:
                await db.close(timeout=CLOSE_WITHIN)
        except self._away as error:
            raise StorageBusy(
                f"PostgreSQL at {self.where} is away ({_reason(error)}). Try again."
            ) from error
        except self._pg.PostgresError as error:
            raise self._failure(error) from error

    async def close(self) -> None:
        """Wait for what is under way, but not for a server that is gone."""
        if self._closed:
            return
        self._closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_WITHIN):
                for _ in range(self._size):
                    await self._slots.acquire()
        closing = [db.close(timeout=CLOSE_WITHIN) for db, _ in self._idle]
        self._idle.clear()
        await asyncio.gather(*closing, return_exceptions=True)
        if self._connecting:
            await asyncio.wait(self._connecting, timeout=CLOSE_WITHIN)
        self.terminate()

    def terminate(self) -> None:
        """Drop every connection at once."""
        self._closed = True
        self._drop_idle()
        for db in list(self._lent):
            db.terminate()
        for task in self._connecting:
            task.cancel()

    @asynccontextmanager
    async def _connection(self, give_up: float) -> AsyncIterator[Any]:
        """Lend a connection, which is waited for until `give_up`."""
        async with asyncio.timeout_at(give_up):
            await self._slots.acquire()
        try:
            db = self._take_idle() or await self._connect()
            self._lent.add(db)
            try:
                yield db
            except (asyncio.CancelledError, *self._away):
                db.terminate()
                raise
            finally:
                self._lent.discard(db)
                if self._closed or db.is_closed() or db.is_in_transaction():
                    db.terminate()
                else:
                    self._idle.append((db, asyncio.get_running_loop().time()))
        finally:
            self._slots.release()

    def _take_idle(self) -> Any:
        """A connection that was used lately, if there is any."""
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        while self._idle:
            db, since = self._idle.pop()
            if since > oldest and not db.is_closed():
                return db
            db.terminate()
        return None

    def _drop_idle(self) -> None:
        for db, _ in self._idle:
            db.terminate()
        self._idle.clear()

    async def _connect(self) -> Any:
        """Make a connection, in a task that is not cancelled with its caller.

        asyncpg leaves a future behind when it is cancelled while it connects. asyncio reports that
        as "Future exception was never retrieved".
        """
        task = asyncio.get_running_loop().create_task(self._new_connection())
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_terminate)
            raise

    async def _new_connection(self) -> Any:
        within = min(CONNECT_WITHIN, self._patience)
        db = await self._pg.connect(self._url, timeout=within, command_timeout=self._patience)
        try:
            await _prepare(db)
        except BaseException:
            db.terminate()
            raise
        return db

    def _failure(self, error: Exception) -> StorageError:
        return StorageError(f"PostgreSQL at {self.where} could not do it: {_reason(error)}.")

    def _failure_at_start(self, error: Exception) -> Exception:
        pg = self._pg
        if isinstance(error, StorageError):
            return error
        if isinstance(error, pg.InvalidCatalogNameError):
            return StorageError(
                f"PostgreSQL at {self.where} has no such database. Create it: createdb"
                f" {self.where.rpartition('/')[2]}"
            )
        if isinstance(error, pg.InvalidAuthorizationSpecificationError):
            return StorageError(
                f"PostgreSQL at {self.where} refuses to let us in: {_reason(error)}. Correct the"
                " user and the password in the URL."
            )
        if isinstance(error, pg.InsufficientPrivilegeError):
            return StorageError(
                f"PostgreSQL at {self.where} does not let us make our tables: {_reason(error)}."
                " Grant CREATE, or name a schema that the user owns with ?schema=…"
            )
        if isinstance(error, pg.ClientConfigurationError):
            return CallerError(f"The database's URL cannot be read: {_reason(error)}.")
        if isinstance(error, self._away):
            return StorageError(
                f"PostgreSQL at {self.where} cannot be reached ({_reason(error)}). Start it, or"
                " correct the URL."
            )
        return self._failure(error) if isinstance(error, pg.PostgresError) else error


def _driver() -> Any:
    try:
        import asyncpg  # type: ignore[import-untyped]
    except ImportError as error:
        raise StorageError(
            "PostgreSQL needs the driver asyncpg: pip install 'tailrace[postgres]'"
        ) from error
    return asyncpg


async def _prepare(db: Any) -> None:
    """Every statement has its index, and is planned once for the connection's life.

    Planned while a table is small, it would otherwise read the whole table ever after; and
    compiling a plan takes longer than any of ours runs.
    """
    await db.execute("set enable_seqscan = off; set jit = off; set application_name = 'tailrace'")


def _terminate(connecting: asyncio.Task[Any]) -> None:
    """Drop a connection whose caller has left."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().terminate()


def _reason(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
