/** The first page: what the server can do. */

import { byId, el } from "./dom.js";

/** `talkTo(name)` chooses an agent. */
export function showWelcome(agents, talkTo) {
  const choices = agents.map((each) =>
    el("li", {}, el("button", { type: "button", onclick: () => talkTo(each.name) }, el("b", {}, each.name), about(each) && el("small", {}, about(each)))));
  byId("welcome").replaceChildren(
    el("h2", {}, agents.length === 0 ? "This server has no agents yet." : "Ask an agent."),
    el("p", {}, agents.length === 0
      ? "Pass them to Tailrace([...]) and start the server again."
      : "Every event is stored before you see it. Cut the connection, reload, or open a second tab: the stream goes on where it was."),
    el("ul", { class: "agents" }, ...choices));
}

function about({ description, tools, model }) {
  const names = tools.map((each) => each.name);
  const words = [description, names.length > 0 ? `Tools: ${names.slice(0, 6).join(", ")}${names.length > 6 ? " …" : ""}` : "", model && model !== "scripted" ? `Model: ${model}` : ""];
  return words.filter(Boolean).join(" · ");
}
