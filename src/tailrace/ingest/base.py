"""The contract of an ingest: it writes the stream of a model call into a task.

    ingest = OpenAIResponses(sink)
    for event in parser.feed(chunk):
        ingest.feed(event.data)
    outcome = ingest.end()

An ingest writes items, their parts and usage. It neither begins nor ends the task: the caller
reads the `Outcome` and decides. It is pure. Unknown events are kept raw, and items that are cut
end `incomplete`.

The private part of an item's last event holds what history needs, with the same names for all
providers:

* `provider`: `{"api": …, "id": …}`, the provider's id of the item, and its `call_id` where ours
  differs. Also the id of its answer: `response_id` in OpenAI's Responses, `message_id` in
  Anthropic's Messages. On `task.usage`: `response_id` and `model`. `runtime.model_calls` adds the
  `host` and the `model` of the request.
* `encrypted_content` and `signature`: sealed reasoning.
* `raw`: the provider's whole item, where only that can be sent back to it (built-in tools), or
  where it holds more than ours can show. For a tool that the provider runs, the call has it. If
  the call had to be closed before the item was known (partial images), the result has it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import msgspec

from tailrace.core import closing_events
from tailrace.core import events as ev
from tailrace.core.codec import MAX_DEPTH, MAX_EVENT_BYTES, MAX_INTEGER
from tailrace.core.errors import InvalidValue, MalformedEvent, StreamTooLarge
from tailrace.core.event_sink import Sink, StateSink
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, Executor, InputRequest
from tailrace.core.sse import DONE
from tailrace.core.values import number_of


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a model call ended.

    `completed`: the answer is complete, calls included. `incomplete`: the model was stopped, by
    `reason` (`max_output_tokens`, `content_filter`, `pause_turn`, …). `failed`: the provider
    reported an error. `cut`: the stream broke off; the call may be made again. `cancelled`: the
    run was stopped, which only streams of whole runs report.
    """

    status: Literal["completed", "incomplete", "failed", "cancelled", "cut"]
    reason: str | None = None
    error: ErrorInfo | None = None
    requests: list[InputRequest] = []
    """Approvals that the provider waits for before it goes on."""


class Ingest(Protocol):
    """Reads the stream of a provider, event by event."""

    def feed(self, data: str | bytes) -> None:
        """Take the JSON of the next event; raise `MalformedEvent` if it is not an event.

        An error changes nothing: the ingest can take the next event, or end.
        """
        ...

    def end(self) -> Outcome:
        """End the stream: close open items and return the outcome."""
        ...


def server_tools(_name: str) -> Executor:
    """The default executor of function calls: the server."""
    return "server"


ExecutorOf = Callable[[str], Executor]
"""From the name of a tool to its executor."""


MOST_BYTES = MAX_EVENT_BYTES - 1024 * 1024
"""The limit of a provider's event in bytes, so that an event of ours can hold it."""

_LONGEST_TYPE = 200
"""How much of an unknown event's type clients see."""

_DEEPEST = MAX_DEPTH - 8
"""The limit of nesting: a part of the event may be kept inside of an item."""

_STOP = (DONE, DONE.encode())


def is_stop(data: str | bytes) -> bool:
    """Whether this is `[DONE]`, the end of a stream of chat completions.

    LiteLLM, OpenRouter and LM Studio end the streams of other APIs with it, too.
    """
    return len(data) < 20 and data.strip() in _STOP


_XAI_TICKS = 1e10
"""How many of xAI's `cost_in_usd_ticks` are a dollar."""


def cost_of(usage: Mapping[str, Any]) -> float | None:
    """The cost of a call in dollars, where the usage has it (xAI, OpenRouter, …)."""
    ticks = number_of(usage.get("cost_in_usd_ticks"))
    if ticks is not None:
        return ticks / _XAI_TICKS
    cost = usage.get("cost")
    return number_of(cost.get("total_cost") if isinstance(cost, dict) else cost)  # or Perplexity's


# Signs of values that some stores and languages cannot hold: only then the values are checked.
_ODD = re.compile(r"\\u0000|[0-9]{16}")
_ODD_BYTES = re.compile(rb"\\u0000|[0-9]{16}")


