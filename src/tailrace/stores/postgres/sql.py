"""Every statement of the PostgreSQL store. `@` becomes the schema; see `schema.py`.

Statements that lock several rows of `runs` lock them by id, so that no two transactions deadlock. A
statement sees what was committed when it began, and the current version of rows that it waited for.
A decision that needs other tables after a wait is therefore a second statement.
"""

from datetime import date

from tailrace.core.codec import PROTOCOL
from tailrace.stores.limits import LOST_AT_ONCE

# --- runs and their events ----------------------------------------------------------------------

INFO = """run_id, agent, thread_id, owner, ordinal, previous_run_id, last_seq, epoch,
    attempts, extract(epoch from created_at)::float8 as created_at,
    extract(epoch from ended_at)::float8 as ended_at, trimmed_to, forget"""

# The run: $1 run_id, $2 agent, $3 thread_id, $4 owner, $5 previous_run_id, $6 token.
# Its first batch: $7 public, $8 private, $9 and $10 their checksums.
# Also: $11 forget, $12 epoch, $13 protocol, $14 queued, $15 the ordinal that it must get (null:
# any). No row if the id or the ordinal is taken; a racer for the same id fails on the primary key.
# Either way the thread's counter does not move.
CREATE = f"""
with thread as (
    insert into @threads as t (owner, thread_id, last_ordinal)
    select $4, $3, 1 where not exists (select from @runs where run_id = $1)
    on conflict (owner, thread_id) do update set last_ordinal = t.last_ordinal + 1
        where $15::bigint is null or t.last_ordinal + 1 = $15
    returning last_ordinal
), run as (
    insert into @runs (run_id, agent, thread_id, owner, ordinal, previous_run_id, metadata,
                       created_token, last_seq, forget, epoch, protocol, queued)
    select $1, $2, $3, $4, last_ordinal, $5, '', $6, 1, $11, $12, $13, $14 from thread
    returning {INFO}
), first_event as (
    insert into @batches_live (run_id, first_seq, last_seq, epoch, public, private, public_checksum,
                          private_checksum)
    select run_id, 1, 1, epoch, $7::bytea, $8::bytea, $9::bigint, $10::bigint from run
)
select * from run
"""  # noqa: S608

# $1 run_id, $2 token
CREATED = f"select {INFO} from @runs where run_id = $1 and created_token = $2"  # noqa: S608

# One array per column, one entry per batch, at most one batch per run. Returns how far each run's
# log went before, and whether its batch was written.
APPEND = """
with given as materialized (
    select * from unnest(
        $1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[],
        $7::bigint[], $8::bigint[], $9::boolean[], $10::bytea[]
    ) as g (run_id, epoch, first_seq, last_seq, public, private, public_checksum,
            private_checksum, ended, snapshot)
), locked as materialized (
    select run_id, epoch, last_seq, ended_at is not null as ended from @runs
    where run_id = any($1::text[]) order by run_id for no key update
), fitting as materialized (
    select given.* from given join locked using (run_id)
    where not locked.ended and locked.epoch = given.epoch
        and locked.last_seq + 1 = given.first_seq
), moved as (
    update @runs as r
    set last_seq = f.last_seq,
        ended_at = case when f.ended then clock_timestamp() end,
        worker = case when not f.ended then r.worker end,
        lease_until = case when not f.ended then r.lease_until end
    from fitting as f where r.run_id = f.run_id
), written as (
    insert into @batches_live (run_id, first_seq, last_seq, epoch, public, private, public_checksum,
                          private_checksum)
    select run_id, first_seq, last_seq, epoch, public, private, public_checksum, private_checksum
    from fitting
), saved as (
    insert into @snapshots (run_id, seq, state)
    select run_id, last_seq, snapshot from fitting where snapshot is not null
)
select run_id, locked.epoch, locked.last_seq, locked.ended, fitting.run_id is not null as written
from locked left join fitting using (run_id)
"""

# $1 run_id, $2 first, $3 last: the rows that hold these events.
OVERLAP = """
select first_seq, last_seq, epoch, public, private, public_checksum, private_checksum, unpacked
from @batches_live
where run_id = $1 and last_seq >= $2 and first_seq <= $3
    and first_seq >= coalesce(
        (select max(first_seq) from @batches_live where run_id = $1 and first_seq <= $2), 0)
order by first_seq
"""

