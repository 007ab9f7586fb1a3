/** Small helpers for building the page. Text is always inserted as text. */

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== undefined && child !== null));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Set the text of a node only when it differs, so that nothing is painted twice. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function seconds(milliseconds) {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  return `${(milliseconds / 1000).toFixed(milliseconds < 10_000 ? 1 : 0)} s`;
}

export function dollars(cost) {
  return cost === 0 ? "$0" : `$${cost.toFixed(cost < 0.01 ? 5 : 3)}`;
}

/** Copy a text; the button says so. */
export async function copyText(text, button) {
  let copied = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers give the clipboard only to pages of https and of this machine.
    const area = document.body.appendChild(el("textarea", { "aria-hidden": "true" }));
    area.value = text;
    area.select();
    copied = document.execCommand("copy");
    area.remove();
  }
  const before = [...button.childNodes];
  button.replaceChildren(copied ? "Copied" : "Not copied");
  setTimeout(() => button.replaceChildren(...before), 1200);
}

/** How long ago, in few letters. */
export function ago(time, now = Date.now() / 1000) {
  const passed = Math.max(0, now - time);
  if (passed < 60) return "now";
  if (passed < 3600) return `${Math.floor(passed / 60)} min`;
  if (passed < 86_400) return `${Math.floor(passed / 3600)} h`;
  return `${Math.floor(passed / 86_400)} d`;
}

/** The addresses of the images of an input, in the shapes in which clients send them. */
export function inputImages(input) {
  if (Array.isArray(input)) return input.flatMap(inputImages);
  if (typeof input !== "object" || input === null) return [];
  const { image_url: image, source, mediaType = "", url } = input;
  if (image !== undefined) return [typeof image === "string" ? image : image?.url].filter((each) => typeof each === "string");
  if (input.type === "image" && source?.type === "base64") return [`data:${source.media_type};base64,${source.data}`];
  if (input.type === "image" && typeof source?.url === "string") return [source.url];
  if (input.type === "file" && String(mediaType).startsWith("image/") && typeof url === "string") return [url];
  return inputImages(input.content ?? input.parts);
}

/** What of an input an edit changes: its last message of the user, or all of it. */
export function lastQuestion(input) {
  return (Array.isArray(input) && input.findLast((each) => each?.role === "user")) || input;
}

/** The same input with other words: images and files stay. */
export function withWords(input, words) {
  if (Array.isArray(input)) {
    const question = lastQuestion(input);
    if (question !== input) return input.map((each) => (each === question ? withWords(each, words) : each));
    const isText = (part) => typeof part?.text === "string";
    const text = { type: "text", ...input.find(isText), text: words };
    return [text, ...input.filter((part) => typeof part === "object" && !isText(part))];
  }
  for (const name of ["content", "parts"]) {
    if (input?.[name] !== undefined) return { ...input, [name]: withWords(input[name], words) };
  }
  return words;
}

/** The words of an input in any of the shapes in which clients send it; `images` names its images, too. */
export function inputText(input, images = true) {
  if (input === undefined || input === null) return "";
  if (typeof input === "string") return input;
  if (Array.isArray(input)) return input.map((each) => inputText(each, images)).filter(Boolean).join("\n");
  if (typeof input === "object") {
    if (typeof input.text === "string") return input.text;
    if (input.content !== undefined) return inputText(input.content, images);
    if (input.parts !== undefined) return inputText(input.parts, images);
    if (!images && inputImages(input).length > 0) return "";
    if (input.type !== undefined && input.role === undefined) return `[${input.type}]`;
  }
  return JSON.stringify(input, null, 2);
}
