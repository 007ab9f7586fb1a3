/** What the server refuses or does not answer, in words; and the question for a key. */

import { ApiError } from "./client/index.js";
import { byId, setText } from "./dom.js";
import { hasKey, setKey } from "./key.js";

const AGAIN = 2000; // milliseconds

/** Do what the reader asked for. If it fails, say why and return undefined. `refused(message)` shows what was wrong with the request. */
export async function guarded(action, refused) {
  try {
    byId("alert").hidden = true;
    return (await action()) ?? null;
  } catch (error) {
    if (refused !== undefined && error instanceof ApiError && error.status === 400) refused(error.message);
    else await explain(error);
    return undefined;
  }
}

/** Do what the page needs, again and again while the server does not answer and this is `wanted`. */
export async function patient(action, wanted = () => true) {
  for (let failed = false; wanted(); failed = true) {
    try {
      const found = (await action()) ?? null;
      if (failed) endSilence();
      return found;
    } catch (error) {
      await explain(error);
      if (error instanceof ApiError && error.status < 500) return undefined;
      byId("alert").toggleAttribute("data-silence", true);
      await new Promise((resolve) => {
        setTimeout(resolve, AGAIN);
        addEventListener("online", resolve, { once: true });
      });
    }
  }
  return undefined;
}

async function explain(error) {
  if (error instanceof ApiError && error.status === 401) await askKey();
  else if (error instanceof ApiError) alertWith(error.message);
  else alertWith(navigator.onLine ? "The server does not answer. Is it running?" : "This browser is offline.", true);
}

function alertWith(message, isSilence = false) {
  setText(byId("alert"), message);
  byId("alert").toggleAttribute("data-silence", isSilence);
  byId("alert").hidden = false;
}

/** A fetch that calls `answered()` when the server answers after a request that it did not answer. */
export function noticing(fetch, answered) {
  let isSilent = false;
  return async (url, options) => {
    try {
      const response = await fetch(url, options);
      if (isSilent) {
        isSilent = false;
        answered();
      }
      return response;
    } catch (error) {
      if (!options?.signal?.aborted) isSilent = true;
      throw error;
    }
  };
}

/** The server answers: an alert that it does not is over. */
export function endSilence() {
  if (byId("alert").hasAttribute("data-silence")) byId("alert").hidden = true;
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
