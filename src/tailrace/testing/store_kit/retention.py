"""The store kit: listings, repacking, and what retention deletes."""

from __future__ import annotations

import contextlib

import pytest

from tailrace.core.codec import encode_event
from tailrace.core.errors import NotFound, SeqConflict, TailraceError
from tailrace.core.events import TextDelta, recorded
from tailrace.ports import Batch, RunInfo, Store, Trimmed
from tailrace.testing.store_kit.setup import (
    StoreTests,
    batch,
    created,
    ended,
    numbers,
    written,
)


class RetentionTests(StoreTests):
    """Listings, and what retention takes."""

    @pytest.mark.parametrize("limit", [1, 3, 100])
    async def test_pages_of_a_listing_show_each_run_once(self, store: Store, limit: int) -> None:
        for n in range(7):
            await created(store, f"r{n}", thread_id=f"t{n % 2}", owner=f"o{n % 3}")

        async def of_thread(thread_id: str, owner: str) -> str:
            seen: list[RunInfo] = []
            while page := await store.thread_runs(
                thread_id, owner=owner, first=seen[-1].ordinal + 1 if seen else 1, limit=limit
            ):
                assert len(page) <= limit
                seen += page
            return "".join(info.run_id for info in seen)

        async def of_owner(owner: str) -> str:
            seen: list[str] = []
            while page := await store.latest_runs(
                owner=owner, before=seen[-1] if seen else None, limit=limit
            ):
                assert len(page) <= limit
                seen += [info.run_id for info in page]
            return "".join(seen)

        assert await of_thread("t0", "o0") == "r0r6"
        assert await of_thread("t1", "o0") == "r3"
        assert await of_thread("t0", "missing") == ""
        assert await of_owner("o0") == "r6r3r0"
        assert await of_owner("missing") == ""

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

    async def test_repacking_keeps_every_byte_of_deltas(self, store: Store) -> None:
        """A store may keep the deltas of a text without what they repeat."""
        await created(store, "r")
        pieces = ['"} ', "\\", "", "\n\n", "é", '"delta":"', '"sequence_number":7', "word "] * 25
        deltas = [
            TextDelta(task_id="r", item_id="m", output_index=0, block_index=0, delta=piece)
            for piece in pieces
        ]
        publics = [encode_event(recorded(delta, seq)) for seq, delta in enumerate(deltas, 2)]
        many = len(publics)
        await written(
            store,
            Batch(run_id="r", epoch=1, first_seq=2, publics=publics, privates=[b""] * many),
        )
        await written(store, batch("r", many + 2, ended=True))
        before = await store.read("r", 0)
        await store.repack("r")
        assert await store.read("r", 0) == before
        assert [stored.public for stored in before[1:-1]] == publics
        for after in (0, 1, 2, 100, many, many + 2):
            assert await numbers(store, "r", after) == list(range(after + 1, many + 3))

    async def test_repacking_keeps_the_order_of_large_and_small_rows(self, store: Store) -> None:
        """A store may write them to different places."""
        await created(store, "r")
        for seq in range(2, 40):
            await written(store, batch("r", seq, text="x" * 5_000 if seq % 4 < 2 else ""))
            if seq % 7 == 0:
                before = await store.read("r", 0)
                await store.repack("r")
                assert await store.read("r", 0) == before
        await written(store, batch("r", 40, ended=True))
        before = await store.read("r", 0)
        await store.repack("r")
        assert await store.read("r", 0) == before
        assert await numbers(store, "r") == list(range(1, 41))

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
                ] == [
                    (recorded.event.sequence_number, recorded.epoch, recorded.public)
                    for recorded in events
                ]
                assert all(stretch.last_seq >= stretch.first_seq for stretch in found)
                assert [lines.last_public() for lines in found] == [
                    lines.publics()[-1] for lines in found
                ]
        assert await store.read_lines("missing", 0) == []

    async def test_trimming_leaves_the_final_state_and_a_typed_gap(self, store: Store) -> None:
        await created(store, "r")
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
        assert (info.last_seq, info.trimmed_to) == (5, 5)
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
        assert [(info.run_id, info.ordinal) for info in page] == [("r2", 2), ("r3", 3), ("r4", 4)]
        page = await store.thread_runs("t", owner="o", first=4)
        assert [info.run_id for info in page] == ["r4", "r5"]
        assert await store.thread_runs("t", owner="o", first=2**53 - 1) == []
        assert await store.thread_runs("t") == []
        newest = await store.newest_run("t", owner="o")
        assert newest is not None
        assert newest == await store.info("r5")
        for run_id in ("r2", "r5"):
            await store.delete(run_id)
        assert [info.ordinal for info in await store.thread_runs("t", owner="o")] == [
            1,
            3,
            4,
        ]
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
        older = await store.latest_runs(owner="o", before="run_2", limit=3)
        assert [run.run_id for run in older] == ["run_1", "run_0"]
        assert await store.latest_runs(owner="o", before="run_0") == []
        for unknown in ("run_other", "run_9"):
            with pytest.raises(NotFound):
                await store.latest_runs(owner="o", before=unknown)
        assert await store.latest_runs() == []

    async def test_a_deleted_run_leaves_nothing(self, store: Store) -> None:
        await created(store, "r")
        await written(store, batch("r", 2, 2, private=b"p", snapshot=b"s"))
        await store.post("r", "input", b"x")
        await created(store, "other")
        assert await store.delete("r")
        assert not await store.delete("r")
        assert await store.info("r") is None
        assert [run.run_id for run in await store.latest_runs()] == ["other"]
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
        found = [await store.info(run_id) for run_id in ("live", "kept", "gone")]
        assert [info is not None and info.forget for info in found] == [True, False, True]
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

    async def test_a_check_changes_nothing(self, store: Store) -> None:
        before = await created(store, "r")
        await store.check()
        assert await store.info("r") == before
