// The rules of PROTOCOL.md, section 4, by their numbers.

import assert from "node:assert/strict";
import { test } from "node:test";
import { RunState } from "../src/index.ts";
import type { Item, UnknownEvent } from "../src/index.ts";
import { added, call, done, ev, folded, message, ofBlock, result, shown, text, view } from "./helpers.ts";

const root = ev("created");
const open = [root, added(0, message())];
const streaming = [...open, ofBlock("text.added", 0, { item: text("") })];
const delta = (words: string, rest = {}) => ofBlock("text.delta", 0, { delta: words, ...rest });
const blocks = (...events: UnknownEvent[]) => (view(...events).output[0] as { block_list: unknown }).block_list;

test("11: a run of a newer version of the protocol is refused", () => {
  const state = new RunState();
  assert.throws(() => state.apply({ ...root, protocol: 2 }), /protocol 2.*Upgrade/);
  assert.equal(state.position, 0);
  assert.equal(state.apply({ ...root, protocol: 1 }), true);
});

test("1: a number that was there is a duplicate, one that jumps is not", () => {
  const state = folded(...streaming);
  assert.equal(state.apply(delta("a", { sequence_number: 7 })), true);
  assert.equal(state.apply(delta("b", { sequence_number: 7 })), false);
  assert.equal(state.apply(delta("c", { sequence_number: 3 })), false);
  assert.equal(state.apply(delta("d", { sequence_number: 8 })), true);
  assert.equal(state.sequenceNumber, 8);
  assert.equal(state.position, 5);
  assert.deepEqual(shown(state).output, [{ ...message(), status: "in_progress", block_list: [text("ad")] }]);
});

test("1: an event without a number is no duplicate and leaves the last number as it is", () => {
  const state = folded(...streaming, delta("a", { sequence_number: 7 }), delta("b"), delta("c", { sequence_number: 0 }));
  assert.equal(state.sequenceNumber, 7);
  assert.equal(state.apply(delta("d", { sequence_number: 7 })), false);
  assert.equal(state.position, 6);
});

test("1: a duplicate of an unknown type is a duplicate, too", () => {
  const odd = ev("hologram", { sequence_number: 2 });
  assert.deepEqual(view({ ...root, sequence_number: 1 }, odd, odd).unknown, [odd]);
});

test("1: ignored and unknown events count, too", () => {
  assert.equal(folded(root, root, delta("nowhere"), ev("hologram")).position, 4);
});

test("2: a task is created once, below a known parent, and there is one root", () => {
  const state = folded(root);
  assert.equal(state.apply(ev("created", { agent: "again" })), false);
  assert.equal(state.apply(ev("created", { task_id: "other" })), false);
  assert.equal(state.apply(ev("created", { task_id: "lost", parent_task_id: "unknown" })), false);
  assert.equal(state.apply(ev("created", { task_id: "own", parent_task_id: "own" })), false);
  assert.equal(state.apply(ev("created", { task_id: "child", parent_task_id: "r", call_id: "c" })), true);
  assert.equal(state.apply(ev("created", { task_id: "child", parent_task_id: "r", agent: "again" })), false);
  assert.deepEqual(shown(state), {
    task_id: "r",
    status: "queued",
    output: [],
    tasks: [{ task_id: "child", parent_task_id: "r", call_id: "c", status: "queued" }],
  });
});

test("2: a child before any task is ignored", () => {
  const state = folded(ev("created", { parent_task_id: "p" }));
  assert.equal(state.view(), undefined);
  assert.equal(state.position, 1);
});

test("3: the first event of whatever task makes it the root, without a status", () => {
  assert.deepEqual(view(ev("notice", { message: "hello" })), { task_id: "r", output: [], notices: [{ message: "hello" }] });
});

test("3: an unknown task is a child of the last open result that waits for it", () => {
  const state = folded(
    root,
    added(0, result("first", "a")),
    ev("created", { task_id: "a", parent_task_id: "r", call_id: "a" }),
    added(0, result("one", "x")),
    added(1, result("two", "x")),
    added(5, result("inner", "x"), { task_id: "a" }),
    ev("in_progress", { task_id: "x" }),
  );
  assert.deepEqual(shown(state).tasks?.[1], { task_id: "x", parent_task_id: "a", call_id: "x", status: "in_progress" });
});

