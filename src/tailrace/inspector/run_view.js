/**
 * One run in the conversation: what was asked, then the items as they grow.
 *
 * Each item has one node, which is updated when an event touches the item. The tree is never built
 * again while a run streams; `rebuild` is for time travel.
 */

import { copyText, dollars, el, inputText, seconds, setText } from "./dom.js";
import { fieldsOf, readPartial } from "./fields.js";
import { icon } from "./icons.js";
import { hasKey, openable } from "./key.js";
import { link, Markdown } from "./markdown.js";
import { isDenied } from "./timeline.js";

const IMAGE = /^data:image\/(png|jpeg|gif|webp|svg\+xml)[;,]/;
const ENDED = new Set(["completed", "failed", "incomplete", "cancelled"]);

const fold = () => {
  const mark = icon("chevron");
  mark.classList.add("fold");
  return mark;
};

export class RunView {
  /** `actions` are what the buttons do. */
  constructor(runId, actions) {
    this.runId = runId;
    this.actions = actions;
    this.past = undefined; // the event at which the run is shown, if not now
    this.asked = el("p", { class: "asked" });
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
    this.node.replaceChildren(this.asked, this.items, this.cards, this.foot);
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
    setText(this.asked, inputText(root.input));
    this.asked.hidden = this.asked.textContent === "";
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
    if (item.type === "reasoning") return new Thought(key);
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
    const approval = request.kind === "approval";
    const title = request.message ?? (approval ? `Run ${call?.tool ?? "this call"}?` : "The agent asks for an answer.");
    const given = approval ? pretty(call?.text ?? "") : "";
    const rows = Math.min(12, Math.max(approval ? 3 : 2, given.split("\n").length));
    const value = el("textarea", { rows, "aria-label": approval ? "Arguments" : "Answer" });
    value.value = given;
    const wrong = el("p", { class: "wrong", role: "alert", hidden: true });
    const send = async (body) => {
      const controls = card.querySelectorAll("button, textarea");
      for (const each of controls) each.disabled = true;
      const sent = await this.actions.answer(this.runId, { request_id: request.id, ...body });
      if (sent === undefined) for (const each of controls) each.disabled = false;
    };
    const read = () => {
      try {
        wrong.hidden = true;
        return { value: JSON.parse(value.value) };
      } catch (error) {
        wrong.hidden = false;
        setText(wrong, `This is not JSON: ${error.message}`);
        return undefined;
      }
    };
    const approve = () => {
      const edited = value.value === given ? {} : read();
      if (edited !== undefined) send({ approved: true, ...edited });
    };
    const takesText = request.schema === undefined || request.schema.type === "string";
    const reply = () => {
      const answer = takesText ? { value: value.value } : read();
      if (answer !== undefined) send(answer);
    };
    const choices = request.schema?.enum ?? (request.schema?.type === "boolean" ? [true, false] : undefined);
    const button = (label, action, kind) => el("button", { type: "button", class: kind, onclick: action }, label);
    const buttons = approval
      ? [button("Approve", approve, "primary"), button("Deny", () => send({ approved: false }))]
      : choices !== undefined
        ? choices.map((choice) => button(String(choice), () => send({ value: choice })))
        : [button("Answer", reply, "primary")];
    value.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing || !(event.metaKey || event.ctrlKey || (!approval && takesText && !event.shiftKey))) return;
      event.preventDefault();
      if (approval) approve();
      else reply();
    });
    const card = el(
      "section",
      { class: "card", "data-kind": approval ? "approval" : "question", "data-request": request.id, "data-task": task.task_id, "aria-label": title },
      el("h2", {}, title),
      approval ? el("p", {}, "The agent waits for you. You can change the arguments before you approve.") : undefined,
      choices === undefined ? value : undefined,
      wrong,
      el("div", { class: "row" }, ...buttons),
    );
    if (this.past !== undefined) for (const each of card.querySelectorAll("button, textarea")) each.disabled = true;
    return card;
  }

  #foot(root) {
    const words = [];
    const usages = this.state.taskIds.map((id) => this.state.fields(id).usage).filter((usage) => usage !== undefined);
    if (usages.length > 0) {
      const sum = (field) => usages.reduce((total, usage) => total + (usage[field] ?? 0), 0); // with sub-agents
      words.push(`${(sum("input_tokens") + sum("output_tokens")).toLocaleString("en")} tokens`);
      if (sum("cost") > 0) words.push(dollars(sum("cost")));
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

class Thought {
  constructor(key) {
    this.title = el("span", {}, "Thinking…");
    this.preview = el("bdi");
    this.line = el("span", { class: "preview clip" }, this.preview);
    this.body = el("div", { class: "body" });
    this.node = el("details", { class: "item thought", "data-key": key }, el("summary", {}, fold(), this.title, this.line), this.body);
  }

  update(item, time) {
    const text = [...(item.summary ?? []), ...(item.reasoning_text ?? [])].map((part) => part.text).join("\n\n");
    setText(this.body, text);
    const over = item.status !== "in_progress";
    const took = time === undefined || time.to - time.from < 50 ? "" : ` for ${seconds(time.to - time.from)}`;
    setText(this.title, over ? `Thought${took}` : "Thinking…");
    this.line.hidden = over;
    if (!over) setText(this.preview, text.slice(-120).replaceAll("\n", " "));
  }
}

class MessageView {
  constructor(taskId, key, actions) {
    this.taskId = taskId;
    this.actions = actions;
    this.parts = [];
    this.text = "";
    this.sources = el("ul", { class: "sources", hidden: true });
    this.body = el("div");
    this.node = el("div", { class: "item message", "data-key": key }, this.body, this.sources);
  }

  update(item) {
    this.node.classList.toggle("incomplete", item.status === "incomplete" || item.status === "failed");
    const urls = [];
    this.text = (item.block_list ?? []).map((block) => block.text ?? "").join("");
    (item.block_list ?? []).forEach((block, n) => {
      if (block.type === "text") {
        for (const note of block.annotations ?? []) if (note.type === "url_citation") urls.push(note);
      }
      this.#block(block, n);
    });
    if (this.sources.childElementCount !== urls.length) {
      this.sources.hidden = urls.length === 0;
      this.sources.replaceChildren(...urls.map((each) => el("li", {}, link(each.url, each.title || each.url) ?? each.url)));
    }
  }

  /** The name of the structured output that this message is. */
  setTitle(name) {
    const fields = this.body.querySelector(".fields");
    if (fields !== null && name && fields.querySelector(":scope > .label") === null) fields.prepend(el("p", { class: "label" }, name));
  }

  #block(block, n) {
    const part = (this.parts[n] ??= this.#part(block));
    if (block.type !== "text") {
      part.update(block);
      return;
    }
    part.numbers = new Set((block.annotations ?? []).map((note) => note.reference_id));
    const changed = part.numbers.size !== part.shown;
    part.shown = part.numbers.size;
    // A structured answer: its fields, as far as they have come.
    const value = block.text === part.read && !changed ? part.value : readPartial(block.text);
    const same = value === part.value;
    part.read = block.text;
    part.value = value;
    if (value !== undefined) {
      if (!same) part.node.replaceChildren(fieldsOf(value, part.cite));
      return;
    }
    // A marker counts when the server has annotated it, so nothing in the text can forge it.
    if (changed) part.markdown.reset();
    part.markdown.update(block.text);
  }

  #part(block) {
    const node = el("div");
    this.body.append(node);
    if (block.type !== "text") return blockPart(node, block);
    const part = { node, numbers: new Set(), shown: 0 };
    part.cite = (number) => (part.numbers.has(number) ? citation(number, this.taskId, this.actions) : undefined);
    part.markdown = new Markdown(node, part.cite);
    return part;
  }
}

