"""The UI message of a state, as a client of the AI SDK holds it.

Everything is made from the folded state alone. So it can be sent again at any time: to a client
that joins, after a pause, or after a lost attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter, itemgetter
from typing import Any

from tailrace.core.fold import State
from tailrace.core.items import Data, InputRequest, Message, Reasoning, ToolCall, ToolResult
from tailrace.core.run_object import show_task
from tailrace.core.state import ImageNode, ItemNode, Part, TaskNode, TextNode, WholeNode
from tailrace.core.values import Json
from tailrace.wire.base import DONE_FRAME, Frame
from tailrace.wire.projection import (
    Sources,
    arguments_of,
    is_client,
    is_complete,
    is_paused,
    limit_of,
    result_of,
    shown_parts,
    usage_of_run,
)
from tailrace.wire.vercel_ui import chunks
from tailrace.wire.vercel_ui.chunks import chunk, part_id

START_STEP = chunk("start-step")
RESET_STEP = chunk("reset-step")
_FINISH_STEP = chunk("finish-step")

_ABOUT_START = ("task_id", "thread_id", "previous_run_id", "agent", "model", "created_at")
_ABOUT_END = ("status", "reason")
_NOT_CALLED = "The run ended before this tool was called."
_NOT_ANSWERED = "The run ended before this tool did."
_FINISH_REASONS = {"length": "length", "content_filter": "content-filter", None: "other"}


class UiMessage:
    """Reads a state as chunks. The encoder folds events into the state."""

    __slots__ = ("sources", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self.sources = Sources(state, superseded=False)

    @property
    def root(self) -> TaskNode:
        """The task that the message shows. There must be a root task."""
        assert self.state.root is not None
        return self.state.root

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.state.root is not None and self.state.root.ended

    @property
    def is_paused(self) -> bool:
        """Whether the response has ended, while the run or its sub-agents wait for people.

        The page sends its approvals only if every other call of the message has an output, so a
        response with a running tool goes on. The output of a client's call needs no other.
        """
        root = self.state.root
        if root is None or root.status != "input_required":
            return is_paused(self.state)
        asks_client = any(waiting_call(root, request) for request in root.requests)
        return asks_client or is_paused(self.state)

    def is_inner(self, task: TaskNode, node: ItemNode) -> bool:
        """Whether an item is not part of the message: a sub-agent's, or a tool's result."""
        return task is not self.state.root or isinstance(node.item, ToolResult)

    # --- the whole -----------------------------------------------------------------------------

    def whole(self, step: Frame) -> list[Frame]:
        """A complete response so far, with its end if the run has ended or waits."""
        frames = [self.start(), step, *self.parts()]
        if self.is_over:
            frames += self.ending()
        elif self.is_paused:
            frames += self.pausing()
        return frames

    def start(self) -> Frame:
        """`start`; the message's id is the run's, unless the run's input is an assistant's message.

        Then the page has answered a call of that message, and the run continues it. With another
        id the SDK would show its parts twice.
        """
        root = self.root
        message_id: Any = root.task_id
        given = root.facts.get("input")
        if isinstance(given, dict) and given.get("role") == "assistant":
            message_id = given.get("id")
        if not isinstance(message_id, str):
            message_id = root.task_id
        return chunk("start", messageId=message_id, messageMetadata=_about(root, _ABOUT_START))

    def parts(self) -> list[Frame]:
        """Every part of the message in order of arrival, then the transient parts."""
        entries: list[tuple[int, list[Frame]]] = []
        transient: list[Frame] = []
        gone: set[str] = set()
        for task in self.state.tasks.values():
            if task.parent is not None:
                result = task.parent.call_results.get(task.call_id or "")
                if task.parent.task_id in gone or (result is not None and result.superseded):
                    gone.add(task.task_id)
                    continue
                entries.append((task.at, [chunks.task_part(task)]))
            for node in task.output():
                entries += self.item(task, node)
            transient += _transient(task)
        entries.sort(key=itemgetter(0))
        return [frame for _, frames in entries for frame in frames] + transient

    def ends(self) -> list[Frame]:
        """The ends of the texts that are still open."""
        frames: list[Frame] = []
        for node in self.root.output():
            if isinstance(node.item, Message):
                for index, part in node.parts.items():
                    if isinstance(part, TextNode) and part.is_open:
                        frames += self.text_end(node, index, part)
            elif isinstance(node.item, Reasoning):
                for index, text in shown_parts(node).items():
                    if text.is_open:
                        frames.append(reasoning_end(node, index))
        return frames

    def pausing(self) -> list[Frame]:
        """The run's requests for input, and the end of the response."""
        root = self.root
        frames = self.ends() + _for_later(root)
        shown: set[str | None] = set()  # the client takes a single approval for each call
        for task, request in self.state.requests():
            call_id = _call_asked_for(task, request)
            if _is_approval(root, request, call_id) and call_id not in shown:
                shown.add(call_id)
                why = {} if request.message is None else {"reason": request.message}
                about = {"approvalId": request.id, "toolCallId": call_id, **why}
                frames.append(chunk("tool-approval-request", **about))
            elif task is root and (call := waiting_call(root, request)) is not None:
                frames.append(chunks.tool_input(*_call_of(root, call)))
            else:
                frames.append(chunks.request_part(task, request))
        return [*frames, *self._finish(root, "tool-calls")]

    def ending(self) -> list[Frame]:
        """The end of the run, after the ends of the calls that have no result."""
        root = self.root
        frames: list[Frame] = []
        finish_reason = "stop"
        for node in sorted(root.output(), key=attrgetter("at")):
            if not isinstance(node.item, ToolCall) or not _waits(root, node):
                continue
            call, arguments = _call_of(root, node)
            if not is_client(call):
                frames.append(chunks.tool_failed(call, _NOT_ANSWERED))
            elif root.status == "completed":
                finish_reason = "tool-calls"
                frames.append(chunks.tool_input(call, arguments))
            else:
                frames.append(chunks.tool_cut(call, arguments, _NOT_CALLED))
        if root.structured_output is not None:
            ident = f"{root.task_id}/output"
            frames.append(chunk("data-output", id=ident, data=root.structured_output))
        if root.status == "incomplete":
            finish_reason = _FINISH_REASONS[limit_of(root.reason)]
        elif root.status != "completed":
            about = self._about_end(root)
            return [
                *frames,
                chunk("message-metadata", messageMetadata=about),
                _stop(root),
                DONE_FRAME,
            ]
        return [*frames, *self._finish(root, finish_reason)]

    def _about_end(self, root: TaskNode) -> Json:
        """The status, the reason and the usage of the run."""
        usage = usage_of_run(self.state)
        return {**_about(root, _ABOUT_END), **({} if usage is None else {"usage": usage})}

    def _finish(self, root: TaskNode, reason: str) -> list[Frame]:
        about = self._about_end(root)
        return [
            _FINISH_STEP,
            chunk("finish", finishReason=reason, messageMetadata=about),
            DONE_FRAME,
        ]

    # --- items and their parts -----------------------------------------------------------------

    def item(self, task: TaskNode, node: ItemNode) -> Iterator[tuple[int, list[Frame]]]:
        """The frames of an item so far, with the arrival of the part that they show."""
        item = node.item
        if task is not self.root:
            yield node.at, [chunks.task_item(task, node, transient=False)]
        elif isinstance(item, ToolCall):
            yield node.at, _call(task, node, item)
        elif isinstance(item, ToolResult):
            if node.is_open:
                yield node.at, [chunks.task_item(task, node, transient=True)]
            else:
                yield node.at, self.result(node, item)
        elif isinstance(item, Reasoning):
            for index, text in sorted(shown_parts(node).items()):
                yield text.at, reasoning(node, index, text)
        elif isinstance(item, Message):
            for index, part in sorted(node.parts.items()):
                yield part.at, self.block(task, node, index, part)

    def block(self, task: TaskNode, node: ItemNode, index: int, part: Part) -> list[Frame]:
        """A block of the message so far."""
        if isinstance(part, TextNode):
            frames = [chunks.text_start(node, index, part)]
            if part.text:
                frames.append(chunk("text-delta", id=part_id(node.id, index), delta=part.text))
            return frames if part.is_open else frames + self.text_end(node, index, part)
        if isinstance(part, WholeNode) and isinstance(part.block, Data):
            return [chunks.data_part(part_id(node.id, index), part.block)]
        if is_blank(part):
            return []
        if part.is_open:
            return [chunks.live_block(task, node, index, part)]
        return [chunks.file_part(part)]

    def text_end(self, node: ItemNode, index: int, part: TextNode) -> list[Frame]:
        """The end of a text with its citations."""
        return chunks.text_end(self.sources, self.root, node, index, part)

    def result(self, node: ItemNode, result: ToolResult) -> list[Frame]:
        """The result of a call. The client fails on a result without a call."""
        call = self.root.calls.get(result.call_id)
        if call is None:
            return []
        item, arguments = _call_of(self.root, call)
        frames = [chunks.tool_result(item, node, self.root.children)]
        if is_client(item):
            frames.insert(0, chunks.tool_input(item, arguments, is_answered=True))
        elif call.arguments is not None and arguments != call.arguments.text:
            # A person changed the arguments; the page may have those of the model.
            frames.insert(0, chunks.tool_input(item, arguments))
        return frames


