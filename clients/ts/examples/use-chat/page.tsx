/** A page on the Vercel AI SDK: `useChat` against a Tailrace server on another port. */

import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, isToolUIPart, getToolName, type UIMessage } from "ai";
import { createRoot } from "react-dom/client";

// The server lists this page in `Tailrace(origins=[…])`.
const server = new URLSearchParams(location.search).get("server") ?? "http://localhost:8000";
const transport = new DefaultChatTransport({ api: `${server}/api/chat`, body: { agent: "weather" } });

// The chat's id is the thread. It stays in the address, so a reload joins the answer that streams.
location.hash ||= crypto.randomUUID();
const id = location.hash.slice(1);

// The conversation before the reload. A thread without a run is 404.
const found = await fetch(`${server}/threads/${id}?format=vercel-ui`);
const before: UIMessage[] = found.ok ? await found.json() : [];

function Page() {
  const { messages, sendMessage, status, error } = useChat({ id, messages: before, transport, resume: true });
  return (
    <main>
      <form action={(form) => void sendMessage({ text: String(form.get("question")) })}>
        <input name="question" aria-label="Question" defaultValue="Is it sunny in Paris?" />
        <button disabled={status === "streaming"}>Ask</button>
      </form>
      <p role="status">{error ? error.message : status}</p>
      {messages.map((message) => (
        <section key={message.id} className={message.role}>
          {message.parts.map((part, n) =>
            part.type === "text" ? <p key={n}>{part.text}</p>
            : part.type === "reasoning" ? <p key={n}><i>{part.text}</i></p>
            : isToolUIPart(part) ? <pre key={n}>{`${getToolName(part)} ${JSON.stringify(part.input)} ${part.state}`}</pre>
            : null,
          )}
        </section>
      ))}
    </main>
  );
}

createRoot(document.getElementById("page")!).render(<Page />);
