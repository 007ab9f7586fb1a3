/** The raw events: a virtual list with filters, and the same run in any wire format. */

import { copyText, el, inputText, setText } from "./dom.js";
import { icon } from "./icons.js";
import { authorization, hasKey } from "./key.js";
import { VirtualList } from "./virtual_list.js";

const NATIVE = "task";
const texts = new WeakMap(); // event → its JSON in lower case, for the filter

function textOf(event) {
  let text = texts.get(event);
  if (text === undefined) texts.set(event, (text = JSON.stringify(event).toLowerCase()));
  return text;
}

/** What an event adds, in one line: words first, then its fields; ids and times last, they are long. */
function gist(event) {
  const { type: _type, sequence_number: _seq, task_id, item_id, delta, output_index, block_index, summary_index, text_index, at, created_at, item, ...rest } = event;
  if (typeof delta === "string") return delta.slice(0, 240);
  const { type: kind, id, call_id, name, ...content } = item ?? {};
  const words = [kind, name, rest.agent, inputText(rest.input), rest.text, rest.arguments, rest.message, content.text, content.arguments].filter((each) => typeof each === "string" && each !== "");
  const shown = { ...rest, ...content, output_index, block_index, summary_index, text_index, item_id, id, call_id, task_id, at, created_at };
  return `${words.join(" ")} ${JSON.stringify(shown).slice(1, -1)}`.trimStart().slice(0, 240);
}

const KINDS = { "task.completed": "end", "task.failed": "bad", "task.cancelled": "bad", "task.incomplete": "bad" };

export class EventsPane {
  /** `select(seq)` moves the page to an event. */
  constructor(node, client, select) {
    this.client = client;
    this.select = select;
    const again = () => this.#filtered();
    this.filter = el("input", { type: "search", placeholder: "Filter by text", "aria-label": "Filter events", autocomplete: "off", oninput: again });
    this.type = el("select", { "aria-label": "Type of event", onchange: again });
    this.task = el("select", { "aria-label": "Task", onchange: again });
    this.format = el("select", { "aria-label": "Wire format", onchange: () => this.#fetch() });
    this.copy = el("button", { type: "button", onclick: () => this.#copy() }, icon("copy"), "Copy as curl");
    this.count = el("span");
    this.list = new VirtualList("Events", "event", (n) => this.#row(n), (n) => this.#choose(this.shown[n]));
    this.raw = new VirtualList("Stream", "line", (n) => this.#line(n), (n) => this.#openLine(this.shownLines[n]));
    this.raw.node.hidden = true;
    this.detail = el("section", { class: "detail", "aria-label": "Event", hidden: true });
    node.replaceChildren(
      el("div", { class: "filters" }, this.filter, this.type, this.task, this.format, this.copy),
      el("div", { class: "counts" }, this.count),
      this.list.node, this.raw.node, this.detail);
    this.setFormats([NATIVE]);
    this.#reset();
  }

  setFormats(formats) {
    this.format.replaceChildren(...formats.map((name) => el("option", { value: name }, name)));
  }

  #reset() {
    this.scanned = 0;
    this.shown = [];
    this.lines = [];
    this.shownLines = [];
    this.types = new Set();
    this.tasks = new Map();
    this.list.clear();
    this.type.replaceChildren(el("option", { value: "" }, "All types"));
    this.task.replaceChildren(el("option", { value: "" }, "All tasks"));
    this.detail.hidden = true;
  }

  /** Show this run's events; those after the scrubber's place are dim. */
  show(session, upTo) {
    const another = session !== this.session || this.origin !== session?.events[0];
    const moved = upTo !== this.upTo;
    this.session = session;
    this.origin = session?.events[0];
    this.upTo = upTo;
    if (another) {
      this.#reset();
      if (this.format.value !== NATIVE) this.#fetch();
    }
    if (session === undefined) {
      setText(this.count, "No events yet");
      this.list.show(0);
      return;
    }
    this.#scan();
    if (this.format.value !== NATIVE) return;
    this.list.show(this.shown.length);
    this.#counted();
    if (!moved) return;
    const n = upTo === undefined ? -1 : this.shown.findIndex((at) => at >= upTo - 1);
    this.list.choose(n < 0 ? undefined : n);
  }

  #counted() {
    const all = this.session.events.length.toLocaleString("en");
    setText(this.count, this.shown.length === this.session.events.length ? `${all} events` : `${this.shown.length.toLocaleString("en")} of ${all} events`);
  }

  /** Take the events that came since. */
  #scan() {
    const { events } = this.session;
    const words = this.filter.value.trim().toLowerCase();
    const [type, task] = [this.type.value, this.task.value];
    for (; this.scanned < events.length; this.scanned += 1) {
      const { event } = events[this.scanned];
      if (!this.types.has(event.type)) {
        this.types.add(event.type);
        this.type.append(el("option", { value: event.type }, event.type.replace(/^task\./, "")));
      }
      if (!this.tasks.has(event.task_id)) {
        this.tasks.set(event.task_id, event.agent ?? event.task_id);
        this.task.append(el("option", { value: event.task_id }, event.agent ?? event.task_id));
      }
      if (type !== "" && event.type !== type) continue;
      if (task !== "" && event.task_id !== task) continue;
      if (words !== "" && !textOf(event).includes(words)) continue;
      this.shown.push(this.scanned);
    }
  }

  #filtered() {
    this.scanned = 0;
    this.shown = [];
    this.list.clear();
    if (this.session === undefined) return;
    this.#scan();
    this.list.show(this.shown.length);
    if (this.format.value === NATIVE) this.#counted();
    else this.#filterLines();
  }

  #row(n) {
    const at = this.shown[n];
    const { event, seq } = this.session.events[at];
    const { type } = event;
    const parts = [
      el("span", { class: "n" }, String(seq)),
      el("span", { class: "t", "data-kind": KINDS[type] }, type.replace(/^task\./, "")),
      el("span", { class: "d" }, gist(event)),
    ];
    return { parts, kind: this.upTo !== undefined && at >= this.upTo ? "later" : "" };
  }

  #choose(at) {
    const { event, seq } = this.session.events[at];
    this.#describe(`${seq} · ${event.type}`, JSON.stringify(event, null, 2));
    this.select(at + 1);
  }

