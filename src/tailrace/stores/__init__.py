"""Where the log is kept: one file for one database, chosen by URL.

sqlite:///file.db      a file beside the program (sqlite:////folder/file.db for a whole path)
sqlite://:memory:      gone with the process
postgresql://host/name a server that several machines share
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tailrace.core.errors import CallerError, StorageError

if TYPE_CHECKING:
    from tailrace.ports import Store


async def open_store(url: str | Path) -> Store:
    """The store at an URL, or in the file at a path.

    Drivers are loaded here and not before, so that nobody pays for a database that is not used.
    """
    text = str(url)
    scheme, separator, _ = text.partition("://")
    if isinstance(url, Path) or not (separator or text.startswith("sqlite:")):
        if not text:
            raise CallerError("The database has no name; write sqlite:///file.db.")
        scheme = "sqlite"
    if scheme.startswith("sqlite"):
        from tailrace.stores.sqlite import SqliteLog

        return await SqliteLog.open(url)
    if scheme in ("postgresql", "postgres"):
        return await _open_postgres(text)
    raise CallerError(
        f"There is no store for {scheme}:// URLs; use sqlite:///file.db or postgresql://host/name."
    )


async def _open_postgres(url: str) -> Store:
    try:
        from tailrace.stores.postgres import PostgresStore
    except ModuleNotFoundError as error:
        raise StorageError(
            f"PostgreSQL needs the package {error.name}: pip install 'tailrace[postgres]'."
        ) from error
    try:
        store: Store = await PostgresStore.open(url)
    except OSError as error:  # refused, no such host, timed out
        raise StorageError(
            f"No PostgreSQL answers at {_where(url)}; start it, or mend the URL."
        ) from error
    return store


def _where(url: str) -> str:
    """The place in an URL, without the password."""
    return urlsplit(url).netloc.rpartition("@")[2] or "its usual place"