function citation(number, taskId, actions) {
  return el(
    "button",
    {
      type: "button",
      class: "cite",
      "aria-label": `Source ${number}`,
      onclick: () => actions.cite(number, taskId),
      onmouseenter: (event) => actions.hint(event.currentTarget, number, taskId),
      onfocus: (event) => actions.hint(event.currentTarget, number, taskId),
      onmouseleave: () => actions.unhint(),
      onblur: () => actions.unhint(),
    },
    String(number),
  );
}

class CallView {
  constructor(item, key) {
    this.key = key;
    this.callId = item.call_id;
    this.tool = item.name;
    this.name = el("span", { class: "name" }, item.name);
    this.short = el("span", { class: "short mono muted clip" });
    this.side = el("span", { class: "side" });
    this.bar = el("progress", { max: 1, "aria-label": `Progress of ${item.name}` });
    this.does = el("span", { class: "clip" });
    this.progress = el("div", { class: "progress", hidden: true }, this.bar, this.does);
    this.arguments = el("pre", { "aria-label": "Arguments", hidden: true });
    this.changeNote = el("p", { class: "note", hidden: true });
    this.body = el("div", { class: "body" }, this.arguments, this.changeNote);
    this.node = el("details", { class: "item call", "data-key": key }, el("summary", {}, fold(), this.name, this.short, this.side, this.progress), this.body);
    this.text = "";
    this.numbers = [];
  }

