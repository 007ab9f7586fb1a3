"""The skeleton that the encoders share: fold an event, begin once, encode what it changed.

`RootEncoder` shows the root task alone. `AnswerEncoder` adds what formats need whose clients cannot
take anything back: citations, and the end of the stream when a shown item is superseded.
`PausingEncoder` shows all tasks, for clients whose response ends when the run waits for people.

Two formats do not use it. `task` sends events as they are. The encoder of `agents` folds nothing
itself: it has a Responses encoder per task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, Generic, TypeVar

from tailrace.core.fold import State
from tailrace.core.state import ItemNode, TaskNode
from tailrace.wire.base import Frame
from tailrace.wire.projection import Sources, asked_of, is_paused, newly_superseded

Sent = TypeVar("Sent")
"""What an encoder produces: frames, or the content of frames that are numbered later."""


class RootEncoder(ABC, Generic[Sent]):
    """Folds the events of a run and encodes those of its root task."""

    __slots__ = ("_lost", "_over", "_state", "_task_id")

    def __init__(self, state: State) -> None:
        """Ready for the event after `state`, which the encoder takes over."""
        self._state = state
        self._task_id: str | None = None
        self._lost: list[ItemNode] = []
        self._over = False

    @property
    def over(self) -> bool:
        """Whether the frame that ends the stream was encoded."""
        return self._over

    def _begin(self) -> list[Sent]:
        """The first frames, once there is a root task."""
        root = self._state.root
        if root is None or self._task_id is not None:
            return []
        self._task_id = root.task_id
        return self._started(root)

    def _fold(self, event: Any) -> list[Sent]:
        """Fold an event and encode what it changed. Encoders take deltas by a shorter way."""
        fitted = self._take(event)
        sent = self._begin()
        task = self._shown_task(event) if fitted else None
        return sent if task is None else sent + self._changed(task, event)

    def _take(self, event: Any) -> bool:
        """Fold an event; returns whether it fitted."""
        self._before(event)
        fitted = self._state.absorb(event)
        if fitted:
            self._folded(event)
        return fitted

    def _shown_task(self, event: Any) -> TaskNode | None:
        """The task of an event, if the format shows it."""
        return self._state.root if event.task_id == self._task_id else None

    def _before(self, event: Any) -> None:
        """Remember what the fold of this event will hide."""
        self._lost = newly_superseded(self._state, event)

    def _folded(self, event: Any) -> None:
        """Take note of an event of any task."""

    @abstractmethod
    def _started(self, root: TaskNode) -> list[Sent]:
        """The frames that begin the stream."""

    @abstractmethod
    def _changed(self, task: TaskNode, event: Any) -> list[Sent]:
        """The frames of an event of a shown task that has been folded."""


class AnswerEncoder(RootEncoder[Sent]):
    """Encodes the root task as one answer that only grows."""

    __slots__ = ("_sources",)

    def __init__(self, state: State, sources: Sources | None = None) -> None:
        """Ready for the event after `state`, which the encoder takes over."""
        super().__init__(state)
        self._sources = Sources(state) if sources is None else sources

    def _folded(self, event: Any) -> None:
        self._sources.note(event)

    def _changed(self, task: TaskNode, event: Any) -> list[Sent]:
        if any(self._is_shown(task, node) for node in self._lost):
            self._over = True
            return self._interrupted(event)
        return self._answered(task, event)

    def _has_shown_lost(self, root: TaskNode) -> bool:
        """Whether a client that has followed from the start has seen a superseded item."""
        return any(node.superseded and self._is_shown(root, node) for node in root.items.values())

    @abstractmethod
    def _is_shown(self, root: TaskNode, node: ItemNode) -> bool:
        """Whether the stream is wrong without this item, because part of it was sent."""

    @abstractmethod
    def _interrupted(self, event: Any) -> list[Sent]:
        """The frames that end a stream in which `event` superseded a shown item."""

    @abstractmethod
    def _answered(self, root: TaskNode, event: Any) -> list[Sent]:
        """The frames of an event of the root task that takes nothing back."""


class PausingEncoder(RootEncoder[Frame]):
    """Encodes all tasks of a run. The response ends when the run ends or waits for people.

    The answers of a client begin the next response: until the run has read them, it stays silent.
    """

    __slots__ = ("_answered", "_paused")

    _paused: bool
    """Whether the response has ended for a pause. A delta never changes it."""

    def __init__(self, state: State, answered: Collection[str] = ()) -> None:
        """Ready for the event after `state`, which the encoder takes over.

        `answered` are the requests that the client has just answered.
        """
        super().__init__(state)
        self._task_id = None if state.root is None else state.root.task_id
        self._answered: set[str] = set()
        if self._note_end():
            self._answered = asked_of(state).intersection(answered)

    @property
    def over(self) -> bool:
        """Whether the response has ended: with its run, for a pause, or by an error."""
        return self._over or (self._paused and not self._answered)

    @property
    def waits(self) -> bool:
        """Whether the run has not read the client's answers yet."""
        return bool(self._answered)

    def _fold(self, event: Any) -> list[Frame]:
        if self._over:
            self._state.absorb(event)
            return []
        if not self._paused:
            sent = super()._fold(event)
            if self._answered:  # the run went on with another answer of the client
                self._answered &= asked_of(self._state)
            return sent + self._pausing() if self._note_end(begun=True) else sent
        was_waiting = self.waits
        self._take(event)
        self._answered &= asked_of(self._state)
        is_paused = self._note_end()
        # Silence, until the run goes on or has read the client's answers.
        return [] if is_paused and (self.waits or not was_waiting) else self._resumed(event)

    def _note_end(self, *, begun: bool = False) -> bool:
        """Note whether the run has ended; returns whether it waits for people.

        A response that has begun goes on while the run has answers of its client to read.
        """
        root = self._state.root
        self._over = self._over or (root is not None and root.ended)
        goes_on = self._over or (begun and self.waits)
        self._paused = not goes_on and self._pauses()
        return self._paused

    def _shown_task(self, event: Any) -> TaskNode | None:
        return self._state.tasks.get(event.task_id)

    def _pauses(self) -> bool:
        """Whether the response ends here, although the run has not ended."""
        return is_paused(self._state)

    @abstractmethod
    def _pausing(self) -> list[Frame]:
        """The frames that end a response because the run waits for people."""

    @abstractmethod
    def _resumed(self, event: Any) -> list[Frame]:
        """The frames of the next response so far, when an event ended a pause."""
