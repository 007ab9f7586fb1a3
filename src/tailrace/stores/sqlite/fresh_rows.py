"""The table `fresh` in SQLite: the newest small rows of all runs, until they are swept.

It has no index. An index would cost a page for each run of a flush; without it, the rows of many
runs share a page. A sweep joins the rows by run and moves them to `batches`. A process that alone
writes to the file still has its rows in memory, so it need not read them again.
"""

from __future__ import annotations

import time
from operator import itemgetter
from typing import Any, NamedTuple

import apsw

from tailrace.core.errors import StorageError
from tailrace.stores.rows import JOINED_BYTES, Row, as_row, gathered
from tailrace.stores.sqlite.batches import put_all

SWEEP_ROWS = 1024
"""After so many batches `fresh` is swept. Each reader of a run looks through all of its rows."""

SWEEP_PAUSE = 0.0001
RUNS_AT_ONCE = 8
"""While `fresh` is gathered, the event loop gets a turn after so many runs."""


class FreshRows:
    """The rows of `fresh`, as far as this process knows them. Used only by jobs of the writer."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._version: int | None = None
        """SQLite's `data_version`, which changes if another process writes. None: not known."""

    @property
    def known(self) -> bool:
        """Whether all rows of the table may be known."""
        return self._version is not None

    def read(self, db: apsw.Connection) -> None:
        """Know all rows of the table from now on."""
        self._version = _data_version(db)  # before the rows: a later write must show
        found = db.execute("select * from fresh order by rowid").fetchall()
        self._rows = [as_row(values) for values in found]
        try:
            for row in self._rows:
                row.verify()
        except StorageError:  # a sweep must not give damaged bytes a valid checksum
            self._rows, self._version = [], None

    def add(self, rows: list[Row]) -> None:
        """Note rows that were written to the table."""
        if self._version is not None:
            self._rows += rows

    def sweep(self, db: apsw.Connection) -> bool:
        """Move all rows to `batches`; False if the table may have others than are known."""
        rows, version = self._rows, self._version
        self._rows, self._version = [], None  # unless all goes well
        if version is None or version != _data_version(db):
            return False
        # Fewer rows are there if a run was deleted; more are known if a commit failed.
        if db.execute("select count(*) from fresh").fetchone() != (len(rows),):
            return False
        rows.sort(key=itemgetter(0))  # by run; its rows are in order already
        put_all(db, [gathered(some, verified=True) for some in _adjacent(rows)])
        db.execute("delete from fresh")
        self._version = version
        return True

    def sweep_found(self, db: apsw.Connection, found: GatheredRows) -> None:
        """Move rows that were read, and know the rest from now on."""
        sweep(db, found)
        self.read(db)


def _data_version(db: apsw.Connection) -> int:
    return int(db.pragma("data_version"))


class GatheredRows(NamedTuple):
    """All rows of `fresh`, joined by run, with their number and the place of the last row."""

    rows: list[Row]
    size: int
    last: tuple[int, str, int] | None


def gather(db: apsw.Connection, pause: float = 0.0) -> GatheredRows:
    """Read the rows of `fresh`, with a pause after some runs.

    On a reader's thread the writer need not wait for it, and in the pauses the event loop has the
    GIL.
    """
    newest = "select rowid, run_id, first_seq from fresh order by rowid desc limit 1"
    last: Any = db.execute(newest).fetchone()
    # Only up to the last row, which is read first: later rows stay for the next sweep.
    query = "select * from fresh where rowid <= ? order by rowid"
    found = [as_row(values) for values in db.execute(query, last[:1])] if last else []
    found.sort(key=itemgetter(0))  # by run; its rows are in order already
    rows: list[Row] = []
    for number, some in enumerate(_adjacent(found)):
        if number % RUNS_AT_ONCE == 0:
            time.sleep(pause)
        try:
            rows.append(gathered(some))
        except StorageError:  # damaged rows stay as they are, and readers find out
            rows += some
    return GatheredRows(rows, len(found), last)


def sweep(db: apsw.Connection, found: GatheredRows) -> None:
    """Move gathered rows to `batches`; gather again if another sweep or a deletion was faster.

    New rows are added after the last row. So if it is there, and as many rows as before are, then
    all gathered rows are.
    """
    if found.last is not None:
        there = db.execute(
            "select count(*) from fresh where rowid <= ?1 and exists"
            " (select 1 from fresh where rowid = ?1 and run_id = ?2 and first_seq = ?3)",
            found.last,
        ).fetchone()
        if there != (found.size,):
            found = gather(db)
    if found.last is not None:
        put_all(db, found.rows)
        db.execute("delete from fresh where rowid <= ?", found.last[:1])


def _adjacent(rows: list[Row]) -> list[list[Row]]:
    """Ordered rows by run and epoch, and parted at large rows and at `JOINED_BYTES`."""
    found: list[list[Row]] = []
    known, written, expected, room = "", 0, 0, 0
    for row in rows:
        run_id, first_seq, last_seq, epoch, public, *_ = row
        room -= len(public)
        if first_seq == expected and room >= 0 and run_id == known and epoch == written:
            found[-1].append(row)
        else:
            found.append([row])
            known, written, room = run_id, epoch, JOINED_BYTES - len(public)
        expected = last_seq + 1
    return found
