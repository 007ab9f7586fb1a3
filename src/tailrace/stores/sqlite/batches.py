"""The table `batches` in SQLite: append, read, join and delete rows.

`tailrace.stores.rows` describes a row.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from functools import cache, partial
from typing import Any

import apsw

from tailrace.core.errors import SeqConflict, StorageError
from tailrace.core.log_lines import Lines
from tailrace.ports import Batch, NewRun
from tailrace.stores.rows import (
    READ_BYTES,
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
from tailrace.stores.sqlite.connections import attempt

AT_ONCE = 32
"""Most batches that one statement writes."""


def _row_of(batch: Batch) -> Row:
    return row_of(batch.run_id, batch.first_seq, batch.epoch, batch.publics, batch.privates)


def _insert(db: apsw.Connection, row: Row) -> None:
    db.execute("insert into batches values (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def first(db: apsw.Connection, run: NewRun) -> None:
    """Write the first event of a new run."""
    _insert(db, row_of(run.run_id, 1, run.epoch, [run.public], [run.private]))


def append(db: apsw.Connection, batches: list[Batch], now: float) -> list[Exception | None]:
    """Write batches; returns None or the refusal for each.

    Batches that all fit are written by one statement: each statement releases the GIL and waits for
    it again, which costs more than the statement. Otherwise they are tried separately.
    """
    answers: list[Exception | None] = []
    for start in range(0, len(batches), AT_ONCE):
        some = batches[start : start + AT_ONCE]
        _, failure = attempt(db, partial(_append_all, batches=some, now=now))
        answers += [None] * len(some) if failure is None else _one_by_one(db, some, now)
    return answers


def _append_all(db: apsw.Connection, batches: list[Batch], now: float) -> None:
    """Write batches of different runs, or raise `StorageError` if any of them does not fit."""
    rows = [_row_of(batch) for batch in batches]
    insert, move = _statements(len(rows))
    db.execute(insert, [value for row in rows for value in row])
    if db.changes() != len(rows) or len({row.run_id for row in rows}) != len(rows):
        raise SeqConflict("A batch does not fit.")
    db.execute(move, [value for row in rows for value in (row.run_id, row.last_seq)])
    for batch in batches:
        _finish(db, batch, now)


@cache
def _statements(count: int) -> tuple[str, str]:
    """SQL that inserts the batches that follow their run's last event, and moves the runs on.

    The second statement names no column of an index. SQLite would rewrite the index for each event,
    even if the value stays the same.
    """
    rows = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?)"] * count)
    ends = ", ".join(["(?, ?)"] * count)
    insert = (
        f"insert into batches select new.* from (values {rows}) new"  # noqa: S608
        " cross join runs on runs.run_id = new.column1 and runs.last_seq + 1 = new.column2"
        " and runs.epoch = new.column4 and runs.ended_at is null"
    )
    move = (
        f"update runs set last_seq = new.column2 from (values {ends}) new"  # noqa: S608
        " where runs.run_id = new.column1"
    )
    return insert, move


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


def _one_by_one(db: apsw.Connection, batches: list[Batch], now: float) -> list[Exception | None]:
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
    _, move = _statements(1)
    db.execute(move, (row.run_id, row.last_seq))
    _finish(db, batch, now)
    return None


def _is_there(db: apsw.Connection, row: Row) -> bool:
    """Whether these events are stored already, in rows of any size."""
    publics, privates = [], []
    for found in _rows(db, "*", row.run_id, row.first_seq - 1):
        there = Row(*found)
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
    """Columns of the rows that hold events after `after`, in order."""
    # Start at the row that holds the cursor. The index has the first event of each row.
    found = db.execute(
        f"select {columns} from batches where run_id = ?1 and first_seq >="  # noqa: S608
        " coalesce((select max(first_seq) from batches where run_id = ?1 and first_seq <= ?2 + 1),"
        " 0) and last_seq > ?2 order by first_seq",
        (run_id, after),
    )
    try:
        yield from found
    finally:
        found.close()  # an open cursor would keep the WAL from being reset


def read_lines(db: apsw.Connection, run_id: str, after: int, limit: int) -> list[Lines]:
    """Rows with events after `after`, until `limit` or `READ_BYTES` is reached."""
    known = db.execute("select trimmed_to from runs where run_id = ?", (run_id,)).fetchone()
    if known is not None and known[0] > after:
        raise trimmed(run_id, known[0])
    found: list[Lines] = []
    count = size = 0
    columns = "first_seq, last_seq, epoch, public, checksum, unpacked"
    with closing(_rows(db, columns, run_id, after)) as rows:
        for row in rows:
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
        "select epoch, last_seq from batches where run_id = ? and first_seq <= ?"
        " order by first_seq desc limit 1",
        (run_id, seq),
    ).fetchone()
    return int(found[0]) if found is not None and found[1] >= seq else None


def read_private(db: apsw.Connection, run_id: str, after: int) -> dict[int, bytes]:
    """The private parts after `after`, by seq."""
    hidden: dict[int, bytes] = {}
    columns = "first_seq, private, private_checksum, unpacked"
    for first_seq, private, checksum, unpacked in _rows(db, columns, run_id, after):
        if private is not None:
            verify(run_id, first_seq, private, checksum)
            lines = enumerate(plain(private, unpacked).split(b"\n"), first_seq)
            hidden |= {number: line for number, line in lines if line and number > after}
    return hidden


def plan(db: apsw.Connection, run_id: str) -> list[tuple[int, int]]:
    """Which rows of a run to join."""
    sizes = db.execute(
        "select first_seq, epoch, iif(unpacked is null,"
        " length(public) + coalesce(length(private), 0), null)"
        " from batches where run_id = ? order by first_seq",
        (run_id,),
    )
    return packs(sizes, ended=_has_ended(db, run_id))


def _has_ended(db: apsw.Connection, run_id: str) -> bool:
    query = "select 1 from runs where run_id = ? and ended_at is not null"
    return db.execute(query, (run_id,)).fetchone() is not None


def pack(db: apsw.Connection, run_id: str, first_seq: int, last: int) -> Row | None:
    """The rows from `first_seq` to `last`, joined; None if they are deleted.

    Runs on a reader's thread, so that the writer does not wait. Stored rows never change.
    """
    found: list[Any] = db.execute(
        "select * from batches where run_id = ? and first_seq between ? and ? order by first_seq",
        (run_id, first_seq, last),
    ).fetchall()
    if not found:
        return None
    return joined([Row(*row) for row in found], ended=_has_ended(db, run_id))


def put_pack(db: apsw.Connection, row: Row) -> None:
    """Replace rows by the joined row, if they are still there.

    Another process may have joined or deleted them.
    """
    place = (row.run_id, row.first_seq, row.last_seq)
    where = "from batches where run_id = ? and first_seq between ? and ?"
    ends = db.execute(f"select min(first_seq), max(last_seq) {where}", place).fetchone()
    if ends == place[1:]:
        db.execute(f"delete {where}", place)
        _insert(db, row)


def thin_snapshots(db: apsw.Connection, run_id: str) -> None:
    """Delete the snapshots that a later one makes dispensable."""
    db.execute(
        "delete from snapshots as s where run_id = ?1 and exists (select 1 from snapshots"
        " where run_id = ?1 and seq > s.seq and seq / ?2 = s.seq / ?2)",
        (run_id, SNAPSHOT_EVENTS),
    )


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
    for table in ("batches", "snapshots", "letters"):
        db.execute(f"delete from {table} where run_id = ?", (run_id,))  # noqa: S608
    db.execute("insert into snapshots values (?, ?, ?)", (run_id, last_seq, snapshot))
    db.execute("update runs set trimmed_to = last_seq where run_id = ?", (run_id,))


def delete(db: apsw.Connection, run_id: str, now: float) -> bool:
    """Delete a run with its events, snapshots and letters."""
    blobs_of.let_go(db, run_id, now)
    for table in ("batches", "snapshots", "letters"):
        db.execute(f"delete from {table} where run_id = ?", (run_id,))  # noqa: S608
    db.execute("delete from runs where run_id = ?", (run_id,))
    return db.changes() == 1
