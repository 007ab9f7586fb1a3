/** The inspector: threads on the left, the conversation, and what happened in it on the right. */

import { ApiError, Client } from "./client/index.js";
import { byId, el, inputText, setText } from "./dom.js";
import { EventsPane } from "./events_pane.js";
import { RunView } from "./run_view.js";
import { RunSession } from "./session.js";
import { showTimeline } from "./timeline.js";

const BASE = new URL("..", import.meta.url).href;
const MARKS = { completed: "✓", failed: "✕", cancelled: "■", incomplete: "◐", input_required: "?", in_progress: "●", queued: "○" };

class InspectorClient extends Client {
  constructor() {
    super(BASE, { headers: () => authorization() });
  }

  /** A stream as it is, for the raw view. */
  stream(url, signal) {
    return fetch(url, { headers: authorization(), signal });
  }
}

function authorization() {
  const key = sessionStorage.getItem("tailrace-key");
  return key ? { authorization: `Bearer ${key}` } : {};
}

const client = new InspectorClient();
const sessions = new Map(); // run_id → {session, view}
let threadId = location.hash.slice(1) ? decodeURIComponent(location.hash.slice(1)) : "";
let chain = []; // the run ids that are shown, oldest first
let threadRuns = [];
let selected; // the run that the right pane shows
let scrub; // how many events of it are shown; undefined follows the run
let edits; // what the next message continues, if not the last run: an edit or a fork
let tab = "timeline";
const dirty = new Set();
let scheduled = false;

const eventsPane = new EventsPane(byId("pane-events"), client, ["task"], (seq) => {
  const { session } = sessions.get(selected) ?? {};
  if (session !== undefined) moveTo(session.events.findIndex((each) => each.seq === seq) + 1);
});

const actions = {
  regenerate: (root) => start(root.input, previousOf(root)),
  edit: (root) => {
    edits = previousOf(root);
    byId("message").value = inputText(root.input);
    byId("message").focus();
  },
  fork: (root, seq) => {
    openThread(newThread(), [root.task_id], new Map([[root.task_id, seq]]));
    if (seq !== undefined) edits = { previous_run_id: root.task_id, previous_seq: seq };
    byId("message").focus();
  },
  stop: (runId) => guarded(() => client.cancel(runId)),
  answer: (runId, answer) => guarded(() => client.answer(runId, answer)),
  cite: (number, taskId) => {
    const target = sourceOf(number, taskId);
    if (target === undefined) return;
    for (let node = target; node !== null; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    target.scrollIntoView({ block: "center" });
    target.classList.remove("flash");
    void target.offsetWidth;
    target.classList.add("flash");
  },
  hint: (anchor, number, taskId) => {
    const target = sourceOf(number, taskId);
    const popover = byId("popover");
    popover.textContent = (target?.textContent ?? "This source is not loaded.").slice(0, 400);
    popover.hidden = false;
    const box = anchor.getBoundingClientRect();
    popover.style.left = `${Math.max(8, Math.min(box.left, innerWidth - 376))}px`;
    popover.style.top = `${box.bottom + 6 + popover.offsetHeight > innerHeight ? box.top - popover.offsetHeight - 6 : box.bottom + 6}px`;
  },
  unhint: () => {
    byId("popover").hidden = true;
  },
};

/** What a run continued, for a run that takes its place. */
function previousOf(root) {
  return { previous_run_id: root.previous_run_id ?? null, ...(root.previous_seq === undefined ? {} : { previous_seq: root.previous_seq }) };
}

/** The block that a number of a task cites: its own result, an imported source, or an earlier run's. */
function sourceOf(number, taskId) {
  const wanted = (task, id) => document.querySelector(`[data-reference="${CSS.escape(`${task}:${id}`)}"]`) ?? undefined;
  const own = wanted(taskId, number);
  if (own !== undefined) return own;
  for (const { session } of sessions.values()) {
    const imported = session.state.fields(taskId)?.imports?.find((each) => each.reference_id === number);
    if (imported !== undefined) return wanted(imported.source_task_id, imported.source_reference_id) ?? sourceOf(imported.source_reference_id, imported.source_task_id);
  }
  for (const runId of [...chain].reverse()) {
    const earlier = wanted(runId, number);
    if (earlier !== undefined) return earlier;
  }
  return undefined;
}

// --- runs ------------------------------------------------------------------------------------

function newThread() {
  return `thread_${crypto.randomUUID().slice(0, 8)}`;
}

async function guarded(action) {
  try {
    byId("alert").hidden = true;
    return await action();
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) await askKey();
    else alertWith(error instanceof ApiError ? error.message : `The server does not answer (${error.message}).`);
    return undefined;
  }
}

