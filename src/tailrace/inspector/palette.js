/** The palette (Ctrl K): threads, agents and commands by their words; and the list of shortcuts. */

import { byId, el } from "./dom.js";

const SHOWN = 50;

export class Palette {
  /**
   * `choices()` gives `{label, hint, act}` for everything that can be chosen now. `find(words)` gives
   * what the server finds, more with each page. Choices of one thread have one `thread`.
   */
  constructor(choices, find) {
    this.choices = choices;
    this.find = find;
    this.dialog = byId("palette");
    this.text = byId("palette-text");
    this.list = byId("palette-list");
    this.at = 0;
    this.text.addEventListener("input", () => this.#type());
    this.text.addEventListener("keydown", (event) => this.#key(event));
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.#close();
    });
  }

  open() {
    if (this.dialog.open) return;
    this.text.value = "";
    this.all = this.choices();
    this.dialog.showModal();
    this.text.focus();
    this.#type();
  }

  #type() {
    const words = this.text.value.trim();
    clearTimeout(this.searching);
    this.matches = { words, choices: [], busy: words !== "" };
    if (words !== "") this.searching = setTimeout(() => this.#fill(this.matches), 150);
    this.at = 0;
    this.#show();
  }

  async #fill(into) {
    for await (const choices of this.find(into.words)) {
      if (into !== this.matches) return;
      into.choices = choices;
      this.#show();
    }
    into.busy = false;
    if (into === this.matches) this.#show();
  }

  #show() {
    const words = this.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const known = this.all.filter(({ label, hint = "" }) => words.every((word) => `${label} ${hint}`.toLowerCase().includes(word)));
    const more = this.matches.choices.filter(({ thread }) => !known.some((each) => each.thread === thread));
    this.found = [...known, ...more].slice(0, SHOWN);
    this.list.replaceChildren(...this.found.map(({ label, hint }, n) =>
      el("li", { role: "option", id: `choice-${n}`, onclick: () => this.#choose(n) }, el("span", { class: "clip" }, label), hint && el("small", {}, hint))));
    if (this.found.length === 0) this.list.replaceChildren(el("li", { role: "option", "aria-disabled": "true", class: "none" }, this.matches.busy ? "Searching…" : "Nothing has these words."));
    this.#move(Math.min(this.at, Math.max(0, this.found.length - 1)));
  }

  #move(at) {
    if (this.found.length === 0) {
      this.text.removeAttribute("aria-activedescendant");
      return;
    }
    this.at = (at + this.found.length) % this.found.length;
    [...this.list.children].forEach((node, n) => node.setAttribute("aria-selected", String(n === this.at)));
    this.list.children[this.at].scrollIntoView({ block: "nearest" });
    this.text.setAttribute("aria-activedescendant", `choice-${this.at}`);
  }

  #key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      this.#move(this.at + step);
    } else if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      this.#choose(this.at);
    } else if (event.key === "Escape" && !event.isComposing) {
      event.preventDefault(); // a search field would only be emptied
      this.#close();
    }
  }

  #choose(n) {
    const choice = this.found[n];
    if (choice === undefined) return;
    this.#close();
    choice.act();
  }

  #close() {
    clearTimeout(this.searching);
    this.matches = undefined;
    this.dialog.close();
    this.text.blur(); // a browser moves the focus only when it draws: the next key would be typed here
  }
}

/** Single keys, outside of text fields. `keys` is a list of `{keys, words, act}`. */
export function listenToKeys(keys) {
  const byKey = new Map(keys.flatMap((each) => (each.act === undefined ? [] : each.keys.map((key) => [key, each.act]))));
  document.addEventListener("keydown", (event) => {
    if (event.metaKey || event.ctrlKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]") !== null) return;
    const { activeElement: focused } = document;
    const isTyping = focused !== null && (/^(TEXTAREA|SELECT)$/.test(focused.tagName) || (focused.tagName === "INPUT" && focused.type !== "range"));
    if (isTyping && event.key !== "Escape") return;
    const act = byKey.get(event.key);
    if (act === undefined) return;
    event.preventDefault();
    act();
  });
  byId("shortcuts-list").replaceChildren(...keys.filter((each) => each.words !== undefined).flatMap(({ keys: names, shown, words }) => [
    el("dt", {}, ...(shown ?? names).flatMap((name, n) => (n === 0 ? [el("kbd", {}, name)] : [" ", el("kbd", {}, name)]))),
    el("dd", {}, words),
  ]));
}