  get isRunning() {
    return !this.ended && !this.asks && (this.result === undefined || this.result.status === "in_progress");
  }

  /** A person wrote other arguments: they are shown, as the tool runs with them. */
  change(text) {
    this.changed = text;
    this.changeNote.hidden = text === undefined;
  }

  update(item, time) {
    this.item = item;
    if (time !== undefined) this.time = { ...this.time, ...time };
    if (this.changed !== undefined) setText(this.changeNote, `A person changed the arguments. The model wrote ${item.arguments}`);
    const text = this.changed ?? item.arguments ?? "";
    if (text !== this.text) {
      this.text = text;
      setText(this.short, short(this.text));
      setText(this.arguments, compact(this.text));
      this.arguments.hidden = this.text === "" || this.delegated === true;
    }
    const progress = item.progress;
    this.progress.hidden = progress === undefined || !this.isRunning;
    if (progress !== undefined) {
      this.bar.max = progress.total ?? 1;
      if (progress.current !== undefined) this.bar.value = progress.current;
      setText(this.does, progress.message ?? "");
    }
    this.status();
  }

  /** The call is a sub-agent: its conversation stands here. */
  delegateTo(agent, asked, items) {
    this.delegated = true;
    this.arguments.hidden = asked !== "";
    this.short.hidden = asked !== "";
    if (agent !== this.tool) this.name.replaceChildren(this.tool, el("span", { class: "to" }, ` → ${agent}`));
    if (this.short.hidden) this.name.after(el("span", { class: "short muted clip" }));
    this.body.append(el("div", { class: "child" }, asked === "" ? undefined : el("p", { class: "asked-of" }, asked), items));
    this.node.open = true;
  }

  setAsks(asks) {
    if (this.asks === asks) return;
    this.asks = asks;
    this.status();
  }

  /** The run is over: whatever has no result gets none. */
  end() {
    if (this.ended) return;
    this.ended = true;
    this.progress.hidden = true;
    this.status();
  }

  status() {
    const done = this.result !== undefined && this.result.status !== "in_progress";
    const failed = this.result?.status === "failed" || this.result?.error !== undefined || this.item?.status === "failed" || this.item?.status === "incomplete";
    const to = this.isRunning && this.item?.started && this.now !== undefined ? this.now : this.time?.to;
    const length = this.time === undefined ? 0 : to - this.time.from;
    const mark = failed
      ? el("span", { class: isDenied(this.result) ? "denied" : "bad" }, isDenied(this.result) ? "denied" : this.result?.error?.code === "interrupted" ? "interrupted" : "failed")
      : done
        ? el("span", { class: "good", role: "img", "aria-label": "completed" }, icon("check"))
        : this.asks
          ? el("span", { class: "asks" }, "waits for you")
          : this.ended
            ? "not run"
            : el("span", { class: "busy", role: "img", "aria-label": "running" });
    const took = length < 1 || (!done && !this.item?.started) ? "" : seconds(length);
    const numbers = this.numbers.length > 0 ? `[${[...new Set(this.numbers)].join(", ")}]` : "";
    const key = `${took} ${failed} ${done} ${this.asks} ${this.ended} ${numbers}`;
    if (key === this.drawn) return;
    this.drawn = key;
    this.side.replaceChildren(...[took, mark, numbers].filter((each) => each !== ""));
  }
}

