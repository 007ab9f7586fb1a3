/** The API key of the server. It stays in this tab. */

const NAME = "tailrace-key";

export const hasKey = () => Boolean(sessionStorage.getItem(NAME));

export const setKey = (key) => sessionStorage.setItem(NAME, key);

export function authorization() {
  return hasKey() ? { authorization: `Bearer ${sessionStorage.getItem(NAME)}` } : {};
}

/** An address that an `<img>` or a link can open: they cannot send the key of this server. */
export async function openable(url) {
  const { href, origin } = new URL(url, location.href);
  if (!hasKey() || origin !== location.origin) return href;
  const response = await fetch(href, { headers: authorization() });
  if (!response.ok) throw new Error(`The server answered ${response.status}.`);
  return URL.createObjectURL(await response.blob());
}
