// Generated from conformance/schema.json by scripts/generate_ts_types.py: do not edit.

import type { Annotation, Data, ErrorInfo, File, Image, InputRequest, Item, Refusal, Text, Usage } from "./items.ts";

/**
 * A task exists. The first event of a run creates its root, whose `task_id` is the run's id.
 *
 * A child names its parent and the call that it answers. The run continues `previous_run_id`; with
 * `previous_seq`, as that run was after this event. `reference_start` is the first number
 * of the task's reference pool; earlier runs issued the numbers below it.
 */
export interface TaskCreated {
  readonly type: "task.created";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly agent?: string;
  readonly parent_task_id?: string;
  readonly call_id?: string;
  readonly thread_id?: string;
  readonly previous_run_id?: string;
  readonly previous_seq?: number;
  readonly created_at?: number;
  readonly model?: string;
  readonly input?: unknown;
  readonly options?: unknown;
  readonly metadata?: unknown;
  readonly reference_start?: number;
}

/**
 * A worker has begun the task.
 *
 * `reference_start` replaces that of `task.created`, if the run that this run continues had not
 * ended when this run was created.
 */
export interface TaskInProgress {
  readonly type: "task.in_progress";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly reference_start?: number;
}

/**
 * The task continues with another worker, or after a cut provider stream.
 *
 * The items in `superseded` are made again: they stay in the log, and leave the object and the
 * history. They include the finished items of a cut stream.
 */
export interface TaskAttempt {
  readonly type: "task.attempt";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly attempt: number;
  readonly reason: string;
  readonly superseded?: readonly string[];
}

/** The task waits for people: approvals of calls, or values. */
export interface TaskInputRequired {
  readonly type: "task.input_required";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly requests: readonly InputRequest[];
}

/** A request is answered. After the last answer the task is in progress again. */
export interface TaskInputReceived {
  readonly type: "task.input_received";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly request_id: string;
  readonly approved?: boolean;
  readonly value?: unknown;
  readonly reason?: string;
}

/** The task has its answer. No event of this task follows. */
export interface TaskCompleted {
  readonly type: "task.completed";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
}

/** The task ended without a full answer, e.g. `max_output_tokens`. No event of it follows. */
export interface TaskIncomplete {
  readonly type: "task.incomplete";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly reason: string;
}

/** The task ended with an error. No event of it follows. */
export interface TaskFailed {
  readonly type: "task.failed";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly error: ErrorInfo;
}

/** The task was cancelled; its output stays. No event of it follows. */
export interface TaskCancelled {
  readonly type: "task.cancelled";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly reason?: string;
}

/** The usage of a model call of this task; tasks show the sum, with the tasks below them. */
export interface TaskUsage {
  readonly type: "task.usage";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly usage: Usage;
  readonly item_id?: string;
}

/** The task's answer as a JSON value, if its agent declares an output type. */
export interface StructuredOutputDone {
  readonly type: "task.structured_output.done";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly value: unknown;
  readonly name?: string;
}

/** Another agent speaks from here on, in the same task and the same conversation. */
export interface AgentSwitched {
  readonly type: "task.agent.switched";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly agent: string;
  readonly reason?: string;
}

/** The model reads `summary` in place of the conversation up to the end of the run `run_id`. */
export interface HistoryCompacted {
  readonly type: "task.history.compacted";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly summary: string;
  readonly run_id: string;
}

/** A named stage of the agent begins; steps nest. */
export interface StepStarted {
  readonly type: "task.step.started";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly step_index: number;
  readonly name: string;
}

/** The innermost open step ends: completed, or left by an error, a cancel or a lost worker. */
export interface StepFinished {
  readonly type: "task.step.finished";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly step_index: number;
  readonly status?: "completed" | "incomplete";
}

/** A message for the person who watches; the model never sees it. */
export interface Notice {
  readonly type: "task.notice";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly message: string;
  readonly level?: string;
  readonly call_id?: string;
  readonly data?: unknown;
}

/** The progress of a call, or of the task. It replaces the progress before. */
export interface Progress {
  readonly type: "task.progress";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly call_id?: string;
  readonly message?: string;
  readonly current?: number;
  readonly total?: number;
}

/** The tool of a finished call is about to run. The event is durable before the tool starts. */
export interface ToolCallStarted {
  readonly type: "task.tool_call.started";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly item_id: string;
  readonly output_index: number;
}

/** A child's reference gets a number in this task's pool, so that this task can cite it. */
export interface ReferenceImported {
  readonly type: "task.reference.imported";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly reference_id: number;
  readonly source_task_id: string;
  readonly source_reference_id: number;
}

/** An unknown event of a provider, or unknown fields of an event; in the private part. */
export interface RawEvent {
  readonly type: "task.raw";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly source: string;
  readonly event_type: string;
}

/** An item begins, empty; `output_index` counts from 0 per task, without holes. */
export interface OutputItemAdded {
  readonly type: "task.output_item.added";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly output_index: number;
  readonly item: Item;
}

