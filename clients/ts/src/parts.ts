/** The fold of items and their parts (section 4, rules 5 and 6). Each returns false when it ignores its event. */

import type { AnnotationAdded, ImageDelta, OutputItemAdded, OutputItemDone } from "./events.ts";
import type { Block, Item as ItemPayload } from "./items.ts";
import { closeItem, listOf, newItem, newPart, setHead, setPart } from "./state.ts";
import type { Item, ListName, Part, Parts, Run, Task } from "./state.ts";

/** What every event about a part says: which item it means. */
interface OfItem {
  readonly item_id: string;
  readonly output_index: number;
}

export function addItem(run: Run, task: Task, event: OutputItemAdded): boolean {
  if (task.items.has(event.output_index)) return false;
  const item = newItem(run, task, event.output_index, run.position, event.item);
  fill(item, event.item, run.position);
  return true;
}

export function finishItem(run: Run, task: Task, event: OutputItemDone): boolean {
  const payload = event.item;
  let item = task.items.get(event.output_index);
  if (item === undefined) {
    item = newItem(run, task, event.output_index, run.position, payload);
  } else {
    if (!item.open || item.head.type !== payload.type) return false;
  }
  fill(item, payload, run.position);
  closeItem(run, item, payload.status ?? "completed");
  setHead(item, payload);
  return true;
}

/** Take over the lists that a payload gives. */
function fill(item: Item, payload: ItemPayload, at: number): void {
  for (const [list, parts] of item.lists) {
    const given = listOf(payload, list);
    if (list === "arguments") setArguments(parts, given?.[0], item.at);
    else if (given !== undefined) replaceParts(parts, given, at);
  }
}

/** A call has its arguments from the start: they are open as long as nothing closes them. */
function setArguments(parts: Parts, given: Block | string | undefined, at: number): void {
  const part = parts.get(0);
  if (part === undefined) parts.set(0, newPart(0, at, true, given ?? ""));
  else if (given !== undefined) setPart(part, given);
}

function replaceParts(parts: Parts, given: readonly (Block | string)[], at: number): void {
  const arrivals = new Map([...parts.values()].map((part) => [part.index, part.at]));
  parts.clear();
  given.forEach((value, index) => parts.set(index, newPart(index, arrivals.get(index) ?? at, false, value)));
}

/** The parts of a list that an event means, when it may change them. */
function partsOf(task: Task, event: OfItem, list: ListName): Parts | undefined {
  const item = task.items.get(event.output_index);
  return item !== undefined && item.open && item.head.id === event.item_id ? item.lists.get(list) : undefined;
}

function openPart(task: Task, event: OfItem, list: ListName, index: number, kind: Part["kind"]): Part | undefined {
  const part = partsOf(task, event, list)?.get(index);
  return part !== undefined && part.open && part.kind === kind ? part : undefined;
}

export function addPart(run: Run, task: Task, event: OfItem, list: ListName, index: number, block: Block): boolean {
  const parts = partsOf(task, event, list);
  if (parts === undefined || parts.has(index)) return false;
  parts.set(index, newPart(index, run.position, true, block));
  return true;
}

export function finishPart(
  run: Run,
  task: Task,
  event: OfItem,
  list: ListName,
  index: number,
  value: Block | string,
): boolean {
  const parts = partsOf(task, event, list);
  if (parts === undefined) return false;
  const part = parts.get(index);
  if (part === undefined) {
    parts.set(index, newPart(index, run.position, false, value));
    return true;
  }
  if (!part.open || part.kind !== (typeof value === "string" ? "arguments" : value.type)) return false;
  setPart(part, value);
  part.open = false;
  return true;
}

export function append(
  task: Task,
  event: OfItem & { readonly delta: string },
  list: ListName,
  index: number,
  kind: Part["kind"],
): boolean {
  const part = openPart(task, event, list, index, kind);
  part?.pieces.push(event.delta);
  return part !== undefined;
}

export function annotate(task: Task, event: AnnotationAdded): boolean {
  const part = openPart(task, event, "block_list", event.block_index, "text");
  part?.annotations.push(event.annotation);
  return part !== undefined;
}

export function replaceImage(task: Task, event: ImageDelta): boolean {
  const part = openPart(task, event, "block_list", event.block_index, "image");
  if (part === undefined) return false;
  setPart(part, event.item);
  part.partialImageIndex = event.partial_image_index;
  return true;
}
