/**
 * One run in the conversation: what was asked, then the items as they grow.
 *
 * Each item has one node, which is updated when an event touches the item. The tree is never built
 * again while a run streams; `rebuild` is for time travel.
 */

import { dollars, el, inputText, seconds, setText } from "./dom.js";
import { link, Markdown } from "./markdown.js";

const IMAGE = /^data:image\/(png|jpeg|gif|webp|svg\+xml)[;,]/;
const ENDED = { completed: "✓", failed: "✕", incomplete: "◐", cancelled: "■" };

export class RunView {
  /** `actions` are what the buttons do; `find(number, taskId)` gives the node of a cited block. */
  constructor(runId, actions) {
    this.runId = runId;
    this.actions = actions;
    this.past = undefined; // the event at which the run is shown, if not now
    this.node = el("article", { class: "run", "aria-label": "Run" });
    this.asked = el("p", { class: "asked" });
    this.items = el("div");
    this.cards = el("div");
    this.foot = el("div");
    this.node.append(this.asked, this.items, this.cards, this.foot);
    this.clear();
  }

  clear() {
    this.views = new Map(); // "task:index" → view of an item
    this.calls = new Map(); // "task:call_id" → view of a call
    this.children = new Map(); // task_id → container of a sub-agent's items
    this.times = new Map(); // key → {from, to}
    this.dirty = new Set();
    this.dirtyTasks = new Set();
    this.drafts ??= new Map(); // what the reader typed into a card
    this.items.replaceChildren();
    this.cards.replaceChildren();
    this.foot.replaceChildren();
    this.shown = "";
  }

  /** Remember what an event touches, and when. */
  touch(event, at) {
    if (event.output_index !== undefined) {
      const key = `${event.task_id}:${event.output_index}`;
      this.dirty.add(key);
      // Only a run that was followed live has times of its own.
      if (at !== undefined) {
        const time = this.times.get(key) ?? { from: at, to: at };
        time.to = at;
        this.times.set(key, time);
      }
    }
    this.dirtyTasks.add(event.task_id);
    const call = event.call_id === undefined ? undefined : this.calls.get(`${event.task_id}:${event.call_id}`);
    if (call !== undefined) this.dirty.add(call.key); // progress names the call, not its place
    if (event.type === "task.attempt") this.dirty.add("all");
  }

  /** Build the run again at another place: `events` are those that led to the state. */
  rebuild(state, events = []) {
    this.clear();
    for (const { event, at } of events) this.touch(event, at);
    this.dirty.add("all");
    this.flush(state);
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

  #container(state, taskId, rootId) {
    if (taskId === rootId) return this.items;
    const found = this.children.get(taskId);
    if (found !== undefined) return found;
    const { parent_task_id: parent, call_id: callId, agent } = state.fields(taskId);
    const call = this.calls.get(`${parent}:${callId}`);
    if (call === undefined) return undefined;
    const items = el("div");
    call.body.append(el("div", { class: "child" }, el("p", { class: "who" }, agent ?? "sub-agent"), items));
    call.details.open = true;
    if (agent !== undefined && agent !== call.tool) setText(call.name, `${call.tool} → ${agent}`);
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
    view.update(item, this.times.get(key));
  }

