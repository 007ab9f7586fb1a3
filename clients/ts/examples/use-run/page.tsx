/** A page on our own client: ask an agent, watch it, approve, cut the stream, reload. */

import { StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";
import { Client } from "@tailrace/client";
import type { Block, ItemView } from "@tailrace/client";
import { useRun } from "./use_run.ts";

// The server is on another port: it lists this page in `Tailrace(origins=[…])`.
const server = new URLSearchParams(location.search).get("server") ?? "http://localhost:8000";
const client = new Client(server);

function Page() {
  const [runId, setRunId] = useState(location.hash.slice(1) || undefined);
  const { view, status, cut, resume } = useRun(client, runId);

  async function ask(form: FormData) {
    const { run_id } = await client.start(String(form.get("agent")), form.get("question"));
    location.hash = run_id; // a reload follows the same run
    setRunId(run_id);
  }

  return (
    <main>
      <form action={ask}>
        <select name="agent" aria-label="Agent">
          <option>weather</option>
          <option>planner</option>
        </select>
        <input name="question" aria-label="Question" defaultValue="Is it sunny in Paris?" />
        <button>Ask</button>
      </form>
      {runId && (
        <p role="status">
          {view?.status} · {status.kind}{" "}
          {status.kind === "cut" ? <button onClick={resume}>Resume</button> : <button onClick={cut}>Cut</button>}
        </p>
      )}
      {view?.output.map((item) => <Item key={item.id} item={item} />)}
      {view?.requests?.map((request) => (
        <fieldset key={request.id}>
          <legend>{request.message}</legend>
          <button onClick={() => client.answer(view.task_id, { request_id: request.id, approved: true })}>Approve</button>
          <button onClick={() => client.answer(view.task_id, { request_id: request.id, approved: false })}>Deny</button>
        </fieldset>
      ))}
    </main>
  );
}

function Item({ item }: { item: ItemView }) {
  if (item.type === "tool_call") return <pre className="call">{`${item.name} ${item.arguments}`}</pre>;
  if (item.type === "reasoning") return <p><i>{textOf(item.summary)}</i></p>;
  if (item.type !== "message") return null;
  return <p className="message">{textOf(item.block_list)}</p>;
}

const textOf = (blocks: readonly Block[]) => blocks.map((block) => ("text" in block ? block.text : "")).join("");

createRoot(document.getElementById("page")!).render(<StrictMode><Page /></StrictMode>);