test("3: without an open result an event of an unknown task is ignored", () => {
  const state = folded(root, added(0, result("m", "x")), done(0, result("m", "x")));
  assert.equal(state.apply(ev("in_progress", { task_id: "x" })), false);
  assert.deepEqual(state.taskIds, ["r"]);
});

test("4: nothing of a task follows its end", () => {
  const state = folded(...streaming, ev("completed"));
  for (const event of [delta("late"), ev("failed", { error: { code: "c", message: "m" } }), ev("in_progress"), added(1, message())]) {
    assert.equal(state.apply(event), false);
  }
  assert.equal(shown(state).status, "completed");
  assert.equal(shown(state).output.length, 1);
});

test("5: added is ignored when its index is taken, and its parts are closed", () => {
  const item = { ...message(), block_list: [text("whole")] } as Item;
  const state = folded(root, added(0, item));
  assert.equal(state.apply(added(0, message("other"))), false);
  assert.equal(state.apply(delta(" more")), false);
  assert.deepEqual(shown(state).output, [{ ...item, status: "in_progress" }]);
});

test("5: an open item is in progress, whatever its payload says", () => {
  assert.deepEqual(view(root, added(0, { ...message(), status: "failed" } as Item)).output[0]?.status, "in_progress");
});

test("5: done creates a missing item, ends an open one and leaves a closed one alone", () => {
  const state = folded(root, done(3, { ...message(), status: "incomplete" } as Item));
  assert.equal(state.apply(done(3, message("again"))), false);
  assert.deepEqual(shown(state).output, [{ ...message(), block_list: [], status: "incomplete" }]);
});

test("5: done of another type than the open item's is ignored", () => {
  const state = folded(...streaming);
  assert.equal(state.apply(done(0, call("m", "c"))), false);
  assert.equal(state.apply(delta("still open")), true);
});

test("5: a list that done leaves out stays, one that it gives replaces all parts", () => {
  assert.deepEqual(blocks(...streaming, delta("so far"), done(0, message())), [text("so far")]);
  assert.deepEqual(blocks(...streaming, delta("so far"), done(0, { ...message(), block_list: [] } as Item)), []);
  const other = [text("other"), { type: "refusal", refusal: "no" }];
  assert.deepEqual(blocks(...streaming, done(0, { ...message(), block_list: other } as Item)), other);
});

test("5: the other fields are those that done says", () => {
  const first = { ...call("m", "c"), kind: "mcp", server_label: "s", arguments: "{" } as Item;
  const last = { ...call("n", "d"), executor: "client", arguments: "{}" } as Item;
  const state = folded(root, added(0, first), done(0, last), ev("progress", { call_id: "c", message: "x" }));
  assert.deepEqual(shown(state).output, [last]);
  assert.equal(state.apply(ev("progress", { call_id: "d", message: "y" })), true);
});

test("5: a part that done repeats keeps its arrival", () => {
  const state = folded(
    root,
    added(0, result("m", "x")),
    ofBlock("text.done", 0, { item: text("first") }),
    added(0, message("inside"), { task_id: "x" }),
    done(0, { ...result("m", "x"), block_list: [text("First"), text("last")] } as Item),
  );
  const shownBlocks = (shown(state).output[0] as { block_list: readonly object[] }).block_list;
  assert.deepEqual(
    shownBlocks.map((block) => ("task_id" in block ? block.task_id : (block as { text: string }).text)),
    ["First", "x", "last"],
  );
});

test("5: done closes the item and its parts", () => {
  const state = folded(...streaming, done(0, message()));
  assert.equal(state.apply(delta("late")), false);
  assert.equal(state.apply(ofBlock("text.added", 1, { item: text("") })), false);
});

test("6: a part is added once, grows while it is open, and is done once", () => {
  const state = folded(...streaming, delta("ab"));
  assert.equal(state.apply(ofBlock("text.added", 0, { item: text("again") })), false);
  assert.equal(state.apply(ofBlock("text.done", 0, { item: text("abc") })), true);
  assert.equal(state.apply(delta("d")), false);
  assert.equal(state.apply(ofBlock("text.done", 0, { item: text("xyz") })), false);
  assert.equal(state.apply(ofBlock("text.annotation.added", 0, { annotation_index: 0, annotation: { type: "raw", raw: 1 } })), false);
  assert.deepEqual(shown(state).output[0], { ...message(), status: "in_progress", block_list: [text("abc")] });
});

