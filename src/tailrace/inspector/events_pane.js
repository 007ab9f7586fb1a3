/** The raw events: a virtual list with filters, and the same run in any wire format. */

import { el, setText } from "./dom.js";

const ROW = 22;
const texts = new WeakMap(); // event → its JSON in lower case, for the filter

function textOf(event) {
  let text = texts.get(event);
  if (text === undefined) texts.set(event, (text = JSON.stringify(event).toLowerCase()));
  return text;
}

export class EventsPane {
  constructor(node, client, formats, select) {
    this.client = client;
    this.select = select;
    this.filter = el("input", { type: "search", placeholder: "Filter: text, type or task", "aria-label": "Filter events", oninput: () => this.show() });
    this.format = el("select", { "aria-label": "Wire format", onchange: () => this.#fetch() });
    this.setFormats(formats);
    this.copy = el("button", { type: "button", onclick: () => this.#copy() }, "Copy curl");
    this.space = el("div", { class: "space" });
    this.rows = el("div", { class: "rows", tabindex: "0", role: "list", "aria-label": "Events", onscroll: () => this.#paint() }, this.space);
    this.raw = el("pre", { class: "raw", tabindex: "0", "aria-label": "Stream", hidden: true });
    this.count = el("span", { class: "muted mono" });
    node.replaceChildren(el("div", { class: "filters" }, this.filter, this.format, this.copy), this.count, this.rows, this.raw);
    this.shown = [];
  }

  setFormats(formats) {
    this.format.replaceChildren(...formats.map((name) => el("option", { value: name }, name)));
  }

  /** Show this run's events, up to the scrubber's place. */
  show(session = this.session, upTo = this.upTo) {
    if (session !== this.session && this.format.value !== "task") {
      this.session = session;
      this.#fetch();
    }
    this.session = session;
    this.upTo = upTo;
    if (session === undefined || this.format.value !== "task") return;
    const words = this.filter.value.trim().toLowerCase();
    const events = upTo === undefined ? session.events : session.events.slice(0, upTo);
    this.shown = words === "" ? events : events.filter(({ event }) => textOf(event).includes(words));
    setText(this.count, `${this.shown.length} of ${session.events.length} events`);
    this.space.style.height = `${this.shown.length * ROW}px`;
    this.#paint();
  }

  #paint() {
    const first = Math.max(0, Math.floor(this.rows.scrollTop / ROW) - 5);
    const last = Math.min(this.shown.length, first + Math.ceil((this.rows.clientHeight || 400) / ROW) + 10);
    const rows = [];
    for (let n = first; n < last; n += 1) {
      const { event, seq } = this.shown[n];
      const { type, sequence_number: _, task_id, item_id, ...rest } = event;
      const shown = JSON.stringify({ ...rest, item_id, task_id }); // ids last: they are long
      const row = el("button", { type: "button", class: "event", role: "listitem", onclick: () => this.select(seq) },
        el("span", { class: "n" }, String(seq)), el("span", { class: "t" }, type.replace(/^task\./, "")), el("span", { class: "d" }, shown.slice(0, 300)));
      row.style.top = `${n * ROW}px`;
      rows.push(row);
    }
    this.space.replaceChildren(...rows);
  }

  #url() {
    const query = this.format.value === "task" ? "" : `?format=${this.format.value}`;
    return this.client.url(`runs/${encodeURIComponent(this.session.runId)}/events${query}`);
  }

  async #fetch() {
    const native = this.format.value === "task";
    this.raw.hidden = native;
    this.rows.hidden = native === false;
    this.reading?.abort();
    if (this.session === undefined) return;
    if (native) {
      this.show();
      return;
    }
    setText(this.count, `${this.format.value}, byte for byte`);
    this.raw.textContent = "";
    const reading = new AbortController();
    this.reading = reading;
    try {
      const response = await this.client.stream(this.#url(), reading.signal);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done || reading.signal.aborted) return;
        this.raw.append(value);
      }
    } catch (error) {
      if (!reading.signal.aborted) this.raw.append(`\n${error.message}`);
    }
  }

  async #copy() {
    if (this.session === undefined) return;
    await navigator.clipboard?.writeText(`curl -N '${this.#url()}'`).catch(() => undefined);
    setText(this.copy, "Copied");
    setTimeout(() => setText(this.copy, "Copy curl"), 1200);
  }
}