def read_json(data: str | bytes, limit: int = MOST_BYTES) -> dict[str, Any]:
    """Decode an event: an object whose values any store and language can hold.

    U+0000 and half of a surrogate pair become U+FFFD; integers beyond 53 bits become text.
    """
    if len(data) > limit:
        raise StreamTooLarge(
            f"The provider sent an event of {len(data)} bytes; the limit is {limit}."
        )
    try:
        try:
            value = msgspec.json.decode(data)
            odd = _is_odd(data)
        except msgspec.DecodeError:
            value = json.loads(data, parse_constant=_refuse)  # it takes half of a surrogate pair
            odd = True
        if odd:
            value = _mended(value, 0)
    except (ValueError, RecursionError, InvalidValue) as error:
        raise MalformedEvent(
            f"The provider sent data that is not a JSON object: {error}"
        ) from error
    if not isinstance(value, dict):
        raise MalformedEvent(
            f"The provider sent JSON that is not an object: {type(value).__name__}."
        )
    return value


def _is_odd(data: str | bytes) -> bool:
    if isinstance(data, str):
        return data.count("{") + data.count("[") >= _DEEPEST or _ODD.search(data) is not None
    return data.count(b"{") + data.count(b"[") >= _DEEPEST or _ODD_BYTES.search(data) is not None


def _refuse(word: str) -> None:
    raise InvalidValue(f"{word} is not JSON.")


def _mended(value: Any, depth: int) -> Any:
    """The value with replacements for what some stores and languages cannot hold."""
    if isinstance(value, dict | list) and depth >= _DEEPEST:
        raise InvalidValue(f"JSON nested more than {_DEEPEST} deep.")
    if isinstance(value, dict):
        return {_mended(key, depth): _mended(member, depth + 1) for key, member in value.items()}
    if isinstance(value, list):
        return [_mended(member, depth + 1) for member in value]
    return _mended_text(value) if isinstance(value, str) else _mended_number(value)


def _mended_text(text: str) -> str:
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\x00", "\ufffd")


def _mended_number(value: Any) -> Any:
    if isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def refuse_second_run(first: str, run_id: str) -> None:
    """Raise `MalformedEvent` if an event is of another run than the first of its stream."""
    if first and run_id and run_id != first:
        raise MalformedEvent(
            f"The stream has a second run ({run_id!r}); convert one run at a time."
        )


def keep_raw(sink: Sink, source: str, kind: str, raw: dict[str, Any]) -> None:
    """Keep an event in the private part of `task.raw`; its type may be of any length."""
    event = ev.RawEvent(task_id=sink.task_id, source=source, event_type=kind[:_LONGEST_TYPE])
    sink.emit(event, ev.Private(raw=raw))


class Notebook(StateSink):
    """A task without a runtime, for tools that only convert.

    It is the root of its own run, checked by the fold. `take()` returns the events since the last
    call.
    """

    def __init__(self, run_id: str = "run_1", **facts: Any) -> None:
        super().__init__(State(), run_id, run_id)
        self._written: list[tuple[ev.Event, ev.Private | None]] = []
        self.emit(ev.TaskCreated(task_id=run_id, **facts))
        self.emit(ev.TaskInProgress(task_id=run_id))

    def emit(self, event: ev.Event, private: ev.Private | None = None) -> None:
        """Fold the event, and keep it."""
        event = ev.recorded(event, self.state.sequence_number + 1)
        self.state.apply(event, private)
        self._written.append((event, private))

    def conclude(self, outcome: Outcome) -> None:
        """End the task as the model call ended."""
        last: ev.Event
        if outcome.status == "failed":
            error = outcome.error or ErrorInfo(
                code="provider_error", message="The provider failed."
            )
            last = ev.TaskFailed(task_id=self.task_id, error=error)
        elif outcome.status == "completed":
            last = ev.TaskCompleted(task_id=self.task_id)
        elif outcome.status == "cancelled":
            last = ev.TaskCancelled(task_id=self.task_id, reason=outcome.reason)
        else:
            last = ev.TaskIncomplete(task_id=self.task_id, reason=outcome.reason or "cut")
        for event in closing_events.ending(self.node, last):
            self.emit(event)

    def take(self) -> list[tuple[ev.Event, ev.Private | None]]:
        """Return the events since the last call."""
        written, self._written = self._written, []
        return written