test("6: done alone makes a closed part", () => {
  const state = folded(...open, ofBlock("text.done", 4, { item: text("whole") }), ofBlock("data.done", 2, { item: { type: "data", data: null } }));
  assert.deepEqual(shown(state).output[0], {
    ...message(),
    status: "in_progress",
    block_list: [{ type: "data", data: null }, text("whole")],
  });
  assert.equal(state.apply(ofBlock("text.delta", 4, { delta: "x" })), false);
});

test("6: a delta without its part is ignored", () => {
  assert.deepEqual(blocks(...open, delta("x")), []);
});

test("6: the item must have the id that the event names", () => {
  const state = folded(...streaming);
  assert.equal(state.apply(delta("x", { item_id: "other" })), false);
  assert.equal(state.apply(ofBlock("text.added", 1, { item: text(""), item_id: "other" })), false);
  assert.equal(state.apply(ofBlock("text.done", 1, { item: text(""), item_id: "other" })), false);
});

test("6: the event must fit the kind of the item and of the part", () => {
  const image = { type: "image", image_url: { url: "" } };
  const state = folded(...streaming, ofBlock("image.added", 1, { item: image }));
  assert.equal(state.apply(ofBlock("refusal.delta", 0, { delta: "x" })), false);
  assert.equal(state.apply(ofBlock("refusal.done", 0, { item: { type: "refusal", refusal: "" } })), false);
  assert.equal(state.apply(ofBlock("text.delta", 1, { delta: "x" })), false);
  assert.equal(state.apply(ofBlock("file.done", 1, { item: { type: "file", url: "u" } })), false);
  assert.equal(state.apply(ofBlock("tool_call_arguments.delta", 0, { delta: "x" })), false);
  assert.equal(state.apply(ofBlock("reasoning_text.added", 0, { text_index: 0, item: text("") })), false);
  assert.equal(folded(root, added(0, call("m", "c"))).apply(ofBlock("text.added", 0, { item: text("") })), false);
});

test("6: an image delta replaces the picture of an open block", () => {
  const image = (url: string) => ({ type: "image", image_url: { url } });
  const partial = (url: string) => ofBlock("image.delta", 0, { partial_image_index: 0, item: image(url) });
  const drawn = [...open, ofBlock("image.added", 0, { item: image("") }), partial("a"), partial("b")];
  assert.deepEqual(blocks(...drawn), [image("b")]);
  assert.deepEqual(blocks(...drawn, ofBlock("image.done", 0, { item: image("c") }), partial("d")), [image("c")]);
});

test("6: the part in a done event replaces the part before", () => {
  const annotation = { type: "raw", raw: 1 };
  const annotated = [...streaming, ofBlock("text.annotation.added", 0, { annotation_index: 0, annotation })];
  assert.deepEqual(blocks(...annotated), [{ ...text(""), annotations: [annotation] }]);
  assert.deepEqual(blocks(...annotated, ofBlock("text.done", 0, { item: text("x") })), [text("x")]);
});

test("6: arguments grow until they are done", () => {
  const more = (words: string) => ofBlock("tool_call_arguments.delta", 0, { delta: words });
  const state = folded(root, added(0, { ...call("m", "c"), arguments: "{" } as Item), more('"a'), more('"'));
  const args = () => (shown(state).output[0] as { arguments: string }).arguments;
  assert.equal(args(), '{"a"');
  assert.equal(state.apply(ofBlock("tool_call_arguments.done", 0, { arguments: "{}" })), true);
  assert.equal(state.apply(more("x")), false);
  assert.equal(state.apply(ofBlock("tool_call_arguments.done", 0, { arguments: "[]" })), false);
  assert.equal(args(), "{}");
});

test("6: both texts of a reasoning grow apart", () => {
  const of = (type: string, rest: object) => ev(type, { item_id: "m", output_index: 0, ...rest });
  const [item] = view(
    root,
    added(0, { type: "reasoning", id: "m" }),
    of("reasoning_summary_item.added", { summary_index: 0, item: text("") }),
    of("reasoning_summary_text.delta", { summary_index: 0, delta: "short" }),
    of("reasoning_text.added", { text_index: 0, item: text("") }),
    of("reasoning_text.delta", { text_index: 0, delta: "long" }),
  ).output;
  assert.deepEqual(item, { type: "reasoning", id: "m", summary: [text("short")], reasoning_text: [text("long")], status: "in_progress" });
});

