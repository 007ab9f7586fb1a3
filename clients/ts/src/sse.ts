/** Server-sent events: text in any pieces to whole events. WHATWG HTML, section 9.2.6. */

export interface ServerSentEvent {
  /** The last `id:` that the stream sent, also with an earlier event. */
  readonly id: string;
  readonly event: string;
  readonly data: string;
}

export class SseParser {
  #rest = "";
  #data: string[] = [];
  #event = "";
  #id = "";
  /** The reconnection time that the server asked for, in milliseconds. */
  retry: number | undefined;

  /** Take text as it arrives; the events that it completes. */
  feed(text: string): ServerSentEvent[] {
    const events: ServerSentEvent[] = [];
    let rest = this.#rest + text;
    let start = 0;
    for (let at = 0; at < rest.length; at += 1) {
      const code = rest.charCodeAt(at);
      if (code !== 10 && code !== 13) continue;
      // A trailing CR is kept back: it may be half of a CRLF.
      if (code === 13 && at === rest.length - 1) break;
      const line = rest.slice(start, at);
      if (code === 13 && rest.charCodeAt(at + 1) === 10) at += 1;
      start = at + 1;
      const event = this.#line(line);
      if (event !== undefined) events.push(event);
    }
    this.#rest = rest = rest.slice(start);
    return events;
  }

  #line(line: string): ServerSentEvent | undefined {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) return undefined; // a comment
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#event = value;
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.retry = Number(value);
    return undefined;
  }

  #dispatch(): ServerSentEvent | undefined {
    const data = this.#data;
    const event = this.#event || "message";
    this.#data = [];
    this.#event = "";
    return data.length === 0 ? undefined : { id: this.#id, event, data: data.join("\n") };
  }
}
