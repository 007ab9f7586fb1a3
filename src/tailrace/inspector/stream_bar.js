/** The state of the stream in words, and the button that cuts and resumes it. */

import { byId, setText } from "./dom.js";

export class StreamBar {
  constructor() {
    this.retryAt = 0; // when the stream is tried again
    this.retried = undefined; // the status that `retryAt` belongs to
  }

  /** `session` is the run that the right pane shows, of the thread with this id. */
  show(session, threadId) {
    const name = byId("thread-name");
    setText(name, threadId);
    name.hidden = session === undefined;
    if (session === undefined) {
      setText(byId("stream-text"), "no run");
      byId("stream").dataset.kind = "none";
      byId("cut").disabled = true;
      return;
    }
    const { kind } = session.status;
    const status = session.root?.status;
    const asks = kind === "live" && status === "input_required";
    setText(byId("stream-text"), `${this.#words(session, asks)} · seq ${session.seq} · ${session.missed} missed${resumed(session)}`);
    const stream = byId("stream");
    stream.title = `${byId("stream-text").textContent}\nEvery event has a number. A number that never arrives counts as missed.`;
    stream.dataset.kind = asks ? "asks" : kind === "ended" && status === "failed" ? "failed" : kind === "ended" ? "completed" : kind;
    showCut(kind);
  }

  /** A moment has passed: say when the stream is tried again. */
  countDown(session, threadId) {
    if (session?.status.kind !== "waiting") return;
    if (this.retried !== session.status) {
      this.retried = session.status;
      this.retryAt = Date.now() + (session.status.delay ?? 0);
    }
    this.show(session, threadId);
  }

  #words(session, asks) {
    return {
      connecting: "connecting",
      live: asks ? "waiting for you" : "live",
      waiting: navigator.onLine ? `reconnecting in ${Math.max(1, Math.ceil((this.retryAt - Date.now()) / 1000))} s` : "offline: reconnecting when the network is back",
      cut: `cut · ${events(session.waiting)} waiting`,
      ended: session.root?.status ?? "ended",
      forked: "fork",
      failed: session.status.message,
    }[session.status.kind];
  }
}

const events = (count) => `${count.toLocaleString("en")} ${count === 1 ? "event" : "events"}`;

function resumed(session) {
  if (session.resumed === undefined || ["cut", "waiting"].includes(session.status.kind)) return "";
  return ` · resumed${session.resumed > 0 ? ` after ${events(session.resumed)}` : ""}`;
}

function showCut(kind) {
  const cut = byId("cut");
  cut.disabled = ["ended", "forked", "failed"].includes(kind);
  setText(cut.lastElementChild, kind === "cut" ? "Resume" : "Cut");
  cut.classList.toggle("primary", kind === "cut");
  cut.title = kind === "cut" ? "Connect again, after the last event that arrived (C)" : "Drop the connection; the run goes on (C)";
}
