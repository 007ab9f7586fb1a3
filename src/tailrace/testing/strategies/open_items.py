"""The writer's record of its run: what is open, what is known, what was sent.

It is independent of the fold: a strategy that shares rules with the code under test shares its
mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

from tailrace.core.events import Event, Private, recorded, timed
from tailrace.core.items import Block, Item, Status
from tailrace.testing.strategies import values

WrittenRun = list[tuple[Event, Private | None]]
"""Recorded events, numbered from 1, each with its private part if it has one."""

T = TypeVar("T")


class Draw(Protocol):
    """Hypothesis's `draw`: a value out of a strategy."""

    def __call__(self, strategy: st.SearchStrategy[T]) -> T: ...


@dataclass(eq=False)
class PartRecord:
    """A block, or a text of a reasoning."""

    value: Block
    index: int
    open: bool
    partial_images: int = 0


@dataclass(eq=False)
class ItemRecord:
    """An item as it was added; `value` never changes, the parts beside it do."""

    value: Item
    index: int
    open: bool = True
    status: Status = "in_progress"
    superseded: bool = False
    summary: list[PartRecord] = field(default_factory=list)
    reasoning_text: list[PartRecord] = field(default_factory=list)
    blocks: list[PartRecord] = field(default_factory=list)
    # of a tool_call
    arguments: str = ""
    to_come: str = ""
    arguments_done: bool = False
    started: bool = False
    result: ItemRecord | None = None
    # of a tool_result
    call: ItemRecord | None = None
    children: list[TaskRecord] = field(default_factory=list)

    def parts(self) -> list[PartRecord]:
        return [*self.summary, *self.reasoning_text, *self.blocks]


@dataclass(eq=False)
class TaskRecord:
    """The writer's record of one task."""

    id: str
    depth: int
    known: set[int]  # the numbers that it may cite
    begun: bool = False
    ended: bool = False
    items: list[ItemRecord] = field(default_factory=list)
    children: list[TaskRecord] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    open_steps: list[int] = field(default_factory=list)
    steps: int = 0
    attempt: int = 1
    has_output: bool = False
    switches: int = 0

    def open_items(self) -> list[ItemRecord]:
        return [item for item in self.items if item.open]

    def to_close(self) -> int:
        """How many events it takes, at least, to end this task."""
        if self.ended:
            return 0
        parts = sum(part.open for item in self.items for part in item.parts())
        return parts + len(self.open_items()) + len(self.open_steps) + 1


class OpenItems:
    """The open items of a run, and the events sent so far."""

    def __init__(self, draw: Draw, *, max_events: int, max_tasks: int, max_depth: int) -> None:
        self.draw = draw
        self.max_events = max_events
        self.max_tasks = max_tasks
        self.max_depth = max_depth
        self.run: WrittenRun = []
        self.tasks: list[TaskRecord] = []
        self.calls = 0
        self.requests = 0
        self.used_ids: set[str] = set()
        self.has_times = self.flag()

    # --- drawing --------------------------------------------------------------------------------

    def pick(self, choices: Sequence[T]) -> T:
        return choices[0] if len(choices) == 1 else self.draw(st.sampled_from(choices))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def text(self) -> str:
        return self.draw(values.TEXT)

    def maybe(self, strategy: st.SearchStrategy[T]) -> T | None:
        return self.draw(strategy) if self.flag() else None

    def an_id(self, plain: str, taken: Callable[[str], bool]) -> str:
        """`plain`, or sometimes an unusual id."""
        odd = self.draw(st.sampled_from(("",) * 12 + values.ODD_IDS))
        return odd if odd and not taken(odd) else plain

    # --- the books ------------------------------------------------------------------------------

    def emit(self, event: Event, private: Private | None = None) -> None:
        if private == Private():
            private = None
        if self.has_times:
            event = timed(event, 1700000000.0 + len(self.run) / 8)
        self.run.append((recorded(event, len(self.run) + 1), private))

    def room(self) -> int:
        """How many more events fit, once everything that is open has been closed."""
        return self.max_events - len(self.run) - sum(task.to_close() for task in self.tasks)

    def place(self, task: TaskRecord, item: ItemRecord) -> dict[str, Any]:
        return {"task_id": task.id, "item_id": item.value.id, "output_index": item.index}
