"""The times in which a run waits for approvals.

The clients of some APIs answer approvals in a request of their own. Their stream ends where such a
time begins, and another stream shows the rest. The state keeps what these streams cannot find out
later: what was open at that moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tailrace.core.items import InputRequest, ToolCall
from tailrace.core.state import TOKEN_COUNTS, ImageNode, ItemNode, TaskNode

if TYPE_CHECKING:
    from tailrace.core.fold import State

ITEM = -1
"""The block index that means the whole item."""


class Pause(msgspec.Struct, frozen=True):
    """The time from a request for approvals until the last of these requests is settled."""

    at: int
    """The position of the event with the requests."""
    asked: list[tuple[str, InputRequest]]
    """The requests, each with the id of its task."""
    open: list[tuple[int, int]]
    """What was unfinished: items of the root, and images in them by their block index."""
    used: dict[str, int]
    """The tokens that the run had used."""
    until: int | None = None
    """The position of the event that settled the last request."""
    lost: list[int] = []
    """The items that were superseded meanwhile, or before the next stream could show them."""
    superseded: list[int] = []
    """The items that were superseded before. Items superseded later had been shown already."""
    time: float | None = None
    """When it began, in Unix seconds: the `at` of the event with the requests."""

    def is_followed_by(self, node: ItemNode) -> bool:
        """Whether an item of the root came after the pause began, or was unfinished then."""
        return node.at > self.at or (node.output_index, ITEM) in self.open


def note_requests(state: State, time: float | None) -> None:
    """Begin a pause, after an event with requests. A pause that has begun goes on as it is."""
    if not _waits(state):
        _begin(state, _asked(state), time)


def note_answers(state: State, time: float | None) -> None:
    """End the pause, if the last event settled its last request: an answer, or the end of a task.

    Other requests begin the next pause at once.
    """
    if not _waits(state):
        return
    root, last, asked = state.root, state.pauses[-1], _asked(state)
    assert root is not None
    if root.ended or not any(request in asked for request in last.asked):
        lost = _lost(root, last)
        state.pauses[-1] = msgspec.structs.replace(last, until=state.position, lost=lost)
        _begin(state, asked, time)


def _waits(state: State) -> bool:
    return bool(state.pauses) and state.pauses[-1].until is None


def _asked(state: State) -> list[tuple[str, InputRequest]]:
    return [
        (task.task_id, request) for task, request in state.requests() if request.kind == "approval"
    ]


def _begin(state: State, asked: list[tuple[str, InputRequest]], time: float | None) -> None:
    root = state.root
    assert root is not None
    if asked and not root.ended:
        gone = [index for index, node in root.items.items() if node.superseded]
        state.pauses.append(
            Pause(state.position, asked, _unfinished(root), _used(root), superseded=gone, time=time)
        )


def _unfinished(root: TaskNode) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for index, node in root.items.items():
        if _is_unfinished(root, node):
            found.append((index, ITEM))
        found += [
            (index, block)
            for block, part in node.parts.items()
            if isinstance(part, ImageNode) and part.is_open
        ]
    return found


def _is_unfinished(root: TaskNode, node: ItemNode) -> bool:
    """Whether an item is open. A call that the server executes is open until its result is done."""
    item = node.item
    if node.is_open or not isinstance(item, ToolCall):
        return node.is_open
    if item.executor == "client" or item.status != "completed":
        return False
    result = root.call_results.get(item.call_id)
    return result is None or result.superseded or result.is_open


def _lost(root: TaskNode, pause: Pause) -> list[int]:
    return [
        index
        for index, node in root.items.items()
        if node.superseded and pause.is_followed_by(node)
    ]


def _used(root: TaskNode) -> dict[str, int]:
    used = root.usage.fields if root.usage is not None else {}
    return {name: used.get(name, 0) for name in TOKEN_COUNTS}
