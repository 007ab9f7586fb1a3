"""OpenTelemetry spans and metrics of agents, model calls and tools, by the GenAI conventions.

Runs, model calls, calls and sub-agents are recorded where all agents pass: those that are declared
and those with a loop of their own.

Without the extra `otel` nothing is recorded. Attributes hold names, ids, counts and error codes,
never texts, arguments or error messages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.core.items import ErrorInfo
from tailrace.history import Api
from tailrace.ports import Model

if TYPE_CHECKING:
    from tailrace.runtime.tasks.task import Task

NAME = "tailrace"

# The boundaries of the conventions, "Generative AI client metrics". The SDK's own are for
# milliseconds.
SECONDS = [0.01 * 2**power for power in range(14)]
TOKENS = [4**power for power in range(14)]

PROVIDERS: dict[Api, str] = {
    "openai_responses": "openai",
    "openai_chat": "openai",
    "anthropic_messages": "anthropic",
}
"""`gen_ai.provider.name`, as far as the client knows the provider: by its API."""


class _Instruments(NamedTuple):
    tracer: Any
    duration: Any
    tokens: Any
    error: Any
    client: Any
    """The kind of a span around a request to another service."""


@cache
def _instruments() -> _Instruments | None:
    """The tracer and the meters; None without OpenTelemetry's API."""
    try:
        from opentelemetry import metrics, trace
    except ImportError:
        return None
    meter = metrics.get_meter(NAME)
    return _Instruments(
        trace.get_tracer(NAME),
        meter.create_histogram(
            "gen_ai.client.operation.duration", "s", explicit_bucket_boundaries_advisory=SECONDS
        ),
        meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", explicit_bucket_boundaries_advisory=TOKENS
        ),
        trace.Status(trace.StatusCode.ERROR),
        trace.SpanKind.CLIENT,
    )


class Operation:
    """A span that is open, and the attributes of its metrics."""

    __slots__ = ("_begun", "_made", "_shared", "_span", "failed")

    def __init__(self, made: _Instruments | None, span: Any, shared: dict[str, Any]) -> None:
        self._made = made
        self._span = span
        self._shared = shared
        self._begun = time.monotonic()
        self.failed: str | None = None

    def fail(self, error: ErrorInfo | str | None) -> None:
        """Mark the operation as failed, by the code of its error; None changes nothing."""
        if error is not None:
            self.failed = error if isinstance(error, str) else error.code

    def used(self, input_tokens: int, output_tokens: int) -> None:
        """Record the tokens of a model call, if the provider has counted any."""
        if self._made is None or not input_tokens + output_tokens:
            return
        for kind, count in (("input", input_tokens), ("output", output_tokens)):
            self._span.set_attribute(f"gen_ai.usage.{kind}_tokens", count)
            self._made.tokens.record(count, {**self._shared, "gen_ai.token.type": kind})

    def record(self) -> None:
        """Record the error and the duration; the caller ends the span."""
        if self._made is None:
            return
        if self.failed is not None:
            self._shared["error.type"] = self.failed
            self._span.set_attribute("error.type", self.failed)
            self._span.set_status(self._made.error)
        self._made.duration.record(time.monotonic() - self._begun, self._shared)

    def end(self, error: ErrorInfo | None = None) -> None:
        """End the span of an operation that is not a block."""
        self.fail(error)
        self.record()
        if self._made is not None:
            self._span.end()


def _named(name: str, attributes: dict[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
    """The attributes of a span, and those that its metrics share."""
    given = {f"gen_ai.{key.replace('__', '.')}": value for key, value in attributes.items()}
    given["gen_ai.operation.name"] = name
    shared = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")
    return given, {key: given[key] for key in shared if key in given}


@contextmanager
def operation(name: str, subject: str, **attributes: str) -> Iterator[Operation]:
    """A span `name subject`; `__` in the name of an attribute is a dot, after `gen_ai.`."""
    made = _instruments()
    if made is None:
        yield Operation(None, None, {})
        return
    given, shared = _named(name, attributes)
    kind = {"kind": made.client} if name == "chat" else {}
    with made.tracer.start_as_current_span(
        f"{name} {subject}",
        attributes=given,
        **kind,
        record_exception=False,  # a message may hold a secret
        set_status_on_exception=False,
    ) as span:
        found = Operation(made, span, shared)
        try:
            yield found
        except BaseException as error:
            is_cancel = isinstance(error, asyncio.CancelledError)
            found.fail("cancelled" if is_cancel else type(error).__name__)
            raise
        finally:
            found.record()


def begin(name: str, subject: str, **attributes: str) -> Operation:
    """A span that is not a block: `Operation.end` ends it. Spans inside it are not its children."""
    made = _instruments()
    if made is None:
        return Operation(None, None, {})
    given, shared = _named(name, attributes)
    return Operation(made, made.tracer.start_span(f"{name} {subject}", attributes=given), shared)


@contextmanager
def invoke_agent(task: Task) -> Iterator[None]:
    """The span of an agent at work on a task."""
    name = str(task._sink.node.facts.get("agent") or "")
    about = {"agent__name": name, "agent__id": task.task_id, "conversation__id": task.thread_id}
    with operation("invoke_agent", name, **about) as span:
        yield
        span.fail(task._sink.node.error)


def chat(model: Model) -> dict[str, str]:
    """The attributes of a model call."""
    return {"request__model": model.name, "provider__name": PROVIDERS[model.api]}


def execute_tool(name: str, call_id: str) -> dict[str, str]:
    """The attributes of a tool call."""
    return {"tool__name": name, "tool__call__id": call_id, "tool__type": "function"}
