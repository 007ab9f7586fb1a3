/** The run as bars on one axis: turns of the model, tools, sub-agents. */

import { dollars, el, seconds, setText } from "./dom.js";

/** Whether a person denied the call: nothing has failed. */
/** What a person did to a call without a result; undefined if the call failed by itself. */
export const endedByPerson = (result) => ({ denied: "denied", cancelled: "stopped" })[result?.error?.code];

const ENDS = new Set(["task.completed", "task.failed", "task.cancelled", "task.incomplete"]);
const LANES = 400;
const AXIS = 26; // characters that fit beside each other on the axis

/**
 * The spans of a run, read event by event.
 *
 * A turn is what the model writes between two tool results. It begins when its input was there:
 * `task.usage` says how long the model took.
 */
class Spans {
  constructor() {
    this.seen = 0;
    this.tasks = new Map(); // task_id → {spans, depth, turns, ready}
    this.calls = new Map(); // "task:call_id" → span
    this.items = new Map(); // "task:output_index" → span
    this.ids = new Map(); // item id → span
    this.attempts = []; // {place, attempt}
    this.requests = new Map(); // request id → part of a span
    this.first = undefined;
    this.last = undefined;
  }

  #task(id, parent) {
    let task = this.tasks.get(id);
    if (task === undefined) {
      const depth = parent === undefined ? 0 : (this.tasks.get(parent)?.depth ?? -1) + 1;
      task = { id, spans: [], depth, turns: 0, turn: undefined, ready: undefined };
      this.tasks.set(id, task);
    }
    return task;
  }

  #span(task, fields) {
    const span = { depth: task.depth, parts: [], open: true, status: "", ...fields };
    task.spans.push(span);
    return span;
  }

  /** Read one event. `at` is its place on the axis; `unit` is 1 if places are milliseconds, else 0. */
  take(event, at, unit) {
    // Workers have clocks of their own: a later event may have an earlier time.
    this.first = Math.min(this.first ?? at, at);
    this.last = Math.max(this.last ?? at, at);
    if (event.type === "task.created") {
      const task = this.#task(event.task_id, event.parent_task_id);
      task.ready = at;
      const call = this.calls.get(`${event.parent_task_id}:${event.call_id}`);
      if (call !== undefined) {
        call.kind = "agent";
        call.child = event.task_id;
        if (event.agent !== undefined && event.agent !== call.label) call.label = `${call.label} → ${event.agent}`;
      }
      return;
    }
    const task = this.#task(event.task_id);
    const item = event.output_index === undefined ? undefined : this.items.get(`${event.task_id}:${event.output_index}`);
    if (item !== undefined && item.open) {
      item.to = at;
      if (task.turn !== undefined) task.turn.to = at; // the arguments of a call are part of the turn
    }
    switch (event.type) {
      case "task.in_progress":
        task.ready = at;
        break;
      case "task.output_item.added":
        this.#added(task, event, at);
        break;
      case "task.output_item.done":
        if (event.item.type === "tool_result" && item !== undefined) {
          item.open = false;
          item.status = (event.item.status === "failed" || event.item.error) && endedByPerson(event.item) === undefined ? "failed" : "completed";
          task.ready = at;
        } else if (event.item.type === "reasoning" && task.turn?.thinking !== undefined) task.turn.thinking.to = at;
        break;
      case "task.tool_call.started":
        if (item !== undefined && item.started === undefined) {
          item.started = at;
          if (item.parts.length === 0) item.from = at;
        }
        break;
      case "task.usage":
        this.#usage(task, event.usage, at, unit);
        break;
      case "task.input_required":
        for (const request of event.requests) {
          const call = this.calls.get(`${event.task_id}:${request.call_id}`);
          const span = call ?? this.#span(task, { kind: "call", label: "question", key: `task ${event.task_id}`, from: at, to: at });
          span.from = Math.min(span.from, at);
          span.parts.push({ kind: "asks", from: at, to: at, open: true });
          this.requests.set(request.id, { span, part: span.parts.at(-1), alone: call === undefined });
        }
        break;
      case "task.input_received": {
        const found = this.requests.get(event.request_id);
        if (found === undefined) break;
        Object.assign(found.part, { to: at, open: false });
        found.span.to = at;
        if (found.alone || event.approved === false) found.span.open = false;
        task.ready = at;
        break;
      }
      case "task.attempt":
        this.attempts.push({ at, attempt: event.attempt });
        for (const id of event.superseded ?? []) {
          const span = this.ids.get(id);
          if (span !== undefined) Object.assign(span, { open: false, givenUp: true });
        }
        if (task.turn !== undefined) Object.assign(task.turn, { open: false, givenUp: true });
        task.turn = undefined;
        task.ready = at;
        break;
      default:
        if (ENDS.has(event.type)) this.#end(task, event, at);
    }
  }

  #added(task, event, at) {
    const { item } = event;
    const key = `${task.id}:${event.output_index}`;
    if (item.type === "tool_result") {
      const call = this.calls.get(`${task.id}:${item.call_id}`);
      this.#close(task);
      if (call !== undefined) {
        this.items.set(key, call);
        call.to = at;
      }
      return;
    }
    if (task.turn === undefined) {
      task.turns += 1;
      task.turn = this.#span(task, { kind: "turn", label: `model turn ${task.turns}`, key, from: at, to: at });
    }
    task.turn.to = at;
    this.ids.set(item.id, task.turn);
    this.items.set(key, task.turn);
    if (item.type === "reasoning") task.turn.parts.push((task.turn.thinking = { kind: "thinking", from: at, to: at }));
    if (item.type === "tool_call") {
      const call = this.#span(task, { kind: "call", label: item.name, key, from: at, to: at });
      this.calls.set(`${task.id}:${item.call_id}`, call);
      this.items.set(key, call);
      this.ids.set(item.id, call);
    }
  }

  #close(task) {
    if (task.turn !== undefined) task.turn.open = false;
    task.turn = undefined;
  }

  #usage(task, usage, at, unit) {
    const turn = task.turn;
    if (turn === undefined) return;
    turn.usage = usage;
    turn.to = at;
    if (unit === 1 && usage.latency_ms !== undefined) {
      turn.from = Math.min(turn.from, Math.max(task.ready ?? turn.from, at - usage.latency_ms));
      if (usage.time_to_first_token_ms !== undefined) {
        const first = Math.min(turn.to, turn.from + usage.time_to_first_token_ms);
        turn.parts.unshift({ kind: "first", from: turn.from, to: first });
      }
    }
    this.#close(task);
  }

  #end(task, event, at) {
    this.#close(task);
    for (const span of task.spans) {
      if (!span.open) continue;
      Object.assign(span, { to: at, open: false, status: span.status || (event.type === "task.completed" ? "" : "failed") });
      for (const part of span.parts) if (part.open) Object.assign(part, { to: at, open: false });
    }
  }

  /** In the order of the log and of the tree: a sub-agent's spans under its call. */
  inOrder(id = this.tasks.keys().next().value, out = []) {
    for (const span of this.tasks.get(id)?.spans ?? []) {
      out.push(span);
      if (span.child !== undefined) this.inOrder(span.child, out);
    }
    return out;
  }
}

