// Listens with the platform's own EventSource, by names, as a page does: `node … run_events.mjs URL RUNS`.
// Prints what it heard, one event a line, and leaves after so many runs have ended.
// With a third argument, with the EventSource of the package `eventsource`.
import { EventSource as Npm } from "eventsource";

const [url, runs, npm] = process.argv.slice(2);
const EventSource = npm ? Npm : globalThis.EventSource;
const names = [
  "run.started", "run.finished", "run.error", "step.start", "step.finish", "text.start", "text.delta", "text.end",
  "tool.start", "tool.args", "tool.end", "tool.result", "run.gap",
];
let ended = 0;
let last = "";
const awake = setInterval(() => {}, 1000); // a page stays open while its EventSource waits to come back

function listen() {
  const source = new EventSource(last ? `${url}?after=${last}` : url);
  const hear = (event) => {
    last = event.lastEventId;
    console.log(JSON.stringify({ id: last, ...JSON.parse(event.data) }));
    if (event.type === "run.finished" || event.type === "run.error") ended += 1;
    if (ended === Number(runs)) {
      source.close();
      clearInterval(awake);
    }
  };
  for (const name of names) source.addEventListener(name, hear);
  source.onmessage = (event) => console.log(JSON.stringify({ unnamed: event.data }));
  source.onopen = () => console.error("open");
  // It comes back by itself after a cut, but gives up if no server listens. Then a page connects anew.
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 100);
  };
}

listen();
