"""The skeleton that the encoders share: fold an event, begin once, encode what it changed.

`RootEncoder` shows the root task alone. `AnswerEncoder` adds what formats need whose clients cannot
take anything back: citations, and the end of the stream when a shown item is superseded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from tailrace.core.fold import State
from tailrace.core.state import ItemNode, TaskNode
from tailrace.wire.projection import Sources, newly_superseded

Sent = TypeVar("Sent")
"""What an encoder produces: frames, or the content of frames that are numbered later."""


class RootEncoder(ABC, Generic[Sent]):
    """Folds the events of a run and encodes those of its root task."""

    __slots__ = ("_over", "_state", "_task_id")

    def __init__(self, state: State) -> None:
        """Ready for the event after `state`, which the encoder takes over."""
        self._state = state
        self._task_id: str | None = None
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
        self._before(event)
        fitted = self._state.absorb(event)
        sent = self._begin()
        root = self._state.root
        if fitted and root is not None:
            self._folded(event)
            if event.task_id == self._task_id:
                sent += self._changed(root, event)
        return sent

    def _before(self, event: Any) -> None:
        """Remember what the fold of this event will hide."""

    def _folded(self, event: Any) -> None:
        """Take note of an event of any task."""

    @abstractmethod
    def _started(self, root: TaskNode) -> list[Sent]:
        """The frames that begin the stream."""

    @abstractmethod
    def _changed(self, root: TaskNode, event: Any) -> list[Sent]:
        """The frames of an event of the root task that has been folded."""


class AnswerEncoder(RootEncoder[Sent]):
    """Encodes the root task as one answer that only grows."""

    __slots__ = ("_lost", "_sources")

    def __init__(self, state: State, sources: Sources | None = None) -> None:
        """Ready for the event after `state`, which the encoder takes over."""
        super().__init__(state)
        self._sources = Sources(state) if sources is None else sources
        self._lost: list[ItemNode] = []

    def _before(self, event: Any) -> None:
        root = self._state.root
        is_root = root is not None and event.task_id == root.task_id
        self._lost = newly_superseded(root, event) if is_root else []

    def _folded(self, event: Any) -> None:
        self._sources.note(event)

    def _changed(self, root: TaskNode, event: Any) -> list[Sent]:
        if any(self._is_shown(root, node) for node in self._lost):
            self._over = True
            return self._interrupted()
        return self._answered(root, event)

    def _has_shown_lost(self, root: TaskNode) -> bool:
        """Whether a client that has followed from the start has seen a superseded item."""
        return any(node.superseded and self._is_shown(root, node) for node in root.items.values())

    @abstractmethod
    def _is_shown(self, root: TaskNode, node: ItemNode) -> bool:
        """Whether the stream is wrong without this item, because part of it was sent."""

    @abstractmethod
    def _interrupted(self) -> list[Sent]:
        """The frames that end a stream in which a shown item was superseded."""

    @abstractmethod
    def _answered(self, root: TaskNode, event: Any) -> list[Sent]:
        """The frames of an event of the root task that takes nothing back."""
