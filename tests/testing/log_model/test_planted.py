"""The model finds what is wrong: each of these mistakes, planted into a store or a reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import Phase
from hypothesis.errors import Flaky

from tailrace.buses.local import LocalBus
from tailrace.core.codec import decode_event
from tailrace.core.errors import TailraceError
from tailrace.core.events import Recorded
from tailrace.ports import Batch, Bus, Claim, InboxLetter, RunInfo, Snapshot, Trimmed
from tailrace.runtime.followers.follow import Reader
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.testing.log_model import ModelSetup, check_log
from tests.effort import CUTS, sample

FOUND = (AssertionError, TimeoutError, TailraceError, BaseExceptionGroup, Flaky)
"""How a mistake shows. A mistake that depends on timing is found once and not again."""

ROWS = ("fresh", "batches")
"""The tables of SQLite that hold events."""


def forget(db: Any, run_id: str, first: int) -> None:
    """Delete the rows of a run that begin at this event or later."""
    for table in ROWS:
        db.execute(f"delete from {table} where run_id = ? and first_seq >= ?", (run_id, first))


class Broken:
    """A good store; each heir does one thing wrong."""

    def __init__(self, good: SqliteStore) -> None:
        self.good = good

    def __getattr__(self, name: str) -> Any:
        return getattr(self.good, name)


class SkipsTheEpochCheck(Broken):
    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        heads = await self.good.heads([one.run_id for one in batches])
        return await self.good.append(
            [
                msgspec.structs.replace(one, epoch=heads[one.run_id].epoch)
                if one.run_id in heads and one.first_seq > heads[one.run_id].last_seq
                else one
                for one in batches
            ]
        )


class DropsABatchSilently(Broken):
    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        answers = await self.good.append([one for one in batches if len(one.publics) < 4])
        rest = iter(answers)
        return [next(rest) if len(one.publics) < 4 else None for one in batches]


class RefusesARetry(Broken):
    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        heads = await self.good.heads([one.run_id for one in batches])
        answers = await self.good.append(batches)
        return [
            answer
            if one.run_id not in heads or one.first_seq > heads[one.run_id].last_seq
            else answer or ValueError("there already")
            for one, answer in zip(batches, answers, strict=True)
        ]


class AcceptsAnythingThatIsOld(Broken):
    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        heads = await self.good.heads([one.run_id for one in batches])
        answers = await self.good.append(batches)
        return [
            None if one.run_id in heads and one.last_seq <= heads[one.run_id].last_seq else answer
            for one, answer in zip(batches, answers, strict=True)
        ]


class ClosesHoles(Broken):
    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        heads = await self.good.heads([one.run_id for one in batches])
        return await self.good.append(
            [
                msgspec.structs.replace(one, first_seq=heads[one.run_id].last_seq + 1)
                if one.run_id in heads and one.first_seq > heads[one.run_id].last_seq
                else one
                for one in batches
            ]
        )


class RefusesTheWholeGroup(Broken):
    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        answers: list[Exception | None] = []
        for one in batches:
            failed = [answer for answer in answers if answer is not None]
            answers += failed[:1] or await self.good.append([one])
        return answers


class AnswersBeforeItIsDurable(Broken):
    """What was answered last is not there any more when the process died."""

    async def crash(self) -> None:
        def job(db: Any) -> None:
            for table in ROWS:  # small rows are in the first table until they are swept
                newest = f"select run_id, first_seq from {table} order by rowid desc limit 1"
                run_id, first = db.execute(newest).fetchone() or ("", 0)
                if first > 1:
                    forget(db, run_id, first)
                    db.execute("update runs set last_seq = ? where run_id = ?", (first - 1, run_id))
                    return

        await self.good._writer.call(job)


class WritesHalfABatch(Broken):
    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        for one in batches:
            if len(one.publics) > 2:
                half = msgspec.structs.replace(
                    one, publics=one.publics[:1], privates=one.privates[:1], ended=False
                )
                await self.good.append([half])
        return await self.good.append(batches)


class LosesPrivateParts(Broken):
    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        return await self.good.append(
            [msgspec.structs.replace(one, privates=[b""] * len(one.publics)) for one in batches]
        )


class RepeatsABatchOnRead(Broken):
    async def read(self, run_id: str, after: int, limit: int = 10_000) -> list[Recorded]:
        events = await self.good.read(run_id, after, limit)
        return events + events[-1:] if len(events) > 3 else events


class ReadsOneTooFew(Broken):
    async def read(self, run_id: str, after: int, limit: int = 10_000) -> list[Recorded]:
        return await self.good.read(run_id, after + 1 if after else 0, limit)


class ReadsOneTooMany(Broken):
    async def read(self, run_id: str, after: int, limit: int = 10_000) -> list[Recorded]:
        return await self.good.read(run_id, max(after - 1, 0), limit)


class ForgetsTheEpochOfEvents(Broken):
    async def read(self, run_id: str, after: int, limit: int = 10_000) -> list[Recorded]:
        return [
            Recorded(one.event, one.public, 1) for one in await self.good.read(run_id, after, limit)
        ]


class IsSilentAboutATrim(Broken):
    async def read(self, run_id: str, after: int, limit: int = 10_000) -> list[Recorded]:
        try:
            return await self.good.read(run_id, after, limit)
        except Trimmed:
            return []


class IgnoresAcknowledge(Broken):
    async def acknowledge(self, run_id: str, number: int) -> None:
        pass


class AcknowledgesOneTooMany(Broken):
    async def acknowledge(self, run_id: str, number: int) -> None:
        await self.good.acknowledge(run_id, number + 1)


class MixesUpLetters(Broken):
    async def letters(self, run_ids: list[str]) -> dict[str, list[InboxLetter]]:
        found = await self.good.letters(run_ids)
        return {run_id: letters[::-1] for run_id, letters in found.items()}


class TakesLettersOfTheDead(Broken):
    async def post(self, run_id: str, kind: Any, body: bytes) -> int | None:
        return await self.good.post(run_id, kind, body) or 1


class ClaimsWhatIsHeld(Broken):
    async def claim(
        self,
        worker: str,
        agents: list[str],
        lease: float,
        limit: int = 1,
        held: Sequence[str] = (),
        per_owner: int | None = None,
    ) -> list[Claim]:
        return await self.good.claim(worker, agents, 0.0, limit, held, per_owner)


class TakesOverWithoutAnEpoch(Broken):
    async def take_over(self, run_id: str, worker: str, lease: float) -> Claim | None:
        head = (await self.good.heads([run_id])).get(run_id)
        if head is None or head.ended:
            return None
        return Claim(run_id, (await self.info_of(run_id)).agent, head.epoch, 1, head.last_seq)

    async def info_of(self, run_id: str) -> RunInfo:
        found = await self.good.info(run_id)
        assert found is not None
        return found


class LetsOthersRelease(Broken):
    async def release(self, run_id: str, epoch: int) -> None:
        await self.good.release(run_id, epoch)
        await self.good.release(run_id, epoch + 1)


class NeverLosesAClaim(Broken):
    async def extend(self, worker: str, claims: list[tuple[str, int]], lease: float) -> set[str]:
        await self.good.extend(worker, claims, lease)
        return set()


class TrimsWhatGoesOn(Broken):
    async def trim(self, run_id: str, snapshot: bytes) -> None:
        info = await self.good.info(run_id)
        if info is None or info.ended_at is not None:
            await self.good.trim(run_id, snapshot)


class KeepsWhatWasDeleted(Broken):
    async def delete(self, run_id: str) -> bool:
        return await self.good.info(run_id) is not None


class GivesAnOldSnapshot(Broken):
    async def snapshot(self, run_id: str, at_most: int | None = None) -> Snapshot | None:
        return await self.good.snapshot(run_id, 3 if at_most is None else min(at_most, 3))


class IsNeverExpired(Broken):
    async def expired(self, **_: float) -> tuple[list[str], list[str]]:
        return [], []


class LosesEventsInRepack(Broken):
    async def repack(self, run_id: str) -> None:
        def job(db: Any) -> None:
            ended = "select 1 from runs where run_id = ? and ended_at is not null"
            if db.execute(ended, (run_id,)).fetchone():
                forget(db, run_id, 2)

        await self.good._writer.call(job)


class TellsBeforeItIsDurable(Broken):
    """Also of what is then refused."""

    bus: Bus

    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        for one in batches:
            events = [Recorded(decode_event(raw), raw, one.epoch) for raw in one.publics]
            self.bus.publish(one.run_id, events)
        return await self.good.append(batches)


def try_it(tmp_path_factory: pytest.TempPathFactory, broken: type[Broken]) -> None:
    """Short of shrinking: that something fails is enough."""

    def place() -> ModelSetup:
        path = tmp_path_factory.mktemp("model") / "log.db"
        bus = LocalBus()

        async def open_store() -> Any:
            store = broken(await SqliteStore.open(path))
            if isinstance(store, TellsBeforeItIsDurable):
                store.bus = bus
            return store

        async def open_bus() -> Bus:
            return bus

        async def flush(_: Bus) -> None:
            bus.miss()

        async def crash(store: Any) -> None:
            if isinstance(store, AnswersBeforeItIsDurable):
                await store.crash()

        return ModelSetup(
            open_store=open_store,
            crash=crash,
            open_bus=open_bus,
            flush=flush,
            processes=1,
            patience=1.0,
        )

    check_log(
        place,
        max_examples=2000,
        steps=40,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
    )


@pytest.mark.parametrize(
    "broken", sample(Broken.__subclasses__(), CUTS), ids=lambda broken: broken.__name__
)
def test_a_broken_store_is_found(
    broken: type[Broken], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.raises(FOUND):
        try_it(tmp_path_factory, broken)


def starts_one_late(self: Reader, run_id: str, after: Any = 0) -> Any:
    return real_follow(self, run_id, after + 1)


real_follow = Reader.follow


def test_a_broken_follower_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(Reader, "follow", starts_one_late)
    with pytest.raises(FOUND):
        try_it(tmp_path_factory, Broken)
