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
from tailrace.core.state import TaskNode
from tailrace.ports import Letter
from tailrace.runtime.task import TaskWriter


class Inputs:
    """The letters that lie ready for one run, in order.

    An answer is given to the task that asked, or to a task above it. An answer to a request that
    is not pending is dropped: the client sent it twice, or the request has its answer already.
    """

    def __init__(
        self,
        acknowledge: Callable[[int], Awaitable[None]],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._letters: list[Letter] = []
        self._in_hand: set[int] = set()
        self._news = asyncio.Event()
        self._acknowledge = acknowledge
        self._handed = 0
        self._changed = changed
        self._receivers = 0

    @property
    def is_waiting(self) -> bool:
        """Whether the agent waits for a letter; `changed` is called when that changes."""
        return self._receivers > 0 and not self._letters

    def put(self, letter: Letter) -> None:
        """Lay a letter down, once: it is read again until it is acknowledged."""
        if letter.number > self._handed:
            self._handed = letter.number
            self._letters.append(letter)
            self._news.set()
            self._news = asyncio.Event()

    async def receive(self, task: TaskWriter) -> Any:
        """Wait for the next answer; one to a pending request is recorded before it is given."""
        # If the process dies now, clients must know what was asked.
        await task.drain()
        self._receivers += 1
        self._changed()
        try:
            letter, value, asking = await self._next(task)
        finally:
            self._receivers -= 1
            self._changed()
        if asking is not None:
            received = {**value, "task_id": asking.task_id}
            task.emit(msgspec.convert(received, ev.TaskInputReceived))
            await task.drain()
        await self._settle(letter)
        return value

    async def _next(self, task: TaskWriter) -> tuple[Letter, Any, TaskNode | None]:
        """The first letter for this task, its value, and the task whose request it answers."""
        while True:
            for letter in list(self._letters):
                value = msgspec.json.decode(letter.body)
                asked = value.get("request_id") if isinstance(value, dict) else None
                asking = _asking(task, asked) if asked is not None else None
                if asked is not None and asking is None:
                    self._take(letter)
                    await self._settle(letter)
                    self._changed()
                    break
                if asking is None or _is_above(task, asking):
                    self._take(letter)
                    return letter, value, asking
            else:
                await self._news.wait()

    def _take(self, letter: Letter) -> None:
        self._letters.remove(letter)
        self._in_hand.add(letter.number)

    async def _settle(self, letter: Letter) -> None:
        """Acknowledge the letters before the first that was not acted upon."""
        self._in_hand.discard(letter.number)
        left = [*self._in_hand, *(other.number for other in self._letters)]
        await self._acknowledge(min(left, default=self._handed + 1) - 1)


def _asking(task: TaskWriter, request_id: Any) -> TaskNode | None:
    """The task of the run that has this request pending."""
    for node in task.emitter.state.tasks.values():
        if any(request.id == request_id for request in node.requests):
            return node
    return None


def _is_above(task: TaskWriter, node: TaskNode | None) -> bool:
    """Whether `node` is this task, or a sub-agent at any depth below it."""
    while node is not None and node.task_id != task.task_id:
        node = node.parent
    return node is not None


async def receive(task: TaskWriter) -> Any:
    """The next input for this task: the answer to its request, or one that names no request."""
    inputs = task.emitter.inputs
    if inputs is None:
        raise RuntimeError("Nobody reads this run's letters: it has no worker.")
    return await inputs.receive(task)
