// Generated from conformance/schema.json by scripts/generate_ts_types.py: do not edit.

import { boolean, defaulted, event, integer, json, list, number, oneOf, optional, required, string, struct, tagged } from "./read.ts";
import type { Struct } from "./read.ts";

const TaskCreated = event("task.created", {
  agent: optional(string),
  parent_task_id: optional(string),
  call_id: optional(string),
  thread_id: optional(string),
  previous_run_id: optional(string),
  previous_seq: optional(integer),
  created_at: optional(number),
  model: optional(string),
  input: optional(json),
  options: optional(json),
  metadata: optional(json),
  reference_start: defaulted(integer, 1),
});
const TaskInProgress = event("task.in_progress", {
  at: optional(number),
  reference_start: optional(integer),
});
const TaskAttempt = event("task.attempt", {
  at: optional(number),
  attempt: required(integer),
  reason: required(string),
  superseded: defaulted(list(string), []),
});
const InputRequest = struct(null, {
  id: required(string),
  kind: required(oneOf("approval", "input")),
  call_id: optional(string),
  name: optional(string),
  arguments: optional(json),
  message: optional(string),
  schema: optional(json),
});
const TaskInputRequired = event("task.input_required", {
  at: optional(number),
  requests: required(list(InputRequest)),
});
const TaskInputReceived = event("task.input_received", {
  at: optional(number),
  request_id: required(string),
  approved: optional(boolean),
  value: optional(json),
  reason: optional(string),
});
const TaskCompleted = event("task.completed", { at: optional(number) });
const TaskIncomplete = event("task.incomplete", { at: optional(number), reason: required(string) });
const ErrorInfo = struct(null, {
  code: required(string),
  message: required(string),
  param: optional(string),
  retry_after: optional(number),
});
const TaskFailed = event("task.failed", { at: optional(number), error: required(ErrorInfo) });
const TaskCancelled = event("task.cancelled", { at: optional(number), reason: optional(string) });
const Usage = struct(null, {
  model: optional(string),
  input_tokens: defaulted(integer, 0),
  output_tokens: defaulted(integer, 0),
  cached_input_tokens: defaulted(integer, 0),
  cache_write_tokens: defaulted(integer, 0),
  reasoning_tokens: defaulted(integer, 0),
  cost: optional(number),
  latency_ms: optional(number),
  time_to_first_token_ms: optional(number),
  service_tier: optional(string),
});
const TaskUsage = event("task.usage", {
  at: optional(number),
  usage: required(Usage),
  item_id: optional(string),
});
const StructuredOutputDone = event("task.structured_output.done", {
  at: optional(number),
  value: required(json),
  name: optional(string),
});
const AgentSwitched = event("task.agent.switched", {
  at: optional(number),
  agent: required(string),
  reason: optional(string),
});
const HistoryCompacted = event("task.history.compacted", {
  at: optional(number),
  summary: required(string),
  run_id: required(string),
});
const StepStarted = event("task.step.started", {
  at: optional(number),
  step_index: required(integer),
  name: required(string),
});
const StepFinished = event("task.step.finished", {
  at: optional(number),
  step_index: required(integer),
  status: defaulted(oneOf("completed", "incomplete"), "completed"),
});
const Notice = event("task.notice", {
  message: required(string),
  level: defaulted(string, "info"),
  call_id: optional(string),
  data: optional(json),
});
const Progress = event("task.progress", {
  call_id: optional(string),
  message: optional(string),
  current: optional(number),
  total: optional(number),
});
const ToolCallStarted = event("task.tool_call.started", {
  at: optional(number),
  item_id: required(string),
  output_index: required(integer),
});
const ReferenceImported = event("task.reference.imported", {
  reference_id: required(integer),
  source_task_id: required(string),
  source_reference_id: required(integer),
});
const RawEvent = event("task.raw", { source: required(string), event_type: required(string) });
const ReferenceToBlock = struct("reference_to_block", {
  reference_id: required(integer),
  start_index: required(integer),
  end_index: required(integer),
});
const UrlCitation = struct("url_citation", {
  url: required(string),
  start_index: required(integer),
  end_index: required(integer),
  title: defaulted(string, ""),
});
const FileCitation = struct("file_citation", {
  file_id: required(string),
  filename: defaulted(string, ""),
  index: optional(integer),
  container_id: optional(string),
  start_index: optional(integer),
  end_index: optional(integer),
});
const RawAnnotation = struct("raw", { raw: required(json) });
const Annotation = tagged(ReferenceToBlock, UrlCitation, FileCitation, RawAnnotation);
const Text = struct("text", {
  text: required(string),
  id: optional(integer),
  annotations: defaulted(list(Annotation), []),
});
const Reasoning = struct("reasoning", {
  id: required(string),
  summary: optional(list(Text)),
  reasoning_text: optional(list(Text)),
  status: defaulted(oneOf("completed", "failed", "in_progress", "incomplete"), "completed"),
});
const ToolCall = struct("tool_call", {
  id: required(string),
  call_id: required(string),
  name: required(string),
  arguments: optional(string),
  kind: defaulted(string, "function"),
  executor: defaulted(oneOf("client", "provider", "server"), "server"),
  server_label: optional(string),
  needs_approval: defaulted(boolean, false),
  status: defaulted(oneOf("completed", "failed", "in_progress", "incomplete"), "completed"),
});
const ImageUrl = struct(null, { url: required(string) });
const Image = struct("image", { image_url: required(ImageUrl), id: optional(integer) });
const Refusal = struct("refusal", { refusal: required(string) });
const Data = struct("data", { data: required(json), name: optional(string), id: optional(integer) });
const File = struct("file", {
  url: required(string),
  mime_type: defaulted(string, "application/octet-stream"),
  name: optional(string),
  size: optional(integer),
  sha256: optional(string),
  bucket: optional(string),
  path: optional(string),
  id: optional(integer),
});
const Block = tagged(Text, Image, Refusal, Data, File);
const ToolResult = struct("tool_result", {
  id: required(string),
  call_id: required(string),
  block_list: optional(list(Block)),
  status: defaulted(oneOf("completed", "failed", "in_progress", "incomplete"), "completed"),
  error: optional(ErrorInfo),
});
const Message = struct("message", {
  id: required(string),
  role: required(string),
  block_list: optional(list(Block)),
  status: defaulted(oneOf("completed", "failed", "in_progress", "incomplete"), "completed"),
  phase: optional(string),
});
const RawItem = struct("raw", {
  id: required(string),
  raw: required(json),
  source: optional(string),
  status: defaulted(oneOf("completed", "failed", "in_progress", "incomplete"), "completed"),
});
const Item = tagged(Reasoning, ToolCall, ToolResult, Message, RawItem);
const OutputItemAdded = event("task.output_item.added", {
  at: optional(number),
  output_index: required(integer),
  item: required(Item),
});
const OutputItemDone = event("task.output_item.done", {
  at: optional(number),
  output_index: required(integer),
  item: required(Item),
});
const SummaryItemAdded = event("task.reasoning_summary_item.added", {
  at: optional(number),
  item_id: required(string),
  output_index: required(integer),
  summary_index: required(integer),
  item: required(Text),
});
const SummaryTextDelta = event("task.reasoning_summary_text.delta", {
  item_id: required(string),
  output_index: required(integer),
  summary_index: required(integer),
  delta: required(string),
});
const SummaryItemDone = event("task.reasoning_summary_item.done", {
  at: optional(number),
  item_id: required(string),
  output_index: required(integer),
  summary_index: required(integer),
  item: required(Text),
});
const ReasoningTextAdded = event("task.reasoning_text.added", {
  at: optional(number),
  item_id: required(string),
  output_index: required(integer),
  text_index: required(integer),
  item: required(Text),
});
const ReasoningTextDelta = event("task.reasoning_text.delta", {
  item_id: required(string),
  output_index: required(integer),
  text_index: required(integer),
  delta: required(string),
});
const ReasoningTextDone = event("task.reasoning_text.done", {
  at: optional(number),
  item_id: required(string),
  output_index: required(integer),
  text_index: required(integer),
  item: required(Text),
});
const ArgumentsDelta = event("task.tool_call_arguments.delta", {
  item_id: required(string),
  output_index: required(integer),
  delta: required(string),
});
const ArgumentsDone = event("task.tool_call_arguments.done", {
  at: optional(number),
  item_id: required(string),
  output_index: required(integer),
  arguments: required(string),
});
const TextAdded = event("task.text.added", {
  at: optional(number),
  item_id: required(string),
  output_index: required(integer),
  block_index: required(integer),
  item: required(Text),
});
const TextDelta = event("task.text.delta", {
  item_id: required(string),
  output_index: required(integer),
  block_index: required(integer),
  delta: required(string),
});
const AnnotationAdded = event("task.text.annotation.added", {
  item_id: required(string),
  output_index: required(integer),
  block_index: required(integer),
  annotation_index: required(integer),
  annotation: required(Annotation),
});
const TextDone = event("task.text.done", {
  at: optional(number),
  item_id: required(string),
  output_index: required(integer),
  block_index: required(integer),
  item: required(Text),
});
const ImageAdded = event("task.image.added", {
  at: optional(number),
  item_id: required(string),
  output_index: required(integer),
  block_index: required(integer),
  item: required(Image),
});
const ImageDelta = event("task.image.delta", {
  item_id: required(string),
  output_index: required(integer),
  block_index: required(integer),
  partial_image_index: required(integer),
  item: required(Image),
});
const ImageDone = event("task.image.done", {
  at: optional(number),
  item_id: required(string),
  output_index: required(integer),
  block_index: required(integer),
  item: required(Image),
});
const RefusalAdded = event("task.refusal.added", {
  at: optional(number),
  item_id: required(string),
  output_index: required(integer),
  block_index: required(integer),
  item: required(Refusal),
});
const RefusalDelta = event("task.refusal.delta", {
  item_id: required(string),
  output_index: required(integer),
  block_index: required(integer),
  delta: required(string),
});
const RefusalDone = event("task.refusal.done", {
  at: optional(number),
  item_id: required(string),
  output_index: required(integer),
  block_index: required(integer),
  item: required(Refusal),
});
const DataDone = event("task.data.done", {
  at: optional(number),
  item_id: required(string),
  output_index: required(integer),
  block_index: required(integer),
  item: required(Data),
});
const FileDone = event("task.file.done", {
  at: optional(number),
  item_id: required(string),
  output_index: required(integer),
  block_index: required(integer),
  item: required(File),
});

/** What each event looks like, by its `type`. */
export const SHAPES: ReadonlyMap<string, Struct> = new Map(
  [
    TaskCreated, TaskInProgress, TaskAttempt, TaskInputRequired, TaskInputReceived, TaskCompleted,
    TaskIncomplete, TaskFailed, TaskCancelled, TaskUsage, StructuredOutputDone, AgentSwitched,
    HistoryCompacted, StepStarted, StepFinished, Notice, Progress, ToolCallStarted, ReferenceImported,
    RawEvent, OutputItemAdded, OutputItemDone, SummaryItemAdded, SummaryTextDelta, SummaryItemDone,
    ReasoningTextAdded, ReasoningTextDelta, ReasoningTextDone, ArgumentsDelta, ArgumentsDone, TextAdded,
    TextDelta, AnnotationAdded, TextDone, ImageAdded, ImageDelta, ImageDone, RefusalAdded, RefusalDelta,
    RefusalDone, DataDone, FileDone,
  ].map((shape) => [shape.tag ?? "", shape]),
);

/** The item types that have a name. */
export const ITEM_TYPES: ReadonlySet<string> = new Set(["reasoning", "tool_call", "tool_result", "message", "raw"]);