  #describe(title, text) {
    const close = () => (this.detail.hidden = true);
    const copy = el("button", { type: "button", class: "quiet", "aria-label": "Copy the event", onclick: () => copyText(text, copy) }, icon("copy"));
    this.detail.replaceChildren(
      el("header", {}, el("b", {}, title), copy, el("button", { type: "button", class: "quiet", "aria-label": "Close the event", onclick: close }, icon("close"))),
      el("pre", { tabindex: "0", "aria-label": title }, text.length > 100_000 ? `${text.slice(0, 100_000)}…` : text));
    this.detail.scrollTop = 0;
    this.detail.hidden = false;
  }

  // --- other formats -------------------------------------------------------------------------

  #url() {
    const query = this.format.value === NATIVE ? "" : `?format=${this.format.value}`;
    return this.client.url(`runs/${encodeURIComponent(this.session.runId)}/events${query}`);
  }

  async #fetch() {
    const native = this.format.value === NATIVE;
    this.raw.node.hidden = native;
    this.list.node.hidden = !native;
    this.type.disabled = !native;
    this.task.disabled = !native;
    this.detail.hidden = true;
    this.reading?.abort();
    if (this.session === undefined) return;
    if (native) {
      this.show(this.session, this.upTo);
      return;
    }
    this.lines = [];
    this.shownLines = [];
    this.bytes = 0;
    this.rest = "";
    this.raw.clear();
    const reading = new AbortController();
    this.reading = reading;
    try {
      const response = await fetch(this.#url(), { headers: authorization(), signal: reading.signal });
      if (!response.ok) throw new Error((await response.json().catch(() => undefined))?.error?.message ?? `The server answered ${response.status}.`);
      const decoder = new TextDecoder();
      const reader = response.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (reading.signal.aborted) return;
        this.bytes += value?.length ?? 0;
        this.#lines(done ? `${decoder.decode()}` : decoder.decode(value, { stream: true }), done);
        if (done) return;
      }
    } catch (error) {
      if (!reading.signal.aborted) setText(this.count, error.message);
    }
  }

  #lines(text, done) {
    const lines = (this.rest + text).split("\n");
    this.rest = done ? "" : lines.pop();
    if (done && lines.at(-1) === "") lines.pop();
    const words = this.filter.value.trim().toLowerCase();
    for (const line of lines) {
      if (words === "" || line.toLowerCase().includes(words)) this.shownLines.push(this.lines.length);
      this.lines.push(line);
    }
    this.raw.show(this.shownLines.length);
    this.#countLines();
  }

  #filterLines() {
    const words = this.filter.value.trim().toLowerCase();
    this.shownLines = [];
    this.raw.clear();
    this.lines.forEach((line, n) => (words === "" || line.toLowerCase().includes(words)) && this.shownLines.push(n));
    this.raw.show(this.shownLines.length);
    this.#countLines();
  }

  #countLines() {
    const all = this.lines.length.toLocaleString("en");
    const some = this.shownLines.length === this.lines.length ? all : `${this.shownLines.length.toLocaleString("en")} of ${all}`;
    setText(this.count, `${some} lines · ${this.bytes.toLocaleString("en")} bytes, as clients get them`);
  }

  #line(n) {
    const at = this.shownLines[n];
    return { parts: [el("span", { class: "n" }, String(at + 1)), el("span", { class: "d" }, this.lines[at].slice(0, 300))] };
  }

  #openLine(at) {
    let text = this.lines[at];
    try {
      text = JSON.stringify(JSON.parse(text.replace(/^data: ?/, "")), null, 2);
    } catch {
      // A line without JSON is shown as it is.
    }
    this.#describe(`Line ${at + 1}`, text);
  }

  async #copy() {
    if (this.session === undefined) return;
    const key = hasKey() ? ` -H "Authorization: Bearer $TAILRACE_KEY"` : "";
    await copyText(`curl -N${key} '${this.#url()}'`, this.copy);
  }
}
