// Takes conversations as `useChat` would start from them. In: a list of UIMessage[]. Out: for each
// the model messages that the AI SDK makes of it, after its own validation.
import { convertToModelMessages, validateUIMessages } from 'ai';
import { text } from 'node:stream/consumers';

const results = [];
for (const given of JSON.parse(await text(process.stdin))) {
  const messages = await validateUIMessages({ messages: given });
  results.push(await convertToModelMessages(messages));
}
console.log(JSON.stringify(results));
