"""The run envelope: `{type, threadId, runId, data}` under named events, for `addEventListener`.

    run.started  run.finished  run.error            exactly one of the last two, at the end
    step.start   step.finish                        nested
    text.start   text.delta    text.end             one message of the root task
    tool.start   tool.args     tool.end  tool.result
    run.gap                                         not of the run: a part of it is no longer kept

Only the root task speaks: a sub-agent's text never mixes into `text.*`, its last message is the
summary of the `tool.result` that it answers. `text.end` carries what is known of its message only
afterwards, the structured output and the usage; so it is held back until the task moves on
(`TaskNode.settling`): the next item, a step, a pause or the end.

Nothing that was told is taken back: a message that a lost attempt left behind ends as `failed`, and
the next one follows. A frame's id is a cursor: `seq` after an event's last frame, `seq.k` after its
k-th one, and `seq.ok` after the k-th of `open` at the state after that event.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from tailrace.core import events as ev
from tailrace.core import sse
from tailrace.core.errors import InvalidCursor
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.items import Message, ToolCall, ToolResult
from tailrace.core.snapshot import fork
from tailrace.core.state import ItemNode, TaskNode, TextNode
from tailrace.wire import run_outputs as outputs
from tailrace.wire.base import RETRY_MS, Cursor, Frame, whole_number
from tailrace.wire.usage import usage_of_run

WORKER = "worker"
"""The stage where no step says otherwise."""

OPENING = 1 << 32
"""Added to the number of a frame of `open`, to tell its cursor from one inside an event."""

_TEXTS = (ev.TextAdded, ev.TextDelta, ev.TextDone, ev.RefusalAdded, ev.RefusalDelta, ev.RefusalDone)
_json = msgspec.json.Encoder().encode


class Told(NamedTuple):
    """One event of the envelope."""

    type: str
    data: dict[str, Any]


class RunEncoder:
    """The frames of one run, event by event; it folds along."""

    __slots__ = ("_ids", "_state")

    def __init__(self, state: State, ids: bytes = b"") -> None:
        """Ready for the event after `state`, which it takes over; `ids` stands before every id."""
        self._state = state
        self._ids = ids

    def encode(self, recorded: Recorded) -> list[Frame]:
        """The frames of the next event."""
        return self._frames(self.tell(recorded), b".")

    def close(self, reason: str) -> list[Frame]:
        """Nothing: whoever is cut asks again with its cursor."""
        return []

    def names(self) -> tuple[str, str]:
        """The ids of the thread and the run; a run without a thread is one by itself."""
        root = self._state.root
        if root is None:
            return "", ""
        return str(root.facts.get("thread_id", root.task_id)), root.task_id

    def tell(self, recorded: Recorded) -> list[Told]:
        """What the next event says, without frames."""
        state, event = self._state, recorded.event
        root = state.root
        stage = _stage(root)
        waiting = _waiting(root)
        cut = _open_nodes(root) if isinstance(event, ev.TERMINAL) else []
        fitted = state.absorb(event)
        told = [Told("run.started", {})] if root is None and state.root is not None else []
        root = state.root
        if not fitted or root is None or event.task_id != root.task_id:
            return told
        if waiting is not None and root.settling != waiting.output_index:
            told.append(_text_end(state, root, waiting, stage))
        if isinstance(event, ev.TERMINAL):
            for node in cut:
                told += _done(root, node, stage)
                if isinstance(node.item, Message):
                    told.append(_text_end(state, root, node, stage))
            told.append(_end(state, root, told))
        elif isinstance(event, _TEXTS):
            told += _text(root, event, stage, state.position)
        elif isinstance(event, ev.OutputItemAdded):
            told += _added(root.items[event.output_index], stage)
        elif isinstance(event, ev.OutputItemDone):
            node = root.items[event.output_index]
            if node.at == state.position:
                told += _added(node, stage)
            else:
                told += _late_texts(node, stage, state.position)
            told += _done(root, node, stage)
        elif isinstance(event, ev.StepStarted | ev.StepFinished):
            name = "step.start" if isinstance(event, ev.StepStarted) else "step.finish"
            told.append(Told(name, {"stepName": root.steps[event.step_index].name}))
        return told

    def opening(self) -> list[Frame]:
        """What brings an empty client here."""
        return self._frames(self.retell(), b".o")

    def retell(self) -> list[Told]:
        """The state in few events; what was superseded, and steps that are over, are left out."""
        root = self._state.root
        if root is None:
            return []
        told = [Told("run.started", {})]
        stage, waiting = _stage(root), _waiting(root)
        open_steps = [step for _, step in sorted(root.steps.items()) if step.is_open]
        nodes = sorted(root.output(), key=lambda node: node.at)
        for node in nodes:
            if not node.is_open and node is not waiting:
                told += [*_added(node, WORKER), *_done(root, node, WORKER)]
                if isinstance(node.item, Message):
                    told.append(_text_end(self._state, root, node, WORKER))
        told += [Told("step.start", {"stepName": step.name}) for step in open_steps]
        for node in nodes:
            if node.is_open or node is waiting:
                told += _added(node, stage)
        if root.ended:
            told.append(_end(self._state, root, told))
        return told

    def gap(self, reason: str) -> Frame:
        """Says that a part of the log is not to be had.

        It is no cursor where the state follows: who is cut in between needs that state.
        """
        ident = None if self._state.root is not None else self._ids.decode() + "0"
        return self._frame(Told("run.gap", {"reason": reason}), ident)

    def _frames(self, told: list[Told], inside: bytes) -> list[Frame]:
        last = len(told)
        place = self._ids + b"%d" % self._state.sequence_number
        return [
            self._frame(one, (place if k == last else b"%b%b%d" % (place, inside, k)).decode())
            for k, one in enumerate(told, 1)
        ]

    def _frame(self, told: Told, ident: str | None) -> Frame:
        thread_id, run_id = self.names()
        body = {"type": told.type, "threadId": thread_id, "runId": run_id, "data": told.data}
        return sse.frame(_json(body), event=told.type, id=ident)


# --- what the parts of a run become ---------------------------------------------------------------


def _stage(root: TaskNode | None) -> str:
    names = [step.name for step in root.steps.values() if step.is_open] if root else []
    return names[-1] if names else WORKER


def _waiting(root: TaskNode | None) -> ItemNode | None:
    """The message whose end is held back."""
    node = root.items.get(root.settling) if root and root.settling is not None else None
    return node if node is not None and isinstance(node.item, Message) else None


def _open_nodes(root: TaskNode | None) -> list[ItemNode]:
    return [node for _, node in sorted(root.items.items()) if node.is_open] if root else []


def _added(node: ItemNode, stage: str) -> list[Told]:
    """An item as far as it is, except for its end."""
    item = node.item
    if isinstance(item, Message):
        start = Told("text.start", {"messageId": item.id, "role": item.role, "stage": stage})
        text = outputs.text_of(node)
        return [start, _delta(node, text, stage)] if text else [start]
    if isinstance(item, ToolCall):
        return [Told("tool.start", {**_call(node, item), "stage": stage})]
    return []


def _text(root: TaskNode, event: Any, stage: str, position: int) -> list[Told]:
    """A text block of a message: its piece, or all of it when it came whole."""
    node = root.items[event.output_index]
    if not isinstance(node.item, Message):
        return []
    if isinstance(event, ev.TextDelta | ev.RefusalDelta):
        return [_delta(node, event.delta, stage)]
    part = node.parts[event.block_index]
    is_new = isinstance(part, TextNode) and part.at == position
    return [_delta(node, part.text, stage)] if is_new and part.text else []  # type: ignore[union-attr]


def _late_texts(node: ItemNode, stage: str, position: int) -> list[Told]:
    """The texts of a message that came with its end and not before."""
    if not isinstance(node.item, Message):
        return []
    texts = [
        part.text
        for _, part in sorted(node.parts.items())
        if isinstance(part, TextNode) and part.at == position
    ]
    return [_delta(node, "".join(texts), stage)] if any(texts) else []


def _delta(node: ItemNode, text: str, stage: str) -> Told:
    return Told("text.delta", {"messageId": node.id, "delta": text, "stage": stage})


def _done(root: TaskNode, node: ItemNode, stage: str) -> list[Told]:
    """The end of a call or a result; that of a message is held back."""
    item = node.item
    if isinstance(item, ToolCall):
        call = _call(node, item)
        return [
            Told("tool.args", {**call, "args": outputs.arguments_of(node), "stage": stage}),
            Told("tool.end", {**call, "stage": stage}),
        ]
    if isinstance(item, ToolResult):
        call_node = root.calls.get(item.call_id)
        call = _call(call_node or node, call_node.item if call_node else item)
        output = outputs.tool_output(root, node, item)
        return [Told("tool.result", {**call, "stage": stage, "toolAgentOutput": output})]
    return []


def _call(node: ItemNode, item: Any) -> dict[str, Any]:
    name = item.name if isinstance(item, ToolCall) else ""
    return {"messageId": node.id, "toolCallId": item.call_id, "toolName": name}


def _text_end(state: State, root: TaskNode, node: ItemNode, stage: str) -> Told:
    data = {
        "messageId": node.id,
        "role": getattr(node.item, "role", "assistant"),
        "stage": stage,
        "workerAgentOutput": outputs.worker_output(root, node),
        **outputs.usage_of(state, root),
    }
    return Told("text.end", data)


def _end(state: State, root: TaskNode, told: list[Told]) -> Told:
    """The run's end, with its usage unless a `text.end` right before it has that."""
    usage: dict[str, Any] = {}
    if usage_of_run(state) is not None and not any(one.type == "text.end" for one in told):
        usage = outputs.usage_of(state, root)
    if root.status == "completed":
        return Told("run.finished", usage)
    if root.status == "incomplete":
        return Told("run.finished", {"status": "incomplete", "reason": root.reason, **usage})
    return Told("run.error", {"message": outputs.failure_of(root)["message"], **usage})


