"""The items and parts of a Responses stream that the repairer has seen.

Backends name an item by id, by index, by both or by neither, and some contradict themselves.
agentscope-runtime ends a reasoning item under the next item's index. GitHub Copilot gives every
event a new id, and some backends use the same id for all items. So an id that was announced for an
item of the right type decides first, then the index, then the order.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tailrace.core.values import Json, text_of, text_or_none
from tailrace.repair.object import use_typed_parts


class TextFamily(NamedTuple):
    """The names of a kind of text: its list in the item, its events, its fields."""

    item: str
    place: str
    key: str
    part: str
    text: str
    type: str
    field: str

    def empty(self) -> Json:
        """The part as it is announced; openai-python needs the list of annotations."""
        extra: Json = {"annotations": []} if self.type == "output_text" else {}
        return {"type": self.type, self.field: "", **extra}


TEXT = TextFamily(
    "message",
    "content",
    "content_index",
    "response.content_part",
    "response.output_text",
    "output_text",
    "text",
)
REFUSAL = TEXT._replace(text="response.refusal", type="refusal", field="refusal")
SUMMARY = TextFamily(
    "reasoning",
    "summary",
    "summary_index",
    "response.reasoning_summary_part",
    "response.reasoning_summary_text",
    "summary_text",
    "text",
)
RAW = TextFamily(
    "reasoning",
    "content",
    "content_index",
    "response.content_part",
    "response.reasoning_text",
    "reasoning_text",
    "text",
)
ARGUMENTS = TextFamily(
    "function_call",
    "arguments",
    "",
    "",
    "response.function_call_arguments",
    "arguments",
    "arguments",
)
BY_TYPE = {family.type: family for family in (TEXT, REFUSAL, SUMMARY, RAW)}

MAX_RECORDS = 10_000
"""How many items, parts and indexes of a response are kept; about 15 MB."""

MAX_NAMES = 50_000
"""How many ids are kept. GitHub Copilot sends a new id with every event."""

_PREFIX = {"message": "msg", "reasoning": "rs", "function_call": "fc"}


def utf8(text: str) -> bytes:
    """Text as bytes, which grow in place; a lone surrogate is allowed."""
    return text.encode("utf-8", "surrogatepass")


class SeenPart:
    """A text of an item, as far as it was sent."""

    __slots__ = ("closed", "family", "index", "is_done", "lost", "text")

    def __init__(self, family: TextFamily, index: int) -> None:
        self.family = family
        self.index = index
        self.text = bytearray()
        self.lost = False  # too large to keep, so nothing is filled in from it
        self.is_done = False  # its text was ended
        self.closed = False

    def whole(self) -> str:
        """The text so far."""
        return self.text.decode("utf-8", "surrogatepass")

    def shown(self, text: str | None = None) -> Json:
        """The part as in its item, with the text so far or the given text."""
        return {**self.family.empty(), self.family.field: self.whole() if text is None else text}


class SeenItem:
    """An output item, with the id and the index that the client has seen."""

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
        self.given: int | None = None  # the backend's own index
        self.named = False  # the backend has sent an id for it
        self.announced = False  # the client has seen its `output_item.added`
        self.offered = False  # the backend has sent its `output_item.added`
        self.done: Json | None = None
        self.parts: dict[tuple[str, int], SeenPart] = {}
        self.value: Json = {}  # a function call, as announced
        self.family: TextFamily | None = None  # RAW or SUMMARY, whichever came first
        self.raws: dict[int, int] = {}  # from raw content_index to summary_index
        self.repeats: dict[int, Repeat] = {}

    def end(self, done: Json) -> None:
        """Keep the final item, and drop its parts."""
        self.done = done
        self.parts.clear()
        self.raws.clear()
        self.repeats.clear()

    def is_elsewhere(self, index: object) -> bool:
        """Whether an index is given that differs from this item's."""
        return isinstance(index, int) and self.given is not None and index != self.given

    def listed(self, place: str) -> list[SeenPart]:
        """The parts of a list, in order."""
        return [part for (where, _), part in sorted(self.parts.items()) if where == place]

    def next_index(self, place: str) -> int:
        """The index of the next part of a list."""
        return max((index for where, index in self.parts if where == place), default=-1) + 1

    def begun(self) -> Json:
        """The announcement of an item that the backend did not announce."""
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
    """A summary of the backend, after raw reasoning that was already shown as a summary.

    While it repeats that text it is dropped. Where it differs it becomes a part of its own.
    """

    __slots__ = ("at", "own")

    def __init__(self) -> None:
        self.at = 0
        self.own: int | None = None


