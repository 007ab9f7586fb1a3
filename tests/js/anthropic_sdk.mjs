// The @anthropic-ai/sdk package from npm: its stream helper reads answers to their last message.
// arguments: JSON {baseURL, model}; standard input: nothing, or a JSON list of streams that are
// answered without asking people.
import { readFileSync } from 'node:fs';
import Anthropic from '@anthropic-ai/sdk';

const { baseURL, model } = JSON.parse(process.argv[2]);
const input = readFileSync(0, 'utf8');
const streams = input ? JSON.parse(input) : [null];
const request = { model, max_tokens: 1000, messages: [{ role: 'user', content: 'Hello?' }] };

const answers = [];
for (const stream of streams) {
  const headers = { 'content-type': 'text/event-stream' };
  const fetch = stream === null ? undefined : async () => new Response(stream, { headers });
  const client = new Anthropic({ baseURL, apiKey: 'test', maxRetries: 0, fetch });
  const helper = client.messages.stream(request);
  const seen = [];
  try {
    for await (const event of helper) seen.push(event.type);
    answers.push({ seen, final: await helper.finalMessage() });
  } catch (error) {
    answers.push({ seen, error: error.message });
  }
}
console.log(JSON.stringify(answers));
