"""What a repairer remembers of a Responses stream: items, their parts, and who is meant.

Backends name an item by id, by index, by both or by neither, and some contradict themselves:
agentscope-runtime ends a reasoning item under the next item's index, GitHub Copilot gives every
event a new id, and some have one id for all items. So an id that was announced for an item of this
type is believed first, then the index, then the order.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tailrace.wire.responses_body import straighten
from tailrace.wire.responses_frames import Json


class Lane(NamedTuple):
    """How one kind of text is told: its list in the item, its events, its names."""

    item: str
    place: str
    key: str
    part: str
    text: str
    type: str
    field: str

    def empty(self) -> Json:
        """The part as it is announced; the openai package needs the list of annotations."""
        extra: Json = {"annotations": []} if self.type == "output_text" else {}
        return {"type": self.type, self.field: "", **extra}


TEXT = Lane(
    "message",
    "content",
    "content_index",
    "response.content_part",
    "response.output_text",
    "output_text",
    "text",
)
REFUSAL = TEXT._replace(text="response.refusal", type="refusal", field="refusal")
SUMMARY = Lane(
    "reasoning",
    "summary",
    "summary_index",
    "response.reasoning_summary_part",
    "response.reasoning_summary_text",
    "summary_text",
    "text",
)
RAW = Lane(
    "reasoning",
    "content",
    "content_index",
    "response.content_part",
    "response.reasoning_text",
    "reasoning_text",
    "text",
)
ARGUMENTS = Lane(
    "function_call",
    "arguments",
    "",
    "",
    "response.function_call_arguments",
    "arguments",
    "arguments",
)
BY_TYPE = {lane.type: lane for lane in (TEXT, REFUSAL, SUMMARY, RAW)}

MAX_RECORDS = 10_000
"""How many items, parts and their places are remembered of a response; about 15 MB."""

MAX_NAMES = 50_000
"""How many ids are remembered. GitHub Copilot sends a new id with every event."""

_PREFIX = {"message": "msg", "reasoning": "rs", "function_call": "fc"}


def utf8(text: str) -> bytes:
    """Text as it is kept: bytes grow in place, and half of a surrogate pair is no error."""
    return text.encode("utf-8", "surrogatepass")


class Part:
    """One text of an item, as far as it has been told."""

    __slots__ = ("closed", "index", "lane", "lost", "said", "text")

    def __init__(self, lane: Lane, index: int) -> None:
        self.lane = lane
        self.index = index
        self.text = bytearray()
        self.lost = False  # too large to be kept: nothing is completed from it
        self.said = False  # its text is done
        self.closed = False

    def whole(self) -> str:
        """The text so far."""
        return self.text.decode("utf-8", "surrogatepass")

    def shown(self, text: str | None = None) -> Json:
        """The part as the item shows it, with the text so far or the one that is given."""
        return {**self.lane.empty(), self.lane.field: self.whole() if text is None else text}


class Item:
    """One output item, under the id and the index that the client knows it by."""

    __slots__ = (
        "announced",
        "done",
        "family",
        "given",
        "id",
        "index",
        "named",
        "offered",
        "parts",
        "raws",
        "repeats",
        "type",
        "value",
    )

    def __init__(self, id: str, index: int, type: str) -> None:
        self.id = id
        self.index = index
        self.type = type
        self.given: int | None = None  # the index as the backend has it
        self.named = False  # the backend has an id for it
        self.announced = False  # the client has seen its `output_item.added`
        self.offered = False  # the backend has sent one
        self.done: Json | None = None
        self.parts: dict[tuple[str, int], Part] = {}
        self.value: Json = {}  # a function call as it was announced
        self.family: Lane | None = None  # which of the two ways to tell reasoning came first
        self.raws: dict[int, int] = {}  # raw content_index to the summary_index that shows it
        self.repeats: dict[int, Repeat] = {}

    def end(self, done: Json) -> None:
        """Remember the item as it ended, and forget its parts."""
        self.done = done
        self.parts.clear()
        self.raws.clear()
        self.repeats.clear()

    def is_elsewhere(self, index: object) -> bool:
        """Whether an index is given and is not this item's."""
        return isinstance(index, int) and self.given is not None and index != self.given

    def listed(self, place: str) -> list[Part]:
        """The parts of one list, in order."""
        return [part for (where, _), part in sorted(self.parts.items()) if where == place]

    def next_index(self, place: str) -> int:
        """Where the next part of one list goes."""
        return max((index for where, index in self.parts if where == place), default=-1) + 1

    def begun(self) -> Json:
        """The item as it is announced when the backend forgot to."""
        if self.type == "message":
            return {
                "type": "message",
                "id": self.id,
                "status": "in_progress",
                "role": "assistant",
                "content": [],
            }
        return {"type": "reasoning", "id": self.id, "summary": []}


class Repeat:
    """A genuine summary behind raw reasoning that was already shown as one.

    While it repeats that text it is dropped; where it begins to differ it becomes its own part.
    """

    __slots__ = ("at", "own")

    def __init__(self) -> None:
        self.at = 0
        self.own: int | None = None


