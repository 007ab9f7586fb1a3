/** Follows a run or a thread over fetch: resumes after every cut, until the run ends. */

import type { Frame } from "./reducer.ts";
import { SseParser } from "./sse.ts";

export type FollowStatus =
  | { readonly kind: "connecting" }
  | { readonly kind: "live" }
  /** The connection broke; the next try comes in `delay` milliseconds. */
  | { readonly kind: "waiting"; readonly delay: number; readonly tries: number; readonly reason: string }
  | { readonly kind: "cut" }
  | { readonly kind: "ended" }
  /** The server refused, or `onFrame` threw (status 0): trying again would not help. */
  | { readonly kind: "failed"; readonly status: number; readonly code: string; readonly message: string };

export type GivenHeaders = HeadersInit | (() => HeadersInit | Promise<HeadersInit>);

export interface FollowOptions {
  readonly onFrame: (frame: Frame, cursor: string) => void;
  readonly onStatus?: (status: FollowStatus) => void;
  /** Headers of every request, such as `authorization`; a function is asked before each. */
  readonly headers?: GivenHeaders;
  /** Begin with the state so far instead of all events. */
  readonly snapshot?: boolean;
  /** Go on after this cursor. */
  readonly after?: string;
  readonly fetch?: typeof fetch;
  /** The longest wait between two tries, in milliseconds. */
  readonly longestWait?: number;
}

const REFUSED = new Set([400, 401, 403, 404, 405, 410, 421]);
const DEFAULT_RETRY = 1000;
/** The server sends a comment every 15 s: a stream that is silent for three of them is dead. */
const SILENCE = 45_000;

interface Broken {
  readonly kind: "broken";
  readonly reason: string;
  /** The server closed the stream: the run has ended, or the server stops. */
  readonly ended?: boolean;
  /** Milliseconds until the server wants to be asked again. */
  readonly after?: number;
}

/** The headers of the next request. */
export async function headersOf(given: GivenHeaders | undefined): Promise<Headers> {
  return new Headers(typeof given === "function" ? await given() : given);
}

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** One stream that survives its connections. */
export class Follower {
  readonly #url: string;
  readonly #options: FollowOptions;
  #cursor: string;
  #open: AbortController | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #wake: (() => void) | undefined;
  #stopped = false;
  #cut = false;
  #ended = false;
  #resumed = false;
  #retry = DEFAULT_RETRY;

  constructor(url: string, options: FollowOptions) {
    this.#url = url;
    this.#options = options;
    this.#cursor = options.after ?? "";
    void this.#run();
  }

  /** The cursor of the last frame; the stream resumes after it. */
  get cursor(): string {
    return this.#cursor;
  }

  /** Drop the connection and stay away until `resume`. */
  cut(): void {
    if (this.#stopped || this.#ended) return;
    this.#cut = true;
    this.#drop();
    this.#tell({ kind: "cut" });
  }

  /** Connect again now: after `cut`, or instead of waiting. */
  resume(): void {
    if (this.#stopped || this.#ended) return;
    this.#cut = false;
    this.#resumed = true;
    this.#wakeUp();
  }

  /** Stop for good. */
  stop(): void {
    this.#stopped = true;
    this.#drop();
    this.#wakeUp();
  }

  #tell(status: FollowStatus): void {
    this.#options.onStatus?.(status);
  }

  #drop(): void {
    this.#open?.abort();
  }

  #wakeUp(): void {
    clearTimeout(this.#timer);
    this.#wake?.();
  }

  async #run(): Promise<void> {
    let tries = 0;
    let asks = false; // whether the run has ended: a connection that did not break is not reported
    while (!this.#stopped) {
      if (this.#cut) {
        await this.#sleep(undefined);
        continue;
      }
      if (!asks) this.#tell({ kind: "connecting" });
      asks = false;
      this.#resumed = false;
      const before = this.#cursor;
      const outcome = await this.#connect();
      if (this.#stopped || this.#cut || this.#resumed) continue;
      if (outcome.kind === "ended" || outcome.kind === "failed") {
        this.#ended = true;
        this.#tell(outcome);
        return;
      }
      tries = this.#cursor === before ? tries + 1 : 0;
      if (outcome.ended && tries === 0) {
        asks = true;
        continue;
      }
      const longest = this.#options.longestWait ?? 30_000;
      const delay = Math.min(outcome.after ?? this.#retry * 2 ** Math.min(tries, 10) * (0.5 + Math.random() / 2), longest);
      this.#tell({ kind: "waiting", delay, tries, reason: outcome.reason });
      await this.#sleep(delay);
    }
  }

  #sleep(milliseconds: number | undefined): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
      if (milliseconds !== undefined) this.#timer = setTimeout(resolve, milliseconds);
    });
  }

  async #connect(): Promise<(FollowStatus & { kind: "ended" | "failed" }) | Broken> {
    const open = new AbortController();
    this.#open = open;
    let silence: ReturnType<typeof setTimeout> | undefined;
    const heard = (): void => {
      clearTimeout(silence);
      silence = setTimeout(() => open.abort(), SILENCE);
    };
    try {
      heard();
      const response = await this.#request(open.signal);
      if (response.status === 204) return { kind: "ended" };
      if (!response.ok || response.body === null) return await this.#refusal(response);
      this.#tell({ kind: "live" });
      const parser = new SseParser();
      const text = response.body.pipeThrough(new TextDecoderStream() as unknown as ReadableWritablePair<string, Uint8Array>).getReader();
      for (;;) {
        const { done, value } = await text.read();
        if (done) break;
        heard();
        for (const event of parser.feed(value)) {
          if (open.signal.aborted) break;
          const frame = JSON.parse(event.data) as Frame;
          try {
            this.#options.onFrame(frame, event.id);
          } catch (error) {
            globalThis.reportError?.(error);
            return { kind: "failed", status: 0, code: "on_frame", message: reasonOf(error) };
          }
          if (event.id !== "") this.#cursor = event.id;
        }
        if (parser.retry !== undefined) this.#retry = parser.retry;
      }
      // The stream ends with its run, or with the server. The next request says which: 204 is the end.
      return { kind: "broken", reason: "The stream ended.", ended: true };
    } catch (error) {
      return { kind: "broken", reason: reasonOf(error) };
    } finally {
      clearTimeout(silence);
      if (this.#open === open) this.#open = undefined;
      open.abort();
    }
  }

  async #request(signal: AbortSignal): Promise<Response> {
    const url = new URL(this.#url, globalThis.location?.href);
    if (this.#cursor === "" && this.#options.snapshot) url.searchParams.set("snapshot", "true");
    const headers = await headersOf(this.#options.headers);
    headers.set("accept", "text/event-stream");
    if (this.#cursor !== "") headers.set("last-event-id", this.#cursor);
    return (this.#options.fetch ?? fetch)(url, { headers, signal, cache: "no-store" });
  }

  async #refusal(response: Response): Promise<(FollowStatus & { kind: "failed" }) | Broken> {
    const body = (await response.json().catch(() => ({}))) as { error?: { code?: string; message?: string } };
    const message = body.error?.message ?? `The server answered ${response.status}.`;
    if (REFUSED.has(response.status)) {
      return { kind: "failed", status: response.status, code: body.error?.code ?? "", message };
    }
    const after = Number(response.headers.get("retry-after"));
    return { kind: "broken", reason: message, ...(after > 0 ? { after: after * 1000 } : {}) };
  }
}