def _about(root: TaskNode, names: tuple[str, ...]) -> Json:
    # The agent that began the run: the start is not sent again when another takes over.
    shown = show_task(root) | {"agent": root.facts.get("agent")}
    return {name: shown[name] for name in names if shown.get(name) is not None}


def _stop(root: TaskNode) -> Frame:
    if root.error is not None:
        return chunk("error", errorText=root.error.message or root.error.code)
    return chunk("abort", **({} if root.reason is None else {"reason": root.reason}))


def _transient(task: TaskNode) -> list[Frame]:
    """The agents, steps, notices and progress of a task."""
    frames = [chunks.compacted(task)] if task.compacted is not None else []
    frames += [chunks.agent(task, index) for index in range(len(task.switches))]
    frames += [chunks.step(task, index) for index in sorted(task.steps)]
    frames += [chunks.notice(task, index) for index in range(len(task.notices))]
    if task.progress:
        frames.append(chunks.progress(task, None, task.progress))
    for call_id, node in task.calls.items():
        if node.progress and not node.superseded:
            frames.append(chunks.progress(task, call_id, node.progress))
    return frames


# --- reasoning and images ------------------------------------------------------------------------


def reasoning(node: ItemNode, index: int, part: TextNode) -> list[Frame]:
    """A text of a reasoning so far."""
    ident = part_id(node.id, index)
    frames = [chunk("reasoning-start", id=ident)]
    if part.text:
        frames.append(chunk("reasoning-delta", id=ident, delta=part.text))
    return frames if part.is_open else [*frames, reasoning_end(node, index)]


