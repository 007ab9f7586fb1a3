/** A call: one line that opens to its arguments, its result or the sub-agent that it asked. */

import { blockPart, compact } from "./blocks.js";
import { el, seconds, setText } from "./dom.js";
import { fold } from "./folded_views.js";
import { icon } from "./icons.js";
import { endedByPerson } from "./timeline.js";

const short = (text) => (text.length > 120 ? `${text.slice(0, 120)}…` : text);

export class CallView {
  constructor(item, key) {
    this.key = key;
    this.callId = item.call_id;
    this.tool = item.name;
    this.name = el("span", { class: "name" }, item.name);
    this.short = el("span", { class: "short mono muted clip" });
    this.side = el("span", { class: "side" });
    this.bar = el("progress", { max: 1, "aria-label": `Progress of ${item.name}` });
    this.does = el("span", { class: "clip" });
    this.progress = el("div", { class: "progress", hidden: true }, this.bar, this.does);
    this.arguments = el("pre", { "aria-label": "Arguments", hidden: true });
    this.changeNote = el("p", { class: "note", hidden: true });
    this.body = el("div", { class: "body" }, this.arguments, this.changeNote);
    this.node = el("details", { class: "item call", "data-key": key }, el("summary", {}, fold(), this.name, this.short, this.side, this.progress), this.body);
    this.text = "";
    this.numbers = [];
  }

  get isRunning() {
    return !this.ended && !this.asks && (this.result === undefined || this.result.status === "in_progress");
  }

  /** A person wrote other arguments: they are shown, as the tool runs with them. */
  change(text) {
    this.changed = text;
    this.changeNote.hidden = text === undefined;
  }

  update(item, time) {
    this.item = item;
    if (time !== undefined) this.time = { ...this.time, ...time };
    if (this.changed !== undefined) setText(this.changeNote, `A person changed the arguments. The model wrote ${item.arguments}`);
    const text = this.changed ?? item.arguments ?? "";
    if (text !== this.text) {
      this.text = text;
      setText(this.short, short(this.text));
      setText(this.arguments, compact(this.text));
      this.arguments.hidden = this.text === "" || this.delegated === true;
    }
    const progress = item.progress;
    this.progress.hidden = progress === undefined || !this.isRunning;
    if (progress !== undefined) {
      this.bar.max = progress.total ?? 1;
      if (progress.current !== undefined) this.bar.value = progress.current;
      setText(this.does, progress.message ?? "");
    }
    this.status();
  }

  /** The call is a sub-agent: its conversation stands here. */
  delegateTo(agent, asked, items) {
    this.delegated = true;
    this.arguments.hidden = asked !== "";
    this.short.hidden = asked !== "";
    if (agent !== this.tool) this.name.replaceChildren(this.tool, el("span", { class: "to" }, ` → ${agent}`));
    if (this.short.hidden) this.name.after(el("span", { class: "short muted clip" }));
    this.body.append(el("div", { class: "child" }, asked === "" ? undefined : el("p", { class: "asked-of" }, asked), items));
    this.node.open = true;
  }

  setAsks(asks) {
    if (this.asks === asks) return;
    this.asks = asks;
    this.status();
  }

  /** The run is over: whatever has no result gets none. */
  end() {
    if (this.ended) return;
    this.ended = true;
    this.progress.hidden = true;
    this.status();
  }

  status() {
    const done = this.result !== undefined && this.result.status !== "in_progress";
    const failed = this.result?.status === "failed" || this.result?.error !== undefined || this.item?.status === "failed" || this.item?.status === "incomplete";
    const byPerson = endedByPerson(this.result);
    const to = this.isRunning && this.item?.started && this.now !== undefined ? this.now : this.time?.to;
    const length = this.time === undefined ? 0 : to - this.time.from;
    const mark = failed
      ? el("span", { class: byPerson === undefined ? "bad" : "denied" }, byPerson ?? (this.result?.error?.code === "interrupted" ? "interrupted" : "failed"))
      : done
        ? el("span", { class: "good", role: "img", "aria-label": "completed" }, icon("check"))
        : this.asks
          ? el("span", { class: "asks" }, "waits for you")
          : this.ended
            ? "not run"
            : el("span", { class: "busy", role: "img", "aria-label": "running" });
    // How long a call has run is known only now, not at an earlier event.
    const isKnown = this.time !== undefined && (done || (this.item?.started && this.now !== undefined));
    const took = !isKnown ? "" : length < 1 ? "<1 ms" : seconds(length);
    const numbers = this.numbers.length > 0 ? `[${[...new Set(this.numbers)].join(", ")}]` : "";
    const key = `${took} ${failed} ${done} ${this.asks} ${this.ended} ${numbers}`;
    if (key === this.drawn) return;
    this.drawn = key;
    this.side.replaceChildren(...[took, mark, numbers].filter((each) => each !== ""));
  }
}

/** A result is shown inside its call. */
export class ResultView {
  constructor(call, taskId, key) {
    this.call = call;
    this.taskId = taskId;
    this.parts = [];
    this.body = el("div", { "data-key": key });
    this.node = this.body;
    if (call !== undefined) {
      this.place = "call";
      call.body.append(this.body);
    }
    this.error = undefined;
  }

  update(item, time) {
    (item.block_list ?? []).forEach((block, n) => {
      if (this.parts[n] === undefined) {
        const node = el("div", { class: "block" });
        if (block.id !== undefined) {
          node.dataset.reference = `${this.taskId}:${block.id}`;
          node.append(el("span", { class: "number" }, `[${block.id}]`));
        }
        this.body.append(node);
        this.parts[n] = blockPart(node, block);
        // A picture is worth a look while it sharpens.
        if (block.type === "image" && this.call !== undefined) this.call.node.open = true;
      }
      this.parts[n].update(block);
    });
    if (item.error !== undefined && this.error === undefined) {
      this.error = endedByPerson(item) !== undefined ? el("p", { class: "note" }, item.error.message) : el("p", { class: "failure" }, `${item.error.message} (${item.error.code})`);
      this.body.append(this.error);
    }
    if (this.call !== undefined) {
      this.call.result = item;
      this.call.numbers = (item.block_list ?? []).map((block) => block.id).filter((id) => id !== undefined);
      if (this.call.time !== undefined && time !== undefined) this.call.time.to = time.to;
      this.call.progress.hidden ||= !this.call.isRunning;
      this.call.status();
    }
  }
}
