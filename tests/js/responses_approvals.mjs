// The openai package from npm: its stream helper, over the approvals that an agent asks for.
// stdin: {baseURL, models}. Out, for each model: the output of its responses, and of their replays.
import OpenAI from 'openai';
import { text } from 'node:stream/consumers';

const { baseURL, models } = JSON.parse(await text(process.stdin));
const client = new OpenAI({ baseURL, apiKey: 'test', maxRetries: 0 });

async function outputs(model) {
  const found = [];
  let input = 'pay';
  let previous_response_id;
  while (input.length > 0) {
    const { id, output } = await client.responses
      .stream({ model, input, previous_response_id })
      .finalResponse();
    const replayed = await client.responses.stream({ response_id: id }).finalResponse();
    const stored = await client.responses.retrieve(id);
    found.push({ output, replayed: replayed.output, stored: stored.output });
    previous_response_id = id;
    input = output
      .filter(({ type }) => type === 'mcp_approval_request')
      .map(({ id }) => ({
        type: 'mcp_approval_response',
        approval_request_id: id,
        approve: true,
      }));
  }
  return found;
}

console.log(JSON.stringify(await Promise.all(models.map(outputs))));
