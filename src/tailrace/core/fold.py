"""The state of a run, and the ways to fold events into it.

What each event does is in `tailrace.core.transitions`, a function per event. Here is which of
them runs. `State.apply` is for our own writer. It refuses an event that breaks a rule of
PROTOCOL.md, section 3, names the rule, and leaves the state as it was. `State.absorb` is for
readers: it follows section 4 for any stream and never fails. `State.absorb_lines` does the same
for many lines, with a shorter way for deltas in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tailrace.core import events as ev
from tailrace.core import rules
from tailrace.core.approval_pauses import Pause
from tailrace.core.codec import (
    BACKSLASH,
    MAX_EVENT_BYTES,
    checked_event,
    decode_event,
    decode_known,
    decode_private,
)
from tailrace.core.items import InputRequest, ToolResult
from tailrace.core.parts import DELTAS
from tailrace.core.state import TaskNode, note_numbers
from tailrace.core.transitions import FOLD, part_of_delta

_NO_PRIVATES: Mapping[int, bytes] = {}


class State:
    """The state of a run after some events.

    A new state is empty. `tailrace.core.run_object` shows it and `tailrace.core.snapshot` saves it.
    """

    __slots__ = (
        *("_latest", "_spare", "pauses", "position", "root", "sequence_number", "tasks"),
        "unknown",
    )

    def __init__(self) -> None:
        """A state without events or tasks."""
        self.position = 0
        self.sequence_number = 0
        self.root: TaskNode | None = None
        self.tasks: dict[str, TaskNode] = {}
        self.unknown: list[ev.Unknown] = []
        # When the run waited for approvals, for our own encoders. No view shows it.
        self.pauses: list[Pause] = []
        # The task of the last event is mostly the task of the next. Comparing two ids is cheaper
        # than hashing an id.
        self._latest: TaskNode | None = None
        # Code points that fit into any part, so that most deltas need no check of their part.
        self._spare: int | None = None

    def __del__(self) -> None:
        """Free the tasks at once: a task and its parent are a cycle."""
        for task in self.tasks.values():
            task.parent = None

    def requests(self) -> Iterator[tuple[TaskNode, InputRequest]]:
        """What the run waits for: each open request, with the task that asks."""
        return ((task, request) for task in self.tasks.values() for request in task.requests)

    def apply(self, event: ev.AnyEvent, private: ev.Private | None = None) -> None:
        """Fold the next event of our own log, or raise `IllegalEvent` and change nothing."""
        cls = type(event)
        if event.sequence_number != self.sequence_number + 1:
            raise rules.wrong_number(self, event)
        if cls in DELTAS:
            # Most events are deltas: try first, and find the broken rule only on failure.
            task = self.tasks.get(event.task_id)
            if self._spare is None:
                self._spare = rules.spare(self)
            self._spare -= len(event.delta)  # type: ignore[union-attr]
            if self._spare < 0 and task is not None:
                rules.check_room(task, event)
            if task is None or not FOLD[cls](self, task, event):
                raise rules.wrong_delta(self, event)
            self.position += 1
        else:
            rules.check(self, event)
            if cls is ev.AnnotationAdded:
                self._spare = 0  # `_spare` does not count annotations
            self.absorb(event, private)
            return
        self.sequence_number += 1
        if private is not None:
            self._take_private(event, private)

    def absorb(self, event: ev.AnyEvent, private: ev.Private | None = None) -> bool:
        """Fold an event by the reader's rules; returns whether it changed the state."""
        number = event.sequence_number
        if number:
            if number <= self.sequence_number:
                return False
            self.sequence_number = number
        self.position += 1
        # Subscripts, here and in the deltas: they cost half as much as `get`.
        try:
            task = self._latest
            if task is None or task.task_id != event.task_id:
                task = self._latest = self.tasks[event.task_id]
            fold = FOLD[event.__class__]
        except KeyError:
            fitted = self._fold_rare(event)
        else:
            fitted = not task.ended and fold(self, task, event)
        if fitted and private is not None:
            self._take_private(event, private)
        return fitted

    def absorb_lines(
        self, lines: Iterable[bytes], privates: Mapping[int, bytes] = _NO_PRIVATES
    ) -> None:
        """Fold many events: `absorb(decode_event(line))` for each line, with its private part.

        Most events are deltas that follow another delta of the same part. They are folded here
        without `absorb`, as `_delta` of `transitions.py` folds one.
        """
        kind: type[Any] | None = None
        task_id = item_id = ""
        output_index = index = 0
        index_of: Callable[[Any], int] = DELTAS[ev.TextDelta]
        pieces: list[str] = []
        number = self.sequence_number + 1
        try:
            for raw in lines:
                event: Any
                try:
                    event = decode_known(raw)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    event = decode_event(raw)
                if (
                    event.__class__ is kind
                    and event.sequence_number == number
                    and event.item_id == item_id
                    and event.output_index == output_index
                    and index_of(event) == index
                    and event.task_id == task_id
                    and number not in privates
                    and (BACKSLASH not in raw or b"\\u0000" not in raw)
                    and len(raw) <= MAX_EVENT_BYTES
                ):
                    number += 1
                    pieces.append(event.delta)
                    continue
                self._count_up_to(number)
                kind = None
                hidden = privates.get(event.sequence_number)
                private = decode_private(hidden) if hidden else None
                fitted = self.absorb(checked_event(event, raw), private)
                number = self.sequence_number + 1
                if fitted and event.__class__ in DELTAS:
                    kind, task_id, item_id = event.__class__, event.task_id, event.item_id
                    output_index, index_of = event.output_index, DELTAS[event.__class__]
                    index = index_of(event)
                    pieces = part_of_delta(self.tasks[task_id], event).pieces
        finally:
            self._count_up_to(number)

    def _count_up_to(self, number: int) -> None:
        """Count the deltas that were folded without `absorb`; `number` is the next seq."""
        self.position += number - 1 - self.sequence_number
        self.sequence_number = number - 1

    def _fold_rare(self, event: ev.AnyEvent) -> bool:
        """Fold an unknown event, or an event whose task does not exist yet."""
        if isinstance(event, ev.Unknown):
            self.unknown.append(event)
            return True
        if isinstance(event, ev.TaskCreated):
            return self._create(event)
        task = self._implied(event.task_id)
        return task is not None and FOLD[type(event)](self, task, event)

    def _create(self, event: ev.TaskCreated) -> bool:
        parent = None
        if event.parent_task_id is not None:
            parent = self.tasks.get(event.parent_task_id)
            if parent is None:
                return False
        elif self.root is not None:
            return False
        facts = msgspec.to_builtins(event)
        for name in ("type", "task_id", "sequence_number"):
            facts.pop(name, None)
        self._add_task(event.task_id, parent, facts).status = "queued"
        return True

    def _implied(self, task_id: str) -> TaskNode | None:
        """The task that a foreign stream implies without `task.created` (section 4, rule 3)."""
        if self.root is None:
            return self._add_task(task_id, None, {})
        containers = [
            (result.at, task)
            for task in self.tasks.values()
            if not task.ended
            for result in task.items.values()
            if result.is_open
            and isinstance(result.item, ToolResult)
            and result.item.call_id == task_id
        ]
        if not containers:
            return None
        parent = max(containers, key=lambda found: found[0])[1]
        return self._add_task(
            task_id, parent, {"parent_task_id": parent.task_id, "call_id": task_id}
        )

    def _add_task(self, task_id: str, parent: TaskNode | None, facts: dict[str, Any]) -> TaskNode:
        task = TaskNode(task_id, len(self.tasks), self.position, parent, facts)
        self.tasks[task_id] = task
        if parent is None:
            self.root = task
        else:
            parent.children.append(task)
        return task

    def _take_private(self, event: ev.AnyEvent, private: ev.Private) -> None:
        if isinstance(event, ev.Unknown):
            return
        task = self.tasks[event.task_id]
        index = getattr(event, "output_index", None)
        owner = task if index is None else task.items[index]
        for name in private.__struct_fields__:
            value = getattr(private, name)
            if value is not None:
                owner.private[name] = value
        note_numbers(task, private.content)
