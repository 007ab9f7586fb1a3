"""The items of one response, and which of them an event speaks of.

What belongs together is told by `item_id`, which may be the call's where items have none
(llama.cpp), and by `output_index` where the id is unknown (GitHub Copilot gives every event a new
one) or stands for two items. A delta without an item implies one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tailrace.core.items import InputRequest
from tailrace.core.writers import Sink
from tailrace.ingest.base import MOST_BYTES, ExecutorOf
from tailrace.ingest.openai_calls import CallSlot
from tailrace.ingest.openai_items import MessageSlot, RawSlot, ReasoningSlot, Slot
from tailrace.ingest.openai_parts import Json
from tailrace.ingest.openai_tools import is_call
from tailrace.ingest.openai_values import API, as_index, as_word


def place(event: Json) -> tuple[Any, Any]:
    """Which item an event speaks of: by its id or its call's, and by where it stands."""
    item_id = event.get("item_id")
    return event.get("call_id") if item_id is None else item_id, event.get("output_index")


class Output:
    """What a response has put out so far."""

    def __init__(self, sink: Sink, executor_of: ExecutorOf) -> None:
        self._sink = sink
        self._executor_of = executor_of
        self.origin: Json = {"api": API}
        """What history has to know of the response, shared by its items: who made them, when."""
        self._slots: list[Slot] = []
        self._by_id: dict[str, Slot | None] = {}
        self._by_index: dict[int, Slot] = {}
        self._by_call: dict[str, Slot | None] = {}

    def __bool__(self) -> bool:
        """Whether there is any item."""
        return bool(self._slots)

    @property
    def _calls(self) -> list[CallSlot]:
        return [slot for slot in self._slots if isinstance(slot, CallSlot)]

    @property
    def requests(self) -> list[InputRequest]:
        """The approvals that the provider waits for."""
        return [slot.request for slot in self._calls if slot.request is not None]

    @property
    def has_truncated_call(self) -> bool:
        """Whether a call is wanted that lacks its name or the end of its arguments."""
        return any(slot.is_truncated for slot in self._calls)

    # --- which item ----------------------------------------------------------------------------

    def find(self, item_id: Any, index: Any) -> Slot | None:
        """The item with this id, or of this call, else the last one at this place."""
        slot = None
        if isinstance(item_id, str):
            slot = (self._by_id if item_id in self._by_id else self._by_call).get(item_id)
        if slot is None and type(index) is int:
            slot = self._by_index.get(index)
        return slot

    def is_over(self, event: Json) -> bool:
        """Whether an event only repeats something of an item that has ended."""
        slot = self.find(*place(event))
        return slot is not None and not slot.is_open

    def slot(self, item_type: str, item_id: Any, index: Any) -> Slot | None:
        """The open item that an event speaks of, made if need be; None if it cannot be."""
        slot = self.find(item_id, index)
        if slot is None and not isinstance(item_id, str) and as_index(index) is None:
            slot = self.latest(item_type)
        if slot is not None and slot.is_open and slot.item_type == item_type:
            return slot
        if slot is None or (isinstance(item_id, str) and not self._is_named(item_id)):
            return self._new(item_type, as_word(item_id), as_index(index))
        return None

    def _is_named(self, ident: str) -> bool:
        return ident in self._by_id or ident in self._by_call

    def message(self, item_id: Any, index: Any) -> MessageSlot | None:
        """The message that an event speaks of."""
        slot = self.slot("message", item_id, index)
        return slot if isinstance(slot, MessageSlot) else None

    def reasoning(self, item_id: Any, index: Any) -> ReasoningSlot | None:
        """The reasoning that an event speaks of."""
        slot = self.slot("reasoning", item_id, index)
        return slot if isinstance(slot, ReasoningSlot) else None

    def call(self, item_type: str, item_id: Any, index: Any) -> CallSlot | None:
        """The call that an event speaks of."""
        slot = self.slot(item_type, item_id, index)
        return slot if isinstance(slot, CallSlot) else None

    def latest(self, item_type: str) -> Slot | None:
        """The item that an event without any address means."""
        last = self._slots[-1] if self._slots else None
        return last if last is not None and last.is_open and last.item_type == item_type else None

    def _new(
        self, item_type: str, item_id: str | None, index: int | None, item: Json | None = None
    ) -> Slot:
        slot: Slot
        if item_type == "message":
            slot = MessageSlot(self._sink, item_id, index)
        elif item_type == "reasoning":
            slot = ReasoningSlot(self._sink, item_id, index)
        elif is_call(item_type, item or {}):
            slot = CallSlot(self._sink, item_id, index, item_type, self._executor_of)
        else:
            slot = RawSlot(self._sink, item_id, index, item_type)
        slot.origin = self.origin
        self._slots.append(slot)
        self._register(slot)
        return slot

    def _register(self, slot: Slot) -> None:
        for ident, known in ((slot.item_id, self._by_id), (slot.call_id, self._by_call)):
            if ident is not None and known.setdefault(ident, slot) is not slot:
                known[ident] = None  # two items of one id: it tells nothing
        if slot.index is not None:
            self._by_index[slot.index] = slot

    # --- items ---------------------------------------------------------------------------------

    def added(self, item: Json, index: Any) -> None:
        """An item begins; the same one once more changes nothing."""
        slot = self._known(item, index, ended=False)
        if slot is None:
            slot = self._new(item["type"], as_word(item.get("id")), as_index(index), item)
        if slot.is_implied and slot.is_open:
            slot.added(item)
            self._register(slot)

    def done(self, item: Json, index: Any) -> None:
        """An item as it is at its end, known or not."""
        slot = self._known(item, index, ended=True)
        if slot is None:
            self._supersede(item, index)
            slot = self._new(item["type"], as_word(item.get("id")), as_index(index), item)
        if slot.is_open:
            slot.done(slot.last_word(item))
            self._register(slot)

    def _supersede(self, item: Json, index: Any) -> None:
        """Cut what began at this place as something else, if the place is all that tells of it.

        Perplexity ends the call of a tool that it runs itself as the results of that.
        """
        before = self.find(None, index)
        if before is not None and before.is_open and item.get("id") is None is not before.item_id:
            before.cut()

    def _known(self, item: Json, index: Any, *, ended: bool) -> Slot | None:
        """The slot that an item is for; None if it is a new one, at a used index perhaps."""
        item_id, call_id = as_word(item.get("id")), as_word(item.get("call_id"))
        slot = self.find(item_id, index)
        if slot is None or slot.item_type != item["type"]:
            slot = self._of_call(call_id, ended=ended) if call_id else None
        if slot is None or slot.item_type != item["type"]:
            return None
        is_same = item_id is not None and item_id == slot.item_id
        if not is_same and call_id and slot.call_id and slot.call_id != call_id:
            return None
        if is_same and not ended and as_index(index) not in (None, slot.index):
            return None
        if is_same or slot.is_implied:
            return slot
        return slot if slot.is_open and (ended or item_id is None) else None

    def _of_call(self, call_id: str, *, ended: bool) -> Slot | None:
        """The slot of an item that is known by its call alone."""
        if ended and call_id in self._by_call:
            # vLLM leaves the id out at the end, and may be at the next place already.
            return self._by_call[call_id]
        slot = self._by_id.get(call_id)  # what pieces came for before the item
        return slot if slot is not None and slot.is_implied else None

    # --- the end -------------------------------------------------------------------------------

    def complete_from(self, items: list[Json], *, is_complete: bool) -> None:
        """Finish the items as the response's last word has them, and add those that are new."""
        items = [item for item in items if as_word(item.get("type")) is not None]
        found, left = self._match(items)
        others = _words("".join(slot.text for slot in left if isinstance(slot, MessageSlot)))
        for place, item in enumerate(items):
            slot = found[place]
            if slot is None:
                slot = self._new(item["type"], as_word(item.get("id")), place, item)
            if slot.is_open:
                self._finish_at_end(slot, item, is_complete=is_complete)
                continue
            rest = slot.unsaid(item) if isinstance(slot, MessageSlot) else ""
            # It may be what messages said that the last word makes one with this.
            if rest and not (others and others in _words(rest)):
                more = {"type": "message", "content": rest, "phase": item.get("phase")}
                self._new("message", None, None).done(more)

    def _match(self, items: list[Json]) -> tuple[list[Slot | None], list[Slot]]:
        """The slot of each final item, if it has one, and the slots that are left.

        By id or call; else by place; else by their order among their kind, because places lie too.
        """
        left = dict.fromkeys(self._slots)
        found: list[Slot | None] = [None] * len(items)
        passes: tuple[Callable[[int, Json], Slot | None], ...] = (
            lambda _, item: self._by_id.get(as_word(item.get("id")) or ""),
            lambda _, item: self._by_call.get(as_word(item.get("call_id")) or ""),
            lambda place, _: self._by_index.get(place),
        )
        for look in passes:
            for place, item in enumerate(items):
                slot = look(place, item) if found[place] is None else None
                if slot is not None and slot in left and slot.item_type == item["type"]:
                    found[place] = slot
                    del left[slot]
        waiting: dict[str, list[Slot]] = {}
        for slot in reversed(left):
            waiting.setdefault(slot.item_type, []).append(slot)
        for place, item in enumerate(items):
            if found[place] is None and waiting.get(item["type"]):
                slot = found[place] = waiting[item["type"]].pop()
                del left[slot]
        return found, list(left)

    def _finish_at_end(self, slot: Slot, item: Json, *, is_complete: bool) -> None:
        if len(msgspec.json.encode(item)) > MOST_BYTES:
            item = {"type": item["type"], "id": slot.item_id, "status": "incomplete"}
        elif item.get("status") not in ("completed", "incomplete", "failed"):
            # It was never told to have ended, but the response has.
            item = {**item, "status": "completed" if is_complete else "incomplete"}
        slot.done(slot.last_word(item))

    def settle(self) -> None:
        """The response is complete, and so are its items."""
        for slot in self._slots:
            if slot.is_open:
                slot.settle()

    def cut(self) -> None:
        """Nothing more comes: what is open ends incomplete."""
        for slot in self._slots:
            if slot.is_open:
                slot.cut()


def _words(text: str) -> str:
    """A text without its spaces: backends put some between messages that they make one."""
    return "".join(text.split())
