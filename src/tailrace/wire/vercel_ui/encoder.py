"""Encodes a run as the chunks of a UI message: live, after a pause, and replayed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from tailrace.core import events as ev
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.items import Reasoning, ToolCall, ToolResult
from tailrace.core.parts import DELTAS, PARTS
from tailrace.core.state import Part, TaskNode, TextNode
from tailrace.wire.base import DONE_FRAME, Frame
from tailrace.wire.encoder import PausingEncoder
from tailrace.wire.projection import PART_EVENTS, shown_parts
from tailrace.wire.vercel_ui import chunks
from tailrace.wire.vercel_ui.chunks import chunk, encode_json, live_id, part_id
from tailrace.wire.vercel_ui.object import (
    RESET_STEP,
    START_STEP,
    UiMessage,
    call_done,
    is_blank,
    reasoning,
    reasoning_end,
)


class UiEncoder(PausingEncoder):
    """Encodes the events of a run."""

    __slots__ = ("_heads", "_message")

    def __init__(self, state: State, answered: Collection[str] = ()) -> None:
        """Ready for the event after `state`, which it takes over."""
        self._message = UiMessage(state)
        super().__init__(state, answered)
        # The start of a delta's frame, up to the text. Cleared at every other event.
        self._heads: dict[tuple[object, ...], bytes] = {}

    def encode(self, recorded: Recorded) -> list[Frame]:
        """The chunks of the next event."""
        event: Any = recorded.event
        kind = event.__class__
        index_of = DELTAS.get(kind)
        if index_of is None:
            return self._fold(event)
        if not self._state.absorb(event):
            return self._begin()
        index = index_of(event)
        key = (kind, event.task_id, event.output_index, index)
        head = self._heads.get(key)
        if head is None:
            head = self._heads[key] = self._head(event, kind, index)
        return [b"%b%b}\n\n" % (head, encode_json(event.delta))] if head else []

    def close(self, reason: str) -> list[Frame]:
        """An error, because a plain end looks like success. The page may resume then."""
        if self.over:
            return []
        ends = [] if self._task_id is None else self._message.ends()
        return [*ends, chunk("error", errorText=reason), DONE_FRAME]

    def opening(self, step: Frame = START_STEP) -> list[Frame]:
        """The frames that bring a client to the state, in a new step or a reset step."""
        return [] if self._task_id is None else self._message.whole(step)

    def _pauses(self) -> bool:
        return self._message.is_paused

    def _started(self, _root: TaskNode) -> list[Frame]:
        return [self._message.start(), START_STEP]

    def _before(self, event: Any) -> None:
        super()._before(event)
        self._heads.clear()

    def _folded(self, event: Any) -> None:
        self._message.sources.note(event)

    def _changed(self, task: TaskNode, event: Any) -> list[Frame]:
        if self._lost:
            return [RESET_STEP, *self._message.parts()]
        handler = _ENCODE.get(event.__class__)
        return [] if handler is None else handler(self._message, task, event)

    def _pausing(self) -> list[Frame]:
        return self._message.pausing()

    def _resumed(self, _event: Any) -> list[Frame]:
        return self._message.whole(RESET_STEP)

    def _head(self, event: Any, kind: type[Any], index: int) -> bytes:
        """A delta's frame up to its text; empty if the delta is not shown."""
        if self._over or self._paused:
            return b""
        task = self._state.tasks[event.task_id]
        node = task.items[event.output_index]
        store = PARTS[kind].store
        if store != "arguments" and shown_parts(node) is not getattr(node, store):
            return b""
        if self._message.is_inner(task, node):
            ident = live_id(task, node, index)
            head = {"type": "data-delta", "id": ident, "transient": True, "data": ""}
        elif isinstance(node.item, ToolCall):
            call_id = node.item.call_id
            head = {"type": "tool-input-delta", "toolCallId": call_id, "inputTextDelta": ""}
        else:
            name = "reasoning-delta" if isinstance(node.item, Reasoning) else "text-delta"
            head = {"type": name, "id": part_id(node.id, index), "delta": ""}
        return b"data: " + encode_json(head).removesuffix(b'""}')


# --- the events ----------------------------------------------------------------------------------


def _life(message: UiMessage, task: TaskNode, _event: Any) -> list[Frame]:
    if task is not message.root:
        return [chunks.task_part(task)]
    return message.ending() if message.is_over else []


def _step(_message: UiMessage, task: TaskNode, event: Any) -> list[Frame]:
    return [chunks.step(task, event.step_index)]


def _switched(message: UiMessage, task: TaskNode, event: ev.AgentSwitched) -> list[Frame]:
    switch = chunks.agent(task, len(task.switches) - 1)
    return [switch] if task is message.root else [*_life(message, task, event), switch]


def _compacted(_message: UiMessage, task: TaskNode, _event: ev.HistoryCompacted) -> list[Frame]:
    return [chunks.compacted(task)]


def _notice(_message: UiMessage, task: TaskNode, _event: ev.Notice) -> list[Frame]:
    return [chunks.notice(task, len(task.notices) - 1)]


def _progress(_message: UiMessage, task: TaskNode, event: ev.Progress) -> list[Frame]:
    owner = task if event.call_id is None else task.calls[event.call_id]
    return [chunks.progress(task, event.call_id, owner.progress or {})]


def _item_added(message: UiMessage, task: TaskNode, event: ev.OutputItemAdded) -> list[Frame]:
    shown = message.item(task, task.items[event.output_index])
    return [frame for _, frames in shown for frame in frames]


def _item_done(message: UiMessage, task: TaskNode, event: ev.OutputItemDone) -> list[Frame]:
    node = task.items[event.output_index]
    if task is not message.root:
        return [chunks.task_item(task, node, transient=False)]
    if isinstance(node.item, ToolCall):
        return call_done(task, node)
    return message.result(node, node.item) if isinstance(node.item, ToolResult) else []


def _part(message: UiMessage, task: TaskNode, event: Any) -> list[Frame]:
    """A part that was added, replaced or finished."""
    _, _, store, index_of = PART_EVENTS[event.__class__]
    node, index = task.items[event.output_index], index_of(event)
    part: Part = getattr(node, store)[index]
    is_new = part.at == message.state.position
    if shown_parts(node) is not getattr(node, store):
        return []
    if message.is_inner(task, node):
        streams = isinstance(part, TextNode) and (part.is_open or not is_new)
        return [] if streams or is_blank(part) else [chunks.live_block(task, node, index, part)]
    if isinstance(node.item, Reasoning):
        assert isinstance(part, TextNode)
        return reasoning(node, index, part) if is_new else [reasoning_end(node, index)]
    if isinstance(part, TextNode) and not is_new:
        return message.text_end(node, index, part)
    return message.block(task, node, index, part)


_ENCODE: dict[type[Any], Callable[[UiMessage, TaskNode, Any], list[Frame]]] = {
    ev.TaskCreated: _life,
    ev.TaskInProgress: _life,
    ev.TaskInputRequired: _life,
    ev.TaskInputReceived: _life,
    ev.TaskCompleted: _life,
    ev.TaskIncomplete: _life,
    ev.TaskFailed: _life,
    ev.TaskCancelled: _life,
    ev.AgentSwitched: _switched,
    ev.HistoryCompacted: _compacted,
    ev.StepStarted: _step,
    ev.StepFinished: _step,
    ev.Notice: _notice,
    ev.Progress: _progress,
    ev.OutputItemAdded: _item_added,
    ev.OutputItemDone: _item_done,
    **dict.fromkeys(PART_EVENTS, _part),
}