function alertWith(message) {
  byId("alert").textContent = message;
  byId("alert").hidden = false;
}

async function askKey() {
  const dialog = byId("key-dialog");
  if (!dialog.open) dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  sessionStorage.setItem("tailrace-key", byId("key").value);
  location.reload();
}

async function start(input, options = {}) {
  const agent = byId("agent").value;
  if (threadId === "") threadId = newThread();
  const last = chain.at(-1);
  const body = { thread_id: threadId, ...(last === undefined ? {} : { previous_run_id: last }), ...options };
  const started = await guarded(() => client.start(agent, input, body));
  if (started === undefined) return;
  location.hash = encodeURIComponent(threadId);
  await loadThread(started.run_id);
  loadThreads();
}

/** Show a thread: the chain of runs that its newest run continues. */
async function openThread(id, startFrom = undefined, untils = new Map()) {
  threadId = id;
  edits = undefined;
  location.hash = encodeURIComponent(id);
  chain = [];
  scrub = undefined;
  if (startFrom === undefined) await loadThread();
  else showChain(startFrom, untils);
  loadThreads();
}

let chainsShown = 0;
async function loadThread(newest) {
  const id = threadId;
  const before = chainsShown;
  const found = await guarded(() => client.request("GET", `threads/${encodeURIComponent(threadId)}`)).catch(() => undefined);
  // The reader has gone elsewhere meanwhile: to another thread, another branch, or another event.
  if (id !== threadId || (newest === undefined && (before !== chainsShown || scrub !== undefined))) return;
  threadRuns = found?.runs ?? [];
  const byRun = new Map(threadRuns.map((run) => [run.run_id, run]));
  const shown = [];
  const untils = new Map(); // a run that was forked counts up to an event
  for (let at = newest ?? threadRuns.at(-1)?.run_id; at && !shown.includes(at); at = byRun.get(at)?.previous_run_id) {
    shown.unshift(at);
    const run = byRun.get(at);
    if (typeof run?.previous_seq === "number") untils.set(run.previous_run_id, run.previous_seq);
  }
  showChain(shown, untils);
}

function showChain(runIds, untils = new Map()) {
  chain = runIds;
  chainsShown += 1;
  for (const [runId, { session }] of sessions) {
    if (!chain.includes(runId) || session.until !== untils.get(runId)) {
      session.stop();
      sessions.delete(runId);
    }
  }
  const nodes = chain.map((runId) => {
    if (!sessions.has(runId)) {
      const until = untils.get(runId);
      const view = new RunView(runId, actions);
      view.past = until;
      sessions.set(runId, { view, session: new RunSession(client, runId, changed, until) });
    }
    return sessions.get(runId).view.node;
  });
  byId("conversation").replaceChildren(...nodes);
  selected = chain.at(-1);
  scrub = undefined;
  setText(byId("thread-name"), threadId);
  dirty.add("panes");
  schedule();
  scrollToEnd(true);
}

function changed(session, { event, reset }) {
  const entry = sessions.get(session.runId);
  if (entry === undefined) return;
  if (reset) entry.view.rebuild(session.state);
  else if (event !== undefined) entry.view.touch(event, session.events.at(-1).at);
  if (session.status.kind === "ended" && !entry.listed) {
    entry.listed = true;
    refreshRuns();
  }
  dirty.add(session.runId);
  schedule();
}