export class Timeline {
  constructor(node, select) {
    this.node = node;
    this.select = select;
    this.facts = el("dl", { class: "facts" });
    this.axis = el("div", { class: "axis", "aria-hidden": "true" });
    this.under = el("div", { class: "under", "aria-hidden": "true" });
    this.body = el("div");
    this.lanes = el("div", { class: "lanes" }, this.axis, this.under, this.body);
    this.note = el("p", { class: "axis-note" });
    this.legend = el("p", { class: "legend" },
      ...[["turn", "model"], ["thinking", "thinking"], ["first", "waits for the first token"], ["call", "tool"], ["agent", "sub-agent"], ["asks", "waits for a person"]].map(([kind, label]) => el("span", { "data-kind": kind }, label)));
    this.blank = el("p", { class: "blank" }, "The timeline shows each turn of the model, each tool and each sub-agent as a bar.");
    node.replaceChildren(this.blank, this.facts, this.lanes, this.legend, this.note);
    this.rows = new Map(); // span → nodes
  }

  /** `row` is the run in the list of its thread; `scrub` says how many events are shown. */
  show(session, scrub, row) {
    const events = session?.events ?? [];
    const isEmpty = events.length === 0;
    this.blank.hidden = !isEmpty;
    for (const part of [this.facts, this.lanes, this.legend, this.note]) part.hidden = isEmpty;
    if (isEmpty) return;
    const place = this.#places(session);
    const spans = this.spans;
    for (; spans.seen < events.length; spans.seen += 1) {
      const each = events[spans.seen];
      spans.take(each.event, place(each), this.byTime ? 1 : 0);
    }
    const live = !session.ended && session.status.kind === "live" && this.byTime && scrub === undefined;
    const from = spans.first;
    const to = Math.max(from + 1, spans.last, live ? session.now() : 0);
    const at = (value) => `${(((value - from) / (to - from)) * 100).toFixed(3)}%`;
    const head = scrub === undefined ? undefined : scrub === 0 ? from : place(events[scrub - 1]);
    this.#lanes(spans.inOrder().slice(0, LANES), { at, from, to, head, live });
    this.#axis({ at, from, to, head, session });
    const kinds = new Set([...this.rows.keys()].flatMap((span) => [span.kind, ...span.parts.map((part) => part.kind)]));
    for (const each of this.legend.children) each.hidden = !kinds.has(each.dataset.kind);
    this.#facts(session, row);
  }