class Books:
    """The items of one response, found by whatever an event says about them."""

    def __init__(self, max_records: int = MAX_RECORDS) -> None:
        self.items: list[Item] = []
        self.base = ""
        self._room = max_records
        self._ids: dict[tuple[str, str | None], Item] = {}  # by id and type, and by id alone
        self._indexes: dict[int, Item] = {}  # by the backend's own numbers, the latest of each
        self._used: set[int] = set()

    @property
    def full(self) -> bool:
        """Whether the response has more records than are remembered."""
        return self._room < 0

    def count(self) -> None:
        """One more record is remembered."""
        self._room -= 1

    def part(self, item: Item, lane: Lane, index: int) -> Part:
        """A new part of an item."""
        self.count()
        part = item.parts[lane.place, index] = Part(lane, index)
        return part

    def find(self, id: object, index: object, type: str | None) -> Item | None:
        """The item that is meant, if it is known; `type` is what the event is about, if it says."""
        is_named = isinstance(id, str) and bool(id)
        if is_named:
            found = self._ids.get((str(id), type))
            if found is not None and not (found.done is not None and found.is_elsewhere(index)):
                return found
        if isinstance(index, int):
            found = self._indexes.get(index)
            if found is not None and (found.done is not None or type not in (None, found.type)):
                return None
        else:
            found = self.last(type)
            # An id that nobody announced, from a backend that announces, is another of the last
            # item's; where nothing is announced, a new id is all there is to tell a new item by.
            if found is not None and is_named and found.named and not found.offered:
                return None
        return found

    def last(self, type: str | None) -> Item | None:
        """The latest item that is still open, of this type if one is asked for."""
        for item in reversed(self.items):
            if item.done is None and type in (None, item.type):
                return item
        return None

    def add(self, id: object, index: object, type: str) -> Item:
        """A new item: with the id and the index that it brings, if nobody has them."""
        self.count()
        free = len(self.items)
        while free in self._used:
            free += 1
        given = index if isinstance(index, int) and not isinstance(index, bool) else None
        number = free if given is None or given in self._used else given
        name = id if isinstance(id, str) else ""
        if not name or (name, None) in self._ids:
            name = f"{_PREFIX.get(type, 'item')}_{self.base}_{number}"
        item = Item(name, number, type)
        item.given = given
        self.items.append(item)
        self._used.add(number)
        self._indexes[number if given is None else given] = item
        self._ids[name, type] = self._ids[name, None] = item
        if isinstance(id, str) and id:
            # The latest of those that share an id is the one that is spoken of.
            self._ids[id, type] = self._ids[id, None] = item
            item.named = True
        return item

    def alias(self, id: object, item: Item) -> None:
        """The backend names an item that the client knows by another id."""
        if isinstance(id, str) and id:
            if len(self._ids) < MAX_NAMES:
                for type_ in (item.type, None):
                    self._ids.setdefault((id, type_), item)
            item.named = True

    def by_output(self, values: list[Json]) -> list[Item | None]:
        """The items that stand in a whole response: by id, and else by type and order."""
        ids = [(str(value.get("id")), str(value.get("type"))) for value in values]
        free = {item.id: item for item in sorted(self.items, key=lambda item: item.index)}
        found: list[Item | None] = [None] * len(values)
        # The ids that the client knows come first: some backends have one for several items.
        for names in ({(item.id, item.type): item for item in self.items}, self._ids):
            for place, key in enumerate(ids):
                if found[place] is None and key in names:
                    found[place] = free.pop(names[key].id, None)
        left: dict[str, deque[Item]] = {}
        for item in free.values():
            left.setdefault(item.type, deque()).append(item)
        for place, (_, type_) in enumerate(ids):
            if found[place] is None and left.get(type_):
                found[place] = left[type_].popleft()
        return found


def named(value: Json, event: Json) -> tuple[str | None, object, object]:
    """What an event about a whole item says of it: type, id, index."""
    type_ = value.get("type")
    id_ = value.get("id") or event.get("item_id")
    return type_ if isinstance(type_, str) else None, id_, event.get("output_index")


def fill_id(value: Json, item: Item) -> bool:
    """Let an item have the id that the client knows.

    One that goes with encrypted content is checked by the provider: it must stay.
    """
    if value.get("id") == item.id or value.get("encrypted_content"):
        return False
    value["id"] = item.id
    return True


def fill_item(value: Json, item: Item) -> bool:
    """Complete what clients read of an item when it is announced."""
    changed = straighten(value)
    changed = fill_id(value, item) or changed
    wanted: dict[str, Json] = {
        "message": {"role": "assistant", "content": []},
        "reasoning": {"summary": []},
        "function_call": {"call_id": item.id, "name": "", "arguments": ""},
    }
    for name, empty in wanted.get(item.type, {}).items():
        if value.get(name) is None:
            value[name] = empty
            changed = True
    return changed
