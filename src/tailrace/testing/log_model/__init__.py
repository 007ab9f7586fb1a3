"""Compares a store, a bus and their followers with a simple model, step by random step.

    def test_my_store_is_what_it_should_be(tmp_path: Path) -> None:
        check_log(lambda: ModelSetup(open_store=…, open_bus=MyBus.open, flush=…))

The model is a dict of lists. Hypothesis appends, repeats, forges, claims, follows, drops, flushes,
crashes, trims and deletes in any order. After each step the store holds what the model holds, byte
for byte. Every follower has got its events once, in order, and nothing else. Hypothesis shrinks a
failure to few steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tailrace.core.errors import SeqConflict, StorageError
from tailrace.core.events import Recorded
from tailrace.ports import Claim, Store, Trimmed
from tailrace.testing.log_model.expected import ExpectedRun, Follower
from tailrace.testing.log_model.processes import ModelSetup
from tailrace.testing.log_model.writers import (
    HOUR,
    INDEX,
    PLANNED,
    SELDOM,
    WORKER,
    PlannedBatch,
    Writers,
)

__all__ = ["LogMachine", "ModelSetup", "check_log"]

MAX_FOLLOWERS = 5


class LogMachine(Writers):
    """The steps, and the checks after each step. `check_log` runs it."""

    @initialize(thread=INDEX)
    def begin(self, thread: int) -> None:
        """Every example has runs."""
        self.create(thread, b"")
        self.create(0, b"{}")
        self.follow(0, "end", 0)

    # --- followers -------------------------------------------------------------------------------

    @precondition(lambda self: len(self.followers) < MAX_FOLLOWERS)
    @rule(index=INDEX, where=st.sampled_from(("start", "end", "beyond", "between")), at=INDEX)
    def follow(self, index: int, where: str, at: int) -> None:
        """A client follows from any cursor and reads its first event."""
        run = self._run(index)
        places = {"start": 0, "end": run.last, "beyond": run.last + 1 + at % 2}
        follower = Follower(run, places.get(where, at % (run.last + 1)))
        self.followers.append(follower)
        self._do(self._poll(follower, whole=False))

    @precondition(lambda self: self.followers)
    @rule(index=INDEX, whole=st.booleans())
    def poll(self, index: int, whole: bool) -> None:
        """A client reads its next events; a dropped client reconnects first."""
        self._do(self._poll(self._follower(index), whole=whole))

    @precondition(lambda self: self.followers)
    @rule(index=INDEX)
    def drop(self, index: int) -> None:
        """The connection is lost; the cursor stays."""
        self._do(self._drop(self._follower(index)))

    @precondition(lambda self: len(self.followers) == MAX_FOLLOWERS)
    @rule(index=INDEX)
    def leave(self, index: int) -> None:
        """A client leaves for good."""
        follower = self._follower(index)
        self._do(self._drop(follower))
        self.followers.remove(follower)

    # --- what goes wrong -------------------------------------------------------------------------

    @rule(index=INDEX, order=st.permutations(range(4)))
    def misbehave(self, index: int, order: list[int]) -> None:
        """The bus delivers old events again, in any order and with holes."""
        run = self._run(index)
        events = run.events()[-4:]
        again = [events[place] for place in order if place < len(events)][:3]
        self._do(self._later(lambda: self.writer.bus.publish(run.run_id, again)))

    @rule()
    def flush(self) -> None:
        """The bus loses all its data."""
        self._do(self.place.flush(self.writer.bus))

    @precondition(lambda self: self.place.durable)
    @rule(which=st.sampled_from(("writer", "readers")))
    def crash(self, which: str) -> None:
        """A process dies between two calls; everything it was answered is stored."""
        self._do(self._die(self.writer if which == "writer" else self.readers))
        self._touched.update(run.run_id for run in self.runs)

    @precondition(lambda self: self.place.durable)
    @rule(planned=PLANNED, turns=st.integers(0, 4), worker=WORKER)
    def crash_while_appending(self, planned: PlannedBatch, turns: int, worker: str) -> None:
        """The writer dies before the answer: the batch is stored as a whole or not at all.

        Which of the two is decided when the next worker has claimed the run.
        """
        run = self._run(planned.run)
        if run.deleted or run.ended:
            return
        batch = self._batch(
            PlannedBatch(planned.run, "next", planned.texts, planned.private, 0, False, None), run
        )
        self._touched.update(run.run_id for run in self.runs)

        async def work() -> Claim | None:
            append = asyncio.get_running_loop().create_task(self.writer.store.append([batch]))
            for _ in range(turns):
                await asyncio.sleep(0)
            old = self.writer
            append.cancel()
            fresh = await self._die(old)
            await asyncio.wait([append])
            return await fresh.store.take_over(run.run_id, worker, HOUR)

        claim = self._do(work())
        assert claim is not None
        assert claim.last_seq in (run.last, batch.last_seq), "a part of a batch"
        if claim.last_seq == batch.last_seq:
            assert run.take(batch)
        assert claim == run.claimed(worker, HOUR, taken=True)
        assert isinstance(self._do(self.writer.store.append([batch]))[0], SeqConflict) == (
            not run.holds(batch)
        )

    # --- keeping ---------------------------------------------------------------------------------

    @rule(index=INDEX)
    def repack(self, index: int) -> None:
        """Repacking merges rows and keeps their bytes, and the newest snapshot."""
        run = self._run(index)
        self._do(self.writer.store.repack(run.run_id))
        run.repacked = True
        self._touched.add(run.run_id)

    @rule(index=INDEX, state=st.sampled_from((b"{}", b"the end")))
    def trim(self, index: int, state: bytes) -> None:
        """Retention trims a run that has ended."""
        run = self._run(index)
        self._touched.add(run.run_id)
        try:
            self._do(self.writer.store.trim(run.run_id, state))
        except StorageError:
            assert run.live, "a run that ended can be trimmed"
            return
        assert not run.live, "a run that goes on was trimmed"
        if not run.deleted:
            run.trimmed, run.snapshots, run.letters = True, {run.last: state}, []

    @rule()
    def retention(self) -> None:
        """Only ended runs expire."""
        ended = {run.run_id for run in self.runs if run.ended and not run.deleted}
        trimmed = {run.run_id for run in self.runs if run.trimmed}
        expired = self.writer.store.expired
        to_trim, _ = self._do(expired(full_for=0.0, snapshot_for=1e9))
        _, to_delete = self._do(expired(full_for=0.0, snapshot_for=0.0))
        ours = {run.run_id for run in self.runs}
        assert set(to_trim) & ours == ended - trimmed
        assert set(to_delete) & ours == ended

    @rule(index=INDEX, sure=SELDOM)
    def delete(self, index: int, sure: bool) -> None:
        """Delete a run, mostly a run that has ended."""
        run = self._run(index)
        if run.live and not sure:
            return
        assert self._do(self.writer.store.delete(run.run_id)) == (not run.deleted)
        run.deleted, run.letters = True, []
        self._touched.add(run.run_id)

    # --- what holds after each step --------------------------------------------------------------

    @invariant()
    def the_store_holds_what_the_model_holds(self) -> None:
        """Seen from the other process; the logs themselves where something was done to them."""
        if self.runs and self._readers is not None:
            self._do(self._compare())
        assert not self._reports, self._reports

    async def _compare(self) -> None:
        store = self.readers.store
        kept = [run for run in self.runs if not run.deleted]
        found = await store.latest_runs(owner=self.name)
        assert [
            (
                *(run.run_id, run.thread_id, run.agent, run.ordinal),
                *(run.last_seq, run.epoch, run.attempts, run.ended_at is not None, run.trimmed_to),
            )
            for run in reversed(found)
        ] == [
            (
                *(run.run_id, run.thread_id, run.agent, run.ordinal),
                *(run.last, run.epoch, run.attempts, run.ended, run.last if run.trimmed else 0),
            )
            for run in kept
        ]
        letters = await store.letters([run.run_id for run in self.runs])
        assert letters == {run.run_id: run.letters for run in kept if run.letters}
        heads = await store.heads([run.run_id for run in self.runs])
        assert {run_id: tuple(_fields(head)) for run_id, head in heads.items()} == {
            run.run_id: (run.last, run.epoch, run.ended) for run in kept
        }
        touched, self._touched = self._touched, set()
        for run in self.runs:
            if run.run_id in touched:
                await self._compare_log(store, run)
        for follower in self.followers:
            if follower.waiting is not None and follower.waiting.done():
                self._outcome(follower)

    async def _compare_log(self, store: Store, run: ExpectedRun) -> None:
        gone = run.deleted or run.trimmed
        expected = [] if gone else run.events()
        private = {} if gone else dict(enumerate(run.privates, 1))
        assert await store.read_private(run.run_id) == {
            n: value for n, value in private.items() if value
        }
        snapshots = {} if run.deleted else run.snapshots
        for at_most in (None, run.last - 1):
            saved = await store.snapshot(run.run_id, at_most)
            numbers = [n for n in snapshots if at_most is None or n <= at_most]
            if run.repacked and at_most is not None:
                numbers = [] if saved is None else [n for n in numbers if n <= saved.seq]
            newest = max(numbers, default=None)
            assert (None if saved is None else (saved.seq, saved.state)) == (
                None if newest is None else (newest, snapshots[newest])
            )
        if run.trimmed and not run.deleted:
            for after in {0, run.last - 1}:
                try:
                    await store.read(run.run_id, after)
                except Trimmed:
                    continue
                raise AssertionError(f"silence where the events of {run.run_id} were")
        # From the start in one go and in small pages, from the middle, and behind the end.
        assert gone or await store.read(run.run_id, 0) == expected
        read: list[Recorded] = []
        while not gone and (page := await store.read(run.run_id, len(read), 1)):
            read += page
        assert read == expected
        for after in {run.last // 2, run.last - 1, run.last, run.last + 1}:
            if not (run.trimmed and after < run.last):
                assert await store.read(run.run_id, after) == expected[after:]


def _fields(struct: Any) -> list[Any]:
    return [getattr(struct, name) for name in struct.__struct_fields__]


def check_log(
    place: Callable[[], ModelSetup],
    *,
    max_examples: int = 20,
    steps: int = 30,
    machine: type[LogMachine] = LogMachine,
    **options: Any,
) -> None:
    """Try `max_examples` examples of `steps` steps, each in a setup made by `place`.

    `options` are settings of Hypothesis.
    """
    make: Any = lambda: machine(place())  # noqa: E731  # typed as a class, but any factory will do
    run_state_machine_as_test(
        make,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            **options,
        ),
    )