/** The item is final. An absent list is the list that the events before it made. */
export interface OutputItemDone {
  readonly type: "task.output_item.done";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly output_index: number;
  readonly item: Item;
}

/** A part of a reasoning summary begins. */
export interface SummaryItemAdded {
  readonly type: "task.reasoning_summary_item.added";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly summary_index: number;
  readonly item: Text;
}

/** Characters to append to an open summary part. */
export interface SummaryTextDelta {
  readonly type: "task.reasoning_summary_text.delta";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly summary_index: number;
  readonly delta: string;
}

/** A part of a reasoning summary is final. */
export interface SummaryItemDone {
  readonly type: "task.reasoning_summary_item.done";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly summary_index: number;
  readonly item: Text;
}

/** A part of the raw reasoning begins. */
export interface ReasoningTextAdded {
  readonly type: "task.reasoning_text.added";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly text_index: number;
  readonly item: Text;
}

/** Characters to append to an open part of the raw reasoning. */
export interface ReasoningTextDelta {
  readonly type: "task.reasoning_text.delta";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly text_index: number;
  readonly delta: string;
}

/** A part of the raw reasoning is final. */
export interface ReasoningTextDone {
  readonly type: "task.reasoning_text.done";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly text_index: number;
  readonly item: Text;
}

/** Characters to append to a call's arguments; a delta may end inside an escape. */
export interface ArgumentsDelta {
  readonly type: "task.tool_call_arguments.delta";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly delta: string;
}

/** A call's arguments are complete. */
export interface ArgumentsDone {
  readonly type: "task.tool_call_arguments.done";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly arguments: string;
}

/** A text block begins to stream. */
export interface TextAdded {
  readonly type: "task.text.added";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly block_index: number;
  readonly item: Text;
}

/**
 * Characters to append to an open text block.
 *
 * It never repeats the text so far. A reader that missed events reads the log from its cursor.
 */
export interface TextDelta {
  readonly type: "task.text.delta";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly block_index: number;
  readonly delta: string;
}

/** A citation in the text so far, while more text streams. */
export interface AnnotationAdded {
  readonly type: "task.text.annotation.added";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly block_index: number;
  readonly annotation_index: number;
  readonly annotation: Annotation;
}

/** A text block is final; without `added`, it is a whole block. */
export interface TextDone {
  readonly type: "task.text.done";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly block_index: number;
  readonly item: Text;
}

/** An image block begins; its URL may still be empty. */
export interface ImageAdded {
  readonly type: "task.image.added";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly block_index: number;
  readonly item: Image;
}

/** A whole image that replaces the image before. */
export interface ImageDelta {
  readonly type: "task.image.delta";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly block_index: number;
  readonly partial_image_index: number;
  readonly item: Image;
}

/** The image is final; without `added`, it is a whole block. */
export interface ImageDone {
  readonly type: "task.image.done";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly block_index: number;
  readonly item: Image;
}

/** A refusal begins to stream. */
export interface RefusalAdded {
  readonly type: "task.refusal.added";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly block_index: number;
  readonly item: Refusal;
}

/** Characters to append to an open refusal. */
export interface RefusalDelta {
  readonly type: "task.refusal.delta";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly block_index: number;
  readonly delta: string;
}

/** A refusal is final; without `added`, it is a whole block. */
export interface RefusalDone {
  readonly type: "task.refusal.done";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly block_index: number;
  readonly item: Refusal;
}

/** A block of JSON, whole. */
export interface DataDone {
  readonly type: "task.data.done";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly block_index: number;
  readonly item: Data;
}

/** A file block, whole. */
export interface FileDone {
  readonly type: "task.file.done";
  readonly task_id: string;
  readonly sequence_number?: number;
  readonly at?: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly block_index: number;
  readonly item: File;
}

/** Every event that this version has a name for. */
export type RunEvent =
  | TaskCreated
  | TaskInProgress
  | TaskAttempt
  | TaskInputRequired
  | TaskInputReceived
  | TaskCompleted
  | TaskIncomplete
  | TaskFailed
  | TaskCancelled
  | TaskUsage
  | StructuredOutputDone
  | AgentSwitched
  | HistoryCompacted
  | StepStarted
  | StepFinished
  | Notice
  | Progress
  | ToolCallStarted
  | ReferenceImported
  | RawEvent
  | OutputItemAdded
  | OutputItemDone
  | SummaryItemAdded
  | SummaryTextDelta
  | SummaryItemDone
  | ReasoningTextAdded
  | ReasoningTextDelta
  | ReasoningTextDone
  | ArgumentsDelta
  | ArgumentsDone
  | TextAdded
  | TextDelta
  | AnnotationAdded
  | TextDone
  | ImageAdded
  | ImageDelta
  | ImageDone
  | RefusalAdded
  | RefusalDelta
  | RefusalDone
  | DataDone
  | FileDone;
