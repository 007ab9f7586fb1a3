"""An agent that calls a model itself: `tailrace serve examples.ask:app`, then ask it.

    curl -N localhost:8000/v1/responses -H 'content-type: application/json' \
         -d '{"model": "assistant", "input": "Is it sunny in Paris?", "stream": true}'

`MODEL=openai:gpt-5 OPENAI_API_KEY=… tailrace serve examples.ask:app` asks a real model.
"""

import os

from tailrace import Tailrace, Task
from tailrace.models import Request, Scripted, call_model, open_model, say, think

SCRIPT = Scripted([think("Which city?"), say("It is sunny in Paris.", pace=20)])
model = open_model(os.environ.get("MODEL", f"scripted:{__name__}:SCRIPT"))


async def assistant(task: Task) -> None:
    request = Request(chain=await task.chain(), instructions="Be brief.")
    outcome = await call_model(model, request, task, drain=task.drain)
    if outcome.error is not None:
        task.fail(outcome.error)


app = Tailrace([assistant], database="assistant.db")
