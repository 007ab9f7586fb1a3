"""Claims and letters in SQLite.

Leases use the clock that counts from the machine's boot: it cannot be set, and runs while the
machine sleeps. A lease also names its boot. A lease of another boot has ended, as has its worker.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import apsw

from tailrace.core.codec import PROTOCOL
from tailrace.core.values import json_text
from tailrace.ports import Claim, InboxLetter, Unread
from tailrace.stores.limits import LOST_AT_ONCE
from tailrace.stores.sqlite.connections import TakesLong

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

# A released run has no worker. A run that still has a worker was lost, which counts an attempt.
_CLAIM = (
    "update runs set epoch = epoch + 1,"
    " attempts = attempts + (worker is not null or attempts = 0), parked = 0, worker = ?1,"
    " lease_boot = ?2,"
    " lease_until = ?3, look_at = ?3 where {} returning run_id, agent, epoch, attempts, last_seq"
)
_CLAIM_NUMBER = _CLAIM.format("number = ?4")
_CLAIM_RUN = _CLAIM.format(f"run_id = ?4 and ended_at is null and protocol <= {PROTOCOL}")

# A run that waits is free (it has no worker) or lost (its lease has ended). Each kind
# has an index, so that no claim steps over the runs that are held.
_WAITS = (
    "protocol <= :protocol and agent in (select value from json_each(:agents))"
    " and run_id not in (select value from json_each(:held))"
    " and (queued = 0 or exists (select 1 from letters as l"
    " where l.run_id = runs.run_id and l.kind = 'cancel')"
    " or not exists (select 1 from runs as e where e.ended_at is null"
    " and e.thread_id = runs.thread_id and e.owner = runs.owner"
    " and e.ordinal < runs.ordinal))"
)
_FREE = (
    "select number from runs where ended_at is null and parked <> 1 and worker is null"  # noqa: S608
    f" and owner = :owner and {_WAITS} order by number limit :limit"
)
# Leases of this boot and of others: ranges of the index. `<>` would read all of it.
_LOST = " union all ".join(
    "select * from (select owner, number from runs where ended_at is null and parked <> 1"  # noqa: S608
    f" and worker is not null and {ended} and {_WAITS} limit {LOST_AT_ONCE})"
    for ended in (
        "lease_boot = :boot and look_at <= :now and lease_until <= :now",
        "lease_boot < :boot",
        "lease_boot > :boot",
        "lease_boot is null",
    )
)


def boot_time() -> float:
    """Seconds since the machine's boot, or the wall clock where the system has no such clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.time() if clock is None else time.clock_gettime(clock)