# $1 run_id, $2 after, $3 most events, $4 most bytes (plus one row), as they are when they are not
# compressed. Starts at the row that holds the cursor; the index has the first event of each row.
READ = """
select first_seq, last_seq, epoch, public, public_checksum, unpacked
from (
    select first_seq, last_seq, epoch, public, public_checksum, unpacked,
        sum(coalesce(unpacked, length(public))) over (order by first_seq)
            - coalesce(unpacked, length(public)) as before
    from @batches_live
    where run_id = $1 and last_seq > $2 and first_seq <= $2 + $3
        and first_seq >= coalesce(
            (select max(first_seq) from @batches_live where run_id = $1 and first_seq <= $2 + 1), 0)
) as found
where before < $4 order by first_seq
"""

READ_PRIVATE = """
select first_seq, private, private_checksum, unpacked from @batches_live
where run_id = $1 and last_seq > $2 and private is not null order by first_seq
"""

# --- listings -----------------------------------------------------------------------------------

RUN = f"select {INFO} from @runs where run_id = $1"  # noqa: S608

HEADS = """
select run_id, last_seq, epoch, ended_at is not null as ended from @runs
where run_id = any($1::text[])
"""

# $1 thread_id, $2 owner, $3 the first ordinal, $4 limit
THREAD_RUNS = f"""
select {INFO} from @runs where thread_id = $1 and owner = $2 and ordinal >= $3
order by ordinal limit $4
"""  # noqa: S608

# $1 thread_id, $2 owner
NEWEST_RUN = f"""
select {INFO} from @runs where thread_id = $1 and owner = $2 order by ordinal desc limit 1
"""  # noqa: S608

# $1 owner, $2 the run before which they were created (null: the newest), $3 limit
LATEST_RUNS = f"""
select {INFO} from @runs
where owner = $1
    and ($2::text is null or number < (select number from @runs where run_id = $2))
order by number desc limit $3
"""  # noqa: S608

LAST_ORDINAL = "select last_ordinal from @threads where owner = $1 and thread_id = $2"

# $1 owner, $2 limit
OPEN_RUNS = """
select count(*) from (select 1 from @runs where owner = $1 and ended_at is null limit $2) as found
"""

# --- snapshots and states -----------------------------------------------------------------------

# $1 run_id, $2 at most (null: the newest)
SNAPSHOT = """
select seq, state from @snapshots where run_id = $1 and seq <= coalesce($2, 9223372036854775807)
order by seq desc limit 1
"""

# $1 run_id, $2 the event whose epoch is wanted
EPOCH = """
select epoch from @batches_live where run_id = $1 and first_seq <= $2 and last_seq >= $2
order by first_seq desc limit 1
"""

# --- joining rows, partitions, retention --------------------------------------------------------

# Taken before a run is trimmed; appends and claims wait meanwhile.
LOCK_RUN = """
select last_seq, ended_at is not null as ended from @runs where run_id = $1 for update
"""

# Taken before the rows of a run are joined. Appends need not wait: stored events never change. A
# trim and a delete wait. Only one process joins the rows of a run at a time. $1 run_id, $2 the name
# that keeps rows from being dense.
JOIN_TURN = """
select ended_at is not null as ended, pg_try_advisory_xact_lock(hashtextextended($1, 0)) as ours,
    (ended_at at time zone 'UTC')::date as day, archived is not null or forget as stays,
    not exists (select 1 from @used where name = $2 and until > now()) as dense
from @runs where run_id = $1 for key share
"""

# The partition of a run's rows; null while they are in `batches_live`, and after a trim.
ARCHIVED = "select archived from @runs where run_id = $1 and trimmed_to = 0"

MARK_ARCHIVED = "update @runs set archived = $2 where run_id = $1"

# $1 run_id: the day whose partition its rows can move to.
DAY = """
select (ended_at at time zone 'UTC')::date as day from @runs
where run_id = $1 and ended_at is not null and archived is null and not forget
"""

MAKE_PARTITION = """
create table if not exists @batches_{name} partition of @batches for values in ('{day}')
    with (toast_tuple_target = 8160);
create unique index if not exists batches_{name}_in_order on @batches_{name} (run_id, first_seq);
"""

# $1 schema
PARTITIONS = """
select tablename from pg_tables where schemaname = $1 and tablename ~ '^batches_[0-9]{8}$'
order by tablename
"""

DELETE_ARCHIVED = "delete from @batches where run_id = $1 and ended_on = $2"

# $1 day: whether a run that ended on this day has its events.
IN_USE = """
select exists (
    select from @runs where trimmed_to = 0 and ended_at >= $1::date::timestamp at time zone 'UTC'
        and ended_at < ($1::date + 1)::timestamp at time zone 'UTC')
"""

