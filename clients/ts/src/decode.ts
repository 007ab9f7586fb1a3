/** From an event's JSON to the event, with raw items, which are kept although their type is unknown. */

import type { RunEvent } from "./events.ts";
import type { Item } from "./items.ts";
import { UNFIT, isObject } from "./read.ts";
import { ITEM_TYPES, SHAPES } from "./shapes.ts";

/** An event as it came: of a type that has a name here, or of another. */
export interface UnknownEvent {
  readonly type: string;
  readonly task_id?: string;
  readonly sequence_number?: number;
  readonly [field: string]: unknown;
}

const STATUSES: ReadonlySet<unknown> = new Set(["in_progress", "completed", "incomplete", "failed"]);

/** The event with only its named fields, or undefined when this version has no name for it. */
export function decode(event: object): RunEvent | undefined {
  const given = event as Record<string, unknown>;
  const type = given["type"];
  const read = typeof type === "string" ? SHAPES.get(type) : undefined;
  if (read === undefined) return undefined;
  const foreign = type === "task.output_item.added" || type === "task.output_item.done" ? asRaw(given["item"]) : undefined;
  const value = read(foreign === undefined ? given : { ...given, item: foreign });
  return value === UNFIT ? undefined : (value as RunEvent);
}

/** An item of an unknown type as a raw one (section 4, rule 9). */
function asRaw(item: unknown): Item | undefined {
  if (!isObject(item)) return undefined;
  const { type, id, status } = item;
  if (typeof type !== "string" || ITEM_TYPES.has(type)) return undefined;
  const raw = { type: "raw" as const, id: typeof id === "string" ? id : "", raw: item };
  return STATUSES.has(status) ? ({ ...raw, status } as Item) : raw;
}
