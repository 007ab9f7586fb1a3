"""Calls a model: timeouts, retries, cost and latency.

    outcome = await call_model(model, Request(chain=[first, current]), task)

A provider's errors never raise: the `Outcome` reports them. A failed try is repeated if that can
help, and each retry is shown as a notice. If a stream breaks off, the first item of a retry
supersedes its items (`task.attempt`), so they leave the object. A retry never sends these items to
the model. If every retry fails, the items stay and the error follows. An answer with a complete
message or call is not requested again: it would be written, or done, twice. It ends `cut`, and the
caller decides how to continue. If history leaves something out, a notice shows it once per
conversation.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from copy import copy
from functools import partial
from types import TracebackType
from typing import Self

import msgspec

from tailrace.core import events as ev
from tailrace.core.codec import check_value
from tailrace.core.errors import (
    FirstEventTimeout,
    IdleTimeout,
    InvalidValue,
    ProviderError,
    StateLost,
    StreamError,
)
from tailrace.core.event_sink import Sink, StateSink
from tailrace.core.items import ErrorInfo, Message, ToolCall
from tailrace.core.sse import DONE
from tailrace.core.state import TextNode
from tailrace.history import Api, reachable
from tailrace.ingest.anthropic_messages.reader import AnthropicMessages
from tailrace.ingest.base import ExecutorOf, Ingest, Notebook, Outcome, server_tools
from tailrace.ingest.openai_chat.reader import OpenAIChat
from tailrace.ingest.openai_responses.reader import OpenAIResponses
from tailrace.ports import Model, Request
from tailrace.runtime.diagnostics.telemetry import chat, operation
from tailrace.runtime.model_calls.request_check import check_request
from tailrace.runtime.model_calls.try_sink import NeedsApproval, TrySink, never
from tailrace.runtime.tasks.blobs import blob_loader
from tailrace.runtime.tasks.task import Task
from tailrace.runtime.tasks.task_sink import TaskSink

CODES = {
    **dict.fromkeys(("overloaded_error", "overloaded", "slow_down", "529", "503"), "overloaded"),
    **dict.fromkeys(("rate_limit_error", "rate_limit_exceeded", "429"), "rate_limited"),
    **dict.fromkeys(
        ("api_error", "server_error", "internal_server_error", "500", "502"), "provider_failed"
    ),
    **dict.fromkeys(("timeout_error", "504"), "timeout"),
}
"""Temporary errors that providers report inside a stream, and our codes for them."""

HISTORY_NOTE = "history_note"
"""The code of a notice about something that history leaves out."""

INGESTS: dict[Api, Callable[[Sink, ExecutorOf], Ingest]] = {
    "openai_responses": OpenAIResponses,
    "openai_chat": OpenAIChat,
    "anthropic_messages": AnthropicMessages,
}
"""The reader of each API's events."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait for a provider, in seconds, and how often to retry."""

    first_event: float = 300.0
    """From the request to the first event: a model may think before it answers."""
    idle: float = 120.0
    """Between two events of an answer, keep-alives included."""
    retries: int = 3
    """How often a failed call is made again."""
    first_wait: float = 0.5
    """Before the first retry, if the provider names no time; doubled for each retry."""
    longest_wait: float = 60.0
    """The longest wait before a retry, even if the provider asks for more."""

    def __post_init__(self) -> None:
        """Refuse negative and infinite values."""
        for name in self.__struct_fields__:
            if not 0 <= getattr(self, name) < math.inf:
                value = getattr(self, name)
                raise InvalidValue(f"Patience({name}={value!r}): write a number from 0 up.")

    def wait(self, retry: int, asked: float | None) -> float:
        """Seconds before retry number `retry`, with jitter so that clients spread."""
        if asked:  # 0 is usually a date that is past by our clock alone
            return min(asked, self.longest_wait)
        spread = random.uniform(0.75, 1.25)  # noqa: S311
        return min(self.first_wait * 2.0 ** (retry - 1) * spread, self.longest_wait)


PATIENT = Patience()

Drain = Callable[[], Awaitable[None]]


