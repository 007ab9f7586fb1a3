"""The processes and clients of the model: processes open, die and are replaced.

A client checks each event it receives: it is the next event of the model. Silence is right only
where no event is due.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from tailrace.core.errors import NotFound
from tailrace.core.events import Recorded
from tailrace.ports import Bus, Store, Trimmed
from tailrace.runtime.event_log.pipeline import Pipeline
from tailrace.runtime.followers.follow import Reader
from tailrace.testing.log_model.expected import ExpectedRun, Follower

T = TypeVar("T")

_examples = itertools.count(1)


async def _leave(_: Store) -> None:
    """A process that died closes nothing."""


@dataclass(frozen=True, kw_only=True)
class ModelSetup:
    """The store and bus of one example. They may hold other data: each example uses new names.

    Each call of an opener stands for another process and must open the same store.
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
class Process:
    """The store and bus that one process has open."""

    store: Store
    bus: Bus
    reader: Reader
    pipeline: Pipeline


class Processes(RuleBasedStateMachine):
    """The processes and clients of one example; subclasses add the steps."""

    def __init__(self, place: ModelSetup) -> None:
        super().__init__()
        self.place = place
        self.name = f"model_{next(_examples)}"
        self.runs: list[ExpectedRun] = []
        self.followers: list[Follower] = []
        self._touched: set[str] = set()
        self._left: list[Store] = []
        self._reports: list[str] = []
        self._runner = asyncio.Runner()
        self._writer: Process | None = None
        self._readers: Process | None = None
        try:
            self._do(self._open())
        except BaseException:
            self.teardown()
            raise

    # --- the processes ---------------------------------------------------------------------------

    @property
    def writer(self) -> Process:
        """The process that writes."""
        assert self._writer is not None
        return self._writer

    @property
    def readers(self) -> Process:
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
        """Collect unhandled errors; connections cut by a simulated crash are expected."""
        if not isinstance(report.get("exception"), OSError):
            self._reports.append(repr(report))

    async def _process(self) -> Process:
        store = await self.place.open_store()
        try:
            bus = await self.place.open_bus()
        except BaseException:
            await store.close()
            raise
        reader = Reader(store, bus, self.place.poll)
        return Process(store, bus, reader, Pipeline(store, bus))

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
        for follower in self.followers:
            await self._poll(follower, whole=True)

    async def _close(self) -> None:
        for follower in self.followers:
            await self._drop(follower)
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

    async def _die(self, process: Process) -> Process:
        """The process dies; another process takes its place."""
        if process is self.readers:
            for follower in self.followers:
                await self._drop(follower)
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

    def _run(self, index: int) -> ExpectedRun:
        return self.runs[index % len(self.runs)]

    def _follower(self, index: int) -> Follower:
        return self.followers[index % len(self.followers)]

    # --- clients ---------------------------------------------------------------------------------

    async def _drop(self, follower: Follower) -> None:
        if follower.waiting is not None:
            follower.waiting.cancel()
            await asyncio.wait([follower.waiting])
            if not follower.waiting.cancelled():
                follower.waiting.exception()  # the reader died, so its error is expected
        if follower.stream is not None:
            await follower.stream.aclose()
        follower.stream = follower.waiting = None

    async def _poll(self, follower: Follower, *, whole: bool) -> None:
        """Take what comes and look at it; wait for it if it is owed."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self.place.patience
        while not follower.over:
            run = follower.run
            if follower.stream is None:
                follower.stream = self.readers.reader.follow(run.run_id, follower.seen)
            if follower.waiting is None:
                follower.waiting = loop.create_task(_next(follower.stream))
            owed = run.deleted or run.ended or follower.seen < run.last
            # Nothing is owed: then a moment, in which something wrong could come.
            await asyncio.wait([follower.waiting], timeout=give_up - loop.time() if owed else 0.001)
            if not follower.waiting.done():
                assert not owed, (
                    f"silence after {follower.seen} of {run.run_id}, which has {run.last}"
                )
                return
            got = self._outcome(follower)
            assert loop.time() < give_up, f"{run.run_id} brings nothing after {follower.seen}"
            if got and not whole:
                return

    def _outcome(self, follower: Follower) -> bool:
        """Look at what came; whether it was anything."""
        run, waiting = follower.run, follower.waiting
        assert waiting is not None
        follower.waiting = None
        complete = follower.seen >= run.last
        try:
            events = waiting.result()
        except Trimmed:
            assert run.trimmed, f"{run.run_id} was not trimmed"
            assert not complete, (
                f"a gap was reported after {follower.seen}, where {run.run_id} ends"
            )
            events = None
        except NotFound:
            assert run.deleted, f"{run.run_id} is there"
            events = None
        else:
            if events is None:
                assert run.ended, f"the stream of {run.run_id} ended before the run"
                assert complete, f"{run.run_id} was cut short after {follower.seen}"
        if events is None:
            follower.over, follower.stream = True, None
            return True
        expected = run.events()[follower.seen : follower.seen + len(events)]
        assert events == expected, f"after {follower.seen} of {run.run_id}"
        follower.seen += len(events)
        return bool(events)


async def _next(stream: AsyncGenerator[list[Recorded], None]) -> list[Recorded] | None:
    return await anext(stream, None)
