"""Repairs the texts of a Responses stream: announced before their deltas, and ended.

A backend may leave out the announcement of an item or a part, the ids, the indexes or the ends. It
may also leave out the deltas and send the text only at its end. Clients build the text from the
deltas, so text that only an end has is sent as another delta.
"""

from __future__ import annotations

from typing import Protocol

from tailrace.core.values import Json, dict_of
from tailrace.repair.items import (
    ARGUMENTS,
    BY_TYPE,
    RAW,
    REFUSAL,
    SUMMARY,
    TEXT,
    SeenItem,
    SeenItems,
    SeenPart,
    TextFamily,
    utf8,
)
from tailrace.repair.object import listed

_BY_TEXT = {family.text: family for family in (TEXT, REFUSAL, SUMMARY)}
_CONTENT_PART = TEXT.part
_SUMMARY_PART = SUMMARY.part


class FrameSink(Protocol):
    """Takes the frames to send."""

    def put(self, raw: bytes, event: Json, *, changed: bool, name: str | None = None) -> None:
        """Pass on a frame of the backend."""

    def insert(self, kind: str, event: Json) -> None:
        """Send an event that the backend left out."""


class TextRepair:
    """Follows every text of a response, and keeps up to `max_kept` bytes."""

    def __init__(self, items: SeenItems, out: FrameSink, max_kept: int) -> None:
        self._items = items
        self._put = out.put
        self._insert = out.insert
        self._room = max_kept

    # --- memory --------------------------------------------------------------------------------

    @property
    def overflowed(self) -> bool:
        """Whether the response exceeded the bound, so parts of it are not kept."""
        return self._room < 0

    def kept(self, value: Json, size: int) -> Json:
        """A finished item to keep; empty if it exceeds the bound."""
        self._room -= size
        return {} if self.overflowed else value

    def _grow(self, part: SeenPart, data: bytes) -> None:
        self._room -= len(data)
        if self.overflowed:
            part.lost = True
            part.text.clear()
        else:
            part.text += data

    # --- the item of an event ------------------------------------------------------------------

    def point(self, event: Json, item: SeenItem, *, named: bool = True) -> bool:
        """Set an event's `item_id` and `output_index` to those that the client has seen."""
        changed = False
        if event.get("output_index") != item.index:
            event["output_index"] = item.index
            changed = True
        if named and event.get("item_id") != item.id:
            event["item_id"] = item.id
            changed = True
        return changed

    def _item(self, event: Json, type_: str) -> SeenItem | None:
        """The item of an event, announced if it was not.

        None if the item has ended and the event has no new text. More text after the end of an
        item becomes a new item, because clients do not add it to the old item.
        """
        id_, index = event.get("item_id"), event.get("output_index")
        item = self._items.find(id_, index, type_)
        if item is not None and item.done is not None:
            if type_ == ARGUMENTS.item or not event["type"].endswith(".delta"):
                return None
            item = None
        if item is None:
            item = self._items.add(id_, index, type_)
        self._items.alias(id_, item)
        if not item.announced and type_ != ARGUMENTS.item:
            item.announced = True
            added = {"output_index": item.index, "item": item.begun()}
            self._insert("response.output_item.added", added)
        return item

    def _place(self, event: Json, item: SeenItem, family: TextFamily) -> bool:
        """Fill in the index of a part: the last if it is open, else the next."""
        if isinstance(event.get(family.key), int):
            return False
        parts = item.listed(family.place)
        fresh = not parts or parts[-1].closed
        event[family.key] = item.next_index(family.place) if fresh else parts[-1].index
        return True

    def _part(self, item: SeenItem, family: TextFamily, index: int) -> SeenPart:
        """A part, announced if it was not."""
        part = item.parts.get((family.place, index))
        if part is None:
            part = self._items.part(item, family, index)
            self._insert_for(item, part, f"{family.part}.added", {"part": family.empty()})
        return part

    def _insert_for(self, item: SeenItem, part: SeenPart, kind: str, fields: Json) -> None:
        place: Json = {part.family.key: part.index} if part.family.key else {}
        about = {"item_id": item.id, "output_index": item.index, **place, **fields}
        self._insert(kind, about)

    # --- events ----------------------------------------------------------------------------------

    def event(self, raw: bytes, event: Json, kind: str, *, changed: bool) -> bool:
        """Handle an event of a text; False for any other event."""
        name, _, verb = kind.rpartition(".")
        if name in _BY_TEXT and verb in ("delta", "done"):
            family = _BY_TEXT[name]
            item = self._item(event, family.item)
            if item is not None:
                changed = self.point(event, item) or changed
                self._text(raw, event, item, family, changed=changed)
        elif name in (_CONTENT_PART, _SUMMARY_PART) and verb in ("added", "done"):
            self._about_part(raw, event, name, changed=changed)
        elif kind == "response.output_text.annotation.added":
            item = self._item(event, TEXT.item)
            if item is not None:
                changed = self.point(event, item) or changed
                changed = self._place(event, item, TEXT) or changed
                self._part(item, TEXT, event[TEXT.key])
            self._put(raw, event, changed=changed)
        elif name == ARGUMENTS.text:
            self._arguments(raw, event, verb, changed=changed)
        else:
            return False
        return True

    def _text(
        self,
        raw: bytes,
        event: Json,
        item: SeenItem,
        family: TextFamily,
        *,
        changed: bool,
        name: str | None = None,
    ) -> SeenPart:
        """Handle a delta of a text, or its end."""
        changed = self._place(event, item, family) or changed
        part = self._part(item, family, event[family.key])
        if event["type"].endswith(".delta"):
            if isinstance(event.get("delta"), str):
                self._grow(part, utf8(event["delta"]))
        else:
            changed = self._end_text(item, part, event) or changed
        self._put(raw, event, changed=changed, name=name)
        return part

    def _end_text(self, item: SeenItem, part: SeenPart, end: Json) -> bool:
        """Send text that only the end has, or fill in an end that has no text."""
        field = part.family.field
        if isinstance(end.get(field), str):
            self._reach(item, part, end[field])
            part.is_done = True
            return False
        part.is_done = True
        if part.lost:
            return False
        end[field] = part.whole()
        return True

    def _reach(self, item: SeenItem, part: SeenPart, text: str) -> None:
        data = utf8(text)
        sent = part.text
        if part.is_done or part.lost or len(data) <= len(sent) or not data.startswith(sent):
            return
        rest = data[len(sent) :]
        extra: Json = {"logprobs": []} if part.family is TEXT else {}
        delta = rest.decode("utf-8", "surrogatepass")
        self._insert_for(item, part, f"{part.family.text}.delta", {"delta": delta, **extra})
        self._grow(part, rest)

    def _close(self, item: SeenItem, part: SeenPart, text: str | None = None) -> None:
        """End an open part; `text` is its final text, for a part that was not kept."""
        if part.closed:
            return
        part.closed = True
        if part.lost and text is None:
            return
        shown = part.shown(text if part.lost else None)
        if not part.is_done:
            extra: Json = {"logprobs": []} if part.family is TEXT else {}
            done = {part.family.field: shown[part.family.field], **extra}
            self._insert_for(item, part, f"{part.family.text}.done", done)
        part.is_done = True
        self._insert_for(item, part, f"{part.family.part}.done", {"part": shown})

    def _about_part(self, raw: bytes, event: Json, name: str, *, changed: bool) -> None:
        shown = event.get("part")
        type_ = dict_of(shown).get("type")
        default = SUMMARY if name == _SUMMARY_PART else TEXT
        family = default if type_ in (None, "text") else BY_TYPE.get(str(type_))
        if family is TEXT and self._is_reasoning(event):
            family = RAW  # vLLM announces its raw reasoning as `output_text`.
        if family is None:
            self._put(raw, event, changed=changed)
            return
        item = self._item(event, family.item)
        if item is None:
            return
        changed = self.point(event, item) or changed
        if not isinstance(shown, dict):
            event["part"] = {} if event["type"].endswith(".done") else family.empty()
            changed = True
        elif type_ != family.type:
            shown["type"] = family.type
            changed = True
        self._part_event(raw, event, item, family, changed=changed)

    def _is_reasoning(self, event: Json) -> bool:
        """Whether an event names an open reasoning item."""
        id_, index = event.get("item_id"), event.get("output_index")
        item = self._items.find(id_, index, RAW.item)
        named = isinstance(id_, str) or isinstance(index, int)
        return named and item is not None and item.done is None and not item.is_elsewhere(index)

    def _part_event(
        self, raw: bytes, event: Json, item: SeenItem, family: TextFamily, *, changed: bool
    ) -> None:
        """Handle the start or the end of a part."""
        changed = self._place(event, item, family) or changed
        index, shown = event[family.key], event["part"]
        if event["type"].endswith(".done"):
            part = self._part(item, family, index)
            if not part.closed:
                if family.field not in shown:
                    event["part"] = {**part.shown(), **shown}
                changed = self._end_text(item, part, event["part"]) or changed
                changed = changed or event["part"] is not shown
                part.closed = True
                self._put(raw, event, changed=changed)
        elif (family.place, index) not in item.parts:
            self._items.part(item, family, index)
            for key, empty in family.empty().items():
                if shown.get(key) is None:
                    shown[key] = empty
                    changed = True
            self._put(raw, event, changed=changed)
        # Else it was announced when its first delta came.

    def _arguments(self, raw: bytes, event: Json, verb: str, *, changed: bool) -> None:
        """Handle arguments. They wait until their call is announced with its name."""
        item = self._item(event, ARGUMENTS.item)
        if item is None:
            return
        changed = self.point(event, item) or changed
        part = item.parts.get((ARGUMENTS.place, 0)) or self._items.part(item, ARGUMENTS, 0)
        if verb == "delta":
            if isinstance(event.get("delta"), str):
                self._grow(part, utf8(event["delta"]))
        elif not isinstance(event.get("arguments"), str):
            event["arguments"] = part.whole()
            part.is_done = changed = True
        else:
            part.is_done = True
            self._grow(part, utf8(event["arguments"])[len(part.text) :])
        if item.announced:
            self._put(raw, event, changed=changed)

    def name_call(self, item: SeenItem, value: Json) -> None:
        """Send the arguments that waited for the announcement of their call."""
        item.value = value
        part = item.parts.get((ARGUMENTS.place, 0))
        if part is None or part.lost:
            return
        if part.text:
            self._insert_for(item, part, f"{ARGUMENTS.text}.delta", {"delta": part.whole()})
        if part.is_done:
            self._insert_for(item, part, f"{ARGUMENTS.text}.done", {"arguments": part.whole()})

    # --- items that end --------------------------------------------------------------------------

    def complete(self, item: SeenItem, value: Json) -> bool:
        """Emit deltas for text found only in `output_item.done`; fill in text missing from it."""
        if item.type == "message":
            return self._complete_message(item, value)
        if item.type == ARGUMENTS.item:
            return self._complete_call(item, value)
        return False

    def _complete_message(self, item: SeenItem, value: Json) -> bool:
        content = listed(value, "content")
        for index, shown in enumerate(content):
            family = BY_TYPE.get(str(shown.get("type"))) if isinstance(shown, dict) else None
            if family is TEXT or family is REFUSAL:
                self._send_whole(item, family, index, shown.get(family.field))
        parts = item.listed("content")
        for part in parts:
            self._close(item, part)
        if content or any(part.lost for part in parts):
            return False
        filled = [part.shown() for part in parts]
        if value.get("content") == filled:
            return False
        value["content"] = filled
        return True

    def _complete_call(self, item: SeenItem, value: Json) -> bool:
        changed = False
        part = item.parts.get((ARGUMENTS.place, 0))
        if not isinstance(value.get("arguments"), str) and part is not None:
            value["arguments"] = part.whole()
            changed = True
        known = {**item.value, "status": "completed"}
        for name in ("call_id", "name", "status"):
            if value.get(name) is None and name in known:
                value[name] = known[name]
                changed = True
        return changed

    def _send_whole(self, item: SeenItem, family: TextFamily, index: int, text: object) -> None:
        """Send the rest of a text that the end of its item has, and end it."""
        if isinstance(text, str) and (text or (family.place, index) in item.parts):
            part = self._part(item, family, index)
            self._reach(item, part, text)
            self._close(item, part, text)

    def is_sent(self, item: SeenItem) -> bool:
        """Whether everything of an item was sent, except for its end."""
        parts = list(item.parts.values())
        whole = bool(parts) and all(part.is_done and not part.lost for part in parts)
        return whole and item.announced

    def assembled(self, item: SeenItem, status: str) -> Json | None:
        """The end of an item from its parts; None for an incomplete function call."""
        if any(part.lost for part in item.parts.values()):
            return None
        if item.type == "message":
            return {**item.begun(), "status": status}
        if item.type == "reasoning":
            return item.begun()
        if item.type == ARGUMENTS.item and self.is_sent(item):
            arguments = item.parts[ARGUMENTS.place, 0].whole()
            return {**item.value, "arguments": arguments, "status": "completed"}
        return None
