"""One run in the hands of a worker: its agent's task, and the ways in which that can end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from tailrace.core.errors import SeqConflict, StorageError
from tailrace.core.events import TaskInProgress
from tailrace.core.items import ErrorInfo
from tailrace.ports import Claim, Letter
from tailrace.runtime.agents import Agent
from tailrace.runtime.failures import failure
from tailrace.runtime.task import AGENT_FAILED, TaskWriter

GRACE_SECONDS = 1.0
"""How long an agent that is stopped may clean up; then its run is closed without it.

Less than the time after which a canceller takes the run over.
"""

STOPPED = ErrorInfo(
    code="interrupted", message="The server stopped, and the agent can't go on elsewhere."
)
CANCELLED = "It was cancelled."


class Live:
    """A claimed run."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.last_letter = 0
        self._task: TaskWriter | None = None
        self._agent: asyncio.Task[None] | None = None
        self._gave_up = asyncio.get_running_loop().create_future()
        self._end: Callable[[TaskWriter], None] | None = None
        self._released = False
        self._lost = False

    @property
    def task(self) -> TaskWriter:
        """Writes the run."""
        assert self._task is not None, "The run was not begun."
        return self._task

    @property
    def is_new(self) -> bool:
        """Whether nobody ever worked on it."""
        return self.task.node.status == "queued"

    @property
    def was_called(self) -> bool:
        """Whether the agent has begun here."""
        return self._agent is not None

    @property
    def is_stopping(self) -> bool:
        """Whether the agent is not to be called any more."""
        return self._end is not None or self._released or self._lost

    @property
    def waits_for_people(self) -> bool:
        """Whether the run has asked for input, and its agent waits for it."""
        if self._task is None or self.is_stopping:
            return False
        emitter = self._task.emitter
        asks = any(task.requests for task in emitter.state.tasks.values())
        return asks and emitter.inputs is not None and emitter.inputs.is_waiting

    @property
    def is_released(self) -> bool:
        """Whether it is to be continued by another worker."""
        return self._released and not self._lost and not self.task.node.ended

    @property
    def has_ended(self) -> bool:
        """Whether its last event was written by us."""
        return not self._lost and self.task.node.ended

    def begin(self, task: TaskWriter) -> None:
        """Take the writer; a claim that was lost meanwhile writes nothing."""
        self._task = task
        if self._lost:
            self.lose()

    def call(self, agent: Agent) -> None:
        """Let the agent work."""
        if self.is_new:
            self.task.emit(TaskInProgress(task_id=self.task.task_id))
        if not self.is_stopping:
            run = self._run(agent)
            self._agent = asyncio.get_running_loop().create_task(run, name=self.claim.run_id)
            self._agent.add_done_callback(_look_at)

    async def _run(self, agent: Agent) -> None:
        task = self.task
        try:
            await agent(task)
            if not self.is_stopping:
                task.complete()
        except StorageError:
            raise
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        # Not only `Exception`: asyncio ends the whole process for a task that raises `SystemExit`.
        except BaseException as error:  # noqa: BLE001
            if task.emitter.failure is not None:
                raise task.emitter.failure from None
            task.fail(failure(task.task_id, error))

    def take(self, letters: list[Letter]) -> None:
        """Act upon letters; those that were seen before change nothing."""
        for letter in letters:
            self.last_letter = max(self.last_letter, letter.number)
            if letter.kind == "cancel":
                self.cancel(reason_in(letter))
            elif self._task is not None and self._task.emitter.inputs is not None:
                self._task.emitter.inputs.put(letter)

    def cancel(self, reason: str) -> None:
        """Stop the agent, and end the run with what it has."""
        self._stop_with(lambda task: task.cancel(reason))

    def interrupt(self) -> None:
        """Stop the agent, and end the run as failed: no other worker can continue it."""
        self._stop_with(lambda task: task.fail(STOPPED))

    def _stop_with(self, end: Callable[[TaskWriter], None]) -> None:
        if self._end is None:
            self._end = end
            self._stop()

    def release(self) -> None:
        """Stop the agent, and leave the run to another worker."""
        self._released = True
        if self._task is not None:
            self._task.emitter.is_left = True
        self._stop()

    def lose(self) -> None:
        """The claim is gone: write nothing more, at once."""
        self._lost = True
        if self._task is not None:
            self._task.emitter.fail(SeqConflict("The run has another writer now."))
        self._stop()

    def _stop(self) -> None:
        if self._agent is not None:
            self._agent.cancel()
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self._gave_up.cancel)

    async def finish(self) -> None:
        """Wait for the agent, then end the run as it has to be ended, durably."""
        if self._agent is not None:
            await asyncio.wait([self._agent, self._gave_up], return_when=asyncio.FIRST_COMPLETED)
        if self._lost:
            raise SeqConflict("The run has another writer now.")
        if self._end is not None and not self.task.node.ended:
            self._end(self.task)
        elif self._agent is not None and self._agent.done() and not self._agent.cancelled():
            error = self._agent.exception()
            if isinstance(error, GeneratorExit):  # the agent raised it, as it might any error
                self.task.fail(failure(self.task.task_id, error))
            elif error is not None:
                raise error
        elif not self._released and not self.task.node.ended:
            # The agent cancelled itself, or a library did it for its own reasons.
            self.task.fail(AGENT_FAILED)
        await self.task.drain()
        if self.is_released:
            # An agent that went on all the same must not write what the next one will not know.
            self.task.emitter.fail(SeqConflict("The run was left to another worker."))


def _look_at(agent: asyncio.Task[None]) -> None:
    """Nobody waits for an agent that was left behind; what it raises then is of no interest."""
    if not agent.cancelled():
        agent.exception()


def reason_in(letter: Letter) -> str:
    """Why a letter asks to stop."""
    try:
        return str(msgspec.json.decode(letter.body)["reason"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return CANCELLED
