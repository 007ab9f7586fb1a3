"""The application that `tests.serving` serves."""

from __future__ import annotations

import asyncio
import os

from tailrace import demo
from tailrace.app import Tailrace
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


app = Tailrace(
    {
        "assistant": demo.assistant(0.0),
        "slow": demo.assistant(0.02),
        "broken": broken,
        "endless": endless,
    },
    os.environ.get("TAILRACE_TEST_DB", ":memory:"),
)
