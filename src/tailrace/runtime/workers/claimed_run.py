"""A run that a worker has claimed: its agent's task, and the ways in which it can end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from tailrace.core.errors import SeqConflict, StorageError
from tailrace.core.items import ErrorInfo
from tailrace.core.values import text_or_none
from tailrace.ports import Claim, InboxLetter
from tailrace.runtime.agents.functions import AgentFunction, call_agent
from tailrace.runtime.diagnostics.failures import AGENT_FAILED, failure, retrieve_error
from tailrace.runtime.diagnostics.telemetry import invoke_agent
from tailrace.runtime.tasks.task import Task, interrupt
from tailrace.runtime.workers import exits

GRACE_SECONDS = 1.0
"""How long an agent that is stopped may clean up; then its run is ended without it.

Shorter than the time after which a canceller takes the run over.
"""

STOPPED = ErrorInfo(
    code="interrupted",
    message="The server stopped, and the agent is not restartable. Start a new run.",
)
CANCELLED = "It was cancelled."


class ClaimedRun:
    """A claimed run."""

    def __init__(
        self,
        claim: Claim,
        is_from_outside: Callable[[BaseException], bool] = lambda _: False,
    ) -> None:
        self.claim = claim
        self._is_from_outside = is_from_outside
        self.last_letter = 0
        self._task: Task | None = None
        self._thread = ""
        self._agent: asyncio.Task[None] | None = None
        self._gave_up = asyncio.get_running_loop().create_future()
        self._end: Callable[[Task], None] | None = None
        self._released = False
        self._lost = False

    def __str__(self) -> str:
        where = f", thread {self._thread}" if self._thread else ""
        return f"run {self.claim.run_id} (agent {self.claim.agent}{where})"

    def log_fields(self) -> dict[str, str]:
        """The run for logs that programs read."""
        found = {"run": self.claim.run_id, "agent": self.claim.agent, "thread": self._thread}
        return {name: value for name, value in found.items() if value}

    @property
    def task(self) -> Task:
        """Writes the run."""
        assert self._task is not None, "The run was not begun."
        return self._task

    @property
    def is_new(self) -> bool:
        """Whether no agent has worked on it."""
        return self.task._sink.node.status == "queued"

    @property
    def was_called(self) -> bool:
        """Whether the agent has begun here."""
        return self._agent is not None

    @property
    def is_stopping(self) -> bool:
        """Whether the agent must not be called any more."""
        return self._end is not None or self._released or self._lost

    @property
    def waits_for_people(self) -> bool:
        """Whether the run has asked for input, and its agent waits for it."""
        if self._task is None or self.is_stopping:
            return False
        emitter = self._task._sink.emitter
        asks = any(task.requests for task in emitter.state.tasks.values())
        return asks and emitter.inputs is not None and emitter.inputs.is_waiting

    @property
    def is_released(self) -> bool:
        """Whether another worker continues it."""
        return self._released and not self._lost and not self._has_last_event

    @property
    def has_ended(self) -> bool:
        """Whether this worker wrote its last event."""
        return not self._lost and self._has_last_event

    @property
    def _has_last_event(self) -> bool:
        return self._task is not None and self._task._sink.node.ended  # None until the run is begun

    def begin(self, task: Task) -> None:
        """Set the writer. A claim that was lost meanwhile writes nothing."""
        self._task = task
        self._thread = task.thread_id
        if self._lost:
            self.lose()

    def call(self, agent: AgentFunction) -> None:
        """Start the agent."""
        if not self.is_stopping:
            run = self._run(agent)
            self._agent = asyncio.get_running_loop().create_task(run, name=self.claim.run_id)
            self._agent.add_done_callback(retrieve_error)

    async def _run(self, agent: AgentFunction) -> None:
        task = self.task
        exits.contain(self._exit)
        try:
            with invoke_agent(task):
                await call_agent(agent, task)
            if not self.is_stopping:
                task.complete()
        except StorageError:
            raise
        except (asyncio.CancelledError, GeneratorExit):
            raise
        # Not only `Exception`: asyncio ends the process if a task raises one of `exits.EXITS`.
        except BaseException as error:
            if self._is_from_outside(error):
                raise
            if task._sink.emitter.failure is not None:
                raise task._sink.emitter.failure from None
            task.fail(failure(str(self), error))

    def _exit(self, error: BaseException) -> None:
        """End the run: a task of its agent raised `SystemExit` or `KeyboardInterrupt`."""
        info = failure(str(self), error)
        self._stop_with(lambda task: task.fail(info))

    def take(self, letters: list[InboxLetter]) -> None:
        """Act upon letters. A letter that was seen before changes nothing."""
        for letter in letters:
            self.last_letter = max(self.last_letter, letter.number)
            child = child_in(letter) if letter.kind == "cancel" else None
            if letter.kind == "cancel" and child in (None, self.claim.run_id):
                self.cancel(reason_in(letter))
            elif self._task is not None and self._task._sink.emitter.inputs is not None:
                if child is not None:
                    self._task._sink.emitter.cancel_child(child, reason_in(letter))
                self._task._sink.emitter.inputs.put(letter)

    def cancel(self, reason: str) -> None:
        """Stop the agent, and end the run as cancelled."""
        self._stop_with(lambda task: task.cancel(reason))

    def interrupt(self) -> None:
        """Stop the agent, and end the run as failed, because no other worker can continue it."""
        self._stop_with(lambda task: interrupt(task, STOPPED))

    def _stop_with(self, end: Callable[[Task], None]) -> None:
        if self._end is None:
            self._end = end
            self._stop()

    def release(self) -> None:
        """Stop the agent, and leave the run to another worker."""
        self._released = True
        if self._task is not None:
            self._task._sink.emitter.is_left = True
        self._stop()

    def lose(self) -> None:
        """Write nothing more: the claim is lost."""
        self._lost = True
        if self._task is not None:
            self._task._sink.emitter.fail(SeqConflict(f"{self} has another writer now."))
        self._stop()

    def _stop(self) -> None:
        if self._agent is not None:
            self._agent.cancel()
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self._gave_up.cancel)

    async def finish(self) -> None:
        """Wait for the agent, then write the end of the run."""
        if self._agent is not None:
            await asyncio.wait([self._agent, self._gave_up], return_when=asyncio.FIRST_COMPLETED)
        if self._lost:
            raise SeqConflict(f"{self} has another writer now.")
        if self._end is not None and not self.task._sink.node.ended:
            self._end(self.task)
        elif self._agent is not None and self._agent.done() and not self._agent.cancelled():
            error = self._agent.exception()
            if isinstance(error, GeneratorExit):  # raised by the agent, like any error
                self.task.fail(failure(str(self), error))
            elif error is not None:
                raise error
        elif not self._released and not self.task._sink.node.ended:
            # The agent, or a library that it uses, cancelled the task.
            self.task.fail(AGENT_FAILED)
        await self.task.drain()
        if self.is_released:
            # An agent that continues all the same must not write: the next worker would not know.
            self.task._sink.emitter.fail(SeqConflict("The run was left to another worker."))

    def leave(self) -> None:
        """Drop the agent and the writer with its state: contexts refer to this run for longer.

        The context of the agent's task makes a cycle, which waits for the garbage collector. The
        collector counts objects: few large texts do not wake it. A timer has a context too, and
        asyncio keeps a cancelled timer until it is due: that of a model call for minutes.
        """
        self._agent = self._task = None


def child_in(letter: InboxLetter) -> str | None:
    """The sub-agent that a letter asks to stop; None if it means the run."""
    try:
        found = msgspec.json.decode(letter.body)["task_id"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
    return text_or_none(found)


def reason_in(letter: InboxLetter) -> str:
    """The reason in a cancel letter."""
    try:
        return str(msgspec.json.decode(letter.body)["reason"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return CANCELLED
