/** A JSON value as a table of fields, also while its text still arrives. */

import { el } from "./dom.js";
import { inline } from "./markdown.js";

const DEPTH = 4;
const FIELDS = 60;
const LONGEST = 20_000;

/** The value of a JSON text that may break off anywhere; undefined if it is not an object. */
export function readPartial(text) {
  if (!/^\s*\{/.test(text) || text.length > LONGEST) return undefined;
  const closers = [];
  let inString = false;
  let safe = 0; // up to here the text can be closed
  let safeClosers = "";
  const keep = (at) => {
    safe = at;
    safeClosers = closers.toReversed().join("");
  };
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (inString) {
      if (character === "\\") at += 1;
      else if (character === '"') {
        inString = false;
      }
    } else if (character === '"') inString = true;
    else if (character === "{" || character === "[") {
      closers.push(character === "{" ? "}" : "]");
      keep(at + 1);
    } else if (character === "}" || character === "]") {
      closers.pop();
      keep(at + 1);
      if (closers.length === 0) break;
    } else if (character === ",") keep(at);
  }
  const tries = [
    ...(closers.length === 0 ? [] : inString ? [`${text.replace(/\\(u[0-9a-fA-F]{0,3})?$/, "")}"`] : [text]).map((start) => start + closers.toReversed().join("")),
    text.slice(0, safe) + safeClosers,
  ];
  for (const each of tries) {
    try {
      return JSON.parse(each);
    } catch {
      // The next is shorter.
    }
  }
  return undefined;
}

/** The fields of an object. `cite(number)` makes the citations in its texts. */
export function fieldsOf(value, cite, title) {
  return el("div", { class: "fields" }, title === undefined ? undefined : el("p", { class: "label" }, title), node(value, cite, 0));
}

function node(value, cite, depth) {
  if (typeof value === "string") return el("span", {}, ...inline(value, cite));
  if (typeof value !== "object" || value === null) return el("span", {}, String(value));
  if (depth >= DEPTH) return el("code", {}, JSON.stringify(value));
  if (Array.isArray(value)) {
    if (value.length === 0) return el("span", { class: "muted" }, "none");
    return el("ul", {}, ...value.slice(0, FIELDS).map((each) => el("li", {}, node(each, cite, depth + 1))));
  }
  const entries = Object.entries(value).slice(0, FIELDS);
  return el("dl", {}, ...entries.flatMap(([name, each]) => [el("dt", {}, name.replaceAll("_", " ")), el("dd", {}, node(each, cite, depth + 1))]));
}
