/** What the server refuses, in words; and the question for a key. */

import { ApiError } from "./client/index.js";
import { byId, setText } from "./dom.js";
import { hasKey, setKey } from "./key.js";

/** Do what the reader asked for. If it fails, say why and return undefined. */
export async function guarded(action) {
  try {
    byId("alert").hidden = true;
    return (await action()) ?? null;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) await askKey();
    else alertWith(error instanceof ApiError ? error.message : "The server does not answer. Is it running?");
    return undefined;
  }
}

function alertWith(message) {
  byId("alert").textContent = message;
  byId("alert").hidden = false;
}

async function askKey() {
  const dialog = byId("key-dialog");
  if (dialog.open) return;
  if (hasKey()) setText(byId("key-words"), "The server refused this key. Enter another key.");
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  if (dialog.returnValue !== "ok" || byId("key").value === "") {
    alertWith("Without a key this server shows nothing. Reload the page to enter a key.");
    return;
  }
  setKey(byId("key").value);
  location.reload();
}
