// The openai package from npm: its stream helper, and a plain stream cut after every frame.
// arguments: JSON {baseURL, model, responseId, cuts?}
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const { baseURL, model, responseId, cuts } = JSON.parse(process.argv[2]);
const client = new OpenAI({ baseURL, apiKey: 'test', maxRetries: 0 });
const request = { model, input: 'Is it sunny?' };

const helper = client.responses.stream(request);
const seen = [];
for await (const event of helper) seen.push(event.type);
const final = await helper.finalResponse();

if (cuts) {
  const whole = [];
  for await (const event of await client.responses.create({ ...request, stream: true })) {
    whole.push(event);
  }
  for (let cut = 1; cut < whole.length; cut += 1) {
    const got = [];
    for await (const event of await client.responses.create({ ...request, stream: true })) {
      got.push(event);
      if (got.length === cut) break;
    }
    const starting_after = got.at(-1).sequence_number;
    const rest = await client.responses.retrieve(responseId, { stream: true, starting_after });
    for await (const event of rest) got.push(event);
    assert.deepEqual(got, whole, `cut after frame ${cut}`);
    const resumed = client.responses.stream({ response_id: responseId, starting_after });
    assert.deepEqual(await resumed.finalResponse(), final, `resumed after frame ${cut}`);
  }
}
console.log(JSON.stringify({ seen, final }));
