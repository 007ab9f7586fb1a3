/** Citations: from a number in an answer to the block that it cites. */

import { byId, el } from "./dom.js";
import { reveal } from "./layout.js";

export class Sources {
  /** `shown()` gives the sessions on this page, and the ids of its runs, oldest first. */
  constructor(shown) {
    this.shown = shown;
  }

  /** Show the block, where it is. */
  open(number, taskId) {
    const block = this.#find(number, taskId);
    if (block !== undefined) reveal(block);
  }

  /** Show the block beside its number. */
  hint(anchor, number, taskId) {
    const block = this.#find(number, taskId);
    const popover = byId("popover");
    const words = [...(block?.querySelectorAll("pre") ?? [])].map((node) => node.textContent).join("\n") || block?.textContent || "This source is not loaded.";
    popover.replaceChildren(el("b", {}, `Source ${number}${block === undefined ? "" : ` · ${block.closest(".call")?.querySelector(".name")?.textContent ?? ""}`}`), words.slice(0, 400));
    popover.hidden = false;
    const box = anchor.getBoundingClientRect();
    popover.style.left = `${Math.max(8, Math.min(box.left, innerWidth - popover.offsetWidth - 8))}px`;
    popover.style.top = `${box.bottom + 6 + popover.offsetHeight > innerHeight ? box.top - popover.offsetHeight - 6 : box.bottom + 6}px`;
  }

  unhint() {
    byId("popover").hidden = true;
  }

  /** The block that a number of a task cites: its own result, an imported source, or an earlier run's. */
  #find(number, taskId) {
    const wanted = (task, id) => document.querySelector(`[data-reference="${CSS.escape(`${task}:${id}`)}"]`) ?? undefined;
    const own = wanted(taskId, number);
    if (own !== undefined) return own;
    const { sessions, chain } = this.shown();
    for (const session of sessions) {
      const imported = session.state.fields(taskId)?.imports?.find((each) => each.reference_id === number);
      if (imported !== undefined) return wanted(imported.source_task_id, imported.source_reference_id) ?? this.#find(imported.source_reference_id, imported.source_task_id);
    }
    for (const runId of [...chain].reverse()) {
      const earlier = wanted(runId, number);
      if (earlier !== undefined) return earlier;
    }
    return undefined;
  }
}
