"""Encodes a run for AG-UI: its order, its pauses, its ends, and its replay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from operator import attrgetter
from typing import Any

from tailrace.core import events as ev
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.items import Message, Reasoning, ToolCall, ToolResult
from tailrace.core.parts import DELTAS, PARTS
from tailrace.core.state import ImageNode, Part, TaskNode, TextNode
from tailrace.wire.ag_ui.frames import (
    custom,
    event_frame,
    progress_frame,
    step_frames,
    subagent_end,
    subagent_started,
    subagent_suspended,
    tag,
    usage_entries,
)
from tailrace.wire.ag_ui.items import (
    block_frames,
    citation,
    content_frames,
    delta_frames,
    end_frames,
    is_asked_for,
    is_for_client,
    is_sent,
    late_parts,
    open_thoughts,
    part_frames,
    result_frames,
    start_frames,
    thought,
    whole_call,
    whole_part,
)
from tailrace.wire.base import Frame
from tailrace.wire.encoder import PausingEncoder
from tailrace.wire.projection import is_client, is_void, shown_parts, taken_back


class AgUiEncoder(PausingEncoder):
    """Encodes the events of a run."""

    __slots__ = ("_cut", "_known")

    def __init__(self, state: State, *, lost: bool, answered: Collection[str] = ()) -> None:
        """`lost` is whether the client received an item that was superseded."""
        super().__init__(state, answered)
        self._over = self._over or lost
        self._cut: list[Frame] | None = None  # frames that close what is still open
        self._known = len(state.tasks)

    def encode(self, recorded: Recorded) -> list[Frame]:
        """The frames of the next event."""
        event: Any = recorded.event
        if event.__class__ not in DELTAS:
            return self._fold(event)
        fitted = self._state.absorb(event)
        if self._over or self._paused:
            return []
        delta = delta_frames(self._state.tasks[event.task_id], event) if fitted else []
        return self._begin() + delta

    def close(self, reason: str) -> list[Frame]:
        """An error: an end without it looks like success."""
        if self.over:
            return []
        return [*self._ends(), event_frame("RUN_ERROR", message=reason)]

    def opening(self) -> list[Frame]:
        """The frames that bring an empty client to the state."""
        root = self._state.root
        if root is None:
            return []
        steps = step_frames(root, "STEP_STARTED")
        frames = [*self._started(root), *steps, *_replay(self._state, root)]
        if root.ended:
            return [*frames, *self._end_of(root)]
        return [*frames, *self._pausing()] if self._paused else frames

    # --- the run -------------------------------------------------------------------------------

    def _names(self) -> dict[str, str]:
        root = self._state.root
        assert root is not None
        return {"threadId": str(root.facts.get("thread_id", root.task_id)), "runId": root.task_id}

    def _started(self, task: TaskNode) -> list[Frame]:
        if task.parent is not None:
            return [subagent_started(task)]
        return [event_frame("RUN_STARTED", **self._names(), protocolVersion="1.0")]

    def _begin(self) -> list[Frame]:
        """The frames of tasks that the last event created."""
        known, self._known = self._known, len(self._state.tasks)
        if self._known == known:
            return []
        new = list(self._state.tasks.values())[known:]
        return [frame for task in new for frame in self._started(task)]

    def _before(self, event: Any) -> None:
        super()._before(event)
        task = self._shown_task(event) if event.__class__ in ev.TERMINAL else None
        self._cut = None if task is None else _open_frames(task)

    def _changed(self, task: TaskNode, event: Any) -> list[Frame]:
        if self._lost and any(map(is_sent, self._lost)):
            self._over = True
            error = taken_back(event, "ask again with its `runId` to read it")
            ended = event_frame("RUN_ERROR", message=error.message, code=error.code)
            return [*self._ends(), ended]
        if self._cut is not None:
            return self._cut + self._end_of(task)
        handler = _HANDLERS.get(event.__class__)
        return [] if handler is None else handler(self._state, task, event)

    def _resumed(self, event: Any) -> list[Frame]:
        """Begin again after a pause, and open what it closed."""
        root = self._state.root
        assert root is not None
        self._known = len(self._state.tasks)
        begun = [*self._started(root), *step_frames(root, "STEP_STARTED"), *_reopened(root)]
        for task, request in self._state.requests():
            if is_void(task, request):  # its result came in the pause, too
                begun += result_frames(task, task.call_results[request.call_id or ""])
        return begun + (self._pausing() if self._paused else self._ended_now(event))

    def _ended_now(self, event: Any) -> list[Frame]:
        """The end of a task that a pause had closed."""
        task = self._state.tasks.get(event.task_id)
        if task is None or not isinstance(event, ev.TERMINAL):
            return []
        again = self._started(task) if task.parent is not None else []
        return [*again, *self._end_of(task)]

    def _ends(self) -> list[Frame]:
        """Close everything that is open, children before parents."""
        root = self._state.root
        return [] if root is None else [*_closed(root), *step_frames(root, "STEP_FINISHED")]

    def _pausing(self) -> list[Frame]:
        interrupts = [
            {
                "id": request.id,
                "reason": request.kind,
                **({"message": request.message} if request.message else {}),
                **({"toolCallId": request.call_id} if request.call_id else {}),
                **({"responseSchema": request.schema} if isinstance(request.schema, dict) else {}),
                **tag(task),
            }
            for task, request in self._state.requests()
        ]
        outcome = {"type": "interrupt", "interrupts": interrupts}
        return [*self._ends(), event_frame("RUN_FINISHED", **self._names(), outcome=outcome)]

    def _end_of(self, task: TaskNode) -> list[Frame]:
        """The end of a task; its open items are closed already."""
        if task.parent is not None:
            return [subagent_end(task)]
        usage = usage_entries(self._state)
        ends = step_frames(task, "STEP_FINISHED", among=task.open_steps)
        if task.status == "failed":
            error = task.error
            message = error.message if error is not None else "The run failed."
            code = error.code if error is not None else None
            return [*ends, event_frame("RUN_ERROR", message=message, code=code, usage=usage)]
        pending: list[str] = []
        result: Any = None
        outcome: dict[str, Any] = {"type": "success"}
        if task.status == "cancelled":
            outcome = {"type": "cancelled"}
        elif task.status == "incomplete":
            result = {"status": "incomplete", "reason": task.reason}
        else:
            output = task.structured_output
            result = output["value"] if output is not None else None
            for call_id, node in task.calls.items():
                if is_for_client(node) and call_id not in task.call_results:
                    ends += [] if is_asked_for(task, node) else whole_call(task, node)
                    pending.append(call_id)
            if pending:
                outcome["pendingToolCallIds"] = pending
        return [
            *ends,
            event_frame(
                "RUN_FINISHED", **self._names(), result=result, outcome=outcome, usage=usage
            ),
        ]


def _open_frames(task: TaskNode) -> list[Frame]:
    """The ends of a task's open items, in order."""
    return [
        frame
        for node in task.output()
        if node.is_open
        for frame in (*open_thoughts(task, node, "END"), *end_frames(task, node))
    ]


