/** The object (PROTOCOL.md, section 5): what a state looks like to a client, and whole. */

import type { UnknownEvent } from "./decode.ts";
import type { Block, ErrorInfo, InputRequest, Message, RawItem, Reasoning, ToolCall, ToolResult } from "./items.ts";
import { blockOf, byIndex, childrenOf, rootOf, stepsOf, textOf } from "./state.ts";
import type {
  CompactedView,
  ImportView,
  Item,
  ListName,
  NoticeView,
  Part,
  PrivatePart,
  ProgressView,
  Run,
  StepView,
  SwitchView,
  Task,
  TaskInfo,
  TaskStatus,
  UsageView,
} from "./state.ts";

type Hidden = Omit<PrivatePart, "content">;
type Shown<Payload, More> = Omit<Payload, keyof More> & Readonly<More>;

export type ReasoningView = Shown<Reasoning, { summary: readonly Block[]; private?: Hidden }>;
export type ToolCallView = Shown<ToolCall, { arguments: string; started?: true; progress?: ProgressView; private?: Hidden }>;
export type ToolResultView = Shown<
  ToolResult,
  { block_list: readonly (Block | ChildItemView)[]; content?: readonly unknown[]; private?: Hidden }
>;
export type MessageView = Shown<Message, { block_list: readonly Block[]; content?: readonly unknown[]; private?: Hidden }>;
export type RawItemView = Shown<RawItem, { private?: Hidden }>;
export type ItemView = ReasoningView | ToolCallView | ToolResultView | MessageView | RawItemView;

/** A sub-agent's item among the blocks of the result that it works for. */
export type ChildItemView = ItemView & { readonly task_id: string };

/** What is shown of a task beside its items. */
export interface TaskFields extends TaskInfo {
  readonly task_id: string;
  readonly status?: TaskStatus;
  readonly switches?: readonly SwitchView[];
  readonly compacted?: CompactedView;
  readonly attempt?: number;
  readonly structured_output?: { readonly value: unknown; readonly name?: string };
  readonly usage?: Readonly<UsageView>;
  readonly error?: ErrorInfo;
  readonly reason?: string;
  readonly requests?: readonly InputRequest[];
  readonly steps?: readonly Readonly<StepView>[];
  readonly notices?: readonly NoticeView[];
  readonly progress?: Readonly<ProgressView>;
  readonly imports?: readonly ImportView[];
}

export interface TaskView extends TaskFields {
  readonly output: readonly ItemView[];
  readonly private?: Hidden;
  /** Of the root: the run's other tasks, each with its `output` in the whole object only. */
  readonly tasks?: readonly (TaskFields & Partial<Pick<TaskView, "output" | "private">>)[];
  /** Of the root: the events that this version has no name for. */
  readonly unknown?: readonly UnknownEvent[];
}

/** The object of a task, of the root when none is named; undefined when there is no such task. */
export function viewOf(run: Run, taskId: string | undefined, whole: boolean): TaskView | undefined {
  const root = rootOf(run);
  const task = taskId === undefined ? root : run.tasks.get(taskId);
  if (task === undefined) return undefined;
  const view: TaskView = { ...fieldsOf(task), output: outputOf(task, whole), ...(whole ? hiddenOf(task.private) : {}) };
  if (task !== root) return view;
  const others = [...run.tasks.values()].slice(1).map((other) => ({
    ...fieldsOf(other),
    ...(whole ? { output: outputOf(other, true), ...hiddenOf(other.private) } : {}),
  }));
  return {
    ...view,
    ...(others.length === 0 ? {} : { tasks: others }),
    ...(run.unknown.length === 0 ? {} : { unknown: [...run.unknown] }),
  };
}

