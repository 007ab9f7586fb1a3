/** The inspector: threads on the left, the conversation, and what happened in it on the right. */

import { ApiError, Client } from "./client/index.js";
import { ago, byId, copyText, el, inputText, setText } from "./dom.js";
import { EventsPane } from "./events_pane.js";
import { gentleFetch } from "./gentle_fetch.js";
import { icon, placeIcons } from "./icons.js";
import { authorization, hasKey, setKey } from "./key.js";
import { listenToKeys, Palette } from "./palette.js";
import { RunView } from "./run_view.js";
import { RunSession } from "./session.js";
import { StatePane } from "./state_pane.js";
import { Timeline } from "./timeline.js";

const BASE = new URL("..", import.meta.url).href;
const SEARCHED_PAGES = 10;
const TABS = ["timeline", "events", "state"];
const STATUSES = {
  completed: "completed", failed: "failed", cancelled: "stopped", incomplete: "incomplete",
  input_required: "waits for you", in_progress: "running", queued: "queued",
};

const client = new Client(BASE, { headers: authorization, fetch: gentleFetch });
const sessions = new Map(); // run_id → {session, view}
let threadId = idOfHash();
let chain = []; // the run ids that are shown, oldest first
let threadRuns = [];
let agents = []; // the agents of the server, with what they do
let selected; // the run that the right pane shows
let scrub; // how many events of it are shown; undefined follows the run
let edits; // what the next message continues, if not the last run: an edit or a fork
let tab = "timeline";
const dirty = new Set();
let scheduled = false;

const eventsPane = new EventsPane(byId("pane-events"), client, (count) => moveTo(count, true));
const statePane = new StatePane(byId("pane-state"), (runId) => client.url(`runs/${runId}`));
const timeline = new Timeline(byId("pane-timeline"), (key) => selectItem(key));

const current = () => sessions.get(selected);

const actions = {
  choose: (runId) => choose(runId),
  regenerate: (root) => start(root.input, previousOf(root), root.agent),
  edit: (root) => {
    replaceNext(previousOf(root), "The next message replaces this turn.");
    byId("message").value = inputText(root.input);
    grow();
    byId("message").focus();
  },
  fork: (root, seq) => {
    openThread(newThread(), [root.task_id], new Map([[root.task_id, seq]]));
    if (seq !== undefined) replaceNext({ previous_run_id: root.task_id, previous_seq: seq }, `The next message continues after event ${seq}, in a thread of its own.`);
    else replaceNext(undefined, "The next message continues in a thread of its own.");
    byId("message").focus();
  },
  stop: (runId) => guarded(() => client.cancel(runId)),
  answer: (runId, answer) => guarded(() => client.answer(runId, answer)),
  cite: (number, taskId) => {
    const target = sourceOf(number, taskId);
    if (target === undefined) return;
    reveal(target);
  },
  hint: (anchor, number, taskId) => {
    const target = sourceOf(number, taskId);
    const popover = byId("popover");
    const words = [...(target?.querySelectorAll("pre") ?? [])].map((node) => node.textContent).join("\n") || target?.textContent || "This source is not loaded.";
    popover.replaceChildren(el("b", {}, `Source ${number}${target === undefined ? "" : ` · ${target.closest(".call")?.querySelector(".name")?.textContent ?? ""}`}`), words.slice(0, 400));
    popover.hidden = false;
    const box = anchor.getBoundingClientRect();
    popover.style.left = `${Math.max(8, Math.min(box.left, innerWidth - popover.offsetWidth - 8))}px`;
    popover.style.top = `${box.bottom + 6 + popover.offsetHeight > innerHeight ? box.top - popover.offsetHeight - 6 : box.bottom + 6}px`;
  },
  unhint: () => {
    byId("popover").hidden = true;
  },
};

