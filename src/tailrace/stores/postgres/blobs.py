"""Blobs in PostgreSQL: bytes under their hash, and the runs that use them."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from tailrace.core.errors import NotFound, StorageError
from tailrace.stores.postgres import sql
from tailrace.stores.postgres.statements import Statements


class PostgresBlobs(Statements):
    """The `Blobs` of the store."""

    async def put_blob(self, data: bytes, mime_type: str, run_id: str | None = None) -> str:
        """Store bytes; the first MIME type stays."""
        # Hashing 100 MB takes 0.1 s: a thread does it.
        sha256 = (await asyncio.to_thread(hashlib.sha256, data)).hexdigest()
        if run_id is None:
            await self._fetch(sql.PUT_BLOB, sha256, mime_type, data)
            return sha256

        async def work(db: Any) -> None:
            if await db.fetchval(self._sql(sql.HOLD_RUN), run_id) is None:
                raise NotFound(f"Unknown run {run_id}. Create it before its blobs.")
            await db.execute(self._sql(sql.PUT_USED_BLOB), sha256, mime_type, data)
            await db.execute(self._sql(sql.USE_BLOB), run_id, sha256)

        await self._transaction(work)
        return sha256

    async def collect_blobs(self, unused_for: float, limit: int = 100) -> int:
        """Delete unused blobs; returns how many."""
        return len(await self._fetch(sql.COLLECT_BLOBS, unused_for, limit))

    async def blob(self, sha256: str, *, owner: str | None = None) -> tuple[bytes, str] | None:
        """The bytes and the MIME type of a blob; with `owner` only if a run of theirs uses it."""
        rows = await self._fetch(sql.BLOB, sha256, owner)
        if not rows:
            return None
        data, mime_type = rows[0]
        if (await asyncio.to_thread(hashlib.sha256, data)).hexdigest() != sha256:
            raise StorageError(f"Blob {sha256} is damaged. Restore the database from a backup.")
        return data, mime_type
