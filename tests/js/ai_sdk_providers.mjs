// The Vercel AI SDK with three of its providers on one server. stdin: {url, talks: [{provider, model,
// turns, generate?}]}. It declares a tool `pick`. Out: for each talk its answers, the requests that it
// sent, and the calls of the tool.
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, isStepCount, jsonSchema, streamText, tool } from 'ai';
import { text } from 'node:stream/consumers';

const plan = JSON.parse(await text(process.stdin));

function models(sent) {
  const options = {
    apiKey: 'test',
    baseURL: `${plan.url}/v1`,
    fetch: (url, init) => {
      sent.push(JSON.parse(init.body));
      return fetch(url, init);
    },
  };
  const openai = createOpenAI(options);
  return {
    'openai-responses': (id) => openai.responses(id),
    'openai-chat': (id) => openai.chat(id),
    'anthropic-messages': createAnthropic(options),
  };
}

async function talk({ provider, model, turns, generate }) {
  const made = { sent: [], executed: [], answers: [] };
  const pick = tool({
    description: 'Picks.',
    inputSchema: jsonSchema({ type: 'object', properties: {} }),
    execute: async (given) => {
      made.executed.push(given);
      return 'the red one';
    },
  });
  const messages = [];
  for (const turn of turns) {
    messages.push({ role: 'user', content: turn });
    const answer = { errors: [], parts: [] };
    made.answers.push(answer);
    try {
      const options = {
        model: models(made.sent)[provider](model),
        messages,
        tools: { pick },
        stopWhen: isStepCount(3),
      };
      let result;
      if (generate) {
        result = await generateText(options);
      } else {
        const onError = ({ error }) => answer.errors.push(String(error?.message ?? error));
        result = streamText({ ...options, onError });
        for await (const part of result.fullStream) answer.parts.push(part.type);
      }
      answer.text = await result.text;
      answer.reasoning = await result.reasoningText;
      answer.finish = await result.finishReason;
      answer.usage = await result.totalUsage;
      const response = await result.response;
      answer.id = response.id;
      answer.model = response.modelId;
      messages.push(...response.messages);
    } catch (error) {
      answer.errors.push(String(error?.message ?? error));
    }
  }
  return made;
}

console.log(JSON.stringify(await Promise.all(plan.talks.map(talk))));
