"""The seams: what the runtime asks of a log and of a bus. Adapters keep these promises.

The log is the truth, the bus is a hint: a reader that hears nothing from the bus reads the log and
misses nothing.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from tailrace.core.events import Recorded


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a listing knows of a run without reading its events."""

    run_id: str
    agent: str
    thread_id: str
    last_seq: int
    epoch: int
    created_at: float
    ended_at: float | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one flush writes of one run: consecutive events, encoded, and at times a snapshot.

    `privates` is as long as `publics`; an empty entry means that the event has no private part.
    `snapshot` is the saved state after the last of them, with its private parts.
    """

    run_id: str
    epoch: int
    first_seq: int
    publics: list[bytes]
    privates: list[bytes]
    ended: bool = False
    snapshot: bytes | None = None

    @property
    def last_seq(self) -> int:
        """The number of the last event."""
        return self.first_seq + len(self.publics) - 1


class Snapshot(msgspec.Struct, frozen=True):
    """A saved state and the event after which it was taken."""

    seq: int
    state: bytes


class EventLog(Protocol):
    """Where runs are kept. Durable when a call returns, not before."""

    async def create(self, info: RunInfo) -> bool:
        """Make a run without events; False, and nothing changed, if the id is taken."""

    async def append(self, batches: list[Batch]) -> list[Exception | None]:
        """Write batches in one transaction; each run is accepted or refused on its own.

        A batch is refused with `SeqConflict` when its run does not end right before it, or another
        epoch writes it. One that is already there, byte for byte, is accepted again: a retry after
        a lost answer changes nothing.
        """

    async def read(self, run_id: str, after: int, limit: int = 10_000) -> list[Recorded]:
        """Events after `after`, in order; at least one batch if there is any, about `limit`."""

    async def read_private(self, run_id: str, after: int = 0) -> dict[int, bytes]:
        """The private parts of the events after `after`, by number."""

    async def info(self, run_id: str) -> RunInfo | None:
        """What is known of a run."""

    async def runs(self, thread_id: str) -> list[RunInfo]:
        """The runs of a thread, oldest first."""

    async def snapshot(self, run_id: str, at_most: int | None = None) -> Snapshot | None:
        """The newest snapshot (not after event `at_most`), if there is one."""

    async def close(self) -> None:
        """Finish what is under way and let go of everything."""


class Subscription(Protocol):
    """One reader's ear on one run. Hearing nothing means nothing: read the log."""

    async def get(self, wait: float) -> list[Recorded]:
        """Events published since; empty after `wait` seconds or when some were dropped."""

    def close(self) -> None:
        """Stop listening."""


class Bus(Protocol):
    """Tells readers about events that are already durable. May lose, repeat and reorder."""

    def publish(self, run_id: str, events: list[Recorded]) -> None:
        """Pass on events of one run; never waits."""

    def subscribe(self, run_id: str) -> Subscription:
        """Listen to one run from now on."""
