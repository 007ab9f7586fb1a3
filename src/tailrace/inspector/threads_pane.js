/** The threads on the left: the newest, older threads on demand, and what a search finds. */

import { ago, byId, el, setText } from "./dom.js";
import { icon } from "./icons.js";
import { guarded } from "./problems.js";

const SEARCHED_PAGES = 10;
const FOUND = 50;

export const STATUSES = {
  completed: "completed", failed: "failed", cancelled: "stopped", incomplete: "incomplete",
  input_required: "waits for you", in_progress: "running", queued: "queued",
};

export class ThreadsPane {
  /**
   * `shown()` gives `{threadId, runs, chain, selected, statusOf}` of the conversation. `actions` are
   * `open(thread)`, `openRun(runId)` and `deleted(thread)`.
   */
  constructor(client, shown, actions) {
    this.client = client;
    this.shown = shown;
    this.actions = actions;
    this.newest = []; // the newest page, which is asked for again and again
    this.older = []; // the pages that the reader asked for
    this.next = undefined; // where the page after these begins
    this.matches = { words: "", threads: [] }; // what the server finds
    this.searching = undefined;
    this.loads = 0; // how often the newest page was asked for
    this.loaded = 0; // which of these requests is shown
    this.drawn = "";
    byId("search").addEventListener("input", () => this.#search());
  }

  get all() {
    return [...this.newest, ...without(this.older, this.newest)];
  }

  /** Ask for the newest threads again. */
  async load() {
    const turn = (this.loads += 1);
    const found = await this.client.request("GET", "threads").catch(() => undefined);
    if (found === undefined || turn < this.loaded) return; // a later request was answered before
    this.loaded = turn;
    if (this.older.length === 0) this.next = found.next;
    // A thread that newer threads pushed out of the page stays in the list.
    else this.older = [...without(this.newest, found.threads), ...this.older];
    this.newest = found.threads;
    this.show();
  }

  async #loadOlder() {
    const found = await guarded(() => this.client.request("GET", `threads?before=${encodeURIComponent(this.next)}`));
    if (found === undefined) return;
    this.older = [...this.older, ...without(found.threads, this.older)];
    this.next = found.next;
    this.show();
  }

  #search() {
    const words = byId("search").value.trim();
    clearTimeout(this.searching);
    this.matches = { words, threads: [], busy: words !== "" };
    if (words !== "") this.searching = setTimeout(() => this.#fill(this.matches), 150);
    this.show();
  }

  async #fill(into) {
    for await (const threads of this.find(into.words)) {
      if (into !== this.matches) return;
      into.threads = threads;
      this.show();
    }
    into.busy = false;
    this.show();
  }

  /** What the server finds, more with each page: words of older runs, and threads that are not loaded. */
  async *find(words) {
    let threads = [];
    let before = "";
    for (let pages = 0; pages < SEARCHED_PAGES && threads.length < FOUND && typeof before === "string"; pages += 1) {
      const from = before === "" ? "" : `&before=${encodeURIComponent(before)}`;
      const found = await this.client.request("GET", `threads?search=${encodeURIComponent(words)}${from}`).catch(() => undefined);
      if (found === undefined) return;
      threads = [...threads, ...without(found.threads, threads)];
      before = found.next;
      yield threads;
    }
  }

  show() {
    const words = byId("search").value.trim().toLowerCase();
    const known = this.all.filter((each) => words === "" || `${each.thread_id} ${each.last_run_id} ${each.title ?? ""} ${each.agent ?? ""} ${STATUSES[each.status]}`.toLowerCase().includes(words));
    const listed = words === "" ? known : [...known, ...without(this.matches.threads, known)];
    const none = byId("no-threads");
    none.hidden = listed.length > 0;
    setText(none, words === "" ? "No threads yet. Send a message to start the first." : this.matches.busy ? "Searching…" : "No thread has these words.");
    // The list is asked for often: it is drawn again only when it differs.
    const more = words === "" && typeof this.next === "string";
    const { threadId, runs, chain, selected, statusOf } = this.shown();
    const key = JSON.stringify([listed, more, threadId, runs.map((run) => [run, statusOf(run)]), chain, selected, Math.floor(Date.now() / 60_000)]);
    if (key === this.drawn) return;
    this.drawn = key;
    this.#draw(listed, more, threadId);
  }

  #draw(listed, more, threadId) {
    const list = byId("threads");
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.id : undefined;
    list.replaceChildren(...listed.map((each) =>
      el("li", {},
        el("button", { type: "button", "data-id": each.thread_id, "aria-current": each.thread_id === threadId ? "true" : undefined, onclick: () => this.actions.open(each) },
          mark(each.status),
          el("span", { class: "title", title: each.title || each.thread_id }, each.title || each.thread_id),
          el("span", { class: "sub" }, `${each.agent} · ${each.runs} ${each.runs === 1 ? "run" : "runs"}`),
          el("span", { class: "when" }, ago(each.updated_at))),
        el("button", { type: "button", class: "delete", title: "Delete", "aria-label": `Delete ${each.title || each.thread_id}`, onclick: () => this.#delete(each) }, icon("trash")),
        each.thread_id === threadId ? this.#runList() : undefined)),
      ...(more ? [el("li", {}, el("button", { type: "button", class: "more", onclick: () => this.#loadOlder() }, "Older threads"))] : []));
    if (focused !== undefined) [...list.querySelectorAll("[data-id]")].find((node) => node.dataset.id === focused)?.focus();
  }

  /** The runs of the thread that is shown, if it has branches or several turns. */
  #runList() {
    const { runs, chain, selected, statusOf } = this.shown();
    if (runs.length < 2) return undefined;
    const branch = (run) => (typeof run.previous_seq === "number" ? "fork: " : chain.includes(run.run_id) ? "" : "other branch: ");
    return el("ol", { class: "runs" }, ...runs.map((run, n) =>
      el("li", {}, el("button", { type: "button", title: `${run.title}\n${run.run_id}`, "data-id": run.run_id, "aria-current": run.run_id === selected ? "true" : undefined, onclick: () => this.actions.openRun(run.run_id) },
        mark(statusOf(run)),
        el("span", { class: "title" }, `${n + 1}. ${branch(run)}${run.title || run.run_id}`)))));
  }

  async #delete(thread) {
    if (!confirm(`Delete the thread “${thread.title || thread.thread_id}” with its runs?`)) return;
    const done = await guarded(() => this.client.request("DELETE", `threads/${encodeURIComponent(thread.thread_id)}`));
    if (done === undefined) return;
    for (const list of [this.older, this.matches.threads]) list.splice(0, Infinity, ...without(list, [thread]));
    await this.actions.deleted(thread);
  }
}

const without = (list, others) => list.filter((each) => !others.some((other) => other.thread_id === each.thread_id));

const mark = (status) => el("span", { class: "mark", "data-status": status, title: STATUSES[status] ?? status, role: "img", "aria-label": STATUSES[status] ?? status });
