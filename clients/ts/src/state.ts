/** What the fold keeps: a run of tasks, their items, and the parts of those. */

import type { UnknownEvent } from "./decode.ts";
import type { Annotation, Block, ErrorInfo, InputRequest, Item as ItemPayload } from "./items.ts";

export type ItemStatus = "completed" | "failed" | "in_progress" | "incomplete";
export type TaskStatus = "queued" | "in_progress" | "input_required" | "completed" | "incomplete" | "failed" | "cancelled";
export type ListName = "summary" | "reasoning_text" | "block_list" | "arguments";

/** What is logged beside an event and never sent to a client. */
export interface PrivatePart {
  content?: readonly unknown[];
  provider?: { readonly [key: string]: unknown };
  encrypted_content?: string;
  signature?: string;
  options?: unknown;
  raw?: unknown;
}

export interface ProgressView {
  message?: string;
  current?: number;
  total?: number;
}

export interface UsageView {
  calls: number;
  input_tokens: number;
  output_tokens: number;
  cached_input_tokens?: number;
  cache_write_tokens?: number;
  reasoning_tokens?: number;
  cost?: number;
  latency_ms?: number;
  time_to_first_token_ms?: number;
  model?: string;
  service_tier?: string;
}

export interface StepView {
  readonly name: string;
  readonly depth: number;
  status: "in_progress" | "completed" | "incomplete";
}

export interface NoticeView {
  readonly message: string;
  readonly level?: string;
  readonly call_id?: string;
  readonly data?: unknown;
}

export interface ImportView {
  readonly reference_id: number;
  readonly source_task_id: string;
  readonly source_reference_id: number;
}

