"""The tables `batches` and `fresh` in SQLite: append, read, join and delete rows.

`tailrace.stores.rows` describes a row. Small rows go to `fresh`, which has no index; see
`fresh_rows`.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterable
from contextlib import closing
from functools import cache, partial
from itertools import chain
from operator import itemgetter
from typing import Any

import apsw

from tailrace.core.errors import SeqConflict, StorageError
from tailrace.core.log_lines import READ_BYTES, LogLines
from tailrace.ports import Batch, NewRun
from tailrace.stores.rows import (
    DENSE_FROM,
    SNAPSHOT_EVENTS,
    Row,
    joined,
    lines_in,
    packs,
    plain,
    row_of,
    trimmed,
    verify,
)
from tailrace.stores.sqlite import blobs as blobs_of
from tailrace.stores.sqlite.connections import TakesLong, attempt

AT_ONCE = 32
"""Most batches that one statement writes."""

SMALL_BYTES = 2048
"""Smaller rows go to `fresh`. A larger row fills a page of its own."""


def _row_of(batch: Batch) -> Row:
    return row_of(batch.run_id, batch.first_seq, batch.epoch, batch.publics, batch.privates)


def _insertion(table: str) -> str:
    return f"insert into {table} values (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608


def _insert(db: apsw.Connection, row: Row) -> None:
    db.execute(_insertion("batches"), row)


def first(db: apsw.Connection, run: NewRun) -> None:
    """Write the first event of a new run."""
    _insert(db, row_of(run.run_id, 1, run.epoch, [run.public], [run.private]))


def append(
    db: apsw.Connection, batches: list[Batch], now: float, *, one_by_one: bool = False
) -> list[Row]:
    """Write batches of different runs, or raise `StorageError` if any of them does not fit.

    Returns the rows that are in `fresh` now.

    Few statements write all batches, because on a busy thread each statement waits for the GIL.
    On the event loop no statement waits. There a statement for each batch is faster: it stays
    prepared and in the CPU's cache, while statements for each number of batches do not.
    """
    rows = [
        row_of(one.run_id, one.first_seq, one.epoch, one.publics, one.privates) for one in batches
    ]
    if len({row.run_id for row in rows}) != len(rows):
        raise SeqConflict("Two batches are of one run; append each batch alone.")
    if one_by_one:
        _write_each(db, rows)
    else:
        for start in range(0, len(rows), AT_ONCE):
            _write_all(db, rows[start : start + AT_ONCE])
    for batch in batches:
        if batch.ended or batch.snapshot is not None:
            _finish(db, batch, now)
    return _small(rows)


def _write_each(db: apsw.Connection, rows: list[Row]) -> None:
    before = db.total_changes()
    db.executemany(_MOVE, [row[:4] for row in rows])
    if db.total_changes() - before != len(rows):
        raise SeqConflict("A batch does not fit; append each batch alone.")
    for table, some in _by_table(rows):
        db.executemany(_insertion(table), some)


def _write_all(db: apsw.Connection, rows: list[Row]) -> None:
    for table, some in _by_table(rows):
        db.execute(_insertions(table, len(some)), [value for row in some for value in row])
        if db.changes() != len(some):
            raise SeqConflict("A batch does not fit; append each batch alone.")
    db.execute(_moves(len(rows)), [value for row in rows for value in (row.run_id, row.last_seq)])


def _by_table(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    """The table that takes rows, with the rows."""
    small = _small(rows)
    if len(small) == len(rows):
        return [("fresh", small)]
    large = [row for row in rows if len(row.public) >= SMALL_BYTES]
    return [(table, some) for table, some in (("fresh", small), ("batches", large)) if some]


def _small(rows: list[Row]) -> list[Row]:
    return [row for row in rows if len(row.public) < SMALL_BYTES]


# This, and `_moves`, name no column of an index. SQLite would rewrite the index for each event,
# even if the value stays the same.
_MOVE = (
    "update runs set last_seq = ?3"
    " where run_id = ?1 and last_seq + 1 = ?2 and epoch = ?4 and ended_at is null"
)


@cache
def _insertions(table: str, count: int) -> str:
    """SQL that inserts the batches that follow their run's last event."""
    rows = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?)"] * count)
    return (
        f"insert into {table} select new.* from (values {rows}) new"  # noqa: S608
        " cross join runs on runs.run_id = new.column1 and runs.last_seq + 1 = new.column2"
        " and runs.epoch = new.column4 and runs.ended_at is null"
    )


