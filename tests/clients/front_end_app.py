"""The server of the front ends: agents that stop in the middle until the test lets them go on."""

import os
from pathlib import Path

from examples.front_end import planner
from tailrace import Tailrace, Task
from tailrace.testing.waiting import until


async def weather(task: Task) -> None:
    """Writes what the agent of the example writes."""
    with task.call("get_weather") as call:
        call.arguments('{"city":"Paris"}')
    call.start()
    await task.drain()
    call.result("15C")
    with task.message() as message:
        message.text("It is sunny in Paris.[^1] ")
        await task.drain()
        await until(Path(os.environ["TAILRACE_TEST_GATE"], task.text).exists)
        message.text("Take a light jacket.")


app = Tailrace(
    [weather, planner],
    os.environ["TAILRACE_TEST_DB"],
    origins=os.environ["TAILRACE_TEST_ORIGINS"].split(),
)
