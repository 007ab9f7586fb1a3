"""What the runtime needs from a bus, which tells readers of new events at once.

The log is the truth and the bus is a hint: a reader that gets nothing from the bus reads the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from tailrace.core.events import Recorded
from tailrace.core.fold import State


class Subscription(Protocol):
    """A reader's subscription to a run. It may miss events: the log has them."""

    async def get(self, wait: float) -> list[Recorded]:
        """Events since the last call; empty after `wait` seconds, or if events were dropped."""

    def listen(self, heard: Callable[[list[Recorded]], None]) -> None:
        """Call `heard` with each published list, instead of `get`; empty if events were dropped.

        `heard` must not raise and must not block: the run's writer waits for it.
        """

    def close(self) -> None:
        """Unsubscribe."""


class Bus(Protocol):
    """Passes durable events on to readers. It may lose, repeat and reorder them."""

    def publish(self, run_id: str, events: list[Recorded]) -> None:
        """Send events of a run to its readers; never waits, never raises."""

    def subscribe(self, run_id: str) -> Subscription:
        """Subscribe to a run from now on."""

    async def check(self) -> None:
        """Raise a `TailraceError` within seconds if other processes cannot be reached."""

    async def close(self) -> None:
        """Close all connections and subscriptions."""


OpenBus: TypeAlias = Callable[[], Awaitable[Bus]]
"""A function that opens a bus."""


class Mirror(Protocol):
    """Copies the runs that this process writes to another system, in another format."""

    def begin(self, run_id: str, state: State) -> None:
        """A writer of this process continues a run after this durable state."""

    def show(self, run_id: str, events: list[Recorded]) -> None:
        """Copy the next durable events; never waits, never raises."""