@cache
def _moves(count: int) -> str:
    """SQL that moves runs on to their new last event."""
    ends = ", ".join(["(?, ?)"] * count)
    return (
        f"update runs set last_seq = new.column2 from (values {ends}) new"  # noqa: S608
        " where runs.run_id = new.column1"
    )


def _finish(db: apsw.Connection, batch: Batch, now: float) -> None:
    """Write what few batches have: a snapshot, or the end of the run."""
    if batch.snapshot is not None:
        db.execute(
            "insert or replace into snapshots values (?, ?, ?)",
            (batch.run_id, batch.last_seq, batch.snapshot),
        )
    if batch.ended:
        # An ended run has no worker and no lease.
        db.execute(
            "update runs set ended_at = ?, worker = null, lease_boot = null, lease_until = null"
            " where run_id = ?",
            (now, batch.run_id),
        )


def put_all(db: apsw.Connection, rows: list[Row]) -> None:
    """Insert rows into `batches`."""
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        values = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?)"] * len(some))
        db.execute(
            f"insert into batches values {values}",  # noqa: S608
            [value for row in some for value in row],
        )


def append_each(db: apsw.Connection, batches: list[Batch], now: float) -> list[Exception | None]:
    """Write the batches that fit; returns None or the refusal for each."""
    answers: list[Exception | None] = []
    for batch in batches:
        refusal, failure = attempt(db, partial(_append, batch=batch, now=now))
        answers.append(failure or refusal)
    return answers


def _append(db: apsw.Connection, batch: Batch, now: float) -> Exception | None:
    row = _row_of(batch)
    found = db.execute(
        "select last_seq, epoch, ended_at from runs where run_id = ?", (batch.run_id,)
    ).fetchone()
    if found is None:
        return SeqConflict(f"Unknown run {batch.run_id}.")
    last_seq, epoch, ended_at = found
    if epoch != batch.epoch or last_seq + 1 != batch.first_seq or ended_at is not None:
        if _is_there(db, row):
            return None
        ends = "ended" if ended_at is not None else "ends"
        return SeqConflict(
            f"Run {batch.run_id} {ends} at {last_seq} in epoch {epoch}; this batch begins at "
            f"{batch.first_seq} in epoch {batch.epoch}. Another worker writes the run."
        )
    _insert(db, row)
    db.execute(_MOVE, row[:4])
    _finish(db, batch, now)
    return None


def _is_there(db: apsw.Connection, row: Row) -> bool:
    """Whether these events are stored already, in rows of any size."""
    publics, privates = [], []
    columns = "epoch, public, private, checksum, private_checksum, unpacked"
    for found in _rows(db, columns, row.run_id, row.first_seq - 1):
        there = Row(row.run_id, *found)
        if there.epoch != row.epoch:
            return False
        start = max(0, row.first_seq - there.first_seq)
        stop = row.last_seq + 1 - there.first_seq
        publics += there.publics()[start:stop]
        privates += there.privates()[start:stop]
        if there.last_seq >= row.last_seq:
            break
    return (publics, privates) == (row.publics(), row.privates())


def _rows(db: apsw.Connection, columns: str, run_id: str, after: int) -> Generator[Any]:
    """`first_seq`, `last_seq` and columns of the rows with events after `after`, in order."""
    # Start at the row that holds the cursor. The index has the first event of each row.
    found = db.execute(
        f"select first_seq, last_seq, {columns} from batches where run_id = ?1"  # noqa: S608
        " and first_seq >= coalesce((select max(first_seq) from batches"
        " where run_id = ?1 and first_seq <= ?2 + 1), 0) and last_seq > ?2 order by first_seq",
        (run_id, after),
    )
    with closing(found):  # an open cursor would keep the WAL from being reset
        rest: Iterable[Any] = ()
        for row in found:
            if row[0] > after + 1:  # the events before it are in `fresh`
                rest = chain((row,), found)
                break
            yield row
            after = row[1]
        with closing(_fresh_rows(db, columns, run_id, after)) as fresh:
            yield from heapq.merge(rest, fresh, key=itemgetter(0))


