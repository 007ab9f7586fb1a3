"""A run as its caller sees it: its events, its result, and the ways to steer it.

run = await app.start("assistant", "Is it sunny in Paris?")
async for event in run.events():
    ...
print((await run.result()).text)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Literal, overload

import msgspec

from tailrace.core.errors import CallerError
from tailrace.core.events import AnyEvent
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, InputRequest, Message, Usage
from tailrace.core.run_object import client_view
from tailrace.core.state import TaskNode, TextNode
from tailrace.history import Load, history, reachable
from tailrace.runtime.agents.handoff import handed_to
from tailrace.runtime.agents.output_types import OutputType
from tailrace.runtime.event_log.whole_state import whole_state
from tailrace.runtime.runs.all_runs import Runs
from tailrace.runtime.tasks.blobs import blob_loader
from tailrace.runtime.tasks.task import Answer
from tailrace.runtime.workers.claimed_run import CANCELLED
from tailrace.wire.agents import FORMAT as AGENTS
from tailrace.wire.agents.events import AgentsEvent, EventReader
from tailrace.wire.projection import usage_of_run

FollowFrames = Callable[[str, str, str | None], AsyncGenerator[bytes, None]]
"""Streams a run in a wire format: the run's id, the format's name, the cursor to continue after."""


def answer_text(task: TaskNode) -> str:
    """The text of a task's last message; empty without a message."""
    messages = [node for node in task.output() if isinstance(node.item, Message)]
    parts = sorted(messages[-1].parts.items()) if messages else []
    return "".join(
        part.text for _, part in parts if isinstance(part, TextNode) and part.kind == "text"
    )


class Result:
    """The end of a run: its status and its answer."""

    def __init__(
        self,
        state: State,
        typed: Callable[[Any], Any] | None = None,
        load: Load = reachable,
    ) -> None:
        self._state = state
        self._typed = typed
        self._load = load
        assert state.root is not None, "A run has a root."
        self._root = state.root

    def __repr__(self) -> str:
        """The status, why it is so, and the text, for people."""
        why = f", reason={self.reason!r}" if self.reason else ""
        if self.error is not None:
            why += f", error={self.error.code!r}"
        return f"Result(status={self.status!r}{why}, text={self.text!r})"

    @property
    def status(self) -> str:
        """`completed`, `incomplete`, `failed` or `cancelled`."""
        return str(self._root.status)

    @property
    def text(self) -> str:
        """The text of the last message; empty without a message."""
        return answer_text(self._root)

    @property
    def output(self) -> Any:
        """The structured output, of the agent's `output` type if it has one; None without any."""
        found = self._root.structured_output
        if found is None or self._typed is None:
            return found["value"] if found is not None else None
        return self._typed(found["value"])

    @property
    def usage(self) -> Usage:
        """What the model calls of the run used, those of sub-agents included."""
        found = usage_of_run(self._state)
        return msgspec.convert(found, Usage) if found is not None else Usage()

    @property
    def error(self) -> ErrorInfo | None:
        """Why the run failed."""
        return self._root.error

    @property
    def reason(self) -> str | None:
        """Why the run is incomplete or cancelled."""
        return self._root.reason

    @property
    def object(self) -> dict[str, Any]:
        """The run as its clients see it (PROTOCOL.md, section 5)."""
        return client_view(self._state)

    @property
    def items(self) -> list[dict[str, Any]]:
        """The items of the run: reasoning, calls, results, messages."""
        found: list[dict[str, Any]] = self.object["output"]
        return found

    def to_input_list(self) -> list[dict[str, Any]]:
        """The run's input and output as items of the Responses API, for the next request.

        Large images and files that the model read are in it with their bytes.
        """
        return history([self._state], "openai_responses", load=self._load).items


