// The saved state of PROTOCOL.md, section 6, and the frames of section 9.

import assert from "node:assert/strict";
import { test } from "node:test";
import { RunState } from "../src/index.ts";
import type { SavedState, UnknownEvent } from "../src/index.ts";
import { added, call, done, ev, folded, message, ofBlock, result, resumed, shown, text } from "./helpers.ts";

const image = (url: string) => ({ type: "image", image_url: { url } });

/** A stream with something of everything, in places out of order. */
const stream: UnknownEvent[] = [
  ev("created", { sequence_number: 1, agent: "a", reference_start: 3 }),
  ev("in_progress", { sequence_number: 2 }),
  added(1, { type: "reasoning", id: "m1" }),
  ev("reasoning_text.added", { item_id: "m1", output_index: 1, text_index: 2, item: text("") }),
  ev("reasoning_text.delta", { item_id: "m1", output_index: 1, text_index: 2, delta: "hm" }),
  ev("reasoning_summary_item.done", { item_id: "m1", output_index: 1, summary_index: 0, item: text("s") }),
  added(2, call("k", "x")),
  ev("tool_call_arguments.delta", { item_id: "k", output_index: 2, delta: "{" }),
  ev("progress", { call_id: "x", current: 1 }),
  ev("tool_call.started", { item_id: "k", output_index: 2 }),
  added(5, result("twin", "x")),
  added(0, result("m", "x")),
  ofBlock("image.added", 1, { item: image("") }),
  ofBlock("image.delta", 1, { partial_image_index: 4, item: image("a") }),
  ofBlock("text.added", 0, { item: text("") }),
  ofBlock("text.annotation.added", 0, { annotation_index: 0, annotation: { type: "raw", raw: null } }),
  done(3, { type: "hologram", id: "h" } as never),
  added(0, message("inside"), { task_id: "x" }),
  ev("step.started", { step_index: 4, name: "a" }),
  ev("step.started", { step_index: 2, name: "b" }),
  ev("input_required", { requests: [{ id: "q", kind: "approval", schema: {} }] }),
  ev("reference.imported", { reference_id: 3, source_task_id: "x", source_reference_id: 1 }),
  ev("agent.switched", { agent: "b" }),
  ev("agent.switched", { agent: "c", task_id: "x" }),
  ev("history.compacted", { summary: "s", run_id: "r" }),
  ev("usage", { usage: { cost: 0.1 } }),
  ev("usage", { usage: { cost: 0.2 } }),
  ev("hologram", { sequence_number: 40 }),
  ev("attempt", { attempt: 2, reason: "lost", superseded: ["m1"] }),
  ofBlock("text.delta", 0, { delta: "[^3]" }),
  ofBlock("image.done", 1, { item: image("b") }),
  ev("tool_call_arguments.delta", { item_id: "k", output_index: 2, delta: "}" }),
  ev("reasoning_text.delta", { item_id: "m1", output_index: 1, text_index: 2, delta: "m" }),
  ev("progress", { call_id: "x", current: 2 }),
  ev("step.finished", { step_index: 4 }),
  ev("step.started", { step_index: 5, name: "c" }),
  ev("notice", { message: "dup", sequence_number: 40 }),
  ev("in_progress", { task_id: "x" }),
  ev("structured_output.done", { value: null }),
  ev("input_received", { request_id: "q" }),
  done(2, call("k", "x")),
  ev("cancelled", { task_id: "x", reason: "stop" }),
  done(0, result("m", "x")),
  ev("failed", { error: { code: "c", message: "m" }, sequence_number: 41 }),
];

test("restoring anywhere and folding the rest gives what folding everything gives", () => {
  const all = new RunState();
  stream.forEach((event, n) => all.apply(event, n % 3 === 0 ? { signature: `${n}`, content: [n] } : undefined));
  for (let cut = 0; cut <= stream.length; cut += 1) {
    let state = new RunState();
    stream.forEach((event, n) => {
      if (n === cut) state = resumed(state);
      state.apply(event, n % 3 === 0 ? { signature: `${n}`, content: [n] } : undefined);
    });
    if (cut === stream.length) state = resumed(state);
    assert.deepEqual(state.whole(), all.whole(), `cut at ${cut}`);
    assert.deepEqual(state.save({ private: true }), all.save({ private: true }), `cut at ${cut}`);
  }
});