# --- the format -----------------------------------------------------------------------------------


class RunFormat:
    """`run`: named events in one envelope."""

    name = "run"
    headers: dict[str, str] = {}
    resumable = True
    stateful = True
    shows_attempts = True
    heartbeat: Frame = sse.comment("ping")
    _ids = b""

    def preamble(self, retry_ms: int = RETRY_MS) -> bytes:
        """How long clients wait before they connect again."""
        return sse.retry(retry_ms)

    def at(self, state: State) -> RunEncoder:
        """An encoder for a client that has seen everything so far."""
        return RunEncoder(fork(state), self._ids)

    def open(self, state: State, epoch: int = 1) -> tuple[RunEncoder, list[Frame]]:
        """A replay in few frames."""
        encoder = self.at(state)
        return encoder, encoder.opening()

    def gap(self, state: State, epoch: int, reason: str) -> Frame:
        """`run.gap`, which is not of the run."""
        return self.at(state).gap(reason)

    def in_thread(self, ordinal: int) -> RunInThread:
        """The same frames with a thread's cursors."""
        return RunInThread(ordinal)

    def resume(
        self, before: State, recorded: Recorded, cursor: Cursor
    ) -> tuple[RunEncoder, list[Frame]]:
        """Go on inside an event, or inside the frames of `open` after it."""
        encoder = self.at(before)
        frames = encoder.encode(recorded)
        told = cursor.sub or 0
        if told > OPENING:
            frames, told = encoder.opening(), told - OPENING
        if told >= len(frames):  # the id of the last frame has no `.k`
            raise InvalidCursor(f"Event {cursor.seq} has only {len(frames)} frames.")
        return encoder, frames[told:]

    def cursor(self, text: str) -> Cursor:
        """`seq`, `seq.k` or `seq.ok`."""
        seq, dot, inside = text.partition(".")
        if not dot:
            return Cursor(whole_number(seq))
        offset = OPENING if inside.startswith("o") else 0
        sub = whole_number(inside.removeprefix("o"))
        if not 0 < sub < OPENING or seq == "0":
            raise InvalidCursor(f"{text[:40]!r} is no cursor; send the last id that you received.")
        return Cursor(whole_number(seq), sub=sub + offset)


class RunInThread(RunFormat):
    """The run of one number in its thread: ids begin with `ordinal:`."""

    name = "run in thread"

    def __init__(self, ordinal: int) -> None:
        self._ids = b"%d:" % ordinal

    def preamble(self, retry_ms: int = RETRY_MS) -> bytes:
        """Nothing: the thread's stream has sent it."""
        return b""


FORMAT = RunFormat()