SIZES = """
select first_seq, last_seq, epoch,
    case when unpacked is null then length(public) + coalesce(length(private), 0) end as size
from @batches_live where run_id = $1 order by first_seq
"""

# $1 run_id, $2 first_seq of the first row, $3 of the last
TAKE_BATCHES = """
delete from @batches_live where run_id = $1 and first_seq between $2 and $3
returning first_seq, last_seq, epoch, public, private, public_checksum, private_checksum, unpacked
"""

PUT_BATCH = """
insert into @batches_live (run_id, first_seq, last_seq, epoch, public, private, public_checksum,
                           private_checksum, unpacked, ended_on)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
"""

# $1 run_id, $2 of how many events to keep only the last snapshot
THIN_SNAPSHOTS = """
delete from @snapshots as s where run_id = $1 and exists (
    select from @snapshots as later
    where later.run_id = $1 and later.seq > s.seq and later.seq / $2 = s.seq / $2)
"""

FORGET = (
    "delete from @batches_live where run_id = $1",
    "delete from @snapshots where run_id = $1",
    "delete from @letters where run_id = $1",
)
PUT_SNAPSHOT = "insert into @snapshots (run_id, seq, state) values ($1, $2, $3)"
MARK_TRIMMED = "update @runs set trimmed_to = last_seq where run_id = $1"
DELETE_RUN = "delete from @runs where run_id = $1 returning archived"

# $1 seconds after which to trim, $2 after which to delete, $3 limit. `statement_timestamp` is
# constant, so the index can be used. The cap keeps "forever" within the range of an interval.
TO_TRIM = """
select run_id from @runs
where trimmed_to = 0
    and ended_at <= statement_timestamp() - make_interval(secs => least($1, 3e9))
    and ended_at > statement_timestamp() - make_interval(secs => least($2, 3e9))
order by ended_at limit $3
"""

# $1 seconds, $2 limit
TO_DELETE = """
select run_id from @runs
where ended_at <= statement_timestamp() - make_interval(secs => least($1, 3e9))
order by ended_at limit $2
"""

# $1 seconds, $2 limit. The rows of a run move into a partition when they are joined.
UNJOINED = """
select run_id from @runs
where ended_at is not null and archived is null and trimmed_to = 0 and not forget
    and ended_at <= statement_timestamp() - make_interval(secs => least($1, 3e9))
order by ended_at limit $2
"""

# $1 seconds, $2 limit
TO_FORGET = """
select run_id from @runs
where forget and ended_at <= statement_timestamp() - make_interval(secs => least($1, 3e9))
order by ended_at limit $2
"""

# --- claims and leases --------------------------------------------------------------------------

WAITS = f"""
ended_at is null and parked <> 1 and protocol <= {PROTOCOL} and agent = any($2::text[])
        and (lease_until is null or lease_until <= clock_timestamp()) and run_id <> all($6::text[])
        and (not queued
            or exists (select from @letters as l where l.run_id = w.run_id and l.kind = 'cancel')
            or not exists (
                select from @runs as e where e.ended_at is null and e.thread_id = w.thread_id
                    and e.owner = w.owner and e.ordinal < w.ordinal))
"""  # noqa: S608

