"""Writers, readers and workers of several processes meet in one database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tailrace.core.errors import (
    SeqConflict,
)
from tailrace.ports import Batch
from tailrace.stores.postgres import pool
from tailrace.stores.postgres.store import PostgresStore
from tailrace.testing.waiting import until
from tests.stores.postgres.runs import LEASE, batch, event, made, new, whole


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


async def test_a_process_that_stops_inside_a_transaction_keeps_no_other_out(
    postgres_url: str, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(other, new("r"))
    monkeypatch.setattr(pool, "STUCK_SECONDS", 0.5)
    stopped = await PostgresStore.open(postgres_url)
    tries, locked, goes_on = 0, asyncio.Event(), asyncio.Event()

    async def work(db: Any) -> None:
        nonlocal tries
        tries += 1
        await db.execute(stopped._sql("select * from @runs for update"))
        locked.set()
        await goes_on.wait()
        await db.execute(stopped._sql("update @runs set last_letter = last_letter"))

    working = asyncio.create_task(stopped._transaction(work))
    await locked.wait()
    assert await other.claim("w", ["a"], LEASE, 1) == []
    await asyncio.sleep(1.0)
    assert len(await other.claim("w", ["a"], LEASE, 1)) == 1
    goes_on.set()
    await working
    assert tries == 2
    await stopped.close()


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

    async def are_blocked() -> bool:
        await outsider.execute("select pg_stat_clear_snapshot()")
        blocked: int = await outsider.fetchval(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
            " and datname = current_database()"
        )
        return blocked >= count

    await until(are_blocked)


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
