"""The tables of the PostgreSQL store, and the migrations of older databases.

A released migration never changes: a database may have any version. Migrations run when a store is
opened, forward only, in one transaction. `@` before a name becomes the schema, so that several
Tailraces can share a database.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

from tailrace.core.errors import InvalidValue, StorageError

DEFAULT_SCHEMA = "tailrace"

# `number` is the order of creation. Numbers and ordinals are never reused, so a cursor into a
# listing stays valid when runs are deleted. Ids compare bytewise (collation "C"): the database's
# collation is slower, and an operating system upgrade may change it under an index.
#
# runs: every append updates its row, so no index holds `last_seq`, `epoch`, `lease_until` or a
# counter. With room left in the page, such an update touches no index.
#
# `created_token`, `claim_token` and a letter's `token` identify the call that wrote them. A call
# whose answer was lost finds its work by the token and does not repeat it.
#
# batches: no foreign key, which would cost a lookup and a lock for each row. A deletion takes the
# run's row first, so that no append can follow. Rows stay whole in their page while they fit;
# larger values go out of line uncompressed, because compressing costs more than writing.
TABLES = """
create table @runs (
    run_id          text collate "C" primary key,
    number          bigint not null generated always as identity,
    agent           text not null,
    thread_id       text collate "C" not null,
    owner           text collate "C" not null,
    ordinal         bigint not null,
    previous_run_id text,
    metadata        bytea not null,
    last_seq        bigint not null,
    epoch           bigint not null default 1,
    attempts        bigint not null default 0,
    created_at      timestamptz not null default clock_timestamp(),
    created_token   bytea not null,
    ended_at        timestamptz,
    trimmed_to      bigint not null default 0,
    worker          text,
    lease_until     timestamptz,
    claim_token     bytea,
    last_letter     bigint not null default 0,
    read_letter     bigint not null default 0
) with (fillfactor = 60);
create unique index runs_in_order on @runs (number);
create unique index runs_by_thread on @runs (thread_id, ordinal, owner);
create index runs_by_owner on @runs (owner, number);
create index runs_alive on @runs (number, agent) where ended_at is null;
create index runs_ended on @runs (ended_at) where ended_at is not null;
create index runs_to_trim on @runs (ended_at) where ended_at is not null and trimmed_to = 0;

create table @threads (
    owner        text collate "C",
    thread_id    text collate "C",
    last_ordinal bigint not null,
    primary key (owner, thread_id)
);

create table @batches (
    run_id           text collate "C" not null,
    first_seq        bigint not null,
    last_seq         bigint not null,
    epoch            bigint not null,
    public           bytea not null,
    private          bytea,
    public_checksum  bigint not null,
    private_checksum bigint
) with (toast_tuple_target = 8160);
alter table @batches alter public set storage external, alter private set storage external;
create unique index batches_in_order on @batches (run_id, first_seq);

create table @snapshots (
    run_id text collate "C",
    seq    bigint,
    state  bytea not null,
    primary key (run_id, seq)
);
alter table @snapshots alter state set storage external;

create table @letters (
    run_id text collate "C",
    number bigint,
    kind   text not null,
    body   bytea not null,
    token  bytea not null,
    primary key (run_id, number),
    unique (run_id, token)
);

create table @blobs (
    sha256    text collate "C" primary key,
    mime_type text not null,
    data      bytea not null
);
alter table @blobs alter data set storage external;
"""

# Runs to forget.
RUNS_TO_FORGET = """
alter table @runs add column forget boolean not null default false;
create index runs_to_forget on @runs (ended_at) where ended_at is not null and forget;
"""

# Which run uses which blob. `unused_since` is null while a run uses the blob; changing either needs
# a lock on the blob's row. The users of existing blobs are unknown: a user that is not a run keeps
# these blobs.
BLOB_USES = """
create table @blob_uses (
    run_id text collate "C",
    sha256 text collate "C",
    primary key (run_id, sha256)
);
create index blob_users on @blob_uses (sha256);
insert into @blob_uses select '', sha256 from @blobs;
alter table @blobs add column unused_since timestamptz;
create index blobs_unused on @blobs (unused_since) where unused_since is not null;
"""

# The tables stay. Joined rows hold frames from now on, which older versions cannot read.
JOINED_FRAMES = """
comment on column @batches.public is 'JSON lines; in joined rows, frames of the native stream';
"""

# Runs that wait for people. `parked` is 1 while a run waits for a letter without a lease, and 2
# when a letter came. Its worker then has the lease for `first_go` seconds. The index for claims
# leaves parked runs out, because there may be thousands.
PARKED_RUNS = """
alter table @runs add column parked smallint not null default 0;
alter table @runs add column first_go double precision not null default 0;
drop index @runs_alive;
create index runs_alive on @runs (number, agent) where ended_at is null and parked <> 1;
create index runs_woken on @runs (worker) where ended_at is null and parked = 2;
"""

# Workers claim no run of a protocol that is newer than their own.
PROTOCOL_OF_RUNS = "alter table @runs add column protocol integer not null default 1"

# The rows of ended runs are compressed from now on; see `tailrace.stores.rows`.
COMPRESSED_ROWS = "alter table @batches add column unpacked bigint"

# Owners take turns when runs are claimed, and have limits of unfinished runs. Names that were used;
# `token` finds a use whose answer was lost.
TURNS_AND_USED_NAMES = """
drop index @runs_alive;
create index runs_alive on @runs (owner, number) where ended_at is null and parked <> 1;
create index runs_open on @runs (owner) where ended_at is null;
create table @used (
    name  text collate "C" primary key,
    until timestamptz not null,
    token bytea not null
);
create index used_in_order on @used (until);
"""

# Runs that wait for the earlier runs of their thread.
QUEUED_RUNS = """
alter table @runs add column queued boolean not null default false;
create index runs_not_ended on @runs (thread_id, owner, ordinal) where ended_at is null;
"""

# A claim reads only runs that may be claimed. `look_at` is when a lease may have ended: never later
# than `lease_until`, and moved by every other extension, because moving it writes every index.
CLAIM_INDEXES = """
alter table @runs add column look_at timestamptz not null default '-infinity';
drop index @runs_alive;
create index runs_free on @runs (owner, number)
    where ended_at is null and parked <> 1 and worker is null;
