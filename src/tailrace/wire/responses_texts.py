"""The texts of a Responses stream: each behind its item and its part, each told to its end.

A backend may leave out the announcement of an item or a part, the ids, the indexes, the deltas (and
send the text only when it is done) or the ends. Clients build what they show from the deltas, so
whatever an end says beyond them is sent as one more delta.
"""

from __future__ import annotations

from typing import Protocol

from tailrace.wire.responses_body import listed
from tailrace.wire.responses_books import (
    ARGUMENTS,
    BY_TYPE,
    RAW,
    REFUSAL,
    SUMMARY,
    TEXT,
    Books,
    Item,
    Lane,
    Part,
    utf8,
)
from tailrace.wire.responses_frames import Json

_BY_TEXT = {lane.text: lane for lane in (TEXT, REFUSAL, SUMMARY)}
_CONTENT_PART = TEXT.part
_SUMMARY_PART = SUMMARY.part


class Out(Protocol):
    """Where the frames go."""

    def put(self, raw: bytes, event: Json, *, changed: bool, name: str | None = None) -> None:
        """Send a frame of the backend on."""

    def insert(self, kind: str, event: Json) -> None:
        """Send an event that the backend left out."""


class Texts:
    """Follows every text of one response; what it keeps is bounded by `max_kept` bytes."""

    def __init__(self, books: Books, out: Out, max_kept: int) -> None:
        self._books = books
        self._put = out.put
        self._insert = out.insert
        self._room = max_kept

    # --- what is kept --------------------------------------------------------------------------

    @property
    def overflowed(self) -> bool:
        """Whether the response outgrew the bound, so that memory no longer has all of it."""
        return self._room < 0

    def kept(self, value: Json, size: int) -> Json:
        """An item that is done, or nothing of it where it is too large."""
        self._room -= size
        return {} if self.overflowed else value

    def _grow(self, part: Part, data: bytes) -> None:
        self._room -= len(data)
        if self.overflowed:
            part.lost = True
            part.text.clear()
        else:
            part.text += data

    # --- whom an event is about ------------------------------------------------------------------

    def point(self, event: Json, item: Item, *, named: bool = True) -> bool:
        """Let an event name its item by the id and the index that the client knows."""
        changed = False
        if event.get("output_index") != item.index:
            event["output_index"] = item.index
            changed = True
        if named and event.get("item_id") != item.id:
            event["item_id"] = item.id
            changed = True
        return changed

    def _item(self, event: Json, type_: str) -> Item | None:
        """The item of an event, announced before anything is said about it.

        None if that item has ended and the event brings nothing new; more text after the end of
        an item is an item of its own, for no client takes it into the old one.
        """
        id_, index = event.get("item_id"), event.get("output_index")
        item = self._books.find(id_, index, type_)
        if item is not None and item.done is not None:
            if type_ == ARGUMENTS.item or not event["type"].endswith(".delta"):
                return None
            item = None
        if item is None:
            item = self._books.add(id_, index, type_)
        self._books.alias(id_, item)
        if not item.announced and type_ != ARGUMENTS.item:
            item.announced = True
            added = {"output_index": item.index, "item": item.begun()}
            self._insert("response.output_item.added", added)
        return item

    def _place(self, event: Json, item: Item, lane: Lane) -> bool:
        """Fill in the index of a part: the last that is open, or a new one."""
        if isinstance(event.get(lane.key), int):
            return False
        parts = item.listed(lane.place)
        fresh = not parts or parts[-1].closed
        event[lane.key] = item.next_index(lane.place) if fresh else parts[-1].index
        return True

    def _part(self, item: Item, lane: Lane, index: int) -> Part:
        """A part, announced before its text."""
        part = item.parts.get((lane.place, index))
        if part is None:
            part = self._books.part(item, lane, index)
            self._say(item, part, f"{lane.part}.added", {"part": lane.empty()})
        return part

    def _say(self, item: Item, part: Part, kind: str, fields: Json) -> None:
        place: Json = {part.lane.key: part.index} if part.lane.key else {}
        about = {"item_id": item.id, "output_index": item.index, **place, **fields}
        self._insert(kind, about)

    # --- events ----------------------------------------------------------------------------------

    def event(self, raw: bytes, event: Json, kind: str, *, changed: bool) -> bool:
        """Take an event about a text; False if it is about something else."""
        name, _, verb = kind.rpartition(".")
        if name in _BY_TEXT and verb in ("delta", "done"):
            lane = _BY_TEXT[name]
            item = self._item(event, lane.item)
            if item is not None:
                changed = self.point(event, item) or changed
                self._text(raw, event, item, lane, changed=changed)
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
        item: Item,
        lane: Lane,
        *,
        changed: bool,
        name: str | None = None,
    ) -> Part:
        """A piece of a text, or its end."""
        changed = self._place(event, item, lane) or changed
        part = self._part(item, lane, event[lane.key])
        if event["type"].endswith(".delta"):
            if isinstance(event.get("delta"), str):
                self._grow(part, utf8(event["delta"]))
        else:
            changed = self._end_text(item, part, event) or changed
        self._put(raw, event, changed=changed, name=name)
        return part

    def _end_text(self, item: Item, part: Part, end: Json) -> bool:
        """Bring a text to what its end says, or let the end say what was told."""
        field = part.lane.field
        if isinstance(end.get(field), str):
            self._reach(item, part, end[field])
            part.said = True
            return False
        part.said = True
        if part.lost:
            return False
        end[field] = part.whole()
        return True

    def _reach(self, item: Item, part: Part, text: str) -> None:
        data = utf8(text)
        told = part.text
        if part.said or part.lost or len(data) <= len(told) or not data.startswith(told):
            return
        rest = data[len(told) :]
        extra: Json = {"logprobs": []} if part.lane is TEXT else {}
        delta = rest.decode("utf-8", "surrogatepass")
        self._say(item, part, f"{part.lane.text}.delta", {"delta": delta, **extra})
        self._grow(part, rest)

    def _close(self, item: Item, part: Part, text: str | None = None) -> None:
        """End a part that is still open; `text` is what its end says, for one not kept."""
        if part.closed:
            return
        part.closed = True
        if part.lost and text is None:
            return
        shown = part.shown(text if part.lost else None)
        if not part.said:
            extra: Json = {"logprobs": []} if part.lane is TEXT else {}
            done = {part.lane.field: shown[part.lane.field], **extra}
            self._say(item, part, f"{part.lane.text}.done", done)
        part.said = True
        self._say(item, part, f"{part.lane.part}.done", {"part": shown})

    def _about_part(self, raw: bytes, event: Json, name: str, *, changed: bool) -> None:
        shown = event.get("part")
        type_ = shown.get("type") if isinstance(shown, dict) else None
        default = SUMMARY if name == _SUMMARY_PART else TEXT
        lane = default if type_ in (None, "text") else BY_TYPE.get(str(type_))
        if lane is TEXT and self._is_reasoning(event):
            lane = RAW  # vLLM announces its raw reasoning as `output_text`.
        if lane is None:
            self._put(raw, event, changed=changed)
            return
        item = self._item(event, lane.item)
        if item is None:
            return
        changed = self.point(event, item) or changed
        if not isinstance(shown, dict):
            event["part"] = {} if event["type"].endswith(".done") else lane.empty()
            changed = True
        elif type_ != lane.type:
            shown["type"] = lane.type
            changed = True
        self._part_event(raw, event, item, lane, changed=changed)

    def _is_reasoning(self, event: Json) -> bool:
        """Whether an event names an item of reasoning that is still open."""
        id_, index = event.get("item_id"), event.get("output_index")
        item = self._books.find(id_, index, RAW.item)
        named = isinstance(id_, str) or isinstance(index, int)
        return named and item is not None and item.done is None and not item.is_elsewhere(index)

    def _part_event(
        self, raw: bytes, event: Json, item: Item, lane: Lane, *, changed: bool
    ) -> None:
        """A part begins or ends."""
        changed = self._place(event, item, lane) or changed
        index, shown = event[lane.key], event["part"]
        if event["type"].endswith(".done"):
            part = self._part(item, lane, index)
            if not part.closed:
                if lane.field not in shown:
                    event["part"] = {**part.shown(), **shown}
                changed = self._end_text(item, part, event["part"]) or changed
                changed = changed or event["part"] is not shown
                part.closed = True
                self._put(raw, event, changed=changed)
        elif (lane.place, index) not in item.parts:
            self._books.part(item, lane, index)
            for key, empty in lane.empty().items():
                if shown.get(key) is None:
                    shown[key] = empty
                    changed = True
            self._put(raw, event, changed=changed)
        # Else it was announced when its first delta came.

    def _arguments(self, raw: bytes, event: Json, verb: str, *, changed: bool) -> None:
        """Arguments wait until their call has a name: no client can show a call without one."""
        item = self._item(event, ARGUMENTS.item)
        if item is None:
            return
        changed = self.point(event, item) or changed
        part = item.parts.get((ARGUMENTS.place, 0)) or self._books.part(item, ARGUMENTS, 0)
        if verb == "delta":
            if isinstance(event.get("delta"), str):
                self._grow(part, utf8(event["delta"]))
        elif not isinstance(event.get("arguments"), str):
            event["arguments"] = part.whole()
            part.said = changed = True
        else:
            part.said = True
            self._grow(part, utf8(event["arguments"])[len(part.text) :])
        if item.announced:
            self._put(raw, event, changed=changed)

    def name_call(self, item: Item, value: Json) -> None:
        """A function call was announced: what waited for that can be told."""
        item.value = value
        part = item.parts.get((ARGUMENTS.place, 0))
        if part is None or part.lost:
            return
        if part.text:
            self._say(item, part, f"{ARGUMENTS.text}.delta", {"delta": part.whole()})
        if part.said:
            self._say(item, part, f"{ARGUMENTS.text}.done", {"arguments": part.whole()})

    # --- items that end --------------------------------------------------------------------------

    def complete(self, item: Item, value: Json) -> bool:
        """Tell what of an item only its end tells, and let its end have what was told."""
        if item.type == "message":
            return self._complete_message(item, value)
        if item.type == ARGUMENTS.item:
            return self._complete_call(item, value)
        return False

    def _complete_message(self, item: Item, value: Json) -> bool:
        content = listed(value, "content")
        for index, shown in enumerate(content):
            lane = BY_TYPE.get(str(shown.get("type"))) if isinstance(shown, dict) else None
            if lane is TEXT or lane is REFUSAL:
                self._tell_whole(item, lane, index, shown.get(lane.field))
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

    def _complete_call(self, item: Item, value: Json) -> bool:
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

    def _tell_whole(self, item: Item, lane: Lane, index: int, text: object) -> None:
        """A text as the end of its item has it: told, if it was not, and ended."""
        if isinstance(text, str) and (text or (lane.place, index) in item.parts):
            part = self._part(item, lane, index)
            self._reach(item, part, text)
            self._close(item, part, text)

    def is_told(self, item: Item) -> bool:
        """Whether nothing but the end of this item is missing."""
        parts = list(item.parts.values())
        whole = bool(parts) and all(part.said and not part.lost for part in parts)
        return whole and item.announced

    def assembled(self, item: Item, status: str) -> Json | None:
        """The end of an item that has none, from what was told; never half a function call."""
        if any(part.lost for part in item.parts.values()):
            return None
        if item.type == "message":
            return {**item.begun(), "status": status}
        if item.type == "reasoning":
            return item.begun()
        if item.type == ARGUMENTS.item and self.is_told(item):
            arguments = item.parts[ARGUMENTS.place, 0].whole()
            return {**item.value, "arguments": arguments, "status": "completed"}
        return None