/** A result is shown inside its call. */
class ResultView {
  constructor(call, taskId, key) {
    this.call = call;
    this.taskId = taskId;
    this.parts = [];
    this.body = el("div", { "data-key": key });
    this.node = this.body;
    if (call !== undefined) {
      this.place = "call";
      call.body.append(this.body);
    }
    this.error = undefined;
  }

  update(item, time) {
    (item.block_list ?? []).forEach((block, n) => {
      if (this.parts[n] === undefined) {
        const node = el("div", { class: "block" });
        if (block.id !== undefined) {
          node.dataset.reference = `${this.taskId}:${block.id}`;
          node.append(el("span", { class: "number" }, `[${block.id}]`));
        }
        this.body.append(node);
        this.parts[n] = blockPart(node, block);
        // A picture is worth a look while it sharpens.
        if (block.type === "image" && this.call !== undefined) this.call.node.open = true;
      }
      this.parts[n].update(block);
    });
    if (item.error !== undefined && this.error === undefined) {
      this.error = isDenied(item) ? el("p", { class: "note" }, item.error.message) : el("p", { class: "failure" }, `${item.error.message} (${item.error.code})`);
      this.body.append(this.error);
    }
    if (this.call !== undefined) {
      this.call.result = item;
      this.call.numbers = (item.block_list ?? []).map((block) => block.id).filter((id) => id !== undefined);
      if (this.call.time !== undefined && time !== undefined) this.call.time.to = time.to;
      this.call.progress.hidden ||= !this.call.isRunning;
      this.call.status();
    }
  }
}

class RawView {
  constructor(key) {
    this.summary = el("summary", {}, fold(), "Raw item");
    this.body = el("pre");
    this.node = el("details", { class: "item thought", "data-key": key }, this.summary, this.body);
  }

  update(item) {
    setText(this.body, JSON.stringify(item.raw ?? item, null, 2));
  }
}

/** A block that is not Markdown: result text, image, file, data, refusal. */
function blockPart(node, block) {
  const body = el(block.type === "image" || block.type === "file" ? "div" : "pre");
  node.append(body);
  let image;
  return {
    node,
    update(now) {
      if (now.type === "text") setText(body, compact(now.text));
      else if (now.type === "refusal") setText(body, now.refusal);
      else if (now.type === "data") setText(body, `${now.name ?? "data"}\n${JSON.stringify(now.data, null, 2)}`);
      else if (now.type === "file") body.replaceChildren(fileLink(now) ?? now.name ?? now.url);
      else if (now.type === "image") {
        const url = now.image_url?.url ?? "";
        if (IMAGE.test(url) || sameOrigin(url)) {
          image ??= body.appendChild(el("img", { alt: "Image from a tool" }));
          if (image.dataset.url !== url) {
            image.dataset.url = url;
            if (url.startsWith("data:")) image.src = url;
            else openable(url).then((address) => (image.src = address), () => (image.alt = "The image could not be loaded"));
          }
        } else if (url !== "") body.replaceChildren("Image: ", link(url, url) ?? "not shown");
      } else setText(body, JSON.stringify(now, null, 2));
    },
  };
}

/** A link to a file; undefined for an address that a page must not open. */
function fileLink({ url, name }) {
  let node;
  try {
    node = link(new URL(url, location.href).href, name ?? url);
  } catch {
    return undefined;
  }
  if (node !== undefined && hasKey() && sameOrigin(url)) {
    node.addEventListener("click", (event) => {
      event.preventDefault();
      // Saved and not opened: a page among these files would be a page of this server.
      openable(url).then((address) => el("a", { href: address, download: name ?? "file" }).click(), () => undefined);
    });
  }
  return node;
}

function sameOrigin(url) {
  try {
    return url !== "" && new URL(url, location.href).origin === location.origin && !url.startsWith("data:");
  } catch {
    return false;
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

const short = (text) => (text.length > 120 ? `${text.slice(0, 120)}…` : text);

/** JSON on one line if it is short, else on many. */
function compact(text) {
  const many = pretty(text);
  return many === text || many.length > 72 ? many : many.replace(/\n */g, " ");
}

function pretty(text) {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
