/** Where a message is written, and what it continues. */

import { byId, setText } from "./dom.js";

export class Composer {
  /** `send(input, options)` starts a run; it gives whether the run started. */
  constructor(send) {
    this.send = send;
    this.edits = undefined; // what the next message continues, if not the last run: an edit or a fork
    this.toInput = (text) => text;
    this.message = byId("message");
    this.message.addEventListener("input", () => this.#grow());
    this.message.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      byId("composer").requestSubmit();
    });
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    byId("replaces").lastElementChild.addEventListener("click", () => {
      this.replaceNext(undefined);
      this.write("");
    });
  }

  focus() {
    this.message.focus();
  }

  write(text) {
    this.message.value = text;
    this.#grow();
  }

  /** What the next message continues, what the reader sees of it, and the input that its text becomes. */
  replaceNext(options, words, toInput = (text) => text) {
    this.edits = options;
    this.toInput = toInput;
    const note = byId("replaces");
    note.hidden = words === undefined;
    if (words !== undefined) setText(note.firstElementChild, words);
  }

  /** `agent` is undefined if the server has none. */
  address(agent) {
    this.message.placeholder = agent === undefined ? "This server has no agents." : `Message ${agent}…`;
  }

  async #submit() {
    const text = this.message.value.trim();
    if (text === "" || byId("send").disabled) return;
    byId("send").disabled = true;
    this.write("");
    const started = await this.send(this.toInput(text), this.edits ?? {});
    byId("send").disabled = false;
    // What was typed is not lost if the server refuses it.
    if (!started && this.message.value === "") this.write(text);
  }

  #grow() {
    this.message.style.height = "auto";
    this.message.style.height = `${Math.min(this.message.scrollHeight + 2, 168)}px`;
  }
}
