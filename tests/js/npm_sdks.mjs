// The packages openai and @anthropic-ai/sdk from npm on one server. stdin: {url}. Out, by the name of
// the API: what each made of text and reasoning, a tool of the client, a handoff, a second turn, a
// failure, of a response that is cancelled, and of a tool runner.
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { ResponsesWS } from 'openai/resources/responses/ws';
import { text } from 'node:stream/consumers';

const { url } = JSON.parse(await text(process.stdin));
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'test', maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: 'test', maxRetries: 0 });
const parameters = { type: 'object', properties: {} };
const pick = { name: 'pick', description: 'Picks.' };
const user = (content) => ({ role: 'user', content });

const errorOf = async (made) => {
  try {
    await made();
  } catch (error) {
    return { status: error.status ?? null, message: error.message };
  }
};

const responses = {
  async ask(model, input, more = {}) {
    const tools = [{ type: 'function', strict: false, parameters, ...pick }];
    const stream = openai.responses.stream({ model, input, tools, ...more });
    const models = [];
    for await (const { response } of stream) if (response) models.push(response.model);
    const { id, status, output, output_text, usage } = await stream.finalResponse();
    return { id, end: status, output, text: output_text, usage, models };
  },
  async tool() {
    const { id, output } = await this.ask('picker', 'Hat?');
    const { call_id } = output.find(({ type }) => type === 'function_call');
    const result = { type: 'function_call_output', call_id, output: 'the red one' };
    return this.ask('picker', [result], { previous_response_id: id });
  },
  async memory() {
    const { id } = await this.ask('recalls', 'one');
    return this.ask('recalls', 'two', { previous_response_id: id });
  },
  fail: (stream) => errorOf(() => openai.responses.create({ model: 'unknown', input: '?', stream })),
};

// One connection for all requests, each after the end of the request before.
const connection = new ResponsesWS(openai);
await new Promise((opened) => connection.socket.once('open', opened));
const socket = {
  ...responses,
  ask(model, input, more = {}) {
    const tools = [{ type: 'function', strict: false, parameters, ...pick }];
    connection.send({ type: 'response.create', model, input, tools, ...more });
    const models = [];
    return new Promise((resolve, reject) => {
      const done = (settle, value) => {
        connection.off('event', event);
        connection.off('error', failed);
        settle(value);
      };
      const failed = (error) => done(reject, error);
      const event = ({ type, response }) => {
        if (response) models.push(response.model);
        if (type !== 'response.completed') return;
        const { id, status, output, usage } = response;
        const text = output.findLast((item) => item.type === 'message')?.content[0].text;
        done(resolve, { id, end: status, output, text, usage, models });
      };
      connection.on('event', event);
      connection.on('error', failed);
    });
  },
  fail: () => errorOf(() => socket.ask('unknown', '?')),
};

const chat = {
  async ask(model, messages) {
    const tools = [{ type: 'function', function: { parameters, ...pick } }];
    const asked = { model, messages, tools, stream_options: { include_usage: true } };
    const stream = openai.chat.completions.stream(asked);
    const models = [];
    for await (const { model } of stream) models.push(model);
    const { id, choices, usage } = await stream.finalChatCompletion();
    const [{ finish_reason, message }] = choices;
    return { id, end: finish_reason, message, text: message.content, usage, models };
  },
  async tool() {
    const { message } = await this.ask('picker', [user('Hat?')]);
    const [{ id }] = message.tool_calls;
    const result = { role: 'tool', tool_call_id: id, content: 'the red one' };
    return this.ask('picker', [user('Hat?'), message, result]);
  },
  async memory() {
    const { message } = await this.ask('recalls', [user('one')]);
    return this.ask('recalls', [user('one'), message, user('two')]);
  },
  fail: (stream) =>
    errorOf(async () => {
      const asked = { model: 'broken', messages: [user('?')], stream };
      const answer = await openai.chat.completions.create(asked);
      for await (const _ of answer);
    }),
};

const messages = {
  async ask(model, messages) {
    const tools = [{ input_schema: parameters, ...pick }];
    const stream = anthropic.messages.stream({ model, messages, tools, max_tokens: 1000 });
    const models = [];
    for await (const event of stream) models.push((event.message ?? event.delta ?? event).model);
    const { id, stop_reason, content, usage } = await stream.finalMessage();
    const texts = content.filter(({ type }) => type === 'text').map(({ text }) => text);
    return { id, end: stop_reason, content, text: texts.join(''), usage, models };
  },
  async tool() {
    const { content } = await this.ask('picker', [user('Hat?')]);
    const { id } = content.find(({ type }) => type === 'tool_use');
    const result = [{ type: 'tool_result', tool_use_id: id, content: 'the red one' }];
    return this.ask('picker', [user('Hat?'), { role: 'assistant', content }, user(result)]);
  },
  async memory() {
    const { content } = await this.ask('recalls', [user('one')]);
    return this.ask('recalls', [user('one'), { role: 'assistant', content }, user('two')]);
  },
  fail: (stream) =>
    errorOf(async () => {
      const asked = { model: 'broken', messages: [user('?')], max_tokens: 10, stream };
      for await (const _ of await anthropic.messages.create(asked));
    }),
};

// The runner continues a thread on the server: it sends the result of its tool alone.
function run(stream) {
  const tool = { input_schema: parameters, run: () => 'the red one', parse: (input) => input, ...pick };
  const asked = { model: 'picker', messages: [user('Hat?')], tools: [tool], max_tokens: 10, stream };
  return anthropic.beta.messages.toolRunner(asked).runUntilDone();
}

async function cancelled() {
  const stream = await openai.responses.create({ model: 'endless', input: '?', stream: true });
  const seen = [];
  let id;
  for await (const event of stream) {
    seen.push(event.type);
    id ??= event.response.id;
    if (event.type === 'response.output_text.delta' && seen.at(-2) !== event.type) {
      await openai.responses.cancel(id);
    }
  }
  return { last: seen.at(-1), status: (await openai.responses.retrieve(id)).status };
}

const found = { cancelled: await cancelled(), runners: [await run(false), await run(true)] };
const apis = {
  'openai-responses': responses,
  websocket: socket,
  'openai-chat': chat,
  'anthropic-messages': messages,
};
for (const [name, api] of Object.entries(apis)) {
  const question = [responses, socket].includes(api) ? 'Paris?' : [user('Paris?')];
  found[name] = {
    answer: await api.ask('weather', question),
    tool: await api.tool(),
    handoff: await api.ask('triage', question),
    memory: await api.memory(),
    failures: [await api.fail(false), await api.fail(true)],
  };
}
connection.close();
console.log(JSON.stringify(found));