async def call_model(
    model: Model,
    request: Request,
    task: Task | Notebook,
    *,
    executor_of: ExecutorOf = server_tools,
    needs_approval: NeedsApproval = never,
    patience: Patience = PATIENT,
    drain: Drain | None = None,
    now: Callable[[], float] = time.monotonic,
    emit_output: bool = True,
) -> Outcome:
    """Call the model, and write its answer into the task; returns how it ended after all tries.

    `needs_approval` marks the calls that people may be asked for.
    `drain` is awaited after each event of the answer, so that a fast provider waits for the log.
    With `emit_output=False` the caller checks and emits the structured output itself.
    A request that no provider accepts raises `InvalidRequest`, and nothing is sent.
    """
    check_request(request)
    sink: StateSink = task._sink if isinstance(task, Task) else task
    used = _tokens(sink)
    with operation("chat", model.name, **chat(model)) as span:
        watch = partial(TrySink, sink, model, now, needs_approval)
        outcome = await _call(
            model, request, sink, watch, executor_of, patience, drain, emit_output
        )
        span.fail(outcome.error)
        after = _tokens(sink)
        span.used(after[0] - used[0], after[1] - used[1])
    return outcome


def _tokens(sink: StateSink) -> tuple[int, int]:
    """The input and output tokens of a task so far, without its sub-agents."""
    return sink.node.own_count("input_tokens"), sink.node.own_count("output_tokens")


async def _call(
    model: Model,
    request: Request,
    sink: StateSink,
    watch: Callable[[int], TrySink],
    executor_of: ExecutorOf,
    patience: Patience,
    drain: Drain | None,
    emit_output: bool,
) -> Outcome:
    """`call_model`, with the tries that it takes."""
    request = msgspec.structs.replace(request, note=_Notes(sink, request).show)
    if request.load is reachable and request.chain and isinstance(sink, TaskSink):
        blobs, owner = sink.emitter.blobs, sink.emitter.owner
        load = await blob_loader(blobs, owner, request.chain, request.task_id)
        request = msgspec.structs.replace(request, load=load)
    lost, reason = list[str](), ""
    for retry in range(1, patience.retries + 2):
        first = len(sink.node.items)
        watched = watch(first)
        watched.replaces(lost, reason)
        ingest = INGESTS[model.api](watched, executor_of)
        stream = model.stream(_without(request, sink.task_id, lost))
        outcome = await _one_try(stream, ingest, patience, drain)
        passing = outcome.status == "cut" or (
            outcome.error is not None and outcome.error.code in _PASSING
        )
        if not passing or watched.has_whole or retry > patience.retries:
            if outcome.error is None and outcome.status != "cut":
                watched.supersede()
            watched.mark_end()
            if request.output is not None and emit_output and outcome.status == "completed":
                _emit_output(sink, request.output.name, first)
            return outcome
        error = outcome.error or ErrorInfo(code="cut", message="The stream broke off.")
        seconds = patience.wait(retry, error.retry_after)
        sink.emit(
            ev.Notice(
                task_id=sink.task_id,
                level="warning",
                message=f"{error.message} Trying again in {seconds:.1f} s.",
                data={"code": error.code, "retry": retry, "wait_seconds": round(seconds, 3)},
            )
        )
        await asyncio.sleep(seconds)
        lost, reason = [*watched.lost, *watched.made], error.code
        # If the provider lost its stored response, send the whole conversation.
        mode = "drop" if error.code == StateLost.code else request.history
        request = msgspec.structs.replace(request, history=mode, attempt=request.attempt + 1)
    raise AssertionError("the last try returns")


def _without(request: Request, task_id: str, items: list[str]) -> Request:
    """A request that does not contain these items of the task, which are of failed tries."""
    if not items or not request.chain or task_id not in request.chain[-1].tasks:
        return request
    state = copy(request.chain[-1])
    task = copy(state.tasks[task_id])
    task.items = {index: node for index, node in task.items.items() if node.id not in items}
    state.tasks = {task_id: task}  # a state that is freed takes its tasks from their parents
    if task.parent is None:
        state.root = task
    return msgspec.structs.replace(request, chain=[*request.chain[:-1], state])


_PASSING = frozenset(  # codes of errors after which a retry may succeed
    {
        "cut",
        "malformed_event",
        "connect_timeout",
        "first_event_timeout",
        "idle_timeout",
        "state_lost",
    }
    | set(CODES.values())
)


