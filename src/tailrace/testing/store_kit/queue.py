"""The store kit: listings, retention, claims and letters."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from tailrace.core.codec import PROTOCOL
from tailrace.core.errors import NotFound, SeqConflict, TailraceError
from tailrace.ports import Claim, Store, Trimmed
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


class KeepingTests(StoreTests):
    """Listings, and what retention takes."""

    @pytest.mark.parametrize("limit", [1, 3, 100])
    async def test_pages_of_a_listing_show_each_run_once(self, store: Store, limit: int) -> None:
        for n in range(7):
            await created(store, f"r{n}", thread_id=f"t{n % 2}", owner=f"o{n % 3}")

        async def listed(thread_id: str | None = None, owner: str | None = None) -> str:
            seen: list[str] = []
            while True:
                page = await store.runs(
                    thread_id=thread_id,
                    owner=owner,
                    after=seen[-1] if seen else None,
                    limit=limit,
                )
                assert len(page) <= limit
                if not page:
                    return "".join(seen)
                seen += [one.run_id for one in page]

        assert await listed() == "r0r1r2r3r4r5r6"
        assert await listed(thread_id="t1") == "r1r3r5"
        assert await listed(owner="o0") == "r0r3r6"
        assert await listed(thread_id="t0", owner="o0") == "r0r6"
        assert await listed(thread_id="t0", owner="missing") == ""

    async def test_a_listing_cannot_go_on_after_a_run_that_is_not_in_it(self, store: Store) -> None:
        await created(store, "mine", owner="me")
        await created(store, "theirs", owner="they")
        for after in ("missing", "theirs"):
            with pytest.raises(NotFound):
                await store.runs(owner="me", after=after)

    async def test_repacking_keeps_every_byte(self, store: Store) -> None:
        await created(store, "r", private=b"1")
        for seq in range(2, 40):
            await written(store, batch("r", seq, private=b"%d" % seq if seq % 3 else b""))
        before = await store.read("r", 0), await store.read_private("r")
        await store.repack("r")  # while it is written
        assert (await store.read("r", 0), await store.read_private("r")) == before
        await written(store, batch("r", 39, private=b""))  # again: its answer was lost
        await written(store, batch("r", 40, ended=True))
        before = [*before[0], *await store.read("r", 39)], before[1]
        info = await store.info("r")
        for _ in range(3):
            await store.repack("r")
            assert (await store.read("r", 0), await store.read_private("r")) == before
            assert await store.info("r") == info
        for after in range(42):
            assert await numbers(store, "r", after) == list(range(after + 1, 41))

    async def test_lines_are_the_events_undecoded_from_any_place(self, store: Store) -> None:
        await created(store, "r")
        await written(store, batch("r", 2, 3))
        claim = await store.take_over("r", "w", 60.0)
        assert claim is not None
        await written(store, batch("r", 5, 2, epoch=claim.epoch))
        for packed in (False, True):
            if packed:
                await store.repack("r")
            for after in range(8):
                events = await store.read("r", after)
                found = await store.read_lines("r", after)
                assert [
                    (number, stretch.epoch, line)
                    for stretch in found
                    for number, line in enumerate(stretch.publics(), stretch.first_seq)
                ] == [(one.event.sequence_number, one.epoch, one.public) for one in events]
                assert all(stretch.last_seq >= stretch.first_seq for stretch in found)
                assert [one.last_public() for one in found] == [one.publics()[-1] for one in found]
        assert await store.read_lines("missing", 0) == []

    async def test_trimming_leaves_the_final_state_and_a_typed_gap(self, store: Store) -> None:
        await created(store, "r", metadata=b"m")
        await written(store, batch("r", 2, 3, private=b"p", snapshot=b"early"))
        await written(store, batch("r", 5, ended=True))
        await store.trim("r", b"final")
        await store.trim("r", b"final")
        for after in range(5):
            for read in (store.read, store.read_lines):
                with pytest.raises(Trimmed):
                    await read("r", after)
        assert await store.read("r", 5) == []
        assert await store.read_private("r") == {}
        assert await store.snapshot("r", 4) is None
        kept = await store.snapshot("r")
        assert kept is not None
        assert (kept.seq, kept.state) == (5, b"final")
        info = await store.info("r")
        assert info is not None
        assert (info.last_seq, info.trimmed_to, info.metadata) == (5, 5, b"m")
        await store.repack("r")

    async def test_a_run_that_is_written_is_not_trimmed(self, store: Store) -> None:
        await created(store, "r")
        with contextlib.suppress(TailraceError):  # whether it says so or not
            await store.trim("r", b"final")
        assert await numbers(store, "r") == [1]

    async def test_a_thread_is_listed_from_any_place_and_its_newest_run_is_known(
        self, store: Store
    ) -> None:
        for n in range(1, 6):
            await created(store, f"r{n}", owner="o")
            await created(store, f"other {n}", owner="p")
        page = await store.thread_runs("t", owner="o", first=2, limit=3)
        assert [(one.run_id, one.ordinal) for one in page] == [("r2", 2), ("r3", 3), ("r4", 4)]
        page = await store.thread_runs("t", owner="o", first=4)
        assert [one.run_id for one in page] == ["r4", "r5"]
        assert await store.thread_runs("t", owner="o", first=2**53 - 1) == []
        assert await store.thread_runs("t") == []
        newest = await store.newest_run("t", owner="o")
        assert newest is not None
        assert newest == await store.info("r5")
        for run_id in ("r2", "r5"):
            await store.delete(run_id)
        assert [one.ordinal for one in await store.thread_runs("t", owner="o")] == [1, 3, 4]
        newest = await store.newest_run("t", owner="o")
        assert newest is not None
        assert newest.run_id == "r4"
        # A cursor may name a run that is gone; beyond this number it names none that ever was.
        assert await store.last_ordinal("t", owner="o") == 5
        assert await store.newest_run("t") is None
        assert await store.last_ordinal("t") == 0

    async def test_the_latest_runs_of_an_owner_come_newest_first(self, store: Store) -> None:
        for number in range(4):
            await created(store, f"run_{number}", thread_id=f"t{number % 2}", owner="o")
        await created(store, "run_other", thread_id="t0", owner="p")
        assert [run.run_id for run in await store.latest_runs(owner="o", limit=3)] == [
            "run_3",
            "run_2",
            "run_1",
        ]
        assert await store.latest_runs() == []

    async def test_a_deleted_run_leaves_nothing(self, store: Store) -> None:
        await created(store, "r")
        await written(store, batch("r", 2, 2, private=b"p", snapshot=b"s"))
        await store.post("r", "input", b"x")
        await created(store, "other")
        assert await store.delete("r")
        assert not await store.delete("r")
        assert await store.info("r") is None
        assert [one.run_id for one in await store.runs()] == ["other"]
        (answer,) = await store.append([batch("r", 4)])
        assert isinstance(answer, SeqConflict)
        await created(store, "r")
        assert await numbers(store, "r") == [1]
        assert await store.read_private("r") == {}
        assert await store.snapshot("r") is None
        assert await store.letters(["r"]) == {}
        assert await store.post("r", "input", b"y") == 1

    async def test_retention_names_ended_runs_by_their_age(self, store: Store) -> None:
        await created(store, "live")
        await ended(store, "old")
        await ended(store, "trimmed")
        await store.trim("trimmed", b"final")
        hour = 3600.0
        assert await store.expired(full_for=hour, snapshot_for=hour) == ([], [])
        assert await store.expired(full_for=-1, snapshot_for=hour) == (["old"], [])
        assert await store.expired(full_for=-1, snapshot_for=-1) == ([], ["old", "trimmed"])
        assert await store.expired(full_for=hour, snapshot_for=-1) == ([], ["old", "trimmed"])
        forever = float("inf")
        assert await store.expired(full_for=forever, snapshot_for=forever) == ([], [])

    async def test_ended_runs_are_named_until_they_are_repacked(self, store: Store) -> None:
        await created(store, "live")
        await store.repack("live")
        await written(store, batch("live", 2, ended=True))
        await ended(store, "other")
        await ended(store, "trimmed")
        await store.trim("trimmed", b"final")
        await ended(store, "gone", forget=True)
        assert await store.unjoined(3600.0) == []
        assert sorted(await store.unjoined(-1)) == ["live", "other"]
        await store.repack("live")
        assert await store.unjoined(-1) == ["other"]

    async def test_a_run_to_forget_is_named_after_its_end_however_long_others_are_kept(
        self, store: Store
    ) -> None:
        await created(store, "live", forget=True)
        await ended(store, "kept")
        await ended(store, "gone", forget=True)
        forever = float("inf")
        kept = {"full_for": forever, "snapshot_for": forever}
        assert await store.expired(**kept) == ([], [])
        assert await store.expired(**kept, forget_after=-1) == ([], ["gone"])
        _, to_delete = await store.expired(full_for=forever, snapshot_for=-1, forget_after=-1)
        assert sorted(to_delete) == ["gone", "kept"]

    async def test_retention_names_the_oldest_runs_first(self, store: Store) -> None:
        for number in range(5):
            await ended(store, f"r{number}")
        to_trim, _ = await store.expired(full_for=-1, snapshot_for=60)
        assert to_trim == [f"r{number}" for number in range(5)]


class ClaimTests(StoreTests):
    """Who may write a run."""

    async def one(self, store: Store, worker: str = "w", lease: float = 60.0) -> Claim:
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
        tries = await asyncio.gather(*(one.use_once("x", 60) for one in (store, second)))
        assert sorted(tries) == [False, True]

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
            *(one.claim(f"w{n}", ["a"], 60, 3) for n in range(15) for one in (store, second))
        )
        run_ids = [claim.run_id for claims in got for claim in claims]
        assert len(run_ids) == len(set(run_ids))

    async def test_a_claim_fences_every_earlier_writer_off(self, store: Store) -> None:
        await created(store, "r")
        first = await self.one(store)
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
        first = await self.one(store, lease=LEASE)
        await self.wait(LEASE + 0.1)
        second = await self.one(store, "other")
        assert (second.epoch, second.attempt) == (first.epoch + 1, 2)
        assert await store.extend("w", [("r", first.epoch)], 60) == {"r"}
        (stale,) = await store.append([batch("r", 2, epoch=first.epoch)])
        assert isinstance(stale, SeqConflict)

    async def test_a_lease_that_is_kept_alive_holds(self, store: Store) -> None:
        await created(store, "r")
        claim = await self.one(store, lease=LEASE)
        assert await store.extend("w", [("r", claim.epoch)], 60) == set()
        await self.wait(LEASE + 0.1)
        assert await store.claim("other", ["a"], 60) == []

    async def test_a_lease_is_kept_alive_from_another_thread_while_the_event_loop_is_blocked(
        self, store: Store
    ) -> None:
        await created(store, "r")
        claim = await self.one(store, lease=LEASE)

        def extend() -> set[str]:
            return asyncio.run(store.extend("w", [("r", claim.epoch), ("lost", 2)], 60))

        with ThreadPoolExecutor(1) as threads:
            # Not awaited: this blocks the event loop that the store was opened on.
            assert threads.submit(extend).result(30) == {"lost"}
        await self.wait(LEASE + 0.1)
        assert await store.claim("other", ["a"], 60) == []

    async def test_extending_tells_which_claims_are_lost(self, store: Store) -> None:
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
        first = await self.one(store)
        await store.release("r", first.epoch)
        second = await self.one(store, "other")
        assert second.epoch == first.epoch + 1
        await store.release("r", first.epoch)  # an old claim releases no newer claim
        assert await store.claim("third", ["a"], 60) == []

    async def test_an_ended_run_is_claimed_by_nobody(self, store: Store) -> None:
        await created(store, "r")
        claim = await self.one(store, lease=LEASE)
        await written(store, batch("r", 2, epoch=claim.epoch, ended=True))
        await store.release("r", claim.epoch)
        await self.wait(LEASE + 0.1)
        assert await store.claim("w", ["a"], 60) == []
        assert await store.take_over("r", "w", 60) is None
        assert await store.take_over("missing", "w", 60) is None

    async def test_only_claims_that_were_lost_count_as_attempts(self, store: Store) -> None:
        await created(store, "r")
        for epoch in range(2, 9):
            claim = await self.one(store)
            assert (claim.attempt, claim.epoch) == (1, epoch)
            await store.release("r", claim.epoch)
        await self.one(store, lease=LEASE)
        await self.wait(LEASE + 0.1)
        claim = await self.one(store)
        assert (claim.attempt, claim.epoch) == (2, 10)
        taken = await store.take_over("r", "other", 60)
        assert taken is not None
        assert taken.attempt == 3
        await store.release("r", taken.epoch)
        assert (await self.one(store)).attempt == 3

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
        assert sorted(type(one).__name__ for one in found) == ["RunInfo", "SeqConflict"]
        with pytest.raises(SeqConflict):
            await store.create(new_run("r4", ordinal=7))
        assert (await created(store, "r5", ordinal=3)).ordinal == 3
        assert (await created(store, "r6", thread_id="new", ordinal=1)).ordinal == 1
        assert await store.create(new_run("r1", ordinal=4)) is None


class LetterTests(StoreTests):
    """What reaches a run's writer."""

    async def test_letters_wait_in_order_until_they_are_acknowledged(self, store: Store) -> None:
        await created(store, "r")
        await created(store, "other")
        assert await store.post("r", "input", b"\x00\xff any bytes") == 1
        assert await store.post("other", "input", b"") == 1
        assert await store.post("r", "cancel", b"") == 2
        waiting = await store.letters(["r", "other", "missing"])
        assert [(one.number, one.kind, one.body) for one in waiting["r"]] == [
            (1, "input", b"\x00\xff any bytes"),
            (2, "cancel", b""),
        ]
        assert set(waiting) == {"r", "other"}
        await store.acknowledge("r", 1)
        assert [one.number for one in (await store.letters(["r"]))["r"]] == [2]
        await store.acknowledge("r", 99)
        assert await store.letters(["r"]) == {}
        assert list(await store.letters(["r", "other"])) == ["other"]
        assert await store.letters([]) == {}

    async def test_numbers_go_on_after_an_acknowledgement(self, store: Store) -> None:
        await created(store, "r")
        await store.post("r", "input", b"1")
        await store.acknowledge("r", 7)
        assert await store.post("r", "input", b"2") == 2
        assert [one.number for one in (await store.letters(["r"]))["r"]] == [2]

    async def test_letters_that_are_posted_at_once_are_numbered_without_holes(
        self, store: Store
    ) -> None:
        await created(store, "r")
        posted = await asyncio.gather(*(store.post("r", "input", b"%d" % n) for n in range(50)))
        assert sorted(number or 0 for number in posted) == list(range(1, 51))
        waiting = (await store.letters(["r"]))["r"]
        assert [one.number for one in waiting] == list(range(1, 51))
        assert {one.number: int(one.body) for one in waiting} == {
            number: n for n, number in enumerate(posted)
        }

    async def test_letters_wait_for_the_next_writer(self, store: Store) -> None:
        await created(store, "r")
        await store.take_over("r", "w", 60)
        await store.post("r", "input", b"x")
        await store.take_over("r", "other", 60)
        assert [one.number for one in (await store.letters(["r"]))["r"]] == [1]

    async def test_a_check_changes_nothing(self, store: Store) -> None:
        before = await created(store, "r")
        await store.check()
        assert await store.info("r") == before

    async def test_nobody_writes_to_a_run_that_is_over(self, store: Store) -> None:
        await ended(store, "r")
        assert await store.post("r", "cancel", b"") is None
        assert await store.post("missing", "cancel", b"") is None
        assert await store.letters(["r", "missing"]) == {}
