"""The bus inside one process: a ring per followed run, a cursor per reader.

The readers of a run share the published events. A ring drops events that all readers have taken,
and the oldest events when it is full. A reader that fell behind gets an empty list and reads the
log.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable

from tailrace.core.events import Recorded
from tailrace.ports import Subscription

MAX_QUEUED = 10_000
"""Most events that wait for a run's slowest reader; beyond that it must read the log."""

MAX_BYTES = 16 * 1024 * 1024
"""Most bytes that wait: one event may be as large as thousands of others."""


class LocalSubscription:
    """A reader's place in the ring of its run."""

    def __init__(self, bus: LocalBus, run_id: str, ring: Ring) -> None:
        self._bus = bus
        self._run_id = run_id
        self._ring = ring
        self._closed = False
        self._misses = ring.misses
        self.cursor = ring.join()

    @property
    def idle(self) -> bool:
        """Whether there is nothing new for this reader."""
        return self.cursor == self._ring.end and self._misses == self._ring.misses

    async def get(self, wait: float) -> list[Recorded]:
        """The events since the last call; waits for them if there are none.

        The list is shared with other readers and must not be changed.
        """
        ring = self._ring
        if self.idle and not self._closed:
            loop = asyncio.get_running_loop()
            # A plain timer: `asyncio.timeout` costs more than the rest of the wake-up.
            ring.waiting[self] = woken = loop.create_future()
            timer = loop.call_later(wait, _finish, woken)
            try:
                await woken
            finally:
                timer.cancel()
                ring.waiting.pop(self, None)
        if self._closed:
            return []
        if self._misses != ring.misses:
            self._misses = ring.misses
            return []
        events, self.cursor = ring.take(self.cursor)
        return events

    def listen(self, heard: Callable[[list[Recorded]], None]) -> None:
        """Call `heard` with each published list, for a reader with a ring of its own."""
        if not self._closed:
            self._ring.leave(self.cursor)
            self._ring.listeners[self] = heard

    def close(self) -> None:
        """Unsubscribe. A waiting `get` returns."""
        if not self._closed:
            self._closed = True
            if self._ring.listeners.pop(self, None) is None:
                self._ring.leave(self.cursor)
            if (woken := self._ring.waiting.pop(self, None)) is not None:
                _finish(woken)
            self._bus.drop(self._run_id, self)


def _finish(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


class Ring:
    """The newest events of a run, as lists in the order of publishing.

    Lists are numbered from 0: `first` is the oldest list in the ring, `end` the next list to come.
    A cursor is such a number. A reader has fallen behind if `cursor < first`.
    """

    def __init__(self) -> None:
        self.end = 0
        self.misses = 0
        self.readers: set[LocalSubscription] = set()
        self.waiting: dict[LocalSubscription, asyncio.Future[None]] = {}
        self.listeners: dict[LocalSubscription, Callable[[list[Recorded]], None]] = {}
        self._first = 0
        self._lists: deque[tuple[list[Recorded], int]] = deque()
        self._queued = 0
        self._bytes = 0
        self._readers_at: Counter[int] = Counter()
        self._joined: tuple[int, int, list[Recorded]] = (0, 0, [])

    def join(self) -> int:
        """The cursor of a new reader, which gets events from now on."""
        self._readers_at[self.end] += 1
        return self.end

    def leave(self, cursor: int) -> None:
        """Remove a reader, and drop the lists that no reader waits for."""
        if cursor < self._first:
            return
        self._readers_at[cursor] -= 1
        if self._readers_at[cursor] == 0:
            del self._readers_at[cursor]
        while self._lists and self._first not in self._readers_at:
            self._forget_oldest()

    def take(self, cursor: int) -> tuple[list[Recorded], int]:
        """The events from a cursor on and the next cursor; no events if it fell behind."""
        events: list[Recorded] = []
        if self._first <= cursor < self.end:
            # Other woken readers want the same events: join the lists once.
            start, end, events = self._joined
            if (start, end) != (cursor, self.end):
                events = self._join_from(cursor)
                self._joined = (cursor, self.end, events)
        moved = self.join()
        self.leave(cursor)
        if not self._lists:
            self._joined = (0, 0, [])
        return events, moved

    def put(self, events: list[Recorded]) -> None:
        """Call the listeners, add the events and wake the readers."""
        for heard in list(self.listeners.values()):
            heard(events)
        if len(self.listeners) == len(self.readers):
            return
        size = sum(len(recorded.public) for recorded in events)
        self._lists.append((events, size))
        self.end += 1
        self._queued += len(events)
        self._bytes += size
        while self._queued > MAX_QUEUED or self._bytes > MAX_BYTES:
            self._forget_oldest()
        self._wake()

    def miss(self) -> None:
        """Make every reader read the log, because events may have been lost.

        The events in the ring stay and reach the readers afterwards.
        """
        for heard in list(self.listeners.values()):
            heard([])
        self.misses += 1
        self._wake()

    def _join_from(self, cursor: int) -> list[Recorded]:
        skipped = cursor - self._first
        if skipped + 1 == len(self._lists):
            return self._lists[-1][0]
        lists = list(self._lists)[skipped:]
        return [event for events, _ in lists for event in events]

    def _forget_oldest(self) -> None:
        events, size = self._lists.popleft()
        self._queued -= len(events)
        self._bytes -= size
        self._readers_at.pop(self._first, None)
        self._first += 1

    def _wake(self) -> None:
        for reader, woken in self.waiting.items():
            if not reader.idle:
                _finish(woken)


class LocalBus:
    """Passes published events to the readers of this process."""

    def __init__(self) -> None:
        self._readers: dict[str, Ring] = {}

    def __len__(self) -> int:
        """The number of followed runs."""
        return len(self._readers)

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._readers

    def publish(self, run_id: str, events: list[Recorded]) -> None:
        """Give events to every reader of the run."""
        ring = self._readers.get(run_id)
        if ring is not None and events:
            ring.put(events)

    def miss(self, run_id: str | None = None) -> None:
        """Make the readers of a run, or of all runs, read the log."""
        for name in list(self._readers) if run_id is None else [run_id]:
            if (ring := self._readers.get(name)) is not None:
                ring.miss()

    def subscribe(self, run_id: str) -> Subscription:
        """Subscribe a new reader to a run."""
        ring = self._readers.get(run_id)
        if ring is None:
            ring = self._readers[run_id] = Ring()
        reader = LocalSubscription(self, run_id, ring)
        ring.readers.add(reader)
        return reader

    def drop(self, run_id: str, reader: LocalSubscription) -> None:
        """Remove a reader, and the run after its last reader."""
        ring = self._readers.get(run_id)
        if ring is not None:
            ring.readers.discard(reader)
            if not ring.readers:
                del self._readers[run_id]

    async def check(self) -> None:
        """Do nothing: inside one process nothing can be away."""

    async def close(self) -> None:
        """Unsubscribe every reader. A waiting `get` returns."""
        for ring in list(self._readers.values()):
            for reader in list(ring.readers):
                reader.close()
