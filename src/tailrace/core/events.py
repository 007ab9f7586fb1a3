"""Every event of a run, its tag beside its class.

An event is a position and a piece, never the text so far. It carries no clock and mints no id:
both are handed in by whoever writes it. `sequence_number` is 0 until the writer records the event;
`recorded()` is the only place that sets it.
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
    File,
    Image,
    InputRequest,
    Item,
    Refusal,
    Text,
    Usage,
    Worded,
)


class Event(Fact, frozen=True, kw_only=True, tag_field="type"):
    """Base of all events: which task it belongs to, and its place in the run's log."""

    task_id: str
    sequence_number: int = 0


# --- the life of a task ------------------------------------------------------------------------


class TaskCreated(Event, frozen=True, kw_only=True, tag="task.created"):
    """A task exists. The first event of a run creates its root, whose `task_id` is the run's id.

    A child names its parent and the call that it answers; `reference_start` is the first number
    that the task's reference pool may issue, because earlier turns own the ones below it.
    """

    agent: str | None = None
    parent_task_id: str | None = None
    call_id: str | None = None
    thread_id: str | None = None
    previous_run_id: str | None = None
    created_at: float | None = None
    model: str | None = None
    input: Any = None
    options: Any = None
    metadata: Any = None
    reference_start: int = 1


class TaskInProgress(Event, frozen=True, kw_only=True, tag="task.in_progress"):
    """A worker has begun the task."""


class TaskAttempt(Event, frozen=True, kw_only=True, tag="task.attempt"):
    """The task goes on after a lost worker or a broken provider stream.

    The items named in `superseded` are made again: they stay in the log, and leave the object and
    the history. A broken stream's finished items are named as well as those that were cut short.
    """

    attempt: int
    reason: str
    superseded: list[str] = []


class TaskInputRequired(Event, frozen=True, kw_only=True, tag="task.input_required"):
    """The task waits for people: approvals of calls, or values."""

    requests: list[InputRequest]


class TaskInputReceived(Event, frozen=True, kw_only=True, tag="task.input_received"):
    """One request was answered; when the last one is, the task is in progress again."""

    request_id: str
    approved: bool | None = None
    value: Any = None
    reason: str | None = None


class TaskCompleted(Event, frozen=True, kw_only=True, tag="task.completed"):
    """The task has its answer. Nothing of this task follows."""


class TaskIncomplete(Event, frozen=True, kw_only=True, tag="task.incomplete"):
    """The task ended short of an answer, e.g. `max_output_tokens`. Nothing of it follows."""

    reason: str


class TaskFailed(Event, frozen=True, kw_only=True, tag="task.failed"):
    """The task ended with an error. Nothing of it follows."""

    error: ErrorInfo


class TaskCancelled(Event, frozen=True, kw_only=True, tag="task.cancelled"):
    """Somebody stopped the task; what it had put out is kept. Nothing of it follows."""

    reason: str | None = None


class TaskUsage(Event, frozen=True, kw_only=True, tag="task.usage"):
    """What one model call of this task used; the object shows the sum."""

    usage: Usage
    item_id: str | None = None


class StructuredOutputDone(Event, frozen=True, kw_only=True, tag="task.structured_output.done"):
    """The task's answer as a JSON value, when its agent declares an output type."""

    value: Any
    name: str | None = None


class StepStarted(Event, frozen=True, kw_only=True, tag="task.step.started"):
    """A named stage of the agent begins; steps nest."""

    step_index: int
    name: str


class StepFinished(Event, frozen=True, kw_only=True, tag="task.step.finished"):
    """The innermost open step ends."""

    step_index: int


class Notice(Event, Worded, frozen=True, kw_only=True, tag="task.notice"):
    """Something worth telling the person who watches; the model never sees it."""

    message: str
    level: str = "info"
    call_id: str | None = None
    data: Any = None


class Progress(Event, frozen=True, kw_only=True, tag="task.progress"):
    """How far a call, or the task itself, has come. Each one replaces the one before."""

    call_id: str | None = None
    message: str | None = None
    current: float | None = None
    total: float | None = None


class ToolCallStarted(Event, frozen=True, kw_only=True, tag="task.tool_call.started"):
    """The tool of a finished call is about to run: durable before the tool's first line."""

    item_id: str
    output_index: int


class ReferenceImported(Event, frozen=True, kw_only=True, tag="task.reference.imported"):
    """A child's reference gets a number in this task's pool, so that it can be cited here."""

    reference_id: int
    source_task_id: str
    source_reference_id: int


class RawEvent(Event, frozen=True, kw_only=True, tag="task.raw"):
    """A provider's event, or the fields of one, that have no name here: the private part."""

    source: str
    event_type: str


# --- items -------------------------------------------------------------------------------------


class OutputItemAdded(Event, frozen=True, kw_only=True, tag="task.output_item.added"):
    """An item begins, empty; `output_index` counts from 0 per task, no holes."""

    output_index: int
    item: Item


class OutputItemDone(Event, frozen=True, kw_only=True, tag="task.output_item.done"):
    """The item is final. A list that is left out is the one that the events before it made."""

    output_index: int
    item: Item


class _OfItem(Event, frozen=True, kw_only=True):
    item_id: str
    output_index: int