def _fresh_rows(db: apsw.Connection, columns: str, run_id: str, after: int) -> Generator[Any]:
    """The same for rows in `fresh`, which has no index.

    It is not searched for a run without further events. The rows of a run are stored in order.
    """
    found = db.execute(
        f"select first_seq, fresh.last_seq, {columns}"  # noqa: S608
        " from (select last_seq as newest from runs where run_id = ?1)"
        " cross join fresh on fresh.run_id = ?1 and fresh.last_seq > ?2"
        " where newest > ?2 order by fresh.rowid",
        (run_id, after),
    )
    with closing(found):
        yield from found


def read_lines(
    db: apsw.Connection, run_id: str, after: int, limit: int, *, most: int | None = None
) -> list[LogLines]:
    """Rows with events after `after`, until `limit` or `READ_BYTES` is reached.

    Raises `TakesLong` if a row has more than `most` bytes.
    """
    known = db.execute("select trimmed_to from runs where run_id = ?", (run_id,)).fetchone()
    if known is not None and known[0] > after:
        raise trimmed(run_id, known[0])
    found: list[LogLines] = []
    count = size = 0
    columns = "epoch, public, checksum, unpacked"
    if most is not None:  # the size of a blob is known before it is read
        columns = columns.replace("public", f"iif(length(public) > {most}, null, public)")
    with closing(_rows(db, columns, run_id, after)) as rows:
        for row in rows:
            if most is not None and (row[3] is None or (row[5] or 0) > most):
                raise TakesLong("The row is large.")
            lines = lines_in(run_id, after, *row)
            found.append(lines)
            count += lines.last_seq - lines.first_seq + 1
            # The whole row was read, although the cursor may skip a part.
            size += row[5] or len(row[3])
            if count >= limit or size >= READ_BYTES:
                break
    return found


def epoch_of(db: apsw.Connection, run_id: str, seq: int) -> int | None:
    """The epoch of an event; None if it is not stored."""
    found = db.execute(
        "select epoch, last_seq, first_seq from (select * from batches union all"
        " select * from fresh) where run_id = ? and first_seq <= ? order by first_seq desc limit 1",
        (run_id, seq),
    ).fetchone()
    return int(found[0]) if found is not None and found[1] >= seq else None


def read_private(
    db: apsw.Connection, run_id: str, after: int, *, most: int | None = None
) -> dict[int, bytes]:
    """The private parts after `after`, by seq.

    Raises `TakesLong` if they have more than `most` bytes.
    """
    hidden: dict[int, bytes] = {}
    size = 0
    columns = "private, private_checksum, unpacked"
    for first_seq, _, private, checksum, unpacked in _rows(db, columns, run_id, after):
        if private is not None:
            size += unpacked or len(private)
            if most is not None and size > most:
                raise TakesLong("The private parts are large.")
            verify(run_id, first_seq, private, checksum)
            lines = enumerate(plain(private, unpacked).split(b"\n"), first_seq)
            hidden |= {number: line for number, line in lines if line and number > after}
    return hidden


def plan(db: apsw.Connection, run_id: str, *, ended: bool) -> list[tuple[int, int]]:
    """Which rows of a run to join."""
    sizes: list[Any] = db.execute(
        "select first_seq, last_seq, epoch, iif(unpacked is null,"
        " length(public) + coalesce(length(private), 0), null)"
        " from batches where run_id = ? order by first_seq",
        (run_id,),
    ).fetchall()
    return packs(sizes, ended=ended)


def has_ended(db: apsw.Connection, run_id: str) -> bool:
    """Whether the run has ended."""
    query = "select 1 from runs where run_id = ? and ended_at is not null"
    return db.execute(query, (run_id,)).fetchone() is not None


