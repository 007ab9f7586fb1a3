"""Encodes a run as the events of its agents: a Responses encoder for each task, and the tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tailrace.core import events as ev
from tailrace.core import sse
from tailrace.core.approval_pauses import ITEM
from tailrace.core.events import AnyEvent, Private, Recorded
from tailrace.core.fold import State
from tailrace.core.items import Message, Reasoning, ToolCall, ToolResult
from tailrace.core.parts import DELTAS
from tailrace.core.state import ItemNode, TaskNode
from tailrace.core.values import Json
from tailrace.wire.agents.events import (
    AgentName,
    AgentsEvent,
    AgentUpdatedStreamEvent,
    InternalEvent,
    NotifyStreamEvent,
    RawResponsesStreamEvent,
    RunItem,
    RunItemsSupersededEvent,
    RunItemStreamEvent,
    StreamGapEvent,
    StreamingToolContextEvent,
    StreamingToolEndEvent,
    StreamingToolStartEvent,
    ToolPlace,
)
from tailrace.wire.base import DONE_FRAME, Frame, frame_pieces
from tailrace.wire.frame_cursors import frame_ids
from tailrace.wire.openai_responses import items as shown
from tailrace.wire.openai_responses.cursors import OPENING
from tailrace.wire.openai_responses.encoder import ResponsesEncoder
from tailrace.wire.openai_responses.output import ResponseEvent
from tailrace.wire.projection import Sources, model_name, newly_superseded, output_text

WAITS = "The run waits for people."
"""The text of a question without a message."""

_DATA = b"data: "
_json = msgspec.json.Encoder().encode


class TaskView(State):
    """A run as one of its tasks shows it: the task is the root. An event is folded into the run."""

    __slots__ = ("_run", "fitted")

    def __init__(self, run: State, root: TaskNode | None = None) -> None:
        """The view of a task of this run; None if the next event makes the task."""
        super().__init__()
        self._run = run
        self.root = root
        self.fitted = False

    def absorb(self, event: AnyEvent, private: Private | None = None) -> bool:
        """Fold an event of this task."""
        self.fitted = self._run.absorb(event, private)
        if self.root is None:
            self.root = self._run.tasks.get(event.task_id)
        return self.fitted


class AgentsEncoder:
    """Encodes the events of a run, with a Responses encoder for each task."""

    __slots__ = ("_ids", "_responses", "_run", "_sources", "_views")

    def __init__(self, state: State, ids: bytes = b"") -> None:
        """Ready for the event after `state`, which it takes over; every id begins with `ids`."""
        self._run = state
        self._ids = ids
        self._sources = Sources(state)
        self._views: dict[str, TaskView] = {}
        self._responses: dict[str, ResponsesEncoder] = {}
        for task in state.tasks.values():
            self._add_view(task, TaskView(state, task))
        for task_id, view in self._views.items():
            self._responses[task_id] = self._response(view)

    def encode(self, recorded: Recorded) -> list[Frame]:
        """The frames of the next event."""
        return self._frames(self._changes(recorded), recorded.epoch)

    def close(self, reason: str) -> list[Frame]:
        """Nothing: the client reconnects with its cursor."""
        return []

    def opening(self, epoch: int) -> list[Frame]:
        """The frames that bring an empty client to the state, without superseded items."""
        root = self._run.root
        sent = list(self._replayed(root)) if root is not None else []
        return self._frames(sent, epoch, opening=True)

    def opening_in_pieces(self, epoch: int) -> Iterator[bytes]:
        """The bytes of `opening`. Frames that repeat a long text share the bytes of the text."""
        root, known = self._run.root, dict[bytes, bytes]()
        sent = list(self._replayed(root)) if root is not None else []
        ids = frame_ids(self._ids, epoch, self._run.sequence_number, len(sent), opening=True)
        for event, ident in zip(sent, ids, strict=False):
            yield from frame_pieces(msgspec.to_builtins(event), known, id=ident)

    def gap(self, reason: str, thread_id: str) -> Frame:
        """`stream_gap_event`, without an id where the state follows."""
        ident = None if self._run.root is not None else self._ids.decode() + "0"
        return sse.frame(_json(StreamGapEvent(reason=reason)), id=ident)

    def _frames(self, sent: list[AgentsEvent], epoch: int, *, opening: bool = False) -> list[Frame]:
        seq = self._run.sequence_number
        ids = frame_ids(self._ids, epoch, seq, len(sent), opening=opening)
        return [sse.frame(_json(event), id=ident) for event, ident in zip(sent, ids, strict=False)]

    # --- the responses -------------------------------------------------------------------------

    def _add_view(self, task: TaskNode, view: TaskView) -> None:
        """Show a task in its own view and in those of the tasks above it."""
        self._views[task.task_id] = view
        above: TaskNode | None = task
        while above is not None:
            self._views[above.task_id].tasks[task.task_id] = task
            above = above.parent

    def _response(
        self, view: TaskView, replay: list[ResponseEvent] | None = None
    ) -> ResponsesEncoder:
        # `joined`: after an attempt a response begins again, without the items that were lost.
        return ResponsesEncoder(view, joined=True, replay=replay, sources=self._sources)

    def _whole_response(self, task: TaskNode) -> list[AgentsEvent]:
        """The response of a task so far. An encoder for this alone numbers the frames."""
        replay: list[ResponseEvent] = []
        encoder = self._response(self._views[task.task_id], replay)
        events = encoder.numbered(replay, OPENING, self._run.sequence_number)
        return [self._within(task, RawResponsesStreamEvent(data=event)) for event in events]

    def _raw(self, task: TaskNode, frames: list[Frame]) -> list[AgentsEvent]:
        return [
            self._within(task, RawResponsesStreamEvent(data=msgspec.Raw(_data_of(frame))))
            for frame in frames
            if frame is not DONE_FRAME
        ]

    def _within(self, task: TaskNode, event: InternalEvent) -> AgentsEvent:
        """The event itself, or the event in the innermost tool around its task."""
        around = _ancestry(task)
        if not around:
            return event
        return StreamingToolContextEvent(
            tool_name=around[-1].tool_name,
            tool_call_id=around[-1].tool_call_id,
            internal_event=event,
            ancestry=around,
        )

    # --- an event ------------------------------------------------------------------------------

    def _changes(self, recorded: Recorded) -> list[AgentsEvent]:
        event: Any = recorded.event
        known = self._run.tasks.get(event.task_id)
        if known is None:
            view = TaskView(self._run)
            response = self._response(view)
        else:
            view, response = self._views[known.task_id], self._responses[known.task_id]
        if known is not None and event.__class__ in DELTAS:
            return self._raw(known, response.encode(recorded))
        lost = newly_superseded(self._run, event)
        unended = _unended_calls(known) if known and isinstance(event, ev.TERMINAL) else []
        frames = response.encode(recorded)
        task = view.root
        if task is None:
            return []
        sent: list[AgentsEvent] = []
        if known is None:
            self._add_view(task, view)
            self._responses[task.task_id] = response
            sent.append(self._speaks(task, model_name(task)))
        if not view.fitted:
            return sent
        if lost:
            ids = [node.id for node in lost]
            sent.append(self._within(task, RunItemsSupersededEvent(item_ids=ids)))
        sent += [_tool_end(task, call_id) for call_id in unended]
        sent += self._raw(task, frames)
        if response.over:
            self._responses[task.task_id] = self._response(view)
            sent += self._whole_response(task)
        sent += self._about(task, event)
        return sent

    def _about(self, task: TaskNode, event: Any) -> Iterator[AgentsEvent]:
        """The events besides those of the response."""
        if isinstance(event, ev.OutputItemAdded | ev.OutputItemDone):
            node = task.items[event.output_index]
            if node.at == self._run.position:
                yield from _tool_started_by(task, node)
            if isinstance(event, ev.OutputItemDone):
                yield from self._done(task, node)
        elif isinstance(event, ev.ToolCallStarted):
            node = task.items[event.output_index]
            yield _tool_start(task, node.item.call_id)  # type: ignore[union-attr]  # a ToolCall
        elif isinstance(event, ev.AgentSwitched):
            yield self._speaks(task, event.agent)
        elif isinstance(event, ev.Notice):
            yield _notice(task, task.notices[-1])
        elif isinstance(event, ev.Progress):
            owner = task if event.call_id is None else task.calls[event.call_id]
            yield _progress(task, owner.progress or {}, event.call_id)
        elif isinstance(event, ev.TaskInputRequired):
            yield from _requests(task)

    def _speaks(self, task: TaskNode, agent: str) -> AgentsEvent:
        return self._within(task, AgentUpdatedStreamEvent(new_agent=AgentName(name=agent)))

    def _done(self, task: TaskNode, node: ItemNode) -> Iterator[AgentsEvent]:
        """The run item of a finished item; the tool of a result has ended before."""
        item = node.item
        output = None
        if isinstance(item, ToolResult):
            yield _tool_end(task, item.call_id)
            name, kind = "tool_output", "tool_call_output_item"
            output = output_text(task, node) or (item.error.message if item.error else "")
            raw = _output_json(item, output)
        elif isinstance(item, ToolCall):
            name, kind, raw = "tool_called", "tool_call_item", _call_json(node, item)
        elif isinstance(item, Message | Reasoning):
            name, kind = "message_output_created", "message_output_item"
            if isinstance(item, Reasoning):
                name, kind = "reasoning_item_created", "reasoning_item"
            raw = shown.item_json(self._sources, task, (node.output_index, ITEM))
        else:
            return
        made = RunItem(type=kind, agent=_agent_of(task, node), raw_item=raw, output=output)
        yield self._within(task, RunItemStreamEvent(name=name, item=made))

    # --- replay --------------------------------------------------------------------------------

    def _replayed(self, task: TaskNode) -> Iterator[AgentsEvent]:
        """A task so far in few events; sub-agents come before the results of their calls."""
        response = self._whole_response(task)
        end = response[-1:] if task.ended else []
        yield self._speaks(task, model_name(task))
        yield from response[: len(response) - len(end)]
        left, switches = list(task.children), list(task.switches)
        for node in sorted(task.output(), key=lambda node: node.at):
            while switches and switches[0]["output_index"] <= node.output_index:
                yield self._speaks(task, switches.pop(0)["agent"])
            yield from _tool_started_by(task, node)
            if isinstance(node.item, ToolCall) and node.started:
                yield _tool_start(task, node.item.call_id)
            for child in [child for child in left if _works_on(child, node)]:
                left.remove(child)
                yield from self._replayed(child)
            if not node.is_open:
                yield from self._done(task, node)
            if node.progress:
                yield _progress(task, node.progress, node.item.call_id)  # type: ignore[union-attr]
        for child in left:
            yield from self._replayed(child)
        for switch in switches:
            yield self._speaks(task, switch["agent"])
        if task.ended:
            yield from (_tool_end(task, call_id) for call_id in _unended_calls(task))
        if task.progress:
            yield _progress(task, task.progress, None)
        yield from (_notice(task, notice) for notice in task.notices)
        if task.status == "input_required":
            yield from _requests(task)
        yield from end


def _data_of(frame: Frame) -> bytes:
    """The JSON of a Responses frame, which is a single line."""
    return frame[frame.index(_DATA) + len(_DATA) : -2]


# --- tasks and tools ------------------------------------------------------------------------------


def _agent_of(task: TaskNode, node: ItemNode) -> AgentName:
    """The agent that made an item."""
    made = [
        switch["agent"] for switch in task.switches if switch["output_index"] <= node.output_index
    ]
    return AgentName(name=made[-1] if made else model_name(task))


def _tool_name(task: TaskNode, call_id: str | None) -> str:
    call = task.calls.get(call_id or "")
    return call.item.name if call is not None else ""  # type: ignore[union-attr]  # a ToolCall


def _ancestry(task: TaskNode) -> list[ToolPlace]:
    """The calls from the run to a sub-agent, the outermost first; none for the run itself."""
    found: list[ToolPlace] = []
    while task.parent is not None:
        call_id = task.call_id or task.task_id
        name = _tool_name(task.parent, call_id)
        found.insert(0, ToolPlace(tool_name=name, tool_call_id=call_id, task_id=task.task_id))
        task = task.parent
    return found


def _works_on(child: TaskNode, node: ItemNode) -> bool:
    return isinstance(node.item, ToolResult) and node.item.call_id == child.call_id


def _tool_started_by(task: TaskNode, node: ItemNode) -> list[AgentsEvent]:
    """The start of a tool whose result begins without `task.tool_call.started`."""
    if not isinstance(node.item, ToolResult):
        return []
    call = task.calls.get(node.item.call_id)
    return [] if call is not None and call.started else [_tool_start(task, node.item.call_id)]


def _tool_start(task: TaskNode, call_id: str) -> AgentsEvent:
    name = _tool_name(task, call_id)
    return StreamingToolStartEvent(tool_name=name, tool_call_id=call_id, ancestry=_ancestry(task))


def _tool_end(task: TaskNode, call_id: str) -> AgentsEvent:
    result = task.call_results.get(call_id)
    return StreamingToolEndEvent(
        tool_name=_tool_name(task, call_id),
        tool_call_id=call_id,
        status=result.item.status if result is not None and not result.is_open else "incomplete",
        ancestry=_ancestry(task),
    )


def _unended_calls(task: TaskNode) -> list[str]:
    """The calls whose tool has started and not ended."""
    begun = [call_id for call_id, call in task.calls.items() if call.started]
    return [
        call_id
        for call_id in dict.fromkeys([*begun, *task.call_results])
        if (result := task.call_results.get(call_id)) is None or result.is_open
    ]


# --- notices and items ----------------------------------------------------------------------------


def _notice(task: TaskNode, notice: Json) -> AgentsEvent:
    return NotifyStreamEvent(
        data=notice["message"],
        level=notice.get("level", "info"),
        details=notice.get("data"),
        **_of_tool(task, notice.get("call_id")),
    )


def _progress(task: TaskNode, progress: Json, call_id: str | None) -> AgentsEvent:
    parts = [f"{progress[name]:g}" for name in ("current", "total") if name in progress]
    text = progress.get("message", "/".join(parts))
    return NotifyStreamEvent(data=text, progress=progress, **_of_tool(task, call_id))


def _requests(task: TaskNode) -> Iterator[AgentsEvent]:
    for request in task.requests:
        yield NotifyStreamEvent(
            data=request.message or WAITS,
            request=msgspec.to_builtins(request),
            **_of_tool(task, request.call_id),
        )


def _of_tool(task: TaskNode, call_id: str | None) -> Json:
    """The tool of a notice: the call that it names, else the innermost tool around its task."""
    around = _ancestry(task)
    about: Json = {"ancestry": around}
    if call_id is not None:
        about |= {"tool_name": _tool_name(task, call_id), "tool_call_id": call_id}
    elif around:
        about |= {"tool_name": around[-1].tool_name, "tool_call_id": around[-1].tool_call_id}
    return about


def _call_json(node: ItemNode, item: ToolCall) -> Json:
    text = shown.arguments_json(node)
    about: Json = {"id": item.id, "call_id": item.call_id, "name": item.name, "status": item.status}
    if item.kind == "custom":
        return {"type": "custom_tool_call", **about, "input": text}
    return {"type": "function_call", **about, "arguments": text}


def _output_json(item: ToolResult, output: str) -> Json:
    about: Json = {"id": item.id, "call_id": item.call_id, "status": item.status}
    return {"type": "function_call_output", **about, "output": output}
