/** The inspector: threads on the left, the conversation, and what happened in it on the right. */

import { Client } from "./client/index.js";
import { Composer } from "./composer.js";
import { ago, byId, copyText, el, inputImages, inputText, lastQuestion, setText, withWords } from "./dom.js";
import { EventsPane } from "./events_pane.js";
import { gentleFetch } from "./gentle_fetch.js";
import { placeIcons } from "./icons.js";
import { authorization } from "./key.js";
import { isAtEnd, isDark, listenToLayout, reveal, scrollToEnd, showPane, switchTheme } from "./layout.js";
import { listenToKeys, Palette } from "./palette.js";
import { endSilence, guarded, noticing, patient } from "./problems.js";
import { RunView } from "./run_view.js";
import { RunSession } from "./session.js";
import { Sources } from "./sources.js";
import { StatePane } from "./state_pane.js";
import { StreamBar } from "./stream_bar.js";
import { STATUSES, ThreadsPane } from "./threads_pane.js";
import { Timeline } from "./timeline.js";
import { showWelcome } from "./welcome.js";

const BASE = new URL("..", import.meta.url).href;
const TABS = ["timeline", "events", "state"];

const client = new Client(BASE, { headers: authorization, fetch: noticing(gentleFetch, reconnect) });
const sessions = new Map(); // run_id → {session, view}
let threadId = idOfHash();
let chain = []; // the run ids that are shown, oldest first
let threadRuns = [];
let agents = []; // the agents of the server, with what they do
let selected; // the run that the right pane shows
let scrub; // how many events of it are shown; undefined follows the run
let tab = "timeline";
const dirty = new Set();
let scheduled = false;

const eventsPane = new EventsPane(byId("pane-events"), client, (count) => moveTo(count, true));
const statePane = new StatePane(byId("pane-state"), (runId) => client.url(`runs/${runId}`));
const timeline = new Timeline(byId("pane-timeline"), (key) => selectItem(key));
const streamBar = new StreamBar();
const sources = new Sources(() => ({ sessions: [...sessions.values()].map(({ session }) => session), chain }));
const composer = new Composer((input, options) => start(input, options));
const threadsPane = new ThreadsPane(client, () => ({ threadId, runs: threadRuns, chain, selected, statusOf }), {
  open: (thread) => {
    openFound(thread);
    showPane("chat");
  },
  openRun,
  deleted: (thread) => (thread.thread_id === threadId ? openThread(newThread(), []) : threadsPane.load()),
});

const current = () => sessions.get(selected);

const actions = {
  choose: (runId) => choose(runId),
  regenerate: (root) => start(root.input, previousOf(root), root.agent),
  edit: (root) => {
    const question = lastQuestion(root.input);
    const kept = inputImages(question).length > 0 ? " Its images stay." : "";
    composer.replaceNext(previousOf(root), `The next message replaces this turn.${kept}`, (text) => withWords(root.input, text));
    composer.write(inputText(question, false));
    composer.focus();
  },
  fork: (root, seq) => {
    openThread(newThread(), [root.task_id], new Map([[root.task_id, seq]]));
    if (seq !== undefined) composer.replaceNext({ previous_run_id: root.task_id, previous_seq: seq }, `The next message continues after event ${seq}, in a thread of its own.`);
    else composer.replaceNext(undefined, "The next message continues in a thread of its own.");
    composer.focus();
  },
  stop: (runId) => guarded(() => client.cancel(runId)),
  answer: (runId, answer, refused) => guarded(() => client.answer(runId, answer), refused),
  cite: (number, taskId) => sources.open(number, taskId),
  hint: (anchor, number, taskId) => sources.hint(anchor, number, taskId),
  unhint: () => sources.unhint(),
};

/** What a run continued, for a run that takes its place. */
function previousOf(root) {
  return { previous_run_id: root.previous_run_id ?? null, ...(root.previous_seq === undefined ? {} : { previous_seq: root.previous_seq }) };
}

