"""Shows raw reasoning as a summary, where clients look for it.

`response.reasoning_text.*` becomes `response.reasoning_summary_*`, and the item's `summary` gets
the same text. If a backend sends both, the text is shown once. If the summary came first,
everything passes unchanged. If the raw text came first, a summary that repeats it is dropped, and
any other summary becomes another part.
"""

from __future__ import annotations

from tailrace.core.values import Json
from tailrace.repair.items import RAW, SUMMARY, Repeat, SeenItem, SeenPart, TextFamily, utf8
from tailrace.repair.object import summary_text, texts
from tailrace.repair.texts import TextRepair

_Held = tuple[bytes, Json, SeenItem, SeenPart]


class ReasoningRepair(TextRepair):
    """Repairs all texts, including raw reasoning."""

    _held: _Held | None = None
    # agentscope-runtime ends its reasoning with a delta that repeats the whole text. Such a delta
    # waits for the next event, which shows whether the repetition is real.

    def release(self, event: Json | None = None) -> None:
        """Send or drop the delta that waits, by the next event or the end of the stream."""
        if self._held is None:
            return
        raw, delta, item, part = self._held
        self._held = None
        if event is None or not self._ends_at(event, item, part):
            self._grow(part, utf8(delta["delta"]))
            self._put(raw, delta, changed=True, name=delta["type"])

    def _ends_at(self, event: Json, item: SeenItem, part: SeenPart) -> bool:
        """Whether an event ends this text as it is without the delta."""
        value = event.get("item")
        place = next(raw for raw, shown in item.raws.items() if shown == part.index)
        id_, text = event.get("item_id"), event.get("text")
        if event["type"] == "response.output_item.done" and isinstance(value, dict):
            raws = texts(value, "content", RAW.type)
            id_, text = value.get("id"), raws[place] if place < len(raws) else None
        elif event.get(RAW.key, place) != place:
            return False
        if self._items.find(id_, event.get("output_index"), RAW.item) is not item:
            return False
        return text == part.whole()

    def event(self, raw: bytes, event: Json, kind: str, *, changed: bool) -> bool:
        """Handle an event of a text; False for any other event."""
        if kind not in ("response.reasoning_text.delta", "response.reasoning_text.done"):
            return super().event(raw, event, kind, changed=changed)
        item = self._item(event, RAW.item)
        if item is None:
            return True
        changed = self.point(event, item) or changed
        if item.family is SUMMARY:
            self._put(raw, event, changed=changed)
        else:
            self._show_raw(raw, event, item)
        return True

    def _show_raw(self, raw: bytes, event: Json, item: SeenItem) -> None:
        shown = self._as_summary(event, item, SUMMARY.text)
        part = item.parts.get((SUMMARY.place, shown[SUMMARY.key]))
        delta = event.get("delta")
        if part is not None and part.text and isinstance(delta, str) and utf8(delta) == part.text:
            self._held = (raw, shown, item, part)
            return
        part = self._text(raw, shown, item, SUMMARY, changed=True, name=shown["type"])
        if part.is_done:
            self._close(item, part, shown.get("text"))

    def _as_summary(self, event: Json, item: SeenItem, name: str) -> Json:
        item.family = RAW
        index = event.get(RAW.key)
        if not isinstance(index, int):
            index = max(item.raws, default=0)
            last = item.parts.get((SUMMARY.place, item.raws.get(index, -1)))
            if last is not None and last.closed and not event["type"].endswith(".done"):
                index += 1
        place = self._place_of(item, index)
        rest = {key: value for key, value in event.items() if key not in ("type", RAW.key)}
        verb = event["type"].rpartition(".")[2]
        return {"type": f"{name}.{verb}", **rest, SUMMARY.key: place}

    def _place_of(self, item: SeenItem, index: int) -> int:
        """The `summary_index` that shows a raw text."""
        if index not in item.raws:
            self._items.count()
            item.raws[index] = _free_place(item, index)
        return item.raws[index]

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
        if family is SUMMARY and name is None:
            if item.family is RAW:
                text = event.get("delta" if event["type"].endswith(".delta") else "text")
                part = self._repeats(event, item, text)
                if part is not None:
                    return part
                changed = True
            else:
                item.family = SUMMARY
        return super()._text(raw, event, item, family, changed=changed, name=name)

    def _part_event(
        self, raw: bytes, event: Json, item: SeenItem, family: TextFamily, *, changed: bool
    ) -> None:
        if family is RAW and item.family is not SUMMARY:
            self._show_raw_part(raw, event, item)
        elif family is RAW:
            self._put(raw, event, changed=changed)
        elif family is SUMMARY and item.family is RAW:
            if self._repeats(event, item, event["part"].get("text")) is None:
                super()._part_event(raw, event, item, family, changed=True)
        else:
            # The first text decides the family: some backends announce a part of a summary and
            # then send raw text.
            super()._part_event(raw, event, item, family, changed=changed)
            part = item.parts.get((family.place, event[family.key]))
            if family is SUMMARY and part is not None and part.text:
                item.family = SUMMARY

    def _show_raw_part(self, raw: bytes, event: Json, item: SeenItem) -> None:
        shown = self._as_summary(event, item, SUMMARY.part)
        key = (SUMMARY.place, shown[SUMMARY.key])
        if event["type"].endswith(".done"):
            self._send_whole(item, SUMMARY, key[1], event["part"].get("text"))
        elif key not in item.parts:
            self._items.part(item, SUMMARY, key[1])
            shown["part"] = SUMMARY.empty()
            self._put(raw, shown, changed=True, name=shown["type"])

    def _repeats(self, event: Json, item: SeenItem, text: object) -> SeenPart | None:
        """The shown part that a summary repeats; None if the summary differs."""
        index = event.get(SUMMARY.key)
        if not isinstance(index, int):
            index = max(item.repeats, default=0)
        if index not in item.repeats:
            self._items.count()
            item.repeats[index] = Repeat()
        repeat = item.repeats[index]
        parts = item.listed(SUMMARY.place)
        if repeat.own is None and parts:
            shown = item.parts.get((SUMMARY.place, index), parts[0])
            data = utf8(text) if isinstance(text, str) else b""
            is_delta = event["type"].endswith(".delta")
            start = repeat.at if is_delta else 0
            if shown.lost or shown.text[start : start + len(data)] == data:
                repeat.at += len(data) if is_delta else 0
                return shown
            if is_delta:
                before = shown.text[: repeat.at].decode("utf-8", "surrogatepass")
                event["delta"] = f"{before}{text}"
        if repeat.own is None:
            repeat.own = item.next_index(SUMMARY.place)
        event[SUMMARY.key] = repeat.own
        return None

    def complete(self, item: SeenItem, value: Json) -> bool:
        """Emit deltas for text found only in `output_item.done`; fill in text missing from it."""
        if item.type != RAW.item:
            return super().complete(item, value)
        own = texts(value, "summary", SUMMARY.type)
        if item.family is None and not own:
            item.family = RAW
        if item.family is RAW:
            for index, text in enumerate(texts(value, "content", RAW.type)):
                if text or index in item.raws:
                    place = self._place_of(item, index)
                    self._send_whole(item, SUMMARY, place, text)
            self._send_own_summary(item, own)
        else:
            for index, text in enumerate(own):
                self._send_whole(item, SUMMARY, index, text)
        parts = item.listed(SUMMARY.place)
        for part in parts:
            self._close(item, part)
        return self._fill(item, value, own, parts)

    def _send_own_summary(self, item: SeenItem, own: list[str]) -> None:
        """Send a summary that only the end of an item has, unless it repeats the raw text."""
        parts = item.listed(SUMMARY.place)
        if not any(part.lost for part in parts):
            sent = _without_spaces("".join(part.whole() for part in parts))
            new = [text for text in own if _without_spaces(text) not in sent]
            for place, text in enumerate(new, item.next_index(SUMMARY.place)):
                self._send_whole(item, SUMMARY, place, text)

    def _fill(self, item: SeenItem, value: Json, own: list[str], parts: list[SeenPart]) -> bool:
        if any(part.lost for part in parts):
            filled = own or texts(value, "content", RAW.type)
        elif item.family is RAW or not own:
            filled = [part.whole() for part in parts]
        else:
            return False
        if filled == own and isinstance(value.get("summary"), list):
            return False
        value["summary"] = [summary_text(text) for text in filled]
        return True


def _free_place(item: SeenItem, index: int) -> int:
    """The `summary_index` for a raw text: an announced empty part, else a new part."""
    part = item.parts.get((SUMMARY.place, index))
    waits = part is not None and not (part.text or part.closed or index in item.raws.values())
    return index if waits else item.next_index(SUMMARY.place)


def _without_spaces(text: str) -> str:
    """A text without white space: some backends join parts, with or without a break."""
    return "".join(text.split())