def cleanup_needed(db: apsw.Connection, run_id: str) -> tuple[bool, bool, bool]:
    """Whether the run has ended, has rows in `fresh` to sweep, and has dispensable snapshots.

    Of many runs that end together, the first sweep moves the rows of all. The newest rows of a run
    that goes on stay in `fresh`; those before a large row keep its neighbours from being joined.
    """
    ended = has_ended(db, run_id)
    in_fresh = (
        "select 1 from fresh where run_id = ?1 and (?2 or first_seq <"
        " (select max(first_seq) from batches where run_id = ?1)) limit 1"
    )
    is_fresh = db.execute(in_fresh, (run_id, ended)).fetchone() is not None
    query = f"select 1 from snapshots as s where {_DISPENSABLE} limit 1"  # noqa: S608
    has_old_snapshots = db.execute(query, (run_id, SNAPSHOT_EVENTS)).fetchone() is not None
    return ended, is_fresh, has_old_snapshots


def pack(db: apsw.Connection, run_id: str, first_seq: int, last: int, *, ended: bool) -> Row | None:
    """The rows from `first_seq` to `last`, joined; None if they are deleted.

    Runs on a reader's thread, so that the writer does not wait. Stored rows never change. A run
    that has just ended counts as running until all its rows are in `batches`. So rows that
    were joined at the end are not joined again.
    """
    found: list[Any] = db.execute(
        "select * from batches where run_id = ? and first_seq between ? and ? order by first_seq",
        (run_id, first_seq, last),
    ).fetchall()
    if not found:
        return None
    older = "select 1 from used where name = ? and until > unixepoch('subsec')"
    make_dense = db.execute(older, (DENSE_FROM,)).fetchone() is None
    return joined([Row(*row) for row in found], ended=ended, make_dense=make_dense)


def first_pack(
    db: apsw.Connection, run_id: str, *, ended: bool
) -> tuple[list[tuple[int, int]], Row | None]:
    """Which rows of a run to join, and the first of them joined: most runs have no others."""
    found = plan(db, run_id, ended=ended)
    return found, pack(db, run_id, *found[0], ended=ended) if found else None


def put_pack(db: apsw.Connection, run_id: str, row: Row | None, *, is_joined: bool = False) -> None:
    """Replace rows by the joined row, if they are still there; note if all of the run are joined.

    Another process may have joined or deleted them.
    """
    if row is not None:
        place = (run_id, row.first_seq, row.last_seq)
        where = "from batches where run_id = ? and first_seq between ? and ?"
        ends = db.execute(f"select min(first_seq), max(last_seq) {where}", place).fetchone()
        if ends == place[1:]:
            db.execute(f"delete {where}", place)
            _insert(db, row)
    if is_joined:
        db.execute("update runs set joined = 1 where run_id = ?", (run_id,))


_DISPENSABLE = (
    "run_id = ?1 and exists (select 1 from snapshots"
    " where run_id = ?1 and seq > s.seq and seq / ?2 = s.seq / ?2)"
)


def thin_snapshots(db: apsw.Connection, run_id: str) -> None:
    """Delete the snapshots that a later snapshot replaces."""
    query = f"delete from snapshots as s where {_DISPENSABLE}"  # noqa: S608
    db.execute(query, (run_id, SNAPSHOT_EVENTS))


def trim(db: apsw.Connection, run_id: str, snapshot: bytes) -> None:
    """Replace the events of an ended run by its final snapshot."""
    found = db.execute("select last_seq, ended_at from runs where run_id = ?", (run_id,)).fetchone()
    if found is None:
        return
    last_seq, ended_at = found
    if ended_at is None:
        raise StorageError(
            f"Run {run_id} has not ended, so its events cannot be trimmed. Cancel it first."
        )
    for table in ("batches", "fresh", "snapshots", "letters"):
        db.execute(f"delete from {table} where run_id = ?", (run_id,))  # noqa: S608
    db.execute("insert into snapshots values (?, ?, ?)", (run_id, last_seq, snapshot))
    db.execute("update runs set trimmed_to = last_seq where run_id = ?", (run_id,))


def delete(db: apsw.Connection, run_id: str, now: float) -> bool:
    """Delete a run with its events, snapshots and letters."""
    blobs_of.let_go(db, run_id, now)
    for table in ("batches", "fresh", "snapshots", "letters"):
        db.execute(f"delete from {table} where run_id = ?", (run_id,))  # noqa: S608
    db.execute("delete from runs where run_id = ?", (run_id,))
    return db.changes() == 1
