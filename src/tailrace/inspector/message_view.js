/** A message: Markdown or the fields of a structured answer, with its citations and sources. */

import { blockPart } from "./blocks.js";
import { el } from "./dom.js";
import { fieldsOf, readPartial } from "./fields.js";
import { link, Markdown } from "./markdown.js";

export class MessageView {
  constructor(taskId, key, actions) {
    this.taskId = taskId;
    this.actions = actions;
    this.parts = [];
    this.text = "";
    this.sources = el("ul", { class: "sources", hidden: true });
    this.body = el("div");
    this.node = el("div", { class: "item message", "data-key": key }, this.body, this.sources);
  }

  update(item) {
    this.node.classList.toggle("incomplete", item.status === "incomplete" || item.status === "failed");
    const urls = [];
    this.text = (item.block_list ?? []).map((block) => block.text ?? "").join("");
    (item.block_list ?? []).forEach((block, n) => {
      if (block.type === "text") {
        for (const note of block.annotations ?? []) if (note.type === "url_citation") urls.push(note);
      }
      this.#block(block, n);
    });
    if (this.sources.childElementCount !== urls.length) {
      this.sources.hidden = urls.length === 0;
      this.sources.replaceChildren(...urls.map((each) => el("li", {}, link(each.url, each.title || each.url) ?? each.url)));
    }
  }

  /** The name of the structured output that this message is. */
  setTitle(name) {
    const fields = this.body.querySelector(".fields");
    if (fields !== null && name && fields.querySelector(":scope > .label") === null) fields.prepend(el("p", { class: "label" }, name));
  }

  #block(block, n) {
    const part = (this.parts[n] ??= this.#part(block));
    if (block.type !== "text") {
      part.update(block);
      return;
    }
    part.numbers = new Set((block.annotations ?? []).map((note) => note.reference_id));
    const changed = part.numbers.size !== part.shown;
    part.shown = part.numbers.size;
    // A structured answer: its fields, as far as they have come.
    const value = block.text === part.read && !changed ? part.value : readPartial(block.text);
    const same = value === part.value;
    part.read = block.text;
    part.value = value;
    if (value !== undefined) {
      if (!same) part.node.replaceChildren(fieldsOf(value, part.cite));
      return;
    }
    // A marker counts when the server has annotated it, so nothing in the text can forge it.
    if (changed) part.markdown.reset();
    part.markdown.update(block.text);
  }

  #part(block) {
    const node = el("div");
    this.body.append(node);
    if (block.type !== "text") return blockPart(node, block);
    const part = { node, numbers: new Set(), shown: 0 };
    part.cite = (number) => (part.numbers.has(number) ? citation(number, this.taskId, this.actions) : undefined);
    part.markdown = new Markdown(node, part.cite);
    return part;
  }
}

function citation(number, taskId, actions) {
  return el(
    "button",
    {
      type: "button",
      class: "cite",
      "aria-label": `Source ${number}`,
      onclick: () => actions.cite(number, taskId),
      onmouseenter: (event) => actions.hint(event.currentTarget, number, taskId),
      onfocus: (event) => actions.hint(event.currentTarget, number, taskId),
      onmouseleave: () => actions.unhint(),
      onblur: () => actions.unhint(),
    },
    String(number),
  );
}
