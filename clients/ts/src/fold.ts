/** The tolerant fold (PROTOCOL.md, section 4): one event into the state of its run. */

import { decode } from "./decode.ts";
import type { UnknownEvent } from "./decode.ts";
import type { Progress, RunEvent, TaskCreated, TaskInputReceived, TaskUsage } from "./events.ts";
import { addItem, addPart, annotate, append, finishItem, finishPart, replaceImage } from "./parts.ts";
import { closeItem, hasEnded, newTask, openResult, parentOf } from "./state.ts";
import type { PrivatePart, ProgressView, Run, Task, TaskInfo, TaskStatus, UsageView } from "./state.ts";

const PROTOCOL = 1;
const PRIVATE_FIELDS = ["content", "provider", "encrypted_content", "signature", "options", "raw"] as const;

/** Fold an event. False when it was ignored. */
export function fold(run: Run, event: object, hidden?: PrivatePart | null): boolean {
  checkProtocol(event);
  if (isDuplicate(run, event)) return false;
  run.position += 1;
  const known = decode(event);
  if (known === undefined) {
    run.unknown.push(event as UnknownEvent);
    return true;
  }
  if (known.type === "task.created") {
    const created = create(run, known);
    if (created !== undefined && hidden) created.private = merged(created.private, hidden);
    return created !== undefined;
  }
  const task = run.tasks.get(known.task_id) ?? createSilently(run, known.task_id);
  if (task === undefined || hasEnded(task) || !foldInto(run, task, known)) return false;
  if (hidden) {
    const owner = "output_index" in known ? task.items.get(known.output_index) : task;
    if (owner !== undefined) owner.private = merged(owner.private, hidden);
  }
  return true;
}

/** Rule 1. An event without a number is never a duplicate, and leaves the last number as it is. */
function isDuplicate(run: Run, event: object): boolean {
  const given = (event as { readonly sequence_number?: unknown }).sequence_number;
  if (typeof given !== "number" || !Number.isSafeInteger(given) || given <= 0) return false;
  if (given <= run.sequenceNumber) return true;
  run.sequenceNumber = given;
  return false;
}

/** Section 11: a run of a newer version of the protocol is not read by guessing. */
function checkProtocol(event: object): void {
  const { type, protocol } = event as { readonly type?: unknown; readonly protocol?: unknown };
  if (type === "task.created" && protocol !== undefined && protocol !== null && protocol !== PROTOCOL) {
    throw new RangeError(`The run is written in protocol ${String(protocol)}; this client reads protocol ${PROTOCOL}. Upgrade it.`);
  }
}

/** Rule 2. */
function create(run: Run, event: TaskCreated): Task | undefined {
  if (run.tasks.has(event.task_id)) return undefined;
  const { type: _type, task_id: id, sequence_number: _number, ...info } = event;
  const parent = info.parent_task_id === undefined ? undefined : run.tasks.get(info.parent_task_id);
  if (parent === undefined && (info.parent_task_id !== undefined || run.tasks.size > 0)) return undefined;
  const task = newTask(run, id, run.position, info satisfies TaskInfo);
  task.status = "queued";
  return task;
}

/** Rule 3. */
function createSilently(run: Run, id: string): Task | undefined {
  if (run.tasks.size === 0) return newTask(run, id, run.position, {});
  const result = openResult(run, id);
  if (result === undefined) return undefined;
  return newTask(run, id, run.position, { parent_task_id: result.task.id, call_id: id });
}

