"""Blobs in SQLite: bytes by their hash, the runs that use them, and since when nobody does.

A blob that somebody uses has rows in `blob_uses`; one that nobody uses has a row in `unused_blobs`,
from which it is collected when it has waited long enough. One writer at a time, so neither an
upload nor a new use can come between a look and the deletion.
"""

from __future__ import annotations

import hashlib
from typing import Any

import apsw

from tailrace.core.errors import NotFound, StorageError
from tailrace.stores.sqlite_queue import listed


def put(
    db: apsw.Connection, sha256: str, mime_type: str, data: bytes, run_id: str | None, now: float
) -> None:
    """Keep bytes for a run, or until one comes that uses them."""
    db.execute("insert or ignore into blobs values (?, ?, ?)", (sha256, mime_type, data))
    if run_id is not None:
        use(db, run_id, [sha256])
    else:
        _note_unused(db, [sha256], now)


def use(db: apsw.Connection, run_id: str, sha256s: list[str]) -> set[str]:
    """Note that a run uses these blobs; those that are not there."""
    if db.execute("select 1 from runs where run_id = ?", (run_id,)).fetchone() is None:
        raise NotFound(f"There is no run {run_id}.")
    wanted = listed(sha256s)
    found = {
        sha256
        for (sha256,) in db.execute(
            "select sha256 from blobs where sha256 in (select value from json_each(?))", (wanted,)
        )
    }
    for sha256 in found:
        db.execute("insert or ignore into blob_uses values (?, ?)", (run_id, sha256))
        db.execute("delete from unused_blobs where sha256 = ?", (sha256,))
    return set(sha256s) - found


def read(db: apsw.Connection, sha256: str) -> tuple[bytes, str] | None:
    """Bytes by their hash, which is also looked at: damage is never passed on."""
    found: tuple[bytes, str] | None = db.execute(
        "select data, mime_type from blobs where sha256 = ?", (sha256,)
    ).fetchone()
    if found is not None and hashlib.sha256(found[0]).hexdigest() != sha256:
        raise StorageError(f"Blob {sha256} is damaged. Restore the file from a backup.")
    return found


def let_go(db: apsw.Connection, run_id: str, now: float) -> None:
    """A run is deleted: what it alone used waits from now on to be used again, or collected."""
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
    """Forget blobs that nobody has used since then; how many."""
    gone = db.execute(
        "delete from unused_blobs where sha256 in"
        " (select sha256 from unused_blobs where since <= ? order by since limit ?)"
        " returning sha256",
        (before, limit),
    ).fetchall()
    for row in gone:
        db.execute("delete from blobs where sha256 = ?", row)
    return len(gone)
