// Drives the AI SDK's `Chat`, which is what `useChat` drives, over HTTP. The plan on stdin:
// {api, body?, parallel?, chats: [{id, cut?, clean?, approve?, manual?, last?, steps?}]}. A chat with `cut`
// loses its connection after so many frames (with `clean`, without any error) and resumes; one with
// `approve` answers the approvals that it is asked for; one with `last` sends its last message
// alone; one with `manual` sends no answers by itself. `steps` follow the first message: {send: text},
// {approve: boolean, send: text}, {regenerate: index},
// {edit: index, send: text}, {remove: [index], send: text}, and {change: index, to: text, send: text}
// for a message of the assistant. Out: how each chat ended.
import { Chat } from '@ai-sdk/react';
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses as approvalsAreAnswered,
  lastAssistantMessageIsCompleteWithToolCalls as callsAreAnswered,
} from 'ai';
import { text } from 'node:stream/consumers';

const END = '\n\n';

// The first frames of a body, and then its end, or the error that a torn connection gives. Frames
// that wait in a queue are lost to an error, so it lets the client catch up first.
function cutAfter(body, frames, clean) {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let left = frames;
  let rest = '';
  return new ReadableStream(
    {
      async pull(controller) {
        if (left === 0) {
          await reader.cancel();
          if (clean) return controller.close();
          await new Promise((resolve) => setTimeout(resolve, 5));
          return controller.error(new TypeError('network error'));
        }
        const { done, value } = await reader.read();
        if (done) return controller.close();
        rest += decoder.decode(value, { stream: true });
        let end = 0;
        for (let next; left > 0 && (next = rest.indexOf(END, end)) !== -1; left -= 1) {
          end = next + END.length;
        }
        controller.enqueue(new TextEncoder().encode(rest.slice(0, end)));
        rest = rest.slice(end);
      },
    },
    { highWaterMark: 0 },
  );
}

const plan = JSON.parse(await text(process.stdin));

// As the AI SDK's guide to message persistence has it.
const onlyLast = ({ id, messages, body }) => ({ body: { ...body, id, message: messages.at(-1) } });

async function talk({ id, cut, clean, approve, manual, last, steps }) {
  const seen = { data: {}, errors: [], called: [], requests: [], answers: [] };
  let chat;
  const transport = new DefaultChatTransport({
    api: plan.api,
    body: plan.body,
    prepareSendMessagesRequest: last ? onlyLast : undefined,
    fetch: async (url, options) => {
      seen.requests.push(options.method);
      if (options.body) seen.sent = JSON.parse(options.body).messages;
      const response = await fetch(url, options);
      if (cut === undefined || options.method === 'GET') return response;
      return new Response(cutAfter(response.body, cut, clean), response);
    },
  });
  chat = new Chat({
    id,
    transport,
    onData: (part) => (seen.data[part.type] = (seen.data[part.type] ?? 0) + 1),
    onError: (error) => seen.errors.push(error.message),
    onFinish: ({ finishReason }) => (seen.finishReason = finishReason),
    onToolCall: ({ toolCall }) => {
      seen.called.push(toolCall);
      chat.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output: 42 });
    },
    sendAutomaticallyWhen: (chat) =>
      !manual && (callsAreAnswered(chat) || approvalsAreAnswered(chat)),
  });
  await chat.sendMessage({ text: 'Is it sunny in Paris?' });
  seen.afterSend = chat.status;
  seen.messagesAfterSend = structuredClone(chat.messages);
  if (cut !== undefined) await chat.resumeStream();
  if (approve !== undefined) await answer(chat, approve);
  for (const step of steps ?? []) await take(chat, step, seen.answers);
  return { ...seen, status: chat.status, messages: chat.messages };
}

// The SDK sends a tool's output by itself, so a step is over when the last message has its text.
async function take(chat, { send, edit, regenerate, remove, change, to, approve }, answers) {
  const asked = chat.lastMessage.parts.filter((part) => part.state === 'approval-requested');
  for (const part of approve === undefined ? [] : asked) {
    await chat.addToolApprovalResponse({ id: part.approval.id, approved: approve });
  }
  // As `setMessages` of `useChat` does.
  if (remove) chat.messages = chat.messages.filter((_, index) => !remove.includes(index));
  if (change !== undefined) {
    const parts = [{ type: 'text', text: to, state: 'done' }];
    chat.messages = chat.messages.with(change, { ...chat.messages.at(change), parts });
  }
  const messageId = chat.messages.at(regenerate ?? edit ?? 0).id;
  if (regenerate !== undefined) await chat.regenerate({ messageId });
  else await chat.sendMessage(edit === undefined ? { text: send } : { text: send, messageId });
  while (chat.status !== 'ready' && chat.status !== 'error') {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  answers.push(chat.lastMessage.parts.filter((part) => part.type === 'text').at(-1)?.text);
}

// The SDK sends the answers by itself, when it has them all; nothing tells when that is done.
async function answer(chat, approved) {
  const asked = chat.lastMessage.parts.filter((part) => part.state === 'approval-requested');
  const finished = new Promise((resolve) => {
    chat['~registerStatusCallback'](() => chat.status === 'ready' && resolve());
  });
  for (const part of asked) chat.addToolApprovalResponse({ id: part.approval.id, approved });
  await finished;
}

let results = [];
if (plan.parallel) results = await Promise.all(plan.chats.map(talk));
else for (const one of plan.chats) results.push(await talk(one));
console.log(JSON.stringify(results));
