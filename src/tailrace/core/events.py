"""Every event of a run, with its tag.

An event has a position and a piece, never the text so far. It reads no clock and makes no id: the
writer passes both. `sequence_number` is 0 until the writer records the event; only `recorded()`
sets it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from tailrace.core.items import (
    Annotation,
    ContentPart,
    Data,
    ErrorInfo,
    Fact,
    FactWithDefaults,
    File,
    Image,
    InputRequest,
    Item,
    Refusal,
    StepEnd,
    Text,
    Usage,
)


class Event(Fact, frozen=True, kw_only=True, tag_field="type"):
    """Base of all events: its task, and its place in the run's log."""

    task_id: str
    sequence_number: int = 0


class Timed(Event, frozen=True, kw_only=True):
    """Base of the events that begin or end something: `at` is when, in Unix seconds.

    Clocks differ, so the order of events is their `sequence_number` and never `at`. The fold
    keeps only the times of ends and pauses.
    """

    at: float | None = None


# --- the life of a task ------------------------------------------------------------------------


class TaskCreated(Event, frozen=True, kw_only=True, tag="task.created"):
    """A task exists. The first event of a run creates its root, whose `task_id` is the run's id.

    A child names its parent and the call that it answers. The run continues `previous_run_id`; with
    `previous_seq`, as that run was after this event. `reference_start` is the first number
    of the task's reference pool; earlier runs issued the numbers below it.
    """

    agent: str | None = None
    parent_task_id: str | None = None
    call_id: str | None = None
    thread_id: str | None = None
    previous_run_id: str | None = None
    previous_seq: int | None = None
    created_at: float | None = None
    model: str | None = None
    input: Any = None
    options: Any = None
    metadata: Any = None
    reference_start: int = 1


class TaskInProgress(Timed, frozen=True, kw_only=True, tag="task.in_progress"):
    """A worker has begun the task.

    `reference_start` replaces that of `task.created`, if the run that this run continues had not
    ended when this run was created.
    """

    reference_start: int | None = None


class TaskAttempt(Timed, frozen=True, kw_only=True, tag="task.attempt"):
    """The task continues with another worker, or after a cut provider stream.

    The items in `superseded` are made again: they stay in the log, and leave the object and the
    history. They include the finished items of a cut stream.
    """

    attempt: int
    reason: str
    superseded: list[str] = []


class TaskInputRequired(Timed, frozen=True, kw_only=True, tag="task.input_required"):
    """The task waits for people: approvals of calls, or values."""

    requests: list[InputRequest]


class TaskInputReceived(Timed, frozen=True, kw_only=True, tag="task.input_received"):
    """A request is answered. After the last answer the task is in progress again."""

    request_id: str
    approved: bool | None = None
    value: Any = None
    reason: str | None = None


class TaskCompleted(Timed, frozen=True, kw_only=True, tag="task.completed"):
    """The task has its answer. No event of this task follows."""


class TaskIncomplete(Timed, frozen=True, kw_only=True, tag="task.incomplete"):
    """The task ended without a full answer, e.g. `max_output_tokens`. No event of it follows."""

    reason: str


class TaskFailed(Timed, frozen=True, kw_only=True, tag="task.failed"):
    """The task ended with an error. No event of it follows."""

    error: ErrorInfo


class TaskCancelled(Timed, frozen=True, kw_only=True, tag="task.cancelled"):
    """The task was cancelled; its output stays. No event of it follows."""

    reason: str | None = None


class TaskUsage(Timed, frozen=True, kw_only=True, tag="task.usage"):
    """The usage of a model call of this task; tasks show the sum, with the tasks below them."""

    usage: Usage
    item_id: str | None = None


class StructuredOutputDone(Timed, frozen=True, kw_only=True, tag="task.structured_output.done"):
    """The task's answer as a JSON value, if its agent declares an output type."""

    value: Any
    name: str | None = None


class AgentSwitched(Timed, frozen=True, kw_only=True, tag="task.agent.switched"):
    """Another agent speaks from here on, in the same task and the same conversation."""

    agent: str
    reason: str | None = None


class HistoryCompacted(Timed, frozen=True, kw_only=True, tag="task.history.compacted"):
    """The model reads `summary` in place of the conversation up to the end of the run `run_id`."""

    summary: str
    run_id: str


class StepStarted(Timed, frozen=True, kw_only=True, tag="task.step.started"):
    """A named stage of the agent begins; steps nest."""

    step_index: int
    name: str


