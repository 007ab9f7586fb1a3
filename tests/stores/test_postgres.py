"""PostgreSQL keeps what `Store` promises, also while the server is killed under it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import json
import sys
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]
import msgspec
import pytest

from tailrace.core.codec import encode_event
from tailrace.core.errors import (
    CallerError,
    InvalidValue,
    SeqConflict,
    StorageBusy,
    StorageError,
)
from tailrace.core.events import Notice, TaskCreated, recorded
from tailrace.ports import Batch, NewRun, RunInfo, Store, Trimmed
from tailrace.stores import dense
from tailrace.stores.postgres.pool import _prepare, split_url
from tailrace.stores.postgres.schema import MIGRATIONS, in_schema, migrate
from tailrace.stores.postgres.sql import CLAIM
from tailrace.stores.postgres.store import PostgresStore
from tailrace.stores.rows import Row, joined
from tailrace.testing.store_kit import EventLogKit, OpenStore
from tailrace.testing.store_kit.setup import batch as kit_batch
from tailrace.testing.store_kit.setup import written
from tests.services import Postgres

LEASE = 60.0
DEADLINE = 60.0


def event(run_id: str, seq: int, text: str = "") -> bytes:
    made = (
        TaskCreated(task_id=run_id) if seq == 1 else Notice(task_id=run_id, message=f"{text}{seq}")
    )
    return encode_event(recorded(made, seq))


def new(run_id: str, thread_id: str = "t", **more: Any) -> NewRun:
    return NewRun(run_id=run_id, agent="a", thread_id=thread_id, public=event(run_id, 1), **more)


def batch(run_id: str, first: int, count: int = 1, **more: Any) -> Batch:
    fields: dict[str, Any] = {"epoch": 1, "privates": [b""] * count} | more
    publics = [event(run_id, seq) for seq in range(first, first + count)]
    return Batch(run_id=run_id, first_seq=first, publics=publics, **fields)


async def made(store: PostgresStore, run: NewRun) -> RunInfo:
    info = await store.create(run)
    assert info is not None
    return info


async def whole(store: PostgresStore, run_id: str) -> list[bytes]:
    """All events, in pages, checked to be 1..n."""
    publics: list[bytes] = []
    while events := await store.read(run_id, len(publics), 50):
        for one in events:
            publics.append(one.public)
            assert one.event.sequence_number == len(publics)
    return publics


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    opened = await PostgresStore.open(postgres_url)
    yield opened
    await opened.close()


@pytest.fixture
async def other(store: PostgresStore, postgres_url: str) -> AsyncIterator[PostgresStore]:
    """A second process, as far as the server can tell."""
    opened = await PostgresStore.open(postgres_url)
    yield opened
    await opened.close()


@pytest.fixture
async def outsider(store: PostgresStore, postgres_url: str) -> AsyncIterator[Any]:
    """A connection of our own into the store's tables."""
    url, schema = split_url(postgres_url)
    connection = await asyncpg.connect(url, server_settings={"search_path": schema})
    yield connection
    await connection.close()


class TestPostgres(EventLogKit):
    @pytest.fixture
    def opener(self, postgres_url: str) -> OpenStore:
        async def opened() -> Store:
            return await PostgresStore.open(postgres_url)

        return opened


# --- racers ------------------------------------------------------------------------------------


async def test_of_writers_racing_for_one_seq_exactly_one_wins(
    store: PostgresStore, other: PostgresStore
) -> None:
    await made(store, new("r"))
    for seq in range(2, 30):
        rivals = [
            Batch(
                run_id="r",
                epoch=1,
                first_seq=seq,
                publics=[event("r", seq, f"rival {rival} ")],
                privates=[b""],
            )
            for rival in range(4)
        ]
        answers = await asyncio.gather(
            *((store, other)[n % 2].append([one]) for n, one in enumerate(rivals))
        )
        winners = [one for one, (answer,) in zip(rivals, answers, strict=True) if answer is None]
        assert len(winners) == 1
        assert all(isinstance(a, SeqConflict) for (a,) in answers if a is not None)
        assert [e.public for e in await store.read("r", seq - 1)] == winners[0].publics


async def test_the_same_batch_sent_twice_at_once_is_written_once_and_accepted_twice(
    store: PostgresStore, other: PostgresStore
) -> None:
    await made(store, new("r"))
    for seq in range(2, 60, 2):
        same = batch("r", seq, 2, privates=[b"", b"{}"])
        answers = await asyncio.gather(*(one.append([same]) for one in (store, other, store)))
        assert answers == [[None]] * 3
    assert len(await whole(store, "r")) == 59