def _closed(task: TaskNode) -> list[Frame]:
    """The ends of everything open below a task, and of the task's own items."""
    frames = [
        frame
        for child in task.children
        if not child.ended
        for frame in (*_closed(child), subagent_suspended(child))
    ]
    return [*frames, *_open_frames(task)]


def _reopened(task: TaskNode) -> Iterator[Frame]:
    """Open again what `_closed` closed."""
    for node in task.output():
        if node.is_open:
            yield from start_frames(task, node)
            yield from open_thoughts(task, node, "START", role="reasoning")
    for child in task.children:
        if not child.ended:
            yield subagent_started(child)
            yield from _reopened(child)


def _replay(state: State, task: TaskNode) -> Iterator[Frame]:
    """A task's items so far, in order; sub-agents come before their results."""
    replayed: set[str] = set()
    for node in sorted(task.output(), key=lambda node: node.at):
        item = node.item
        if isinstance(item, ToolResult):
            for child in task.children:
                if child.call_id == item.call_id and child.task_id not in replayed:
                    replayed.add(child.task_id)
                    yield from _replayed_child(state, child)
            yield from block_frames(task, node)
            if not node.is_open:
                yield from result_frames(task, node)
            continue
        yield from start_frames(task, node)
        if isinstance(item, Reasoning):
            for n, part in sorted(shown_parts(node).items()):
                yield thought(task, node, n, "START", role="reasoning")
                if part.text:
                    yield thought(task, node, n, "CONTENT", delta=part.text)
                if not part.is_open:
                    yield thought(task, node, n, "END")
        elif is_asked_for(task, node):
            yield from whole_call(task, node)
        elif isinstance(item, ToolCall) and not is_client(node.item):
            if node.arguments is not None and node.arguments.text:
                call = {"toolCallId": item.call_id, "delta": node.arguments.text}
                yield event_frame("TOOL_CALL_ARGS", **tag(task), **call)
            if node.progress:
                yield progress_frame(task, item.call_id, node.progress)
        elif isinstance(item, Message):
            for n, text in sorted(node.parts.items()):
                if isinstance(text, TextNode):
                    yield from content_frames(task, node, n, text.text)
            yield from block_frames(task, node)
        if not node.is_open:
            yield from end_frames(task, node)
    for child in task.children:
        if child.task_id not in replayed:
            yield from _replayed_child(state, child)
    if task.compacted is not None:
        yield custom(task, "history_compacted", task.compacted)
    for switch in task.switches:
        yield custom(task, "agent_switched", switch)
    if task.structured_output is not None:
        yield custom(task, "structured_output", task.structured_output)