create index runs_lost on @runs (look_at)
    where ended_at is null and parked <> 1 and worker is not null;
"""

# When the rows of an ended run are joined, they move into the partition of the day on which it
# ended. So retention can drop the partition. The rows of other runs are in the partition
# `batches_live`. Statements name the partition that they need. `archived` is the day of a run whose
# rows have moved.
DAILY_PARTITIONS = """
alter table @batches rename to batches_live;
alter index @batches_in_order rename to batches_live_in_order;
alter table @batches_live add column ended_on date check (ended_on is null);
create table @batches (like @batches_live including storage) partition by list (ended_on);
alter table @batches attach partition @batches_live for values in (null);
alter table @runs add column archived date;
"""

# Ended runs whose rows are not joined yet.
UNJOINED_RUNS = """
create index runs_unjoined on @runs (ended_at)
    where ended_at is not null and archived is null and trimmed_to = 0 and not forget;
"""

# Dense rows, which older versions cannot read: see `tailrace.stores.rows.DENSE_FROM`.
DENSE_ROWS = """
insert into @used select 'dense rows', now() + interval '1 day', ''
    where exists (select 1 from @runs);
"""

MIGRATIONS = (
    TABLES,  # 1
    RUNS_TO_FORGET,  # 2
    BLOB_USES,  # 3
    JOINED_FRAMES,  # 4
    PARKED_RUNS,  # 5
    PROTOCOL_OF_RUNS,  # 6
    COMPRESSED_ROWS,  # 7
    TURNS_AND_USED_NAMES,  # 8
    QUEUED_RUNS,  # 9
    CLAIM_INDEXES,  # 10
    DAILY_PARTITIONS,  # 11
    UNJOINED_RUNS,  # 12
    DENSE_ROWS,  # 13
)
"""In the order of the versions."""


def in_schema(statement: str, schema: str) -> str:
    """The statement with its names in a schema, whose name `checked` has verified."""
    return statement.replace("@", f'"{schema}".')


def checked(schema: str) -> str:
    """The schema's name, if it needs no quoting; else `InvalidValue`."""
    if not re.fullmatch("[a-z_][a-z0-9_]{0,62}", schema):
        raise InvalidValue(
            f"The schema name {schema!r} is invalid. Use 1 to 63 letters a-z, digits and `_`."
        )
    return schema


async def migrate(db: Any, schema: str, migrations: tuple[str, ...] = MIGRATIONS) -> None:
    """Migrate the schema. Of several processes one does it, the others wait."""
    newest = len(migrations)
    if await _version(db, schema) == newest:
        return
    async with db.transaction():
        # `create … if not exists` does not help: two processes can both find nothing.
        await db.execute("select pg_advisory_xact_lock($1)", lock_number(schema))
        found = await _version(db, schema)
        if found > newest:
            raise StorageError(
                f"The schema {schema} of the database has version {found}; this Tailrace knows"
                f" versions up to {newest}. Install a newer Tailrace."
            )
        # Check first: creating a schema needs a right that its owner may lack.
        if not await db.fetchval("select 1 from pg_namespace where nspname = $1", schema):
            await db.execute(f'create schema "{schema}"')
        if found == 0:
            await db.execute(
                in_schema("create table @version (version integer primary key)", schema)
            )
            await db.execute(in_schema("insert into @version values (0)", schema))
        for migration in migrations[found:]:
            await db.execute(in_schema(migration, schema))
        await db.execute(in_schema("update @version set version = $1", schema), newest)


async def _version(db: Any, schema: str) -> int:
    # Not `to_regclass`: it answers from a cache, and misses a table that another process created
    # while this process waited for the lock.
    made = await db.fetchval(
        "select 1 from pg_tables where schemaname = $1 and tablename = 'version'", schema
    )
    if made is None:
        return 0
    version: int = await db.fetchval(in_schema("select version from @version", schema))
    return version


def lock_number(schema: str) -> int:
    """The advisory lock of this schema's migrations."""
    return 0x7461696C << 32 | zlib.crc32(schema.encode())
