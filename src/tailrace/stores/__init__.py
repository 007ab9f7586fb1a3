"""Where the log is kept: one file for one database, chosen by URL.

sqlite:///file.db      a file beside the program (sqlite:////folder/file.db for a whole path)
sqlite://:memory:      gone with the process
postgresql://host/name a server that several machines share
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.core.errors import CallerError

if TYPE_CHECKING:
    from tailrace.ports import Store


async def open_store(url: str | Path) -> Store:
    """The store at an URL, or in the file at a path.

    Drivers are loaded here and not before, so that nobody pays for a database that is not used.
    """
    text = str(url)
    if not text:
        raise CallerError("The database has no name; write sqlite:///file.db.")
    is_path = isinstance(url, Path) or "://" not in text
    scheme = "sqlite" if is_path else text.partition("://")[0]
    if scheme == "sqlite":
        from tailrace.stores.sqlite import SqliteLog

        return await SqliteLog.open(url)
    if scheme in ("postgresql", "postgres"):
        from tailrace.stores.postgres import PostgresStore

        return await PostgresStore.open(text)
    raise CallerError(
        f"There is no store for {scheme}:// URLs; use sqlite:///file.db or postgresql://host/name."
    )
