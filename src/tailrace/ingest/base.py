"""What every ingest is: one model call's stream, written into one task.

    ingest = OpenAIResponses(sink)
    for event in parser.feed(chunk):
        ingest.feed(event.data)
    outcome = ingest.end()

An ingest writes items, their parts and usage. It neither begins nor ends the task: whoever makes
the call reads the `Outcome` and decides what follows. It is pure, and it believes nothing: what it
does not know it keeps raw, and what is cut short ends `incomplete`.

What only history needs stands in the private part of an item's last event, in the same words for
all providers:

* `provider`: `{"api": …, "id": …}`, the provider's own id of the item, and `call_id` where ours is
  another one; the answer that it is part of (`response_id` at OpenAI's Responses, `message_id` at
  Anthropic), so that history knows what belongs together; on `task.usage` `response_id`, `model`.
  Whoever makes the call adds the `host` and the `model` that were asked (`runtime.calling`);
* `encrypted_content` and `signature`: sealed reasoning;
* `raw`: the provider's whole item, where only that can be sent back to it (built-in tools), or
  where it holds more than ours can show. Of a tool that the provider runs it stands on the call;
  on the result, if the call had to be closed before the item was known (images that sharpen).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import msgspec

from tailrace.core import closing
from tailrace.core import events as ev
from tailrace.core.codec import MAX_DEPTH, MAX_EVENT_BYTES, MAX_INTEGER
from tailrace.core.errors import InvalidValue, MalformedEvent, StreamTooLarge
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, Executor, InputRequest, Item
from tailrace.core.state import TaskNode
from tailrace.core.writers import Sink


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a model call ended.

    `completed`: the model said what it had to say, calls included. `incomplete`: it was stopped,
    and `reason` says by what (`max_output_tokens`, `content_filter`, `pause_turn`, …). `failed`:
    the provider reported an error. `cut`: the stream ended without saying so; the call may be made
    again. `cancelled`: somebody stopped it, which only streams of whole runs tell.
    """

    status: Literal["completed", "incomplete", "failed", "cancelled", "cut"]
    reason: str | None = None
    error: ErrorInfo | None = None
    requests: list[InputRequest] = []
    """Approvals that the provider waits for before it goes on."""


class Ingest(Protocol):
    """Reads one provider's stream, event by event."""

    def feed(self, data: str | bytes) -> None:
        """Take the JSON of the next event; `MalformedEvent` if it is none.

        After an error the ingest is as it was before, and may be fed on or ended.
        """
        ...

    def end(self) -> Outcome:
        """The stream is over: close what is still open, and say how the call ended."""
        ...


def server_tools(_name: str) -> Executor:
    """Who carries out a function call, when nobody says otherwise: we do."""
    return "server"


ExecutorOf = Callable[[str], Executor]
"""From a tool's name to who carries it out."""


MOST_BYTES = MAX_EVENT_BYTES - 1024 * 1024
"""What one event of a provider may weigh, so that an event of ours can hold what it brings."""

_DEEPEST = MAX_DEPTH - 8
"""How deep an event may nest: a part of it may be kept raw inside of an item, and has to fit."""

_STOP = ("[DONE]", b"[DONE]")


def is_stop(data: str | bytes) -> bool:
    """Whether this is how a stream of chat completions ends.

    Servers that translate one API into another (LiteLLM, OpenRouter, LM Studio) end all streams so.
    """
    return len(data) < 20 and data.strip() in _STOP


_XAI_TICKS = 1e10
"""How many of xAI's `cost_in_usd_ticks` are a dollar."""


def cost_of(usage: Mapping[str, Any]) -> float | None:
    """What a call cost, in dollars, where a provider's usage tells that (xAI, OpenRouter, …)."""
    ticks = as_number(usage.get("cost_in_usd_ticks"))
    if ticks is not None:
        return ticks / _XAI_TICKS
    cost = usage.get("cost")
    return as_number(cost.get("total_cost") if isinstance(cost, dict) else cost)  # or Perplexity's


def as_number(value: Any) -> float | None:
    """A number that every reader can hold, and that is no truth value."""
    return value if type(value) in (int, float) and 0 <= value <= MAX_INTEGER else None


# What a JSON text may hold that not every store and language can: only then its values are looked
# at. Long digits are mostly in ids; looking is all that it costs.
_ODD = re.compile(r"\\u0000|[0-9]{16}")
_ODD_BYTES = re.compile(rb"\\u0000|[0-9]{16}")


