// Holds streams against `verifyEvents` of `@ag-ui/client`. In: a list of streams, each a list of
// events. Out: for each stream why the client refuses it, or null.
import { verifyEvents } from '@ag-ui/client';
import { from, lastValueFrom, toArray } from 'rxjs';
import { text } from 'node:stream/consumers';

const results = [];
for (const events of JSON.parse(await text(process.stdin))) {
  const verified = from(events).pipe(verifyEvents(false), toArray());
  results.push(await lastValueFrom(verified).then(() => null, (error) => error.message));
}
console.log(JSON.stringify(results));
