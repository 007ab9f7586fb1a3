// Drives `HttpAgent` of @ag-ui/client over HTTP. The plan on stdin: {url, tools, talks: [{agent,
// threadId, state?, steps}]}. A step is {say: text}, {tool: content} (answers the pending calls),
// {resume: payload} (answers the interrupts), {attach: true} (a new client reads the last run
// again; with {load: true} after the messages of the thread up to the last question), with
// {cancelAt: n} (cancels the run after n events) or {abortAt: n} (leaves after n). Before it,
// {remove: [index]} and {change: index, to: text} change the client's messages.
// Out: for each talk what every step received, and the client's messages and state at its end.
import { HttpAgent } from '@ag-ui/client';
import { text } from 'node:stream/consumers';

const plan = JSON.parse(await text(process.stdin));
const warnings = [];
console.warn = (...words) => warnings.push(words.map(String).join(' '));
console.error = () => {}; // the client prints each failed run, which the steps report

function client({ agent, threadId, state }, turns) {
  const url = `${plan.url}/ag-ui/${agent}`;
  return new HttpAgent({
    url,
    threadId,
    initialState: state,
    fetch: async (_url, options) => {
      const again = `${url}?threadId=${threadId}`;
      const turn = turns.at(-1);
      const response = await (turn.attach ? fetch(again) : fetch(url, options));
      const [one, other] = response.body.tee();
      turn.raw = text(other).catch(() => null); // null: the client left
      turn.sent = turn.attach ? null : JSON.parse(options.body);
      return new Response(one, response);
    },
  });
}

async function take(agent, step, turn, before) {
  const parameters = { tools: plan.tools };
  if (step.remove) agent.messages = agent.messages.filter((_, at) => !step.remove.includes(at));
  if (step.to) {
    const changed = { ...agent.messages.at(step.change), content: step.to };
    agent.messages = agent.messages.with(step.change, changed);
  }
  const message = (fields) => agent.addMessage({ id: crypto.randomUUID(), ...fields });
  if (step.say) message({ role: 'user', content: step.say });
  for (const toolCallId of step.tool ? before.pending : []) {
    message({ role: 'tool', toolCallId, content: step.tool });
  }
  if ('resume' in step) {
    parameters.resume = agent.pendingInterrupts.map(({ id }) => ({
      interruptId: id,
      status: 'resolved',
      payload: step.resume,
    }));
  }
  let run;
  try {
    const { result } = await agent.runAgent(parameters, {
      onEvent: ({ event }) => {
        turn.events.push(event);
        if (turn.events.length === step.abortAt) agent.abortRun();
        if (turn.events.length === step.cancelAt) {
          run = fetch(`${plan.url}/runs/${turn.events[0].runId}/cancel`, { method: 'POST' });
        }
      },
      onRunFinishedEvent: ({ outcome, pendingToolCallIds }) => {
        turn.outcome = outcome;
        turn.pending = pendingToolCallIds;
      },
    });
    turn.result = result;
  } catch (error) {
    turn.error = error.message;
  }
  await run;
}

async function untilLastQuestion(threadId) {
  const response = await fetch(`${plan.url}/threads/${threadId}?format=ag-ui`);
  const messages = await response.json();
  return messages.slice(0, messages.findLastIndex(({ role }) => role === 'user') + 1);
}

async function talk(about) {
  const turns = [];
  let agent = client(about, turns);
  for (const step of about.steps) {
    if (step.attach) agent = client(about, turns);
    if (step.load) agent.messages = await untilLastQuestion(about.threadId);
    const before = turns.at(-1);
    turns.push({ attach: step.attach, events: [] });
    await take(agent, step, turns.at(-1), before);
  }
  for (const turn of turns) turn.raw = await turn.raw;
  return { turns, messages: agent.messages, state: agent.state };
}

const talks = await Promise.all(plan.talks.map(talk));
console.log(JSON.stringify({ talks, warnings }));
