/** The HTTP API of a Tailrace server: start runs, follow them, answer them, stop them. */

import { Follower, headersOf } from "./follow.ts";
import type { FollowOptions, GivenHeaders } from "./follow.ts";

export interface ClientOptions {
  /** Headers of every request, such as `authorization`; a function is asked before each. */
  readonly headers?: GivenHeaders;
  readonly fetch?: typeof fetch;
}

export interface StartOptions {
  readonly thread_id?: string;
  /** The run that this run continues; null begins a conversation. */
  readonly previous_run_id?: string | null;
  /** A fork: the previous run counts up to this event. */
  readonly previous_seq?: number;
  /** What a client may set, such as `temperature`, as far as the agent allows it. */
  readonly options?: { readonly [key: string]: unknown };
  readonly metadata?: { readonly [key: string]: unknown };
  /** False: the run is deleted a minute after its end. */
  readonly store?: boolean;
}

export interface StartedRun {
  readonly run_id: string;
  readonly thread_id?: string;
  readonly events: string;
}

/** What `POST /runs/{id}/input` takes as the answer to a request of `task.input_required`. */
export interface Answer {
  readonly request_id: string;
  readonly approved?: boolean;
  readonly value?: unknown;
  readonly reason?: string;
}

/** An answer of the server that is an error; `message` says what to do. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
  }
}

export class Client {
  readonly #base: string;
  readonly #options: ClientOptions;

  /** `base` is where the application is mounted, such as `/` or `https://host/ai/`. */
  constructor(base: string, options: ClientOptions = {}) {
    this.#base = base.endsWith("/") ? base : `${base}/`;
    this.#options = options;
  }

  start(agent: string, input: unknown, options: StartOptions = {}): Promise<StartedRun> {
    return this.request<StartedRun>("POST", "runs", { agent, input, ...options });
  }

  cancel(runId: string): Promise<unknown> {
    return this.request("POST", `runs/${encodeURIComponent(runId)}/cancel`);
  }

  answer(runId: string, answer: Answer): Promise<unknown> {
    return this.request("POST", `runs/${encodeURIComponent(runId)}/input`, answer);
  }

  /** Follow a run to its end, through every cut. `stop()` of the follower ends only the following. */
  follow(runId: string, options: Omit<FollowOptions, "headers" | "fetch">): Follower {
    return new Follower(this.url(`runs/${encodeURIComponent(runId)}/events`), { ...this.#options, ...options });
  }

  url(path: string): string {
    return new URL(this.#base + path, globalThis.location?.href).href;
  }

  async request<Result>(method: string, path: string, body?: unknown): Promise<Result> {
    const headers = await headersOf(this.#options.headers);
    if (body !== undefined) headers.set("content-type", "application/json");
    const sent: RequestInit = { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) };
    const response = await (this.#options.fetch ?? fetch)(this.url(path), sent);
    const text = await response.text();
    let parsed: unknown;
    try {
      parsed = text === "" ? undefined : JSON.parse(text);
    } catch {
      parsed = undefined;
    }
    if (!response.ok) {
      const error = (parsed as { error?: { code?: string; message?: string } } | undefined)?.error;
      throw new ApiError(response.status, error?.code ?? "", error?.message ?? `The server answered ${response.status}.`);
    }
    return parsed as Result;
  }
}