# $1 worker, $2 agents, $3 lease, $4 limit, $5 token. $6 runs that the worker has already, $7 most
# runs of an owner, $8 whether lost runs are claimed. Runs that wait are free (they have no worker)
# or lost (their lease has ended). An index has the free runs, another the runs whose lease may have
# ended, so that no claim steps over the runs that are held. `free` jumps through its index, from
# owner to owner. At most $4 owners get a run: those with the fewest runs here and the oldest
# waiting run. With `skip locked`, concurrent workers get different runs and need not wait for each
# other. A lost run counts an attempt.
CLAIM = f"""
with recursive free as (
    (select owner from @runs where ended_at is null and parked <> 1 and worker is null
     order by owner limit 1)
    union all
    select (
        select r.owner from @runs as r
        where r.ended_at is null and r.parked <> 1 and r.worker is null and r.owner > free.owner
        order by r.owner limit 1
    ) from free where free.owner is not null
), lost as materialized (
    select owner, run_id, number from @runs as w
    where $8::bool and worker is not null and look_at <= statement_timestamp() and {WAITS}
    order by look_at limit {LOST_AT_ONCE}
), oldest as (
    select owner, (
        select number from @runs as w where w.owner = free.owner and worker is null and {WAITS}
        order by number limit 1
    ) as number from free
    union all
    select owner, number from lost
), has as (
    select owner, count(*) as runs from @runs where run_id = any($6::text[]) group by owner
), chosen as materialized (
    select owner, coalesce(has.runs, 0) as had,
        least($4::bigint, $7::bigint - coalesce(has.runs, 0)) as room
    from oldest left join has using (owner)
    where number is not null and coalesce(has.runs, 0) < $7::bigint
    group by owner, has.runs
    order by had, min(number) limit $4
), found as materialized (
    select owner, had, taken.*, false as lost from chosen cross join lateral (
        select run_id, number from @runs as w
        where owner = chosen.owner and worker is null and {WAITS}
        order by number limit chosen.room for update skip locked
    ) as taken
    union all
    select owner, had, taken.*, true from (
        select owner, had, room, run_id,
            row_number() over (partition by owner order by number) as place
        from chosen join lost using (owner)
    ) as its cross join lateral (
        select run_id, number from @runs as w where run_id = its.run_id and {WAITS}
        for update skip locked
    ) as taken
    where its.place <= its.room
), turns as (
    select run_id, number, lost, room,
        row_number() over (partition by owner order by found.number) as place,
        had + row_number() over (partition by owner order by found.number) as turn
    from found join chosen using (owner, had)
), waiting as (
    select run_id, lost from turns where place <= room order by turn, number limit $4
)
update @runs as r
set worker = $1, epoch = epoch + 1, claim_token = $5, parked = 0,
    attempts = attempts + (worker is not null or attempts = 0)::int,
    lease_until = clock_timestamp() + make_interval(secs => $3),
    look_at = clock_timestamp() + make_interval(secs => $3)
from waiting where r.run_id = waiting.run_id
returning r.run_id, r.agent, r.epoch, r.attempts, r.last_seq, lost, r.number
"""  # noqa: S608

# $1 worker, $2 agents, $3 token: the runs of a claim whose answer was lost. Whether a worker had
# lost them is not known any more.
CLAIMED = """
select run_id, agent, epoch, attempts, last_seq, true, number from @runs
where ended_at is null and agent = any($2::text[]) and worker = $1 and claim_token = $3
"""

# $1 run_id, $2 worker, $3 lease, $4 token. The same call again moves the epoch only once.
TAKE_OVER = f"""
update @runs
set worker = $2, claim_token = $4, parked = 0,
    lease_until = clock_timestamp() + make_interval(secs => $3),
    look_at = clock_timestamp() + make_interval(secs => $3),
    epoch = epoch + (claim_token is distinct from $4)::int,
    attempts = attempts
        + (claim_token is distinct from $4 and (worker is not null or attempts = 0))::int
where run_id = $1 and ended_at is null and protocol <= {PROTOCOL}
returning run_id, agent, epoch, attempts, last_seq
"""  # noqa: S608

# $1 worker, $2 run_ids, $3 epochs, $4 lease: the claims that are still held. A claim whose lease
# has ended is held until another worker claims: the epoch, not the clock, keeps a second writer
# out. `look_at` moves if half of the lease is over, or if the lease is shorter than before.
EXTEND = """
with held as materialized (
    select run_id from @runs
    where (run_id, epoch) in (select * from unnest($2::text[], $3::bigint[]))
        and worker = $1 and ended_at is null
    order by run_id for no key update
)
update @runs as r
set lease_until = clock_timestamp() + make_interval(secs => $4),
    look_at = case
        when look_at between clock_timestamp() + make_interval(secs => $4 / 2)
            and clock_timestamp() + make_interval(secs => $4) then look_at
        else clock_timestamp() + make_interval(secs => $4) end,
    parked = case when parked = 1 then 2 else parked end
from held where r.run_id = held.run_id
returning r.run_id
"""

# $1 run_id, $2 epoch
RELEASE = """
update @runs set worker = null, lease_until = null
where run_id = $1 and epoch = $2 and ended_at is null
"""

# $1 worker, $2 run_ids, $3 epochs, $4 last letters read, $5 first go: the runs that are parked now.
PARK = """
with held as materialized (
    select r.run_id from @runs as r
    join unnest($2::text[], $3::bigint[], $4::bigint[]) as c (run_id, epoch, letter)
        on c.run_id = r.run_id and c.epoch = r.epoch
    where r.worker = $1 and r.ended_at is null
        and r.last_letter <= greatest(c.letter, r.read_letter)
    order by r.run_id for no key update of r
)
update @runs as r set parked = 1, first_go = $5, lease_until = null
from held where r.run_id = held.run_id
returning r.run_id
"""

