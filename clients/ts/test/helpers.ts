// Short ways to write events in tests.

import { RunState } from "../src/index.ts";
import type { Block, Item, PrivatePart, RunEvent, TaskView, UnknownEvent } from "../src/index.ts";

type Rest = { readonly [field: string]: unknown };

/** An event of task `r`, unless it says otherwise. */
export function ev(type: string, rest: Rest = {}): UnknownEvent {
  return { type: `task.${type}`, task_id: "r", ...rest };
}

export function added(output_index: number, item: Item, rest: Rest = {}): UnknownEvent {
  return ev("output_item.added", { output_index, item, ...rest });
}

export function done(output_index: number, item: Item, rest: Rest = {}): UnknownEvent {
  return ev("output_item.done", { output_index, item, ...rest });
}

/** An event about a block of item 0, whose id is `m`. */
export function ofBlock(type: string, block_index: number, rest: Rest = {}): UnknownEvent {
  return ev(type, { item_id: "m", output_index: 0, block_index, ...rest });
}

export const text = (words: string): Block => ({ type: "text", text: words });
export const message = (id = "m"): Item => ({ type: "message", id, role: "assistant" });
export const call = (id: string, call_id: string): Item => ({ type: "tool_call", id, call_id, name: "f" });
export const result = (id: string, call_id: string): Item => ({ type: "tool_result", id, call_id });

export function folded(...events: readonly (RunEvent | UnknownEvent)[]): RunState {
  const state = new RunState();
  for (const event of events) state.apply(event);
  return state;
}

export function view(...events: readonly (RunEvent | UnknownEvent)[]): TaskView {
  return shown(folded(...events));
}

export function shown(state: RunState, taskId?: string): TaskView {
  const found = state.view(taskId);
  if (found === undefined) throw new Error("there is no such task");
  return found;
}

export function whole(events: readonly (readonly [UnknownEvent, PrivatePart?])[]): TaskView {
  const state = new RunState();
  for (const [event, hidden] of events) state.apply(event, hidden);
  const found = state.whole();
  if (found === undefined) throw new Error("there is no task");
  return found;
}

export function resumed(state: RunState): RunState {
  return RunState.restore(JSON.parse(JSON.stringify(state.save({ private: true }))));
}
