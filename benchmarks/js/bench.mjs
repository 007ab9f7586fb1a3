// Usage: node bench.mjs <rounds> <seconds> <size>…
//
// Folds the same deltas with our reducer and with the npm clients, and prints one line of JSON: the seconds that
// each took in each round, by size and contender. The packages are those of tests/js, which is why they are
// looked up from there.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { RunState } from "../../clients/ts/src/index.ts";

const require = createRequire(new URL("../../tests/js/package.json", import.meta.url));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { readUIMessageStream } = await load("ai");
const { HttpAgent, defaultApplyEvents } = await load("@ag-ui/client");
const { from } = await load("rxjs");

const [rounds, seconds, ...sizes] = process.argv.slice(2).map(Number);
const SENTENCE = "The stream goes on without readers, and a late reader still gets every piece. ";

function pieces(count) {
  const text = SENTENCE.repeat(Math.ceil((count * 4) / SENTENCE.length));
  return Array.from({ length: count }, (_, at) => text.slice(at * 4, at * 4 + 4));
}

// --- ours and the limit ---

function ourEvents(texts) {
  const task_id = "run_1";
  const place = { item_id: "msg_1", output_index: 0, block_index: 0 };
  const events = [
    { type: "task.created", task_id },
    { type: "task.in_progress", task_id },
    { type: "task.output_item.added", task_id, output_index: 0, item: { type: "message", id: "msg_1", role: "assistant" } },
    { type: "task.text.added", task_id, ...place, item: { type: "text", text: "" } },
    ...texts.map((delta) => ({ type: "task.text.delta", task_id, ...place, delta })),
  ];
  return events.map((event, at) => ({ ...event, sequence_number: at + 1 }));
}

const textOf = (state) => state.view().output[0].block_list[0].text;

const limit = {
  name: "limit",
  prepare: (texts) => texts.map((delta) => ({ type: "task.text.delta", delta })),
  work: (events) => {
    const found = [];
    for (const event of events) found.push(event.delta);
    return found.join("");
  },
};

const ours = {
  name: "tailrace",
  prepare: ourEvents,
  work: (events) => {
    const state = new RunState();
    for (const event of events) state.apply(event);
    return textOf(state);
  },
};

const oursLookedAt = {
  name: "tailrace, shown after each event",
  prepare: ourEvents,
  work: (events) => {
    const state = new RunState();
    let length = 0;
    for (const event of events) {
      state.apply(event);
      length += state.view().output.length;
    }
    return length > 0 ? textOf(state) : "";
  },
};

// --- the npm clients ---

const vercel = {
  name: "AI SDK, readUIMessageStream",
  prepare: (texts) => [
    { type: "start", messageId: "msg_1" },
    { type: "text-start", id: "1" },
    ...texts.map((delta) => ({ type: "text-delta", id: "1", delta })),
    { type: "text-end", id: "1" },
    { type: "finish" },
  ],
  work: async (chunks) => {
    const stream = new ReadableStream({
      start(controller) {
        for (const chunk of chunks) controller.enqueue(chunk);
        controller.close();
      },
    });
    let last;
    for await (const message of readUIMessageStream({ stream })) last = message;
    return last.parts.filter((part) => part.type === "text").map((part) => part.text).join("");
  },
};

const agUi = {
  name: "AG-UI client, defaultApplyEvents",
  prepare: (texts) => [
    { type: "RUN_STARTED", threadId: "thread_1", runId: "run_1" },
    { type: "TEXT_MESSAGE_START", messageId: "msg_1", role: "assistant" },
    ...texts.map((delta) => ({ type: "TEXT_MESSAGE_CONTENT", messageId: "msg_1", delta })),
    { type: "TEXT_MESSAGE_END", messageId: "msg_1" },
    { type: "RUN_FINISHED", threadId: "thread_1", runId: "run_1" },
  ],
  work: async (events) => {
    const input = { threadId: "thread_1", runId: "run_1", messages: [], state: {}, tools: [], context: [] };
    const agent = new HttpAgent({ url: "http://localhost/" });
    let messages;
    await defaultApplyEvents(input, from(events), agent, []).forEach((change) => {
      messages = change.messages ?? messages;
    });
    return messages[0].content;
  },
};

// --- the same rounds as benchmarks/harness.py ---

/** Seconds on the clock: Node's CPU times move in steps of milliseconds. */
const now = () => performance.now() / 1e3;

function hasTime(taken) {
  if (taken.length === 0) return true;
  const spent = taken.reduce((sum, one) => sum + one, 0);
  return spent + taken.at(-1) < seconds * (taken.length < 5 ? 2.5 : 1);
}

const result = {};
for (const size of sizes) {
  console.error(`typescript: ${size}, preparing`);
  const texts = pieces(size);
  const expected = texts.join("");
  let racing = [limit, ours, oursLookedAt, vercel, agUi];
  const inputs = new Map(racing.map((one) => [one, one.prepare(texts)]));
  const times = Object.fromEntries(racing.map((one) => [one.name, []]));
  for (let turn = 0; turn < rounds; turn += 1) {
    racing = racing.filter((one) => hasTime(times[one.name]));
    const order = turn % 2 === 0 ? racing : racing.toReversed();
    for (const one of order) {
      console.error(`typescript: ${size}, round ${turn + 1}, ${one.name}`);
      globalThis.gc();
      const start = now();
      const text = await one.work(inputs.get(one));
      times[one.name].push(now() - start);
      if (text !== expected) throw new Error(`${one.name} gives another text`);
    }
  }
  result[size] = times;
}
console.log(JSON.stringify(result));