  #newView(item, taskId, key) {
    if (item.type === "reasoning") return new Thought(key);
    if (item.type === "message") return new MessageView(taskId, key, this.actions);
    if (item.type === "tool_call") {
      const view = new CallView(item, taskId, key, this.actions);
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
      container.append(el("p", { class: "attempt" }, `Attempt ${task.attempt}`));
    }
    if (!isRoot && task.error !== undefined && !container.failed) {
      container.failed = true;
      container.append(el("p", { class: "failure" }, `${task.error.message} (${task.error.code})`));
    }
    this.#requests(task);
  }

  #requests(task) {
    const open = task.status === "input_required" ? (task.requests ?? []) : [];
    for (const card of [...this.cards.children]) {
      if (card.dataset.task === task.task_id && !open.some((request) => request.id === card.dataset.request)) card.remove();
    }
    for (const request of open) {
      const known = [...this.cards.children].some((card) => card.dataset.request === request.id);
      if (!known) this.cards.append(this.#card(task, request));
    }
  }

  #card(task, request) {
    const call = this.calls.get(`${task.task_id}:${request.call_id}`);
    const approval = request.kind === "approval";
    const title = request.message ?? (approval ? `Approve ${call?.tool ?? "this call"}?` : "The agent asks for an answer.");
    const arguments_ = approval ? pretty(call?.text ?? "") : "";
    const rows = Math.min(12, Math.max(2, arguments_.split("\n").length));
    const value = el("textarea", { rows, "aria-label": approval ? "Arguments" : "Answer" });
    value.value = arguments_;
    const answer = (body) => {
      card.querySelectorAll("button").forEach((button) => (button.disabled = true));
      this.actions.answer(this.runId, { request_id: request.id, ...body });
    };
    const read = () => {
      try {
        return JSON.parse(value.value);
      } catch {
        return value.value;
      }
    };
    const edited = () => (approval && pretty(call?.text ?? "") !== value.value ? { value: read() } : {});
    const buttons = approval
      ? [
          el("button", { type: "button", class: "primary", onclick: () => answer({ approved: true, ...edited() }) }, "Approve"),
          el("button", { type: "button", onclick: () => answer({ approved: false }) }, "Deny"),
        ]
      : [el("button", { type: "button", class: "primary", onclick: () => answer({ value: request.schema === undefined ? value.value : read() }) }, "Answer")];
    const card = el(
      "section",
      { class: "card", "data-request": request.id, "data-task": task.task_id, "aria-label": title },
      el("h2", {}, title),
      value,
      el("div", { class: "row" }, ...buttons),
    );
    return card;
  }

  #foot(root) {
    const usage = root.usage;
    const words = [];
    if (usage !== undefined) {
      words.push(`${usage.input_tokens + usage.output_tokens} tokens`);
      if (usage.cost !== undefined) words.push(dollars(usage.cost));
    }
    // An answer that is only the structured output is shown once, as that.
    const output = root.structured_output === undefined ? undefined : JSON.stringify(root.structured_output.value);
    for (const view of this.views.values()) {
      if (view instanceof MessageView && output !== undefined) view.node.hidden = canonical(view.text) === output;
    }
    const shown = JSON.stringify([this.past, root.status, root.error, root.reason, words, root.structured_output]);
    if (shown === this.shown) return;
    this.shown = shown;
    const parts = [];
    if (root.structured_output !== undefined) {
      parts.push(el("pre", { "aria-label": "Structured output" }, JSON.stringify(root.structured_output.value, null, 2)));
    }
    if (root.error !== undefined) parts.push(el("p", { class: "failure" }, `${root.error.message} (${root.error.code}, ${this.runId})`));
    else if (root.status === "cancelled" || root.status === "incomplete") {
      parts.push(el("p", { class: "note", "data-level": "warning" }, `${root.status === "cancelled" ? "Stopped" : "Incomplete"}${root.reason ? `: ${root.reason}` : ""}`));
    }
    const button = (label, action) => el("button", { type: "button", class: "link", onclick: action }, label);
    const tools = el("div", { class: "tools" });
    if (this.past !== undefined) {
      tools.append(button("⇗ Fork here", () => this.actions.fork(root, this.past)), el("span", { class: "usage" }, `after event ${this.past}`));
    } else if (root.status in ENDED) {
      tools.append(
        button("⟳ Regenerate", () => this.actions.regenerate(root)),
        button("✎ Edit", () => this.actions.edit(root)),
        button("⇗ Fork here", () => this.actions.fork(root)),
      );
    } else tools.append(button("■ Stop", () => this.actions.stop(this.runId)));
    if (words.length > 0) tools.append(el("span", { class: "usage" }, words.join(" · ")));
    parts.push(tools);
    this.foot.replaceChildren(...parts);
  }

  /** The node of an item, for the timeline. */
  nodeOf(key) {
    return this.views.get(key)?.node;
  }
}

class Thought {
  constructor(key) {
    this.summary = el("summary", {}, "Thinking…");
    this.body = el("div", { class: "body" });
    this.node = el("details", { class: "item thought", "data-key": key }, this.summary, this.body);
  }

  update(item, time) {
    const parts = [...(item.summary ?? []), ...(item.reasoning_text ?? [])];
    setText(this.body, parts.map((part) => part.text).join("\n\n"));
    const over = item.status !== "in_progress";
    const took = time === undefined || time.to - time.from < 50 ? "" : ` for ${seconds(time.to - time.from)}`;
    setText(this.summary, over ? `Thought${took}` : "Thinking…");
  }
}