def read_json(data: str | bytes, limit: int = MOST_BYTES) -> dict[str, Any]:
    """An event of a provider: an object whose values any store and language can hold.

    A model may say U+0000, a server may tell its seed in 64 bits, and a proxy may cut an emoji in
    two. The rest of such an event is worth having, so they become U+FFFD, text, and U+FFFD.
    """
    if len(data) > limit:
        raise StreamTooLarge(f"An event of {len(data)} bytes; at most {limit} are read.")
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
        raise MalformedEvent(f"The provider sent no event: {error}") from error
    if not isinstance(value, dict):
        raise MalformedEvent("The provider sent no event: JSON, but no object.")
    return value


def _is_odd(data: str | bytes) -> bool:
    if isinstance(data, str):
        return data.count("{") + data.count("[") >= _DEEPEST or _ODD.search(data) is not None
    return data.count(b"{") + data.count(b"[") >= _DEEPEST or _ODD_BYTES.search(data) is not None


def _refuse(word: str) -> None:
    raise InvalidValue(f"{word} is no JSON.")


def _mended(value: Any, depth: int) -> Any:
    """The value without what not every store and language can hold."""
    if isinstance(value, dict | list) and depth >= _DEEPEST:
        raise InvalidValue(f"JSON nested more than {_DEEPEST} deep.")
    if isinstance(value, dict):
        return {_mended(key, depth): _mended(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        return [_mended(one, depth + 1) for one in value]
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


def keep_raw(sink: Sink, source: str, kind: str, raw: dict[str, Any]) -> None:
    """Keep an event, or what is left of one, that has no name here."""
    event = ev.RawEvent(task_id=sink.task_id, source=source, event_type=kind)
    sink.emit(event, ev.Private(raw=raw))


class Notebook(Sink):
    """A task written outside of any runtime, for tools that only convert.

    It is the root of a run of its own, checked by the fold as any other; `take()` gives what was
    written since the last time.
    """

    def __init__(self, run_id: str = "run_1", **facts: Any) -> None:
        self.state = State()
        self._task_id = run_id
        self._written: list[tuple[ev.Event, ev.Private | None]] = []
        self.emit(ev.TaskCreated(task_id=run_id, **facts))
        self.emit(ev.TaskInProgress(task_id=run_id))

    @property
    def task_id(self) -> str:
        """The task, which is the run's root."""
        return self._task_id

    @property
    def node(self) -> TaskNode:
        """The task as folded so far."""
        return self.state.tasks[self._task_id]

    def emit(self, event: ev.Event, private: ev.Private | None = None) -> None:
        """Fold the event, and keep it."""
        event = ev.recorded(event, self.state.sequence_number + 1)
        self.state.apply(event, private)
        self._written.append((event, private))

    def add(self, item: Item, private: ev.Private | None = None) -> int:
        """Open an item."""
        index = len(self.node.items)
        event = ev.OutputItemAdded(task_id=self._task_id, output_index=index, item=item)
        self.emit(event, private)
        return index

    def done(self, index: int, item: Item, private: ev.Private | None = None) -> None:
        """Close an item."""
        event = ev.OutputItemDone(task_id=self._task_id, output_index=index, item=item)
        self.emit(event, private)

    def new_id(self, prefix: str) -> str:
        """An id made of the run's and the event's number."""
        run = self._task_id.removeprefix("run_")
        return f"{prefix}_{run}_{self.state.sequence_number + 1}"

    def free_call_id(self, wanted: str) -> str:
        """`wanted`, unless the run has such a call."""
        if not self._has_call(wanted):
            return wanted
        ident = self.new_id("call")
        while self._has_call(ident):  # a stream may have chosen it before us
            ident += "_"
        return ident

    def _has_call(self, call_id: str) -> bool:
        return any(call_id in task.calls for task in self.state.tasks.values())

    def knows(self, number: int) -> bool:
        """Nobody issued a reference here."""
        return self.node.knows(number)

    def conclude(self, outcome: Outcome) -> None:
        """End the task as the model call ended."""
        last: ev.Event
        if outcome.status == "failed":
            error = outcome.error or ErrorInfo(
                code="provider_error", message="The provider failed."
            )
            last = ev.TaskFailed(task_id=self._task_id, error=error)
        elif outcome.status == "completed":
            last = ev.TaskCompleted(task_id=self._task_id)
        elif outcome.status == "cancelled":
            last = ev.TaskCancelled(task_id=self._task_id, reason=outcome.reason)
        else:
            last = ev.TaskIncomplete(task_id=self._task_id, reason=outcome.reason or "cut")
        for event in closing.ending(self.node, last):
            self.emit(event)

    def take(self) -> list[tuple[ev.Event, ev.Private | None]]:
        """What was written since the last time."""
        written, self._written = self._written, []
        return written
