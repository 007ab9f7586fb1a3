"""The rows of runs in SQLite: a run is created, listed, and found by its thread."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from tailrace.core.errors import SeqConflict
from tailrace.ports import Head, NewRun, RunInfo, Snapshot
from tailrace.stores.sqlite import batches as batches_of
from tailrace.stores.sqlite import queue as queue_of
from tailrace.stores.sqlite.connections import TakesLong

_INFO = ", ".join(RunInfo.__struct_fields__)


def create(db: apsw.Connection, run: NewRun, now: float) -> RunInfo | None:
    """Create a run with its first event; None if its id is taken."""
    if _one(db, "select 1 from runs where run_id = ?", run.run_id) is not None:
        return None
    (ordinal,) = _one(
        db,
        "insert into threads values (?, ?, 1) on conflict do update"
        " set last_ordinal = last_ordinal + 1 returning last_ordinal",
        run.owner,
        run.thread_id,
    ) or (1,)
    if run.ordinal not in (None, ordinal):
        raise SeqConflict(
            f"Thread {run.thread_id} has another run {run.ordinal}. Create the run again."
        )
    info = RunInfo(
        run_id=run.run_id,
        agent=run.agent,
        thread_id=run.thread_id,
        owner=run.owner,
        ordinal=ordinal,
        previous_run_id=run.previous_run_id,
        last_seq=1,
        epoch=run.epoch,
        attempts=0,
        created_at=now,
        ended_at=None,
        trimmed_to=0,
        forget=run.forget,
    )
    db.execute(
        # The column `metadata` has no use: `task.created` has the metadata of a run.
        f"insert into runs ({_INFO}, metadata, last_letter, protocol, queued)"  # noqa: S608
        " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, x'', 0, ?, ?)",
        (*msgspec.structs.astuple(info), run.protocol, run.queued),
    )
    batches_of.first(db, run)
    return info


def infos(db: apsw.Connection, where: str, *values: Any) -> list[RunInfo]:
    """The runs of a `where`."""
    rows = db.execute(f"select {_INFO} from runs where {where}", values)  # noqa: S608
    names = RunInfo.__struct_fields__
    found = (dict(zip(names, row, strict=True)) for row in rows)
    return [RunInfo(**{**row, "forget": bool(row["forget"])}) for row in found]


def info(db: apsw.Connection, run_id: str) -> RunInfo | None:
    """The row of a run."""
    found = infos(db, "run_id = ?", run_id)
    return found[0] if found else None


def newest(db: apsw.Connection, thread_id: str, owner: str) -> RunInfo | None:
    """The last run of an owner's thread."""
    where = "thread_id = ? and owner = ? order by ordinal desc limit 1"
    found = infos(db, where, thread_id, owner)
    return found[0] if found else None


def last_ordinal(db: apsw.Connection, thread_id: str, owner: str) -> int:
    """The highest ordinal of a thread so far."""
    query = "select last_ordinal from threads where owner = ? and thread_id = ?"
    found = _one(db, query, owner, thread_id)
    return int(found[0]) if found is not None else 0


def snapshot(
    db: apsw.Connection, run_id: str, at_most: int | None, *, most: int | None = None
) -> Snapshot | None:
    """The newest snapshot up to an event. Raises `TakesLong` if it has more than `most` bytes."""
    found = _one(
        db,
        "select seq, iif(length(state) > ?, null, state) from snapshots"
        " where run_id = ? and seq <= ? order by seq desc limit 1",
        2**62 if most is None else most,
        run_id,
        2**62 if at_most is None else at_most,
    )
    if found is not None and found[1] is None:
        raise TakesLong("The snapshot is large.")
    return Snapshot(*found) if found is not None else None


def heads(db: apsw.Connection, run_ids: list[str]) -> dict[str, Head]:
    """How far these runs' logs go."""
    rows = db.execute(
        "select run_id, last_seq, epoch, ended_at is not null from runs"
        " where run_id in (select value from json_each(?))",
        (queue_of.listed(run_ids),),
    )
    return {run_id: Head(seq, epoch, bool(ended)) for run_id, seq, epoch, ended in rows}


def _one(db: apsw.Connection, query: str, *values: Any) -> Any:
    return db.execute(query, values).fetchone()