/** Open what a node is folded in, bring it into sight and flash it once. */
function reveal(node) {
  showPane("chat");
  for (let each = node; each !== null; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
  node.scrollIntoView({ block: "center" });
  const flashed = node.tagName === "DETAILS" ? node.querySelector("summary") : node;
  flashed.classList.remove("flash");
  void flashed.offsetWidth;
  flashed.classList.add("flash");
}

/** What the next message continues, and what the reader sees of it. */
function replaceNext(options, words) {
  edits = options;
  const note = byId("replaces");
  note.hidden = words === undefined;
  if (words !== undefined) setText(note.firstElementChild, words);
}

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
  const bytes = crypto.getRandomValues(new Uint8Array(4)); // randomUUID is only for https
  return `thread_${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** Do what the reader asked for. If it fails, say why and return undefined. */
async function guarded(action) {
  try {
    byId("alert").hidden = true;
    return (await action()) ?? null;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) await askKey();
    else alertWith(error instanceof ApiError ? error.message : "The server does not answer. Is it running?");
    return undefined;
  }
}

function alertWith(message) {
  byId("alert").textContent = message;
  byId("alert").hidden = false;
}

async function askKey() {
  const dialog = byId("key-dialog");
  if (dialog.open) return;
  if (hasKey()) setText(byId("key-words"), "The server refused this key. Enter another key.");
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  if (dialog.returnValue !== "ok" || byId("key").value === "") {
    alertWith("Without a key this server shows nothing. Reload the page to enter a key.");
    return;
  }
  setKey(byId("key").value);
  location.reload();
}

/** Whether the run started. */
async function start(input, options = {}, agent = byId("agent").value) {
  if (threadId === "") threadId = newThread();
  const last = chain.at(-1);
  const body = { thread_id: threadId, ...(last === undefined ? {} : { previous_run_id: last }), ...options };
  const started = await guarded(() => client.start(agent, input, body));
  if (started === undefined) return false;
  location.hash = encodeURIComponent(threadId);
  replaceNext(undefined);
  await loadThread(started.run_id, true);
  loadThreads();
  return true;
}

/** Show a thread: the chain of runs that its newest run continues. */
async function openThread(id, startFrom = undefined, untils = new Map()) {
  const before = chain;
  threadId = id;
  replaceNext(undefined);
  location.hash = encodeURIComponent(id);
  chain = [];
  threadRuns = [];
  scrub = undefined;
  if (startFrom === undefined) await loadThread();
  else {
    const at = before.indexOf(startFrom[0]);
    showChain(at < 0 ? startFrom : before.slice(0, at + 1), untils);
  }
  loadThreads();
}

let chainsShown = 0;
async function loadThread(newest, isNew = false) {
  const id = threadId;
  const before = chainsShown;
  const found = await client.request("GET", `threads/${encodeURIComponent(threadId)}`).catch(() => undefined);
  const runs = found?.runs ?? [];
  const byRun = new Map(runs.map((run) => [run.run_id, run]));
  const shown = [];
  const untils = new Map(); // a run that was forked counts up to an event
  for (let at = newest ?? runs.at(-1)?.run_id; at && !shown.includes(at); ) {
    shown.unshift(at);
    // A fork continues a run of another thread.
    const run = byRun.get(at) ?? (await client.request("GET", `runs/${encodeURIComponent(at)}`).catch(() => undefined));
    if (typeof run?.previous_seq === "number") untils.set(run.previous_run_id, run.previous_seq);
    at = run?.previous_run_id;
  }
  // The reader has gone elsewhere meanwhile: to another thread, another branch, or another event.
  if (id !== threadId || (newest === undefined && (before !== chainsShown || scrub !== undefined))) return;
  threadRuns = runs;
  const agent = byRun.get(shown.at(-1))?.agent;
  if (agent !== undefined && !isNew && agents.some((each) => each.name === agent)) byId("agent").value = agent;
  showChain(shown, untils, isNew ? newest : undefined);
}

/** Show these runs. `started` is a run that this page has just started. */
function showChain(runIds, untils = new Map(), started = undefined) {
  const lastSeq = new Map(threadRuns.map((run) => [run.run_id, run.last_seq]));
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
      const known = runId === started ? 0 : (lastSeq.get(runId) ?? Infinity);
      sessions.set(runId, { view, session: new RunSession(client, runId, changed, { until, known }) });
    }
    return sessions.get(runId).view.node;
  });
  byId("conversation").replaceChildren(...nodes);
  byId("conversation").hidden = nodes.length === 0;
  selected = chain.at(-1);
  scrub = undefined;
  showWelcome();
  showPlaceholder();
  dirty.add("panes");
  schedule();
  scrollToEnd(true);
}

/** Show this run on the right. */
function choose(runId) {
  if (runId === selected || !sessions.has(runId)) return;
  if (scrub !== undefined) moveTo(Infinity);
  selected = runId;
  dirty.add("panes");
  schedule();
  showThreads();
}

/** Show a run of the thread: in its place if it is on this page, else with the branch that it ends. */
async function openRun(runId) {
  const entry = sessions.get(runId);
  if (entry === undefined || entry.session.until !== undefined) await loadThread(runId).then(showThreads);
  choose(runId);
  if (runId !== chain.at(-1)) sessions.get(runId)?.view.node.scrollIntoView({ block: "start" });
}

function changed(session, { event, reset }) {
  const entry = sessions.get(session.runId);
  if (entry === undefined || entry.session !== session) return;
  if (reset) entry.view.rebuild(session.state);
  else if (event !== undefined) entry.view.touch(event, session.events.at(-1).at);
  if (["task.in_progress", "task.input_required", "task.input_received"].includes(event?.type) && event.sequence_number > session.known) loadThreads();
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
  const height = byId("scroll").scrollHeight;
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
  else if (scrub === undefined && byId("scroll").scrollHeight > height && current()?.session.ended === false) byId("to-end").hidden = false;
}

const isAtEnd = () => {
  const box = byId("scroll");
  return box.scrollHeight - box.scrollTop - box.clientHeight < 80;
};

function scrollToEnd(soon = false) {
  const box = byId("scroll");
  box.scrollTop = box.scrollHeight;
  byId("to-end").hidden = true;
  if (soon) setTimeout(() => (box.scrollTop = box.scrollHeight), 150);
}

// --- the top -----------------------------------------------------------------------------------

function showStream() {
  const session = current()?.session;
  const cut = byId("cut");
  const stream = byId("stream");
  const name = byId("thread-name");
  setText(name, threadId);
  name.hidden = chain.length === 0;
  if (session === undefined) {
    setText(byId("stream-text"), "no run");
    stream.dataset.kind = "none";
    cut.disabled = true;
    return;
  }
  const { kind } = session.status;
  const status = session.root?.status;
  const asks = kind === "live" && status === "input_required";
  const events = (count) => `${count.toLocaleString("en")} ${count === 1 ? "event" : "events"}`;
  const words = {
    connecting: "connecting",
    live: asks ? "waiting for you" : "live",
    waiting: navigator.onLine ? `reconnecting in ${Math.max(1, Math.ceil((retryAt - Date.now()) / 1000))} s` : "offline: reconnecting when the network is back",
    cut: `cut · ${events(session.waiting)} waiting`,
    ended: status ?? "ended",
    forked: "fork",
    failed: session.status.message,
  }[kind];
  const resumed = session.resumed !== undefined && kind !== "cut" && kind !== "waiting" ? ` · resumed${session.resumed > 0 ? ` after ${events(session.resumed)}` : ""}` : "";
  setText(byId("stream-text"), `${words} · seq ${session.seq} · ${session.missed} missed${resumed}`);
  stream.title = `${byId("stream-text").textContent}\nEvery event has a number. A number that never arrives counts as missed.`;
  stream.dataset.kind = asks ? "asks" : kind === "ended" && status === "failed" ? "failed" : kind === "ended" ? "completed" : kind;
  cut.disabled = kind === "ended" || kind === "forked" || kind === "failed";
  setText(cut.lastElementChild, kind === "cut" ? "Resume" : "Cut");
  cut.classList.toggle("primary", kind === "cut");
  cut.title = kind === "cut" ? "Connect again, after the last event that arrived (C)" : "Drop the connection; the run goes on (C)";
}

/** When the stream is tried again, for the words at the top. */
let retryAt = 0;
let retried;
function countDown() {
  const session = current()?.session;
  if (session?.status.kind !== "waiting") return;
  if (retried !== session.status) {
    retried = session.status;
    retryAt = Date.now() + (session.status.delay ?? 0);
  }
  showStream();
}

function cutOrResume() {
  const session = current()?.session;
  if (session === undefined || byId("cut").disabled) return;
  if (session.status.kind === "cut") session.follower.resume();
  else session.follower.cut();
}

// --- the right ---------------------------------------------------------------------------------

let paneTimer;
function showPanes() {
  const session = current()?.session;
  const range = byId("seq");
  const total = session?.events.length ?? 0;
  range.max = String(total);
  range.value = String(scrub ?? total);
  range.disabled = total === 0;
  byId("back").disabled = total === 0 || scrub === 0;
  byId("forward").disabled = scrub === undefined;
  byId("now").hidden = scrub === undefined;
  setText(byId("seq-text"), `seq ${scrub === undefined ? (session?.seq ?? 0) : (session?.events[scrub - 1]?.seq ?? 0)}`);
  // The panes cost more than a frame should: they follow a fifth of a second behind.
  paneTimer ??= setTimeout(showTabNow, scrub === undefined ? 200 : 0);
}

function showTabNow() {
  paneTimer = undefined;
  const session = current()?.session;
  if (tab === "timeline") timeline.show(session, scrub, threadRuns.find((run) => run.run_id === session?.runId));
  else if (tab === "events") eventsPane.show(session, scrub);
  else statePane.show(session, scrub);
}

function selectItem(key) {
  const view = current()?.view;
  const node = key.startsWith("task ") ? view?.children.get(key.slice(5)) : view?.nodeOf(key);
  if (node !== undefined) reveal(node);
}

/** Show the first `count` events of the selected run; `stay` keeps the last event a place in the past. */
function moveTo(count, stay = false) {
  const entry = current();
  if (entry === undefined) return;
  const total = entry.session.events.length;
  scrub = count > total || (count === total && !stay) ? undefined : Math.max(0, count);
  if (scrub === total && entry.session.ended) scrub = undefined;
  const events = entry.session.events.slice(0, scrub ?? total);
  entry.view.past = scrub === undefined ? entry.session.until : events.at(-1)?.seq;
  entry.view.rebuild(scrub === undefined ? entry.session.state : entry.session.at(scrub), events);
  dirty.add("panes");
  schedule();
}

const step = (by) => moveTo((scrub ?? current()?.session.events.length ?? 0) + by);

// --- threads -----------------------------------------------------------------------------------

let threads = []; // the newest page, which is asked for again and again
let older = []; // the pages that the reader asked for
let next; // where the page after these begins
async function loadThreads() {
  const found = await client.request("GET", "threads").catch(() => undefined);
  if (found === undefined) return;
  if (older.length === 0) next = found.next;
  // A thread that newer threads pushed out of the page stays in the list.
  else older = [...without(threads, found.threads), ...older];
  threads = found.threads;
  showThreads();
}

const without = (list, others) => list.filter((each) => !others.some((other) => other.thread_id === each.thread_id));
const allThreads = () => [...threads, ...without(older, threads)];

async function loadOlder() {
  const found = await guarded(() => client.request("GET", `threads?before=${encodeURIComponent(next)}`));
  if (found === undefined) return;
  older = [...older, ...without(found.threads, older)];
  next = found.next;
  showThreads();
}

/** What the server finds: threads with an older run that has the words, and threads that are not loaded. */
let matches = { words: "", threads: [] };
let searching;
function search() {
  const words = byId("search").value.trim();
  clearTimeout(searching);
  matches = { words, threads: [], busy: words !== "" };
  if (words !== "") searching = setTimeout(() => findThreads(matches), 150);
  showThreads();
}

async function findThreads(into) {
  let before = "";
  for (let pages = 0; pages < SEARCHED_PAGES && into.threads.length < 50 && typeof before === "string"; pages += 1) {
    const from = before === "" ? "" : `&before=${encodeURIComponent(before)}`;
    const found = await client.request("GET", `threads?search=${encodeURIComponent(into.words)}${from}`).catch(() => undefined);
    if (into !== matches || found === undefined) break;
    into.threads.push(...without(found.threads, into.threads));
    before = found.next;
    showThreads();
  }
  into.busy = false;
  showThreads();
}

let listed = "";
function showThreads() {
  const words = byId("search").value.trim().toLowerCase();
  const known = allThreads().filter((each) => words === "" || `${each.thread_id} ${each.last_run_id} ${each.title ?? ""} ${each.agent ?? ""} ${STATUSES[each.status]}`.toLowerCase().includes(words));
  const shown = words === "" ? known : [...known, ...without(matches.threads, known)];
  const none = byId("no-threads");
  none.hidden = shown.length > 0;
  setText(none, words === "" ? "No threads yet. Send a message to start the first." : matches.busy ? "Searching…" : "No thread has these words.");
  // The list is asked for often: it is drawn again only when it differs.
  const more = words === "" && typeof next === "string";
  const key = JSON.stringify([shown, more, threadId, threadRuns.map((run) => [run, statusOf(run)]), chain, selected, Math.floor(Date.now() / 60_000)]);
  if (key === listed) return;
  listed = key;
  const list = byId("threads");
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset.id : undefined;
  list.replaceChildren(...shown.map((each) =>
    el("li", {},
      el("button", { type: "button", "data-id": each.thread_id, "aria-current": each.thread_id === threadId ? "true" : undefined, onclick: () => { openFound(each); showPane("chat"); } },
        mark(each.status),
        el("span", { class: "title", title: each.title || each.thread_id }, each.title || each.thread_id),
        el("span", { class: "sub" }, `${each.agent} · ${each.runs} ${each.runs === 1 ? "run" : "runs"}`),
        el("span", { class: "when" }, ago(each.updated_at))),
      el("button", { type: "button", class: "delete", title: "Delete", "aria-label": `Delete ${each.title || each.thread_id}`, onclick: () => deleteThread(each) }, icon("trash")),
      each.thread_id === threadId ? runList() : undefined)),
    ...(more ? [el("li", {}, el("button", { type: "button", class: "more", onclick: loadOlder }, "Older threads"))] : []));
  if (focused !== undefined) [...list.querySelectorAll("[data-id]")].find((node) => node.dataset.id === focused)?.focus();
}

/** Open a thread; at the run that was searched for, if there is one. */
async function openFound({ thread_id: id, found_run_id: runId }) {
  await openThread(id);
  if (runId !== undefined && id === threadId) await openRun(runId);
}

const mark = (status) => el("span", { class: "mark", "data-status": status, title: STATUSES[status] ?? status, role: "img", "aria-label": STATUSES[status] ?? status });

/** The status of a run: as this page follows it, else as the server listed it. */
const statusOf = (run) => sessions.get(run.run_id)?.session.root?.status ?? run.status;

/** The runs of the thread that is shown, if it has branches or several turns. */
function runList() {
  if (threadRuns.length < 2) return undefined;
  const branch = (run) => (typeof run.previous_seq === "number" ? "fork: " : chain.includes(run.run_id) ? "" : "other branch: ");
  return el("ol", { class: "runs" }, ...threadRuns.map((run, n) =>
    el("li", {}, el("button", { type: "button", title: `${run.title}\n${run.run_id}`, "data-id": run.run_id, "aria-current": run.run_id === selected ? "true" : undefined, onclick: () => openRun(run.run_id) },
      mark(statusOf(run)),
      el("span", { class: "title" }, `${n + 1}. ${branch(run)}${run.title || run.run_id}`)))));
}

async function deleteThread(thread) {
  if (!confirm(`Delete the thread “${thread.title || thread.thread_id}” with its runs?`)) return;
  const done = await guarded(() => client.request("DELETE", `threads/${encodeURIComponent(thread.thread_id)}`));
  if (done === undefined) return;
  for (const list of [older, matches.threads]) list.splice(0, Infinity, ...without(list, [thread]));
  if (thread.thread_id === threadId) await openThread(newThread(), []);
  else await loadThreads();
}

/** The first page: what the server can do. */
function showWelcome() {
  const node = byId("welcome");
  node.hidden = chain.length > 0;
  if (node.hidden) return;
  const about = ({ description, tools, model }) => {
    const names = tools.map((each) => each.name);
    const words = [description, names.length > 0 ? `Tools: ${names.slice(0, 6).join(", ")}${names.length > 6 ? " …" : ""}` : "", model && model !== "scripted" ? `Model: ${model}` : ""];
    return words.filter(Boolean).join(" · ");
  };
  const choices = agents.map((each) =>
    el("li", {}, el("button", { type: "button", onclick: () => talkTo(each.name) }, el("b", {}, each.name), about(each) && el("small", {}, about(each)))));
  node.replaceChildren(
    el("h2", {}, agents.length === 0 ? "This server has no agents yet." : "Ask an agent."),
    el("p", {}, agents.length === 0
      ? "Pass them to Tailrace([...]) and start the server again."
      : "Every event is stored before you see it. Cut the connection, reload, or open a second tab: the stream goes on where it was."),
    el("ul", { class: "agents" }, ...choices));
}

function talkTo(name) {
  byId("agent").value = name;
  showPlaceholder();
  byId("message").focus();
}

function showPlaceholder() {
  byId("message").placeholder = agents.length > 0 ? `Message ${byId("agent").value}…` : "This server has no agents.";
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
  for (const each of TABS) {
    const button = byId(`tab-${each}`);
    button.setAttribute("aria-selected", String(each === name));
    button.tabIndex = each === name ? 0 : -1;
    byId(`pane-${each}`).hidden = each !== name;
  }
  clearTimeout(paneTimer);
  showTabNow();
}

const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

function showTheme() {
  byId("theme").replaceChildren(icon(isDark() ? "sun" : "moon"));
}

function switchTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  localStorage.setItem("tailrace-theme", document.documentElement.dataset.theme);
  showTheme();
}

function grow() {
  const message = byId("message");
  message.style.height = "auto";
  message.style.height = `${Math.min(message.scrollHeight + 2, 168)}px`;
}

function startThread() {
  openThread(newThread(), []);
  showPane("chat");
  byId("message").focus();
}

const stopRun = () => {
  const session = current()?.session;
  if (session !== undefined && !session.ended) actions.stop(session.runId);
};

/** What the palette offers now. */
function choices() {
  const session = current()?.session;
  const root = session?.root;
  const commands = [
    { label: "New thread", hint: "N", act: startThread },
    ...(session !== undefined && !byId("cut").disabled ? [{ label: session.status.kind === "cut" ? "Resume the stream" : "Cut the stream", hint: "C", act: cutOrResume }] : []),
    ...(session !== undefined && !session.ended ? [{ label: "Stop the run", hint: "S", act: stopRun }] : []),
    ...(session?.ended ? [
      { label: "Regenerate the answer", act: () => actions.regenerate(root) },
      { label: "Edit the message", act: () => actions.edit(root) },
      { label: "Fork the thread", act: () => actions.fork(root) },
    ] : []),
    ...TABS.map((name, n) => ({ label: `Show ${name}`, hint: String(n + 1), act: () => { showPane("inspect"); showTab(name); } })),
    { label: isDark() ? "Light theme" : "Dark theme", hint: "T", act: switchTheme },
    { label: "Keyboard shortcuts", hint: "?", act: () => byId("shortcuts").showModal() },
  ];
  const talks = agents.map(({ name }) => ({ label: `Talk to ${name}`, hint: "agent", act: () => talkTo(name) }));
  const found = allThreads().map((each) => ({
    label: each.title || each.thread_id, hint: `${each.agent} · ${STATUSES[each.status] ?? each.status} · ${ago(each.updated_at)}`,
    act: () => { openThread(each.thread_id); showPane("chat"); },
  }));
  return [...commands, ...found, ...talks];
}

function wire() {
  const message = byId("message");
  const palette = new Palette(choices);
  message.addEventListener("input", grow);
  message.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      byId("composer").requestSubmit();
    }
  });
  byId("composer").addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = message.value.trim();
    if (text === "" || byId("send").disabled) return;
    byId("send").disabled = true;
    message.value = "";
    grow();
    const started = await start(text, edits ?? {});
    byId("send").disabled = false;
    // What was typed is not lost if the server refuses it.
    if (!started && message.value === "") message.value = text;
    grow();
  });
  byId("replaces").lastElementChild.addEventListener("click", () => {
    replaceNext(undefined);
    message.value = "";
    grow();
  });
  byId("cut").addEventListener("click", cutOrResume);
  byId("theme").addEventListener("click", switchTheme);
  byId("new").addEventListener("click", startThread);
  byId("find").addEventListener("click", () => palette.open());
  byId("thread-name").addEventListener("click", (event) => copyText(threadId, event.currentTarget));
  byId("agent").addEventListener("change", showPlaceholder);
  byId("search").addEventListener("input", search);
  byId("seq").addEventListener("input", (event) => moveTo(Number(event.target.value)));
  byId("back").addEventListener("click", () => step(-1));
  byId("forward").addEventListener("click", () => step(1));
  byId("now").addEventListener("click", () => moveTo(Infinity));
  byId("to-end").addEventListener("click", () => scrollToEnd());
  byId("scroll").addEventListener("scroll", () => isAtEnd() && (byId("to-end").hidden = true), { passive: true });
  for (const each of TABS) byId(`tab-${each}`).addEventListener("click", () => showTab(each));
  document.querySelector(".tablist").addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by === undefined) return;
    const next = TABS[(TABS.indexOf(tab) + by + TABS.length) % TABS.length];
    showTab(next);
    byId(`tab-${next}`).focus();
  });
  for (const button of document.querySelectorAll(".tabs button")) button.addEventListener("click", () => showPane(button.dataset.pane));
  document.addEventListener("keydown", (event) => {
    if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      palette.open();
    }
  });
  listenToKeys([
    { keys: ["Ctrl K"], shown: ["Ctrl K", "⌘K"], words: "Search threads, agents and commands" },
    { keys: ["/"], words: "Write a message", act: () => { showPane("chat"); message.focus(); } },
    { keys: ["n"], shown: ["N"], words: "New thread", act: startThread },
    { keys: ["c"], shown: ["C"], words: "Cut or resume the stream", act: cutOrResume },
    { keys: ["s"], shown: ["S"], words: "Stop the run", act: stopRun },
    { keys: ["1", "2", "3"], words: "Timeline, events, state" },
    ...TABS.map((name, n) => ({ keys: [String(n + 1)], act: () => { showPane("inspect"); showTab(name); } })),
    { keys: ["[", "]"], words: "One event back, forward" },
    { keys: ["["], act: () => step(-1) },
    { keys: ["]"], act: () => step(1) },
    { keys: ["Escape"], shown: ["Esc"], words: "Back to the newest event", act: () => (scrub === undefined ? document.activeElement?.blur() : moveTo(Infinity)) },
    { keys: ["t"], shown: ["T"], words: "Light or dark", act: switchTheme },
    { keys: ["?"], words: "This list", act: () => byId("shortcuts").showModal() },
  ]);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
  // Back online: do not sit out the wait.
  addEventListener("online", () => {
    for (const { session } of sessions.values()) if (session.status.kind === "waiting") session.follower.resume();
  });
  addEventListener("hashchange", () => {
    const id = idOfHash();
    if (id !== "" && id !== threadId) openThread(id);
  });
  setInterval(() => {
    countDown();
    const entry = current();
    if (entry === undefined || scrub !== undefined || document.hidden || entry.session.ended || entry.session.status.kind !== "live") return;
    entry.view.tick(entry.session.now());
    if (tab === "timeline") showPanes();
  }, 250);
}

function idOfHash() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return ""; // a broken escape
  }
}

async function main() {
  const theme = localStorage.getItem("tailrace-theme");
  if (theme) document.documentElement.dataset.theme = theme;
  placeIcons();
  showTheme();
  wire();
  const found = await guarded(() => client.request("GET", "agents"));
  agents = found?.details ?? [];
  byId("agent").replaceChildren(...agents.map(({ name }) => el("option", { value: name }, name)));
  if (found?.formats) eventsPane.setFormats(found.formats);
  if (found === undefined) return;
  await loadThreads();
  if (threadId !== "") await openThread(threadId);
  else if (threads.length > 0) await openThread(threads[0].thread_id);
  else showChain([]);
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
