// The AI SDK over HTTP, as its documentation has one write a streaming endpoint on Node's own server.
//
//     GET /stream?count=N&rate=R    the deltas of a model, as a UI message stream
//
// It prints its address, then serves until it is killed. The packages are those of tests/js, which is why
// they are looked up from there.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(new URL("../../tests/js/package.json", import.meta.url));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { pipeUIMessageStreamToResponse, streamText, toUIMessageStream } = await load("ai");
const { MockLanguageModelV4 } = await load("ai/test");

const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: 1, text: 1, reasoning: undefined },
};

// Yields to the loop after each delta as a network does; each is the time at which it was made.
// `rate` is events a second; 0 is as fast as the loop turns.
function deltas(count, rate) {
  const start = performance.now();
  let made = 0;
  const turn = () => {
    const left = rate ? start + (made * 1000) / rate - performance.now() : 0;
    return new Promise((resolve) => (left > 0 ? setTimeout(resolve, left) : setImmediate(resolve)));
  };
  return new ReadableStream({
    start: (stream) => stream.enqueue({ type: "text-start", id: "1" }),
    pull: async (stream) => {
      await turn();
      if (made < count) {
        made += 1;
        stream.enqueue({ type: "text-delta", id: "1", delta: String(process.hrtime.bigint()) });
        return;
      }
      stream.enqueue({ type: "text-end", id: "1" });
      stream.enqueue({ type: "finish", finishReason: { unified: "stop", raw: undefined }, usage });
      stream.close();
    },
  });
}

const talker = (count, rate) =>
  new MockLanguageModelV4({ doStream: async () => ({ stream: deltas(count, rate) }) });

const server = createServer((request, response) => {
  const { searchParams } = new URL(request.url, "http://127.0.0.1");
  const [count, rate] = ["count", "rate"].map((name) => Number(searchParams.get(name)));
  const { stream } = streamText({ model: talker(count, rate), prompt: "Talk." });
  // The SDK answers `keep-alive`, also to a client that asked for the end of the connection.
  response.once("finish", () => request.socket.end());
  pipeUIMessageStreamToResponse({ response, stream: toUIMessageStream({ stream }) });
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
