"""The Vercel AI SDK's UI message stream, which `useChat` reads.

The root task becomes a message. Its texts, reasoning, files and calls are the SDK's own parts.
Sub-agents are `data-task` and `data-task-item` parts beside them, never mixed into its text.

    persistent   start, text-*, reasoning-*, tool-*, file, source-*, data-<name>, data-output,
                 data-request, data-task (id: task_id), data-task-item (id: task_id/output_index)
    transient    data-delta, data-block (id: task_index/output_index/part): the content of a result
                 or a sub-agent's item while it is made; data-task-item of a result, data-step,
                 data-notice, data-progress, data-agent (who speaks now), data-history (the
                 summary of older turns)

Deltas are most of a stream, so they name their task by a number: 0 is the root (`task_id` of the
message's metadata), any other is the `task_index` of a `data-task` part. If several runs added to a
message, a number may occur twice: the last part counts.

Three decisions keep the stream correct:

* A run is a step of the message. `reset-step` removes a step's parts. After a lost worker
  (`task.attempt`) or a pause, the parts are sent again from the state.
* A client's call is announced when the run completes or asks for its result, and not earlier: then
  it cannot be superseded any more, so no tool runs twice or in vain.
* A run that waits for people ends its response: the SDK sends an approval only when no response is
  open and all other calls have an output. The answer begins the next response, with the same
  message id. A sub-agent's approval is asked at the call that the sub-agent answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from tailrace.core import events as ev
from tailrace.core.errors import CallerError
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.items import Reasoning, ToolCall, ToolResult
from tailrace.core.parts import DELTAS, PARTS
from tailrace.core.snapshot import fork
from tailrace.core.state import Part, TaskNode, TextNode
from tailrace.core.values import text_or_none
from tailrace.wire.base import DONE, Frame, ReplayFormat
from tailrace.wire.encoder import PausingEncoder
from tailrace.wire.projection import PART_EVENTS, shown_parts
from tailrace.wire.vercel_ui import chunks
from tailrace.wire.vercel_ui.chunks import chunk, encode_json, live_id, part_id
from tailrace.wire.vercel_ui.messages import ui_messages
from tailrace.wire.vercel_ui.object import (
    RESET_STEP,
    START_STEP,
    UiMessage,
    call_done,
    is_blank,
    reasoning,
    reasoning_end,
    waiting_call,
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
        return [*ends, chunk("error", errorText=reason), DONE]

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
        return call_done(node)
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


class UiFormat(ReplayFormat):
    """`vercel-ui`: for the AI SDK's `useChat`, `Chat` and `readUIMessageStream`."""

    name = "vercel-ui"
    headers: dict[str, str] = {"x-vercel-ai-ui-message-stream": "v1"}

    def at(self, state: State) -> UiEncoder:
        """An encoder for a client that has seen everything up to this state."""
        return UiEncoder(fork(state))

    def open(self, state: State) -> tuple[UiEncoder, list[Frame]]:
        """A replay in few chunks, with its end if the run has ended."""
        encoder = self.at(state)
        return encoder, encoder.opening()

    def reopen(self, state: State, answered: Collection[str] = ()) -> tuple[UiEncoder, list[Frame]]:
        """A replay for a client that answers requests: it continues the message it has.

        While the run waits for these answers, there is nothing to replay.
        """
        encoder = UiEncoder(fork(state), answered)
        return encoder, [] if encoder.waits else encoder.opening(RESET_STEP)

    def messages(self, chain: Sequence[State]) -> list[dict[str, Any]]:
        """The conversation as the `UIMessage[]` that `useChat` starts from."""
        return ui_messages(chain)


FORMAT = UiFormat()


def run_of(message: Any) -> str | None:
    """The run that wrote a UI message of the assistant; the last run, if several wrote it."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return None
    metadata = message.get("metadata")
    named = metadata.get("task_id") if isinstance(metadata, dict) else None
    # Pages may drop metadata. A message has the id of its first run (`UiMessage.start`).
    found = named if isinstance(named, str) else message.get("id")
    return text_or_none(found)


class _Approval(msgspec.Struct):
    """What `addToolApprovalResponse` writes into a call."""

    id: str
    approved: bool
    reason: str | None = None


def answers_of(message: Any) -> list[dict[str, Any]]:
    """The answers to requests that a page added to a UI message of the assistant."""
    parts = message.get("parts") or ()
    found = [part.get("approval") for part in parts if part.get("state") == "approval-responded"]
    try:
        approvals = msgspec.convert(found, list[_Approval])
    except msgspec.ValidationError as error:
        raise CallerError(
            f"An `approval` in `messages` is wrong: {error}.", param="messages"
        ) from error
    return [
        {"request_id": approval.id, "approved": approval.approved}
        | ({} if approval.reason is None else {"reason": approval.reason})
        for approval in approvals
    ]


def results_of(message: Any, state: State) -> list[dict[str, Any]] | None:
    """The results of client's calls that a page sends to the run which waits for them.

    Results that the run has already are left out. None if the run waits for no result of the page,
    because it ended with its calls: the next run takes the results.
    """
    root = state.root
    assert root is not None
    asked = {
        request.call_id: request.id
        for request in root.requests
        if waiting_call(root, request) is not None
    }
    found: list[dict[str, Any]] = []
    is_sent_again = False
    for part in message.get("parts") or ():
        call_id, how = text_or_none(part.get("toolCallId")), part.get("state")
        if how not in ("output-available", "output-error") or part.get("providerExecuted"):
            continue
        if call_id not in asked:
            is_sent_again |= call_id in root.call_results
        elif how == "output-available":
            found.append({"request_id": asked[call_id], "value": part.get("output")})
        else:
            reason = text_or_none(part.get("errorText"))
            found.append({"request_id": asked[call_id], "approved": False, "reason": reason})
    return found if found or is_sent_again else None