  /** Where an event stands on the axis: its time, or its number if the log has no times. */
  #places(session) {
    const { events } = session;
    const key = `${session.runId} ${session.until ?? ""}`;
    // A run that waits for a worker has one event, and its time is `created_at`.
    const timed = session.timed || (events.length === 1 && events[0].at !== undefined);
    if (this.key !== key || this.byTime !== timed || this.spans.seen > events.length || this.origin !== events[0]) {
      this.key = key;
      this.byTime = timed;
      this.origin = events[0];
      this.spans = new Spans();
      this.rows.clear();
      this.body.replaceChildren();
    }
    if (!timed) return (each) => each.seq;
    // After a snapshot the first events may be deltas without a time before them.
    const begun = events.find((each) => each.at !== undefined).at;
    return (each) => each.at ?? begun;
  }

  #lanes(spans, { at, from, to, head, live }) {
    const kept = new Set(spans);
    for (const [span, row] of this.rows) {
      if (kept.has(span)) continue;
      row.node.remove();
      this.rows.delete(span);
    }
    spans.forEach((span, n) => {
      let row = this.rows.get(span);
      if (row === undefined) this.rows.set(span, (row = this.#row(span)));
      if (this.body.children[n] !== row.node) this.body.insertBefore(row.node, this.body.children[n] ?? null);
      const end = span.open ? (live ? to : this.spans.last) : span.to;
      const length = Math.max(end - span.from, 0);
      const words = this.byTime ? seconds(length) : `${Math.round(length) + 1} ev`;
      setText(row.who, span.label);
      setText(row.time, words);
      row.node.dataset.kind = span.kind;
      row.node.dataset.status = span.status;
      row.node.classList.toggle("later", head !== undefined && span.from > head);
      row.node.classList.toggle("given-up", span.givenUp === true);
      row.bar.style.left = at(span.from);
      row.bar.style.width = `${((length / (to - from)) * 100).toFixed(3)}%`;
      row.node.title = this.#words(span, words, from);
      while (row.bar.childElementCount < span.parts.length) row.bar.append(el("span", { class: "part" }));
      span.parts.forEach((part, p) => {
        const node = row.bar.children[p];
        const until = part.open ? end : part.to;
        node.dataset.kind = part.kind;
        node.style.left = `${((part.from - span.from) / Math.max(length, 1)) * 100}%`;
        node.style.width = `${((until - part.from) / Math.max(length, 1)) * 100}%`;
      });
    });
  }

  #row(span) {
    const who = el("span", { class: "who" });
    const bar = el("span", { class: "span" });
    const time = el("span", { class: "time" });
    who.style.paddingLeft = `${span.depth * 12}px`;
    const node = el("button", { type: "button", class: "lane", onclick: () => this.select(span.key) }, who, el("span", { class: "track" }, bar), time);
    return { node, who, bar, time };
  }

  #words(span, length, from) {
    const words = [this.byTime ? `${span.label}: ${length}, from ${seconds(span.from - from)} on` : `${span.label}: events ${span.from} to ${span.to}`];
    const { usage } = span;
    if (usage?.time_to_first_token_ms !== undefined) words.push(`first token after ${seconds(usage.time_to_first_token_ms)}`);
    if (usage !== undefined) words.push(`${usage.input_tokens ?? 0} tokens in, ${usage.output_tokens ?? 0} out`);
    if (usage?.cost) words.push(dollars(usage.cost));
    if (span.givenUp) words.push("given up; a later attempt replaces it");
    return words.join("\n");
  }

  #axis({ at, from, to, head, session }) {
    const time = (value) => (to - from < 1000 ? `${Number(value.toPrecision(3))} ms` : `${Number((value / 1000).toPrecision(3))} s`);
    const label = (value) => (this.byTime ? (value === 0 ? "0" : time(value)) : `${Math.round(from + value)}`);
    const ticks = steps(to - from, this.byTime, label);
    const known = `${ticks} ${from} ${to} ${head} ${this.spans.attempts.length} ${session.root?.usage?.model}`;
    if (known === this.drawn) return;
    this.drawn = known;
    this.axis.replaceChildren(...ticks.map((value) => {
      const node = el("span", {}, label(value));
      node.style.left = at(from + value);
      return node;
    }));
    const lines = ticks.map((value) => {
      const node = el("span", { class: "tick" });
      node.style.left = at(from + value);
      return node;
    });
    const attempts = this.spans.attempts;
    attempts.forEach((each, n) => {
      const node = el("span", { class: "band" }, el("span", {}, `attempt ${each.attempt}`));
      node.style.left = at(each.at);
      node.style.right = `calc(100% - ${at(attempts[n + 1]?.at ?? to)})`;
      lines.unshift(node);
    });
    if (head !== undefined) {
      const node = el("span", { class: "head" });
      node.style.left = at(head);
      lines.push(node);
    }
    this.under.replaceChildren(...lines);
    const model = session.root?.usage?.model;
    setText(this.note, (model === undefined ? "" : `Model: ${model}. `) + (this.byTime ? "" : "The log of this run has no times: the axis counts its events."));
  }

  #facts(session, row) {
    const root = session.root;
    const usage = root?.usage;
    const found = [];
    const fact = (name, value, more = "") => value !== undefined && found.push([name, value, more]);
    const first = session.events.find(({ event }) => event.type.endsWith(".delta"));
    const began = root?.created_at === undefined ? undefined : root.created_at * 1000;
    if (first?.at !== undefined && began !== undefined && first.at >= began) fact("First token", seconds(first.at - began));
    else if (usage?.time_to_first_token_ms !== undefined) fact("First token of the model", seconds(usage.time_to_first_token_ms));
    if (usage?.latency_ms > 0) fact("Speed", Math.round(usage.output_tokens / (usage.latency_ms / 1000)).toLocaleString("en"), "tok/s");
    if (usage !== undefined) {
      fact("Tokens", (usage.input_tokens + usage.output_tokens).toLocaleString("en"), `${usage.output_tokens.toLocaleString("en")} out`);
      if (usage.cost !== undefined) fact("Cost", dollars(usage.cost));
    }
    if (typeof row?.ended_at === "number") fact("Took", seconds((row.ended_at - row.created_at) * 1000));
    const attempts = Math.max(root?.attempt ?? 1, row?.attempts ?? 1);
    fact("Events", session.events.length.toLocaleString("en"), attempts > 1 ? `${attempts} attempts` : "");
    if (root?.steps !== undefined) fact("Step", root.steps.findLast((step) => step.status === "in_progress")?.name ?? root.steps.at(-1).name, `of ${root.steps.length}`);
    const key = JSON.stringify(found);
    if (key === this.drawnFacts) return;
    this.drawnFacts = key;
    this.facts.replaceChildren(...found.map(([name, value, more]) =>
      el("div", { title: `${name}: ${value} ${more}` }, el("dt", {}, name), el("dd", {}, value, more && el("small", {}, ` ${more}`)))));
  }
}

/** Round steps, as many as have room for their labels. */
function steps(width, byTime, label) {
  const size = 10 ** Math.floor(Math.log10(Math.max(width, 1)));
  const marks = (step) => Array.from({ length: Math.floor(width / step) + 1 }, (_, n) => n * step);
  const longest = (step) => Math.max(...marks(step).map((value) => label(value).length));
  const choices = [0.2, 0.5, 1, 2, 5].map((part) => (byTime ? part * size : Math.max(1, Math.round(part * size))));
  return marks(choices.find((step) => (width / step) * (longest(step) + 1) < AXIS) ?? choices.at(-1));
}
