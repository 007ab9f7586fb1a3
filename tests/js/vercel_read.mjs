// Feeds UI message streams to the AI SDK: its transport validates every chunk, its reducer makes
// the message. In: a list of runs, each a list of responses (the bytes as text). Out: for each run
// the message after its last response, and the errors on the way.
import { DefaultChatTransport, readUIMessageStream } from 'ai';
import { text } from 'node:stream/consumers';

async function read(body, message, errors) {
  const transport = new DefaultChatTransport({
    api: 'http://localhost/api/chat',
    fetch: async () => new Response(body, { headers: { 'content-type': 'text/event-stream' } }),
  });
  const stream = await transport.reconnectToStream({ chatId: 'chat' });
  const onError = (error) => errors.push(String(error.message ?? error));
  for await (const next of readUIMessageStream({ message, stream, onError })) message = next;
  return message;
}

const results = [];
for (const responses of JSON.parse(await text(process.stdin))) {
  const errors = [];
  let message;
  for (const body of responses) message = await read(body, message, errors);
  results.push({ message, errors });
}
console.log(JSON.stringify(results));