export function fieldsOf(task: Task): TaskFields {
  const fields: { -readonly [Name in keyof TaskFields]: TaskFields[Name] } = { task_id: task.id, ...task.info };
  if (task.status !== undefined) fields.status = task.status;
  const last = task.switches.at(-1);
  if (last !== undefined) {
    fields.agent = last.agent;
    fields.switches = [...task.switches];
  }
  if (task.compacted !== undefined) fields.compacted = task.compacted;
  if (task.attempt !== undefined) fields.attempt = task.attempt;
  if (task.structuredOutput !== undefined) fields.structured_output = task.structuredOutput;
  if (task.usage !== undefined) fields.usage = task.usage;
  if (task.error !== undefined) fields.error = task.error;
  if (task.reason !== undefined) fields.reason = task.reason;
  if (task.requests.size > 0) fields.requests = [...task.requests.values()];
  if (task.steps.size > 0) fields.steps = stepsOf(task).map(([, step]) => ({ ...step }));
  if (task.notices.length > 0) fields.notices = [...task.notices];
  if (hasAny(task.progress)) fields.progress = task.progress;
  if (task.imports.size > 0) fields.imports = [...task.imports.values()];
  return fields;
}

function outputOf(task: Task, whole: boolean): ItemView[] {
  return [...task.items.values()]
    .filter((item) => !item.superseded)
    .sort((a, b) => a.outputIndex - b.outputIndex)
    .map((item) => (whole ? wholeItem(item) : itemView(item)));
}

/** An item with its own blocks only, as a saved state holds it. */
export function ownItem(item: Item): ItemView {
  return shown(item, itemBlocks(item));
}

/** An item as a client sees it, with the items of the tasks that work for it. */
export function itemView(item: Item): ItemView {
  return shown(item, item.head.type === "tool_result" ? resultBlocks(item) : itemBlocks(item));
}

function shown(item: Item, blocks: readonly (Block | ChildItemView)[]): ItemView {
  const view: Record<string, unknown> = { ...item.head };
  for (const [list, parts] of item.lists) {
    if (list === "block_list") view[list] = blocks;
    else if (list === "arguments") view[list] = [...parts.values()].map(textOf).join("");
    else if (list === "summary" || parts.size > 0) view[list] = byIndex(parts).map(blockOf);
  }
  if (item.status !== "completed") view["status"] = item.status;
  if (item.started) view["started"] = true;
  if (hasAny(item.progress)) view["progress"] = item.progress;
  return view as unknown as ItemView;
}

function partsOf(item: Item, list: ListName): Part[] {
  return byIndex(item.lists.get(list) ?? new Map());
}

function itemBlocks(item: Item): Block[] {
  return partsOf(item, "block_list").map(blockOf);
}

/** A result's own blocks and its children's items, in order of arrival. */
function resultBlocks(item: Item): (Block | ChildItemView)[] {
  const arrived: { readonly at: number; readonly show: () => Block | ChildItemView }[] = [];
  for (const part of partsOf(item, "block_list")) arrived.push({ at: part.at, show: () => blockOf(part) });
  for (const child of childrenOf(item)) {
    for (const each of child.items.values()) {
      if (!each.superseded) arrived.push({ at: each.at, show: () => ({ ...itemView(each), task_id: child.id }) });
    }
  }
  return arrived.sort((a, b) => a.at - b.at).map((one) => one.show());
}

function wholeItem(item: Item): ItemView {
  const content = contentOf(item);
  return { ...itemView(item), ...(content === undefined ? {} : { content }), ...hiddenOf(item.private) };
}

/** What the model reads of a result or a message. */
function contentOf(item: Item): readonly unknown[] | undefined {
  if (item.head.type !== "tool_result" && item.head.type !== "message") return undefined;
  if (item.private?.content !== undefined || item.head.type === "tool_result") return item.private?.content;
  const texts = partsOf(item, "block_list").filter((part) => part.kind === "text");
  return texts.map((part) => ({ type: "text", text: textOf(part) }));
}

function hiddenOf(hidden: PrivatePart | undefined): { private?: Hidden } {
  if (hidden === undefined) return {};
  const { content: _content, ...rest } = hidden;
  return hasAny(rest) ? { private: rest } : {};
}

function hasAny<Value extends object>(value: Value | undefined): value is Value {
  return value !== undefined && Object.keys(value).length > 0;
}