class MessageView {
  constructor(taskId, key, actions) {
    this.taskId = taskId;
    this.actions = actions;
    this.parts = [];
    this.sources = el("ul", { class: "sources" });
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
      this.sources.replaceChildren(...urls.map((each) => el("li", {}, link(each.url, each.title || each.url) ?? each.url)));
    }
  }

  #block(block, n) {
    const part = (this.parts[n] ??= this.#part(block));
    if (block.type === "text") {
      part.numbers = new Set((block.annotations ?? []).map((note) => note.reference_id));
      // A marker counts when the server has annotated it, so nothing in the text can forge it.
      if (part.numbers.size !== part.shown) {
        part.shown = part.numbers.size;
        part.markdown.reset();
      }
      part.markdown.update(block.text);
    } else part.update(block);
  }

  #part(block) {
    const node = el("div");
    this.body.append(node);
    if (block.type !== "text") return blockPart(node, block);
    const part = { node, numbers: new Set(), shown: 0 };
    part.markdown = new Markdown(node, (number) => (part.numbers.has(number) ? citation(number, this.taskId, this.actions) : undefined));
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
  constructor(item, taskId, key) {
    this.key = key;
    this.tool = item.name;
    this.name = el("span", { class: "name" }, item.name);
    this.short = el("span", { class: "short mono muted clip" });
    this.side = el("span", { class: "side" });
    this.arguments = el("pre", { "aria-label": "Arguments" });
    this.progress = el("div", { class: "progress", hidden: true });
    this.body = el("div", { class: "body" }, this.arguments, this.progress);
    this.details = el("details", { class: "item call", "data-key": key }, el("summary", {}, this.name, this.short, this.side), this.body);
    this.node = this.details;
    this.text = "";
    this.numbers = [];
  }

  update(item, time) {
    this.item = item;
    if (time !== undefined) this.time = { ...this.time, ...time };
    if (item.arguments !== this.text) {
      this.text = item.arguments ?? "";
      setText(this.short, short(this.text));
      setText(this.arguments, pretty(this.text));
      this.arguments.hidden = this.text === "";
    }
    const progress = item.progress;
    this.progress.hidden = progress === undefined || this.result !== undefined;
    if (progress !== undefined) {
      const bar = el("progress", { max: progress.total ?? 1, "aria-label": "Progress" });
      if (progress.current !== undefined) bar.value = progress.current;
      this.progress.replaceChildren(bar, progress.message ?? "");
    }
    this.status();
  }

  status() {
    const done = this.result !== undefined && this.result.status !== "in_progress";
    const failed = this.result?.status === "failed" || this.item?.status === "failed" || this.item?.status === "incomplete";
    const took = this.time === undefined || this.time.to - this.time.from < 1 ? "" : seconds(this.time.to - this.time.from);
    const mark = failed ? el("span", { class: "bad" }, "✕ failed") : done ? el("span", { class: "good" }, "✓") : this.item?.status === "in_progress" ? "…" : this.item?.started ? "running" : "waiting";
    this.side.replaceChildren(took, took && " ", mark, this.numbers.length > 0 ? ` [${[...new Set(this.numbers)].join(", ")}]` : "");
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
      }
      this.parts[n].update(block);
    });
    if (item.error !== undefined && this.error === undefined) {
      this.error = el("p", { class: "failure" }, `${item.error.message} (${item.error.code})`);
      this.body.append(this.error);
    }
    if (this.call !== undefined) {
      this.call.result = item;
      this.call.numbers = (item.block_list ?? []).map((block) => block.id).filter((id) => id !== undefined);
      if (this.call.time !== undefined && time !== undefined) this.call.time.to = time.to;
      this.call.progress.hidden = true;
      this.call.status();
    }
  }
}

class RawView {
  constructor(key) {
    this.summary = el("summary", {}, "Raw item");
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
      if (now.type === "text") setText(body, pretty(now.text));
      else if (now.type === "refusal") setText(body, now.refusal);
      else if (now.type === "data") setText(body, `${now.name ?? "data"}\n${JSON.stringify(now.data, null, 2)}`);
      else if (now.type === "file") body.replaceChildren("📎 ", link(new URL(now.url, location.href).href, now.name ?? now.url) ?? now.url);
      else if (now.type === "image") {
        const url = now.image_url?.url ?? "";
        if (IMAGE.test(url) || sameOrigin(url)) {
          image ??= body.appendChild(el("img", { alt: "Image from a tool" }));
          if (image.getAttribute("src") !== url) image.setAttribute("src", url);
        } else if (url !== "") body.replaceChildren("Image: ", link(url, url) ?? "not shown");
      } else setText(body, JSON.stringify(now, null, 2));
    },
  };
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

function pretty(text) {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
