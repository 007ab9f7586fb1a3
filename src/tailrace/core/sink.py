"""What writers write to: a task that takes events and hands out ids."""

from __future__ import annotations

from typing import Protocol

from tailrace.core import events as ev
from tailrace.core.items import (
    Item,
)


class Sink(Protocol):
    """Takes the events of a task that is being written."""

    @property
    def task_id(self) -> str:
        """The task's id."""
        ...

    def emit(self, event: ev.Event, private: ev.Private | None = None) -> None:
        """Emit the task's next event; `IllegalEvent` if the protocol forbids it here."""
        ...

    def add(self, item: Item, private: ev.Private | None = None) -> int:
        """Open an item; returns its `output_index`."""
        ...

    def done(self, index: int, item: Item, private: ev.Private | None = None) -> None:
        """Close an item."""
        ...

    def new_id(self, prefix: str) -> str:
        """An id that no other item of the run has."""
        ...

    def free_call_id(self, wanted: str) -> str:
        """`wanted`, or another call id if the conversation has it already."""
        ...

    def waiting_call(self, provider_id: str) -> str | None:
        """Our id of an earlier call that the provider carries out, and that has no result."""
        ...

    def knows(self, number: int) -> bool:
        """Whether the task's pool issued this reference number."""
        ...