test("7: an end closes what is open, clears the requests and leaves the steps", () => {
  const ended = view(
    ...streaming,
    delta("cut"),
    ev("input_required", { requests: [{ id: "q", kind: "input" }] }),
    ev("step.started", { step_index: 0, name: "s" }),
    ev("cancelled", { reason: "stop" }),
  );
  assert.deepEqual(ended, {
    task_id: "r",
    status: "cancelled",
    reason: "stop",
    output: [{ ...message(), status: "incomplete", block_list: [text("cut")] }],
    steps: [{ name: "s", depth: 0, status: "in_progress" }],
  });
});

test("7: an end leaves alone what is closed", () => {
  assert.deepEqual(view(root, done(0, message()), ev("completed")).output, [{ ...message(), block_list: [] }]);
});

test("7: each end says why", () => {
  assert.equal(view(root, ev("completed")).status, "completed");
  assert.equal(view(root, ev("incomplete", { reason: "max" })).reason, "max");
  assert.deepEqual(view(root, ev("failed", { error: { code: "c", message: "m", param: null } })).error, { code: "c", message: "m" });
});

test("8: requests are appended once, and the last answer lets the task go on", () => {
  const request = (id: string, message: string) => ({ id, kind: "input", message });
  const ask = (...requests: object[]) => ev("input_required", { requests });
  const state = folded(root, ask(request("a", "1"), request("a", "2")), ask(request("a", "3"), request("b", "4")));
  assert.deepEqual(shown(state).requests, [request("a", "1"), request("b", "4")]);
  assert.equal(state.apply(ev("input_received", { request_id: "z" })), false);
  state.apply(ev("input_received", { request_id: "a" }));
  assert.equal(shown(state).status, "input_required");
  state.apply(ev("input_received", { request_id: "b" }));
  assert.equal(shown(state).status, "in_progress");
  assert.equal(shown(state).requests, undefined);
});

test("8: an answer leaves another status as it is", () => {
  const ask = ev("input_required", { requests: [{ id: "a", kind: "input" }, { id: "b", kind: "input" }] });
  const state = folded(root, ask, ev("in_progress"), ev("input_received", { request_id: "a" }));
  assert.equal(shown(state).status, "in_progress");
  assert.equal(shown(state).requests?.length, 1);
});

test("8: an attempt takes the named items out of the object", () => {
  const state = folded(root, done(0, message("a")), done(1, message("b")), ev("attempt", { attempt: 2, reason: "lost", superseded: ["a"] }));
  assert.equal(shown(state).attempt, 2);
  assert.deepEqual(shown(state).output.map((item) => item.id), ["b"]);
});

test("8: the last structured output stands, even when it is null", () => {
  const state = folded(root, ev("structured_output.done", { value: 1, name: "N" }), ev("structured_output.done", { value: null }));
  assert.deepEqual(shown(state).structured_output, { value: null });
});

test("8: steps nest, and begin and end once", () => {
  const begin = (step_index: number, name: string) => ev("step.started", { step_index, name });
  const state = folded(root, begin(0, "a"), begin(1, "b"));
  assert.equal(state.apply(begin(1, "again")), false);
  assert.equal(state.apply(ev("step.finished", { step_index: 7 })), false);
  assert.equal(state.apply(ev("step.finished", { step_index: 1 })), true);
  assert.equal(state.apply(ev("step.finished", { step_index: 1 })), false);
  state.apply(begin(2, "c"));
  assert.deepEqual(shown(state).steps, [
    { name: "a", depth: 0, status: "in_progress" },
    { name: "b", depth: 1, status: "completed" },
    { name: "c", depth: 1, status: "in_progress" },
  ]);
  assert.deepEqual(view(root, begin(3, "late"), begin(1, "early")).steps?.map((step) => step.name), ["early", "late"]);
});

test("8: another agent speaks, from the next item on", () => {
  const to = (agent: string, more: object = {}) => ev("agent.switched", { agent, ...more });
  const state = folded(ev("created", { agent: "a" }), to("b", { reason: "why" }), done(4, message()), to("b"), to("c"));
  assert.equal(shown(state).agent, "c");
  assert.deepEqual(shown(state).switches, [
    { agent: "b", output_index: 0, from: "a", reason: "why" },
    { agent: "b", output_index: 5, from: "b" },
    { agent: "c", output_index: 5, from: "b" },
  ]);
  assert.deepEqual(view(root, to("b")).switches, [{ agent: "b", output_index: 0 }]);
});

