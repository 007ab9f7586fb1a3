"""What the model's writers do: create, append, emit, claim, and answer letters; in turn or not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tailrace.core.codec import decode_event, encode_event
from tailrace.core.errors import SeqConflict
from tailrace.core.events import (
    Event,
    Notice,
    Recorded,
    TaskCompleted,
    TaskCreated,
    TaskInProgress,
    recorded,
)
from tailrace.core.fold import State
from tailrace.ports import Batch, InboxLetter, NewRun
from tailrace.runtime.event_log.work_clock import WorkClock
from tailrace.testing.log_model.expected import ExpectedRun
from tailrace.testing.log_model.processes import ModelSetup, Processes
from tailrace.testing.strategies import values

MAX_RUNS = 4
HOUR = 3600.0
BEGUN = b'{"begun":{"at":1.0,"waited":0.0}}'
"""The private part of `task.in_progress` when the clock shows 1 s."""

BatchKind = Literal["next", "duplicate", "stale", "future", "hole", "altered", "unknown"]
KINDS: tuple[BatchKind, ...] = (
    "next",
    "next",
    "next",
    "duplicate",
    "stale",
    "future",
    "hole",
    "altered",
    "unknown",
)


@dataclass(frozen=True)
class PlannedBatch:
    """A batch to be made once it is clear how far its run goes."""

    run: int
    kind: BatchKind
    texts: list[str]
    private: bytes
    at: int
    ended: bool
    snapshot: bytes | None


INDEX = st.integers(0, 11)
SELDOM = st.sampled_from((False,) * 7 + (True,))  # runs should live long enough to be tried
TEXTS = st.lists(values.TEXT, min_size=1, max_size=4)
WORKER = st.sampled_from(("ann", "bob"))
LEASE = st.sampled_from((HOUR, 0.0))
PLANNED = st.builds(
    PlannedBatch,
    run=INDEX,
    kind=st.sampled_from(KINDS),
    texts=TEXTS,
    private=st.sampled_from((b"", b'{"signature":"EqMB"}')),
    at=INDEX,
    ended=SELDOM,
    snapshot=st.sampled_from((None, None, b"a state", b"\0\n\xff")),
)


class Writers(Processes):
    """The writers' steps."""

    def __init__(self, place: ModelSetup) -> None:
        self._texts = itertools.count(1)
        super().__init__(place)

    def _batch(self, planned: PlannedBatch, run: ExpectedRun) -> Batch:
        """The events that a writer, a late writer or a faulty writer would append."""
        first, epoch = run.last + 1, run.epoch
        # Never the same text twice, so that the events of two writers differ.
        texts = [f"{next(self._texts)}: {text}" for text in planned.texts]
        if planned.kind in ("duplicate", "altered"):
            first = 1 + planned.at % run.last
            last = min(run.last, first + len(texts) - 1)
            publics, privates = run.publics[first - 1 : last], run.privates[first - 1 : last]
            epoch = run.epochs[first - 1]
            if planned.kind == "altered":
                publics[-1] = self._event(run, last, texts[0], ended=False)
        else:
            if planned.kind == "hole":
                first += 1 + planned.at % 3
            epoch += {"stale": -1 - planned.at % 2, "future": 1}.get(planned.kind, 0)
            last = first + len(texts) - 1
            publics = [
                self._event(run, seq, text, ended=planned.ended and seq == last)
                for seq, text in enumerate(texts, first)
            ]
            privates = [planned.private if seq % 2 else b"" for seq in range(first, last + 1)]
        return Batch(
            run_id=f"{self.name}_unknown" if planned.kind == "unknown" else run.run_id,
            epoch=epoch,
            first_seq=first,
            publics=publics,
            privates=privates,
            ended=planned.ended,
            snapshot=planned.snapshot,
        )

    def _event(self, run: ExpectedRun, seq: int, text: str, *, ended: bool) -> bytes:
        event = (
            TaskCompleted(task_id=run.run_id) if ended else Notice(task_id=run.run_id, message=text)
        )
        return encode_event(recorded(event, seq))

    def _publish(self, batch: Batch) -> None:
        events = [Recorded(decode_event(public), public, batch.epoch) for public in batch.publics]
        self.writer.bus.publish(batch.run_id, events)

    @precondition(lambda self: len(self.runs) < MAX_RUNS)
    @rule(thread=INDEX, private=st.sampled_from((b"", b"{}")))
    def create(self, thread: int, private: bytes) -> None:
        """A new run, in one of two threads."""
        run_id, thread_id = f"{self.name}_{len(self.runs)}", f"{self.name}_thread_{thread % 2}"
        public = encode_event(recorded(TaskCreated(task_id=run_id), 1))
        ordinal = 1 + sum(run.thread_id == thread_id for run in self.runs)
        run = ExpectedRun(run_id, thread_id, self.name, ordinal, [public], [private], [1])
        made = self._do(self.writer.store.create(self._new(run)))
        assert made is not None, f"the id of {run_id} is free"
        self.runs.append(run)
        self._touched.add(run_id)

    def _new(self, run: ExpectedRun) -> NewRun:
        return NewRun(
            run_id=run.run_id,
            agent=run.agent,
            thread_id=run.thread_id,
            owner=self.name,
            public=run.publics[0],
            private=run.privates[0],
        )

    @rule(index=INDEX)
    def create_again(self, index: int) -> None:
        """An id that is taken stays as it is."""
        run = self._run(index)
        if not run.deleted:
            assert self._do(self.writer.store.create(self._new(run))) is None
            self._touched.add(run.run_id)

    @rule(planned_batches=st.lists(PLANNED, min_size=1, max_size=3), publish=st.booleans())
    def append(self, planned_batches: list[PlannedBatch], publish: bool) -> None:
        """One group: the next events, and what must not be taken, or must not be taken twice."""
        batches: list[Batch] = []
        accepted: list[bool] = []
        for planned in planned_batches:
            run = self._run(planned.run)
            batches.append(self._batch(planned, run))
            accepted.append(planned.kind != "unknown" and run.take(batches[-1]))
        answers = self._do(self.writer.store.append(batches))
        assert len(answers) == len(batches)
        for batch, planned, good, answer in zip(
            batches, planned_batches, accepted, answers, strict=True
        ):
            self._touched.add(batch.run_id)
            where = f"{planned.kind} of {batch.run_id} at {batch.first_seq} in epoch {batch.epoch}"
            if good:
                assert answer is None, f"{where} was refused: {answer!r}"
                if publish:
                    self._do(self._later(partial(self._publish, batch)))
            else:
                assert isinstance(answer, SeqConflict), f"{where} was answered by {answer!r}"

    async def _later(self, work: Callable[[], None]) -> None:
        work()

    @rule(index=INDEX, texts=TEXTS, late=st.booleans(), end=SELDOM)
    def emit(self, index: int, texts: list[str], late: bool, end: bool) -> None:
        """The same over the pipeline, which also publishes: for a late writer, nothing at all."""
        run = self._run(index)
        if run.deleted or run.ended or (late and run.epoch == 1):
            return
        epoch = run.epoch - 1 if late else run.epoch
        self._touched.add(run.run_id)

        async def work() -> None:
            state = State()
            for public in run.publics:
                state.absorb(decode_event(public))
            emitter = self.writer.pipeline.writer(run.run_id, epoch, state)
            emitter.clock = WorkClock(state, now=lambda: 1.0)
            events: list[Event] = [
                Notice(task_id=run.run_id, message=f"{next(self._texts)}: {text}") for text in texts
            ]
            if state.tasks[run.run_id].status == "queued":
                events.insert(0, TaskInProgress(task_id=run.run_id))
            if end:
                events.append(TaskCompleted(task_id=run.run_id))
            for event in events:
                emitter.emit(event)
            publics = [
                encode_event(recorded(event, n)) for n, event in enumerate(events, run.last + 1)
            ]
            privates = [BEGUN if isinstance(event, TaskInProgress) else b"" for event in events]
            batch = Batch(
                run_id=run.run_id,
                epoch=epoch,
                first_seq=run.last + 1,
                publics=publics,
                privates=privates,
                ended=end,
            )
            try:
                await emitter.drain()
            except SeqConflict:
                assert late, "the writer of the newest epoch was refused"
            else:
                assert not late, "a writer that was replaced could go on"
                assert run.take(batch)

        self._do(work())

    # --- claims ----------------------------------------------------------------------------------

    @rule(worker=WORKER, lease=LEASE, limit=st.integers(1, 3))
    def claim(self, worker: str, lease: float, limit: int) -> None:
        """The runs that wait, oldest first."""
        waiting = [
            run for run in self.runs if not (run.deleted or run.ended or run.leased or run.parked)
        ]
        expected = [run.claimed(worker, lease) for run in waiting[:limit]]
        found = self._do(self.writer.store.claim(worker, [self.name], lease, limit))
        assert found == expected

    @rule(index=INDEX, worker=WORKER, lease=LEASE)
    def take_over(self, index: int, worker: str, lease: float) -> None:
        """Take a run over from any worker that holds it."""
        run = self._run(index)
        expected = None
        if not (run.deleted or run.ended):
            expected = run.claimed(worker, lease, taken=True)
        assert self._do(self.writer.store.take_over(run.run_id, worker, lease)) == expected

    @rule(worker=WORKER, lease=LEASE, late=st.integers(0, 1))
    def extend(self, worker: str, lease: float, late: int) -> None:
        """Only the worker that holds a run can extend its lease."""
        claims = [(run.run_id, run.epoch - late) for run in self.runs]
        lost: set[str] = set()
        for run, (run_id, epoch) in zip(self.runs, claims, strict=True):
            if run.deleted or run.holder != (worker, epoch):
                lost.add(run_id)
            else:
                run.wake()
                run.leased = lease > 0
        assert self._do(self.writer.store.extend(worker, claims, lease)) == lost

    @rule(index=INDEX, late=st.integers(0, 1))
    def release(self, index: int, late: int) -> None:
        """A claim that was lost cannot be given up."""
        run = self._run(index)
        self._do(self.writer.store.release(run.run_id, run.epoch - late))
        if not late:
            run.holder, run.leased = None, False
        elif run.holder is not None and not run.deleted:
            worker, lease = run.holder[0], HOUR if run.leased else 0.0
            run.wake()
            run.leased = lease > 0
            kept = self.writer.store.extend(worker, [(run.run_id, run.epoch)], lease)
            assert self._do(kept) == set(), "the claim of another worker was released"

    @rule(worker=WORKER, first_go=LEASE, late=st.integers(0, 1), unread=st.integers(0, 2))
    def park(self, worker: str, first_go: float, late: int, unread: int) -> None:
        """Only the worker that holds a run and has read its letters can park it."""
        claims = [(run.run_id, run.epoch - late, run.last_letter - unread) for run in self.runs]
        parked: set[str] = set()
        for run, (run_id, epoch, read) in zip(self.runs, claims, strict=True):
            is_read = all(letter.number <= read for letter in run.letters)
            if run.live and run.holder == (worker, epoch) and is_read:
                run.parked, run.woken, run.leased, run.first_go = True, False, False, first_go
                parked.add(run_id)
        assert self._do(self.writer.store.park(worker, claims, first_go)) == parked

    @rule(worker=WORKER)
    def woken(self, worker: str) -> None:
        """What this worker parked and a letter, or the worker itself, woke."""
        expected = {
            run.run_id
            for run in self.runs
            if run.live and run.woken and run.holder is not None and run.holder[0] == worker
        }
        assert self._do(self.writer.store.woken(worker)) == expected

    # --- letters ---------------------------------------------------------------------------------

    @rule(index=INDEX, kind=st.sampled_from(("cancel", "input")), body=values.TEXT)
    def post(self, index: int, kind: Literal["cancel", "input"], body: str) -> None:
        """Letters are numbered from 1; those of an ended run are not read."""
        run = self._run(index)
        number = self._do(self.readers.store.post(run.run_id, kind, body.encode()))
        if run.deleted or run.ended:
            assert number is None
        else:
            run.wake()
            run.last_letter += 1
            run.letters.append(InboxLetter(run.last_letter, kind, body.encode()))
            assert number == run.last_letter

    @rule(index=INDEX, number=INDEX)
    def acknowledge(self, index: int, number: int) -> None:
        """Any number: seen, old, or not yet written."""
        run = self._run(index)
        number %= run.last_letter + 2
        self._do(self.writer.store.acknowledge(run.run_id, number))
        run.letters = [letter for letter in run.letters if letter.number > number]

    @rule(index=INDEX, publish=st.booleans())
    def act_on_letters(self, index: int, publish: bool) -> None:
        """The writer of a run does what its letters say, and acknowledges them."""
        run = self._run(index)
        letters = self._do(self.writer.store.letters([run.run_id])).get(run.run_id, [])
        assert letters == run.letters
        if any(letter.kind == "cancel" for letter in letters) and not run.ended:
            planned = PlannedBatch(index, "next", ["cancelled"], b"", 0, True, None)
            batch = self._batch(planned, run)
            assert run.take(batch)
            assert self._do(self.writer.store.append([batch])) == [None]
            if publish:
                self._do(self._later(partial(self._publish, batch)))
            self._touched.add(run.run_id)
        if letters:
            self._do(self.writer.store.acknowledge(run.run_id, letters[-1].number))
            run.letters = []
