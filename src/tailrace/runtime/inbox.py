"""How an agent gets what people answer while it runs.

task.emit(TaskInputRequired(task_id=task.task_id, requests=[InputRequest(id="r1", …)]))
answer = await receive(task)          # {"request_id": "r1", "approved": true}
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tailrace.core import events as ev
from tailrace.ports import Letter
from tailrace.runtime.task import TaskWriter


class Inputs:
    """The answers that lie ready for one run, in order."""

    def __init__(
        self,
        acknowledge: Callable[[int], Awaitable[None]],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._queue: asyncio.Queue[Letter] = asyncio.Queue()
        self._acknowledge = acknowledge
        self._handed = 0
        self._changed = changed
        self._receivers = 0

    @property
    def is_waiting(self) -> bool:
        """Whether the agent waits for a letter; `changed` is called when that changes."""
        return self._receivers > 0 and self._queue.empty()

    def put(self, letter: Letter) -> None:
        """Lay a letter down, once: it is read again until it is acknowledged."""
        if letter.number > self._handed:
            self._handed = letter.number
            self._queue.put_nowait(letter)

    async def receive(self, task: TaskWriter) -> Any:
        """Wait for the next answer; one to a pending request is recorded before it is given."""
        # If the process dies now, clients must know what was asked.
        await task.drain()
        self._receivers += 1
        self._changed()
        try:
            letter = await self._queue.get()
        finally:
            self._receivers -= 1
            self._changed()
        value = msgspec.json.decode(letter.body)
        asked = value.get("request_id") if isinstance(value, dict) else None
        if any(request.id == asked for request in task.node.requests):
            received = {**value, "task_id": task.task_id}
            task.emit(msgspec.convert(received, ev.TaskInputReceived))
            await task.drain()
        await self._acknowledge(letter.number)
        return value


async def receive(task: TaskWriter) -> Any:
    """The next input that somebody sent to the run of this task."""
    inputs = task.emitter.inputs
    if inputs is None:
        raise RuntimeError("Nobody reads this run's letters: it has no worker.")
    return await inputs.receive(task)
