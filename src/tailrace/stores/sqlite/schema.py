"""The tables of the SQLite store, and the migrations of older files.

A released migration never changes: a file may have any version. Migrations run when a file is
opened, forward only, in one transaction. A process that dies leaves the old file, and of two that
race one does the work.
"""

from __future__ import annotations

import random
import time
import zlib
from pathlib import Path
from typing import Literal

import apsw

from tailrace.core.errors import StorageError

Synchronous = Literal["normal", "full"]

BUSY_SECONDS = 3.0
"""How long a process waits for the write lock until it reports `StorageBusy`."""

WAL_LIMIT = 64 * 1024 * 1024
"""Above this size the checkpointer blocks the writers to reset the WAL."""

# The first files have these tables and version 0: hence `if not exists`, here only.
TABLES = """
create table if not exists runs (
    run_id     text primary key,
    agent      text not null,
    thread_id  text not null,
    last_seq   integer not null default 0,
    epoch      integer not null default 1,
    created_at real not null,
    ended_at   real
);
create index if not exists runs_by_thread on runs (thread_id, created_at);
create table if not exists batches (
    run_id    text not null,
    first_seq integer not null,
    last_seq  integer not null,
    epoch     integer not null,
    public    blob not null,
    private   blob,
    checksum  integer not null
);
create unique index if not exists batches_in_order on batches (run_id, first_seq);
create table if not exists snapshots (
    run_id text not null,
    seq    integer not null,
    state  blob not null,
    primary key (run_id, seq)
);
"""

# Owners, claims, letters, blobs, retention. `number` is the order of creation. Numbers and ordinals
# are never reused, so a cursor into a listing stays valid when runs are deleted. Runs of the first
# version without any event were never acknowledged: they are deleted. Each part gets a checksum of
# its own, so that readers of public parts need not read private parts. A damaged row keeps its old
# checksum and is still detected.
OWNERS_AND_LETTERS = """
create table runs_new (
    number          integer primary key autoincrement,
    run_id          text not null unique,
    agent           text not null,
    thread_id       text not null,
    owner           text not null,
    ordinal         integer not null,
    previous_run_id text,
    metadata        blob not null,
    last_seq        integer not null,
    epoch           integer not null,
    attempts        integer not null,
    created_at      real not null,
    ended_at        real,
    trimmed_to      integer not null,
    last_letter     integer not null,
    worker          text,
    lease_boot      text,
    lease_until     real
);
insert into runs_new
    select null, run_id, agent, thread_id, '', row_number() over earlier, lag(run_id) over earlier,
           x'', last_seq, epoch, 0, created_at, ended_at, 0, 0, null, null, null
    from runs where last_seq > 0
    window earlier as (partition by thread_id order by created_at, rowid)
    order by created_at, rowid;
drop table runs;
alter table runs_new rename to runs;
create unique index runs_by_thread on runs (thread_id, ordinal, owner);
create index runs_by_owner on runs (owner);
create index runs_alive on runs (agent) where ended_at is null;
create index runs_ended on runs (ended_at) where ended_at is not null;
create table threads (
    owner        text not null,
    thread_id    text not null,
    last_ordinal integer not null,
    primary key (owner, thread_id)
) without rowid;
insert into threads select owner, thread_id, max(ordinal) from runs group by owner, thread_id;
alter table batches add column private_checksum integer;
update batches set checksum = crc32(public, 0), private_checksum = crc32(private, 0)
    where private is not null and checksum = crc32(private, crc32(public, 0));
create table letters (
    run_id text not null,
    number integer not null,
    kind   text not null,
    body   blob not null,
    primary key (run_id, number)
);
create table blobs (
    sha256    text primary key,
    mime_type text not null,
    data      blob not null
);
"""

# Runs to forget, and indexes for retention, which must skip the runs that it has trimmed already.
RUNS_TO_FORGET = """
alter table runs add column forget integer not null default 0;
create index runs_to_trim on runs (ended_at) where ended_at is not null and trimmed_to = 0;
create index runs_to_forget on runs (ended_at) where ended_at is not null and forget = 1;
"""

# Which run uses which blob. The users of existing blobs are unknown: a user that is no run keeps
# these blobs.
BLOB_USES = """
create table blob_uses (
    run_id text not null,
    sha256 text not null,
    primary key (run_id, sha256)
) without rowid;
create index blob_users on blob_uses (sha256);
insert into blob_uses select '', sha256 from blobs;
create table unused_blobs (
    sha256 text primary key,
    since  real not null
) without rowid;
create index unused_blobs_in_order on unused_blobs (since);
"""

# The tables stay. Joined rows hold frames from now on, which older versions cannot read.
JOINED_FRAMES = "select 1"

# Runs that wait for people. `parked` is 1 while a run waits for a letter without a lease, and 2
# when a letter came. Its worker then has the lease for `first_go` seconds. The index for claims
# leaves parked runs out, because there may be thousands.
PARKED_RUNS = """
alter table runs add column parked integer not null default 0;
alter table runs add column first_go real not null default 0;
drop index runs_alive;
create index runs_alive on runs (agent) where ended_at is null and parked <> 1;
create index runs_woken on runs (worker) where ended_at is null and parked = 2;
"""

# Workers claim no run of a protocol that is newer than their own.
PROTOCOL_OF_RUNS = "alter table runs add column protocol integer not null default 1"

# The rows of ended runs are compressed from now on; see `tailrace.stores.rows`.
COMPRESSED_ROWS = "alter table batches add column unpacked integer"