def _replayed_child(state: State, child: TaskNode) -> Iterator[Frame]:
    yield subagent_started(child)
    yield from _replay(state, child)
    if child.ended:
        yield subagent_end(child)


def _added(state: State, task: TaskNode, event: ev.OutputItemAdded) -> list[Frame]:
    node = task.items[event.output_index]
    return start_frames(task, node) + late_parts(state, task, node)


def _done(state: State, task: TaskNode, event: ev.OutputItemDone) -> list[Frame]:
    node = task.items[event.output_index]
    frames = start_frames(task, node) if node.at == state.position else []
    frames += late_parts(state, task, node)
    if isinstance(node.item, ToolResult):
        return frames + result_frames(task, node)
    return frames + end_frames(task, node)


def _asked(_state: State, task: TaskNode, event: ev.TaskInputRequired) -> list[Frame]:
    """The calls that the client is to carry out; it does not know them yet."""
    named = (task.calls.get(request.call_id or "") for request in event.requests)
    return [
        frame
        for node in named
        if node is not None and is_asked_for(task, node)
        for frame in whole_call(task, node)
    ]


def _part(state: State, task: TaskNode, event: Any) -> list[Frame]:
    """A part that was added, replaced or finished."""
    place = PARTS[event.__class__]
    node = task.items[event.output_index]
    if place.store == "arguments":
        return late_parts(state, task, node) if node.is_open else []
    index = place.index_of(event)
    part: Part = getattr(node, place.store)[index]
    is_new = part.at == state.position
    if isinstance(node.item, Reasoning):
        if shown_parts(node).get(index) is not part:
            return []
        if is_new:
            return whole_part(task, node, index, part)
        return [] if part.is_open else [thought(task, node, index, "END")]
    if is_new:
        return whole_part(task, node, index, part)
    if isinstance(event, ev.AnnotationAdded) and isinstance(node.item, Message):
        return [citation(task, node, event.annotation)]
    return part_frames(task, node, part) if isinstance(part, ImageNode) else []


def _step(_state: State, task: TaskNode, event: ev.StepStarted | ev.StepFinished) -> list[Frame]:
    """A step of the root, unless another step of its name is open."""
    step = task.steps[event.step_index]
    others = (task.steps[n].name for n in task.open_steps if n != event.step_index)
    if task.parent is not None or step.name in others:
        return []
    cut = {"status": "incomplete"} if step.status == "incomplete" else None
    kind = "STEP_STARTED" if step.is_open else "STEP_FINISHED"
    return [event_frame(kind, stepName=step.name, metadata=cut)]


def _progress(_state: State, task: TaskNode, event: ev.Progress) -> list[Frame]:
    owner = task if event.call_id is None else task.calls.get(event.call_id)
    of = event.call_id or task.task_id
    return [] if owner is None else [progress_frame(task, of, owner.progress or {})]


EventHandler = Callable[[State, TaskNode, Any], list[Frame]]


def _custom(name: str, value: Callable[[TaskNode], Any]) -> EventHandler:
    return lambda _state, task, _event: [custom(task, name, value(task))]


_HANDLERS: dict[type[Any], EventHandler] = {
    ev.OutputItemAdded: _added,
    ev.OutputItemDone: _done,
    ev.TaskInputRequired: _asked,
    ev.StepStarted: _step,
    ev.StepFinished: _step,
    ev.Progress: _progress,
    ev.Notice: _custom("notice", lambda task: task.notices[-1]),
    ev.AgentSwitched: _custom("agent_switched", lambda task: task.switches[-1]),
    ev.HistoryCompacted: _custom("history_compacted", attrgetter("compacted")),
    ev.StructuredOutputDone: _custom("structured_output", attrgetter("structured_output")),
    **{kind: _part for kind in PARTS if kind not in DELTAS},
}
