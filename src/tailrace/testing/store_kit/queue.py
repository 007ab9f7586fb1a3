"""The store kit: which worker gets which run."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from tailrace.core.codec import PROTOCOL
from tailrace.core.errors import SeqConflict
from tailrace.ports import Claim, Store
from tailrace.testing.store_kit.setup import (
    StoreTests,
    batch,
    created,
    ended,
    new_run,
    numbers,
    written,
)

LEASE = 0.25
"""Seconds of a lease that a test lets end."""


class ClaimTests(StoreTests):
    """Who may write a run."""

    async def claimed(self, store: Store, worker: str = "w", lease: float = 60.0) -> Claim:
        """The only run that waits."""
        (claim,) = await store.claim(worker, ["a"], lease, limit=9)
        return claim

    async def test_waiting_runs_are_claimed_oldest_first(self, store: Store) -> None:
        for run_id in ("z", "y", "x"):
            await created(store, run_id)
        first = await store.claim("w", ["a"], 60, limit=2)
        assert [(claim.run_id, claim.epoch, claim.attempt) for claim in first] == [
            ("z", 2, 1),
            ("y", 2, 1),
        ]
        assert [claim.run_id for claim in await store.claim("w", ["a"], 60)] == ["x"]
        assert await store.claim("w", ["a"], 60) == []

    async def test_owners_take_turns(self, store: Store) -> None:
        for n in range(5):
            await created(store, f"a{n}", owner="a")
        for owner in ("b", "c"):
            for n in range(2):
                await created(store, f"{owner}{n}", owner=owner)
        first = {claim.run_id for claim in await store.claim("w", ["a"], 60, 4)}
        assert first == {"a0", "b0", "c0", "a1"}
        # An owner that has more here comes later; runs that the worker has are counted.
        more = await store.claim("w", ["a"], 60, 2, held=["a0", "a1", "b0"])
        assert {claim.run_id for claim in more} == {"c1", "b1"}
        assert len(await store.claim("w", ["a"], 60, 9)) == 3

    async def test_no_owner_gets_more_than_its_share(self, store: Store) -> None:
        for n in range(5):
            await created(store, f"a{n}", owner="a")
        await created(store, "b0", owner="b")
        first = await store.claim("w", ["a"], 60, 9, per_owner=2)
        assert {claim.run_id for claim in first} == {"a0", "a1", "b0"}
        held = [claim.run_id for claim in first]
        assert await store.claim("w", ["a"], 60, 9, held, per_owner=2) == []
        (next_run,) = await store.claim("w", ["a"], 60, 9, held, per_owner=3)
        assert next_run.run_id == "a2"
        assert len(await store.claim("other", ["a"], 60, 9, per_owner=2)) == 2

    async def test_the_unfinished_runs_of_an_owner_are_counted(self, store: Store) -> None:
        for n in range(3):
            await created(store, f"a{n}", owner="a")
        await created(store, "b", owner="b")
        assert [await store.open_runs("a", limit) for limit in (2, 3, 9)] == [2, 3, 3]
        await ended(store, "over", owner="a")
        claims = await store.claim("w", ["a"], 60, 1)
        await store.park("w", [(claims[0].run_id, claims[0].epoch, 0)], 5.0)
        assert await store.open_runs("a", 9) == 3
        assert await store.open_runs("unknown", 9) == 0

    async def test_a_name_is_used_once(self, store: Store) -> None:
        tries = await asyncio.gather(*(store.use_once("x", 60) for _ in range(10)))
        assert sorted(tries) == [False] * 9 + [True]
        assert await store.use_once("y", 0.0)
        assert await store.use_once("y", 60)
        assert not await store.use_once("y", 60)

    async def test_a_name_is_used_once_by_all_processes(self, store: Store, second: Store) -> None:
        tries = await asyncio.gather(*(opened.use_once("x", 60) for opened in (store, second)))
        assert sorted(tries) == [False, True]
        assert [await opened.used("x") for opened in (store, second)] == [["x"], ["x"]]

    async def test_the_names_that_are_used_are_listed(self, store: Store) -> None:
        for name in ("a 1", "a 2", "b 1", "ab"):
            await store.use_once(name, 60)
        await store.use_once("a 3", 0.0)
        assert sorted(await store.used("a ")) == ["a 1", "a 2"]
        assert await store.used("a_") == await store.used("a%") == []

    async def test_a_worker_gets_only_runs_of_its_agents(self, store: Store) -> None:
        await created(store, "r", agent="b")
        await created(store, "s", agent="c")
        assert await store.claim("w", ["a"], 60, 9) == []
        assert await store.claim("w", [], 60, 9) == []
        (claim,) = await store.claim("w", ["a", "b"], 60, 9)
        assert (claim.run_id, claim.agent, claim.last_seq) == ("r", "b", 1)

    async def test_a_run_of_a_newer_protocol_is_neither_claimed_nor_taken_over(
        self, store: Store
    ) -> None:
        newer = b'{"type":"task.created","task_id":"r","sequence_number":1,"protocol":%d}'
        version = PROTOCOL + 1
        await created(store, "r", public=newer % version, protocol=version)
        await created(store, "s")
        assert [claim.run_id for claim in await store.claim("w", ["a"], 60, 9)] == ["s"]
        assert await store.take_over("r", "w", 60) is None
        info = await store.info("r")
        assert info is not None
        assert (info.epoch, info.attempts, info.ended_at) == (1, 0, None)

    async def test_a_hundred_claimers_get_different_runs(self, store: Store) -> None:
        for n in range(150):
            await created(store, f"r{n}")
        got = await asyncio.gather(*(store.claim(f"w{n}", ["a"], 60) for n in range(100)))
        got += await asyncio.gather(*(store.claim(f"w{n}", ["a"], 60, 20) for n in range(10)))
        run_ids = [claim.run_id for claims in got for claim in claims]
        assert len(run_ids) == len(set(run_ids)) == 150

    async def test_claimers_that_share_a_store_get_different_runs(
        self, store: Store, second: Store
    ) -> None:
        for n in range(60):
            await created(store, f"r{n}")
        got = await asyncio.gather(
            *(opened.claim(f"w{n}", ["a"], 60, 3) for n in range(15) for opened in (store, second))
        )
        run_ids = [claim.run_id for claims in got for claim in claims]
        assert len(run_ids) == len(set(run_ids))

    async def test_a_claim_fences_every_earlier_writer_off(self, store: Store) -> None:
        await created(store, "r")
        first = await self.claimed(store)
        await written(store, batch("r", 2, epoch=first.epoch))
        taken = await store.take_over("r", "other", 60)
        assert taken is not None
        assert (taken.epoch, taken.attempt, taken.last_seq) == (first.epoch + 1, 2, 2)
        (stale,) = await store.append([batch("r", 3, epoch=first.epoch)])
        assert isinstance(stale, SeqConflict)
        await written(store, batch("r", 3, epoch=taken.epoch))
        info = await store.info("r")
        assert info is not None
        assert (info.epoch, info.attempts, info.last_seq) == (taken.epoch, 2, 3)

    async def test_of_a_take_over_and_an_append_that_race_the_log_stays_dense(
        self, store: Store
    ) -> None:
        await created(store, "r")
        _, taken = await asyncio.gather(
            store.append([batch("r", 2)]), store.take_over("r", "other", 60)
        )
        assert taken is not None
        await written(store, batch("r", taken.last_seq + 1, epoch=taken.epoch))
        assert await numbers(store, "r") == list(range(1, taken.last_seq + 2))

    async def test_a_lease_that_ends_lets_the_run_wait_again(self, store: Store) -> None:
        await created(store, "r")
        first = await self.claimed(store, lease=LEASE)
        await self.wait(LEASE + 0.1)
        second = await self.claimed(store, "other")
        assert (second.epoch, second.attempt) == (first.epoch + 1, 2)
        assert await store.extend("w", [("r", first.epoch)], 60) == {"r"}
        (stale,) = await store.append([batch("r", 2, epoch=first.epoch)])
        assert isinstance(stale, SeqConflict)

    async def test_a_lease_that_is_kept_alive_holds(self, store: Store) -> None:
        await created(store, "r")
        claim = await self.claimed(store, lease=LEASE)
        assert await store.extend("w", [("r", claim.epoch)], 60) == set()
        await self.wait(LEASE + 0.1)
        assert await store.claim("other", ["a"], 60) == []

    async def test_a_lease_is_kept_alive_from_another_thread_while_the_event_loop_is_blocked(
        self, store: Store
    ) -> None:
        await created(store, "r")
        claim = await self.claimed(store, lease=LEASE)

        def extend() -> set[str]:
            return asyncio.run(store.extend("w", [("r", claim.epoch), ("lost", 2)], 60))

        with ThreadPoolExecutor(1) as threads:
            # Not awaited: this blocks the event loop that the store was opened on.
            assert threads.submit(extend).result(30) == {"lost"}
        await self.wait(LEASE + 0.1)
        assert await store.claim("other", ["a"], 60) == []

    async def test_extending_returns_the_claims_that_are_lost(self, store: Store) -> None:
        for run_id in ("kept", "taken", "over", "released", "strange"):
            await created(store, run_id)
        claims = {claim.run_id: claim.epoch for claim in await store.claim("w", ["a"], 60, 9)}
        await store.take_over("taken", "other", 60)
        await written(store, batch("over", 2, epoch=claims["over"], ended=True))
        await store.release("released", claims["released"])
        await store.take_over("strange", "stranger", 60)
        held = [*claims.items(), ("missing", 2)]
        held = [(run_id, 3 if run_id == "strange" else epoch) for run_id, epoch in held]
        lost = await store.extend("w", held, 60)
        assert lost == {"taken", "over", "released", "strange", "missing"}

    async def test_a_released_run_waits_again_at_once(self, store: Store) -> None:
        await created(store, "r")
        first = await self.claimed(store)
        await store.release("r", first.epoch)
        second = await self.claimed(store, "other")
        assert second.epoch == first.epoch + 1
        await store.release("r", first.epoch)  # an old claim releases no newer claim
        assert await store.claim("third", ["a"], 60) == []

    async def test_an_ended_run_is_not_claimed(self, store: Store) -> None:
        await created(store, "r")
        claim = await self.claimed(store, lease=LEASE)
        await written(store, batch("r", 2, epoch=claim.epoch, ended=True))
        await store.release("r", claim.epoch)
        await self.wait(LEASE + 0.1)
        assert await store.claim("w", ["a"], 60) == []
        assert await store.take_over("r", "w", 60) is None
        assert await store.take_over("missing", "w", 60) is None

    async def test_only_claims_that_were_lost_count_as_attempts(self, store: Store) -> None:
        await created(store, "r")
        for epoch in range(2, 9):
            claim = await self.claimed(store)
            assert (claim.attempt, claim.epoch, claim.lost) == (1, epoch, False)
            await store.release("r", claim.epoch)
        await self.claimed(store, lease=LEASE)
        await self.wait(LEASE + 0.1)
        claim = await self.claimed(store)
        assert (claim.attempt, claim.epoch, claim.lost) == (2, 10, True)
        taken = await store.take_over("r", "other", 60)
        assert taken is not None
        assert taken.attempt == 3
        await store.release("r", taken.epoch)
        claim = await self.claimed(store)
        assert (claim.attempt, claim.lost) == (3, False)

    async def test_a_worker_never_claims_a_run_that_it_still_holds(self, store: Store) -> None:
        for run_id in ("held", "free"):
            await created(store, run_id)
        first = await store.claim("w", ["a"], LEASE, limit=9)
        assert [claim.run_id for claim in first] == ["held", "free"]
        await self.wait(LEASE + 0.1)
        second = await store.claim("w", ["a"], 60, 9, held=["held"])
        assert [claim.run_id for claim in second] == ["free"]
        assert await store.extend("w", [("held", first[0].epoch)], 60) == set()
        await written(store, batch("held", 2, epoch=first[0].epoch))

    async def test_a_claim_can_leave_lost_runs_out(self, store: Store) -> None:
        for run_id in ("lost", "released"):
            await created(store, run_id)
        _, released = await store.claim("w", ["a"], LEASE, 9)
        await store.release("released", released.epoch)
        await created(store, "new")
        await self.wait(LEASE + 0.1)
        claims = await store.claim("v", ["a"], 60, 9, lost=False)
        assert [claim.run_id for claim in claims] == ["released", "new"]
        assert [claim.run_id for claim in await store.claim("v", ["a"], 60, 9)] == ["lost"]

    async def test_a_queued_run_waits_for_every_earlier_run_of_its_thread(
        self, store: Store
    ) -> None:
        await created(store, "first")
        await created(store, "second", queued=True)
        await created(store, "third", queued=True)
        await created(store, "elsewhere", thread_id="u", queued=True)
        await created(store, "owned", owner="o", queued=True)
        got = {claim.run_id: claim for claim in await store.claim("w", ["a"], 60, 10)}
        assert got.keys() == {"first", "elsewhere", "owned"}
        assert await store.claim("v", ["a"], 60, 10) == []
        await written(store, batch("first", 2, epoch=got["first"].epoch, ended=True))
        (second,) = await store.claim("v", ["a"], 60, 10)
        assert second.run_id == "second"
        await store.delete("second")
        (third,) = await store.claim("v", ["a"], 60, 10)
        assert third.run_id == "third"

    async def test_a_queued_run_that_is_cancelled_need_not_wait(self, store: Store) -> None:
        await created(store, "first")
        await created(store, "second", queued=True)
        (first,) = await store.claim("w", ["a"], 60, 10)
        assert first.run_id == "first"
        assert await store.post("second", "input", b"1") == 1
        assert await store.claim("v", ["a"], 60, 10) == []
        assert await store.post("second", "cancel", b"{}") == 2
        (second,) = await store.claim("v", ["a"], 60, 10)
        assert second.run_id == "second"

    async def test_of_runs_that_want_the_same_place_in_a_thread_one_gets_it(
        self, store: Store, second: Store
    ) -> None:
        await created(store, "r1")
        places = [store.create(new_run("r2", ordinal=2)), second.create(new_run("r3", ordinal=2))]
        found = await asyncio.gather(*places, return_exceptions=True)
        assert sorted(type(result).__name__ for result in found) == ["RunInfo", "SeqConflict"]
        with pytest.raises(SeqConflict):
            await store.create(new_run("r4", ordinal=7))
        assert (await created(store, "r5", ordinal=3)).ordinal == 3
        assert (await created(store, "r6", thread_id="new", ordinal=1)).ordinal == 1
        assert await store.create(new_run("r1", ordinal=4)) is None
