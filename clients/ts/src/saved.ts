/** A state as JSON (PROTOCOL.md, section 6), to go on from later. */

import type { UnknownEvent } from "./decode.ts";
import { added } from "./fold.ts";
import type { Item as ItemPayload } from "./items.ts";
import { byIndex, closeItem, headOf, listOf, newItem, newPart, newRun, newTask, parentOf, stepsOf } from "./state.ts";
import type { Item, ItemStatus, ListName, Part, PrivatePart, ProgressView, Run, StepView, Task, TaskInfo } from "./state.ts";
import { fieldsOf, ownItem } from "./view.ts";
import type { ItemView, TaskFields } from "./view.ts";

export interface SavedPart {
  readonly list: ListName;
  readonly index: number;
  readonly at: number;
  readonly open?: true;
  readonly partial_image_index?: number;
}

export interface SavedItem {
  readonly output_index: number;
  readonly at: number;
  readonly item: ItemView;
  readonly parts: readonly SavedPart[];
  readonly open?: true;
  readonly superseded?: true;
  readonly private?: PrivatePart;
}

export interface SavedStep extends Readonly<StepView> {
  /** Only when it is not the step's place in the list. */
  readonly step_index?: number;
}

export interface SavedTask extends Omit<TaskFields, "steps"> {
  readonly at: number;
  readonly items: readonly SavedItem[];
  readonly steps?: readonly SavedStep[];
  readonly private?: PrivatePart;
}

export interface SavedState {
  readonly version: 1 | 2;
  readonly position: number;
  readonly sequence_number: number;
  readonly tasks: readonly SavedTask[];
  readonly unknown?: readonly UnknownEvent[];
}

export interface SaveOptions {
  /** Whether private parts are saved too. A client's state never has them. */
  readonly private?: boolean;
}

// --- saving ----------------------------------------------------------------------------------------

export function save(run: Run, options: SaveOptions = {}): SavedState {
  const withPrivate = options.private ?? false;
  return {
    version: 2,
    position: run.position,
    sequence_number: run.sequenceNumber,
    tasks: [...run.tasks.values()].map((task) => saveTask(task, withPrivate)),
    ...(run.unknown.length === 0 ? {} : { unknown: [...run.unknown] }),
  };
}

function saveTask(task: Task, withPrivate: boolean): SavedTask {
  const { steps: _steps, ...fields } = fieldsOf(task);
  const steps = stepsOf(task).map(([index, step], place) => ({
    ...step,
    ...(index === place ? {} : { step_index: index }),
  }));
  const items = [...task.items.values()].sort((a, b) => a.outputIndex - b.outputIndex);
  return {
    ...fields,
    ...(steps.length === 0 ? {} : { steps }),
    at: task.at,
    items: items.map((item) => saveItem(item, withPrivate)),
    ...(withPrivate && task.private !== undefined ? { private: task.private } : {}),
  };
}

function saveItem(item: Item, withPrivate: boolean): SavedItem {
  return {
    output_index: item.outputIndex,
    at: item.at,
    item: ownItem(item),
    parts: [...item.lists].flatMap(([list, parts]) => byIndex(parts).map((part) => savePart(list, part))),
    ...(item.open ? { open: true } : {}),
    ...(item.superseded ? { superseded: true } : {}),
    ...(withPrivate && item.private !== undefined ? { private: item.private } : {}),
  };
}

function savePart(list: ListName, part: Part): SavedPart {
  return {
    list,
    index: part.index,
    at: part.at,
    ...(part.open ? { open: true } : {}),
    ...(part.partialImageIndex === undefined ? {} : { partial_image_index: part.partialImageIndex }),
  };
}

// --- restoring -------------------------------------------------------------------------------------

export function restore(saved: SavedState): Run {
  if (saved?.version !== 1 && saved?.version !== 2) throw new Error(`cannot restore a saved state of version ${String(saved?.version)}`);
  const run = newRun();
  run.position = saved.position;
  run.sequenceNumber = saved.sequence_number;
  for (const event of saved.unknown ?? []) run.unknown.push(event);
  for (const task of saved.tasks) restoreTask(run, task);
  const items = saved.tasks.flatMap((task) => task.items.map((item) => ({ task: task.task_id, item })));
  items.sort((a, b) => a.item.at - b.item.at);
  for (const { task: id, item } of items) {
    const task = run.tasks.get(id);
    if (task !== undefined) restoreItem(run, task, item);
  }
  if (saved.version === 1) addUsageBelow(run);
  return run;
}

/** In version 1, the usage of a task lacks the tasks below it. The last tasks come first. */
function addUsageBelow(run: Run): void {
  for (const task of [...run.tasks.values()].reverse()) {
    const parent = parentOf(run, task);
    if (parent !== undefined && task.usage !== undefined) parent.usage = added(parent.usage, task.usage, true, task.usage.calls);
  }
}

function restoreTask(run: Run, saved: SavedTask): void {
  const { task_id: id, at, items: _items, private: hidden, ...fields } = saved;
  const { status, attempt, structured_output: output, usage, error, reason, requests, steps, notices, progress, imports, ...more } =
    fields;
  const { switches, compacted, ...info } = more;
  const task = newTask(run, id, at, switches === undefined ? info : begunBy(switches[0]?.from, info));
  task.switches.push(...(switches ?? []));
  task.compacted = compacted;
  task.status = status;
  task.attempt = attempt;
  task.structuredOutput = output;
  task.usage = usage;
  task.error = error;
  task.reason = reason;
  task.progress = progress;
  task.private = hidden;
  for (const notice of notices ?? []) task.notices.push(notice);
  for (const request of requests ?? []) task.requests.set(request.id, request);
  for (const found of imports ?? []) task.imports.set(found.reference_id, found);
  (steps ?? []).forEach(({ step_index: index, ...step }, place) => task.steps.set(index ?? place, { ...step }));
  task.openSteps = [...task.steps.values()].filter((step) => step.status === "in_progress").length;
}

/** What a task was created with: `agent` of a saved task is the agent that speaks now. */
function begunBy(first: string | undefined, info: TaskInfo): TaskInfo {
  const { agent: _now, ...rest } = info;
  return first === undefined ? rest : { ...rest, agent: first };
}

function restoreItem(run: Run, task: Task, saved: SavedItem): void {
  const { started, progress, ...payload } = saved.item as ItemView & { started?: true; progress?: ProgressView };
  const given = payload as unknown as ItemPayload & { readonly status?: ItemStatus };
  const item = newItem(run, task, saved.output_index, saved.at, given);
  item.head = headOf(given);
  item.started = started ?? false;
  item.progress = progress;
  item.superseded = saved.superseded ?? false;
  item.private = saved.private;
  for (const [list, parts] of item.lists) {
    const values = listOf(given, list) ?? [];
    saved.parts
      .filter((part) => part.list === list)
      .forEach(({ index, at, open, partial_image_index: partial }, place) => {
        const value = values[place];
        if (value === undefined) return;
        const part = newPart(index, at, open ?? false, value);
        part.partialImageIndex = partial;
        parts.set(index, part);
      });
  }
  if (!saved.open) closeItem(run, item, given.status ?? "completed");
}
