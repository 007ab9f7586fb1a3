// The object of PROTOCOL.md, section 5.

import assert from "node:assert/strict";
import { test } from "node:test";
import { RunState } from "../src/index.ts";
import type { Item, UnknownEvent } from "../src/index.ts";
import { added, call, done, ev, folded, message, ofBlock, result, shown, text, view, whole } from "./helpers.ts";

const root = ev("created");

test("a task shows the fields of its creation, without defaults, nulls and unknown fields", () => {
  const given = { agent: "a", thread_id: "t", previous_run_id: "p", created_at: 0, model: "m", input: "", options: {}, metadata: [] };
  const seen = view(ev("created", { ...given, reference_start: 1, call_id: null, stray: 1 }));
  assert.deepEqual(seen, { task_id: "r", status: "queued", output: [], ...given });
  assert.equal(view(ev("created", { reference_start: 4 })).reference_start, 4);
});

test("defaults are left out, however they were written", () => {
  const file = { type: "file", url: "u", mime_type: "application/octet-stream", name: null };
  const cited = { ...text("x"), annotations: [{ type: "url_citation", url: "u", start_index: 0, end_index: 1, title: "" }] };
  const items = [
    { ...call("k", "c"), kind: "function", executor: "server", status: "completed", arguments: null },
    { ...message(), phase: null, block_list: [file, cited, { ...text("y"), annotations: [] }] },
  ] as unknown as Item[];
  const seen = view(root, ...items.map((item, n) => done(n, item)), ev("notice", { message: "n", level: "info", data: null }));
  assert.deepEqual(seen.output, [
    { ...call("k", "c"), arguments: "" },
    {
      ...message(),
      block_list: [
        { type: "file", url: "u" },
        { ...text("x"), annotations: [{ type: "url_citation", url: "u", start_index: 0, end_index: 1 }] },
        text("y"),
      ],
    },
  ]);
  assert.deepEqual(seen.notices, [{ message: "n" }]);
});

test("items stand in order of their index, which is a key", () => {
  assert.deepEqual(view(root, done(7, message("b")), done(-1, message("a"))).output.map((item) => item.id), ["a", "b"]);
});

test("lists are always there, but for raw reasoning", () => {
  assert.deepEqual(view(root, done(0, { type: "reasoning", id: "a" }), done(1, result("b", "c"))).output, [
    { type: "reasoning", id: "a", summary: [] },
    { type: "tool_result", id: "b", call_id: "c", block_list: [] },
  ]);
});

test("usage adds up", () => {
  const use = (usage: object) => ev("usage", { usage });
  assert.deepEqual(view(root, use({})).usage, { calls: 1, input_tokens: 0, output_tokens: 0 });
  const seen = view(
    root,
    use({ model: "a", input_tokens: 1, cost: 0.1, latency_ms: 5 }),
    use({ output_tokens: 2, cached_input_tokens: 3, cost: 0.2, time_to_first_token_ms: 9, service_tier: "x" }),
    use({ model: "b", time_to_first_token_ms: 1, reasoning_tokens: 0 }),
  );
  assert.deepEqual(seen.usage, {
    calls: 3,
    input_tokens: 1,
    output_tokens: 2,
    cached_input_tokens: 3,
    cost: 0.1 + 0.2,
    latency_ms: 5,
    time_to_first_token_ms: 9,
    model: "b",
    service_tier: "x",
  });
});

const family = [
  root,
  added(0, result("m", "x")),
  ofBlock("text.done", 0, { item: text("before") }),
  ev("created", { task_id: "x", parent_task_id: "r", call_id: "x" }),
  added(1, message("late"), { task_id: "x" }),
  added(0, result("deep", "y"), { task_id: "x" }),
  ev("created", { task_id: "y", parent_task_id: "x", call_id: "y" }),
  done(0, message("deepest"), { task_id: "y" }),
  ofBlock("text.done", 1, { item: text("after") }),
];

test("a result shows its own blocks and its children's items in order of arrival", () => {
  assert.deepEqual(view(...family).output, [
    {
      ...result("m", "x"),
      status: "in_progress",
      block_list: [
        text("before"),
        { ...message("late"), status: "in_progress", block_list: [], task_id: "x" },
        {
          ...result("deep", "y"),
          status: "in_progress",
          block_list: [{ ...message("deepest"), block_list: [], task_id: "y" }],
          task_id: "x",
        },
        text("after"),
      ],
    },
  ]);
});

test("superseded items of a child leave the parent's result, too", () => {
  const state = folded(...family, ev("attempt", { task_id: "x", attempt: 2, reason: "lost", superseded: ["deep"] }));
  assert.doesNotMatch(JSON.stringify(shown(state)), /deepest/);
});