/** A run has ended: the lists show its status, and the timeline its length. */
async function refreshRuns() {
  const id = threadId;
  const found = await client.request("GET", `threads/${encodeURIComponent(id)}`).catch(() => undefined);
  if (found !== undefined && id === threadId) threadRuns = found.runs;
  await loadThreads();
  dirty.add("panes");
  schedule();
}

function schedule() {
  if (scheduled) return;
  scheduled = true;
  // A hidden tab paints nothing, so a timer stands in.
  if (document.hidden) setTimeout(paint, 250);
  else requestAnimationFrame(paint);
}

function paint() {
  scheduled = false;
  const atEnd = isAtEnd();
  for (const runId of dirty) {
    const entry = sessions.get(runId);
    if (entry === undefined || (runId === selected && scrub !== undefined)) continue;
    entry.view.flush(entry.session.state);
  }
  const right = dirty.has(selected) || dirty.has("panes");
  dirty.clear();
  if (right) {
    showStream();
    showPanes();
  }
  if (atEnd && scrub === undefined) scrollToEnd();
}

const isAtEnd = () => {
  const box = byId("scroll");
  return box.scrollHeight - box.scrollTop - box.clientHeight < 80;
};

function scrollToEnd(soon = false) {
  const box = byId("scroll");
  box.scrollTop = box.scrollHeight;
  if (soon) setTimeout(() => (box.scrollTop = box.scrollHeight), 150);
}

// --- the top -----------------------------------------------------------------------------------

function showStream() {
  const { session } = sessions.get(selected) ?? {};
  const cut = byId("cut");
  const dot = document.querySelector(".dot");
  if (session === undefined) {
    setText(byId("stream-text"), "no run");
    cut.disabled = true;
    return;
  }
  const { kind } = session.status;
  const words = {
    connecting: "connecting",
    live: session.root?.status === "input_required" ? "waiting for you" : "live",
    waiting: `reconnecting in ${Math.ceil((session.status.delay ?? 0) / 1000)} s`,
    cut: `cut · ${session.waiting} waiting`,
    ended: session.root?.status ?? "ended",
    forked: "fork",
    failed: session.status.message,
  }[kind];
  const resumed = session.resumedFrom !== undefined && kind !== "cut" ? ` · resumed after seq ${session.resumedFrom}` : "";
  setText(byId("stream-text"), `${words} · seq ${session.seq} · ${session.missed} missed${resumed}`);
  dot.dataset.kind = kind;
  cut.disabled = kind === "ended" || kind === "forked" || kind === "failed";
  setText(cut, kind === "cut" ? "Resume" : "Cut");
}

// --- the right ---------------------------------------------------------------------------------

let paneTimer;
function showPanes() {
  const { session } = sessions.get(selected) ?? {};
  const range = byId("seq");
  const total = session?.events.length ?? 0;
  range.max = String(total);
  range.value = String(scrub ?? total);
  setText(byId("seq-text"), `seq ${scrub === undefined ? (session?.seq ?? 0) : (session?.events[scrub - 1]?.seq ?? 0)}`);
  // The panes cost more than a frame should: they follow a fifth of a second behind.
  paneTimer ??= setTimeout(() => {
    paneTimer = undefined;
    const { session: now } = sessions.get(selected) ?? {};
    if (now === undefined) return;
    if (tab === "timeline") showTimeline(byId("pane-timeline"), now, selectItem, lengthOf(now.runId));
    else if (tab === "events") eventsPane.show(now, scrub);
    else showState(now);
  }, 200);
}

function lengthOf(runId) {
  const run = threadRuns.find((each) => each.run_id === runId);
  return typeof run?.ended_at === "number" ? run.ended_at - run.created_at : undefined;
}

