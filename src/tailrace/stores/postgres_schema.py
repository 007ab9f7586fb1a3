"""The PostgreSQL store's tables, and how an older database becomes today's.

A migration is never changed once it was released: a database may have been left at any of them.
They run by themselves when a store is opened, forward only, all in one transaction. `@` stands
before every name and becomes the schema, so that several Tailraces can share one database.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

from tailrace.core.errors import InvalidValue, StorageError

DEFAULT_SCHEMA = "tailrace"

# `number` is the order of creation and is never given twice, nor is an ordinal of a thread: a
# cursor into a listing stays true when runs are deleted. Ids compare bytewise (collation "C"): a
# database's own collation is slower, and may change with the operating system under an index.
#
# runs: every append updates its row, so no index may hold `last_seq`, `epoch`, `lease_until` or
# any counter; with room left in the page such an update touches no index at all.
#
# `created_token`, `claim_token` and the letters' `token` are of the call that wrote them: a call
# whose answer was lost finds its own work when it asks again, and does not do it twice.
#
# batches: no foreign key, which would cost a lookup and a lock for each row. Deleting takes the
# run's row first, so nobody can append behind its back. A row is kept whole in its page as long as
# it fits; what is larger goes out of line as it is: compressing would cost more than writing.
FIRST = """
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

# Runs that are not to be kept.
SECOND = """
alter table @runs add column forget boolean not null default false;
create index runs_to_forget on @runs (ended_at) where ended_at is not null and forget;
"""

# Which run uses which blob. `unused_since` is null exactly while somebody does; whoever changes the
# one or the other holds the blob's row. Who uses those that are there already was never written
# down, so they get a user that no run is, and stay.
THIRD = """
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

# No other tables; but joined rows hold frames from now on, which an older version could not read.
FOURTH = """
comment on column @batches.public is 'JSON lines; in joined rows, frames of the native stream';
"""

# Runs that wait for people. `parked` is 1 while a run waits for a letter without a lease, and 2
# since a letter came; `first_go` is how many seconds its worker then has before others may claim
# it. Thousands of runs may be parked, so the index that claims use leaves them out.
FIFTH = """
alter table @runs add column parked smallint not null default 0;
alter table @runs add column first_go double precision not null default 0;
drop index @runs_alive;
create index runs_alive on @runs (number, agent) where ended_at is null and parked <> 1;
create index runs_woken on @runs (worker) where ended_at is null and parked = 2;
"""

MIGRATIONS = (FIRST, SECOND, THIRD, FOURTH, FIFTH)


def in_schema(statement: str, schema: str) -> str:
    """The statement with its names in a schema. Safe, because `checked` allows no odd names."""
    return statement.replace("@", f'"{schema}".')


def checked(schema: str) -> str:
    """The schema's name, if it is one that needs no thought about quoting."""
    if not re.fullmatch("[a-z_][a-z0-9_]{0,62}", schema):
        raise InvalidValue(
            f"{schema!r} is no name for a schema: use up to 63 small letters, digits and `_`."
        )
    return schema


async def migrate(db: Any, schema: str, migrations: tuple[str, ...] = MIGRATIONS) -> None:
    """Bring the schema to today's version; of several processes one does it, the others wait."""
    newest = len(migrations)
    if await _version(db, schema) == newest:
        return
    async with db.transaction():
        # `create … if not exists` is no protection: two at once can both find nothing there.
        await db.execute("select pg_advisory_xact_lock($1)", _lock_number(schema))
        found = await _version(db, schema)
        if found > newest:
            raise StorageError(
                f"The schema {schema} of the database has version {found}; this Tailrace knows"
                f" versions up to {newest}. Install a newer Tailrace."
            )
        # Asked first, because creating one needs a right that its owner may lack.
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
    # Not `to_regclass`: within a transaction it answers from a cache, and misses what another
    # process made while we waited for the lock.
    made = await db.fetchval(
        "select 1 from pg_tables where schemaname = $1 and tablename = 'version'", schema
    )
    if made is None:
        return 0
    version: int = await db.fetchval(in_schema("select version from @version", schema))
    return version


def _lock_number(schema: str) -> int:
    """What processes that migrate this schema agree on: any number that others hardly use."""
    return 0x7461696C << 32 | zlib.crc32(schema.encode())
