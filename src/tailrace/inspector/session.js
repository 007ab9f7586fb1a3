/** One run as this page knows it: its events, its state now, and its state at any earlier event. */

import { RunState } from "./client/index.js";

const CHECKPOINT = 1000;

const clock = () => performance.timeOrigin + performance.now();

export class RunSession {
  /**
   * `known` is the last event that was stored when this page joined: only later events arrive as they
   * happen. With `until`, the run up to this event: what a fork of it remembers.
   */
  constructor(client, runId, changed, { until, known } = {}) {
    this.until = until;
    this.known = known ?? 0;
    this.client = client;
    this.runId = runId;
    this.changed = changed;
    this.state = new RunState();
    this.events = []; // {event, seq, cursor, at}
    this.checkpoints = []; // saved states, every CHECKPOINT events
    this.base = undefined; // a snapshot that replaced the events before it
    this.status = { kind: "connecting" };
    this.missed = 0; // holes in the numbers: stays 0
    this.repeated = 0;
    this.waiting = 0; // events behind a cut
    this.resumed = undefined; // how many events the last resume brought
    this.timed = false; // whether the log has times
    this.latest = undefined; // the time of the last event
    this.skew = undefined; // how far this browser's clock is ahead of the worker's clock
    this.follower = client.follow(runId, {
      onFrame: (frame, cursor) => this.#take(frame, cursor),
      onStatus: (status) => this.#changedTo(status),
    });
  }

  get seq() {
    return this.state.sequenceNumber;
  }

  get ended() {
    return ["completed", "failed", "cancelled", "incomplete"].includes(this.root?.status);
  }

  get root() {
    const [root] = this.state.taskIds;
    return root === undefined ? undefined : this.state.fields(root);
  }

  #take(frame, cursor) {
    if (frame.type === "task.snapshot" || frame.type === "task.gap") {
      this.state.receive(frame);
      this.events = [];
      this.checkpoints = [];
      this.base = frame.type === "task.snapshot" ? frame : undefined;
      this.changed(this, { reset: true });
      return;
    }
    const seq = frame.sequence_number ?? 0;
    if (seq <= this.seq) {
      this.repeated += 1;
      return;
    }
    this.missed += seq - this.seq - 1;
    this.state.receive(frame);
    this.events.push({ event: frame, seq, cursor, at: this.#timeOf(frame, seq) });
    if (this.events.length % CHECKPOINT === 0) {
      this.checkpoints.push({ count: this.events.length, saved: this.state.save() });
    }
    this.changed(this, { event: frame });
    if (seq === this.until) {
      this.status = { kind: "forked" };
      this.follower.stop();
      this.changed(this, {});
    }
  }

  /** The time now in milliseconds, by the clock of the run's worker. */
  now() {
    return clock() - (this.skew ?? 0);
  }

  /**
   * When an event happened, in milliseconds.
   *
   * Events that begin or end something have a time. A delta has the time of its arrival, or that of
   * the event before it if it was stored when this page joined.
   */
  #timeOf(frame, seq) {
    this.timed ||= frame.at !== undefined;
    const own = frame.at ?? frame.created_at;
    if (own !== undefined) {
      this.latest = own * 1000;
      // The least: a resumed stream brings old events late.
      if (seq > this.known) this.skew = Math.min(this.skew ?? Infinity, clock() - this.latest);
    } else if (seq > this.known) this.latest = Math.max(this.latest ?? 0, this.now());
    return this.timed || own !== undefined ? this.latest : undefined;
  }

  #changedTo(status) {
    if (this.status.kind === "forked") return;
    if (status.kind === "connecting" && ["cut", "waiting"].includes(this.status.kind)) this.#resume();
    this.status = status;
    if (status.kind === "cut") this.#count();
    this.changed(this, {});
  }

  async #lastSeq() {
    const found = await this.client.request("GET", `threads/${encodeURIComponent(this.root?.thread_id ?? "")}`).catch(() => undefined);
    return found?.runs.find((run) => run.run_id === this.runId)?.last_seq;
  }

  /** Say how many events the new connection has to bring. */
  async #resume() {
    const from = this.seq;
    this.resumed = this.waiting;
    const seq = await this.#lastSeq();
    if (seq === undefined) return;
    this.resumed = Math.max(0, seq - from);
    this.changed(this, {});
  }

  /** While cut: ask now and then how far the run has come. */
  async #count() {
    while (this.status.kind === "cut") {
      const seq = await this.#lastSeq();
      if (this.status.kind !== "cut") break;
      if (seq !== undefined) this.waiting = Math.max(0, seq - this.seq);
      this.changed(this, {});
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
    this.waiting = 0;
  }

  /** The state after the first `count` events. */
  at(count) {
    if (count >= this.events.length) return this.state;
    const from = this.checkpoints.findLast((each) => each.count <= count);
    const state = from === undefined ? new RunState() : RunState.restore(from.saved);
    if (from === undefined && this.base !== undefined) state.receive(this.base);
    for (const { event } of this.events.slice(from?.count ?? 0, count)) state.receive(event);
    return state;
  }

  stop() {
    this.follower.stop();
  }
}
