// Backends on the Vercel AI SDK, with models written by hand. Prints {name: the bytes of the
// response as text}: what any page's `useChat` would get from them.
import {
  createUIMessageStream,
  createUIMessageStreamResponse,
  jsonSchema,
  streamText,
  tool,
} from 'ai';
import { MockLanguageModelV4, simulateReadableStream } from 'ai/test';

const usage = {
  inputTokens: { total: 10, noCache: 6, cacheRead: 4, cacheWrite: 0 },
  outputTokens: { total: 7, text: 4, reasoning: 3 },
};
const finish = (reason) => ({
  type: 'finish',
  finishReason: { unified: reason, raw: reason },
  usage,
});
const text = (id, ...pieces) => [
  { type: 'text-start', id },
  ...pieces.map((delta) => ({ type: 'text-delta', id, delta })),
  { type: 'text-end', id },
];
const thought = (id, delta) => [
  { type: 'reasoning-start', id },
  { type: 'reasoning-delta', id, delta },
  { type: 'reasoning-end', id, providerMetadata: { anthropic: { signature: 'sealed' } } },
];
const call = (id, name, input, extra = {}) => [
  { type: 'tool-input-start', id, toolName: name, ...extra },
  { type: 'tool-input-delta', id, delta: input.slice(0, 4) },
  { type: 'tool-input-delta', id, delta: input.slice(4) },
  { type: 'tool-input-end', id },
  { type: 'tool-call', toolCallId: id, toolName: name, input, ...extra },
];

function model(...steps) {
  let count = 0;
  return new MockLanguageModelV4({
    doStream: async () => ({
      stream: simulateReadableStream({
        chunks: [{ type: 'stream-start', warnings: [] }, ...steps[count++]],
      }),
    }),
  });
}

const city = jsonSchema({
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
});
const weather = (extra) => tool({ description: 'weather', inputSchema: city, ...extra });
const answer = (steps, tools, extra = {}) =>
  streamText({
    model: model(...steps),
    prompt: 'Hi',
    tools,
    stopWhen: ({ steps: done }) => done.length >= steps.length,
    onError: () => {},
    ...extra,
  });
const respond = (result) =>
  result
    .toUIMessageStreamResponse({
      sendSources: true,
      generateMessageId: () => 'msg_1',
      messageMetadata: ({ part }) =>
        part.type === 'start'
          ? { model: 'mock-1' }
          : part.type === 'finish'
            ? { usage: part.totalUsage }
            : undefined,
    })
    .text();

const ask = [...call('call_1', 'weather', '{"city":"Paris"}'), finish('tool-calls')];
const source = { type: 'source', sourceType: 'url', id: 's1', url: 'https://a.example', title: 'A' };
const png = { type: 'file', mediaType: 'image/png', data: { type: 'data', data: 'aGk=' } };

const backends = {
  'tool-loop': () =>
    respond(
      answer(
        [
          [...thought('0', 'Where? Paris.'), ...ask],
          [...text('0', 'It is ', 'sunny.').toSpliced(2, 0, source), png, finish('stop')],
        ],
        { weather: weather({ execute: async ({ city: name }) => ({ city: name, sky: 'sunny' }) }) },
      ),
    ),
  'client-tool': () => respond(answer([ask], { weather: weather({}) })),
  approval: () =>
    respond(answer([ask], { weather: weather({ needsApproval: true, execute: async () => 'x' }) })),
  'generator-tool': () =>
    respond(
      answer([ask, [...text('0', 'Done.'), finish('stop')]], {
        weather: weather({
          async *execute() {
            yield 'looking';
            yield 'found';
          },
        }),
      }),
    ),
  'tool-throws': () =>
    respond(
      answer([ask, [...text('0', 'Sorry.'), finish('stop')]], {
        weather: weather({
          execute: async () => {
            throw new Error('no weather');
          },
        }),
      }),
    ),
  'input-is-no-json': () =>
    respond(
      answer([[...call('call_1', 'weather', '{"city":'), finish('tool-calls')]], {
        weather: weather({ execute: async () => 'x' }),
      }),
    ),
  'provider-tool': () =>
    respond(
      answer([
        [
          ...call('call_1', 'web_search', '{"q":"x"}', { providerExecuted: true, dynamic: true }),
          {
            type: 'tool-result',
            toolCallId: 'call_1',
            toolName: 'web_search',
            result: [{ url: 'https://a.example' }],
            providerExecuted: true,
            dynamic: true,
          },
          ...text('1', 'Found.'),
          finish('stop'),
        ],
      ]),
    ),
  length: () => respond(answer([[...text('0', 'Once upon'), finish('length')]])),
  error: () =>
    respond(answer([[...text('0', 'Once').slice(0, 2), { type: 'error', error: 'overloaded' }]])),
  'by-hand': () =>
    createUIMessageStreamResponse({
      stream: createUIMessageStream({
        execute: ({ writer }) => {
          writer.write({ type: 'data-status', data: 'loading', transient: true });
          writer.write({ type: 'data-weather', id: 'w', data: { sky: '?' } });
          writer.write({ type: 'text-start', id: 't' });
          writer.write({ type: 'text-delta', id: 't', delta: 'Look:' });
          writer.write({ type: 'text-end', id: 't' });
          writer.write({ type: 'data-weather', id: 'w', data: { sky: 'blue' } });
          writer.write({ type: 'data-note', data: 7 });
        },
      }),
    }).text(),
};

const results = {};
for (const [name, backend] of Object.entries(backends)) results[name] = await backend();
console.log(JSON.stringify(results));
