/** What a run asks a person: an approval with arguments to change, a question, or a choice. */

import { pretty } from "./blocks.js";
import { el, setText } from "./dom.js";

/** `call` is the call that needs the approval; `sendAnswer(body, refused)` gives undefined if the server refused. */
export function requestCard(taskId, request, call, sendAnswer) {
  const approval = request.kind === "approval";
  const title = request.message ?? (approval ? `Run ${call?.tool ?? "this call"}?` : "The agent asks for an answer.");
  const given = approval ? pretty(call?.text ?? "") : "";
  const rows = Math.min(12, Math.max(approval ? 3 : 2, given.split("\n").length));
  const value = el("textarea", { rows, "aria-label": approval ? "Arguments" : "Answer" });
  value.value = given;
  const wrong = el("p", { class: "wrong", role: "alert", hidden: true });
  const complain = (message) => {
    wrong.hidden = false;
    setText(wrong, message);
  };
  const send = async (body) => {
    const controls = card.querySelectorAll("button, textarea");
    for (const each of controls) each.disabled = true;
    wrong.hidden = true;
    const sent = await sendAnswer({ request_id: request.id, ...body }, complain);
    if (sent === undefined) for (const each of controls) each.disabled = false;
  };
  const read = () => {
    try {
      wrong.hidden = true;
      return { value: JSON.parse(value.value) };
    } catch (error) {
      complain(`This is not JSON: ${error.message}`);
      return undefined;
    }
  };
  const approve = () => {
    const edited = value.value === given ? {} : read();
    if (edited !== undefined) send({ approved: true, ...edited });
  };
  const takesText = request.schema === undefined || request.schema.type === "string";
  const reply = () => {
    const answer = takesText ? { value: value.value } : read();
    if (answer !== undefined) send(answer);
  };
  const choices = request.schema?.enum ?? (request.schema?.type === "boolean" ? [true, false] : undefined);
  const button = (label, action, kind) => el("button", { type: "button", class: kind, onclick: action }, label);
  const buttons = approval
    ? [button("Approve", approve, "primary"), button("Deny", () => send({ approved: false }))]
    : choices !== undefined
      ? choices.map((choice) => button(String(choice), () => send({ value: choice })))
      : [button("Answer", reply, "primary")];
  value.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || !(event.metaKey || event.ctrlKey || (!approval && takesText && !event.shiftKey))) return;
    event.preventDefault();
    if (approval) approve();
    else reply();
  });
  const card = el(
    "section",
    { class: "card", "data-kind": approval ? "approval" : "question", "data-request": request.id, "data-task": taskId, "aria-label": title },
    el("h2", {}, title),
    approval ? el("p", {}, "The agent waits for you. You can change the arguments before you approve.") : undefined,
    choices === undefined ? value : undefined,
    wrong,
    el("div", { class: "row" }, ...buttons),
  );
  return card;
}