/** The facts of `task.created`. */
export interface TaskInfo {
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

/** A block, one text of a reasoning, or a call's arguments. */
export interface Part {
  readonly index: number;
  readonly at: number;
  open: boolean;
  kind: Block["type"] | "arguments";
  /** The block without its text and annotations; nothing for arguments. */
  block: Block | undefined;
  /** The text of a text, a refusal or arguments; joined when it is read. */
  pieces: string[];
  annotations: Annotation[];
  partialImageIndex: number | undefined;
}

export type Parts = Map<number, Part>;

export interface Item {
  readonly task: Task;
  readonly outputIndex: number;
  readonly at: number;
  /** The payload without its status and lists. */
  head: ItemPayload;
  readonly lists: ReadonlyMap<ListName, Parts>;
  open: boolean;
  status: ItemStatus;
  superseded: boolean;
  started: boolean;
  progress: ProgressView | undefined;
  private: PrivatePart | undefined;
}

/** Another agent speaks from the item `output_index` on. */
export interface SwitchView {
  readonly agent: string;
  readonly output_index: number;
  readonly from?: string;
  readonly reason?: string;
}

/** What stands for the conversation up to the end of a run. */
export interface CompactedView {
  readonly summary: string;
  readonly run_id: string;
}

export interface Task {
  readonly id: string;
  readonly at: number;
  info: TaskInfo;
  status: TaskStatus | undefined;
  attempt: number | undefined;
  readonly items: Map<number, Item>;
  /** The `tool_call` and the `tool_result` of each `call_id`, the first to arrive if there are several. */
  readonly calls: Map<string, Item>;
  readonly results: Map<string, Item>;
  /** The tasks below this one by their `call_id`. */
  readonly children: Map<string, Task[]>;
  structuredOutput: { readonly value: unknown; readonly name?: string } | undefined;
  /** Who took over from whom; `info.agent` began. */
  readonly switches: SwitchView[];
  compacted: CompactedView | undefined;
  usage: UsageView | undefined;
  error: ErrorInfo | undefined;
  reason: string | undefined;
  readonly requests: Map<string, InputRequest>;
  readonly steps: Map<number, StepView>;
  openSteps: number;
  readonly notices: NoticeView[];
  progress: ProgressView | undefined;
  readonly imports: Map<number, ImportView>;
  private: PrivatePart | undefined;
}

export interface Run {
  position: number;
  sequenceNumber: number;
  /** In order of creation; the root is the first. */
  readonly tasks: Map<string, Task>;
  readonly unknown: UnknownEvent[];
  /** The open results of each `call_id`, in order of arrival. */
  readonly openResults: Map<string, Set<Item>>;
}

/** The lists that an item of each type has. */
const LISTS: { readonly [Type in ItemPayload["type"]]: readonly ListName[] } = {
  reasoning: ["summary", "reasoning_text"],
  tool_call: ["arguments"],
  tool_result: ["block_list"],
  message: ["block_list"],
  raw: [],
};

const ENDED: ReadonlySet<TaskStatus | undefined> = new Set<TaskStatus>(["completed", "incomplete", "failed", "cancelled"]);

export function newRun(): Run {
  return { position: 0, sequenceNumber: 0, tasks: new Map(), unknown: [], openResults: new Map() };
}

export function newTask(run: Run, id: string, at: number, info: TaskInfo): Task {
  const task: Task = {
    id,
    at,
    info,
    status: undefined,
    attempt: undefined,
    items: new Map(),
    calls: new Map(),
    results: new Map(),
    children: new Map(),
    structuredOutput: undefined,
    switches: [],
    compacted: undefined,
    usage: undefined,
    error: undefined,
    reason: undefined,
    requests: new Map(),
    steps: new Map(),
    openSteps: 0,
    notices: [],
    progress: undefined,
    imports: new Map(),
    private: undefined,
  };
  const { parent_task_id: parentId, call_id: callId } = info;
  if (parentId !== undefined && callId !== undefined) {
    const siblings = run.tasks.get(parentId)?.children;
    const ofCall = siblings?.get(callId);
    if (ofCall === undefined) siblings?.set(callId, [task]);
    else ofCall.push(task);
  }
  run.tasks.set(id, task);
  return task;
}

export function hasEnded(task: Task): boolean {
  return ENDED.has(task.status);
}

/** A task's steps with their indexes, in order of these. */
export function stepsOf(task: Task): [number, StepView][] {
  return [...task.steps].sort(([a], [b]) => a - b);
}

export function rootOf(run: Run): Task | undefined {
  for (const task of run.tasks.values()) return task;
  return undefined;
}

/** The open result of a call that arrived last, in whatever task. */
export function openResult(run: Run, callId: string): Item | undefined {
  let last: Item | undefined;
  for (const item of run.openResults.get(callId) ?? []) last = item;
  return last;
}

/** The task that a task works for; undefined for the root. */
export function parentOf(run: Run, task: Task): Task | undefined {
  const id = task.info.parent_task_id;
  return id === undefined ? undefined : run.tasks.get(id);
}

/** The tasks whose items show among a result's blocks. */
export function childrenOf(result: Item): readonly Task[] {
  const { head, task } = result;
  if (head.type !== "tool_result" || task.results.get(head.call_id) !== result) return [];
  return task.children.get(head.call_id) ?? [];
}

// --- items ---------------------------------------------------------------------------------------

/** The payload without what an item keeps apart. */
export function headOf(payload: ItemPayload): ItemPayload {
  const head: Record<string, unknown> = { ...payload };
  delete head["status"];
  for (const list of LISTS[payload.type]) delete head[list];
  return head as unknown as ItemPayload;
}

/** One list of a payload, or undefined when it is left out. */
export function listOf(payload: ItemPayload, list: ListName): readonly (Block | string)[] | undefined {
  const value = (payload as unknown as { readonly [Name in ListName]?: readonly Block[] | string })[list];
  return typeof value === "string" ? [value] : value;
}

/** A new item in its task, empty and open. */
export function newItem(run: Run, task: Task, outputIndex: number, at: number, payload: ItemPayload): Item {
  const item: Item = {
    task,
    outputIndex,
    at,
    head: headOf(payload),
    lists: new Map(LISTS[payload.type].map((list) => [list, new Map<number, Part>()])),
    open: true,
    status: "in_progress",
    superseded: false,
    started: false,
    progress: undefined,
    private: undefined,
  };
  task.items.set(outputIndex, item);
  indexCall(item);
  if (payload.type === "tool_result") {
    const open = run.openResults.get(payload.call_id);
    if (open === undefined) run.openResults.set(payload.call_id, new Set([item]));
    else open.add(item);
  }
  return item;
}

function indexCall(item: Item): void {
  const { task, head } = item;
  if (head.type !== "tool_call" && head.type !== "tool_result") return;
  const index = head.type === "tool_call" ? task.calls : task.results;
  if (!index.has(head.call_id)) index.set(head.call_id, item);
}

/** Replace an item's head. */
export function setHead(item: Item, payload: ItemPayload): void {
  const before = item.head;
  item.head = headOf(payload);
  if (!("call_id" in before) || !("call_id" in item.head) || before.call_id === item.head.call_id) return;
  const { task } = item;
  task.calls.clear();
  task.results.clear();
  for (const each of [...task.items.values()].sort((a, b) => a.at - b.at)) indexCall(each);
}

export function closeItem(run: Run, item: Item, status: ItemStatus): void {
  item.open = false;
  item.status = status;
  for (const parts of item.lists.values()) for (const part of parts.values()) part.open = false;
  if (item.head.type !== "tool_result") return;
  const open = run.openResults.get(item.head.call_id);
  open?.delete(item);
  if (open?.size === 0) run.openResults.delete(item.head.call_id);
}

// --- parts ---------------------------------------------------------------------------------------

/** A new part; a string is a call's arguments. */
export function newPart(index: number, at: number, open: boolean, value: Block | string): Part {
  const part: Part = {
    index,
    at,
    open,
    kind: "arguments",
    block: undefined,
    pieces: [],
    annotations: [],
    partialImageIndex: undefined,
  };
  setPart(part, value);
  return part;
}

/** Replace what a part holds. */
export function setPart(part: Part, value: Block | string): void {
  part.annotations = [];
  part.block = undefined;
  if (typeof value === "string") {
    part.kind = "arguments";
    part.pieces = [value];
    return;
  }
  part.kind = value.type;
  part.block = value;
  if (value.type === "text") {
    part.pieces = [value.text];
    part.annotations = [...(value.annotations ?? [])];
  } else if (value.type === "refusal") {
    part.pieces = [value.refusal];
  }
}

/** A part's text as far as it is. */
export function textOf(part: Part): string {
  if (part.pieces.length > 1) part.pieces = [part.pieces.join("")];
  return part.pieces[0] ?? "";
}

/** The block that a part holds by now. */
export function blockOf(part: Part): Block {
  const block = part.block;
  if (block === undefined) throw new TypeError("arguments are no block");
  if (block.type === "refusal") return { type: "refusal", refusal: textOf(part) };
  if (block.type !== "text") return block;
  const text = { type: block.type, text: textOf(part), ...(block.id === undefined ? {} : { id: block.id }) };
  return part.annotations.length === 0 ? text : { ...text, annotations: [...part.annotations] };
}

/** Parts in order of their indexes. */
export function byIndex(parts: Parts): Part[] {
  return [...parts.values()].sort((a, b) => a.index - b.index);
}
