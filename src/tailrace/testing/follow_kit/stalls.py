"""The follow kit: readers that stall at every step receive each event once, in every format."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tailrace.core.fold import State
from tailrace.core.writers import MessageWriter
from tailrace.ports import Bus, Store
from tailrace.runtime.followers import fanout, follow, tail
from tailrace.runtime.followers.fanout import Stream, Streams
from tailrace.runtime.followers.follow import Reader
from tailrace.runtime.tasks.task_sink import TaskSink
from tailrace.testing.follow_kit.setup import FollowTests, begun, end
from tailrace.wire.base import Format, ThreadFormat
from tailrace.wire.formats import FORMATS

BURST = 10
"""Events per burst. A reader that misses a burst is behind the frames that a process shares. A
reader that misses two bursts is also behind the events that the process holds."""

BURSTS = 9
JOINS = (0, 2)
"""Bursts before which readers join: the first, and a burst too late for what a process holds."""

STEPS = (1, 2, 3, 4, 5, 6)
"""How many pieces a reader takes before it stalls, again and again."""

NEVER_STALLS = 10**6


class StallTests(FollowTests):
    """A run of bursts, read by readers that stall."""

    @pytest.mark.parametrize("alone", [False, True])
    async def test_a_reader_that_stalls_at_any_step_receives_each_event_once(
        self, store: Store, bus: Bus, monkeypatch: pytest.MonkeyPatch, alone: bool
    ) -> None:
        """Readers beside a reader that never stalls, or each `alone` in its process.

        Readers that join late have a process of their own. They do not share what others have
        read from the log, so that they read ahead.
        """
        monkeypatch.setattr(tail, "RING_EVENTS", 24)
        monkeypatch.setattr(fanout, "RING_EVENTS", 13)
        monkeypatch.setattr(fanout, "HISTORY_EVENTS", 4)
        for module in (follow, fanout):
            monkeypatch.setattr(module, "LINES_AT_ONCE", 8)
        emitter = await begun(store, bus)
        message = MessageWriter(TaskSink(emitter, "run_1"))
        readers: list[StallingReader] = []

        def join(streams: Streams, wire: Format, steps: int) -> None:
            stream = streams.stream(wire, "run_1", wire.at(State()), 0)
            readers.append(StallingReader(wire, stream, steps))

        together = {burst: Streams(Reader(store, bus)) for burst in JOINS}
        if not alone:
            # A reader of shared frames may be several pieces behind.
            monkeypatch.setattr(fanout, "PIECE_BYTES", 1000)
            for streams, wire in itertools.product(together.values(), _formats()):
                join(streams, wire, NEVER_STALLS)
                await readers[-1].read_until(emitter.state.sequence_number)
        for burst in range(BURSTS):
            if burst in JOINS:
                for wire, steps in itertools.product(_formats(), STEPS):
                    streams = Streams(Reader(store, bus)) if alone else together[burst]
                    join(streams, wire, steps)
            for number in range(BURST):
                message.text(f"word {number} ")
            await emitter.drain()
            for reader in readers:
                await reader.read_until(emitter.state.sequence_number)
        message.finish()
        await end(emitter)
        events = await store.read("run_1", 0)
        whole: dict[str, bytes] = {}
        for wire in _formats():
            encoder = wire.at(State())
            frames = [frame for event in events for frame in encoder.encode(event)]
            whole[wire.name] = b"".join(frames)
        wrong = [
            reader for reader in readers if await reader.read_rest() != whole[reader.wire.name]
        ]
        assert not wrong


def _formats() -> list[Format]:
    """Every format of a run, and of a run as a part of its thread."""
    threads = [wire.in_thread(1) for wire in FORMATS.values() if isinstance(wire, ThreadFormat)]
    return [*FORMATS.values(), *threads]


@dataclass
class StallingReader:
    """Reads a stream for some steps, then misses one or two bursts, then goes on."""

    wire: Format
    stream: Stream = field(repr=False)
    steps: int
    received: list[bytes] = field(default_factory=list, repr=False)
    _stalled: int = 0
    _missed: Iterator[int] = field(default_factory=lambda: itertools.cycle((2, 1)), repr=False)
    _coming: asyncio.Future[bytes | None] | None = field(default=None, repr=False)

    async def read_until(self, last: int) -> None:
        """Read up to event `last` and wait for more, unless this reader stalls before that."""
        if self._stalled:
            self._stalled -= 1
            return
        while self._coming is None or self.stream.seen < last:
            if self._coming is not None:
                self.received.append(await self._coming or b"")
                if len(self.received) % self.steps == 0:
                    self._stalled, self._coming = next(self._missed), None
                    return
            self._coming = asyncio.ensure_future(self.stream.next())

    async def read_rest(self) -> bytes:
        """Read to the end of the run; all that this reader received."""
        if self._coming is not None:
            self.received.append(await self._coming or b"")
        self.received += [piece async for piece in self.stream]
        return b"".join(self.received)
