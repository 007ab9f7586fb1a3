/** The HTTP API of a Tailrace server: start runs, follow them, answer them, stop them. */

import { Follower } from "./follow.ts";
import type { FollowOptions } from "./follow.ts";

export interface ClientOptions {
  readonly headers?: HeadersInit | (() => HeadersInit);
  readonly fetch?: typeof fetch;
}

export interface StartOptions {
  readonly thread_id?: string;
  /** The run that this run continues; null begins a conversation. */
  readonly previous_run_id?: string | null;
  /** A fork: the previous run counts up to this event. */
  readonly previous_seq?: number;
  readonly metadata?: { readonly [key: string]: unknown };
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

  /** Follow a run to its end, through every cut. */
  follow(runId: string, options: Omit<FollowOptions, "headers" | "fetch">): Follower {
    return new Follower(this.url(`runs/${encodeURIComponent(runId)}/events`), { ...this.#options, ...options });
  }

  url(path: string): string {
    return new URL(this.#base + path, globalThis.location?.href).href;
  }

  async request<Result>(method: string, path: string, body?: unknown): Promise<Result> {
    const given = this.#options.headers;
    const headers = new Headers(typeof given === "function" ? given() : given);
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