test("every other task is listed without its output, and has an object of its own", () => {
  const state = folded(...family);
  assert.deepEqual(shown(state).tasks?.map((task) => [task.task_id, "output" in task]), [["x", false], ["y", false]]);
  assert.deepEqual(shown(state, "y"), {
    task_id: "y",
    parent_task_id: "x",
    call_id: "y",
    status: "queued",
    output: [{ ...message("deepest"), block_list: [] }],
  });
  assert.equal(state.view("unknown"), undefined);
});

test("a result that comes after the child, or was closed before it, shows it; a second one does not", () => {
  const child = ev("created", { task_id: "k", parent_task_id: "r", call_id: "c" });
  const inside = done(0, message("inside"), { task_id: "k" });
  const shows = (...events: UnknownEvent[]) =>
    view(...events).output.map((item) => (item as { block_list: readonly unknown[] }).block_list.length);
  assert.deepEqual(shows(root, child, inside, added(0, result("m", "c"))), [1]);
  assert.deepEqual(shows(root, done(0, result("m", "c")), child, inside), [1]);
  assert.deepEqual(shows(root, added(1, result("m", "c")), added(0, result("n", "c")), child, inside), [0, 1]);
});

test("a view does not change when the state does", () => {
  const state = folded(...family, ev("usage", { usage: {} }), ev("step.started", { step_index: 0, name: "s" }));
  state.apply(ofBlock("text.added", 2, { item: text("") }));
  const annotate = ofBlock("text.annotation.added", 2, { annotation_index: 0, annotation: { type: "raw", raw: 1 } });
  state.apply(annotate);
  const before = shown(state);
  const then = JSON.stringify(before);
  state.apply(annotate);
  state.apply(ev("usage", { usage: {} }));
  state.apply(ev("step.finished", { step_index: 0 }));
  state.apply(ev("failed", { error: { code: "c", message: "m" } }));
  assert.equal(JSON.stringify(before), then);
});

test("the whole object adds what is private", () => {
  const content = [{ type: "text", text: "for the model" }];
  const seen = whole([
    [root, { options: { key: 1 } }],
    [done(0, result("a", "c")), { content, signature: "one", raw: null }],
    [done(1, { ...message(), block_list: [text("hello"), { type: "refusal", refusal: "no" }] } as Item)],
    [added(2, { ...message("n"), block_list: [text("shown")] } as Item), { content }],
    [ev("created", { task_id: "k", parent_task_id: "r", call_id: "c" })],
    [done(0, message("inside"), { task_id: "k" }), { signature: "s" }],
  ] as never);
  assert.deepEqual(seen, {
    task_id: "r",
    status: "queued",
    private: { options: { key: 1 } },
    output: [
      { ...result("a", "c"), content, private: { signature: "one" }, block_list: [{ ...message("inside"), block_list: [], task_id: "k" }] },
      { ...message(), block_list: [text("hello"), { type: "refusal", refusal: "no" }], content: [text("hello")] },
      { ...message("n"), status: "in_progress", block_list: [text("shown")], content },
    ],
    tasks: [
      {
        task_id: "k",
        parent_task_id: "r",
        call_id: "c",
        status: "queued",
        output: [{ ...message("inside"), block_list: [], content: [], private: { signature: "s" } }],
      },
    ],
  });
});

test("private parts merge field by field, and belong to the item that is named, else to the task", () => {
  const seen = whole([
    [root, { provider: { id: 1 } }],
    [added(0, message()), { signature: "one", encrypted_content: "e" }],
    [done(0, message()), { signature: "two" }],
    [ev("raw", { source: "s", event_type: "e" }), { raw: { x: 1 } }],
  ]);
  assert.deepEqual(seen.private, { provider: { id: 1 }, raw: { x: 1 } });
  assert.deepEqual(seen.output[0]?.private, { signature: "two", encrypted_content: "e" });
});

test("an ignored event's private part is ignored with it", () => {
  const seen = whole([[root], [done(0, message()), { signature: "one" }], [done(0, message()), { signature: "two" }]]);
  assert.deepEqual(seen.output[0]?.private, { signature: "one" });
});

test("a client's view has nothing private", () => {
  const state = new RunState();
  state.apply(root, { options: "secret" });
  state.apply(done(0, message()), { content: [{ type: "text", text: "secret" }], signature: "secret" });
  assert.doesNotMatch(JSON.stringify([state.view(), state.save()]), /secret/);
  assert.match(JSON.stringify(state.save({ private: true })), /secret/);
});
