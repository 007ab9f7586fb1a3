/** The blocks of results and messages that are not Markdown: text, images, files, data. */

import { el, setText } from "./dom.js";
import { hasKey, openable } from "./key.js";
import { keepEnd } from "./layout.js";
import { link, remoteImage } from "./markdown.js";

const IMAGE = /^data:image\/(png|jpeg|gif|webp|svg\+xml)[;,]/;

/** A block in `node`. `update` shows it as it is now. */
export function blockPart(node, block, alt = "Image from a tool") {
  const body = el(block.type === "image" || block.type === "file" ? "div" : "pre");
  node.append(body);
  let image;
  return {
    node,
    update(now) {
      if (now.type === "text") setText(body, compact(now.text));
      else if (now.type === "refusal") setText(body, now.refusal);
      else if (now.type === "data") setText(body, `${now.name ?? "data"}\n${JSON.stringify(now.data, null, 2)}`);
      else if (now.type === "file") body.replaceChildren(fileLink(now) ?? now.name ?? now.url);
      else if (now.type === "image") {
        const url = now.image_url?.url ?? "";
        if (IMAGE.test(url) || isBlob(url)) {
          image ??= emptyImage(body, alt);
          if (image.dataset.url !== url) {
            image.dataset.url = url;
            if (url.startsWith("data:")) image.src = url;
            else openable(url).then((address) => (image.src = address), () => {
              image.alt = "The image could not be loaded";
              body.append(image);
            });
          }
        } else if (url !== "" && body.dataset.url !== url) {
          body.dataset.url = url;
          const remote = remoteImage(url, alt);
          if (remote !== undefined) body.replaceChildren(remote);
          else body.replaceChildren("Image: ", link(url, url) ?? "not shown");
        }
      } else setText(body, JSON.stringify(now, null, 2));
    },
  };
}

/** An image that is put into `body` when it has loaded: its height is known then. */
function emptyImage(body, alt) {
  const image = el("img", { alt });
  for (const end of ["load", "error"]) image.addEventListener(end, () => keepEnd(() => body.append(image)), { once: true });
  return image;
}

/** A link to a file; undefined for an address that a page must not open. */
function fileLink({ url, name }) {
  let node;
  try {
    node = link(new URL(url, location.href).href, name ?? url);
  } catch {
    return undefined;
  }
  if (node !== undefined && hasKey() && isBlob(url)) {
    node.addEventListener("click", (event) => {
      event.preventDefault();
      // Saved and not opened: a page among these files would be a page of this server.
      openable(url).then((address) => el("a", { href: address, download: name ?? "file" }).click(), () => undefined);
    });
  }
  return node;
}

/** Whether an address is a blob of this server. Others are not asked for, nor do they get the key: a run may name any. */
function isBlob(url) {
  try {
    const { href } = new URL(url, location.href);
    const blobs = new URL("blobs/", location.href).href;
    return href.startsWith(blobs) && /^[0-9a-f]{64}$/.test(href.slice(blobs.length));
  } catch {
    return false;
  }
}

/** JSON on one line if it is short, else on many. */
export function compact(text) {
  const many = pretty(text);
  return many === text || many.length > 72 ? many : many.replace(/\n */g, " ");
}

export function pretty(text) {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