// --- runs ------------------------------------------------------------------------------------

function newThread() {
  const bytes = crypto.getRandomValues(new Uint8Array(4)); // randomUUID is only for https
  return `thread_${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** Whether the run started. */
async function start(input, options = {}, agent = byId("agent").value) {
  if (threadId === "") threadId = newThread();
  const last = chain.at(-1);
  const body = { thread_id: threadId, ...(last === undefined ? {} : { previous_run_id: last }), ...options };
  const started = await guarded(() => client.start(agent, input, body));
  if (started === undefined) return false;
  location.hash = encodeURIComponent(threadId);
  composer.replaceNext(undefined);
  await loadThread(started.run_id, true);
  threadsPane.load();
  return true;
}

/** Show a thread: the chain of runs that its newest run continues. */
async function openThread(id, startFrom = undefined, untils = new Map()) {
  const before = chain;
  threadId = id;
  composer.replaceNext(undefined);
  location.hash = encodeURIComponent(id);
  chain = [];
  threadRuns = [];
  scrub = undefined;
  if (startFrom === undefined) await loadThread();
  else {
    const at = before.indexOf(startFrom[0]);
    showChain(at < 0 ? startFrom : before.slice(0, at + 1), untils);
  }
  threadsPane.load();
}

/** A thread begins with its first run: until then it has no runs. */
function ifMissing(error) {
  if (error.status !== 404) throw error;
}

let chainsShown = 0;
async function loadThread(newest, isNew = false) {
  const id = threadId;
  const before = chainsShown;
  const found = await patient(() => client.request("GET", `threads/${encodeURIComponent(id)}`).catch(ifMissing), () => id === threadId);
  if (id !== threadId) return;
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
  byId("welcome").hidden = chain.length > 0;
  if (chain.length === 0) showWelcome(agents, talkTo);
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
  threadsPane.show();
}

/** Show a run of the thread: in its place if it is on this page, else with the branch that it ends. */
async function openRun(runId) {
  const entry = sessions.get(runId);
  if (entry === undefined || entry.session.until !== undefined) await loadThread(runId).then(() => threadsPane.show());
  choose(runId);
  if (runId !== chain.at(-1)) sessions.get(runId)?.view.node.scrollIntoView({ block: "start" });
}

function changed(session, { event, reset }) {
  const entry = sessions.get(session.runId);
  if (entry === undefined || entry.session !== session) return;
  if (reset) entry.view.rebuild(session.state);
  else if (event !== undefined) entry.view.touch(event, session.events.at(-1).at);
  if (["task.in_progress", "task.input_required", "task.input_received"].includes(event?.type) && event.sequence_number > session.known) refreshRuns();
  if (session.status.kind === "ended" && !entry.listed) {
    entry.listed = true;
    refreshRuns();
  }
  dirty.add(session.runId);
  schedule();
}

/** A run has changed its status: the lists show it, and the timeline its attempts and its length. */
async function refreshRuns() {
  const id = threadId;
  const found = await client.request("GET", `threads/${encodeURIComponent(id)}`).catch(() => undefined);
  if (found !== undefined && id === threadId) threadRuns = found.runs;
  await threadsPane.load();
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
    streamBar.show(current()?.session, threadId);
    showPanes();
  }
  if (atEnd && scrub === undefined) scrollToEnd();
  else if (scrub === undefined && byId("scroll").scrollHeight > height && current()?.session.ended === false) byId("to-end").hidden = false;
}

/** The server can be reached again: do not sit out the wait. */
function reconnect() {
  endSilence();
  for (const { session } of sessions.values()) if (session.status.kind === "waiting") session.follower.resume();
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

/** Open a thread; at the run that was searched for, if there is one. */
async function openFound({ thread_id: id, found_run_id: runId }) {
  await openThread(id);
  if (runId !== undefined && id === threadId) await openRun(runId);
}

/** The status of a run: as this page follows it, else as the server listed it. */
const statusOf = (run) => sessions.get(run.run_id)?.session.root?.status ?? run.status;

function talkTo(name) {
  byId("agent").value = name;
  showPlaceholder();
  composer.focus();
}

function showPlaceholder() {
  composer.address(agents.length > 0 ? byId("agent").value : undefined);
}

// --- controls ----------------------------------------------------------------------------------

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

function startThread() {
  openThread(newThread(), []);
  showPane("chat");
  composer.focus();
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
  return [...commands, ...threadsPane.all.map(choiceOf), ...talks];
}

const choiceOf = (thread) => ({
  label: thread.title || thread.thread_id, hint: `${thread.agent} · ${STATUSES[thread.status] ?? thread.status} · ${ago(thread.updated_at)}`,
  thread: thread.thread_id, act: () => { openFound(thread); showPane("chat"); },
});

async function* foundChoices(words) {
  for await (const threads of threadsPane.find(words)) yield threads.map(choiceOf);
}

function wire() {
  const palette = new Palette(choices, foundChoices);
  byId("cut").addEventListener("click", cutOrResume);
  byId("new").addEventListener("click", startThread);
  byId("find").addEventListener("click", () => palette.open());
  byId("thread-name").addEventListener("click", (event) => copyText(threadId, event.currentTarget));
  byId("agent").addEventListener("change", showPlaceholder);
  byId("seq").addEventListener("input", (event) => moveTo(Number(event.target.value)));
  byId("back").addEventListener("click", () => step(-1));
  byId("forward").addEventListener("click", () => step(1));
  byId("now").addEventListener("click", () => moveTo(Infinity));
  for (const each of TABS) byId(`tab-${each}`).addEventListener("click", () => showTab(each));
  document.querySelector(".tablist").addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by === undefined) return;
    const next = TABS[(TABS.indexOf(tab) + by + TABS.length) % TABS.length];
    showTab(next);
    byId(`tab-${next}`).focus();
  });
  document.addEventListener("keydown", (event) => {
    if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      palette.open();
    }
  });
  listenToKeys([
    { keys: ["Ctrl K"], shown: ["Ctrl K", "⌘K"], words: "Search threads, agents and commands" },
    { keys: ["/"], words: "Write a message", act: () => { showPane("chat"); composer.focus(); } },
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
  addEventListener("online", reconnect);
  addEventListener("hashchange", () => {
    const id = idOfHash();
    if (id !== "" && id !== threadId) openThread(id);
  });
  setInterval(() => {
    streamBar.countDown(current()?.session, threadId);
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

/** Only the keyboards of Apple have ⌘. */
function nameShortcut() {
  if (/Mac|iP(hone|ad|od)/.test(navigator.platform)) return;
  setText(byId("find").querySelector("kbd"), "Ctrl K");
  byId("find").setAttribute("aria-label", "Ctrl K, search and commands");
}

async function main() {
  placeIcons();
  nameShortcut();
  listenToLayout();
  wire();
  const found = await patient(() => client.request("GET", "agents"));
  agents = found?.details ?? [];
  byId("agent").replaceChildren(...agents.map(({ name }) => el("option", { value: name }, name)));
  if (found?.formats) eventsPane.setFormats(found.formats);
  if (found === undefined) return;
  await threadsPane.load();
  if (threadId !== "") await openThread(threadId);
  else if (threadsPane.newest.length > 0) await openThread(threadsPane.newest[0].thread_id);
  else showChain([]);
  showTab("timeline");
  // What another tab starts shows up here, too.
  setInterval(async () => {
    if (document.hidden) return;
    await threadsPane.load();
    const newest = threadsPane.newest.find((each) => each.thread_id === threadId);
    if (newest !== undefined && newest.last_run_id !== threadRuns.at(-1)?.run_id && scrub === undefined && chain.length > 0) await loadThread();
  }, 4000);
}

main();
