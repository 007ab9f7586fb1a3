/** The state of a run, made of its events. */

import type { UnknownEvent } from "./decode.ts";
import type { RunEvent } from "./events.ts";
import { fold } from "./fold.ts";
import { restore, save } from "./saved.ts";
import type { SaveOptions, SavedState } from "./saved.ts";
import { newRun } from "./state.ts";
import type { Item, PrivatePart, Run } from "./state.ts";
import { fieldsOf, ownItem, viewOf } from "./view.ts";
import type { ItemView, TaskFields, TaskView } from "./view.ts";

/** A frame with a whole state: it replaces the reader's (PROTOCOL.md, section 9). */
export interface SnapshotFrame {
  readonly type: "task.snapshot";
  readonly task_id: string;
  readonly sequence_number: number;
  readonly state: SavedState;
}

/** A frame that says that the reader's cursor cannot be served: a snapshot follows. */
export interface GapFrame {
  readonly type: "task.gap";
  readonly task_id: string;
  readonly sequence_number: number;
  readonly reason: string;
}

export type Frame = RunEvent | UnknownEvent | SnapshotFrame | GapFrame;

/**
 * The fold of a run's events.
 *
 * It never changes an event, and fails on one only: a `task.created` of a newer version of the protocol. The objects that it hands out share values with the
 * events: read them, do not write them.
 */
export class RunState {
  #run: Run = newRun();

  /** A state to go on from, as `save` made it. Throws when it is of another version. */
  static restore(saved: SavedState): RunState {
    const state = new RunState();
    state.#run = restore(saved);
    return state;
  }

  /** The number of the last event that had one; 0 before it. */
  get sequenceNumber(): number {
    return this.#run.sequenceNumber;
  }

  /** How many events there were, without duplicates. */
  get position(): number {
    return this.#run.position;
  }

  /** The ids of the run's tasks in order of creation; the root's is the first. */
  get taskIds(): string[] {
    return [...this.#run.tasks.keys()];
  }

  /** Fold one event, on the server's side with its private part. False when it was ignored. */
  apply(event: RunEvent | UnknownEvent, hidden?: PrivatePart | null): boolean {
    if (typeof event !== "object" || event === null || Array.isArray(event)) return false;
    return fold(this.#run, event, hidden);
  }

  /** Take one frame of a stream: an event, a snapshot that replaces the state, or a gap that drops it. */
  receive(frame: Frame): boolean {
    if (frame.type === "task.snapshot") {
      this.#run = restore((frame as SnapshotFrame).state);
      return true;
    }
    if (frame.type === "task.gap") {
      this.#run = newRun();
      return true;
    }
    return this.apply(frame as RunEvent | UnknownEvent);
  }

  /** What a client sees of a task, of the root when none is named; undefined when there is no such task. */
  view(taskId?: string): TaskView | undefined {
    return viewOf(this.#run, taskId, false);
  }

  /** One item of a task; undefined when it does not exist. Costs what the item weighs. */
  item(taskId: string, outputIndex: number): ItemView | undefined {
    const item = this.#run.tasks.get(taskId)?.items.get(outputIndex);
    return item === undefined || item.superseded ? undefined : ownItem(item);
  }

  /** A task without its items. */
  fields(taskId: string): TaskFields | undefined {
    const task = this.#run.tasks.get(taskId);
    return task === undefined ? undefined : fieldsOf(task);
  }

  /** The output indexes of a task's items that were not superseded, in order. */
  indexes(taskId: string): number[] {
    const items = this.#run.tasks.get(taskId)?.items ?? new Map<number, Item>();
    return [...items.values()].filter((item) => !item.superseded).map((item) => item.outputIndex).sort((a, b) => a - b);
  }

  /** The view with what only the server's side may see. */
  whole(taskId?: string): TaskView | undefined {
    return viewOf(this.#run, taskId, true);
  }

  /** The state as JSON; with `private: true` it holds the private parts as well. */
  save(options: SaveOptions = {}): SavedState {
    return save(this.#run, options);
  }
}