class StepFinished(Timed, frozen=True, kw_only=True, tag="task.step.finished"):
    """The innermost open step ends: completed, or left by an error, a cancel or a lost worker."""

    step_index: int
    status: StepEnd = "completed"


class Notice(Event, FactWithDefaults, frozen=True, kw_only=True, tag="task.notice"):
    """A message for the person who watches; the model never sees it."""

    message: str
    level: str = "info"
    call_id: str | None = None
    data: Any = None


class Progress(Event, frozen=True, kw_only=True, tag="task.progress"):
    """The progress of a call, or of the task. It replaces the progress before."""

    call_id: str | None = None
    message: str | None = None
    current: float | None = None
    total: float | None = None


class ToolCallStarted(Timed, frozen=True, kw_only=True, tag="task.tool_call.started"):
    """The tool of a finished call is about to run. The event is durable before the tool starts."""

    item_id: str
    output_index: int


class ReferenceImported(Event, frozen=True, kw_only=True, tag="task.reference.imported"):
    """A child's reference gets a number in this task's pool, so that this task can cite it."""

    reference_id: int
    source_task_id: str
    source_reference_id: int


class RawEvent(Event, frozen=True, kw_only=True, tag="task.raw"):
    """An unknown event of a provider, or unknown fields of an event; in the private part."""

    source: str
    event_type: str


# --- items -------------------------------------------------------------------------------------


class OutputItemAdded(Timed, frozen=True, kw_only=True, tag="task.output_item.added"):
    """An item begins, empty; `output_index` counts from 0 per task, without holes."""

    output_index: int
    item: Item


class OutputItemDone(Timed, frozen=True, kw_only=True, tag="task.output_item.done"):
    """The item is final. An absent list is the list that the events before it made."""

    output_index: int
    item: Item


class _OfItem(Event, frozen=True, kw_only=True):
    item_id: str
    output_index: int


class _TimedOfItem(Timed, frozen=True, kw_only=True):
    item_id: str
    output_index: int


class SummaryItemAdded(
    _TimedOfItem, frozen=True, kw_only=True, tag="task.reasoning_summary_item.added"
):
    """A part of a reasoning summary begins."""

    summary_index: int
    item: Text


class SummaryTextDelta(_OfItem, frozen=True, kw_only=True, tag="task.reasoning_summary_text.delta"):
    """Characters to append to an open summary part."""

    summary_index: int
    delta: str


class SummaryItemDone(
    _TimedOfItem, frozen=True, kw_only=True, tag="task.reasoning_summary_item.done"
):
    """A part of a reasoning summary is final."""

    summary_index: int
    item: Text


class ReasoningTextAdded(_TimedOfItem, frozen=True, kw_only=True, tag="task.reasoning_text.added"):
    """A part of the raw reasoning begins."""

    text_index: int
    item: Text


class ReasoningTextDelta(_OfItem, frozen=True, kw_only=True, tag="task.reasoning_text.delta"):
    """Characters to append to an open part of the raw reasoning."""

    text_index: int
    delta: str


class ReasoningTextDone(_TimedOfItem, frozen=True, kw_only=True, tag="task.reasoning_text.done"):
    """A part of the raw reasoning is final."""

    text_index: int
    item: Text


class ArgumentsDelta(_OfItem, frozen=True, kw_only=True, tag="task.tool_call_arguments.delta"):
    """Characters to append to a call's arguments; a delta may end inside an escape."""

    delta: str


class ArgumentsDone(_TimedOfItem, frozen=True, kw_only=True, tag="task.tool_call_arguments.done"):
    """A call's arguments are complete."""

    arguments: str


class _OfBlock(_OfItem, frozen=True, kw_only=True):
    block_index: int


class _TimedOfBlock(_TimedOfItem, frozen=True, kw_only=True):
    block_index: int


class TextAdded(_TimedOfBlock, frozen=True, kw_only=True, tag="task.text.added"):
    """A text block begins to stream."""

    item: Text


class TextDelta(_OfBlock, frozen=True, kw_only=True, tag="task.text.delta"):
    """Characters to append to an open text block.

    It never repeats the text so far. A reader that missed events reads the log from its cursor.
    """

    delta: str


class AnnotationAdded(_OfBlock, frozen=True, kw_only=True, tag="task.text.annotation.added"):
    """A citation in the text so far, while more text streams."""

    annotation_index: int
    annotation: Annotation


class TextDone(_TimedOfBlock, frozen=True, kw_only=True, tag="task.text.done"):
    """A text block is final; without `added`, it is a whole block."""

    item: Text


