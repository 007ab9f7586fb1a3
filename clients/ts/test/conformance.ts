// Usage: node test/conformance.ts <traces>
//
// Folds each trace of a folder (see conformance/README.md) and compares what it shows with what the trace
// says. Prints a line for each trace and exits with 1 when one differs.

import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { RunState } from "../src/index.ts";
import type { PrivatePart, RunEvent } from "../src/index.ts";
import { canonical, digest } from "./canonical.ts";

type PrivateLine = PrivatePart & { sequence_number?: number; line?: number };

const folder = process.argv[2];
if (folder === undefined) {
  console.error("usage: node test/conformance.ts <traces>");
  process.exit(2);
}

function linesOf(path: string): string[] {
  return readFileSync(path, "utf8").split("\n").filter((line) => line.trim() !== "");
}

/** The private part of each event: by its number, or by its line where events have none. */
function privateParts(path: string, events: readonly RunEvent[]): (PrivatePart | undefined)[] {
  const parts = new Array<PrivatePart | undefined>(events.length);
  if (!existsSync(path)) return parts;
  for (const text of linesOf(path)) {
    const { sequence_number: number, line, ...part } = JSON.parse(text) as PrivateLine;
    const place = line === undefined ? events.findIndex((event) => event.sequence_number === number) : line - 1;
    if (place < 0 || place >= events.length) throw new Error(`no event for the private part ${text}`);
    parts[place] = part;
  }
  return parts;
}

/** Where two JSON values differ first. */
function difference(found: unknown, wanted: unknown, path = "$"): string | undefined {
  if (canonical(found) === canonical(wanted)) return undefined;
  if (typeof found === "object" && typeof wanted === "object" && found !== null && wanted !== null) {
    const [left, right] = [found as Record<string, unknown>, wanted as Record<string, unknown>];
    for (const name of new Set([...Object.keys(right), ...Object.keys(left)])) {
      const inside = difference(left[name], right[name], `${path}.${name}`);
      if (inside !== undefined) return inside;
    }
  }
  return `${path}: found ${JSON.stringify(found)}, wanted ${JSON.stringify(wanted)}`;
}

function resumed(state: RunState): RunState {
  return RunState.restore(JSON.parse(JSON.stringify(state.save({ private: true }))));
}

/** What is wrong with a trace. */
function check(trace: string): string[] {
  const wrong: string[] = [];
  const compare = (what: string, found: unknown, file: string) => {
    const path = join(trace, file);
    if (!existsSync(path)) return;
    const differs = difference(found ?? null, JSON.parse(readFileSync(path, "utf8")));
    if (differs !== undefined) wrong.push(`${what}: ${differs}`);
  };

  const events = linesOf(join(trace, "events.jsonl")).map((line) => JSON.parse(line) as RunEvent);
  const hidden = privateParts(join(trace, "private.jsonl"), events);
  const digests = existsSync(join(trace, "digests.txt")) ? linesOf(join(trace, "digests.txt")) : undefined;
  if (digests !== undefined && digests.length !== events.length) {
    wrong.push(`digests.txt has ${digests.length} lines for ${events.length} events`);
  }

  const state = new RunState();
  let again = new RunState(); // saved and restored after every event
  for (const [n, event] of events.entries()) {
    state.apply(event, hidden[n]);
    again.apply(event, hidden[n]);
    const found = digest(state.view());
    if (digests !== undefined && found !== digests[n]?.trim()) wrong.push(`event ${n + 1} (${event.type}): another digest`);
    again = resumed(again);
    const differs = difference(again.whole(), state.whole());
    if (differs !== undefined) wrong.push(`event ${n + 1} (${event.type}): not the same after restoring: ${differs}`);
    if (wrong.length > 5) break;
  }
  compare("view", state.view(), "view.json");
  compare("whole", state.whole(), "whole.json");
  compare("saved", state.save(), "saved.json");
  return wrong;
}

const names = readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isDirectory());
if (names.length === 0) {
  console.error(`no traces in ${folder}`);
  process.exit(2);
}
for (const { name } of names.sort((a, b) => (a.name < b.name ? -1 : 1))) {
  let wrong: string[];
  try {
    wrong = check(join(folder, name));
  } catch (error) {
    wrong = [String(error)];
  }
  console.log(wrong.length === 0 ? `ok ${name}` : `not ok ${name}`);
  for (const line of wrong) console.log(`  ${line}`);
  if (wrong.length > 0) process.exitCode = 1;
}