class Run:
    """One run of an agent; it lives on when this object is dropped."""

    def __init__(self, runs: Runs, run_id: str, thread_id: str, frames: FollowFrames) -> None:
        self._runs = runs
        self._frames = frames
        self.id = run_id
        self.thread_id = thread_id

    def __repr__(self) -> str:
        """The id, for people."""
        return f"Run({self.id!r})"

    @overload
    def events(self, *, after: int = 0) -> AsyncIterator[AnyEvent]: ...
    @overload  # the next overload takes any name: every other format is bytes
    def events(  # type: ignore[overload-overlap]
        self, format: Literal["agents"], *, after: str | None = None
    ) -> AsyncIterator[AgentsEvent]: ...
    @overload
    def events(self, format: str, *, after: str | None = None) -> AsyncIterator[bytes]: ...
    def events(
        self, format: str | None = None, *, after: int | str | None = None
    ) -> AsyncIterator[Any]:
        """The run's events until its end, from the first or after a place.

        Without a format they are typed, and `after` is a `sequence_number`. With a format, such as
        `openai-responses`, they are server-sent events as bytes, and `after` is the `id` of a
        frame. The events of the format `agents` are typed too.
        """
        if format is not None:
            frames = self._frames(self.id, format, None if after is None else str(after))
            return _typed(frames) if format == AGENTS.name else frames
        if not isinstance(after, int | None):
            raise CallerError(f"`after` must be a sequence number, not {after!r}.", param="after")
        return self._events(after or 0)

    async def _events(self, after: int) -> AsyncIterator[AnyEvent]:
        async for batch in self._runs.follow(self.id, after):
            for recorded in batch:
                yield recorded.event

    async def result(self) -> Result:
        """Wait for the end of the run. A run that failed has an `error`; nothing is raised."""
        info = await self._runs.info(self.id)
        last = info.last_seq
        async for batch in self._runs.follow(self.id, last):
            last = batch[-1].event.sequence_number if batch else last
        state = await whole_state(self._runs.store, self.id, last)
        agent = self._runs.agents.get(str(state.root.facts.get("agent")) if state.root else "")
        if state.root is not None and state.root.switches and hasattr(agent, "tools"):
            agent = handed_to(agent, state.root.speaker)
        kind = getattr(agent, "output", None)
        typed = kind.typed if isinstance(kind, OutputType) else None
        return Result(state, typed, await blob_loader(self._runs.store, info.owner, [state]))

    async def requests(self) -> list[InputRequest]:
        """The requests that the run, or a sub-agent in it, waits for."""
        state = await self._runs.state(self.id)
        return [request for _, request in state.requests()]

    async def send(self, answer: Any) -> None:
        """Answer what the run asks, or hand it any JSON that its agent receives.

        An `Answer` names its request. Any other value answers the only question that is pending:
        True or False an approval, anything else a question. With no question pending it is
        passed on as it is.
        """
        if isinstance(answer, Answer):
            answer = {"value": answer.value, **msgspec.to_builtins(answer)}
        elif not (isinstance(answer, dict) and "request_id" in answer):
            answer = await self._addressed(answer)
        await self._runs.send(self.id, answer)

    async def _addressed(self, value: Any) -> Any:
        pending = await self.requests()
        if len(pending) > 1:
            names = ", ".join(request.id for request in pending)
            raise CallerError(
                f"Run {self.id} waits for {names}: send an `Answer` with its `request_id`."
            )
        if not pending:
            return value
        field = "approved" if pending[0].kind == "approval" else "value"
        if field == "approved" and not isinstance(value, bool):
            raise CallerError(f"Request {pending[0].id} is an approval: send True or False.")
        return {"request_id": pending[0].id, field: value}

    async def cancel(self, reason: str | None = None, *, task_id: str | None = None) -> None:
        """End the run, wherever it is worked on; its output is kept.

        `task_id` names a sub-agent that is ended alone: the run goes on, and its model reads it.
        """
        reason = CANCELLED if reason is None else reason
        if task_id is None or task_id == self.id:
            await self._runs.cancel(self.id, reason)
        else:
            await self._runs.cancel_child(self.id, task_id, reason)


async def _typed(frames: AsyncGenerator[bytes, None]) -> AsyncIterator[AgentsEvent]:
    """The events in the bytes of the format `agents`."""
    reader = EventReader()
    async with aclosing(frames):
        async for piece in frames:
            for event in reader.feed(piece):
                yield event
