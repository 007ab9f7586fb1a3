// Hostile keys are data, and time is linear in the events.

import assert from "node:assert/strict";
import { test } from "node:test";
import { RunState } from "../src/index.ts";
import type { Item } from "../src/index.ts";
import { added, call, done, ev, folded, message, ofBlock, result, resumed, shown, text } from "./helpers.ts";

const HOSTILE = ["__proto__", "constructor", "prototype", "toString", "hasOwnProperty"];

function parse(json: string): never {
  return JSON.parse(json) as never;
}

function unpolluted(): void {
  assert.deepEqual(Object.keys(Object.prototype), []);
  assert.equal(({} as { polluted?: unknown }).polluted, undefined);
}

test("hostile ids are ids", () => {
  for (const id of HOSTILE) {
    let state = folded(
      ev("created", { task_id: id }),
      added(0, result(id, id), { task_id: id }),
      done(1, call(id, id), { task_id: id }),
      ev("progress", { task_id: id, call_id: id, message: "m" }),
      ev("input_required", { task_id: id, requests: [{ id, kind: "input" }] }),
      ofBlock("text.done", 0, { task_id: id, item_id: id, item: text("t") }),
    );
    state.apply(ev("created", { task_id: "child", parent_task_id: id, call_id: id }));
    state.apply(done(0, message(id), { task_id: "child" }));
    state = resumed(state);
    const seen = shown(state, id);
    assert.equal(seen.task_id, id);
    assert.deepEqual(seen.requests, [{ id, kind: "input" }]);
    assert.equal((seen.output[0] as { block_list: readonly unknown[] }).block_list.length, 2);
    assert.deepEqual((seen.output[1] as { progress?: unknown }).progress, { message: "m" });
    unpolluted();
  }
});

test("hostile types are unknown", () => {
  for (const type of HOSTILE) {
    const state = folded(ev("created"), { type, task_id: "r" }, done(0, { type, id: "m" } as unknown as Item));
    assert.deepEqual(shown(state).unknown, [{ type, task_id: "r" }]);
    assert.equal(shown(state).output[0]?.type, "raw");
    assert.equal(state.apply(ofBlock("text.done", 0, { item: { type } })), true);
    unpolluted();
  }
});

test("hostile keys in values stay where they are", () => {
  const evil = '{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}';
  const state = new RunState();
  state.apply(parse(`{"type":"task.created","task_id":"r","input":${evil},"__proto__":{"polluted":true}}`), parse(evil));
  state.apply(parse(`{"type":"task.output_item.done","task_id":"r","output_index":0,"item":{"type":"message","id":"m","role":"assistant","block_list":[{"type":"data","data":${evil},"__proto__":{"name":"n"}}],"__proto__":{"phase":"p"}}}`));
  state.apply(parse(`{"type":"task.output_item.done","task_id":"r","output_index":1,"item":{"type":"odd","__proto__":{"id":"x"}}}`));
  state.apply(parse(`{"type":"task.odd","task_id":"r","__proto__":{"polluted":true}}`));
  const again = resumed(state);
  for (const each of [state, again]) {
    const seen = shown(each);
    assert.equal(JSON.stringify(seen.input), evil);
    assert.deepEqual(Object.keys(seen).sort(), ["input", "output", "status", "task_id", "unknown"]);
    assert.equal(JSON.stringify(seen.output[0]), `{"type":"message","id":"m","role":"assistant","block_list":[{"type":"data","data":${evil}}]}`);
    assert.equal(seen.output[1]?.id, "");
    assert.equal(JSON.stringify(each.save().unknown), '[{"type":"task.odd","task_id":"r","__proto__":{"polluted":true}}]');
    unpolluted();
  }
});

/** Milliseconds to fold a text of so many deltas, the best of three. */
function cost(deltas: number): number {
  const times = [0, 1, 2].map(() => {
    const state = folded(ev("created"), added(0, message()), ofBlock("text.added", 0, { item: text("") }));
    const event = ofBlock("text.delta", 0, { delta: "twelve bytes" });
    const start = performance.now();
    for (let n = 0; n < deltas; n += 1) state.apply(event);
    const length = (shown(state).output[0] as { block_list: readonly { text: string }[] }).block_list[0]?.text.length;
    assert.equal(length, deltas * 12);
    return performance.now() - start;
  });
  return Math.min(...times);
}

test("ten times the deltas cost about ten times the time", () => {
  cost(20_000);
  const seen: string[] = [];
  for (let attempt = 0; attempt < 5; attempt += 1) { // other work on the machine may disturb one
    const small = cost(20_000);
    const large = cost(200_000);
    if (large < 50 * Math.max(small, 1)) return;
    seen.push(`${small} ms, then ${large} ms`);
  }
  assert.fail(seen.join("; "));
});

test("many events of unknown tasks are cheap", () => {
  const state = folded(ev("created"));
  for (let n = 0; n < 5_000; n += 1) state.apply(added(n, result(`i${n}`, `c${n}`)));
  const start = performance.now();
  for (let n = 0; n < 50_000; n += 1) state.apply(ev("in_progress", { task_id: `unknown${n}` }));
  assert.ok(performance.now() - start < 2_000);
});