async def test_groups_that_name_the_same_runs_in_any_order_never_deadlock(
    store: PostgresStore, other: PostgresStore, outsider: Any
) -> None:
    runs = [f"r{n}" for n in range(10)]
    for run_id in runs:
        await made(store, new(run_id))
    claims = [(one.run_id, one.epoch) for one in await store.claim("w", ["a"], LEASE, 10)]
    before = await deadlocks(outsider)
    for seq in range(2, 40):
        group = [batch(run_id, seq, epoch=epoch) for run_id, epoch in claims]
        *answers, lost = await asyncio.gather(
            store.append(group),
            other.append(group[::-1]),
            store.append(group[5:] + group[:5]),
            other.extend("w", claims[::-1], LEASE),
        )
        assert answers == [[None] * 10] * 3
        assert lost == set()
    assert await deadlocks(outsider) == before


async def deadlocks(outsider: Any) -> int:
    """How often the server had to break a circle of waiting transactions."""
    await outsider.execute("select pg_stat_clear_snapshot()")
    found: int = await outsider.fetchval(
        "select deadlocks from pg_stat_database where datname = current_database()"
    )
    return found


async def test_a_reader_never_sees_a_hole_whatever_commits_first(
    store: PostgresStore, other: PostgresStore
) -> None:
    runs = ["a", "b", "c"]
    for run_id in runs:
        await made(store, new(run_id))
    done = asyncio.Event()

    async def read(run_id: str) -> int:
        seen = 0
        while True:
            over = done.is_set()
            head = (await other.heads([run_id]))[run_id]
            while seen < head.last_seq:  # what the head promises is there at once
                events = await other.read(run_id, seen, 7)
                assert events
                for one in events:
                    assert one.event.sequence_number == seen + 1
                    seen += 1
            if over:
                return seen

    async def write(writer: PostgresStore, offset: int) -> None:
        # Both write every run; the loser of a place finds it taken by the very same bytes.
        for seq in range(2, 100):
            order = [runs[(n + offset) % 3] for n in range(3)]
            await writer.append([batch(run_id, seq) for run_id in order])

    readers = [asyncio.create_task(read(run_id)) for run_id in runs]
    await asyncio.gather(write(store, 0), write(other, 1), write(store, 2))
    done.set()
    assert await asyncio.gather(*readers) == [99, 99, 99]


async def test_an_append_waits_for_an_uncommitted_append_and_then_sees_it(
    store: PostgresStore, other: PostgresStore, outsider: Any
) -> None:
    await made(store, new("r"))
    rival = batch("r", 2)
    async with outsider.transaction():
        await outsider.execute("update runs set last_seq = 2 where run_id = 'r'")
        await outsider.execute(
            "insert into batches values ('r', 2, 2, 1, $1, null, 0, null)", rival.publics[0]
        )
        waiting = asyncio.create_task(store.append([rival]))
        wrong = asyncio.create_task(other.append([batch("r", 2, 2)]))
        await until_blocked(outsider, 2)
        assert (await store.heads(["r"]))["r"].last_seq == 1
        assert len(await store.read("r", 0)) == 1
    # What it waited for was its own lost try: the bytes are the same.
    assert await waiting == [None]
    assert isinstance((await wrong)[0], SeqConflict)


async def test_a_delete_that_waited_for_an_append_leaves_nothing(
    store: PostgresStore, outsider: Any
) -> None:
    await made(store, new("r"))
    async with outsider.transaction():
        await outsider.execute("select 1 from runs where run_id = 'r' for update")
        appending = asyncio.create_task(store.append([batch("r", 2, snapshot=b"state")]))
        await until_blocked(outsider, 1)
        deleting = asyncio.create_task(store.delete("r"))
        await until_blocked(outsider, 2)
        late = asyncio.create_task(store.append([batch("r", 3)]))
    assert await appending == [None]
    assert await deleting
    assert await late == [None] or isinstance((await late)[0], SeqConflict)
    assert await outsider.fetchval("select count(*) from batches") == 0
    assert await outsider.fetchval("select count(*) from snapshots") == 0


