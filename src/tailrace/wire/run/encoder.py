"""Encodes a run as the events of the envelope: the root task, live and replayed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from tailrace.core import events as ev
from tailrace.core import sse
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.items import Message, ToolCall, ToolResult
from tailrace.core.parts import PARTS
from tailrace.core.state import ItemNode, TaskNode, TextNode
from tailrace.wire.base import Frame, frame_pieces
from tailrace.wire.encoder import RootEncoder
from tailrace.wire.frame_cursors import frame_ids
from tailrace.wire.projection import usage_of_run
from tailrace.wire.run import outputs

WORKER = "worker"
"""The stage outside of any step."""

_TEXTS = tuple(kind for kind, place in PARTS.items() if place.kind in ("text", "refusal"))
_json = msgspec.json.Encoder().encode


class RunEvent(NamedTuple):
    """An event of the envelope."""

    type: str
    data: dict[str, Any]


class RunEncoder(RootEncoder[RunEvent]):
    """Encodes the events of a run."""

    __slots__ = ("_cut", "_ids", "_stage", "_waiting")

    def __init__(self, state: State, ids: bytes = b"") -> None:
        """Ready for the event after `state`, which it takes over; every id begins with `ids`."""
        super().__init__(state)
        self._ids = ids
        self._task_id = state.root.task_id if state.root is not None else None

    def encode(self, recorded: Recorded) -> list[Frame]:
        """The frames of the next event."""
        return self._frames(self.changes(recorded), recorded.epoch)

    def close(self, reason: str) -> list[Frame]:
        """Nothing: the client reconnects with its cursor."""
        return []

    def names(self) -> tuple[str, str]:
        """The ids of the thread and the run; a run without a thread is its own thread."""
        root = self._state.root
        if root is None:
            return "", ""
        return str(root.facts.get("thread_id", root.task_id)), root.task_id

    def changes(self, recorded: Recorded) -> list[RunEvent]:
        """The envelope events of the next event, without frames."""
        return self._fold(recorded.event)

    def _before(self, event: Any) -> None:
        root = self._state.root
        self._stage = _stage(root)
        self._waiting = _waiting(root)
        self._cut = _open_nodes(root) if isinstance(event, ev.TERMINAL) else []

    def _started(self, root: TaskNode) -> list[RunEvent]:
        return [RunEvent("run.started", {})]

    def _changed(self, root: TaskNode, event: Any) -> list[RunEvent]:
        state, stage, waiting = self._state, self._stage, self._waiting
        sent: list[RunEvent] = []
        if waiting is not None and root.settling != waiting.output_index:
            sent.append(_text_end(state, root, waiting, stage))
        if isinstance(event, ev.TERMINAL):
            for node in self._cut:
                sent += _done(root, node, stage)
                if isinstance(node.item, Message):
                    sent.append(_text_end(state, root, node, stage))
            sent.append(_end(state, root, sent))
        elif isinstance(event, _TEXTS):
            sent += _text(root, event, stage, state.position)
        elif isinstance(event, ev.OutputItemAdded):
            sent += _added(root.items[event.output_index], stage)
        elif isinstance(event, ev.OutputItemDone):
            node = root.items[event.output_index]
            if node.at == state.position:
                sent += _added(node, stage)
            else:
                sent += _late_texts(node, stage, state.position)
            sent += _done(root, node, stage)
        elif isinstance(event, ev.StepStarted | ev.StepFinished):
            sent.append(_step(root, event))
        elif isinstance(event, ev.AgentSwitched):
            sent += _speaker(root)
        return sent

    def opening(self, epoch: int) -> list[Frame]:
        """The frames that bring an empty client to the state."""
        return self._frames(self.replayed(), epoch, opening=True)

    def opening_in_pieces(self, epoch: int) -> Iterator[bytes]:
        """The bytes of `opening`. Frames that repeat a long text share the bytes of the text."""
        sent, known = self.replayed(), dict[bytes, bytes]()
        ids = frame_ids(self._ids, epoch, self._state.sequence_number, len(sent), opening=True)
        for event, ident in zip(sent, ids, strict=False):
            yield from frame_pieces(self._body(event), known, event=event.type, id=ident)

    def replayed(self) -> list[RunEvent]:
        """The state in few events, without superseded items and finished steps."""
        root = self._state.root
        if root is None:
            return []
        sent = [RunEvent("run.started", {}), *_speaker(root)]
        stage, waiting = _stage(root), _waiting(root)
        open_steps = [step for _, step in sorted(root.steps.items()) if step.is_open]
        nodes = sorted(root.output(), key=lambda node: node.at)
        for node in nodes:
            if not node.is_open and node is not waiting:
                sent += [*_added(node, WORKER), *_done(root, node, WORKER)]
                if isinstance(node.item, Message):
                    sent.append(_text_end(self._state, root, node, WORKER))
        sent += [RunEvent("step.start", {"stepName": step.name}) for step in open_steps]
        for node in nodes:
            if node.is_open or node is waiting:
                sent += _added(node, stage)
        if root.ended:
            sent.append(_end(self._state, root, sent))
        return sent

    def gap(self, reason: str, thread_id: str) -> Frame:
        """`run.gap`, without an id where the state follows.

        A client that is cut before the state must not resume behind it.
        """
        event = RunEvent("run.gap", {"reason": reason})
        if self._state.root is not None:
            return self._frame(event, None)
        body = {**self._body(event), "threadId": thread_id}
        return sse.frame(_json(body), event=event.type, id=self._ids.decode() + "0")

    def _frames(self, sent: list[RunEvent], epoch: int, *, opening: bool = False) -> list[Frame]:
        seq = self._state.sequence_number
        ids = frame_ids(self._ids, epoch, seq, len(sent), opening=opening)
        return [self._frame(event, ident) for event, ident in zip(sent, ids, strict=False)]

    def _frame(self, event: RunEvent, ident: str | None) -> Frame:
        return sse.frame(_json(self._body(event)), event=event.type, id=ident)

    def _body(self, event: RunEvent) -> dict[str, Any]:
        thread_id, run_id = self.names()
        return {"type": event.type, "threadId": thread_id, "runId": run_id, "data": event.data}


# --- items and steps ------------------------------------------------------------------------------


def _stage(root: TaskNode | None) -> str:
    names = [step.name for step in root.steps.values() if step.is_open] if root else []
    return names[-1] if names else WORKER


def _step(root: TaskNode, event: ev.StepStarted | ev.StepFinished) -> RunEvent:
    step = root.steps[event.step_index]
    data = {"stepName": step.name}
    if step.status == "incomplete":
        data["status"] = "incomplete"
    return RunEvent("step.start" if step.is_open else "step.finish", data)


def _waiting(root: TaskNode | None) -> ItemNode | None:
    """The message whose `text.end` waits."""
    node = root.items.get(root.settling) if root and root.settling is not None else None
    return node if node is not None and isinstance(node.item, Message) else None


def _open_nodes(root: TaskNode | None) -> list[ItemNode]:
    return [node for _, node in sorted(root.items.items()) if node.is_open] if root else []


def _speaker(root: TaskNode) -> list[RunEvent]:
    """The last switch of the agent, if there was one."""
    return [
        RunEvent("agent.switched", {"agent": last["agent"], "reason": last.get("reason")})
        for last in root.switches[-1:]
    ]


def _added(node: ItemNode, stage: str) -> list[RunEvent]:
    """The frames of an item so far, except for its end."""
    item = node.item
    if isinstance(item, Message):
        start = RunEvent("text.start", {"messageId": item.id, "role": item.role, "stage": stage})
        text = outputs.item_text(node)
        return [start, _delta(node, text, stage)] if text else [start]
    if isinstance(item, ToolCall):
        return [RunEvent("tool.start", {**_call(node, item), "stage": stage})]
    return []


def _text(root: TaskNode, event: Any, stage: str, position: int) -> list[RunEvent]:
    """The delta of a text block, or the whole text if the block came with it."""
    node = root.items[event.output_index]
    if not isinstance(node.item, Message):
        return []
    if isinstance(event, ev.TextDelta | ev.RefusalDelta):
        return [_delta(node, event.delta, stage)]
    part = node.parts[event.block_index]
    is_new = isinstance(part, TextNode) and part.at == position
    return [_delta(node, part.text, stage)] if is_new and part.text else []  # type: ignore[union-attr]


def _late_texts(node: ItemNode, stage: str, position: int) -> list[RunEvent]:
    """The texts of a message that came only with its end."""
    if not isinstance(node.item, Message):
        return []
    texts = [
        part.text
        for _, part in sorted(node.parts.items())
        if isinstance(part, TextNode) and part.at == position
    ]
    return [_delta(node, "".join(texts), stage)] if any(texts) else []


def _delta(node: ItemNode, text: str, stage: str) -> RunEvent:
    return RunEvent("text.delta", {"messageId": node.id, "delta": text, "stage": stage})


def _done(root: TaskNode, node: ItemNode, stage: str) -> list[RunEvent]:
    """The end of a call or a result; a message ends with `text.end`."""
    item = node.item
    if isinstance(item, ToolCall):
        call = _call(node, item)
        return [
            RunEvent(
                "tool.args", {**call, "args": outputs.arguments_object(root, node), "stage": stage}
            ),
            RunEvent("tool.end", {**call, "stage": stage}),
        ]
    if isinstance(item, ToolResult):
        call_node = root.calls.get(item.call_id)
        call = _call(call_node or node, call_node.item if call_node else item)
        output = outputs.tool_agent_output(root, node, item)
        return [RunEvent("tool.result", {**call, "stage": stage, "toolAgentOutput": output})]
    return []


def _call(node: ItemNode, item: Any) -> dict[str, Any]:
    name = item.name if isinstance(item, ToolCall) else ""
    return {"messageId": node.id, "toolCallId": item.call_id, "toolName": name}


def _text_end(state: State, root: TaskNode, node: ItemNode, stage: str) -> RunEvent:
    data = {
        "messageId": node.id,
        "role": getattr(node.item, "role", "assistant"),
        "stage": stage,
        "workerAgentOutput": outputs.worker_output(root, node),
        **outputs.usage_of(state, root),
    }
    return RunEvent("text.end", data)


def _end(state: State, root: TaskNode, sent: list[RunEvent]) -> RunEvent:
    """The run's end, with its usage unless a `text.end` right before it has the usage."""
    usage: dict[str, Any] = {}
    if usage_of_run(state) is not None and not any(event.type == "text.end" for event in sent):
        usage = outputs.usage_of(state, root)
    if root.status == "completed":
        return RunEvent("run.finished", usage)
    if root.status == "incomplete":
        return RunEvent("run.finished", {"status": "incomplete", "reason": root.reason, **usage})
    return RunEvent("run.error", {"message": outputs.failure_of(root)["message"], **usage})
