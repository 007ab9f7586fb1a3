/**
 * When each event of a run arrived in this browser.
 *
 * The log has no times, so a page that reloads would lose its timeline. The times of the newest
 * runs are therefore stored here, in milliseconds.
 */

const PREFIX = "tailrace-times-";
const RUNS = 24;
const EVENTS = 5000;

/** A clock that goes on after a reload. */
export const clock = () => performance.timeOrigin + performance.now();

/** The times of a run, the first event first; an event may be unknown. */
export function loadTimes(runId) {
  try {
    const { from, steps } = JSON.parse(localStorage.getItem(PREFIX + runId));
    let at = from;
    return steps.map((step) => (step === null ? undefined : (at += step)));
  } catch {
    return [];
  }
}

export function saveTimes(runId, times) {
  const from = times.find((at) => at !== undefined);
  if (from === undefined || times.length > EVENTS) return;
  let before = from;
  const steps = times.map((at) => {
    if (at === undefined) return null;
    const step = Math.round(at - before);
    before += step;
    return step;
  });
  try {
    localStorage.removeItem(PREFIX + runId);
    const stored = Object.keys(localStorage).filter((key) => key.startsWith(PREFIX));
    const age = (key) => JSON.parse(localStorage.getItem(key))?.from ?? 0;
    for (const key of stored.sort((a, b) => age(a) - age(b)).slice(0, Math.max(0, stored.length + 1 - RUNS))) localStorage.removeItem(key);
    localStorage.setItem(PREFIX + runId, JSON.stringify({ from, steps }));
  } catch {
    // The store of the browser is full or closed: the timeline counts events after a reload.
  }
}
