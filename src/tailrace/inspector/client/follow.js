import { SseParser } from "./sse.js";
const REFUSED = new Set([400, 401, 403, 404, 405, 410, 421]);
const DEFAULT_RETRY = 1000;
const SILENCE = 45_000;
export async function headersOf(given) {
    return new Headers(typeof given === "function" ? await given() : given);
}
const reasonOf = (error) => (error instanceof Error ? error.message : String(error));
export class Follower {
    #url;
    #options;
    #cursor;
    #open;
    #timer;
    #wake;
    #stopped = false;
    #cut = false;
    #ended = false;
    #resumed = false;
    #retry = DEFAULT_RETRY;
    constructor(url, options) {
        this.#url = url;
        this.#options = options;
        this.#cursor = options.after ?? "";
        void this.#run();
    }
    get cursor() {
        return this.#cursor;
    }
    cut() {
        if (this.#stopped || this.#ended)
            return;
        this.#cut = true;
        this.#drop();
        this.#tell({ kind: "cut" });
    }
    resume() {
        if (this.#stopped || this.#ended)
            return;
        this.#cut = false;
        this.#resumed = true;
        this.#wakeUp();
    }
    stop() {
        this.#stopped = true;
        this.#drop();
        this.#wakeUp();
    }
    #tell(status) {
        this.#options.onStatus?.(status);
    }
    #drop() {
        this.#open?.abort();
    }
    #wakeUp() {
        clearTimeout(this.#timer);
        this.#wake?.();
    }
    async #run() {
        let tries = 0;
        let asks = false;
        while (!this.#stopped) {
            if (this.#cut) {
                await this.#sleep(undefined);
                continue;
            }
            if (!asks)
                this.#tell({ kind: "connecting" });
            asks = false;
            this.#resumed = false;
            const before = this.#cursor;
            const outcome = await this.#connect();
            if (this.#stopped || this.#cut || this.#resumed)
                continue;
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
    #sleep(milliseconds) {
        return new Promise((resolve) => {
            this.#wake = resolve;
            if (milliseconds !== undefined)
                this.#timer = setTimeout(resolve, milliseconds);
        });
    }
    async #connect() {
        const open = new AbortController();
        this.#open = open;
        let silence;
        const heard = () => {
            clearTimeout(silence);
            silence = setTimeout(() => open.abort(), SILENCE);
        };
        try {
            heard();
            const response = await this.#request(open.signal);
            if (response.status === 204)
                return { kind: "ended" };
            if (!response.ok || response.body === null)
                return await this.#refusal(response);
            this.#tell({ kind: "live" });
            const parser = new SseParser();
            const text = response.body.pipeThrough(new TextDecoderStream()).getReader();
            for (;;) {
                const { done, value } = await text.read();
                if (done)
                    break;
                heard();
                for (const event of parser.feed(value)) {
                    if (open.signal.aborted)
                        break;
                    const frame = JSON.parse(event.data);
                    try {
                        this.#options.onFrame(frame, event.id);
                    }
                    catch (error) {
                        globalThis.reportError?.(error);
                        return { kind: "failed", status: 0, code: "on_frame", message: reasonOf(error) };
                    }
                    if (event.id !== "")
                        this.#cursor = event.id;
                }
                if (parser.retry !== undefined)
                    this.#retry = parser.retry;
            }
            return { kind: "broken", reason: "The stream ended.", ended: true };
        }
        catch (error) {
            return { kind: "broken", reason: reasonOf(error) };
        }
        finally {
            clearTimeout(silence);
            if (this.#open === open)
                this.#open = undefined;
            open.abort();
        }
    }
    async #request(signal) {
        const url = new URL(this.#url, globalThis.location?.href);
        if (this.#cursor === "" && this.#options.snapshot)
            url.searchParams.set("snapshot", "true");
        const headers = await headersOf(this.#options.headers);
        headers.set("accept", "text/event-stream");
        if (this.#cursor !== "")
            headers.set("last-event-id", this.#cursor);
        return (this.#options.fetch ?? fetch)(url, { headers, signal, cache: "no-store" });
    }
    async #refusal(response) {
        const body = (await response.json().catch(() => ({})));
        const message = body.error?.message ?? `The server answered ${response.status}.`;
        if (REFUSED.has(response.status)) {
            return { kind: "failed", status: response.status, code: body.error?.code ?? "", message };
        }
        const after = Number(response.headers.get("retry-after"));
        return { kind: "broken", reason: message, ...(after > 0 ? { after: after * 1000 } : {}) };
    }
}