async def until_blocked(outsider: Any, count: int) -> None:
    """Wait until so many sessions wait for a lock."""
    async with asyncio.timeout(120):
        while True:
            await outsider.execute("select pg_stat_clear_snapshot()")
            blocked = await outsider.fetchval(
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
                " and datname = current_database()"
            )
            if blocked >= count:
                return
            await asyncio.sleep(0.01)


async def test_workers_that_claim_at_once_share_the_runs(
    store: PostgresStore, other: PostgresStore
) -> None:
    for number in range(30):
        await made(store, new(f"r{number}"))
    claims = await asyncio.gather(
        *((store, other)[n % 2].claim(f"w{n}", ["a"], LEASE, 4) for n in range(12))
    )
    # A worker may get fewer runs while others claim; no run is claimed twice.
    got = [claim.run_id for some in claims for claim in some]
    assert len(got) == len(set(got))
    rest = await store.claim("last", ["a"], LEASE, 100)
    assert len(got) + len(rest) == 30
    assert all(claim.epoch == 2 and claim.attempt == 1 for claim in rest)


async def test_runs_made_at_once_get_the_places_of_their_thread(
    store: PostgresStore, other: PostgresStore
) -> None:
    infos = await asyncio.gather(
        *((store, other)[n % 2].create(new(f"r{n % 20}", owner="o")) for n in range(60))
    )
    created = [info for info in infos if info is not None]
    assert sorted(info.ordinal for info in created) == list(range(1, 21))
    assert (await made(store, new("next", owner="o"))).ordinal == 21


