/** A React hook that follows a run: its view, and the state of its stream. */

import { useMemo, useSyncExternalStore } from "react";
import { RunState } from "@tailrace/client";
import type { Client, Follower, FollowStatus, TaskView } from "@tailrace/client";

export interface FollowedRun {
  /** The run as it is now; undefined before its first event. */
  readonly view: TaskView | undefined;
  readonly status: FollowStatus;
  /** Drop the connection until `resume`; the run goes on. */
  readonly cut: () => void;
  readonly resume: () => void;
}

/** Follow a run while the component is mounted. Views change once per frame, not once per event. */
export function useRun(client: Client, runId: string | undefined): FollowedRun {
  const run = useMemo(() => new RunStore(client, runId), [client, runId]);
  return useSyncExternalStore(run.subscribe, run.snapshot);
}

class RunStore {
  readonly #client: Client;
  readonly #runId: string | undefined;
  readonly #listeners = new Set<() => void>();
  #state = new RunState();
  #follower: Follower | undefined;
  #status: FollowStatus = { kind: "connecting" };
  #shown: FollowedRun;
  #frame: number | undefined;

  constructor(client: Client, runId: string | undefined) {
    this.#client = client;
    this.#runId = runId;
    this.#shown = this.#current();
  }

  readonly snapshot = (): FollowedRun => this.#shown;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    if (this.#listeners.size === 1) this.#follow();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.#follower?.stop();
    };
  };

  #follow(): void {
    if (this.#runId === undefined) return;
    this.#state = new RunState();
    this.#follower = this.#client.follow(this.#runId, {
      snapshot: true,
      onFrame: (frame) => {
        this.#state.receive(frame);
        this.#changed();
      },
      onStatus: (status) => {
        this.#status = status;
        this.#changed();
      },
    });
  }

  #changed(): void {
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = undefined;
      this.#shown = this.#current();
      for (const listener of this.#listeners) listener();
    });
  }

  #current(): FollowedRun {
    const cut = (): void => this.#follower?.cut();
    const resume = (): void => this.#follower?.resume();
    return { view: this.#state.view(), status: this.#status, cut, resume };
  }
}
