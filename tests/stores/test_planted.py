"""The store kit finds what is wrong: each of these mistakes, planted into the SQLite store.

The kit's tests of the store pass without them, in `sqlite/test_store.py`.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace.core.errors import StorageError
from tailrace.core.events import Recorded
from tailrace.core.log_lines import LogLines
from tailrace.ports import Batch, Claim, InboxLetter, NewRun, RunInfo, Snapshot, Store, Unread
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.store_kit import EventLogKit


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def changed(batches: list[Batch], **fields: Any) -> list[Batch]:
    return [msgspec.structs.replace(batch, **fields) for batch in batches]


# --- the log -------------------------------------------------------------------------------------


class GivesAnIdTwice(SqliteStore):
    async def create(self, run: NewRun) -> RunInfo | None:
        await self.delete(run.run_id)
        return await super().create(run)


class JoinsThreadsOfOwners(SqliteStore):
    async def create(self, run: NewRun) -> RunInfo | None:
        return await super().create(msgspec.structs.replace(run, owner=""))


class ForgetsPlacesOfDeletedRuns(SqliteStore):
    async def last_ordinal(self, thread_id: str, *, owner: str = "") -> int:
        return len(await self.thread_runs(thread_id, owner=owner))


class DropsPrivateParts(SqliteStore):
    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        bare = [
            msgspec.structs.replace(batch, privates=[b""] * len(batch.privates))
            for batch in batches
        ]
        return await super().append(bare)


class HasNoFence(SqliteStore):
    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        heads = await self.heads([batch.run_id for batch in batches])
        unfenced = [
            msgspec.structs.replace(batch, epoch=heads[batch.run_id].epoch)
            if batch.run_id in heads
            else batch
            for batch in batches
        ]
        return await super().append(unfenced)


class WritesNowAllThatFits(SqliteStore):
    def append_now(self, batches: list[Batch]) -> list[None] | None:
        for batch in batches:
            super().append_now([batch])
        return [None] * len(batches)


class RefusesAllWithOne(SqliteStore):
    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        answers = await super().append(batches)
        refused = next((answer for answer in answers if answer is not None), None)
        return [refused] * len(answers)


class RefusesARetry(SqliteStore):
    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        heads = await self.heads([batch.run_id for batch in batches])
        stored = [
            batch.run_id in heads and batch.first_seq <= heads[batch.run_id].last_seq
            for batch in batches
        ]
        answers = await super().append(batches)
        return [
            OSError("stored already") if known else answer
            for known, answer in zip(stored, answers, strict=True)
        ]


class WritesAfterTheEnd(SqliteStore):
    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        return await super().append(changed(batches, ended=False))


class ReadsTheCursorAgain(SqliteStore):
    async def read(self, run_id: str, after: int, limit: int = 10_000) -> list[Recorded]:
        return await super().read(run_id, after - 1 if after == 3 else after, limit)


class ChangesBytes(SqliteStore):
    async def read(self, run_id: str, after: int, limit: int = 10_000) -> list[Recorded]:
        found = await super().read(run_id, after, limit)
        return [msgspec.structs.replace(one, public=one.public + b" ") for one in found]


class ForgetsTheWriter(SqliteStore):
    async def read(self, run_id: str, after: int, limit: int = 10_000) -> list[Recorded]:
        found = await super().read(run_id, after, limit)
        return [msgspec.structs.replace(one, epoch=1) for one in found]


class ReadsOtherLines(SqliteStore):
    async def read_lines(self, run_id: str, after: int, limit: int = 10_000) -> list[LogLines]:
        return await super().read_lines(run_id, 0, limit)


class FindsALaterSnapshot(SqliteStore):
    async def snapshot(self, run_id: str, at_most: int | None = None) -> Snapshot | None:
        return await super().snapshot(run_id)


class LosesAllWhenClosed(SqliteStore):
    async def close(self) -> None:
        with suppress(StorageError):  # it is closed already
            for info in await self._infos("true", []):
                await self.delete(info.run_id)
        await super().close()


# --- listings and retention ----------------------------------------------------------------------


class ShowsARunTwice(SqliteStore):
    async def latest_runs(self, **given: Any) -> list[RunInfo]:
        found = await super().latest_runs(**given)
        return [*found, *found[-1:]] if given.get("before") is None else found


class KeepsTrimmedEvents(SqliteStore):
    async def trim(self, run_id: str, snapshot: bytes) -> None:
        pass


class DeletesOnlyTheName(SqliteStore):
    async def letters(self, run_ids: list[str]) -> dict[str, list[InboxLetter]]:
        letter = InboxLetter(1, "input", b"x")
        return {"r": [letter]} if "r" in run_ids else await super().letters(run_ids)


class TrimsTooEarly(SqliteStore):
    async def expired(self, **given: Any) -> tuple[list[str], list[str]]:
        return await super().expired(**{**given, "full_for": -1.0})


# --- claims --------------------------------------------------------------------------------------


class ClaimsForAnyAgent(SqliteStore):
    async def claim(self, worker: str, agents: list[str], *given: Any, **more: Any) -> list[Claim]:
        return await super().claim(worker, [*agents, "b"], *given, **more)


class ClaimsWhatIsHeld(SqliteStore):
    async def claim(self, *given: Any, **more: Any) -> list[Claim]:
        return await super().claim(*given, **{**more, "held": ()})


class ClaimsNewestFirst(SqliteStore):
    async def claim(self, *given: Any, **more: Any) -> list[Claim]:
        return (await super().claim(*given, **more))[::-1]


class LetsALeaseEndNever(SqliteStore):
    async def claim(
        self, worker: str, agents: list[str], lease: float, *given: Any, **more: Any
    ) -> list[Claim]:
        return await super().claim(worker, agents, 1000 * lease, *given, **more)


class DoesNotExtend(SqliteStore):
    async def extend(self, worker: str, claims: list[tuple[str, int]], lease: float) -> set[str]:
        return await super().extend(worker, claims, 0.0)


class ReportsNoLoss(SqliteStore):
    async def extend(self, worker: str, claims: list[tuple[str, int]], lease: float) -> set[str]:
        await super().extend(worker, claims, lease)
        return set()


class DoesNotRelease(SqliteStore):
    async def release(self, run_id: str, epoch: int) -> None:
        pass


class UsesANameTwice(SqliteStore):
    async def use_once(self, name: str, seconds: float) -> bool:
        await super().use_once(name, seconds)
        return True


class ListsNamesForEver(SqliteStore):
    async def used(self, prefix: str) -> list[str]:
        rows = await self._select("select name from used")
        return [name for (name,) in rows if name.startswith(prefix)]


class DoesNotPark(SqliteStore):
    async def park(
        self, worker: str, claims: list[tuple[str, int, int]], first_go: float
    ) -> set[str]:
        for run_id, epoch, _ in claims:
            await self.release(run_id, epoch)
        return {run_id for run_id, _, _ in claims}


# --- letters and blobs ---------------------------------------------------------------------------


class TurnsLettersRound(SqliteStore):
    async def letters(self, run_ids: list[str]) -> dict[str, list[InboxLetter]]:
        return {run_id: found[::-1] for run_id, found in (await super().letters(run_ids)).items()}


class CountsNoBytes(SqliteStore):
    async def unread(self, run_id: str) -> Unread:
        return (await super().unread(run_id))._replace(bytes=0)


class KeepsReadLetters(SqliteStore):
    async def acknowledge(self, run_id: str, number: int) -> None:
        pass


class ShowsBlobsOfOthers(SqliteStore):
    async def blob(self, sha256: str, *, owner: str | None = None) -> tuple[bytes, str] | None:
        return await super().blob(sha256)


class ForgetsWhoUsesABlob(SqliteStore):
    async def put_blob(self, data: bytes, mime_type: str, run_id: str | None = None) -> str:
        return await super().put_blob(data, mime_type)


PLANTED: list[tuple[type[SqliteStore], str, dict[str, Any]]] = [
    (GivesAnIdTwice, "an_id_is_given_once", {}),
    (JoinsThreadsOfOwners, "threads_of_two_owners_are_two_threads", {}),
    (
        ForgetsPlacesOfDeletedRuns,
        "a_thread_is_listed_from_any_place_and_its_newest_run_is_known",
        {},
    ),
    (DropsPrivateParts, "private_parts_are_kept_beside_their_events", {}),
    (HasNoFence, "a_claim_fences_every_earlier_writer_off", {}),
    (WritesNowAllThatFits, "what_is_written_without_a_wait_is_written_whole_or_not", {}),
    (RefusesAllWithOne, "a_refused_batch_takes_no_other_with_it", {}),
    (RefusesARetry, "the_same_batch_again_changes_nothing", {}),
    (WritesAfterTheEnd, "nothing_is_appended_after_the_end", {}),
    (ReadsTheCursorAgain, "reading_starts_right_after_any_cursor", {"after": 3}),
    (ChangesBytes, "what_was_appended_is_read_back_byte_for_byte", {}),
    (ForgetsTheWriter, "each_event_names_the_epoch_that_wrote_it", {}),
    (ReadsOtherLines, "lines_are_the_events_undecoded_from_any_place", {}),
    (FindsALaterSnapshot, "the_newest_snapshot_up_to_a_place_is_found", {}),
    (LosesAllWhenClosed, "what_was_answered_is_there_after_reopening", {}),
    (ShowsARunTwice, "pages_of_a_listing_show_each_run_once", {"limit": 100}),
    (KeepsTrimmedEvents, "trimming_leaves_the_final_state_and_a_typed_gap", {}),
    (DeletesOnlyTheName, "a_deleted_run_leaves_nothing", {}),
    (TrimsTooEarly, "retention_names_ended_runs_by_their_age", {}),
    (ClaimsForAnyAgent, "a_worker_gets_only_runs_of_its_agents", {}),
    (ClaimsWhatIsHeld, "a_worker_never_claims_a_run_that_it_still_holds", {}),
    (ClaimsNewestFirst, "waiting_runs_are_claimed_oldest_first", {}),
    (LetsALeaseEndNever, "a_lease_that_ends_lets_the_run_wait_again", {}),
    (DoesNotExtend, "a_lease_that_is_kept_alive_holds", {}),
    (ReportsNoLoss, "extending_returns_the_claims_that_are_lost", {}),
    (DoesNotRelease, "a_released_run_waits_again_at_once", {}),
    (UsesANameTwice, "a_name_is_used_once", {}),
    (ListsNamesForEver, "the_names_that_are_used_are_listed", {}),
    (DoesNotPark, "a_parked_run_is_claimed_by_no_worker_until_a_letter_comes", {}),
    (TurnsLettersRound, "letters_wait_in_order_until_they_are_acknowledged", {}),
    (KeepsReadLetters, "numbers_go_on_after_an_acknowledgement", {}),
    (CountsNoBytes, "unread_letters_are_counted_with_their_bytes", {}),
    (ShowsBlobsOfOthers, "a_blob_is_found_by_the_owners_of_the_runs_that_use_it", {}),
    (ForgetsWhoUsesABlob, "a_blob_stays_as_long_as_a_run_that_uses_it", {}),
]


async def check(store: type[SqliteStore], test: str, given: dict[str, Any], folder: Path) -> None:
    """Run a test of the kit on a store."""
    clock = Clock()

    class Kit(EventLogKit):
        async def wait(self, seconds: float) -> None:
            clock.time += seconds

    async def opened() -> Store:
        return await store.open(folder / "log.db", boot_time=clock)

    kit = Kit()
    run = getattr(kit, f"test_{test}")
    tried = await opened()
    given = {"store": tried, **given}
    if "opener" in inspect.signature(run).parameters:
        given["opener"] = opened
    try:
        await run(**given)
    finally:
        await tried.close()


@pytest.mark.parametrize(
    ("bug", "test", "given"), PLANTED, ids=[bug.__name__ for bug, _, _ in PLANTED]
)
async def test_the_kit_finds_a_store_that(
    bug: type[SqliteStore], test: str, given: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "sound").mkdir()
    await check(SqliteStore, test, given, tmp_path / "sound")
    with pytest.raises((AssertionError, ValueError, pytest.fail.Exception)):
        await check(bug, test, given, tmp_path)


def test_each_part_of_the_kit_has_a_planted_bug() -> None:
    tried = {f"test_{test}" for _, test, _ in PLANTED}
    for part in EventLogKit.__bases__:
        assert tried & set(vars(part)), part.__name__
