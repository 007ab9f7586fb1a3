// Feeds streams to `@ag-ui/client`. In: a list of runs, each a list of events. Out: for each run
// the messages that the client holds after it.
import { AbstractAgent } from '@ag-ui/client';
import { from } from 'rxjs';
import { text } from 'node:stream/consumers';

class Replayed extends AbstractAgent {
  constructor(events) {
    super({ threadId: 'thread' });
    this.events = events;
  }
  run() {
    return from(this.events);
  }
}

const results = [];
for (const events of JSON.parse(await text(process.stdin))) {
  const agent = new Replayed(events);
  const errors = [];
  try {
    await agent.runAgent({ runId: 'run' });
  } catch (error) {
    errors.push(String(error.message ?? error));
  }
  results.push({ messages: agent.messages, errors });
}
console.log(JSON.stringify(results));
