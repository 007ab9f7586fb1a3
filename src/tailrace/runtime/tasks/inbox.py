"""Hands the answers of people to the agents that wait for them.

answer = await task.ask("Which city?")      # Answer(request_id="req_…", value="Paris")
letter = await receive(task)                # the next input, whatever it answers
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec

from tailrace.core import events as ev
from tailrace.core.errors import CallerError
from tailrace.core.state import TaskNode
from tailrace.core.values import dict_of
from tailrace.ports import InboxLetter
from tailrace.runtime.tasks.task import Task


class _Work:
    """A block of work of a run: how many answers it waits for, and its blocks inside."""

    def __init__(self) -> None:
        self.waiting = 0
        self.inside = 0


_current: ContextVar[_Work | None] = ContextVar("current", default=None)


class UnreadLetters:
    """The unread letters of one run, in order.

    An answer goes to the task that asked, or to a task above it. An answer to a request that is no
    longer pending is dropped: a client may send an answer twice.
    """

    def __init__(
        self,
        acknowledge: Callable[[int], Awaitable[None]],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._letters: list[InboxLetter] = []
        self._in_hand: set[int] = set()
        self._acknowledge = acknowledge
        self._acknowledging = 0
        self._handed = 0
        self._changed = changed
        self._receivers = 0
        self._resting: set[asyncio.Event] = set()  # of receivers that have looked at every letter
        self._awaited: list[str] = []
        self._works: list[_Work] = []
        self._settling: asyncio.Future[None] | None = None

    def awaits(self, request_id: str) -> bool:
        """Whether a receiver waits for the answer to this request."""
        return request_id in self._awaited

    def has_answer(self, request_id: str) -> bool:
        """Whether an unread letter answers this request."""
        bodies = (msgspec.json.decode(letter.body) for letter in self._letters)
        return any(dict_of(body).get("request_id") == request_id for body in bodies)

    @property
    def is_waiting(self) -> bool:
        """Whether the agent waits for a letter; `changed` is called when that changes.

        Letters that no receiver takes may lie here. A letter that was taken must be acknowledged
        first: if the process dies, the next worker has to read it again.
        """
        at_work = any(work.waiting == work.inside == 0 for work in self._works)
        is_settled = not self._in_hand and not self._acknowledging
        return 0 < self._receivers == len(self._resting) and is_settled and not at_work

    @contextmanager
    def busy(self) -> Iterator[None]:
        """A block of work during which the run is not parked, although another task waits.

        While the block itself waits for an answer, it is not at work. While there are blocks
        inside it, they decide.
        """
        work, outer = _Work(), _current.get() or _Work()
        self._works.append(work)
        outer.inside += 1
        before = _current.set(work)
        try:
            if self._receivers:
                self._changed()
            yield
        finally:
            _current.reset(before)
            self._works.remove(work)
            outer.inside -= 1
            if self._receivers:
                self._changed()

    def put(self, letter: InboxLetter) -> None:
        """Add a letter, once. The worker reads it again until it is acknowledged."""
        if letter.number > self._handed:
            self._handed = letter.number
            if letter.kind == "cancel":  # of a sub-agent, which is done at once
                self._in_hand.add(letter.number)
                self._settling = asyncio.ensure_future(self._settle(letter))
                return
            self._letters.append(letter)
            for news in self._resting:
                news.set()
            self._resting.clear()

    async def receive(self, task: Task, request_id: str | None = None) -> Any:
        """Wait for the next answer, or for the answer to this request.

        An answer to a pending request is recorded before it is returned.
        """
        waits_for = [] if request_id is None else [request_id]
        self._awaited += waits_for
        work = _current.get() or _Work()
        try:
            # If the process dies now, clients must know what was asked.
            await task.drain()
            self._receivers += 1
            work.waiting += 1
            try:
                letter, value, asking = await self._next(task, request_id)
            finally:
                self._receivers -= 1
                work.waiting -= 1
                self._changed()
        finally:
            for ident in waits_for:
                self._awaited.remove(ident)
        if asking is not None:
            received = {**value, "task_id": asking.task_id}
            task.emit(msgspec.convert(received, ev.TaskInputReceived))
            await task.drain()
        await self._settle(letter)
        return value

    async def _next(
        self, task: Task, request_id: str | None
    ) -> tuple[InboxLetter, Any, TaskNode | None]:
        """The first letter for this receiver, its value, and the task whose request it answers."""
        while True:
            for letter in list(self._letters):
                value = msgspec.json.decode(letter.body)
                asked = dict_of(value).get("request_id")
                asking = _asking(task, asked) if asked is not None else None
                if asked is not None and asking is None:
                    self._take(letter)
                    await self._settle(letter)
                    break
                if self._is_for(task, request_id, asked, asking):
                    self._take(letter)
                    return letter, value, asking
            else:
                await self._rest()

    async def _rest(self) -> None:
        """Wait for the next letter."""
        news = asyncio.Event()
        self._resting.add(news)
        self._changed()
        try:
            await news.wait()
        finally:
            self._resting.discard(news)

    def _is_for(
        self, task: Task, request_id: str | None, asked: Any, asking: TaskNode | None
    ) -> bool:
        if request_id is not None:
            return bool(asked == request_id)
        if asking is None:
            return True
        return not self.awaits(asked) and _is_above(task, asking)

    def _take(self, letter: InboxLetter) -> None:
        self._letters.remove(letter)
        self._in_hand.add(letter.number)

    async def _settle(self, letter: InboxLetter) -> None:
        """Acknowledge the letters before the first that was not acted upon."""
        self._in_hand.discard(letter.number)
        left = [*self._in_hand, *(other.number for other in self._letters)]
        self._acknowledging += 1
        try:
            await self._acknowledge(min(left, default=self._handed + 1) - 1)
        finally:
            self._acknowledging -= 1
            self._changed()


def _asking(task: Task, request_id: Any) -> TaskNode | None:
    """The task of the run that has this request pending."""
    for node in task._sink.emitter.state.tasks.values():
        if any(request.id == request_id for request in node.requests):
            return node
    return None


def _is_above(task: Task, node: TaskNode | None) -> bool:
    """Whether `node` is this task, or a sub-agent at any depth below it."""
    while node is not None and node.task_id != task.task_id:
        node = node.parent
    return node is not None


async def receive(task: Task) -> Any:
    """The next input for this task: the answer to its request, or an input without a request."""
    inputs = task._sink.emitter.inputs
    if inputs is None:
        raise CallerError(
            f"The agent {task.agent} receives no input: it is a sub-agent with "
            "`streaming=False`, or has no worker. Await `receive` in the agent that calls it."
        )
    return await inputs.receive(task)
