"""Blobs in SQLite: bytes under their hash, the runs that use them, and when the last use ended.

A blob in use has rows in `blob_uses`; an unused blob has a row in `unused_blobs` until it is
deleted. There is one writer at a time, so no upload or use can come between a check and a deletion.
"""

from __future__ import annotations

import hashlib
from typing import Any

import apsw

from tailrace.core.errors import NotFound, StorageError
from tailrace.stores.sqlite.queue import listed


def put(
    db: apsw.Connection, sha256: str, mime_type: str, data: bytes, run_id: str | None, now: float
) -> None:
    """Store bytes, used by a run or unused for now."""
    db.execute("insert or ignore into blobs values (?, ?, ?)", (sha256, mime_type, data))
    if run_id is None:
        _note_unused(db, [sha256], now)
        return
    if db.execute("select 1 from runs where run_id = ?", (run_id,)).fetchone() is None:
        raise NotFound(f"Unknown run {run_id}. Create it before its blobs.")
    db.execute("insert or ignore into blob_uses values (?, ?)", (run_id, sha256))
    db.execute("delete from unused_blobs where sha256 = ?", (sha256,))


_READ = """
select data, mime_type from blobs where sha256 = ?1 and (?2 is null or exists (
    select 1 from blob_uses as u left join runs as r using (run_id)
    where u.sha256 = ?1 and coalesce(r.owner, '') = ?2
))
"""
"""A user that is no run, of an old blob, has the owner ''."""


def read(db: apsw.Connection, sha256: str, owner: str | None) -> tuple[bytes, str] | None:
    """Bytes by their hash, which is verified; with `owner` only if a run of theirs uses them."""
    found: tuple[bytes, str] | None = db.execute(_READ, (sha256, owner)).fetchone()
    if found is not None and hashlib.sha256(found[0]).hexdigest() != sha256:
        raise StorageError(f"Blob {sha256} is damaged. Restore the file from a backup.")
    return found


def let_go(db: apsw.Connection, run_id: str, now: float) -> None:
    """End the uses of a deleted run. Blobs that only it used are unused from now on."""
    used: list[Any] = db.execute(
        "delete from blob_uses where run_id = ? returning sha256", (run_id,)
    ).fetchall()
    _note_unused(db, [sha256 for (sha256,) in used], now)


def _note_unused(db: apsw.Connection, sha256s: list[str], now: float) -> None:
    db.execute(
        "insert or replace into unused_blobs select value, ? from json_each(?)"
        " where not exists (select 1 from blob_uses where sha256 = value)",
        (now, listed(sha256s)),
    )


def collect(db: apsw.Connection, before: float, limit: int) -> int:
    """Delete blobs that have been unused since `before`; returns how many."""
    gone = db.execute(
        "delete from unused_blobs where sha256 in"
        " (select sha256 from unused_blobs where since <= ? order by since limit ?)"
        " returning sha256",
        (before, limit),
    ).fetchall()
    for row in gone:
        db.execute("delete from blobs where sha256 = ?", row)
    return len(gone)
