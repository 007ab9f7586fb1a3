"""The application that `tests.serving` serves."""

from __future__ import annotations

import asyncio
import os

from tailrace import demo
from tailrace.app import Tailrace
from tailrace.core.closing import closing
from tailrace.core.events import TaskAttempt
from tailrace.runtime.task import TaskWriter


async def broken(task: TaskWriter) -> None:
    with task.message() as message:
        message.text("Half an ans")
        await task.drain()
        raise RuntimeError("the secret password is hunter2")


async def endless(task: TaskWriter) -> None:
    with task.message() as message:
        while True:
            message.text("tick ")
            await asyncio.sleep(0.02)


async def recovered(task: TaskWriter) -> None:
    """What a worker writes that takes over from one that was lost in the middle of a message."""
    lost = task.message().__enter__()
    lost.text("Half an ans")
    for event in closing(task.node):
        task.emit(event)
    ident = task.node.items[0].id
    task.emit(
        TaskAttempt(task_id=task.task_id, attempt=2, reason="worker_lost", superseded=[ident])
    )
    with task.message() as message:
        message.text("A whole answer.")


app = Tailrace(
    {
        "assistant": demo.assistant(0.0),
        "slow": demo.assistant(0.02),
        "broken": broken,
        "endless": endless,
        "recovered": recovered,
    },
    os.environ.get("TAILRACE_TEST_DB", ":memory:"),
)
