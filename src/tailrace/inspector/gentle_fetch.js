/** A fetch whose streams leave the page time to draw. */

const BUSY = 8; // milliseconds, half of a frame
const PIECE = 16 * 1024; // bytes, about a hundred events

const nextTask = () =>
  new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel(); // timers are slow in a hidden tab
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(undefined);
  });

export async function gentleFetch(url, options) {
  const response = await fetch(url, options);
  if (response.body === null || !response.headers.get("content-type")?.startsWith("text/event-stream")) return response;
  const reader = response.body.getReader();
  let begun = performance.now();
  let rest = new Uint8Array();
  const pieces = new ReadableStream(
    {
      async pull(out) {
        if (rest.length === 0) {
          const { done, value } = await reader.read();
          if (done) return out.close();
          rest = value;
        }
        // What has arrived is read without a pause, and the page would stand still meanwhile.
        if (performance.now() - begun > BUSY) {
          await nextTask();
          begun = performance.now();
        }
        out.enqueue(rest.subarray(0, PIECE));
        rest = rest.subarray(PIECE);
      },
      cancel: (reason) => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  );
  return new Response(pieces, response);
}
