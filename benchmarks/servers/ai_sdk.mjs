// The AI SDK over HTTP, as its documentation has one write a streaming endpoint on Node's own server.
//
//     GET /stream?count=N    the deltas of a model, as a UI message stream
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
function deltas(count) {
  let made = 0;
  return new ReadableStream({
    start: (stream) => stream.enqueue({ type: "text-start", id: "1" }),
    pull: async (stream) => {
      await new Promise(setImmediate);
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

const talker = (count) => new MockLanguageModelV4({ doStream: async () => ({ stream: deltas(count) }) });

const server = createServer((request, response) => {
  const { searchParams } = new URL(request.url, "http://127.0.0.1");
  const { stream } = streamText({ model: talker(Number(searchParams.get("count"))), prompt: "Talk." });
  // The SDK answers `keep-alive`, also to a client that asked for the end of the connection.
  response.once("finish", () => request.socket.end());
  pipeUIMessageStreamToResponse({ response, stream: toUIMessageStream({ stream }) });
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
