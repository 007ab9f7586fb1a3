/**
 * Markdown to DOM nodes while it streams. No HTML is ever parsed: every character becomes text.
 *
 * Blocks that are closed (a blank line or a fence follows) are built once; only the last block is
 * built again when text arrives.
 */

import { copyText, el } from "./dom.js";
import { icon } from "./icons.js";
import { keepEnd } from "./layout.js";

const FENCE = /^ *(`{3,}|~{3,})\s*([\w+-]*)/; // at any depth: a fence in a list is indented

export class Markdown {
  constructor(node, cite) {
    this.node = node;
    this.cite = cite;
    this.closed = 0; // characters of the source that are in closed blocks
    this.tail = undefined; // the node of the open block
    this.source = "";
  }

  /** Forget what is shown, so that the next `update` builds all of it: its citations changed. */
  reset() {
    this.node.replaceChildren();
    this.closed = 0;
    this.tail = undefined;
    this.source = "";
  }

  /** Show this text; an append builds only what is new. */
  update(source) {
    if (source === this.source) return;
    if (!source.startsWith(this.source.slice(0, this.closed))) this.reset();
    this.source = source;
    const boundary = lastBoundary(source, this.closed);
    this.tail?.remove();
    this.tail = undefined;
    if (boundary > this.closed) {
      this.node.append(...blocks(source.slice(this.closed, boundary), this.cite));
      this.closed = boundary;
    }
    const rest = source.slice(this.closed);
    if (rest.trim() !== "") {
      this.tail = el("div", {});
      this.tail.append(...blocks(rest, this.cite));
      this.node.append(this.tail);
    }
  }
}

/** Where the last closed block ends: behind a blank line outside of a fence. */
function lastBoundary(source, from) {
  let boundary = from;
  let fence = "";
  let at = from;
  while (at < source.length) {
    const end = source.indexOf("\n", at);
    if (end < 0) break;
    const line = source.slice(at, end);
    const mark = FENCE.exec(line);
    if (mark !== null) {
      if (fence === "") fence = mark[1];
      else if (mark[1].startsWith(fence) && line.trim() === mark[1]) fence = "";
    } else if (fence === "" && line.trim() === "") boundary = end + 1;
    at = end + 1;
  }
  return boundary;
}

function blocks(source, cite) {
  const lines = source.split("\n");
  const out = [];
  let n = 0;
  while (n < lines.length) {
    const line = lines[n];
    if (line.trim() === "") {
      n += 1;
      continue;
    }
    const fence = FENCE.exec(line);
    if (fence !== null) {
      const body = [];
      const indent = new RegExp(`^ {0,${line.search(/[^ ]/)}}`);
      n += 1;
      while (n < lines.length && !lines[n].trim().startsWith(fence[1])) body.push(lines[n++].replace(indent, ""));
      n += 1;
      out.push(code(body.join("\n"), fence[2]));
      continue;
    }
    const heading = /^ {0,3}(#{1,6})\s+(.*)$/.exec(line);
    if (heading !== null) {
      out.push(el(`h${Math.min(heading[1].length + 1, 4)}`, {}, ...inline(heading[2], cite)));
      n += 1;
      continue;
    }
    if (/^ {0,3}([-*_])(\s*\1){2,}\s*$/.test(line)) {
      out.push(el("hr"));
      n += 1;
      continue;
    }
    if (/^ {0,3}>/.test(line)) {
      const body = [];
      while (n < lines.length && /^ {0,3}>/.test(lines[n])) body.push(lines[n++].replace(/^ {0,3}> ?/, ""));
      out.push(el("blockquote", {}, ...blocks(body.join("\n"), cite)));
      continue;
    }
    if (ITEM.test(line)) {
      const taken = list(lines, n, cite);
      out.push(taken.node);
      n = taken.next;
      continue;
    }
    if (line.includes("|") && n + 1 < lines.length && /^\s*\|?(\s*:?-+:?\s*\|)+\s*:?-*:?\s*$/.test(lines[n + 1])) {
      const rows = [];
      const head = cells(line);
      const sides = cells(lines[n + 1]).map((rule) => (/^:-+:$/.test(rule) ? "center" : /-:$/.test(rule) ? "right" : undefined));
      n += 2;
      while (n < lines.length && lines[n].includes("|")) rows.push(cells(lines[n++]));
      const cell = (tag) => (text, column) => el(tag, { class: sides[column] }, ...inline(text, cite));
      out.push(
        el("table", { tabindex: "0" }, el("thead", {}, el("tr", {}, ...head.map(cell("th")))),
          el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map(cell("td")))))),
      );
      continue;
    }
    const body = [];
    while (n < lines.length && lines[n].trim() !== "" && (body.length === 0 || !starts(lines[n]))) body.push(lines[n++].trimStart());
    out.push(el("p", {}, ...inline(body.join("\n").trimEnd(), cite)));
  }
  return out;
}

function code(text, language) {
  const copy = el("button", { type: "button", class: "quiet copy", title: "Copy", "aria-label": "Copy the code", onclick: () => copyText(text, copy) }, icon("copy"));
  return el("div", { class: "code" }, el("pre", {}, el("code", { "data-language": language || undefined }, text)), copy);
}

const ITEM = /^( *)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const starts = (line) => FENCE.test(line) || ITEM.test(line) || /^ {0,3}(#{1,6}\s|>)/.test(line);

function list(lines, from, cite) {
  const [, indent, mark] = ITEM.exec(lines[from]);
  const ordered = /\d/.test(mark);
  const node = el(ordered ? "ol" : "ul", ordered && parseInt(mark, 10) !== 1 ? { start: parseInt(mark, 10) } : {});
  let n = from;
  while (n < lines.length) {
    const found = ITEM.exec(lines[n]);
    if (found === null || found[1].length < indent.length) break;
    if (found[1].length <= indent.length + 1 && /\d/.test(found[2]) !== ordered) break; // another list
    if (found[1].length > indent.length + 1) {
      const inner = list(lines, n, cite);
      (node.lastElementChild ?? node).append(inner.node);
      n = inner.next;
      continue;
    }
    const body = [found[3].replace(/^\[( |x|X)\] /, (_, box) => (box === " " ? "☐ " : "☑ "))];
    n += 1;
    while (n < lines.length && lines[n].trim() !== "" && !starts(lines[n])) body.push(lines[n++].trim());
    node.append(el("li", {}, ...inline(body.join("\n"), cite)));
    while (n < lines.length && lines[n].trim() === "" && n + 1 < lines.length && ITEM.test(lines[n + 1])) n += 1;
  }
  return { node, next: Math.max(n, from + 1) };
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

const INLINE = /(`+)([\s\S]*?[^`])\1(?!`)|\[\^(\d+)\]|!?\[([^\]\n]*)\]\(\s*(\S+?)(?:\s+"[^"\n]*")?\s*\)|\*\*([^\n]+?)\*\*|__([^\n]+?)__|\*([^*\s][^*\n]*?)\*|(?<![\w])_([^_\s][^_\n]*?)_(?![\w])|~~([^\n]+?)~~|(https?:\/\/[^\s<>"')\]]*[^\s<>"')\].,;:!?])|\\([\\`*_{}[\]()#+.!|~-])|( {2,}\n)/g;

export function inline(text, cite, depth = 0) {
  if (depth > 6) return [text];
  const out = [];
  let last = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > last) out.push(text.slice(last, found.index));
    last = found.index + found[0].length;
    const [whole, , code, reference, label, target, bold, bold2, italic, italic2, gone, address, escaped, breaks] = found;
    const inner = (words) => inline(words, cite, depth + 1);
    if (code !== undefined) out.push(el("code", {}, code.trim()));
    else if (reference !== undefined) attach(out, cite?.(Number(reference)) ?? whole);
    else if (target !== undefined) out.push((whole.startsWith("!") && remoteImage(target, label)) || (link(target, label === "" ? target : label) ?? whole));
    else if (bold !== undefined || bold2 !== undefined) out.push(el("strong", {}, ...inner(bold ?? bold2)));
    else if (italic !== undefined || italic2 !== undefined) out.push(el("em", {}, ...inner(italic ?? italic2)));
    else if (gone !== undefined) out.push(el("s", {}, ...inner(gone)));
    else if (address !== undefined) out.push(link(address, address));
    else if (breaks !== undefined) out.push(el("br"));
    else out.push(escaped);
  }
  if (last < text.length) out.push(text.slice(last));
  return out;
}

/** Add a citation, on the line of the word before it: a line may break before any button. */
function attach(out, mark) {
  const before = out.at(-1);
  if (typeof mark === "string") out.push(mark);
  else if (before?.className === "cited") before.append(mark);
  else {
    const word = typeof before === "string" ? (/\S{1,12}$/.exec(before)?.[0] ?? "") : "";
    if (word !== "") out[out.length - 1] = before.slice(0, -word.length);
    out.push(el("span", { class: "cited" }, word, mark));
  }
}

const IMAGES = document.querySelector("meta[name=images]").content.split(" ");

/** An image of an origin that the setting `inspector_images` lists; undefined for any other address. */
export function remoteImage(address, label) {
  if (!URL.canParse(address) || !IMAGES.includes(new URL(address).origin)) return undefined;
  const image = el("img", { src: address, alt: label, referrerpolicy: "no-referrer" });
  image.hidden = !image.complete; // its height is known when it has loaded
  image.addEventListener("load", () => keepEnd(() => (image.hidden = false)));
  image.addEventListener("error", () => image.replaceWith(link(address, label || address)));
  return image;
}

/** A link that opens elsewhere; undefined for an address that is not a web or mail address. */
export function link(address, label) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return undefined;
  }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return undefined;
  return el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer nofollow" }, label);
}
