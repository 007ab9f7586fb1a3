"""The items of a response, and the item of each event.

`item_id` names the item of an event; it may be the id of the call (llama.cpp). `output_index`
names it where the id is unknown (GitHub Copilot makes a new id for every event) or ambiguous. A
delta without an item opens an item.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tailrace.core.event_sink import Sink
from tailrace.core.items import InputRequest
from tailrace.core.values import Json, index_of, word_of
from tailrace.ingest.base import MOST_BYTES, ExecutorOf
from tailrace.ingest.openai_responses.calls import CallSlot, is_call
from tailrace.ingest.openai_responses.items import MessageSlot, RawSlot, ReasoningSlot, Slot
from tailrace.ingest.openai_responses.values import API


def place(event: Json) -> tuple[Any, Any]:
    """The id (or call id) and the index of the item of an event."""
    item_id = event.get("item_id")
    return event.get("call_id") if item_id is None else item_id, event.get("output_index")


class ResponseOutput:
    """The items of a response so far."""

    def __init__(self, sink: Sink, executor_of: ExecutorOf) -> None:
        self._sink = sink
        self._executor_of = executor_of
        self.origin: Json = {"api": API}
        """The provider facts of the response, shared by its items."""
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
        """The approval requests of the provider."""
        return [slot.request for slot in self._calls if slot.request is not None]

    @property
    def has_truncated_call(self) -> bool:
        """Whether a call lacks its name or the end of its arguments."""
        return any(slot.is_truncated for slot in self._calls)

    # --- which item ----------------------------------------------------------------------------

    def find(self, item_id: Any, index: Any) -> Slot | None:
        """The item with this id or call id, else the last item at this index."""
        slot = None
        if isinstance(item_id, str):
            slot = (self._by_id if item_id in self._by_id else self._by_call).get(item_id)
        if slot is None and type(index) is int:
            slot = self._by_index.get(index)
        return slot

    def is_over(self, event: Json) -> bool:
        """Whether the item of an event has ended."""
        slot = self.find(*place(event))
        return slot is not None and not slot.is_open

    def slot(self, item_type: str, item_id: Any, index: Any) -> Slot | None:
        """The open item of an event, opened if needed; None if that is impossible."""
        slot = self.find(item_id, index)
        if slot is None and not isinstance(item_id, str) and index_of(index) is None:
            slot = self.latest(item_type)
        if slot is not None and slot.is_open and slot.item_type == item_type:
            return slot
        if slot is None or (isinstance(item_id, str) and not self._is_named(item_id)):
            return self._new(item_type, word_of(item_id), index_of(index))
        return None

    def _is_named(self, ident: str) -> bool:
        return ident in self._by_id or ident in self._by_call

    def message(self, item_id: Any, index: Any) -> MessageSlot | None:
        """The message of an event."""
        slot = self.slot("message", item_id, index)
        return slot if isinstance(slot, MessageSlot) else None

    def reasoning(self, item_id: Any, index: Any) -> ReasoningSlot | None:
        """The reasoning item of an event."""
        slot = self.slot("reasoning", item_id, index)
        return slot if isinstance(slot, ReasoningSlot) else None

    def call(self, item_type: str, item_id: Any, index: Any) -> CallSlot | None:
        """The call of an event."""
        slot = self.slot(item_type, item_id, index)
        return slot if isinstance(slot, CallSlot) else None

    def latest(self, item_type: str) -> Slot | None:
        """The item of an event without id and index."""
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
                known[ident] = None  # two items share the id, so it is ambiguous
        if slot.index is not None:
            self._by_index[slot.index] = slot

    # --- items ---------------------------------------------------------------------------------

    def added(self, item: Json, index: Any) -> None:
        """Begin an item; a repeated start is ignored."""
        slot = self._known(item, index, ended=False)
        if slot is None:
            slot = self._new(item["type"], word_of(item.get("id")), index_of(index), item)
        if slot.is_implied and slot.is_open:
            slot.added(item)
            self._register(slot)

    def done(self, item: Json, index: Any) -> None:
        """End an item, known or not."""
        slot = self._known(item, index, ended=True)
        if slot is None:
            self._supersede(item, index)
            slot = self._new(item["type"], word_of(item.get("id")), index_of(index), item)
        if slot.is_open:
            slot.done(slot.final_item(item))
            self._register(slot)

    def _supersede(self, item: Json, index: Any) -> None:
        """Cut an item of another type at this index.

        Perplexity ends the call of its own tool as an item with the results.
        """
        before = self.find(None, index)
        if before is not None and before.is_open and item.get("id") is None is not before.item_id:
            before.cut()

    def _known(self, item: Json, index: Any, *, ended: bool) -> Slot | None:
        """The slot of an item; None if the item is new, perhaps at a used index."""
        item_id, call_id = word_of(item.get("id")), word_of(item.get("call_id"))
        slot = self.find(item_id, index)
        if slot is None or slot.item_type != item["type"]:
            slot = self._of_call(call_id, ended=ended) if call_id else None
        if slot is None or slot.item_type != item["type"]:
            return None
        is_same = item_id is not None and item_id == slot.item_id
        if not is_same and call_id and slot.call_id and slot.call_id != call_id:
            return None
        if is_same and not ended and index_of(index) not in (None, slot.index):
            return None
        if is_same or slot.is_implied:
            return slot
        return slot if slot.is_open and (ended or item_id is None) else None

    def _of_call(self, call_id: str, *, ended: bool) -> Slot | None:
        """The slot of an item that only its call id names."""
        if ended and call_id in self._by_call:
            # vLLM leaves the id out at the end, and may be at the next place already.
            return self._by_call[call_id]
        slot = self._by_id.get(call_id)  # pieces came before the item was announced
        return slot if slot is not None and slot.is_implied else None

    # --- the end -------------------------------------------------------------------------------

    def complete_from(self, items: list[Json], *, is_complete: bool) -> None:
        """Finish the items by the final response, and add new items."""
        items = [item for item in items if word_of(item.get("type")) is not None]
        found, left = self._match(items)
        others = _words("".join(slot.text for slot in left if isinstance(slot, MessageSlot)))
        for place, item in enumerate(items):
            slot = found[place]
            if slot is None:
                slot = self._new(item["type"], word_of(item.get("id")), place, item)
            if slot.is_open:
                self._finish_at_end(slot, item, is_complete=is_complete)
                continue
            rest = slot.missing_text(item) if isinstance(slot, MessageSlot) else ""
            # The final response may have merged other messages into this item.
            if rest and not (others and others in _words(rest)):
                more = {"type": "message", "content": rest, "phase": item.get("phase")}
                self._new("message", None, None).done(more)

    def _match(self, items: list[Json]) -> tuple[list[Slot | None], list[Slot]]:
        """The slot of each final item, if any, and the slots that are left.

        By id or call; else by index; else by order among items of the type.
        """
        left = dict.fromkeys(self._slots)
        found: list[Slot | None] = [None] * len(items)
        passes: tuple[Callable[[int, Json], Slot | None], ...] = (
            lambda _, item: self._by_id.get(word_of(item.get("id")) or ""),
            lambda _, item: self._by_call.get(word_of(item.get("call_id")) or ""),
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
            # The item has no end of its own, but the response has ended.
            item = {**item, "status": "completed" if is_complete else "incomplete"}
        slot.done(slot.final_item(item))

    def settle(self) -> None:
        """Complete the open items: the response is complete."""
        for slot in self._slots:
            if slot.is_open:
                slot.settle()

    def cut(self) -> None:
        """End the open items as incomplete."""
        for slot in self._slots:
            if slot.is_open:
                slot.cut()


def _words(text: str) -> str:
    """A text without its spaces: backends add some between messages that they merge."""
    return "".join(text.split())
