import { Follower, headersOf } from "./follow.js";
export class ApiError extends Error {
    status;
    code;
    constructor(status, code, message) {
        super(message);
        this.name = "ApiError";
        this.status = status;
        this.code = code;
    }
}
export class Client {
    #base;
    #options;
    constructor(base, options = {}) {
        this.#base = base.endsWith("/") ? base : `${base}/`;
        this.#options = options;
    }
    start(agent, input, options = {}) {
        return this.request("POST", "runs", { agent, input, ...options });
    }
    cancel(runId) {
        return this.request("POST", `runs/${encodeURIComponent(runId)}/cancel`);
    }
    answer(runId, answer) {
        return this.request("POST", `runs/${encodeURIComponent(runId)}/input`, answer);
    }
    follow(runId, options) {
        return new Follower(this.url(`runs/${encodeURIComponent(runId)}/events`), { ...this.#options, ...options });
    }
    url(path) {
        return new URL(this.#base + path, globalThis.location?.href).href;
    }
    async request(method, path, body) {
        const headers = await headersOf(this.#options.headers);
        if (body !== undefined)
            headers.set("content-type", "application/json");
        const sent = { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) };
        const response = await (this.#options.fetch ?? fetch)(this.url(path), sent);
        const text = await response.text();
        let parsed;
        try {
            parsed = text === "" ? undefined : JSON.parse(text);
        }
        catch {
            parsed = undefined;
        }
        if (!response.ok) {
            const error = parsed?.error;
            throw new ApiError(response.status, error?.code ?? "", error?.message ?? `The server answered ${response.status}.`);
        }
        return parsed;
    }
}