test("a saved state has the form that the protocol describes", () => {
  const state = folded(
    ev("created", { sequence_number: 1 }),
    added(0, result("m", "c")),
    ofBlock("image.added", 2, { item: image("") }),
    ofBlock("image.delta", 2, { partial_image_index: 1, item: image("a") }),
    ofBlock("text.done", 0, { item: text("t") }),
    done(1, call("k", "d")),
    ev("attempt", { attempt: 2, reason: "lost", superseded: ["k"] }),
  );
  state.apply(added(2, { type: "raw", id: "w", raw: null }), { raw: 1 });
  const expected: SavedState = {
    version: 2,
    position: 8,
    sequence_number: 1,
    tasks: [
      {
        task_id: "r",
        status: "queued",
        attempt: 2,
        at: 1,
        items: [
          {
            output_index: 0,
            at: 2,
            item: { ...result("m", "c"), status: "in_progress", block_list: [text("t"), image("a")] } as never,
            parts: [
              { list: "block_list", index: 0, at: 5 },
              { list: "block_list", index: 2, at: 3, open: true, partial_image_index: 1 },
            ],
            open: true,
          },
          {
            output_index: 1,
            at: 6,
            item: { ...call("k", "d"), arguments: "" } as never,
            parts: [{ list: "arguments", index: 0, at: 6 }],
            superseded: true,
          },
          {
            output_index: 2,
            at: 8,
            item: { type: "raw", id: "w", raw: null, status: "in_progress" },
            parts: [],
            open: true,
            private: { raw: 1 },
          },
        ],
      },
    ],
  };
  assert.deepEqual(state.save({ private: true }), expected);
});

test("an empty state can be saved", () => {
  assert.deepEqual(new RunState().save(), { version: 2, position: 0, sequence_number: 0, tasks: [] });
  assert.equal(resumed(new RunState()).view(), undefined);
});

test("usage in a state of version 1 gets that of the tasks below", () => {
  const below = (id: string, parent: string) => ev("created", { task_id: id, parent_task_id: parent, call_id: id });
  const state = folded(ev("created"), below("c", "r"), below("g", "c"));
  const own = [undefined, { calls: 1, input_tokens: 10, output_tokens: 0, cost: 1 }, { calls: 2, input_tokens: 1, output_tokens: 5, model: "m" }];
  const saved = state.save();
  const tasks = saved.tasks.map((task, place) => ({ ...task, ...(own[place] === undefined ? {} : { usage: own[place] }) }));
  const run = RunState.restore({ ...saved, version: 1, tasks });
  const all = { calls: 3, input_tokens: 11, output_tokens: 5, cost: 1, model: "m" };
  assert.deepEqual(run.view()?.usage, all);
  assert.deepEqual(run.view()?.tasks?.map((task) => task.usage), [all, own[2]]);
});

test("another version is refused", () => {
  for (const saved of [{ version: 3 }, {}, null, undefined]) {
    assert.throws(() => RunState.restore(saved as never), /version/);
  }
});

test("a snapshot frame replaces the state and a gap drops it", () => {
  const there = folded(ev("created", { sequence_number: 1 }), done(0, message(), { sequence_number: 9 }));
  const here = folded(ev("created", { sequence_number: 1, task_id: "old" }));
  here.receive({ type: "task.gap", task_id: "r", sequence_number: 9, reason: "trimmed" });
  assert.deepEqual([here.view(), here.position, here.sequenceNumber], [undefined, 0, 0]);
  here.receive({ type: "task.snapshot", task_id: "r", sequence_number: 9, state: there.save() });
  assert.deepEqual(shown(here), shown(there));
  assert.equal(here.receive(ev("in_progress", { sequence_number: 9 })), false);
  assert.equal(here.receive(ev("in_progress", { sequence_number: 10 })), true);
  assert.equal(shown(here).status, "in_progress");
});

test("a snapshot that cannot be read leaves the state as it was", () => {
  const state = folded(ev("created"));
  assert.throws(() => state.receive({ type: "task.snapshot", task_id: "r", sequence_number: 1, state: { version: 3 } as never }));
  assert.equal(shown(state).status, "queued");
});