function foldInto(run: Run, task: Task, event: Exclude<RunEvent, TaskCreated>): boolean {
  switch (event.type) {
    case "task.text.delta":
      return append(task, event, "block_list", event.block_index, "text");
    case "task.tool_call_arguments.delta":
      return append(task, event, "arguments", 0, "arguments");
    case "task.reasoning_summary_text.delta":
      return append(task, event, "summary", event.summary_index, "text");
    case "task.reasoning_text.delta":
      return append(task, event, "reasoning_text", event.text_index, "text");
    case "task.refusal.delta":
      return append(task, event, "block_list", event.block_index, "refusal");
    case "task.image.delta":
      return replaceImage(task, event);
    case "task.text.annotation.added":
      return annotate(task, event);
    case "task.output_item.added":
      return addItem(run, task, event);
    case "task.output_item.done":
      return finishItem(run, task, event);
    case "task.reasoning_summary_item.added":
      return addPart(run, task, event, "summary", event.summary_index, event.item);
    case "task.reasoning_summary_item.done":
      return finishPart(run, task, event, "summary", event.summary_index, event.item);
    case "task.reasoning_text.added":
      return addPart(run, task, event, "reasoning_text", event.text_index, event.item);
    case "task.reasoning_text.done":
      return finishPart(run, task, event, "reasoning_text", event.text_index, event.item);
    case "task.tool_call_arguments.done":
      return finishPart(run, task, event, "arguments", 0, event.arguments);
    case "task.text.added":
    case "task.image.added":
    case "task.refusal.added":
      return addPart(run, task, event, "block_list", event.block_index, event.item);
    case "task.text.done":
    case "task.image.done":
    case "task.refusal.done":
    case "task.data.done":
    case "task.file.done":
      return finishPart(run, task, event, "block_list", event.block_index, event.item);
    case "task.in_progress":
      task.status = "in_progress";
      if (event.reference_start !== undefined) task.info = { ...task.info, reference_start: event.reference_start };
      return true;
    case "task.input_required":
      task.status = "input_required";
      for (const request of event.requests) {
        if (!task.requests.has(request.id)) task.requests.set(request.id, request);
      }
      return true;
    case "task.input_received":
      return answer(task, event);
    case "task.attempt": {
      task.attempt = event.attempt;
      const named = new Set(event.superseded ?? []);
      for (const item of task.items.values()) if (named.delete(item.head.id)) item.superseded = true;
      return true;
    }
    case "task.completed":
      return end(run, task, "completed");
    case "task.incomplete":
      task.reason = event.reason;
      return end(run, task, "incomplete");
    case "task.failed":
      task.error = event.error;
      return end(run, task, "failed");
    case "task.cancelled":
      task.reason = event.reason;
      return end(run, task, "cancelled");
    case "task.usage":
      for (let at: Task | undefined = task; at !== undefined; at = parentOf(run, at)) {
        at.usage = added(at.usage, event.usage, at !== task);
      }
      return true;
    case "task.structured_output.done":
      task.structuredOutput = { value: event.value, ...(event.name === undefined ? {} : { name: event.name }) };
      return true;
    case "task.agent.switched": {
      const from = task.switches.at(-1)?.agent ?? task.info.agent;
      task.switches.push({
        agent: event.agent,
        output_index: [...task.items.keys()].reduce((most, index) => Math.max(most, index), -1) + 1,
        ...(from === undefined ? {} : { from }),
        ...(event.reason === undefined ? {} : { reason: event.reason }),
      });
      return true;
    }
    case "task.history.compacted":
      task.compacted = { summary: event.summary, run_id: event.run_id };
      return true;
    case "task.step.started":
      if (task.steps.has(event.step_index)) return false;
      task.steps.set(event.step_index, { name: event.name, depth: task.openSteps, status: "in_progress" });
      task.openSteps += 1;
      return true;
    case "task.step.finished": {
      const step = task.steps.get(event.step_index);
      if (step?.status !== "in_progress") return false;
      step.status = event.status ?? "completed";
      task.openSteps -= 1;
      return true;
    }
    case "task.notice": {
      const { type: _type, task_id: _id, sequence_number: _number, ...notice } = event;
      task.notices.push(notice);
      return true;
    }
    case "task.progress":
      return advance(task, event);
    case "task.reference.imported": {
      const { reference_id, source_task_id, source_reference_id } = event;
      if (task.imports.has(reference_id)) return false;
      task.imports.set(reference_id, { reference_id, source_task_id, source_reference_id });
      return true;
    }
    case "task.tool_call.started": {
      const item = task.items.get(event.output_index);
      if (item?.head.type !== "tool_call" || item.head.id !== event.item_id) return false;
      item.started = true;
      return true;
    }
    case "task.raw":
      return true;
    default:
      return event satisfies never;
  }
}

/** Rule 7. */
function end(run: Run, task: Task, status: TaskStatus): true {
  for (const item of task.items.values()) if (item.open) closeItem(run, item, "incomplete");
  task.requests.clear();
  task.status = status;
  return true;
}

function answer(task: Task, event: TaskInputReceived): boolean {
  if (!task.requests.delete(event.request_id)) return false;
  if (task.requests.size === 0 && task.status === "input_required") task.status = "in_progress";
  return true;
}

function advance(task: Task, event: Progress): boolean {
  const { type: _type, task_id: _id, sequence_number: _number, call_id: callId, ...progress } = event;
  const owner = callId === undefined ? task : task.calls.get(callId);
  if (owner === undefined) return false;
  owner.progress = progress satisfies ProgressView;
  return true;
}

/** The sum of a task's calls with one more, or with `calls` more; `below`: of a task below it (section 5). */
export function added(sum: UsageView | undefined, call: TaskUsage["usage"], below: boolean, calls = 1): UsageView {
  const out: UsageView = sum === undefined ? { calls: 0, input_tokens: 0, output_tokens: 0 } : { ...sum };
  out.calls += calls;
  out.input_tokens += call.input_tokens ?? 0;
  out.output_tokens += call.output_tokens ?? 0;
  for (const field of ["cached_input_tokens", "cache_write_tokens", "reasoning_tokens"] as const) {
    const total = (out[field] ?? 0) + (call[field] ?? 0);
    if (total === 0) delete out[field];
    else out[field] = total;
  }
  for (const field of ["cost", "latency_ms"] as const) {
    const given = call[field];
    if (given !== undefined) out[field] = (out[field] ?? 0) + given;
  }
  if (call.time_to_first_token_ms !== undefined) out.time_to_first_token_ms ??= call.time_to_first_token_ms;
  for (const field of ["model", "service_tier"] as const) {
    const given = call[field];
    if (given !== undefined && !(below && field in out)) out[field] = given;
  }
  return out;
}

/** A private part over an earlier one: field by field, the later wins. */
function merged(before: PrivatePart | undefined, hidden: PrivatePart): PrivatePart | undefined {
  const out: Record<string, unknown> = { ...before };
  for (const field of PRIVATE_FIELDS) {
    const given = hidden[field];
    if (given !== undefined && given !== null) out[field] = given;
  }
  return Object.keys(out).length === 0 ? undefined : (out as PrivatePart);
}