def boot_id() -> str:
    """The id of the machine's boot; "" where the system has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def listed(values: list[str]) -> str:
    """Strings as one SQL parameter for `json_each`: there may be thousands."""
    return json_text(values)


def claim(
    db: apsw.Connection,
    worker: str,
    agents: list[str],
    lease: float,
    limit: int,
    held: list[str],
    per_owner: int | None,
    lost: bool,
    now: float,
    boot: str,
    most: int | None = None,
) -> list[Claim]:
    """Claim waiting runs for a worker: owners take turns, each with its oldest run.

    Raises `TakesLong` if more than `most` runs are lost, or more than `most` owners wait.
    """
    has: dict[str, int] = {}
    if held:
        having: list[Any] = db.execute(
            "select owner, count(*) from runs"
            " where run_id in (select value from json_each(?)) group by owner",
            (listed(held),),
        ).fetchall()
        has = dict(having)
    asked = {"protocol": PROTOCOL, "agents": listed(agents), "held": listed(held)}
    asked |= {"now": now, "boot": boot, "limit": limit}
    waiting: dict[str, list[int]] = {}
    left = set[int]()
    found: Iterator[Any] = db.execute(_LOST, asked) if lost else iter(())
    for place, (owner, number) in enumerate(found):
        if place == most:
            raise TakesLong("Many runs are lost.")
        left.add(number)
        waiting.setdefault(owner, []).append(number)
    for owner in _owners(db):
        if most is not None and len(waiting) > most:
            raise TakesLong("Many owners wait.")
        free: Any = db.execute(_FREE, {**asked, "owner": owner})
        waiting.setdefault(owner, []).extend(number for (number,) in free)
    turns: list[tuple[int, int]] = []
    for owner, numbers in waiting.items():
        had = has.get(owner, 0)
        room = limit if per_owner is None else min(limit, per_owner - had)
        turns += enumerate(sorted(numbers)[: max(room, 0)], had)
    claims: list[Claim] = []
    for _, number in sorted(turns)[:limit]:
        taken: list[Any] = db.execute(_CLAIM_NUMBER, (worker, boot, now + lease, number)).fetchall()
        claims += [Claim(*(*row, number in left)) for row in taken]
    return claims


def _owners(db: apsw.Connection) -> Iterator[str]:
    """The owners of runs without a worker: a jump in the index for each, not a scan."""
    query = "select min(owner) from runs where ended_at is null and parked <> 1 and worker is null"
    found: Any = db.execute(query).fetchone()
    while found[0] is not None:
        yield found[0]
        found = db.execute(f"{query} and owner > ?", (found[0],)).fetchone()


def use_once(db: apsw.Connection, name: str, now: float, until: float) -> bool:
    """Note the use of a name, if it was not used."""
    db.execute("delete from used where until <= ?", (now,))
    db.execute("insert or ignore into used values (?, ?)", (name, until))
    return bool(db.changes())


def take_over(
    db: apsw.Connection, run_id: str, worker: str, until: float, boot: str
) -> Claim | None:
    """Claim a run for a worker from any holder."""
    found: list[Any] = db.execute(_CLAIM_RUN, (worker, boot, until, run_id)).fetchall()
    return Claim(*found[0]) if found else None


def extend(
    db: apsw.Connection,
    worker: str,
    claims: list[tuple[str, int]],
    now: float,
    until: float,
    boot: str,
) -> set[str]:
    """Extend the leases of claims; returns the runs whose claim is lost."""
    lost = set()
    for run_id, epoch in claims:
        db.execute(
            # `look_at` moves if half of the lease is over, or if the lease is shorter than before.
            "update runs set lease_boot = ?1, lease_until = ?2,"
            " look_at = iif(lease_boot = ?1 and look_at between ?3 and ?2, look_at, ?2),"
            " parked = iif(parked = 1, 2, parked)"
            " where run_id = ?4 and epoch = ?5 and worker = ?6",
            (boot, until, (now + until) / 2, run_id, epoch, worker),
        )
        if not db.changes():
            lost.add(run_id)
    return lost


def release(db: apsw.Connection, run_id: str, epoch: int) -> None:
    """Let a run wait to be claimed, unless another epoch has begun."""
    db.execute(
        "update runs set worker = null, lease_boot = null, lease_until = null"
        " where run_id = ? and epoch = ?",
        (run_id, epoch),
    )


def park(
    db: apsw.Connection, worker: str, claims: list[tuple[str, int, int]], first_go: float
) -> set[str]:
    """Park runs that have no new letter; returns the parked runs."""
    parked: set[str] = set()
    for run_id, epoch, letter in claims:
        db.execute(
            "update runs set parked = 1, first_go = ?, lease_boot = null, lease_until = null"
            " where run_id = ? and epoch = ? and worker = ? and ended_at is null"
            " and not exists (select 1 from letters as l where l.run_id = runs.run_id"
            " and l.number > ?)",
            (first_go, run_id, epoch, worker, letter),
        )
        if db.changes():
            parked.add(run_id)
    return parked


def woken(db: apsw.Connection, worker: str) -> set[str]:
    """The parked runs of a worker that a letter woke."""
    found: list[Any] = db.execute(
        "select run_id from runs where ended_at is null and parked = 2 and worker = ?", (worker,)
    ).fetchall()
    return {run_id for (run_id,) in found}


def post(
    db: apsw.Connection,
    run_id: str,
    kind: Literal["cancel", "input"],
    body: bytes,
    now: float,
    boot: str,
) -> int | None:
    """Store a letter under the next number. It wakes a parked run; its worker has the first go."""
    found: list[Any] = db.execute(
        "update runs set last_letter = last_letter + 1,"
        " lease_boot = iif(parked = 1 and worker is not null, ?1, lease_boot),"
        " lease_until = iif(parked = 1 and worker is not null, ?2 + first_go, lease_until),"
        " look_at = iif(parked = 1 and worker is not null, ?2 + first_go, look_at),"
        " parked = iif(parked = 1, 2, parked)"
        " where run_id = ?3 and ended_at is null returning last_letter",
        (boot, now, run_id),
    ).fetchall()
    if not found:
        return None
    number: int = found[0][0]
    db.execute("insert into letters values (?, ?, ?, ?)", (run_id, number, kind, body))
    return number


def unread(db: apsw.Connection, run_id: str) -> Unread:
    """How many letters of a run are not acknowledged, and their bytes."""
    found: Any = db.execute(
        "select count(*), coalesce(sum(length(body)), 0) from letters where run_id = ?", (run_id,)
    ).fetchone()
    return Unread(*found)


def letters(db: apsw.Connection, run_ids: list[str]) -> dict[str, list[InboxLetter]]:
    """The letters of these runs that are not acknowledged."""
    waiting: dict[str, list[InboxLetter]] = {}
    for run_id, *letter in db.execute(
        "select run_id, number, kind, body from letters"
        " where run_id in (select value from json_each(?)) order by run_id, number",
        (listed(run_ids),),
    ):
        waiting.setdefault(run_id, []).append(InboxLetter(*letter))
    return waiting
