/** The run as bars on one axis: turns, tools, sub-agents. */

import { dollars, el, seconds } from "./dom.js";

/** The spans of a run from its events: items, calls until their result, sub-agents. */
export function spansOf(events, byTime) {
  const spans = new Map();
  const calls = new Map(); // "task:call_id" → span
  const place = (each) => (byTime ? each.at : each.seq);
  const depths = new Map();
  for (const each of events) {
    const { event } = each;
    const at = place(each);
    if (event.type === "task.created") {
      const depth = event.parent_task_id === undefined ? 0 : (depths.get(event.parent_task_id) ?? 0) + 1;
      depths.set(event.task_id, depth);
      const key = `task ${event.task_id}`;
      if (depth > 0) spans.set(key, { key, kind: "agent", label: event.agent ?? "sub-agent", depth: depth * 2, from: at, to: at, open: true, task: event.task_id });
      continue;
    }
    const task = spans.get(`task ${event.task_id}`);
    if (task?.open) {
      task.to = at;
      if (["task.completed", "task.failed", "task.cancelled", "task.incomplete"].includes(event.type)) task.open = false;
    }
    if (event.output_index === undefined) continue;
    const key = `${event.task_id}:${event.output_index}`;
    const depth = (depths.get(event.task_id) ?? 0) * 2 + 1;
    if (event.type === "task.output_item.added") {
      const { item } = event;
      if (item.type === "tool_result") {
        const call = calls.get(`${event.task_id}:${item.call_id}`);
        if (call !== undefined) {
          spans.set(key, call);
          call.to = at;
        }
        continue;
      }
      const kind = item.type === "tool_call" ? "call" : item.type === "message" ? "message" : "reasoning";
      const label = item.type === "tool_call" ? item.name : kind === "message" ? "answer" : "thinking";
      const span = { key, kind, label, depth, from: at, to: at, task: event.task_id };
      spans.set(key, span);
      if (kind === "call") calls.set(`${event.task_id}:${item.call_id}`, span);
    } else {
      const span = spans.get(key);
      if (span !== undefined) span.to = at;
    }
  }
  return [...new Set(spans.values())].sort((a, b) => a.from - b.from);
}

/** `took` is the run's length in seconds, by the server's clock. */
export function showTimeline(node, session, select, took) {
  const byTime = session.isReplay === false;
  const spans = spansOf(session.events, byTime);
  const root = session.root;
  if (spans.length === 0) {
    node.replaceChildren(el("p", { class: "muted" }, root === undefined ? "Start a run to see its timeline." : "Nothing yet."));
    return;
  }
  const from = Math.min(...spans.map((span) => span.from));
  const width = Math.max(...spans.map((span) => span.to)) - from || 1;
  const attempts = session.events.filter(({ event }) => event.type === "task.attempt").map((each) => (byTime ? each.at : each.seq));
  const lanes = spans.map((span) => {
    const bar = el("span", { class: "span", "data-kind": span.kind });
    bar.style.left = `${((span.from - from) / width) * 100}%`;
    bar.style.width = `${((span.to - span.from) / width) * 100}%`;
    const name = el("span", { class: "clip" }, span.label);
    name.style.paddingLeft = `${span.depth * 8}px`;
    const length = byTime ? seconds(span.to - span.from) : `${span.to - span.from + 1} ev`;
    const numbers = byTime ? `${span.label}: ${length}, from ${seconds(span.from - from)} on` : `${span.label}: events ${span.from} to ${span.to}`;
    const marks = attempts.map((at) => {
      const mark = el("span", { class: "attempt-at", title: "Another worker or another try continues from here" });
      mark.style.left = `${Math.min(100, Math.max(0, ((at - from) / width) * 100))}%`;
      return mark;
    });
    return el("button", { type: "button", class: "lane", title: numbers, onclick: () => select(span.key) },
      name, el("span", { class: "track" }, bar, ...marks), el("span", { class: "time" }, length));
  });
  const facts = el("dl", { class: "facts" });
  const fact = (name, value) => value !== undefined && facts.append(el("dt", {}, name), el("dd", {}, value));
  const first = session.events.find(({ event }) => event.type.endsWith(".delta"));
  fact("Axis", byTime ? "time, as it arrived here" : "events (this run was replayed)");
  const began = root?.created_at === undefined ? undefined : root.created_at * 1000 - performance.timeOrigin;
  if (byTime && first !== undefined && began !== undefined) fact("First token", seconds(Math.max(0, first.at - began)));
  const usage = root?.usage;
  if (usage !== undefined) {
    if (usage.time_to_first_token_ms !== undefined) fact("Model's first token", seconds(usage.time_to_first_token_ms));
    fact("Tokens", `${usage.input_tokens} in · ${usage.output_tokens} out`);
    if (usage.latency_ms) fact("Speed", `${Math.round(usage.output_tokens / (usage.latency_ms / 1000))} tokens/s`);
    if (usage.cost !== undefined) fact("Cost", dollars(usage.cost));
    if (usage.model !== undefined) fact("Model", usage.model);
  }
  if (root?.steps !== undefined) fact("Steps", root.steps.map((step) => step.name).join(" → "));
  if (took !== undefined) fact("Took", seconds(took * 1000));
  fact("Events", String(session.events.length));
  if (root?.attempt !== undefined) fact("Attempts", String(root.attempt));
  node.replaceChildren(el("div", { class: "lanes" }, ...lanes), facts);
}