def _emit_output(sink: StateSink, name: str, first: int) -> None:
    """Emit the last message of the items from `first` on as a JSON value.

    An answer with calls is not final, so it is skipped. So is a text that is not JSON.
    """
    nodes = [node for index, node in sorted(sink.node.items.items()) if index >= first]
    calls = (node.item for node in nodes if isinstance(node.item, ToolCall))
    messages = [node for node in nodes if isinstance(node.item, Message)]
    if not messages or any(call.executor != "provider" for call in calls):
        return
    if sink.node.structured_output is not None:  # rule `output-once`
        return
    parts = (part for _, part in sorted(messages[-1].parts.items()))
    texts = (part.text for part in parts if isinstance(part, TextNode) and part.kind == "text")
    try:
        value = msgspec.json.decode("".join(texts))
        check_value(value)
    except (msgspec.DecodeError, InvalidValue):
        return
    sink.emit(ev.StructuredOutputDone(task_id=sink.task_id, value=value, name=name))


async def _one_try(
    stream: AsyncIterator[list[str]], ingest: Ingest, patience: Patience, drain: Drain | None
) -> Outcome:
    error: ErrorInfo | None = None
    try:
        await _read(stream, ingest.feed, patience, drain)
    except ProviderError as raised:
        error = ErrorInfo(code=raised.code, message=str(raised), retry_after=raised.retry_after)
    except StreamError as raised:
        # The rest of a stream after a malformed event cannot be trusted.
        error = ErrorInfo(code="malformed_event", message=str(raised)[:300])
    outcome = ingest.end()
    if outcome.status == "cut":
        if error is None:
            error = ErrorInfo(code="cut", message="The provider's stream broke off.")
        broke = error.code in ("cut", "malformed_event")
        return msgspec.structs.replace(outcome, status="cut" if broke else "failed", error=error)
    if outcome.error is not None:
        code = CODES.get(outcome.error.code, outcome.error.code)
        return msgspec.structs.replace(
            outcome, error=msgspec.structs.replace(outcome.error, code=code)
        )
    return outcome


async def _read(
    stream: AsyncIterator[list[str]],
    feed: Callable[[str], None],
    patience: Patience,
    drain: Drain | None,
) -> None:
    """Feed all events of a try, within the time limits."""
    now = asyncio.get_running_loop().time
    first_by = now() + patience.first_event
    begun = False
    alarm: _Alarm | None = None
    try:
        async with _Alarm(first_by, patience.idle) as alarm:
            while True:
                alarm.by = now() + patience.idle if begun else first_by
                events = await anext(stream, None)
                alarm.by = math.inf  # the log may take longer
                if events is None:
                    return
                for event in events:
                    begun = True
                    feed(event)
                    if event == DONE:
                        return
                if drain is not None:
                    await drain()
    except TimeoutError:
        if alarm is None or not alarm.expired:
            raise
        if begun:
            message = f"The provider sent nothing for {patience.idle:g} s."
            raise IdleTimeout(message) from None
        message = f"The provider sent no event within {patience.first_event:g} s."
        raise FirstEventTimeout(message) from None
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()  # closes the connection now, not at garbage collection


class _Alarm:
    """A timeout whose time may be set for each event of a stream, at the cost of an assignment.

    An `asyncio.timeout` for each event would cost about as much as the rest of an event's way. The
    time is never set to less than `least` seconds from now.
    """

    def __init__(self, by: float, least: float) -> None:
        self.by = by
        """When the block is cancelled, in the event loop's time; inf: not now."""
        self._least = max(least, 0.01)  # not to look all the time
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def expired(self) -> bool:
        """Whether the alarm, and not the block, raised the `TimeoutError`."""
        return self._timeout.expired()

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._look()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _look(self) -> None:
        """Ring, or look again when the time may have come."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self.by:
            self._timeout.reschedule(self.by)
        else:
            # `by` may become earlier meanwhile, as after the first event.
            self._timer = loop.call_at(min(self.by, loop.time() + self._least), self._look)


class _Notes:
    """Shows what history leaves out, once per conversation.

    Each try builds the history again, usually with the same gaps.
    """

    def __init__(self, sink: StateSink, request: Request) -> None:
        self._sink = sink
        self._tasks = [sink.node]
        if request.task_id is None:
            self._tasks += [state.root for state in request.chain if state.root is not None]

    def show(self, note: str) -> None:
        data = {"code": HISTORY_NOTE}
        for task in self._tasks:
            if any(
                notice["message"] == note and notice.get("data") == data for notice in task.notices
            ):
                return
        self._sink.emit(ev.Notice(task_id=self._sink.task_id, message=note, data=data))