class SummaryItemAdded(_OfItem, frozen=True, kw_only=True, tag="task.reasoning_summary_item.added"):
    """A part of a reasoning summary begins."""

    summary_index: int
    item: Text


class SummaryTextDelta(_OfItem, frozen=True, kw_only=True, tag="task.reasoning_summary_text.delta"):
    """Characters to append to one open summary part."""

    summary_index: int
    delta: str


class SummaryItemDone(_OfItem, frozen=True, kw_only=True, tag="task.reasoning_summary_item.done"):
    """A part of a reasoning summary is final."""

    summary_index: int
    item: Text


class ReasoningTextAdded(_OfItem, frozen=True, kw_only=True, tag="task.reasoning_text.added"):
    """A part of the raw reasoning begins."""

    text_index: int
    item: Text


class ReasoningTextDelta(_OfItem, frozen=True, kw_only=True, tag="task.reasoning_text.delta"):
    """Characters to append to one open part of the raw reasoning."""

    text_index: int
    delta: str


class ReasoningTextDone(_OfItem, frozen=True, kw_only=True, tag="task.reasoning_text.done"):
    """A part of the raw reasoning is final."""

    text_index: int
    item: Text


class ArgumentsDelta(_OfItem, frozen=True, kw_only=True, tag="task.tool_call_arguments.delta"):
    """Characters to append to a call's arguments; may split anywhere, even inside an escape."""

    delta: str


class ArgumentsDone(_OfItem, frozen=True, kw_only=True, tag="task.tool_call_arguments.done"):
    """A call's arguments are whole."""

    arguments: str


class _OfBlock(_OfItem, frozen=True, kw_only=True):
    block_index: int


class TextAdded(_OfBlock, frozen=True, kw_only=True, tag="task.text.added"):
    """A text block begins to stream."""

    item: Text


class TextDelta(_OfBlock, frozen=True, kw_only=True, tag="task.text.delta"):
    """Characters to append to one open text block.

    A position and a piece, never the text so far: a reader that missed frames asks the log again
    from its cursor instead of guessing.
    """

    delta: str


class AnnotationAdded(_OfBlock, frozen=True, kw_only=True, tag="task.text.annotation.added"):
    """A citation within the text that is already there, while more of it streams."""

    annotation_index: int
    annotation: Annotation


class TextDone(_OfBlock, frozen=True, kw_only=True, tag="task.text.done"):
    """A text block is final; alone, without `added`, it is a whole short block."""

    item: Text


class ImageAdded(_OfBlock, frozen=True, kw_only=True, tag="task.image.added"):
    """An image block begins; its URL may still be empty."""

    item: Image


class ImageDelta(_OfBlock, frozen=True, kw_only=True, tag="task.image.delta"):
    """A whole image, better than the one before, which it replaces."""

    partial_image_index: int
    item: Image


class ImageDone(_OfBlock, frozen=True, kw_only=True, tag="task.image.done"):
    """The image is final; alone, without `added`, it is a whole block."""

    item: Image


class RefusalAdded(_OfBlock, frozen=True, kw_only=True, tag="task.refusal.added"):
    """A refusal begins to stream."""

    item: Refusal


class RefusalDelta(_OfBlock, frozen=True, kw_only=True, tag="task.refusal.delta"):
    """Characters to append to one open refusal."""

    delta: str


class RefusalDone(_OfBlock, frozen=True, kw_only=True, tag="task.refusal.done"):
    """A refusal is final; alone, without `added`, it is a whole block."""

    item: Refusal


class DataDone(_OfBlock, frozen=True, kw_only=True, tag="task.data.done"):
    """A block of JSON, whole."""

    item: Data


class FileDone(_OfBlock, frozen=True, kw_only=True, tag="task.file.done"):
    """A file block, whole."""

    item: File


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a newer version, or of somebody else's making, with its bytes.

    It keeps its place in the log and in the state, so old and new versions read each other's
    logs; encoders skip it.
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
"""Every event class; the schema, the codec and the fold's table are checked against it."""

AnyEvent: TypeAlias = Event | Unknown

TERMINAL = (TaskCompleted, TaskIncomplete, TaskFailed, TaskCancelled)


class Private(Fact, frozen=True, kw_only=True):
    """What clients must not see of an event: same number, logged beside it, in no wire format.

    `content` is what the model reads of a tool's result; `provider` holds the provider's own ids;
    `encrypted_content` and `signature` are its sealed reasoning; `options` is what a run was
    started with and nobody may read back; `raw` is a foreign event or item, whole.
    """

    content: list[ContentPart] | None = None
    provider: dict[str, Any] | None = None
    encrypted_content: str | None = None
    signature: str | None = None
    options: Any = None
    raw: Any = None


def recorded(event: Event, sequence_number: int) -> Event:
    """The same fact with its place in the log."""
    return msgspec.structs.replace(event, sequence_number=sequence_number)


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event as the log gives it back: the fact, its public bytes, and the epoch of its writer.

    The private part is not among it, so whatever speaks to clients cannot leak it.
    """

    event: AnyEvent
    public: bytes
    epoch: int = 1


def is_end(recorded: Recorded, run_id: str) -> bool:
    """Whether this is the run's last event: nothing may follow the end of its root task."""
    return isinstance(recorded.event, TERMINAL) and recorded.event.task_id == run_id