def reasoning_end(node: ItemNode, index: int) -> Frame:
    """The end of a text of a reasoning."""
    return chunk("reasoning-end", id=part_id(node.id, index))


def is_blank(part: Part) -> bool:
    """Whether an image has no picture yet."""
    return isinstance(part, ImageNode) and not part.image.image_url.url


# --- calls ---------------------------------------------------------------------------------------


def _call_of(root: TaskNode, node: ItemNode) -> tuple[ToolCall, str]:
    assert isinstance(node.item, ToolCall)
    return node.item, arguments_of(root, node)


def _call(root: TaskNode, node: ItemNode, call: ToolCall) -> list[Frame]:
    """A call so far."""
    extra = chunks.tool_kind(call)
    if call.kind == "custom":
        extra["inputEncoding"] = "text"
    frames = [chunk("tool-input-start", **chunks.tool_fields(call), **extra)]
    done = [] if node.is_open else call_done(root, node)
    _, arguments = _call_of(root, node)
    if arguments and not done:
        about = {"toolCallId": call.call_id, "inputTextDelta": arguments}
        frames.append(chunk("tool-input-delta", **about))
    return frames + done


def call_done(root: TaskNode, node: ItemNode) -> list[Frame]:
    """The input of a complete call. A client's call waits until the run ends or asks for it."""
    call, arguments = _call_of(root, node)
    if call.status != "completed":
        return [chunks.tool_cut(call, arguments, "The call was cut short.")]
    return [] if is_client(call) else [chunks.tool_input(call, arguments)]


def _waits(root: TaskNode, node: ItemNode) -> bool:
    """Whether a complete call, which was not superseded, has no finished result."""
    result = result_of(root, node)
    return is_complete(node) and not node.superseded and (result is None or result.is_open)


def _call_asked_for(task: TaskNode, request: InputRequest) -> str | None:
    """The call of the message that a request is about: a sub-agent asks for the call it answers."""
    call_id = request.call_id
    while task.parent is not None:
        call_id, task = task.call_id, task.parent
    return call_id


def waiting_call(task: TaskNode, request: InputRequest) -> ItemNode | None:
    """The client's call whose result a request asks for; None for other requests."""
    node = task.calls.get(request.call_id or "")
    if request.kind != "input" or node is None or not is_client(node.item):
        return None
    return node


def _for_later(root: TaskNode) -> list[Frame]:
    """The client's calls that the run does not ask for yet: complete, but not to be carried out."""
    asked = [waiting_call(root, request) for request in root.requests]
    return [
        chunks.tool_input(*_call_of(root, node), is_answered=True)
        for node in root.calls.values()
        if is_client(node.item) and _waits(root, node) and node not in asked
    ]


def _is_approval(root: TaskNode, request: InputRequest, call_id: str | None) -> bool:
    """Whether the client can attach the request to a call."""
    node = root.calls.get(call_id or "")
    if request.kind != "approval" or node is None or not _waits(root, node):
        return False
    return not is_client(node.item)
