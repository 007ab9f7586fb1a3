"""One try of a model call: the sink between the provider's stream and the task.

It notes which items the try wrote, its cost and its latency. The first item of a retry
supersedes the items of the failed tries before it. If a retry fails without an item, clients keep
what they have seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tailrace.core import events as ev
from tailrace.core.event_sink import Sink, StateSink
from tailrace.core.items import Item, Message, Reasoning, ToolCall, Usage
from tailrace.core.values import dict_of
from tailrace.ports import Model, host_of

TURN = "turn"
"""In `provider` of an item and of its usage: which try of the task wrote them."""

NeedsApproval = Callable[[ToolCall], bool]
"""Whether people may be asked before a call starts."""


def never(_call: ToolCall) -> bool:
    """No call needs approval (the default)."""
    return False


_EMPTY = (
    ev.ImageAdded,
    ev.Progress,
    ev.RawEvent,
    ev.ReasoningTextAdded,
    ev.RefusalAdded,
    ev.SummaryItemAdded,
    ev.TextAdded,
)
"""Events that come before the first token."""


class TrySink(Sink):
    """Passes the events of a try to the task, and notes its items, cost and latency."""

    def __init__(
        self,
        inner: StateSink,
        model: Model,
        now: Callable[[], float],
        needs_approval: NeedsApproval,
        turn: int,
    ) -> None:
        self._inner = inner
        self._needs_approval = needs_approval
        self.has_whole = False
        """Whether a complete message or call was written, which must not come twice."""
        self.made: list[str] = []
        """The items of this try, finished or cut short."""
        self.lost: list[str] = []
        """The items of failed tries that are still shown."""
        self._reason = ""
        self._model = model
        host = host_of(model)
        self._asked: dict[str, Any] = {"model": model.name, TURN: turn}
        if host is not None:
            self._asked["host"] = host
        self._is_marked = False
        self._now = now
        self._began = now()
        self._first_token: float | None = None

    @property
    def task_id(self) -> str:
        """The task that is written."""
        return self._inner.task_id

    def emit(self, event: ev.Event, private: ev.Private | None = None) -> None:
        """Emit an event, with the cost and the latency if it is the usage."""
        if isinstance(event, ev.TaskUsage):
            event = msgspec.structs.replace(event, usage=self._counted(event.usage))
            self._is_marked = private is not None and private.provider is not None
        elif not isinstance(event, _EMPTY):
            self._token()
        self._inner.emit(event, self._placed(private))

    def replaces(self, lost: list[str], reason: str) -> None:
        """Supersede the items of failed tries with the first item of this try."""
        self.lost, self._reason = lost, reason

    def supersede(self) -> None:
        """Supersede the items of failed tries."""
        lost, self.lost = self.lost, []
        if lost:
            self._inner.emit(
                ev.TaskAttempt(
                    task_id=self.task_id,
                    attempt=self._inner.node.next_attempt,
                    reason=self._reason,
                    superseded=lost,
                )
            )

    def mark_end(self) -> None:
        """Record that this try was the last, if it has an item that counts and no usage.

        A worker that takes the run over keeps the turn then.
        """
        if self.has_whole and not self._is_marked:
            known = dict_of(self._inner.node.private.get("provider"))
            provider = {**known, TURN: self._asked[TURN]}
            event = ev.RawEvent(task_id=self.task_id, source="tailrace", event_type="turn.ended")
            self._inner.emit(event, ev.Private(provider=provider))

    def _placed(self, private: ev.Private | None) -> ev.Private | None:
        """Add the turn, the model and its host: history sends private parts to no other."""
        if private is None or private.provider is None:
            return private
        return msgspec.structs.replace(private, provider={**self._asked, **private.provider})

    def _counted(self, usage: Usage) -> Usage:
        cost = self._model.cost(usage) if usage.cost is None else usage.cost
        if usage.latency_ms is not None:  # usage of an inner call, which has its own latency
            return msgspec.structs.replace(usage, cost=cost)
        first = self._first_token
        return msgspec.structs.replace(
            usage,
            cost=cost,
            latency_ms=_milliseconds(self._now() - self._began),
            time_to_first_token_ms=None if first is None else _milliseconds(first - self._began),
        )

    def add(self, item: Item, private: ev.Private | None = None) -> int:
        """Begin an item. The first item supersedes those of failed tries."""
        if not isinstance(item, Message | Reasoning):  # these are empty, but a call has its name
            self._token()
        self.supersede()
        return self._inner.add(self._marked(item), self._placed(private))

    def _marked(self, item: Item) -> Item:
        if isinstance(item, ToolCall) and item.executor == "server" and self._needs_approval(item):
            return msgspec.structs.replace(item, needs_approval=True)
        return item

    def _token(self) -> None:
        if self._first_token is None:
            self._first_token = self._now()

    def done(self, index: int, item: Item, private: ev.Private | None = None) -> None:
        """End an item, and note it."""
        self._inner.done(index, self._marked(item), self._placed(private))
        self.made.append(item.id)
        if item.status != "incomplete" and isinstance(item, Message | ToolCall):
            self.has_whole = True

    def new_id(self, prefix: str) -> str:
        """An id that no other item of the run has."""
        return self._inner.new_id(prefix)

    def free_call_id(self, wanted: str) -> str:
        """`wanted`, or another call id if the conversation has it already."""
        return self._inner.free_call_id(wanted)

    def waiting_call(self, provider_id: str) -> str | None:
        """Our id of an earlier call that the provider carries out, and that has no result."""
        return self._inner.waiting_call(provider_id)

    def knows(self, number: int) -> bool:
        """Whether the task's pool issued this reference number."""
        return self._inner.knows(number)


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
