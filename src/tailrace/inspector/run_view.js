/**
 * One run in the conversation: what was asked, then the items as they grow.
 *
 * Each item has one node, which is updated when an event touches the item. The tree is never built
 * again while a run streams; `rebuild` is for time travel.
 */

import { blockPart } from "./blocks.js";
import { CallView, ResultView } from "./call_view.js";
import { copyText, dollars, el, inputImages, inputText, setText } from "./dom.js";
import { fieldsOf } from "./fields.js";
import { RawView, ThoughtView } from "./folded_views.js";
import { icon } from "./icons.js";
import { MessageView } from "./message_view.js";
import { requestCard } from "./request_card.js";

const ENDED = new Set(["completed", "failed", "incomplete", "cancelled"]);

export class RunView {
  /** `actions` are what the buttons do. */
  constructor(runId, actions) {
    this.runId = runId;
    this.actions = actions;
    this.past = undefined; // the event at which the run is shown, if not now
    this.asked = el("p", { class: "asked" });
    this.pictures = el("div", { class: "asked-pictures" });
    this.cards = el("div");
    this.foot = el("div");
    this.node = el("article", { class: "run", "aria-label": "Run", onpointerdown: () => actions.choose(runId) });
    this.clear();
  }

  clear() {
    this.views = new Map(); // "task:index" → view of an item
    this.calls = new Map(); // "task:call_id" → view of a call
    this.children = new Map(); // task_id → container of a sub-agent's items
    this.times = new Map(); // key → {from, to}
    this.approvals = new Map(); // request_id → "task:call_id"
    this.changes = new Map(); // "task:call_id" → the arguments that a person wrote
    this.dirty = new Set();
    this.dirtyTasks = new Set();
    this.items = el("div"); // a new node: it also remembers how many notices it shows
    this.cards.replaceChildren();
    this.foot.replaceChildren();
    this.node.replaceChildren(this.asked, this.pictures, this.items, this.cards, this.foot);
    this.shown = "";
  }

  /** Remember what an event touches, and when. */
  touch(event, at) {
    if (event.output_index !== undefined) {
      const key = `${event.task_id}:${event.output_index}`;
      this.dirty.add(key);
      // Old logs have no times.
      if (at !== undefined) {
        const time = this.times.get(key) ?? { from: at, to: at };
        time.to = at;
        if (event.type === "task.tool_call.started") time.from = at;
        this.times.set(key, time);
      }
    }
    this.dirtyTasks.add(event.task_id);
    const call = event.call_id === undefined ? undefined : this.calls.get(`${event.task_id}:${event.call_id}`);
    if (call !== undefined) this.dirty.add(call.key); // progress names the call, not its place
    if (event.type === "task.attempt") this.dirty.add("all");
    if (event.type === "task.input_required") {
      for (const { id, kind, call_id: callId } of event.requests) if (kind === "approval") this.approvals.set(id, `${event.task_id}:${callId}`);
    }
    if (event.type === "task.input_received" && event.approved && typeof event.value === "object" && this.approvals.has(event.request_id)) {
      const changed = this.approvals.get(event.request_id);
      this.changes.set(changed, JSON.stringify(event.value));
      if (this.calls.has(changed)) this.dirty.add(this.calls.get(changed).key);
    }
  }

  /** Build the run again at another place: `events` are those that led to the state. */
  rebuild(state, events = []) {
    const open = new Map([...this.node.querySelectorAll("details[data-key]")].map((each) => [each.dataset.key, each.open]));
    this.clear();
    for (const { event, at } of events) this.touch(event, at);
    this.dirty.add("all");
    this.flush(state);
    for (const each of this.node.querySelectorAll("details[data-key]")) if (open.has(each.dataset.key)) each.open = open.get(each.dataset.key);
  }

