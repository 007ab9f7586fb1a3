/** Items that fold to one line: a thought, and an item that this page does not know. */

import { el, seconds, setText } from "./dom.js";
import { icon } from "./icons.js";

/** The mark of a line that opens. */
export const fold = () => {
  const mark = icon("chevron");
  mark.classList.add("fold");
  return mark;
};

export class ThoughtView {
  constructor(key) {
    this.title = el("span", {}, "Thinking…");
    this.preview = el("bdi");
    this.line = el("span", { class: "preview clip" }, this.preview);
    this.body = el("div", { class: "body" });
    this.node = el("details", { class: "item thought", "data-key": key }, el("summary", {}, fold(), this.title, this.line), this.body);
  }

  update(item, time) {
    const text = [...(item.summary ?? []), ...(item.reasoning_text ?? [])].map((part) => part.text).join("\n\n");
    setText(this.body, text);
    const over = item.status !== "in_progress";
    const took = time === undefined || time.to - time.from < 50 ? "" : ` for ${seconds(time.to - time.from)}`;
    setText(this.title, over ? `Thought${took}` : "Thinking…");
    this.line.hidden = over;
    if (!over) setText(this.preview, text.slice(-120).replaceAll("\n", " "));
  }
}

export class RawView {
  constructor(key) {
    this.summary = el("summary", {}, fold(), "Raw item");
    this.body = el("pre");
    this.node = el("details", { class: "item thought", "data-key": key }, this.summary, this.body);
  }

  update(item) {
    setText(this.body, JSON.stringify(item.raw ?? item, null, 2));
  }
}
