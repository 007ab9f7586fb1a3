"""Connections to PostgreSQL that survive a restart of the server.

A call that loses its connection is repeated on a new connection, for a limited time. The call
learns that an earlier try may have succeeded, and checks that itself.
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
"""Seconds for one try to connect; a host that drops packets would block for minutes."""

CLOSE_WITHIN = 1.0
"""Seconds that the server has to close a connection."""

IDLE_SECONDS = 300.0
"""A connection that was idle for longer is closed: a firewall may have dropped it."""

STUCK_SECONDS = 3.0
"""A transaction whose process is silent for longer is ended by the server. The process may be
stopped or cut off, and its locks would keep the next worker of a run out. If it comes back, it
repeats the transaction."""

LONGEST_PAUSE = 1.0


def split_url(url: str) -> tuple[str, str | None]:
    """The URL for the driver, and the schema from `?schema=…`."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise CallerError(
            f"The database URL is invalid: {error}. Write postgresql://user:password@host/database."
        ) from error
    if parts.scheme not in ("postgresql", "postgres"):
        raise CallerError("Not a PostgreSQL URL. Write postgresql://user:password@host/database.")
    query = parse_qsl(parts.query, keep_blank_values=True)
    schemas = [value for name, value in query if name == "schema"]
    rest = urlencode([(name, value) for name, value in query if name != "schema"])
    return urlunsplit(parts._replace(query=rest)), schemas[-1] if schemas else None


class PostgresPool:
    """A pool of connections that waits `patience` seconds for a server that is away.

    asyncpg's own pool waits for a cancelled query, which takes long if the server hangs. This pool
    closes the connection of such a query at once.
    """

    def __init__(self, url: str, *, size: int, patience: float) -> None:
        pg = _driver()
        self._pg = pg
        parts = urlsplit(url)
        # Without user and password: error messages show it.
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
            pg.IdleInTransactionSessionTimeoutError,  # see STUCK_SECONDS
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
        self.missing = pg.UndefinedTableError

    async def open(self, first: Callable[[Any], Awaitable[None]]) -> None:
        """Connect and run `first`. Fails at once if there is no server."""
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
        """Run `work(connection, again)`; `again` is true if an earlier try may have succeeded.

        The connections belong to the event loop that used the pool first. A call on another loop
        gets a new connection and one try.
        """
        self._loop = self._loop or asyncio.get_running_loop()
        if asyncio.get_running_loop() is not self._loop:
            return await self._run_apart(work)
        now = asyncio.get_running_loop().time
        give_up = now() + self._patience
        again = False
        pause = 0.0
        while True:
            if self._closed:
                raise StorageError("The store is closed. Open it again.")
            try:
                async with self._connection(give_up) as db:
                    return await work(db, again)
            except self._pg.DataError as error:
                raise InvalidValue(
                    f"PostgreSQL cannot store the value: {_reason(error)}. Change it."
                ) from error
            except self._lost_race:
                pass
            except self._away as error:
                if now() + pause > give_up:
                    raise StorageBusy(
                        f"PostgreSQL at {self.where} was away for {self._patience:g} s"
                        f" ({_reason(error)}). No stored event is lost. Check the server, then try"
                        " again."
                    ) from error
                again = True
                # The idle connections are dead too. Each would cost a try.
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
        """Wait for running calls, but not for a server that is away."""
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
        """Close every connection at once."""
        self._closed = True
        self._drop_idle()
        for db in list(self._lent):
            db.terminate()
        for task in self._connecting:
            task.cancel()

    @asynccontextmanager
    async def _connection(self, give_up: float) -> AsyncIterator[Any]:
        """Lend a connection; waits for it until `give_up`."""
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
        """A connection that was used recently, or None."""
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
        """Connect in a task that is not cancelled with its caller.

        If asyncpg is cancelled while it connects, it leaves a future behind, and asyncio logs
        "Future exception was never retrieved".
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
        return StorageError(
            f"PostgreSQL at {self.where} reports an error: {_reason(error)}. See its log."
        )

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
                f"PostgreSQL at {self.where} refuses the login: {_reason(error)}. Correct the"
                " user and the password in the URL."
            )
        if isinstance(error, pg.InsufficientPrivilegeError):
            return StorageError(
                f"PostgreSQL at {self.where} refuses to create tables: {_reason(error)}."
                " Grant CREATE, or name a schema that the user owns with ?schema=…"
            )
        if isinstance(error, pg.ClientConfigurationError):
            return CallerError(f"The database URL is invalid: {_reason(error)}. Correct it.")
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
    """Make PostgreSQL use the indexes, and end transactions that are stuck.

    A statement is planned once per connection. Planned while a table is small, it would read the
    whole table from then on. JIT compilation takes longer than our statements run.
    """
    await db.execute(
        "set enable_seqscan = off; set jit = off; set application_name = 'tailrace';"
        f" set idle_in_transaction_session_timeout = {STUCK_SECONDS * 1000:.0f}"
    )


def _terminate(connecting: asyncio.Task[Any]) -> None:
    """Close a connection whose caller was cancelled."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().terminate()


def _reason(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