# Owners take turns when runs are claimed, and have limits of unfinished runs. Names that were used.
TURNS_AND_USED_NAMES = """
drop index runs_alive;
create index runs_alive on runs (owner) where ended_at is null and parked <> 1;
create index runs_open on runs (owner) where ended_at is null;
create table used (name text primary key, until real not null) without rowid;
create index used_in_order on used (until);
"""

# Runs that wait for the earlier runs of their thread.
QUEUED_RUNS = """
alter table runs add column queued integer not null default 0;
create index runs_not_ended on runs (thread_id, owner, ordinal) where ended_at is null;
"""

# The newest small rows of all runs, without an index; see `tailrace.stores.sqlite.batches`.
FRESH_ROWS = """
create table fresh (
    run_id           text not null,
    first_seq        integer not null,
    last_seq         integer not null,
    epoch            integer not null,
    public           blob not null,
    private          blob,
    checksum         integer not null,
    private_checksum integer,
    unpacked         integer
);
"""

# A claim reads only runs that may be claimed. `look_at` is when a lease may have ended: never later
# than `lease_until`, and moved by every other extension, because moving it writes an index.
CLAIM_INDEXES = """
alter table runs add column look_at real not null default 0;
drop index runs_alive;
create index runs_free on runs (owner)
    where ended_at is null and parked <> 1 and worker is null;
create index runs_lost on runs (lease_boot, look_at)
    where ended_at is null and parked <> 1 and worker is not null;
"""

# `joined` is 1 when the rows of a run were joined after its end.
UNJOINED_RUNS = """
alter table runs add column joined integer not null default 0;
create index runs_unjoined on runs (ended_at)
    where ended_at is not null and joined = 0 and trimmed_to = 0 and forget = 0;
"""

# Dense rows, which older versions cannot read: see `tailrace.stores.rows.DENSE_FROM`.
DENSE_ROWS = """
insert into used select 'dense rows', unixepoch('subsec') + 86400
    where exists (select 1 from runs);
"""

MIGRATIONS = (
    TABLES,  # 1
    OWNERS_AND_LETTERS,  # 2
    RUNS_TO_FORGET,  # 3
    BLOB_USES,  # 4
    JOINED_FRAMES,  # 5
    PARKED_RUNS,  # 6
    PROTOCOL_OF_RUNS,  # 7
    COMPRESSED_ROWS,  # 8
    TURNS_AND_USED_NAMES,  # 9
    QUEUED_RUNS,  # 10
    FRESH_ROWS,  # 11
    CLAIM_INDEXES,  # 12
    UNJOINED_RUNS,  # 13
    DENSE_ROWS,  # 14
)
"""In the order of the versions."""
VERSION = len(MIGRATIONS)


def connect(path: str, synchronous: Synchronous) -> apsw.Connection:
    """Open a connection and migrate the file, or raise `StorageError`."""
    try:
        connection = apsw.Connection(path)
    except apsw.Error as error:
        if Path(path).is_dir():  # SQLite says only that it cannot open the file
            raise StorageError(
                f"The database {path} is a directory. Name a file in it: {path}/tailrace.db."
            ) from error
        raise StorageError(
            f"The database {path} could not be opened: {error}. Check that its folder exists and"
            " can be written."
        ) from error
    try:
        # The switch to WAL ignores the busy timeout and refuses some locks at once.
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                _prepare(connection, synchronous)
                break
            except apsw.BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0.001, 0.02))  # noqa: S311  # only spreads the retries
    except BaseException as error:
        connection.close()
        if not isinstance(error, apsw.Error):
            raise
        raise StorageError(
            f"The database {path} could not be opened: {error}. Check that it is a SQLite "
            "file, and that no other program has locked it."
        ) from error
    return connection


def wait_when_busy(connection: apsw.Connection) -> None:
    """Let a connection wait for the write lock of another process."""
    connection.set_busy_timeout(int(BUSY_SECONDS * 1000))


def _prepare(connection: apsw.Connection, synchronous: Synchronous) -> None:
    wait_when_busy(connection)
    # Else SQLite compiles a cached statement again for each value that is bound to it: another plan
    # may suit the value better. See https://sqlite.org/queryplanner-ng.html#qpstab.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.execute("pragma journal_mode = wal")
    # NORMAL survives the death of the process; a power cut may lose the last moments. FULL
    # survives a power cut too, at the cost of an fsync per transaction.
    connection.execute(f"pragma synchronous = {synchronous}")
    # A checkpoint inside a commit makes the slowest percent of commits: a thread does it instead.
    connection.execute("pragma wal_autocheckpoint = 0")
    connection.execute(f"pragma journal_size_limit = {WAL_LIMIT}")
    if _version(connection) != VERSION:
        migrate(connection)


def migrate(connection: apsw.Connection, to: int = VERSION) -> None:
    """Migrate a file. Of several processes, the first to get the write lock does it."""
    connection.create_scalar_function("crc32", zlib.crc32, 2)  # type: ignore[arg-type]
    connection.execute("begin immediate")
    try:
        found = _version(connection)
        if found > VERSION:
            raise StorageError(
                f"The database {connection.filename} has version {found}; this Tailrace knows"
                f" versions up to {VERSION}. Install a newer Tailrace."
            )
        for number in range(found, to):
            connection.execute(MIGRATIONS[number])
            connection.execute(f"pragma user_version = {number + 1}")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise
    connection.execute("commit")


def _version(connection: apsw.Connection) -> int:
    return int(connection.pragma("user_version"))