class SeenItems:
    """The items of a response. Events name them by id, by index or by order."""

    def __init__(self, max_records: int = MAX_RECORDS) -> None:
        self.all: list[SeenItem] = []
        self.base = ""
        self._room = max_records
        self._ids: dict[tuple[str, str | None], SeenItem] = {}  # by id and type, and by id only
        self._indexes: dict[int, SeenItem] = {}  # by the backend's index; the latest item counts
        self._used: set[int] = set()

    @property
    def full(self) -> bool:
        """Whether the response has more records than the limit."""
        return self._room < 0

    def count(self) -> None:
        """Count a record."""
        self._room -= 1

    def part(self, item: SeenItem, family: TextFamily, index: int) -> SeenPart:
        """Add a part to an item."""
        self.count()
        part = item.parts[family.place, index] = SeenPart(family, index)
        return part

    def find(self, id: object, index: object, type: str | None) -> SeenItem | None:
        """The item that an event names; `type` is the type that the event belongs to, if known."""
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
            # If the backend announces items, an unknown id is another id of the last item. If it
            # does not, a new id means a new item.
            if found is not None and is_named and found.named and not found.offered:
                return None
        return found

    def last(self, type: str | None) -> SeenItem | None:
        """The latest open item, of this type unless it is None."""
        for item in reversed(self.all):
            if item.done is None and type in (None, item.type):
                return item
        return None

    def add(self, id: object, index: object, type: str) -> SeenItem:
        """Add an item, with the given id and index unless they are in use."""
        self.count()
        free = len(self.all)
        while free in self._used:
            free += 1
        given = index if isinstance(index, int) and not isinstance(index, bool) else None
        number = free if given is None or given in self._used else given
        name = text_of(id)
        if not name or (name, None) in self._ids:
            name = f"{_PREFIX.get(type, 'item')}_{self.base}_{number}"
        item = SeenItem(name, number, type)
        item.given = given
        self.all.append(item)
        self._used.add(number)
        self._indexes[number if given is None else given] = item
        self._ids[name, type] = self._ids[name, None] = item
        if isinstance(id, str) and id:
            # If items share an id, events mean the latest of them.
            self._ids[id, type] = self._ids[id, None] = item
            item.named = True
        return item

    def alias(self, id: object, item: SeenItem) -> None:
        """Note another id that the backend uses for an item."""
        if isinstance(id, str) and id:
            if len(self._ids) < MAX_NAMES:
                for type_ in (item.type, None):
                    self._ids.setdefault((id, type_), item)
            item.named = True

    def by_output(self, values: list[Json]) -> list[SeenItem | None]:
        """The seen items of a response's `output`: by id, else by type and order."""
        ids = [(str(value.get("id")), str(value.get("type"))) for value in values]
        free = {item.id: item for item in sorted(self.all, key=lambda item: item.index)}
        found: list[SeenItem | None] = [None] * len(values)
        # The ids that the client has seen come first: some backends use an id for several items.
        for names in ({(item.id, item.type): item for item in self.all}, self._ids):
            for place, key in enumerate(ids):
                if found[place] is None and key in names:
                    found[place] = free.pop(names[key].id, None)
        left: dict[str, deque[SeenItem]] = {}
        for item in free.values():
            left.setdefault(item.type, deque()).append(item)
        for place, (_, type_) in enumerate(ids):
            if found[place] is None and left.get(type_):
                found[place] = left[type_].popleft()
        return found


def named(value: Json, event: Json) -> tuple[str | None, object, object]:
    """The type, id and index of the item in an event."""
    type_ = value.get("type")
    id_ = value.get("id") or event.get("item_id")
    return text_or_none(type_), id_, event.get("output_index")


def fill_id(value: Json, item: SeenItem) -> bool:
    """Set the id that the client has seen.

    An id beside encrypted content stays, because the provider checks it.
    """
    if value.get("id") == item.id or value.get("encrypted_content"):
        return False
    value["id"] = item.id
    return True


def fill_item(value: Json, item: SeenItem) -> bool:
    """Fill in the fields that clients read of an announced item."""
    changed = use_typed_parts(value)
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
