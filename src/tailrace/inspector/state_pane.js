/** The run as one object at the scrubber's place. Fields that differ from the place before are marked. */

import { el } from "./dom.js";

const LINES = 4000;
const CHARACTERS = 2000;

/** The lines of a value, each with the path that it shows. */
function* linesOf(value, path = "", indent = 0, key = undefined, comma = "") {
  if (typeof value !== "object" || value === null || Object.keys(value).length === 0) {
    const text = JSON.stringify(value);
    const cut = text.length > CHARACTERS ? `${text.slice(0, 80)}… (${text.length.toLocaleString("en")} characters)"` : text;
    yield { path, indent, key, text: cut + comma, value: text };
    return;
  }
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  yield { path, indent, key, text: open, value: open };
  const entries = Object.entries(value);
  for (const [n, [name, each]] of entries.entries()) {
    yield* linesOf(each, `${path}/${name}`, indent + 1, Array.isArray(value) ? undefined : name, n < entries.length - 1 ? "," : "");
  }
  yield { path: `${path}/`, indent, text: close + comma, value: close };
}

export class StatePane {
  constructor(node, url) {
    this.node = node;
    this.url = url;
    this.values = new Map();
    this.lines = [];
    this.body = el("div", { class: "json" });
    this.blank = el("p", { class: "blank" }, "The state is the run as one object, at the place of the scrubber.");
    node.replaceChildren(this.blank, this.body);
  }

  show(session, scrub) {
    const view = session === undefined ? undefined : (scrub === undefined ? session.state : session.at(scrub)).view();
    this.blank.hidden = view !== undefined;
    this.body.hidden = view === undefined;
    if (view === undefined) return;
    const isKnown = this.runId === session.runId && this.values.size > 0;
    const values = new Map();
    const shown = [];
    let count = 0;
    for (const line of linesOf(view)) {
      values.set(line.path, line.value);
      count += 1;
      if (count <= LINES) shown.push({ ...line, changed: isKnown && this.values.get(line.path) !== line.value });
    }
    this.runId = session.runId;
    this.values = values;
    this.#draw(shown);
    if (count > LINES) this.body.append(el("p", { class: "muted" }, `${count - LINES} more lines: GET ${this.url(session.runId)}`));
    const first = this.body.querySelector(".changed");
    if (scrub !== undefined) first?.scrollIntoView({ block: "nearest" });
  }

  /** Change only the lines that differ. */
  #draw(shown) {
    while (this.body.childElementCount > shown.length) this.body.lastElementChild.remove();
    shown.forEach((line, n) => {
      const before = this.lines[n];
      let node = this.body.children[n];
      if (node === undefined) node = this.body.appendChild(el("div", { class: "line" }));
      if (before === undefined || before.text !== line.text || before.key !== line.key || before.indent !== line.indent || node.childNodes.length === 0) {
        node.replaceChildren(...(line.key === undefined ? [] : [el("span", { class: "key" }, `${line.key}: `)]), line.text);
        node.style.marginLeft = `calc(${line.indent * 2}ch - 8px)`;
      }
      node.classList.toggle("changed", line.changed);
    });
    this.lines = shown;
  }
}
