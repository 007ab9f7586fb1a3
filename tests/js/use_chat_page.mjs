// A page of React components with `useChat` of @ai-sdk/react. `server` is a global of the page. Each
// component drives one chat, and reports how it ended.
import { useChat } from '@ai-sdk/react';
import { DefaultChatTransport } from 'ai';
import { createElement, useEffect, useRef } from 'react';
import { createRoot } from 'react-dom/client';

const api = `${globalThis.server}/api/chat`;
const report = (value) => fetch('/report', { method: 'POST', body: JSON.stringify(value) });

function Chat({ id, agent, turns, resume = false }) {
  const transport = useRef(new DefaultChatTransport({ api, body: { agent } })).current;
  const { messages, status, error, sendMessage } = useChat({ id, transport, resume });
  const left = useRef([...turns]);
  const seen = useRef([]);
  useEffect(() => {
    if (seen.current.at(-1) !== status) seen.current.push(status);
    if (status !== 'ready' && status !== 'error') return;
    const isOver = resume ? messages.length > 0 : left.current.length === 0;
    if (status === 'error' || isOver) {
      report({ id, messages, status, seen: seen.current, error: error?.message ?? null });
    } else if (!resume) {
      sendMessage({ text: left.current.shift() });
    }
  }, [status]);
  return createElement('p', null, status);
}

// A page that was left while its chat went on: the answer is read after a reload.
async function leave(id, agent) {
  const parts = [{ type: 'text', text: '?' }];
  const body = JSON.stringify({ id, agent, messages: [{ id: 'm1', role: 'user', parts }] });
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(api, { method: 'POST', headers, body });
  await response.body.getReader().cancel();
}

await leave('left', 'slow');
const chats = [
  { id: 'talk', agent: 'recalls', turns: ['one', 'two'] },
  { id: 'failure', agent: 'broken', turns: ['?'] },
  { id: 'left', agent: 'slow', turns: [], resume: true },
];
const page = chats.map((chat) => createElement(Chat, { key: chat.id, ...chat }));
createRoot(document.body.appendChild(document.createElement('div'))).render(page);
