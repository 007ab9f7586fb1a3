// Usage: node test/bench.ts [events]
//
// Folds a run of that many text deltas and prints what an event costs, as one line of JSON.

import { RunState } from "../src/index.ts";
import type { RunEvent } from "../src/index.ts";

const count = Number(process.argv[2] ?? 1_000_000);
const task_id = "run_1";

function* deltas(): Generator<RunEvent> {
  let sequence_number = 3;
  for (let n = 0; n < count; n += 1) {
    sequence_number += 1;
    yield { type: "task.text.delta", task_id, sequence_number, item_id: "msg_1_0", output_index: 0, block_index: 0, delta: `word${n % 1000} ` };
  }
}

const head: RunEvent[] = [
  { type: "task.created", task_id, sequence_number: 1 },
  { type: "task.output_item.added", task_id, sequence_number: 2, output_index: 0, item: { type: "message", id: "msg_1_0", role: "assistant" } },
  { type: "task.text.added", task_id, sequence_number: 3, item_id: "msg_1_0", output_index: 0, block_index: 0, item: { type: "text", text: "" } },
];

function timed(work: () => void): number {
  const start = process.hrtime.bigint();
  work();
  return Number(process.hrtime.bigint() - start);
}

function started(): RunState {
  const state = new RunState();
  for (const event of head) state.apply(event);
  return state;
}

const lines = Array.from(deltas(), (event) => JSON.stringify(event));
const fromLines = started();
const parsed = timed(() => {
  for (const line of lines) fromLines.apply(JSON.parse(line));
});
const events = lines.map((line) => JSON.parse(line));
const state = started();
const folded = timed(() => {
  for (const event of events) state.apply(event);
});
const viewed = timed(() => state.view());
console.log(
  JSON.stringify({
    events: count,
    ns_per_event: Math.round(folded / count),
    ns_per_event_with_parse: Math.round(parsed / count),
    view_ms: Math.round(viewed / 1e4) / 100,
  }),
);
