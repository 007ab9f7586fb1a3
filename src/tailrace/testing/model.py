"""A store, a bus and their followers against a model that fits on a page, step by random step.

    def test_my_store_is_what_it_should_be(tmp_path: Path) -> None:
        check_log(lambda: Place(open_store=…, open_bus=MyBus.open, flush=…))

The model is a dict of lists. Hypothesis appends, repeats, forges, claims, follows, drops, flushes,
crashes, trims and deletes in any order; after each step the store holds what the model holds, byte
for byte, and every follower has got its slice of it: once, in order, and nothing else. What fails
is shrunk to the few steps that it takes.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

try:
    from hypothesis import HealthCheck, settings
    from hypothesis import strategies as st
    from hypothesis.stateful import (
        RuleBasedStateMachine,
        initialize,
        invariant,
        precondition,
        rule,
        run_state_machine_as_test,
    )
except ImportError as missing:
    raise ImportError(
        "tailrace.testing.model needs Hypothesis, which Tailrace does not install: "
        "`pip install hypothesis`"
    ) from missing

from tailrace.core.codec import decode_event, encode_event
from tailrace.core.errors import NotFound, SeqConflict, StorageError
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
from tailrace.ports import Batch, Bus, Claim, Letter, NewRun, Store, Trimmed
from tailrace.runtime.follow import Reader
from tailrace.runtime.pipeline import Pipeline
from tailrace.testing import _values as values

__all__ = ["LogMachine", "Place", "check_log"]

T = TypeVar("T")

MAX_RUNS = 4
MAX_FOLLOWERS = 5
HOUR = 3600.0


async def _leave(_: Store) -> None:
    """A process that died closes nothing."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one example takes place. It may be used before and after: the names are new each time.

    Every call of an opener is another process, which must see the same store.
    """

    open_store: Callable[[], Awaitable[Store]]
    open_bus: Callable[[], Awaitable[Bus]]
    flush: Callable[[Bus], Awaitable[None]]
    """Make the bus lose what it can lose."""
    crash: Callable[[Store], Awaitable[None]] = _leave
    """What the death of its process does to a store, at the least; it is closed in the end."""
    processes: Literal[1, 2] = 2
    """Whether followers and writers are in processes of their own."""
    durable: bool = True
    """Whether the store can be opened again."""
    poll: float = 0.01
    """How long followers trust a silent bus."""
    patience: float = 20.0
    """Seconds after which something that has to happen is missed."""


@dataclass
class _Run:
    """What the store has to hold of a run: lists, one entry for each event."""

    run_id: str
    thread_id: str
    agent: str
    ordinal: int
    publics: list[bytes]
    privates: list[bytes]
    epochs: list[int]
    epoch: int = 1
    attempts: int = 0
    holder: tuple[str, int] | None = None
    leased: bool = False
    ended: bool = False
    trimmed: bool = False
    deleted: bool = False
    snapshots: dict[int, bytes] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)
    last_letter: int = 0

    @property
    def last(self) -> int:
        return len(self.publics)

    @property
    def live(self) -> bool:
        return not (self.ended or self.deleted)

    def holds(self, batch: Batch) -> bool:
        """Whether these events are there, byte for byte."""
        here = slice(batch.first_seq - 1, batch.last_seq)
        wanted = (batch.publics, batch.privates, [batch.epoch] * len(batch.publics))
        there = (self.publics[here], self.privates[here], self.epochs[here])
        return not self.trimmed and there == wanted

    def take(self, batch: Batch) -> bool:
        """Do what the store has to do; whether the batch is accepted."""
        fits = batch.first_seq == self.last + 1 and batch.epoch == self.epoch
        if self.deleted or self.ended or not fits:
            return not self.deleted and self.holds(batch)
        self.publics += batch.publics
        self.privates += batch.privates
        self.epochs += [batch.epoch] * len(batch.publics)
        if batch.snapshot is not None:
            self.snapshots[self.last] = batch.snapshot
        if batch.ended:
            self.ended, self.holder, self.leased = True, None, False
        return True

    def claimed(self, worker: str, lease: float) -> Claim:
        """What a claim changes and says."""
        self.epoch += 1
        self.attempts += 1
        self.holder, self.leased = (worker, self.epoch), lease > 0
        return Claim(self.run_id, self.agent, self.epoch, self.attempts, self.last)

    def events(self) -> list[Recorded]:
        """The log as a reader has to get it."""
        return [
            Recorded(decode_event(public), public, epoch)
            for public, epoch in zip(self.publics, self.epochs, strict=True)
        ]


@dataclass(eq=False)
class _Follower:
    """A client over all its reconnects; `seen` is the cursor that it comes back with."""

    run: _Run
    seen: int
    stream: AsyncGenerator[list[Recorded], None] | None = None
    waiting: asyncio.Task[list[Recorded] | None] | None = None
    over: bool = False


@dataclass
class _Process:
    store: Store
    bus: Bus
    reader: Reader
    pipeline: Pipeline


_Kind = Literal["next", "duplicate", "stale", "future", "hole", "altered", "unknown"]
_KINDS: tuple[_Kind, ...] = (
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
class _Wish:
    """A batch to be made once it is clear how far its run goes."""

    run: int
    kind: _Kind
    texts: list[str]
    private: bytes
    at: int
    ended: bool
    snapshot: bytes | None


_INDEX = st.integers(0, 11)
_SELDOM = st.sampled_from((False,) * 7 + (True,))  # runs should live long enough to be tried
_TEXTS = st.lists(values.TEXT, min_size=1, max_size=4)
_WORKER = st.sampled_from(("ann", "bob"))
_LEASE = st.sampled_from((HOUR, 0.0))
_WISH = st.builds(
    _Wish,
    run=_INDEX,
    kind=st.sampled_from(_KINDS),
    texts=_TEXTS,
    private=st.sampled_from((b"", b'{"signature":"EqMB"}')),
    at=_INDEX,
    ended=_SELDOM,
    snapshot=st.sampled_from((None, None, b"a state", b"\0\n\xff")),
)

_examples = itertools.count(1)


class LogMachine(RuleBasedStateMachine):
    """The steps. `check_log` runs it."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.name = f"model_{next(_examples)}"
        self.runs: list[_Run] = []
        self.followers: list[_Follower] = []
        self._touched: set[str] = set()
        self._texts = itertools.count(1)
        self._left: list[Store] = []
        self._reports: list[str] = []
        self._runner = asyncio.Runner()
        self._writer: _Process | None = None
        self._readers: _Process | None = None
        try:
            self._do(self._open())
        except BaseException:
            self.teardown()
            raise

    # --- the processes ---------------------------------------------------------------------------

    @property
    def writer(self) -> _Process:
        """The process that writes."""
        assert self._writer is not None
        return self._writer

    @property
    def readers(self) -> _Process:
        """The process that followers are connected to."""
        assert self._readers is not None
        return self._readers

    def _do(self, work: Awaitable[T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(3 * self.place.patience):
                return await work

        return self._runner.run(bounded())

    async def _open(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self._report)
        self._writer = await self._process()
        self._readers = await self._process() if self.place.processes == 2 else self._writer

    def _report(self, _: asyncio.AbstractEventLoop, report: dict[str, Any]) -> None:
        """Nobody looked at an error; the cut connections of a process that died are no news."""
        if not isinstance(report.get("exception"), OSError):
            self._reports.append(repr(report))

    async def _process(self) -> _Process:
        store = await self.place.open_store()
        try:
            bus = await self.place.open_bus()
        except BaseException:
            await store.close()
            raise
        reader = Reader(store, bus, self.place.poll)
        return _Process(store, bus, reader, Pipeline(store, bus))

    def teardown(self) -> None:
        """Let every client come back for the rest; then delete what the example made."""
        try:
            if self._readers is not None:
                self._do(self._settle())
        finally:
            try:
                self._do(self._close())
            finally:
                self._runner.close()

    async def _settle(self) -> None:
        for one in self.followers:
            await self._poll(one, whole=True)

    async def _close(self) -> None:
        for one in self.followers:
            await self._drop(one)
        writer, readers = self._writer, self._readers
        self._writer = self._readers = None
        try:
            if writer is not None:
                for run in self.runs:
                    await writer.store.delete(run.run_id)
        finally:
            for process in (writer, readers if readers is not writer else None):
                if process is not None:
                    await process.reader.close()
                    await process.bus.close()
                    await process.store.close()
            for store in self._left:
                await store.close()

    async def _die(self, process: _Process) -> _Process:
        """The process is gone without a word; another one takes its place."""
        if process is self.readers:
            for one in self.followers:
                await self._drop(one)
        await process.reader.close()
        await process.bus.close()
        await self.place.crash(process.store)
        self._left.append(process.store)
        fresh = await self._process()
        if process is self.readers:
            self._readers = fresh
        if process is self._writer:
            self._writer = fresh
        return fresh

    # --- choosing --------------------------------------------------------------------------------

    def _run(self, index: int) -> _Run:
        return self.runs[index % len(self.runs)]

    def _follower(self, index: int) -> _Follower:
        return self.followers[index % len(self.followers)]

    def _batch(self, wish: _Wish, run: _Run) -> Batch:
        """What a writer, a late one or a mad one would append."""
        first, epoch = run.last + 1, run.epoch
        # Never the same text twice: what one writer wrote is not what another would have written.
        texts = [f"{next(self._texts)}: {text}" for text in wish.texts]
        if wish.kind in ("duplicate", "altered"):
            first = 1 + wish.at % run.last
            last = min(run.last, first + len(texts) - 1)
            publics, privates = run.publics[first - 1 : last], run.privates[first - 1 : last]
            epoch = run.epochs[first - 1]
            if wish.kind == "altered":
                publics[-1] = self._event(run, last, texts[0], ended=False)
        else:
            if wish.kind == "hole":
                first += 1 + wish.at % 3
            epoch += {"stale": -1 - wish.at % 2, "future": 1}.get(wish.kind, 0)
            last = first + len(texts) - 1
            publics = [
                self._event(run, seq, text, ended=wish.ended and seq == last)
                for seq, text in enumerate(texts, first)
            ]
            privates = [wish.private if seq % 2 else b"" for seq in range(first, last + 1)]
        return Batch(
            run_id=f"{self.name}_nobody" if wish.kind == "unknown" else run.run_id,
            epoch=epoch,
            first_seq=first,
            publics=publics,
            privates=privates,
            ended=wish.ended,
            snapshot=wish.snapshot,
        )

    def _event(self, run: _Run, seq: int, text: str, *, ended: bool) -> bytes:
        event = (
            TaskCompleted(task_id=run.run_id) if ended else Notice(task_id=run.run_id, message=text)
        )
        return encode_event(recorded(event, seq))

    def _publish(self, batch: Batch) -> None:
        events = [Recorded(decode_event(one), one, batch.epoch) for one in batch.publics]
        self.writer.bus.publish(batch.run_id, events)

    # --- writing ---------------------------------------------------------------------------------

    @initialize(thread=_INDEX)
    def begin(self, thread: int) -> None:
        """Every example has runs."""
        self.create(thread, b"")
        self.create(0, b"{}")
        self.follow(0, "end", 0)

    @precondition(lambda self: len(self.runs) < MAX_RUNS)
    @rule(thread=_INDEX, private=st.sampled_from((b"", b"{}")))
    def create(self, thread: int, private: bytes) -> None:
        """A new run, in one of two threads."""
        run_id, thread_id = f"{self.name}_{len(self.runs)}", f"{self.name}_thread_{thread % 2}"
        public = encode_event(recorded(TaskCreated(task_id=run_id), 1))
        ordinal = 1 + sum(one.thread_id == thread_id for one in self.runs)
        run = _Run(run_id, thread_id, self.name, ordinal, [public], [private], [1])
        made = self._do(self.writer.store.create(self._new(run)))
        assert made is not None, f"the id of {run_id} is free"
        self.runs.append(run)
        self._touched.add(run_id)

    def _new(self, run: _Run) -> NewRun:
        return NewRun(
            run_id=run.run_id,
            agent=run.agent,
            thread_id=run.thread_id,
            owner=self.name,
            public=run.publics[0],
            private=run.privates[0],
            metadata=run.run_id.encode(),
        )

    @rule(index=_INDEX)
    def create_again(self, index: int) -> None:
        """An id that is taken stays as it is."""
        run = self._run(index)
        if not run.deleted:
            assert self._do(self.writer.store.create(self._new(run))) is None
            self._touched.add(run.run_id)

    @rule(wishes=st.lists(_WISH, min_size=1, max_size=3), publish=st.booleans())
    def append(self, wishes: list[_Wish], publish: bool) -> None:
        """One group: the next events, and what must not be taken, or must not be taken twice."""
        batches: list[Batch] = []
        accepted: list[bool] = []
        for wish in wishes:
            run = self._run(wish.run)
            batches.append(self._batch(wish, run))
            accepted.append(wish.kind != "unknown" and run.take(batches[-1]))
        answers = self._do(self.writer.store.append(batches))
        assert len(answers) == len(batches)
        for batch, wish, good, answer in zip(batches, wishes, accepted, answers, strict=True):
            self._touched.add(batch.run_id)
            where = f"{wish.kind} of {batch.run_id} at {batch.first_seq} in epoch {batch.epoch}"
            if good:
                assert answer is None, f"{where} was refused: {answer!r}"
                if publish:
                    self._do(self._later(partial(self._publish, batch)))
            else:
                assert isinstance(answer, SeqConflict), f"{where} was answered by {answer!r}"

    async def _later(self, work: Callable[[], None]) -> None:
        work()

    @rule(index=_INDEX, texts=_TEXTS, late=st.booleans(), end=_SELDOM)
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
            events: list[Event] = [
                Notice(task_id=run.run_id, message=f"{next(self._texts)}: {text}") for text in texts
            ]
            if state.tasks[run.run_id].status == "queued":
                events.insert(0, TaskInProgress(task_id=run.run_id))
            if end:
                events.append(TaskCompleted(task_id=run.run_id))
            for event in events:
                emitter.emit(event)
            publics = [encode_event(recorded(one, n)) for n, one in enumerate(events, run.last + 1)]
            batch = Batch(
                run_id=run.run_id,
                epoch=epoch,
                first_seq=run.last + 1,
                publics=publics,
                privates=[b""] * len(publics),
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

    @rule(worker=_WORKER, lease=_LEASE, limit=st.integers(1, 3))
    def claim(self, worker: str, lease: float, limit: int) -> None:
        """The runs that wait, oldest first."""
        waiting = [one for one in self.runs if not (one.deleted or one.ended or one.leased)]
        expected = [one.claimed(worker, lease) for one in waiting[:limit]]
        found = self._do(self.writer.store.claim(worker, [self.name], lease, limit))
        assert found == expected

    @rule(index=_INDEX, worker=_WORKER, lease=_LEASE)
    def take_over(self, index: int, worker: str, lease: float) -> None:
        """Whoever holds it."""
        run = self._run(index)
        expected = None if run.deleted or run.ended else run.claimed(worker, lease)
        assert self._do(self.writer.store.take_over(run.run_id, worker, lease)) == expected

    @rule(worker=_WORKER, lease=_LEASE, late=st.integers(0, 1))
    def extend(self, worker: str, lease: float, late: int) -> None:
        """Only who holds a run keeps it."""
        claims = [(one.run_id, one.epoch - late) for one in self.runs]
        lost: set[str] = set()
        for run, (run_id, epoch) in zip(self.runs, claims, strict=True):
            if run.deleted or run.holder != (worker, epoch):
                lost.add(run_id)
            else:
                run.leased = lease > 0
        assert self._do(self.writer.store.extend(worker, claims, lease)) == lost

    @rule(index=_INDEX, late=st.integers(0, 1))
    def release(self, index: int, late: int) -> None:
        """A claim that was lost cannot be given up."""
        run = self._run(index)
        self._do(self.writer.store.release(run.run_id, run.epoch - late))
        if not late:
            run.holder, run.leased = None, False
        elif run.holder is not None:
            worker, lease = run.holder[0], HOUR if run.leased else 0.0
            kept = self.writer.store.extend(worker, [(run.run_id, run.epoch)], lease)
            assert self._do(kept) == set(), "somebody else's claim was given up"

    # --- letters ---------------------------------------------------------------------------------

    @rule(index=_INDEX, kind=st.sampled_from(("cancel", "input")), body=values.TEXT)
    def post(self, index: int, kind: Literal["cancel", "input"], body: str) -> None:
        """Numbered from 1; nobody reads those of a run that ended."""
        run = self._run(index)
        number = self._do(self.readers.store.post(run.run_id, kind, body.encode()))
        if run.deleted or run.ended:
            assert number is None
        else:
            run.last_letter += 1
            run.letters.append(Letter(run.last_letter, kind, body.encode()))
            assert number == run.last_letter

    @rule(index=_INDEX, number=_INDEX)
    def acknowledge(self, index: int, number: int) -> None:
        """Any number: one that was seen, an old one, one that nobody wrote yet."""
        run = self._run(index)
        number %= run.last_letter + 2
        self._do(self.writer.store.acknowledge(run.run_id, number))
        run.letters = [one for one in run.letters if one.number > number]

    @rule(index=_INDEX, publish=st.booleans())
    def obey(self, index: int, publish: bool) -> None:
        """The writer of a run does what its letters say, and acknowledges them."""
        run = self._run(index)
        letters = self._do(self.writer.store.letters([run.run_id])).get(run.run_id, [])
        assert letters == run.letters
        if any(one.kind == "cancel" for one in letters) and not run.ended:
            wish = _Wish(index, "next", ["cancelled"], b"", 0, True, None)
            batch = self._batch(wish, run)
            assert run.take(batch)
            assert self._do(self.writer.store.append([batch])) == [None]
            if publish:
                self._do(self._later(partial(self._publish, batch)))
            self._touched.add(run.run_id)
        if letters:
            self._do(self.writer.store.acknowledge(run.run_id, letters[-1].number))
            run.letters = []

    # --- followers -------------------------------------------------------------------------------

    @precondition(lambda self: len(self.followers) < MAX_FOLLOWERS)
    @rule(index=_INDEX, where=st.sampled_from(("start", "end", "beyond", "between")), at=_INDEX)
    def follow(self, index: int, where: str, at: int) -> None:
        """A client with any cursor, and the first thing that it gets."""
        run = self._run(index)
        places = {"start": 0, "end": run.last, "beyond": run.last + 1 + at % 2}
        one = _Follower(run, places.get(where, at % (run.last + 1)))
        self.followers.append(one)
        self._do(self._poll(one, whole=False))

    @precondition(lambda self: self.followers)
    @rule(index=_INDEX, whole=st.booleans())
    def poll(self, index: int, whole: bool) -> None:
        """The next thing that comes, or everything; a client that was dropped comes back first."""
        self._do(self._poll(self._follower(index), whole=whole))

    @precondition(lambda self: self.followers)
    @rule(index=_INDEX)
    def drop(self, index: int) -> None:
        """The connection is lost; the cursor stays."""
        self._do(self._drop(self._follower(index)))

    @precondition(lambda self: len(self.followers) == MAX_FOLLOWERS)
    @rule(index=_INDEX)
    def leave(self, index: int) -> None:
        """A client that does not come back."""
        one = self._follower(index)
        self._do(self._drop(one))
        self.followers.remove(one)

    async def _drop(self, one: _Follower) -> None:
        if one.waiting is not None:
            one.waiting.cancel()
            await asyncio.wait([one.waiting])
            if not one.waiting.cancelled():
                one.waiting.exception()  # nobody was there to hear it
        if one.stream is not None:
            await one.stream.aclose()
        one.stream = one.waiting = None

    async def _poll(self, one: _Follower, *, whole: bool) -> None:
        """Take what comes and look at it; wait for it if it is owed."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self.place.patience
        while not one.over:
            run = one.run
            if one.stream is None:
                one.stream = self.readers.reader.follow(run.run_id, one.seen)
            if one.waiting is None:
                one.waiting = loop.create_task(_next(one.stream))
            owed = run.deleted or run.ended or one.seen < run.last
            # Nothing is owed: then a moment, in which something wrong could come.
            await asyncio.wait([one.waiting], timeout=give_up - loop.time() if owed else 0.001)
            if not one.waiting.done():
                assert not owed, f"silence after {one.seen} of {run.run_id}, which has {run.last}"
                return
            got = self._outcome(one)
            assert loop.time() < give_up, f"{run.run_id} brings nothing after {one.seen}"
            if got and not whole:
                return

    def _outcome(self, one: _Follower) -> bool:
        """Look at what came; whether it was anything."""
        run, waiting = one.run, one.waiting
        assert waiting is not None
        one.waiting = None
        complete = one.seen >= run.last
        try:
            events = waiting.result()
        except Trimmed:
            assert run.trimmed, f"{run.run_id} was not trimmed"
            assert not complete, f"a gap was told of after {one.seen}, where {run.run_id} ends"
            events = None
        except NotFound:
            assert run.deleted, f"{run.run_id} is there"
            events = None
        else:
            if events is None:
                assert run.ended, f"the stream of {run.run_id} ended before the run"
                assert complete, f"{run.run_id} was cut short after {one.seen}"
        if events is None:
            one.over, one.stream = True, None
            return True
        expected = run.events()[one.seen : one.seen + len(events)]
        assert events == expected, f"after {one.seen} of {run.run_id}"
        one.seen += len(events)
        return bool(events)

    # --- what goes wrong -------------------------------------------------------------------------

    @rule(index=_INDEX, order=st.permutations(range(4)))
    def misbehave(self, index: int, order: list[int]) -> None:
        """The bus brings old news again, in any order and with holes."""
        run = self._run(index)
        events = run.events()[-4:]
        told = [events[place] for place in order if place < len(events)][:3]
        self._do(self._later(lambda: self.writer.bus.publish(run.run_id, told)))

    @rule()
    def flush(self) -> None:
        """The bus forgets everything."""
        self._do(self.place.flush(self.writer.bus))

    @precondition(lambda self: self.place.durable)
    @rule(which=st.sampled_from(("writer", "readers")))
    def crash(self, which: str) -> None:
        """A process dies between two calls: whatever was answered is there."""
        self._do(self._die(self.writer if which == "writer" else self.readers))
        self._touched.update(one.run_id for one in self.runs)

    @precondition(lambda self: self.place.durable)
    @rule(wish=_WISH, turns=st.integers(0, 4), worker=_WORKER)
    def crash_while_appending(self, wish: _Wish, turns: int, worker: str) -> None:
        """The writer dies before the answer came: the batch is there as a whole, or not at all.

        Which of them is settled when the next worker has the run.
        """
        run = self._run(wish.run)
        if run.deleted or run.ended:
            return
        batch = self._batch(_Wish(wish.run, "next", wish.texts, wish.private, 0, False, None), run)
        self._touched.update(one.run_id for one in self.runs)

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
        assert claim == run.claimed(worker, HOUR)
        assert isinstance(self._do(self.writer.store.append([batch]))[0], SeqConflict) == (
            not run.holds(batch)
        )

    # --- keeping ---------------------------------------------------------------------------------

    @rule(index=_INDEX)
    def repack(self, index: int) -> None:
        """Larger rows, the same bytes."""
        run = self._run(index)
        self._do(self.writer.store.repack(run.run_id))
        self._touched.add(run.run_id)

    @rule(index=_INDEX, state=st.sampled_from((b"{}", b"the end")))
    def trim(self, index: int, state: bytes) -> None:
        """Retention of one run; never of one that goes on."""
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
        """What is due is what ended."""
        ended = {one.run_id for one in self.runs if one.ended and not one.deleted}
        trimmed = {one.run_id for one in self.runs if one.trimmed}
        expired = self.writer.store.expired
        to_trim, _ = self._do(expired(full_for=0.0, snapshot_for=1e9))
        _, to_delete = self._do(expired(full_for=0.0, snapshot_for=0.0))
        ours = {one.run_id for one in self.runs}
        assert set(to_trim) & ours == ended - trimmed
        assert set(to_delete) & ours == ended

    @rule(index=_INDEX, sure=_SELDOM)
    def delete(self, index: int, sure: bool) -> None:
        """Everything of a run goes; mostly of one that ended."""
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
        kept = [one for one in self.runs if not one.deleted]
        found = await store.runs(owner=self.name)
        assert [
            (
                *(one.run_id, one.thread_id, one.agent, one.ordinal, one.metadata),
                *(one.last_seq, one.epoch, one.attempts, one.ended_at is not None, one.trimmed_to),
            )
            for one in found
        ] == [
            (
                *(one.run_id, one.thread_id, one.agent, one.ordinal, one.run_id.encode()),
                *(one.last, one.epoch, one.attempts, one.ended, one.last if one.trimmed else 0),
            )
            for one in kept
        ]
        letters = await store.letters([one.run_id for one in self.runs])
        assert letters == {one.run_id: one.letters for one in kept if one.letters}
        heads = await store.heads([one.run_id for one in self.runs])
        assert {run_id: tuple(_fields(head)) for run_id, head in heads.items()} == {
            one.run_id: (one.last, one.epoch, one.ended) for one in kept
        }
        touched, self._touched = self._touched, set()
        for run in self.runs:
            if run.run_id in touched:
                await self._compare_log(store, run)
        for follower in self.followers:
            if follower.waiting is not None and follower.waiting.done():
                self._outcome(follower)

    async def _compare_log(self, store: Store, run: _Run) -> None:
        gone = run.deleted or run.trimmed
        expected = [] if gone else run.events()
        private = {} if gone else dict(enumerate(run.privates, 1))
        assert await store.read_private(run.run_id) == {n: one for n, one in private.items() if one}
        snapshots = {} if run.deleted else run.snapshots
        for at_most in (None, run.last - 1):
            saved = await store.snapshot(run.run_id, at_most)
            numbers = [n for n in snapshots if at_most is None or n <= at_most]
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


async def _next(stream: AsyncGenerator[list[Recorded], None]) -> list[Recorded] | None:
    return await anext(stream, None)


def check_log(
    place: Callable[[], Place],
    *,
    max_examples: int = 20,
    steps: int = 30,
    machine: type[LogMachine] = LogMachine,
    **options: Any,
) -> None:
    """Try so many examples of so many steps, each in the place that `place` makes for it.

    `options` are Hypothesis's settings.
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
