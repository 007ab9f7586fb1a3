"""A person in the loop: a payment runs only after an approval.

    tailrace serve examples.approvals:app
    curl localhost:8000/runs -H 'content-type: application/json' \
         -d '{"agent": "cashier", "input": "Pay the baker 50 euros."}'

The run's stream shows `task.input_required` with a request. While it waits it holds no worker. Any
server of the database takes the answer:

    curl localhost:8000/runs/$RUN/input -H 'content-type: application/json' \
         -d '{"request_id": "…", "approved": true}'

`"approved": false, "reason": "…"` denies it; `"value": {"to": "baker", "euros": 5}` changes the
arguments.
"""

from tailrace import Agent, Tailrace, tool
from tailrace.models import Scripted, call, say


@tool(needs_approval=lambda arguments: arguments["euros"] > 10)
async def pay(to: str, euros: int) -> str:
    """Pays a person."""
    return f"{euros} euros were paid to {to}."


cashier = Agent(
    "cashier",
    model=Scripted([call("pay", to="baker", euros=50)], [say("Done.")]),
    tools=[pay],
)

app = Tailrace([cashier], database="approvals.db")