async def test_a_lease_is_kept_by_the_databases_clock(
    store: PostgresStore, outsider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(store, new("r"))
    (claim,) = await store.claim("w1", ["a"], LEASE)
    monkeypatch.setattr("time.time", lambda: 1e12)
    assert await store.claim("w2", ["a"], LEASE) == []
    await outsider.execute(
        "update runs set lease_until = clock_timestamp(), look_at = clock_timestamp()"
    )
    (second,) = await store.claim("w2", ["a"], LEASE)
    assert second.epoch == claim.epoch + 1
    assert await store.extend("w1", [("r", claim.epoch)], LEASE) == {"r"}
    assert await store.extend("w2", [("r", second.epoch)], LEASE) == set()


# --- the server goes away ----------------------------------------------------------------------


async def test_a_server_that_crashes_during_appends_loses_and_repeats_nothing(
    store: PostgresStore, other: PostgresStore, postgres: Postgres
) -> None:
    runs = [f"r{n}" for n in range(4)]
    for run_id in runs:
        await made(store, new(run_id))
    acknowledged = dict.fromkeys(runs, 1)
    shown: dict[str, list[bytes]] = {run_id: [] for run_id in runs}
    posted: list[bytes] = []
    stop, progress = asyncio.Event(), asyncio.Event()

    async def write(writer: PostgresStore, mine: list[str]) -> None:
        while not stop.is_set():
            group = [batch(run_id, acknowledged[run_id] + 1, 3) for run_id in mine]
            assert await writer.append(group) == [None] * len(group)
            for run_id in mine:
                acknowledged[run_id] += 3
            progress.set()

    async def read() -> None:
        while not stop.is_set():
            for run_id in runs:
                shown[run_id] += [
                    one.public for one in await other.read(run_id, len(shown[run_id]))
                ]

    async def post() -> None:
        while not stop.is_set():
            body = b"letter %d" % len(posted)
            posted.append(body)
            assert await other.post("r0", "input", body) == len(posted)

    async def create() -> int:
        count = 0
        while not stop.is_set():
            count += 1
            assert (await made(other, new(f"made {count}", "crowd"))).ordinal == count
        return count

    async def more() -> None:
        target = acknowledged["r0"] + 60
        while acknowledged["r0"] < target:
            progress.clear()
            await progress.wait()

    async def crash() -> None:
        for _ in range(4):
            await more()
            await asyncio.to_thread(postgres.restart, "immediate")
        await more()
        stop.set()

    async with asyncio.timeout(120):
        *_, count = await asyncio.gather(
            crash(), write(store, runs[:2]), write(other, runs[2:]), read(), post(), create()
        )
    for run_id in runs:
        log = await whole(store, run_id)
        assert log == [event(run_id, seq) for seq in range(1, acknowledged[run_id] + 1)]
        assert shown[run_id] == log[: len(shown[run_id])]
    assert [letter.body for letter in (await store.letters(["r0"]))["r0"]] == posted
    assert len(await store.thread_runs("crowd", limit=10**6)) == count


COMMITTED = b"Z\0\0\0\5I"
"""The protocol's `ReadyForQuery`, with no transaction open: what was asked for is done."""


class Cutter:
    """Stands between a store and the server, and can lose an answer: the work is done, unheard."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.port is not None
        self._target = parts.port
        self.lose = False
        self.lost = 0
        self._parts = parts
        self._tasks: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        yield self._parts._replace(netloc=f"postgres@127.0.0.1:{port}").geturl()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            await asyncio.wait(
                [
                    asyncio.create_task(self._pass(reader, back, False)),
                    asyncio.create_task(self._pass(there, writer, True)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            writer.close()
            back.close()

    async def _pass(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, answers: bool
    ) -> None:
        while data := await source.read(65536):
            if answers and self.lose and data.endswith(COMMITTED):
                self.lose = False
                self.lost += 1
                return
            target.write(data)
            await target.drain()


@pytest.fixture
async def cut(
    postgres_url: str, store: PostgresStore
) -> AsyncIterator[tuple[Cutter, PostgresStore]]:
    cutter = Cutter(postgres_url)
    async with cutter.listening() as url:
        opened = await PostgresStore.open(url, connections=1)
        yield cutter, opened
        await opened.close()


async def test_a_call_whose_answer_was_lost_is_not_done_twice(
    cut: tuple[Cutter, PostgresStore], store: PostgresStore
) -> None:
    cutter, unlucky = cut

    async def losing(work: Awaitable[Any]) -> Any:
        cutter.lose, cutter.lost = True, 0
        result = await work
        assert cutter.lost == 1
        return result

    await made(unlucky, new("r1"))
    created: RunInfo = await losing(unlucky.create(new("r2")))
    assert created.ordinal == 2
    assert await store.create(new("r2")) is None

    assert await unlucky.append([batch("r2", 2)]) == [None]
    assert await losing(unlucky.append([batch("r2", 3, 2), batch("r1", 2)])) == [None, None]
    assert len(await whole(store, "r2")) == 4

    # Two batches of one run are two statements and a commit, whose answer is lost.
    assert await losing(unlucky.append([batch("r2", 5), batch("r2", 6)])) == [None, None]
    assert len(await whole(store, "r2")) == 6

    (first,) = await unlucky.claim("w", ["a"], LEASE)
    (second,) = await losing(unlucky.claim("w", ["a"], LEASE))
    assert (first.run_id, second.run_id, second.epoch, second.attempt) == ("r1", "r2", 2, 1)

    taken = await losing(unlucky.take_over("r2", "v", LEASE))
    assert (taken.epoch, taken.attempt) == (3, 2)

    assert await unlucky.post("r2", "cancel", b"1") == 1
    assert await losing(unlucky.post("r2", "input", b"2")) == 2
    assert [one.body for one in (await store.letters(["r2"]))["r2"]] == [b"1", b"2"]

    assert await losing(unlucky.delete("r1"))
    assert not await unlucky.delete("r1")


async def test_a_claim_that_lost_its_connection_takes_no_run_whose_lease_ended_meanwhile(
    store: PostgresStore, outsider: Any
) -> None:
    await made(store, new("r1"))
    assert await store.claim("v", ["a"], 0.2)
    async with outsider.transaction():
        await outsider.execute("lock table runs in access exclusive mode")
        claiming = asyncio.create_task(store.claim("w", ["a"], LEASE))
        waiting = "select pid from pg_locks where relation = 'runs'::regclass and not granted"
        while not (found := await outsider.fetch(waiting)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)  # the lease ends: that is the point
        await outsider.execute("select pg_terminate_backend($1)", found[0]["pid"])
    assert await claiming == []
    assert [claim.run_id for claim in await store.claim("w", ["a"], LEASE)] == ["r1"]


async def test_a_server_that_stays_away_is_one_typed_error_in_bounded_time(
    postgres_url: str, postgres: Postgres
) -> None:
    store = await PostgresStore.open(postgres_url, patience=0.3)
    await made(store, new("r"))
    postgres.stop()
    async with asyncio.timeout(120):
        with pytest.raises(StorageBusy, match=r"was away for 0\.3 s"):
            await store.append([batch("r", 2)])
        with pytest.raises(StorageError, match="was away"):
            await store.read("r", 0)
    postgres.start()
    assert await store.append([batch("r", 2)]) == [None]
    await store.close()


async def test_a_caller_that_leaves_at_any_step_leaves_no_future_behind(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """While it connects, and while it asks."""
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: reported.append(what))
    store = await PostgresStore.open(postgres_url)
    for steps in range(40):
        store._pool._drop_idle()
        asking = asyncio.ensure_future(store.info("r"))
        for _ in range(steps):
            # Some steps wait for the server: a turn of the loop that looks at the sockets.
            await asyncio.sleep(0.0005 * (steps % 2))
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
    await store.close()
    gc.collect()
    await asyncio.sleep(0)
    assert reported == []
    assert [one for one in caplog.records if one.name == "asyncio"] == []


async def test_appends_that_are_not_awaited_are_written_in_their_order(
    store: PostgresStore,
) -> None:
    await made(store, new("r"))
    answers = await asyncio.gather(*(store.append([batch("r", seq)]) for seq in range(2, 60)))
    assert answers == [[None]] * 58


async def test_a_closed_store_says_so(postgres_url: str) -> None:
    store = await PostgresStore.open(postgres_url)
    await store.close()
    await store.close()
    with pytest.raises(StorageError, match="closed"):
        await store.info("r")


# --- opening -----------------------------------------------------------------------------------


async def test_an_unreachable_server_is_one_sentence_that_says_what_to_start() -> None:
    with pytest.raises(StorageError) as caught:
        await PostgresStore.open("postgresql://me:hunter2@127.0.0.1:1/db")
    assert "PostgreSQL at 127.0.0.1:1/db cannot be reached" in str(caught.value)
    assert "Start it" in str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_a_database_that_is_not_there_is_named(postgres: Postgres) -> None:
    with pytest.raises(StorageError, match="createdb nowhere"):
        await PostgresStore.open(postgres.url.removesuffix("/postgres") + "/nowhere")


async def test_a_missing_driver_is_one_sentence_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(StorageError, match=r"pip install 'tailrace\[postgres\]'"):
        await PostgresStore.open("postgresql://localhost/db")


@pytest.mark.parametrize(
    "url",
    ["mysql://localhost/db", "postgresql://localhost:port/db", "postgresql://h/db?schema=a;drop"],
)
async def test_a_bad_url_is_the_callers_mistake(url: str) -> None:
    with pytest.raises(CallerError):
        await PostgresStore.open(url)


async def test_the_error_of_a_user_without_rights_names_the_missing_ones(
    postgres: Postgres,
) -> None:
    database = postgres.database()
    postgres.sql("create role guest login")
    url = database.replace("postgres@", "guest@")
    with pytest.raises(StorageError, match="Grant CREATE"):
        await PostgresStore.open(url)
    postgres.sql("create schema guests authorization guest", database)
    store = await PostgresStore.open(f"{url}?schema=guests")
    await made(store, new("r"))
    await store.close()
    with pytest.raises(StorageError, match="refuses the login"):
        await PostgresStore.open(database.replace("postgres@", "stranger@"))


async def test_two_schemas_of_one_database_know_nothing_of_each_other(postgres: Postgres) -> None:
    database = postgres.database()
    one = await PostgresStore.open(database)
    two = await PostgresStore.open(f"{database}?schema=one", schema="two")
    await made(one, new("r"))
    assert await two.info("r") is None
    assert postgres.sql("select schemaname from pg_tables where tablename = 'runs'", database) == (
        "tailrace\ntwo"
    )
    assert (await made(two, new("r"))).ordinal == 1
    await one.close()
    await two.close()


# --- migrations --------------------------------------------------------------------------------


async def test_processes_that_start_at_once_make_the_tables_once(postgres_url: str) -> None:
    stores = await asyncio.gather(*(PostgresStore.open(postgres_url) for _ in range(12)))
    await made(stores[0], new("r"))
    assert all([await store.info("r") for store in stores])
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_database_of_a_newer_version_is_left_alone(
    store: PostgresStore, outsider: Any, postgres_url: str
) -> None:
    await outsider.execute("update version set version = 99")
    with pytest.raises(StorageError, match=r"version 99; .* Install a newer Tailrace"):
        await PostgresStore.open(postgres_url)
    assert await outsider.fetchval("select version from version") == 99


@pytest.mark.parametrize("known", range(len(MIGRATIONS) + 1))
async def test_a_database_left_at_any_version_goes_on_to_the_newest(
    outsider: Any, known: int
) -> None:
    schema = f"left_at_{known}"
    following = (*MIGRATIONS, "create table @more (id int)", "alter table @more add name text")
    if known:
        await migrate(outsider, schema, MIGRATIONS[:known])
    await migrate(outsider, schema, following)
    await migrate(outsider, schema, following)
    await outsider.execute(f"insert into {schema}.more values (1, 'one')")
    assert await outsider.fetchval(f"select version from {schema}.version") == len(following)


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
async def test_what_an_older_version_wrote_is_there_in_todays(
    postgres: Postgres, version: int
) -> None:
    url = postgres.schema()
    plain, schema = split_url(url)
    connection = await asyncpg.connect(plain, server_settings={"search_path": schema or ""})
    await migrate(connection, schema or "", MIGRATIONS[:version])
    first = event("r", 1)
    await connection.execute(
        "insert into runs (run_id, agent, thread_id, owner, ordinal, metadata, last_seq,"
        " created_token, ended_at) values ('r', 'a', 't', '', 1, '', 1, '', 'epoch')"
    )
    await connection.execute(
        "insert into batches (run_id, first_seq, last_seq, epoch, public, public_checksum)"
        " values ('r', 1, 1, 1, $1, $2)",
        first,
        zlib.crc32(first),
    )
    digest = hashlib.sha256(b"old").hexdigest()
    await connection.execute("insert into blobs values ($1, 'text/plain', 'old')", digest)
    await connection.close()
    store = await PostgresStore.open(url)
    assert [one.public for one in await store.read("r", 0)] == [first]
    assert await store.expired(full_for=1e6, snapshot_for=1e12) == (["r"], [])
    if version < 3:
        # Who uses it was never written down: it stays, also when one who uses it too is deleted.
        await store.put_blob(b"old", "text/plain", "r")
        assert await store.delete("r")
        assert await store.collect_blobs(-1) == 0
    assert await store.blob(digest) == (b"old", "text/plain")
    await store.close()


async def test_rows_that_older_processes_cannot_read_are_written_a_day_after_the_migration(
    postgres: Postgres,
) -> None:
    url = postgres.schema()
    plain, schema = split_url(url)
    connection = await asyncpg.connect(plain, server_settings={"search_path": schema or ""})
    await migrate(connection, schema or "", MIGRATIONS[:12])
    await connection.execute(
        "insert into runs (run_id, agent, thread_id, owner, ordinal, metadata, last_seq,"
        " created_token, ended_at) values ('old', 'a', 'old', '', 1, '', 1, '', 'epoch')"
    )
    store = await PostgresStore.open(url)

    async def dense_rows(run_id: str) -> list[bool]:
        await made(store, new(run_id))
        await written(store, kit_batch(run_id, 2, 40, text="word"))
        await written(store, kit_batch(run_id, 42, ended=True))
        before = await whole(store, run_id)
        await store.repack(run_id)
        assert await whole(store, run_id) == before
        query = "select public from batches where run_id = $1 and unpacked is not null"
        found = await connection.fetch(query, run_id)
        return [public.startswith(dense.MARK) for (public,) in found]

    assert await dense_rows("soon") == [False]
    await connection.execute("update used set until = until - interval '1 day'")
    assert await dense_rows("later") == [True]
    await store.close()
    await connection.close()


async def test_a_migration_that_fails_leaves_the_version_before(outsider: Any) -> None:
    with pytest.raises(asyncpg.PostgresError):
        await migrate(outsider, "other", (*MIGRATIONS, "create table @more (", "never"))
    assert await outsider.fetchval("select to_regclass('other.version')") is None


async def test_a_claim_does_not_step_over_the_runs_that_are_held(
    store: PostgresStore, outsider: Any
) -> None:
    await asyncio.gather(
        *(made(store, new(f"h{n}", f"t{n}", owner=f"o{n % 9}")) for n in range(200))
    )
    assert len(await store.claim("w", ["a"], 0.4, 200)) == 200
    assert not await store.extend("w", [(f"h{n}", 2) for n in range(200)], 60)
    await asyncio.sleep(0.4)  # a lease without the extension would have ended
    for n in range(4):
        await made(store, new(f"f{n}", owner="o1"))
    await _prepare(outsider)
    values: Any = ("v", ["a"], 60.0, 3, b"", [], 9, True)
    plan = await outsider.fetchval(
        "explain (analyze, format json) " + in_schema(CLAIM, store._schema), *values
    )
    read = 0

    def add(node: dict[str, Any]) -> None:
        nonlocal read
        if "Scan" in node["Node Type"] and node.get("Relation Name") == "runs":
            stepped = node.get("Rows Removed by Filter", 0)
            stepped += node.get("Rows Removed by Index Recheck", 0)
            read += round((node["Actual Rows"] + stepped) * node["Actual Loops"])
        for child in node.get("Plans", ()):
            add(child)

    add(json.loads(plan)[0]["Plan"])
    assert 3 <= read < 30


# --- what only this store has to care for -------------------------------------------------------


async def test_a_damaged_row_is_noticed_and_never_packed(
    store: PostgresStore, outsider: Any
) -> None:
    await made(store, new("r", private=b"{}"))
    await store.append([batch("r", 2, 2, privates=[b"{}", b""], ended=True)])
    await outsider.execute("update batches set public = public || ' ' where first_seq = 2")
    with pytest.raises(StorageError, match="damaged at event 2"):
        await store.read("r", 0)
    with pytest.raises(StorageError, match="damaged at event 2"):
        await store.repack("r")
    assert await store.read_private("r") == {1: b"{}", 2: b"{}"}
    await outsider.execute("update batches set private = private || ' ' where first_seq = 1")
    with pytest.raises(StorageError, match="damaged at event 1"):
        await store.read_private("r")


async def test_a_run_whose_rows_are_joined_is_written_meanwhile(
    store: PostgresStore, outsider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush has events of many runs: all of them would wait for the joining of one."""
    await made(store, new("r"))
    await store.append([batch("r", seq) for seq in range(2, 9)])
    (claim,) = await store.claim("w", ["a"], LEASE)
    joining, go_on = threading.Event(), threading.Event()

    def slowly(rows: list[Row], **how: bool) -> Row:
        joining.set()
        assert go_on.wait(DEADLINE)
        return joined(rows, **how)

    monkeypatch.setattr("tailrace.stores.postgres.log.joined", slowly)
    packing = asyncio.create_task(store.repack("r"))
    assert await asyncio.to_thread(joining.wait, DEADLINE)
    async with asyncio.timeout(DEADLINE):
        assert await store.append([batch("r", 9, epoch=claim.epoch)]) == [None]
        assert await store.extend("w", [("r", claim.epoch)], LEASE) == set()
        await store.repack("r")  # it is not its turn
        deleting = asyncio.create_task(store.delete("r"))
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        while not await outsider.fetchval(waiting):  # the deletion waits for the joining
            pass
    assert [one.event.sequence_number for one in await store.read("r", 0)] == list(range(1, 10))
    go_on.set()
    await packing
    assert await deleting
    assert await outsider.fetchval("select count(*) from batches") == 0


async def test_the_rows_of_an_ended_run_are_compressed_and_read_in_pieces(
    store: PostgresStore, outsider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.stores.rows.JOINED_BYTES", 5_000)
    monkeypatch.setattr("tailrace.stores.postgres.log.READ_BYTES", 5_000)
    await made(store, new("r"))
    for seq in range(2, 200):
        await store.append([batch("r", seq, ended=seq == 199, snapshot=b"%d" % seq)])
    size = "select sum(length(public)) from batches"
    before = await outsider.fetchval(size)
    events = await store.read("r", 0)
    await store.repack("r")
    assert await outsider.fetchval(size) < before / 3
    assert await outsider.fetchval("select count(*) from batches where unpacked is null") == 0
    found = await store.read("r", 0)
    assert sum(len(one.public) for one in found) < 11_000
    while len(found) < 199:
        found += await store.read("r", len(found))
    assert found[: len(events)] == events
    assert await outsider.fetch("select seq, state from snapshots") == [(199, b"199")]


async def test_a_blob_that_gets_a_user_while_its_last_one_goes_is_kept(
    store: PostgresStore, outsider: Any
) -> None:
    """The deletion waits for the new use, and must see it although it began before."""
    for run_id in ("old", "new"):
        await made(store, new(run_id, thread_id=run_id))
    sha256 = await store.put_blob(b"bytes", "text/plain", "old")
    async with outsider.transaction():
        await outsider.execute("update blobs set unused_since = null")
        await outsider.execute("insert into blob_uses values ('new', $1)", sha256)
        deletion = asyncio.ensure_future(store.delete("old"))
        async with asyncio.timeout(120):
            waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock'"
            while await outsider.fetchval(waiting) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert await deletion
    assert await store.collect_blobs(-1) == 0
    assert await store.delete("new")
    assert await store.collect_blobs(-1) == 1


async def test_a_damaged_blob_is_noticed(store: PostgresStore, outsider: Any) -> None:
    sha256 = await store.put_blob(b"bytes", "text/plain")
    await outsider.execute("update blobs set data = 'other'")
    with pytest.raises(StorageError, match="damaged"):
        await store.blob(sha256)


@pytest.mark.parametrize("unfit", ["a\x00b", "a\ud800b"])
async def test_text_that_the_database_cannot_hold_is_the_callers_mistake(
    store: PostgresStore, unfit: str
) -> None:
    with pytest.raises(InvalidValue):
        await store.create(msgspec.structs.replace(new("r"), thread_id=unfit))
    assert await store.info("r") is None


async def test_a_failing_statement_is_a_storage_error(store: PostgresStore, outsider: Any) -> None:
    await made(store, new("r"))
    await outsider.execute("drop table letters")
    with pytest.raises(StorageError, match="reports an error"):
        await store.post("r", "cancel", b"")


# --- partitions ----------------------------------------------------------------------------------


async def test_ended_runs_move_into_a_partition_that_retention_drops(
    store: PostgresStore, other: PostgresStore, outsider: Any
) -> None:
    partitions = (
        "select tablename from pg_tables where schemaname = current_schema"
        " and tablename ~ '^batches_[0-9]' order by 1"
    )
    day = "2026-01-0"
    for n, ended in enumerate((1, 1, 2, 3)):
        await made(store, new(f"r{n}", f"t{n}"))
        await store.append([batch(f"r{n}", 2, 3, privates=[b"{}"] * 3, ended=True)])
        await outsider.execute(
            f"update runs set ended_at = '{day}{ended} 23:59Z' where run_id = $1", f"r{n}"
        )
    await made(store, new("alive", "t"))
    for run in ("r0", "r1", "r2", "alive"):
        before = await whole(store, run)
        await store.repack(run)
        await store.repack(run)
        assert await whole(other, run) == before
        assert len(await store.read_private(run)) == (0 if run == "alive" else 3)
    names = [name for (name,) in await outsider.fetch(partitions)]
    assert names == ["batches_20260101", "batches_20260102"]
    storage = "select attstorage from pg_attribute where attrelid = $1::regclass and attname = $2"
    for column in ("public", "private"):
        assert await outsider.fetchval(storage, names[0], column) == b"e"
    live = "select distinct run_id from batches_live order by 1"
    assert [name for (name,) in await outsider.fetch(live)] == ["alive", "r3"]
    # A retry whose answer was lost finds its events in the partition.
    again = batch("r0", 2, 3, privates=[b"{}"] * 3, ended=True)
    assert await store.append([again]) == [None]
    source = await store.state_source("r0")
    assert source is not None
    assert (len(source.events), source.epoch) == (4, 1)

    expired = await store.expired(full_for=60, snapshot_for=1e12)
    assert expired == (["r0", "r1", "r2", "r3"], [])
    await store.trim("r0", b"state")
    with pytest.raises(Trimmed):
        await store.read("r0", 0)
    await store.expired(full_for=60, snapshot_for=1e12)
    assert len(await outsider.fetch(partitions)) == 2  # r1 needs it
    assert len(await whole(store, "r1")) == 4
    await store.trim("r1", b"state")
    await store.expired(full_for=60, snapshot_for=1e12)
    assert [name for (name,) in await outsider.fetch(partitions)] == ["batches_20260102"]
    with pytest.raises(Trimmed):
        await store.read("r1", 0)
    snapshot = await store.snapshot("r1")
    assert snapshot is not None
    assert snapshot.state == b"state"
    assert await store.delete("r1")
    # A run that a person deletes is gone at once; retention leaves its rows to the drop.
    await made(store, new("r4", "t4"))
    await store.append([batch("r4", 2, ended=True)])
    await outsider.execute(f"update runs set ended_at = '{day}2 12:00Z' where run_id = 'r4'")
    await store.repack("r4")
    assert await other.delete("r4")
    count = "select count(*) from batches_20260102 where run_id = $1"
    assert await outsider.fetchval(count, "r4") == 0
    assert (await store.expired(full_for=60, snapshot_for=60))[1] == ["r0", "r2", "r3"]
    assert await store.delete("r2")
    assert await outsider.fetchval(count, "r2") > 0
    await store.expired(full_for=60, snapshot_for=60)
    assert await outsider.fetch(partitions) == []