test("8: the last summary of the conversation counts", () => {
  const compacted = (summary: string) => ev("history.compacted", { summary, run_id: "r" });
  assert.deepEqual(view(root, compacted("a"), compacted("b")).compacted, { summary: "b", run_id: "r" });
});

test("8: progress goes to its call or to the task", () => {
  const state = folded(root, done(1, call("k", "c")), done(0, call("late", "c")));
  assert.equal(state.apply(ev("progress", { call_id: "unknown", message: "x" })), false);
  state.apply(ev("progress", { call_id: "c", message: "one" }));
  state.apply(ev("progress", { call_id: "c", current: 2 }));
  state.apply(ev("progress", { total: 3 }));
  assert.deepEqual(shown(state).progress, { total: 3 });
  assert.equal(view(root, ev("progress")).progress, undefined);
  assert.deepEqual(shown(state).output.map((item) => "progress" in item && item.progress), [false, { current: 2 }]);
});

test("8: a reference is imported once", () => {
  const found = { reference_id: 1, source_task_id: "x", source_reference_id: 2 };
  const state = folded(root, ev("reference.imported", { ...found, stray: true }));
  assert.equal(state.apply(ev("reference.imported", { ...found, source_reference_id: 9 })), false);
  assert.deepEqual(shown(state).imports, [found]);
});

test("8: a call is started when its id agrees", () => {
  const state = folded(root, done(0, call("k", "c")), done(1, message()));
  assert.equal(state.apply(ev("tool_call.started", { item_id: "other", output_index: 0 })), false);
  assert.equal(state.apply(ev("tool_call.started", { item_id: "m", output_index: 1 })), false);
  assert.equal(state.apply(ev("tool_call.started", { item_id: "k", output_index: 0 })), true);
  assert.deepEqual(shown(state).output[0], { ...call("k", "c"), arguments: "", started: true });
});

test("8: a raw event changes nothing", () => {
  assert.deepEqual(view(root, ev("raw", { source: "s", event_type: "e" })), { task_id: "r", status: "queued", output: [] });
});

test("9: an unknown event is kept whole, also after the end, and creates no task", () => {
  const odd = ev("hologram", { deep: [{ x: 1 }] });
  assert.deepEqual(view(root, ev("completed"), odd).unknown, [odd]);
  const state = folded(odd);
  assert.equal(state.view(), undefined);
  assert.deepEqual(state.save().unknown, [odd]);
});

test("9: a known event with an unknown block or annotation is kept, and not folded", () => {
  const strange = [
    ofBlock("text.done", 0, { item: { type: "hologram" } }),
    ofBlock("text.annotation.added", 0, { annotation_index: 0, annotation: { type: "hologram" } }),
    ofBlock("text.done", 0, { item: { ...text("x"), annotations: [{ type: "hologram" }] } }),
    done(0, { ...message(), block_list: [{ type: "hologram" }] } as unknown as Item),
  ];
  const seen = view(...streaming, ...strange);
  assert.deepEqual(seen.unknown, strange);
  assert.deepEqual(seen.output[0], { ...message(), status: "in_progress", block_list: [text("")] });
});

test("9: an event that does not fit its schema is kept, and not folded", () => {
  const broken = [ev("notice"), ev("notice", { message: 1 }), ev("step.started", { step_index: 0.5, name: "s" }), delta("x", { delta: null })];
  const seen = view(root, ...broken);
  assert.deepEqual(seen.unknown, broken);
  assert.equal(seen.notices, undefined);
});

test("9: an item of an unknown type is folded as a raw one", () => {
  const hologram = { type: "hologram", id: "h", status: "failed", rays: 3 } as unknown as Item;
  assert.deepEqual(view(root, done(0, hologram)).output, [{ type: "raw", id: "h", raw: hologram, status: "failed" }]);
  const nameless = { type: "hologram", id: 5, status: "odd" } as unknown as Item;
  assert.deepEqual(view(root, done(0, nameless)).output, [{ type: "raw", id: "", raw: nameless }]);
  const state = folded(root, added(0, nameless), done(0, hologram));
  assert.deepEqual(shown(state).output, [{ type: "raw", id: "h", raw: hologram, status: "failed" }]);
  assert.equal(shown(state).unknown, undefined);
});

test("what is no object is no event", () => {
  const state = new RunState();
  for (const nothing of [null, 1, "task.created", []]) assert.equal(state.apply(nothing as never), false);
  assert.equal(state.position, 0);
});
