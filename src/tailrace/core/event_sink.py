"""What writers write to: a task that takes events and hands out ids."""

from __future__ import annotations

from typing import Protocol

from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.core.items import Item
from tailrace.core.state import TaskNode


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


class Emit(Protocol):
    """The method `emit` of a sink."""

    def __call__(self, event: ev.Event, private: ev.Private | None = None) -> None:
        """Emit the task's next event."""
        ...


class StateSink:
    """A sink whose events are folded. Ids come from the event's place in the log."""

    emit: Emit

    def __init__(self, state: State, run_id: str, task_id: str) -> None:
        self.state = state
        self.run_id = run_id
        self.task_id = task_id

    @property
    def node(self) -> TaskNode:
        """The task as folded so far."""
        return self.state.tasks[self.task_id]

    def add(self, item: Item, private: ev.Private | None = None) -> int:
        """Open an item; returns its `output_index`."""
        index = len(self.node.items)
        self.emit(ev.OutputItemAdded(task_id=self.task_id, output_index=index, item=item), private)
        return index

    def done(self, index: int, item: Item, private: ev.Private | None = None) -> None:
        """Close an item."""
        self.emit(ev.OutputItemDone(task_id=self.task_id, output_index=index, item=item), private)

    def new_id(self, prefix: str) -> str:
        """An id that no other item of the run has."""
        return f"{prefix}_{self.run_id.removeprefix('run_')}_{self.state.sequence_number + 1}"

    def free_call_id(self, wanted: str) -> str:
        """`wanted`, or another call id if the run has it already."""
        if not self._has_call(wanted):
            return wanted
        ident = self.new_id("call")
        while self._has_call(ident):  # the stream may use this id
            ident += "_"
        return ident

    def _has_call(self, call_id: str) -> bool:
        return any(call_id in task.calls for task in self.state.tasks.values())

    def waiting_call(self, provider_id: str) -> str | None:
        """Our id of an earlier call that the provider carries out, and that has no result."""
        return self.node.waiting_call(provider_id)

    def knows(self, number: int) -> bool:
        """Whether the task has this reference number."""
        return self.node.knows(number)


def runs_of_item(item_id: str) -> list[str]:
    """The ids that the run of an item may have: see `StateSink.new_id`."""
    run = item_id.partition("_")[2].rpartition("_")[0]
    return [f"run_{run}", run] if run else []


def runs_of_request(request_id: str) -> list[str]:
    """The ids that the run of a request may have.

    An `Agent` names a request after its call (`req_call_…`), and a question of a tool, too
    (`req_call_….….1`). Other requests have ids as items have.
    """
    call_id = request_id.removeprefix("req_").rsplit(".", 2)[0]
    return runs_of_item(call_id) + runs_of_item(request_id)
