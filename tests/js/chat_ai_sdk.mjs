// streamText of the Vercel AI SDK on its OpenAI provider's chat completions; prints what it made of
// each stream. stdin: JSON list of {body, tool?}: the bytes of an answer, a tool that it may carry out.
import { createOpenAI } from '@ai-sdk/openai';
import { jsonSchema, streamText, tool } from 'ai';

async function input() {
  let text = '';
  for await (const chunk of process.stdin) text += chunk;
  return JSON.parse(text);
}

async function read({ body, tool: name }) {
  const headers = { 'content-type': 'text/event-stream' };
  const openai = createOpenAI({ apiKey: 'test', fetch: async () => new Response(body, { headers }) });
  const executed = [];
  const errors = [];
  const tools = {};
  if (name) {
    tools[name] = tool({
      inputSchema: jsonSchema({ type: 'object' }),
      execute: async (given) => {
        executed.push(given);
        return 'done';
      },
    });
  }
  const result = streamText({
    model: openai.chat('m'),
    prompt: '?',
    tools,
    maxRetries: 0,
    onError: ({ error }) => errors.push(String(error?.message ?? error)),
  });
  const found = { text: '', sources: [], executed, errors, finish: null };
  for await (const part of result.fullStream) {
    if (part.type === 'text-delta') found.text += part.text;
    if (part.type === 'source') found.sources.push(part.url);
    if (part.type === 'finish') found.finish = part.finishReason;
  }
  return found;
}

const found = [];
for (const one of await input()) found.push(await read(one));
console.log(JSON.stringify(found));
