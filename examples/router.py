"""A router step and a worker step, shown in the `run` format:

    tailrace serve examples.router:app
    curl -N 'localhost:8000/threads/t1/events' &
    curl localhost:8000/runs -H 'content-type: application/json' \
         -d '{"agent": "assistant", "input": "Book a table.", "thread_id": "t1"}'

The agent is a function: it chooses a worker, and the worker, an `Agent`, writes the same task. The
worker's output has a type, which the `run` format shows as `workerAgentOutput`.
"""

from typing import Any, Literal

import msgspec

from tailrace import Agent, Tailrace, Task, tool
from tailrace.models import Scripted, call, say


class Failure(msgspec.Struct):
    code: str
    message: str


class UiHints(msgspec.Struct):
    ui_mode: str
    ui_state: dict[str, Any] = {}
    actions: list[dict[str, Any]] = []


class WorkerOutput(msgspec.Struct):
    status: Literal["success", "partial_success", "failed"]
    answer: str
    key_points: list[str] = []
    result_type: Literal["execution_report", "clarification", "error_report", "unknown"] = "unknown"
    suggested_actions: list[str] = []
    error: Failure | None = None
    ui_hints: UiHints | None = None


@tool
async def book_table(guests: int) -> dict[str, Any]:
    """Books a table in the restaurant."""
    return {
        "confirmation": f"A table for {guests} is booked.",
        "ui_hints": {"ui_mode": "card"},
        "attachments": [
            {
                "bucket": "bookings",
                "path": "42.pdf",
                "url": "https://files.example/bookings/42.pdf",
                "mime_type": "application/pdf",
            }
        ],
    }


BOOKED = WorkerOutput(
    status="success",
    answer="Your table is booked.",
    key_points=["two guests", "tonight"],
    result_type="execution_report",
    suggested_actions=["Add it to the calendar."],
    ui_hints=UiHints(ui_mode="booking", ui_state={"id": 42}),
)
SMALL_TALK = WorkerOutput(status="success", answer="Hello! I book tables.")

workers = {
    "booking": Agent(
        "booking",
        model=Scripted([call("book_table", guests=2)], [say(msgspec.json.encode(BOOKED).decode())]),
        tools=[book_table],
        output=WorkerOutput,
    ),
    "small_talk": Agent(
        "small_talk",
        model=Scripted([say(msgspec.json.encode(SMALL_TALK).decode())]),
        output=WorkerOutput,
    ),
}


async def assistant(task: Task) -> None:
    with task.step("router"):
        name = "booking" if "table" in task.text else "small_talk"
        task.notice(f"This is for {name}.")
    with task.step("worker"):
        await workers[name](task)


app = Tailrace([assistant], database="router.db")