  /** Bring the page up to the state: only what events touched. */
  flush(state) {
    if (this.dirty.size === 0 && this.dirtyTasks.size === 0) return;
    const all = this.dirty.has("all");
    const [rootId] = state.taskIds;
    if (rootId === undefined) return;
    this.state = state;
    const root = state.fields(rootId);
    setText(this.asked, inputText(root.input, false));
    this.asked.hidden = this.asked.textContent === "";
    if (this.input !== root.input && this.pictures.childElementCount === 0) {
      this.input = root.input;
      for (const url of inputImages(root.input)) {
        const block = { type: "image", image_url: { url } };
        blockPart(this.pictures, block, "Image of the question").update(block);
      }
    }
    const known = new Set();
    for (const taskId of state.taskIds) {
      if (!all && !this.dirtyTasks.has(taskId)) continue;
      const container = this.#container(state, taskId, rootId);
      if (container === undefined) continue;
      for (const index of state.indexes(taskId)) {
        const key = `${taskId}:${index}`;
        known.add(key);
        if (all || this.dirty.has(key) || !this.views.has(key)) this.#item(state, taskId, index, container);
      }
      this.#fields(state.fields(taskId), container, taskId === rootId);
    }
    for (const [key, view] of all ? this.views : []) {
      // An attempt that was given up: its items leave the answer.
      if (!known.has(key)) {
        view.node.remove();
        this.views.delete(key);
      }
    }
    this.dirty.clear();
    this.dirtyTasks.clear();
    this.#foot(root);
  }

  /** A second has passed: calls that run show for how long. `now` is the time of the run's worker. */
  tick(now) {
    for (const call of this.calls.values()) {
      if (!call.isRunning) continue;
      call.now = now;
      call.status();
    }
  }

