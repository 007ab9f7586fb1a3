/** The page around the panes' contents: which pane a phone shows, the scroll, the theme. */

import { byId } from "./dom.js";
import { icon } from "./icons.js";

const box = byId("scroll");
let follows = true; // whether the reader is at the end
let height = box.clientHeight; // for which `follows` was seen

/** On a phone, show this pane; elsewhere all three are there. */
export function showPane(name) {
  document.querySelector(".panes").dataset.shown = name;
  for (const button of document.querySelectorAll(".tabs button")) {
    if (button.dataset.pane === name) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
}

/** Open what a node is folded in, bring it into sight and flash it once. */
export function reveal(node) {
  showPane("chat");
  for (let each = node; each !== null; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
  node.scrollIntoView({ block: "center" });
  const flashed = node.tagName === "DETAILS" ? node.querySelector("summary") : node;
  flashed.classList.remove("flash");
  void flashed.offsetWidth;
  flashed.classList.add("flash");
}

/** Whether the reader is at the end; while a phone shows another pane, whether that was so before. */
export const isAtEnd = () => (box.clientHeight === 0 ? follows : box.scrollHeight - box.scrollTop - box.clientHeight < 80);

export function scrollToEnd(soon = false) {
  box.scrollTop = box.scrollHeight;
  follows = true;
  byId("to-end").hidden = true;
  if (soon) setTimeout(() => (box.scrollTop = box.scrollHeight), 150);
}

/** Change the height of the conversation; a reader at the end stays there. */
export function keepEnd(change) {
  const atEnd = isAtEnd();
  change();
  if (atEnd) scrollToEnd();
}

function scrolled() {
  if (box.clientHeight !== height) return; // the box has just shrunk or grown: `resized` comes next
  follows = isAtEnd();
  if (follows) byId("to-end").hidden = true;
}

function resized() {
  height = box.clientHeight;
  if (follows) scrollToEnd();
}

const darkScheme = matchMedia("(prefers-color-scheme: dark)");

export const isDark = () => (document.documentElement.dataset.theme ?? (darkScheme.matches ? "dark" : "light")) === "dark";

function showTheme() {
  byId("theme").replaceChildren(icon(isDark() ? "sun" : "moon"));
}

export function switchTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  localStorage.setItem("tailrace-theme", document.documentElement.dataset.theme);
  showTheme();
}

/** Make the controls of the page work: the theme, a phone's tabs, the way to the end. */
export function listenToLayout() {
  const theme = localStorage.getItem("tailrace-theme");
  if (theme) document.documentElement.dataset.theme = theme;
  showTheme();
  darkScheme.addEventListener("change", showTheme);
  byId("theme").addEventListener("click", switchTheme);
  byId("to-end").addEventListener("click", () => scrollToEnd());
  box.addEventListener("scroll", scrolled, { passive: true });
  // Another pane, a phone's keyboard or its rotation must not lose the end.
  new ResizeObserver(resized).observe(box);
  for (const button of document.querySelectorAll(".tabs button")) button.addEventListener("click", () => showPane(button.dataset.pane));
}
