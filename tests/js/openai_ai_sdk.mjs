// streamText of the Vercel AI SDK on its OpenAI provider; prints what it made of the stream.
// arguments: JSON {baseURL, model, responseId, frames?, declare?, tool?, generate?, retries?, chat?}
// With `models` instead of a model, they are asked one after the other, and all answers printed.
// With `turns`, it has a conversation, and prints what it sent and the answers.
// With `approvals`, it answers the approvals that it is asked for, then asks something else.
// With `frames`, it is run again and again, the body cut after each frame but the last, and gone on
// with by `starting_after`: every answer must be the same.
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, isStepCount, jsonSchema, streamText, tool } from 'ai';

const options = JSON.parse(process.argv[2]);

async function* read(response) {
  const decoder = new TextDecoder();
  let text = '';
  for await (const chunk of response.body) {
    text += decoder.decode(chunk, { stream: true });
    const frames = text.split('\n\n');
    text = frames.pop();
    for (const frame of frames) {
      if (!frame.startsWith(':')) yield frame;
    }
  }
}

async function* spliced(response, url, cut) {
  let count = 0;
  let data;
  for await (const frame of read(response)) {
    yield frame;
    data = JSON.parse(frame.split('\n')[1].slice('data: '.length));
    count += 1;
    if (count === cut) break;
  }
  const query = `stream=true&starting_after=${data.sequence_number}`;
  yield* read(await fetch(`${url}/${options.responseId}?${query}`));
}

function cutting(cut) {
  return async (url, init) => {
    const response = await fetch(url, init);
    if (!cut) return response;
    const frames = spliced(response, url, cut);
    const encoder = new TextEncoder();
    const body = new ReadableStream({
      async pull(controller) {
        const { done, value } = await frames.next();
        if (done) controller.close();
        else controller.enqueue(encoder.encode(`${value}\n\n`));
      },
    });
    return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
  };
}

async function run(cut) {
  const openai = createOpenAI({ baseURL: options.baseURL, apiKey: 'test', fetch: cutting(cut) });
  const executed = [];
  const tools = {};
  if (options.declare) tools.image_generation = openai.tools.imageGeneration();
  if (options.tool) {
    tools[options.tool] = tool({
      inputSchema: jsonSchema({ type: 'object' }),
      execute: async input => {
        executed.push(input);
        return 'blue';
      },
    });
  }
  const request = {
    model: options.chat ? openai.chat(options.model) : openai.responses(options.model),
    prompt: 'Is it sunny?',
    maxRetries: options.retries ?? 0,
    tools,
  };
  if (options.generate) {
    const result = await generateText(request);
    return {
      text: result.text,
      reasoning: result.reasoningText,
      sources: result.sources.map(({ id, ...source }) => source),
      finish: result.finishReason,
      usage: result.usage,
      types: result.content.map(part => part.type),
    };
  }
  const errors = [];
  const result = streamText({ ...request, onError: ({ error }) => errors.push(String(error)) });
  const parts = [];
  for await (const part of result.fullStream) {
    if (!['start', 'start-step', 'finish-step', 'response-metadata'].includes(part.type)) {
      const { id, ...rest } = part;
      parts.push(part.type === 'source' ? rest : part);
    }
  }
  const answer = { parts, errors, executed };
  if (errors.length === 0) {
    answer.text = await result.text;
    answer.reasoning = (await result.reasoning).map(part => part.text);
    answer.sources = (await result.sources).map(({ id, ...source }) => source);
    answer.finish = await result.finishReason;
    answer.usage = await result.totalUsage;
    answer.response = (await result.response).id;
  }
  return answer;
}

// The SDK's own way of going on: what it got back, and the next question.
async function converse() {
  const sent = [];
  const openai = createOpenAI({
    baseURL: options.baseURL,
    apiKey: 'test',
    fetch: (url, init) => {
      sent.push(JSON.parse(init.body).input);
      return fetch(url, init);
    },
  });
  const tools = {
    pick: tool({ inputSchema: jsonSchema({ type: 'object' }), execute: async () => 'blue' }),
  };
  const messages = [];
  const answers = [];
  for (const turn of options.turns) {
    messages.push({ role: 'user', content: turn });
    const model = openai.responses(options.model);
    const result = streamText({ model, messages, tools, stopWhen: isStepCount(3), maxRetries: 0 });
    answers.push(await result.text);
    messages.push(...(await result.response).messages);
  }
  return { sent, answers };
}

async function approving() {
  const openai = createOpenAI({ baseURL: options.baseURL, apiKey: 'test' });
  const model = openai.responses(options.model);
  const messages = [{ role: 'user', content: options.input ?? 'pay' }];
  const shelf = tool({ inputSchema: jsonSchema({ type: 'object' }), execute: async () => 'on the shelf' });
  const tools = options.tool ? { [options.tool]: shelf } : undefined;
  const errors = [];
  const turns = [];
  const onError = ({ error }) => errors.push(String(error));
  for (const approved of [...options.approvals, undefined, undefined]) {
    const stopWhen = isStepCount(3);
    const result = streamText({ model, messages, tools, stopWhen, maxRetries: 0, onError });
    const content = await result.content;
    const asked = content.filter(part => part.type === 'tool-approval-request');
    turns.push({
      text: await result.text,
      approvals: asked.map(part => part.toolCall.toolName),
      results: content.filter(part => part.type === 'tool-result').map(part => part.output.output),
    });
    messages.push(...(await result.response).messages);
    const answers = asked.map(({ approvalId }) => (
      { type: 'tool-approval-response', approvalId, approved, providerExecuted: true }
    ));
    if (answers.length > 0) messages.push({ role: 'tool', content: answers });
    else messages.push({ role: 'user', content: 'And?' });
  }
  return { errors, turns };
}

if (options.approvals) {
  console.log(JSON.stringify(await approving()));
} else if (options.turns) {
  console.log(JSON.stringify(await converse()));
} else if (options.frames) {
  const whole = JSON.stringify(await run(0));
  for (let cut = 1; cut < options.frames; cut += 1) {
    const got = JSON.stringify(await run(cut));
    if (got !== whole) throw new Error(`cut after frame ${cut}:\n${got}\ninstead of\n${whole}`);
  }
  console.log(whole);
} else if (options.models) {
  const answers = [];
  for (options.model of options.models) answers.push(await run(0));
  console.log(JSON.stringify(answers));
} else {
  console.log(JSON.stringify(await run(0)));
}
