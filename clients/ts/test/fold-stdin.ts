// Usage: node test/fold-stdin.ts
//
// Reads lines {"events": [...], "private": [...]} and answers each with one line
// {"views": [the view after each event], "applied": [whether it was], "whole": ..., "saved": ...}. `private` may be left out; its n-th
// element, which may be null, belongs to the n-th event. With "resume": true the state is saved and restored
// after every event. A view or whole object that does not exist yet is null.

import { RunState } from "../src/index.ts";
import type { PrivatePart, RunEvent, TaskView } from "../src/index.ts";

interface Request {
  readonly events: readonly RunEvent[];
  readonly private?: readonly (PrivatePart | null)[];
  readonly resume?: boolean;
}

function answer({ events, private: hidden = [], resume = false }: Request): object {
  let state = new RunState();
  const views: (TaskView | null)[] = [];
  const applied: boolean[] = [];
  for (const [n, event] of events.entries()) {
    applied.push(state.apply(event, hidden[n]));
    if (resume) state = RunState.restore(JSON.parse(JSON.stringify(state.save({ private: true }))));
    views.push(state.view() ?? null);
  }
  return { views, applied, whole: state.whole() ?? null, saved: state.save({ private: true }) };
}

// Not `node:readline`, which also ends a line at U+2028 and U+2029.
let rest = "";
process.stdin.setEncoding("utf8");
for await (const chunk of process.stdin) {
  const lines = (rest + chunk).split("\n");
  rest = lines.pop() ?? "";
  for (const line of lines) {
    if (line.trim() !== "") process.stdout.write(`${JSON.stringify(answer(JSON.parse(line)))}\n`);
  }
}