WOKEN = "select run_id from @runs where ended_at is null and parked = 2 and worker = $1"

# --- letters ------------------------------------------------------------------------------------

# $1 run_id, $2 kind, $3 body, $4 token. A letter wakes a parked run, and its worker has the first
# go. The counter is in the run's row, so letters become visible in the order of their numbers, and
# none arrives after the end.
POST = """
with run as (
    update @runs
    set last_letter = last_letter + 1,
        lease_until = case when parked = 1 and worker is not null
            then clock_timestamp() + make_interval(secs => first_go) else lease_until end,
        look_at = case when parked = 1 and worker is not null
            then clock_timestamp() + make_interval(secs => first_go) else look_at end,
        parked = case when parked = 1 then 2 else parked end
    where run_id = $1 and ended_at is null
    returning last_letter
)
insert into @letters (run_id, number, kind, body, token)
select $1, last_letter, $2, $3, $4 from run returning number
"""

POSTED = "select number from @letters where run_id = $1 and token = $2"

LETTERS = """
select l.run_id, l.number, l.kind, l.body from @letters as l join @runs as r using (run_id)
where l.run_id = any($1::text[]) and l.number > r.read_letter order by l.run_id, l.number
"""

UNREAD = """
select count(*), coalesce(sum(length(l.body)), 0)::bigint
from @letters as l join @runs as r using (run_id)
where l.run_id = $1 and l.number > r.read_letter
"""

# Read letters stay until the run is deleted: a `post` whose answer was lost must find its letter.
ACKNOWLEDGE = """
update @runs set read_letter = least($2, last_letter)
where run_id = $1 and read_letter < least($2, last_letter)
"""

# --- blobs --------------------------------------------------------------------------------------

# An unused blob that is stored again starts a new wait; a blob in use stays in use.
PUT_BLOB = """
insert into @blobs as b (sha256, mime_type, data, unused_since)
values ($1, $2, $3, clock_timestamp())
on conflict (sha256) do update set unused_since = clock_timestamp()
    where b.unused_since is not null
"""

PUT_USED_BLOB = """
insert into @blobs (sha256, mime_type, data) values ($1, $2, $3)
on conflict (sha256) do update set unused_since = null
"""

# Before a use is noted: a deletion of the run waits and then sees the use.
HOLD_RUN = "select run_id from @runs where run_id = $1 for key share"

LOCK_BLOBS = "select sha256 from @blobs where sha256 = any($1::text[]) order by sha256 for update"

USE_BLOB = "insert into @blob_uses (run_id, sha256) values ($1, $2) on conflict do nothing"

END_USES = "delete from @blob_uses where run_id = $1 returning sha256"

# After `LOCK_BLOBS`, as a statement of its own: it must see the uses that others committed
# meanwhile.
LEAVE_BLOBS = """
update @blobs as b set unused_since = clock_timestamp()
where sha256 = any($1::text[])
    and not exists (select from @blob_uses as u where u.sha256 = b.sha256)
"""

# $1 seconds, $2 limit. A locked blob is about to be used, or deleted by another process.
COLLECT_BLOBS = """
delete from @blobs where sha256 in (
    select sha256 from @blobs
    where unused_since <= statement_timestamp() - make_interval(secs => least($1, 3e9))
    order by unused_since limit $2 for update skip locked
)
returning sha256
"""

# $1 sha256, $2 owner (null: any). A user that is not a run, of an old blob, has the owner ''.
BLOB = """
select data, mime_type from @blobs where sha256 = $1 and ($2::text is null or exists (
    select from @blob_uses as u left join @runs as r using (run_id)
    where u.sha256 = $1 and coalesce(r.owner, '') = $2
))
"""

# --- tokens -------------------------------------------------------------------------------------

# $1 name, $2 seconds, $3 token: a row for the first use, and for the same call again.
USE_ONCE = """
with gone as (delete from @used where until <= clock_timestamp() and name <> $1)
insert into @used values ($1, clock_timestamp() + make_interval(secs => $2), $3)
on conflict (name) do update set until = excluded.until, token = excluded.token
where used.token = $3 or used.until <= clock_timestamp()
returning 1
"""

USED = "select name from @used where starts_with(name, $1) and until > clock_timestamp()"


def on_day(statement: str, day: date) -> str:
    """The statement for the partition of a day."""
    return statement.replace("@batches_live", f"@batches_{day:%Y%m%d}")