function selectItem(key) {
  const view = sessions.get(selected)?.view;
  const node = key.startsWith("task ") ? view?.children.get(key.slice(5)) : view?.nodeOf(key);
  if (node === undefined) return;
  for (let each = node; each !== null; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
  node.scrollIntoView({ block: "center" });
  node.classList.remove("flash");
  void node.offsetWidth;
  node.classList.add("flash");
}

let before = [];
function showState(session) {
  const state = scrub === undefined ? session.state : session.at(scrub);
  const lines = JSON.stringify(state.view() ?? null, null, 2).split("\n");
  const known = new Set(before);
  const body = el("pre", { class: "json" });
  const limit = 4000;
  for (const line of lines.slice(0, limit)) {
    body.append(before.length > 0 && !known.has(line) ? el("span", { class: "changed" }, line) : line, "\n");
  }
  if (lines.length > limit) body.append(`… ${lines.length - limit} more lines: GET ${client.url(`runs/${session.runId}`)}`);
  before = lines;
  byId("pane-state").replaceChildren(body);
}

function moveTo(count) {
  const entry = sessions.get(selected);
  if (entry === undefined) return;
  const total = entry.session.events.length;
  scrub = count >= total ? undefined : Math.max(0, count);
  const events = entry.session.events.slice(0, scrub ?? total);
  entry.view.past = scrub === undefined ? entry.session.until : events.at(-1)?.seq;
  entry.view.rebuild(scrub === undefined ? entry.session.state : entry.session.at(scrub), events);
  dirty.add("panes");
  schedule();
}

// --- threads -----------------------------------------------------------------------------------

let threads = [];
async function loadThreads() {
  const found = await guarded(() => client.request("GET", "threads"));
  threads = found?.threads ?? [];
  showThreads();
}

function showThreads() {
  const words = byId("search").value.trim().toLowerCase();
  const shown = threads.filter((each) => words === "" || `${each.thread_id} ${each.title ?? ""} ${each.agent ?? ""}`.toLowerCase().includes(words));
  byId("threads").replaceChildren(
    ...shown.map((each) =>
      el("li", {},
        el("button", { type: "button", "aria-current": each.thread_id === threadId ? "true" : undefined, onclick: () => { openThread(each.thread_id); showPane("chat"); } },
          el("span", { class: "mark", "data-status": each.status, title: each.status, "aria-label": each.status }, MARKS[each.status] ?? "·"),
          el("span", { class: "title" }, each.title || each.thread_id),
          el("span", { class: "sub" }, `${each.agent} · ${each.runs} ${each.runs === 1 ? "run" : "runs"}`)),
        el("button", { type: "button", class: "delete", title: "Delete", "aria-label": `Delete ${each.title || each.thread_id}`, onclick: () => deleteThread(each) }, "×"),
        each.thread_id === threadId ? runList() : undefined)),
  );
  byId("no-threads").hidden = shown.length > 0;
}

/** The runs of the thread that is shown, if it has branches or several turns. */
function runList() {
  if (threadRuns.length < 2) return undefined;
  return el("ol", { class: "runs" }, ...threadRuns.map((run, n) =>
    el("li", {}, el("button", { type: "button", "aria-current": run.run_id === chain.at(-1) ? "true" : undefined, onclick: () => loadThread(run.run_id).then(showThreads) },
      el("span", { class: "mark", "data-status": run.status, title: run.status, "aria-label": run.status }, MARKS[run.status] ?? "·"),
      el("span", { class: "title" }, `Run ${n + 1}${typeof run.previous_seq === "number" ? ", fork" : chain.includes(run.run_id) ? "" : ", other branch"}`)))));
}

async function deleteThread(thread) {
  if (!confirm(`Delete the thread “${thread.title || thread.thread_id}” with its runs?`)) return;
  const done = await guarded(() => client.request("DELETE", `threads/${encodeURIComponent(thread.thread_id)}`));
  if (done === undefined) return;
  if (thread.thread_id === threadId) await openThread(newThread(), []);
  else await loadThreads();
}

// --- controls ----------------------------------------------------------------------------------

function showPane(name) {
  document.querySelector(".panes").dataset.shown = name;
  for (const button of document.querySelectorAll(".tabs button")) {
    if (button.dataset.pane === name) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
}

function showTab(name) {
  tab = name;
  for (const each of ["timeline", "events", "state"]) {
    const button = byId(`tab-${each}`);
    button.setAttribute("aria-selected", String(each === name));
    button.tabIndex = each === name ? 0 : -1;
    byId(`pane-${each}`).hidden = each !== name;
  }
  dirty.add("panes");
  schedule();
}

function wire() {
  const message = byId("message");
  const grow = () => {
    message.style.height = "auto";
    message.style.height = `${Math.min(message.scrollHeight, 160)}px`;
  };
  message.addEventListener("input", grow);
  message.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      byId("composer").requestSubmit();
    }
  });
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = message.value.trim();
    if (text === "") return;
    message.value = "";
    grow();
    start(text, edits ?? {});
    edits = undefined;
  });
  byId("cut").addEventListener("click", () => {
    const { session } = sessions.get(selected) ?? {};
    if (session === undefined) return;
    if (session.status.kind === "cut") session.follower.resume();
    else session.follower.cut();
  });
  byId("theme").addEventListener("click", () => {
    const { dataset } = document.documentElement;
    const dark = (dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("tailrace-theme", document.documentElement.dataset.theme);
  });
  byId("new").addEventListener("click", () => {
    openThread(newThread(), []);
    showPane("chat");
    message.focus();
  });
  const find = () => {
    showPane("threads");
    byId("search").focus();
  };
  byId("find").addEventListener("click", find);
  byId("search").addEventListener("input", showThreads);
  byId("seq").addEventListener("input", (event) => moveTo(Number(event.target.value)));
  byId("back").addEventListener("click", () => moveTo((scrub ?? Number(byId("seq").max)) - 1));
  byId("forward").addEventListener("click", () => moveTo((scrub ?? Number(byId("seq").max)) + 1));
  for (const each of ["timeline", "events", "state"]) byId(`tab-${each}`).addEventListener("click", () => showTab(each));
  document.querySelector(".tablist").addEventListener("keydown", (event) => {
    const names = ["timeline", "events", "state"];
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    const next = names[(names.indexOf(tab) + step + names.length) % names.length];
    showTab(next);
    byId(`tab-${next}`).focus();
  });
  for (const button of document.querySelectorAll(".tabs button")) button.addEventListener("click", () => showPane(button.dataset.pane));
  document.addEventListener("keydown", (event) => {
    if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      find();
    } else if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "")) {
      event.preventDefault();
      message.focus();
    }
  });
  // Back online: do not sit out the wait.
  addEventListener("online", () => {
    for (const { session } of sessions.values()) if (session.status.kind === "waiting") session.follower.resume();
  });
  addEventListener("hashchange", () => {
    const id = decodeURIComponent(location.hash.slice(1));
    if (id !== threadId) openThread(id);
  });
  setInterval(() => {
    const { session } = sessions.get(selected) ?? {};
    if (session?.status.kind === "waiting") showStream();
  }, 500);
}

async function main() {
  const theme = localStorage.getItem("tailrace-theme");
  if (theme) document.documentElement.dataset.theme = theme;
  wire();
  const found = await guarded(() => client.request("GET", "agents"));
  const agents = (found?.agents ?? []).map((each) => (typeof each === "string" ? each : each.name));
  byId("agent").replaceChildren(...agents.map((name) => el("option", { value: name }, name)));
  byId("message").placeholder = agents.length > 0 ? `Message ${agents[0]}…` : "This server has no agents.";
  byId("agent").addEventListener("change", () => (byId("message").placeholder = `Message ${byId("agent").value}…`));
  if (found?.formats) eventsPane.setFormats(found.formats);
  await loadThreads();
  if (threadId !== "") await openThread(threadId);
  else if (threads.length > 0) await openThread(threads[0].thread_id);
  showTab("timeline");
  // What another tab starts shows up here, too.
  setInterval(async () => {
    if (document.hidden) return;
    await loadThreads();
    const newest = threads.find((each) => each.thread_id === threadId);
    if (newest !== undefined && newest.last_run_id !== threadRuns.at(-1)?.run_id && scrub === undefined && chain.length > 0) await loadThread();
  }, 4000);
}

main();
