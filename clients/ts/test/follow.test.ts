/** The follower on a real HTTP server whose answers the test writes. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { Client } from "../src/index.ts";
import type { ClientOptions, FollowOptions, FollowStatus } from "../src/index.ts";

type Answer = (response: ServerResponse, request: IncomingMessage) => void;

/** Follow a run while the server gives these answers, one for each request; the last is repeated. */
async function followed(
  answers: readonly Answer[],
  options: ClientOptions = {},
  follow: Partial<FollowOptions> = {},
): Promise<{ requests: IncomingMessage[]; numbers: number[]; statuses: FollowStatus[] }> {
  const requests: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    requests.push(request);
    answers[Math.min(requests.length, answers.length) - 1]!(response, request);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const numbers: number[] = [];
  const statuses: FollowStatus[] = [];
  await new Promise<void>((resolve) => {
    const follower = new Client(`http://127.0.0.1:${port}/ai`, options).follow("run_1", {
      onFrame: (frame) => numbers.push((frame as { sequence_number: number }).sequence_number),
      longestWait: 20,
      ...follow,
      onStatus: (status) => {
        statuses.push(status);
        if (status.kind === "ended" || status.kind === "failed") resolve();
        if (requests.length === 8) {
          follower.stop();
          resolve();
        }
      },
    });
  });
  server.closeAllConnections();
  server.close();
  return { requests, numbers, statuses };
}

const frame = (number: number): string => `id: c${number}\ndata: {"type":"task.usage","sequence_number":${number}}\n\n`;

const stream =
  (text: string, end: (response: ServerResponse) => void = (response) => response.end()): Answer =>
  (response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(text, () => end(response));
  };

const over: Answer = (response) => response.writeHead(204).end();

test("a follower resumes after each cut with its cursor, and with headers that are asked for each time", async () => {
  let key = 0;
  const cut = (response: ServerResponse): void => void response.destroy();
  const { requests, numbers, statuses } = await followed(
    [stream(frame(1) + "data: {", cut), (response) => response.writeHead(503).end(), stream(frame(2)), over],
    { headers: async () => ({ authorization: `Bearer ${++key}` }) },
    { snapshot: true },
  );
  assert.deepEqual(numbers, [1, 2]);
  assert.deepEqual(requests.map((request) => request.headers.authorization), ["Bearer 1", "Bearer 2", "Bearer 3", "Bearer 4"]);
  assert.deepEqual(requests.map((request) => request.headers["last-event-id"]), [undefined, "c1", "c1", "c2"]);
  assert.deepEqual(requests.map((request) => request.url), ["?snapshot=true", "", "", ""].map((end) => `/ai/runs/run_1/events${end}`));
  assert.equal(statuses.at(-1)?.kind, "ended");
});

test("a run that ends is not reported as a broken connection", async () => {
  const { requests, statuses } = await followed([stream(frame(1)), over]);
  assert.equal(requests.length, 2);
  assert.deepEqual(statuses.map((status) => status.kind), ["connecting", "live", "ended"]);
});

test("a stream that ends without an event is asked for again after a wait, not at once", async () => {
  const { statuses } = await followed([stream(frame(1)), stream("")], {}, { longestWait: 5 });
  const waits = statuses.filter((status) => status.kind === "waiting").map((status) => status.delay);
  assert.ok(waits.length > 2 && waits.every((delay) => delay === 5), String(waits));
});

test("a refusal ends the follower with the server's words", async () => {
  const body = '{"error":{"code":"unauthorized","message":"The API key is missing."}}';
  const { statuses, requests } = await followed([(response) => response.writeHead(401).end(body)]);
  assert.equal(requests.length, 1);
  assert.deepEqual(statuses.at(-1), { kind: "failed", status: 401, code: "unauthorized", message: "The API key is missing." });
});

test("an error of onFrame ends the follower instead of being repeated for ever", async () => {
  const broken = (): void => {
    throw new Error("The page has no such element.");
  };
  const { statuses, requests } = await followed([stream(frame(1))], {}, { onFrame: broken });
  assert.equal(requests.length, 1);
  assert.deepEqual(statuses.at(-1), { kind: "failed", status: 0, code: "on_frame", message: "The page has no such element." });
});
