"""Tailrace as a user would start it, with an agent that does nothing but talk."""

from __future__ import annotations

import asyncio
import time

from tailrace.app import Tailrace
from tailrace.runtime.tasks.inbox import receive
from tailrace.runtime.tasks.task import Task


async def talker(task: Task) -> None:
    """Says `count` deltas at `rate` a second (0: as fast as the loop turns), each the time it is.

    With `wait` it first waits for something to be sent to it; with `linger` it does so at the end.
    """
    asked = task.input
    if asked.get("wait"):
        await task.drain()
        await receive(task)
    start, rate = time.monotonic(), asked["rate"]
    with task.message() as message:
        for number in range(asked["count"]):
            if rate:
                await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
            else:
                await asyncio.sleep(0)
            message.text(str(time.monotonic_ns()))
            if number % 1000 == 999:
                await task.drain()
    if asked.get("linger"):
        await task.drain()
        await receive(task)


def application(database: str, bus: str | None, worker: bool) -> Tailrace:
    """The application; `rate` and `count` come with each run."""
    return Tailrace({"talker": talker}, database, bus=bus, worker=worker)
