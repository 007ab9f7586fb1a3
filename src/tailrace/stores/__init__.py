"""Stores: SQLite and PostgreSQL, one package each, chosen by URL.

sqlite:///file.db      a file in the working directory (sqlite:////folder/file.db: a whole path)
sqlite://:memory:      in memory, for tests
postgresql://host/name a server that several machines share
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.core.errors import CallerError

if TYPE_CHECKING:
    from tailrace.ports import Store


async def open_store(
    url: str | Path, *, replica: str | None = None, connections: int = 10
) -> Store:
    """Open the store at a URL, or in the SQLite file at a path.

    PostgreSQL may have a `replica`, from which ended runs are read. It gets at most `connections`
    from this process, and so does the replica.

    A database driver is imported only when its store is opened.
    """
    text = str(url)
    if not text:
        raise CallerError(
            "The database URL is empty. Write sqlite:///file.db or postgresql://host/name."
        )
    is_path = isinstance(url, Path) or "://" not in text
    scheme = "sqlite" if is_path else text.partition("://")[0]
    if scheme == "sqlite":
        if replica is not None:
            raise CallerError("SQLite has no replica. Leave out `database_replica`.")
        from tailrace.stores.sqlite.store import SqliteStore

        return await SqliteStore.open(url)
    if scheme in ("postgresql", "postgres"):
        from tailrace.stores.postgres.store import PostgresStore

        return await PostgresStore.open(text, replica=replica, connections=connections)
    raise CallerError(
        f"No store for {scheme}:// URLs. Use sqlite:///file.db or postgresql://host/name."
    )
