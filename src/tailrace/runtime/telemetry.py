"""OpenTelemetry spans and metrics of agents, model calls and tools, by the GenAI conventions.

Without the extra `otel` nothing is recorded. Attributes hold names, ids, counts and error codes,
never texts, arguments or error messages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from tailrace.core.items import ErrorInfo

NAME = "tailrace"


class _Instruments(NamedTuple):
    tracer: Any
    duration: Any
    tokens: Any
    error: Any


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
        meter.create_histogram("gen_ai.client.operation.duration", "s"),
        meter.create_histogram("gen_ai.client.token.usage", "{token}"),
        trace.Status(trace.StatusCode.ERROR),
    )


class Operation:
    """A span that is open, and the attributes of its metrics."""

    __slots__ = ("_made", "_shared", "_span", "failed")

    def __init__(self, made: _Instruments | None, span: Any, shared: dict[str, Any]) -> None:
        self._made = made
        self._span = span
        self._shared = shared
        self.failed: str | None = None

    def fail(self, error: ErrorInfo | str | None) -> None:
        """Mark the operation as failed, by the code of its error; None changes nothing."""
        if error is not None:
            self.failed = error if isinstance(error, str) else error.code

    def used(self, input_tokens: int, output_tokens: int) -> None:
        """Record the tokens of a model call."""
        if self._made is None:
            return
        for kind, count in (("input", input_tokens), ("output", output_tokens)):
            self._span.set_attribute(f"gen_ai.usage.{kind}_tokens", count)
            self._made.tokens.record(count, {**self._shared, "gen_ai.token.type": kind})


@contextmanager
def operation(name: str, subject: str, **attributes: str) -> Iterator[Operation]:
    """A span `name subject`; `__` in the name of an attribute is a dot, after `gen_ai.`."""
    made = _instruments()
    if made is None:
        yield Operation(None, None, {})
        return
    given = {f"gen_ai.{key.replace('__', '.')}": value for key, value in attributes.items()}
    shared = {"gen_ai.operation.name": name}
    if "gen_ai.request.model" in given:
        shared["gen_ai.request.model"] = given["gen_ai.request.model"]
    begun = time.monotonic()
    with made.tracer.start_as_current_span(
        f"{name} {subject}",
        attributes={"gen_ai.operation.name": name, **given},
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
            if found.failed is not None:
                shared["error.type"] = found.failed
                span.set_attribute("error.type", found.failed)
                span.set_status(made.error)
            made.duration.record(time.monotonic() - begun, shared)
