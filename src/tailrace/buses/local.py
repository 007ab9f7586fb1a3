"""The bus inside one process: a bounded queue for each reader."""

from __future__ import annotations

import asyncio

from tailrace.core.events import Recorded
from tailrace.ports import Subscription

MAX_QUEUED = 10_000
"""Events that may wait for one slow reader; past that it is sent to the log."""


class LocalSubscription:
    """A queue that forgets instead of growing: the log has it all."""

    def __init__(self, bus: LocalBus, run_id: str) -> None:
        self._bus = bus
        self._run_id = run_id
        self._queue: list[Recorded] = []
        self._wake = asyncio.Event()

    async def get(self, wait: float) -> list[Recorded]:
        """What was published since the last call, waiting for it if need be."""
        if not self._wake.is_set():
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                return []
        self._wake.clear()
        queue, self._queue = self._queue, []
        return queue

    def close(self) -> None:
        """Stop listening."""
        self._bus.drop(self._run_id, self)

    def put(self, events: list[Recorded]) -> None:
        """Take events, or drop them all: the reader sees the hole and reads the log."""
        if len(self._queue) + len(events) > MAX_QUEUED:
            self._queue.clear()
        else:
            self._queue.extend(events)
        self._wake.set()


class LocalBus:
    """Hands published events to the readers of this process."""

    def __init__(self) -> None:
        self._readers: dict[str, set[LocalSubscription]] = {}

    def publish(self, run_id: str, events: list[Recorded]) -> None:
        """Give the events to every reader of the run."""
        for reader in self._readers.get(run_id, ()):
            reader.put(events)

    def subscribe(self, run_id: str) -> Subscription:
        """A new reader."""
        reader = LocalSubscription(self, run_id)
        self._readers.setdefault(run_id, set()).add(reader)
        return reader

    def drop(self, run_id: str, reader: LocalSubscription) -> None:
        """Forget a reader, and the run when it was the last."""
        readers = self._readers.get(run_id)
        if readers is not None:
            readers.discard(reader)
            if not readers:
                del self._readers[run_id]