class ImageAdded(_TimedOfBlock, frozen=True, kw_only=True, tag="task.image.added"):
    """An image block begins; its URL may still be empty."""

    item: Image


class ImageDelta(_OfBlock, frozen=True, kw_only=True, tag="task.image.delta"):
    """A whole image that replaces the image before."""

    partial_image_index: int
    item: Image


class ImageDone(_TimedOfBlock, frozen=True, kw_only=True, tag="task.image.done"):
    """The image is final; without `added`, it is a whole block."""

    item: Image


class RefusalAdded(_TimedOfBlock, frozen=True, kw_only=True, tag="task.refusal.added"):
    """A refusal begins to stream."""

    item: Refusal


class RefusalDelta(_OfBlock, frozen=True, kw_only=True, tag="task.refusal.delta"):
    """Characters to append to an open refusal."""

    delta: str


class RefusalDone(_TimedOfBlock, frozen=True, kw_only=True, tag="task.refusal.done"):
    """A refusal is final; without `added`, it is a whole block."""

    item: Refusal


class DataDone(_TimedOfBlock, frozen=True, kw_only=True, tag="task.data.done"):
    """A block of JSON, whole."""

    item: Data


class FileDone(_TimedOfBlock, frozen=True, kw_only=True, tag="task.file.done"):
    """A file block, whole."""

    item: File


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """An event that this version does not know, with its bytes.

    It stays in the log and in the state, so that old and new versions read each other's logs.
    Encoders skip it.
    """

    task_id: str
    sequence_number: int
    type: str
    raw: bytes


KNOWN: tuple[type[Event], ...] = (
    TaskCreated,
    TaskInProgress,
    TaskAttempt,
    TaskInputRequired,
    TaskInputReceived,
    TaskCompleted,
    TaskIncomplete,
    TaskFailed,
    TaskCancelled,
    TaskUsage,
    StructuredOutputDone,
    AgentSwitched,
    HistoryCompacted,
    StepStarted,
    StepFinished,
    Notice,
    Progress,
    ToolCallStarted,
    ReferenceImported,
    RawEvent,
    OutputItemAdded,
    OutputItemDone,
    SummaryItemAdded,
    SummaryTextDelta,
    SummaryItemDone,
    ReasoningTextAdded,
    ReasoningTextDelta,
    ReasoningTextDone,
    ArgumentsDelta,
    ArgumentsDone,
    TextAdded,
    TextDelta,
    AnnotationAdded,
    TextDone,
    ImageAdded,
    ImageDelta,
    ImageDone,
    RefusalAdded,
    RefusalDelta,
    RefusalDone,
    DataDone,
    FileDone,
)
"""Every event class. Tests compare the schema, the codec and the fold's table with it."""

AnyEvent: TypeAlias = Event | Unknown

TIMED = frozenset(cls for cls in KNOWN if issubclass(cls, Timed))
"""The events that may have `at`."""

TERMINAL = (TaskCompleted, TaskIncomplete, TaskFailed, TaskCancelled)


class Private(Fact, frozen=True, kw_only=True):
    """The private part of an event: stored with the event, and in no wire format.

    `content` is the model's view of a tool result. `provider` has the provider's ids.
    `encrypted_content` and `signature` are its sealed reasoning. `options` are the run's private
    options. `raw` is a foreign event or item. `begun` and `waited` tell the time at work.
    """

    content: list[ContentPart] | None = None
    provider: dict[str, Any] | None = None
    encrypted_content: str | None = None
    signature: str | None = None
    options: Any = None
    raw: Any = None
    begun: dict[str, Any] | None = None
    waited: dict[str, Any] | None = None


def recorded(event: Event, sequence_number: int) -> Event:
    """The same event with its place in the log."""
    return msgspec.structs.replace(event, sequence_number=sequence_number)


def timed(event: Event, now: float) -> Event:
    """The same event with the time at which it is emitted, unless it has a time already."""
    if not isinstance(event, Timed) or event.at is not None:
        return event
    return msgspec.structs.replace(event, at=round(now, 3))


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event of a log: the event, its public bytes, and the epoch of its writer.

    It has no private part, so that code for clients cannot leak it.
    """

    event: AnyEvent
    public: bytes
    epoch: int = 1


def is_end(recorded: Recorded, run_id: str) -> bool:
    """Whether this event ends the run: no event follows the end of its root task."""
    return isinstance(recorded.event, TERMINAL) and recorded.event.task_id == run_id
