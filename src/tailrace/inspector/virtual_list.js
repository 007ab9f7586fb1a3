/** A list of any length: only the rows in sight are nodes. */

import { el } from "./dom.js";

export const ROW = 24;

export class VirtualList {
  /** `row(n)` gives the parts of a row and its class; `pick(n)` is called when the reader chooses it. */
  constructor(label, name, row, pick) {
    this.name = name;
    this.row = row;
    this.pick = pick;
    this.count = 0;
    this.chosen = undefined;
    this.space = el("div", { class: "space", role: "presentation" });
    this.node = el("div", {
      class: "rows", tabindex: "0", role: "listbox", "aria-label": label,
      onscroll: () => this.paint(), onkeydown: (event) => this.#key(event),
    }, this.space);
    new ResizeObserver(() => this.paint()).observe(this.node);
  }

  show(count) {
    this.count = count;
    this.space.style.height = `${count * ROW}px`;
    this.paint();
  }

  clear() {
    this.count = 0;
    this.choose(undefined);
  }

  /** Mark a row, if any, and bring it into sight. */
  choose(n) {
    this.chosen = n;
    if (n === undefined) this.node.removeAttribute("aria-activedescendant");
    else {
      this.node.setAttribute("aria-activedescendant", `${this.name}-${n}`);
      const top = n * ROW;
      if (top < this.node.scrollTop || top + ROW > this.node.scrollTop + this.node.clientHeight) {
        this.node.scrollTop = Math.max(0, top - this.node.clientHeight / 2);
      }
    }
    this.paint();
  }

  paint() {
    const first = Math.max(0, Math.floor(this.node.scrollTop / ROW) - 5);
    const last = Math.min(this.count, first + Math.ceil(this.node.clientHeight / ROW) + 10);
    const rows = [];
    for (let n = first; n < last; n += 1) {
      const { parts, kind = "" } = this.row(n);
      const node = el("div", {
        class: `event ${kind}`, role: "option", id: `${this.name}-${n}`, "aria-selected": String(n === this.chosen),
        "aria-setsize": this.count, "aria-posinset": n + 1, onclick: () => this.#take(n),
      }, ...parts);
      node.style.top = `${n * ROW}px`;
      rows.push(node);
    }
    this.space.replaceChildren(...rows);
    // An empty list box is not a list box.
    if (this.count === 0) this.node.setAttribute("role", "group");
    else this.node.setAttribute("role", "listbox");
  }

  #take(n) {
    this.choose(n);
    this.pick(n);
  }

  #key(event) {
    const page = Math.floor(this.node.clientHeight / ROW) - 1;
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || this.count === 0) return;
    event.preventDefault();
    this.#take(Math.min(this.count - 1, Math.max(0, (this.chosen ?? -1) + step)));
  }
}