  #container(state, taskId, rootId) {
    if (taskId === rootId) return this.items;
    const found = this.children.get(taskId);
    if (found !== undefined) return found;
    const { parent_task_id: parent, call_id: callId, agent, input } = state.fields(taskId);
    const call = this.calls.get(`${parent}:${callId}`);
    if (call === undefined) return undefined;
    const items = el("div");
    call.delegateTo(agent ?? "sub-agent", inputText(input), items);
    this.children.set(taskId, items);
    return items;
  }

  #item(state, taskId, index, container) {
    const item = state.item(taskId, index);
    if (item === undefined) return;
    const key = `${taskId}:${index}`;
    let view = this.views.get(key);
    if (view === undefined) {
      view = this.#newView(item, taskId, key);
      this.views.set(key, view);
      if (view.place !== "call") container.append(view.node);
    }
    if (item.type === "tool_call") view.change(this.changes.get(`${taskId}:${item.call_id}`));
    view.update(item, this.times.get(key));
  }

  #newView(item, taskId, key) {
    if (item.type === "reasoning") return new ThoughtView(key);
    if (item.type === "message") return new MessageView(taskId, key, this.actions);
    if (item.type === "tool_call") {
      const view = new CallView(item, key);
      this.calls.set(`${taskId}:${item.call_id}`, view);
      return view;
    }
    if (item.type === "tool_result") return new ResultView(this.calls.get(`${taskId}:${item.call_id}`), taskId, key);
    return new RawView(key);
  }

  #fields(task, container, isRoot) {
    const notes = (task.notices ?? []).slice(container.noted ?? 0);
    container.noted = (task.notices ?? []).length;
    for (const note of notes) {
      container.append(el("p", { class: "note", "data-level": note.level }, note.message));
    }
    if (task.attempt !== undefined && container.attempt !== task.attempt) {
      container.attempt = task.attempt;
      container.append(el("p", { class: "attempt" }, `Attempt ${task.attempt}: the run goes on from its log`));
    }
    if (!isRoot && task.error !== undefined && !container.failed) {
      container.failed = true;
      container.append(el("p", { class: "failure" }, `${task.error.message} (${task.error.code})`));
    }
    this.#requests(task);
    if (isRoot && ENDED.has(task.status)) for (const call of this.calls.values()) call.end();
  }

  #requests(task) {
    const open = task.status === "input_required" ? (task.requests ?? []) : [];
    for (const card of [...this.cards.children]) {
      if (card.dataset.task === task.task_id && !open.some((request) => request.id === card.dataset.request)) card.remove();
    }
    for (const [key, call] of this.calls) {
      if (key.startsWith(`${task.task_id}:`)) call.setAsks(open.some((request) => request.call_id === call.callId));
    }
    for (const request of open) {
      const known = [...this.cards.children].some((card) => card.dataset.request === request.id);
      if (!known) this.cards.append(this.#card(task, request));
    }
  }

  #card(task, request) {
    const call = this.calls.get(`${task.task_id}:${request.call_id}`);
    const card = requestCard(task.task_id, request, call, (answer, refused) => this.actions.answer(this.runId, answer, refused));
    if (this.past !== undefined) for (const each of card.querySelectorAll("button, textarea")) each.disabled = true;
    return card;
  }

  #foot(root) {
    const words = [];
    const { usage } = root;
    if (usage !== undefined) {
      words.push(`${(usage.input_tokens + usage.output_tokens).toLocaleString("en")} tokens`);
      if (usage.cost > 0) words.push(dollars(usage.cost));
    }
    // An answer that is only the structured output is shown once, as that.
    const output = root.structured_output;
    const text = output === undefined ? undefined : JSON.stringify(output.value);
    const answer = [...this.views.values()].find((view) => view instanceof MessageView && text !== undefined && canonical(view.text) === text);
    answer?.setTitle(output.name);
    const shown = JSON.stringify([this.past, root.status, root.error, root.reason, words, output, answer === undefined]);
    if (shown === this.shown) return;
    this.shown = shown;
    this.node.toggleAttribute("data-past", this.past !== undefined);
    const parts = [];
    if (output !== undefined && answer === undefined) {
      const isObject = typeof output.value === "object" && output.value !== null;
      parts.push(isObject ? fieldsOf(output.value, undefined, output.name) : el("pre", { "aria-label": "Structured output" }, JSON.stringify(output.value, null, 2)));
    }
    if (root.error !== undefined) parts.push(this.#failure(root.error));
    else if (root.status === "cancelled" || root.status === "incomplete") {
      parts.push(el("p", { class: "note", "data-level": "warning" }, `${root.status === "cancelled" ? "Stopped" : "Incomplete"}${root.reason ? `: ${root.reason}` : ""}`));
    }
    const button = (name, label, action) => el("button", { type: "button", class: "quiet", onclick: action }, icon(name), label);
    const tools = el("div", { class: "tools" });
    if (this.past !== undefined) {
      tools.append(button("fork", "Fork here", () => this.actions.fork(root, this.past)), el("span", { class: "usage" }, `after event ${this.past}`));
    } else if (ENDED.has(root.status)) {
      tools.append(
        button("redo", "Regenerate", () => this.actions.regenerate(root)),
        button("edit", "Edit", () => this.actions.edit(root)),
        button("fork", "Fork here", () => this.actions.fork(root)),
      );
    } else tools.append(button("stop", "Stop", () => this.actions.stop(this.runId)));
    if (words.length > 0) tools.append(el("span", { class: "usage" }, words.join(" · ")));
    parts.push(tools);
    this.foot.replaceChildren(...parts);
  }

  #failure(error) {
    const copy = el("button", { type: "button", class: "quiet mono", title: "Copy the id of the run", onclick: () => copyText(this.runId, copy) }, icon("copy"), this.runId);
    return el("div", { class: "failure" }, error.message, el("div", { class: "facts-line" }, el("span", { class: "mono" }, error.code), copy));
  }

  /** The node of an item, for the timeline. */
  nodeOf(key) {
    return this.views.get(key)?.node;
  }
}

/** JSON without its white space; undefined for any other text. */
function canonical(text) {
  try {
    return JSON.stringify(JSON.parse(text));
  } catch {
    return undefined;
  }
}
