"""The `output` of a response as events: its items, with their texts, arguments and images.

An entry gets the next `output_index` when it begins: the index counts all entries that arrived
before it. A call that people may be asked for is held back until it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, ClassVar, NamedTuple

import msgspec

from tailrace.core import events as ev
from tailrace.core.approval_pauses import ITEM
from tailrace.core.items import Reasoning, ToolCall, ToolResult
from tailrace.core.parts import PARTS
from tailrace.core.state import ImageNode, ItemNode, Part, TaskNode, TextNode, WholeNode
from tailrace.core.values import Json
from tailrace.wire.openai_responses import items as shown
from tailrace.wire.openai_responses.items import EntryKey
from tailrace.wire.projection import (
    Sources,
    file_link,
    inline_image,
    is_client,
    is_raw_first,
)

ResponseEvent = tuple[str, Json]
"""The type and the fields of a frame, before it has its number."""

ResponseEvents = Iterator[ResponseEvent]

PartKey = tuple[int, str, int]
"""A part of an item: the item's index, the part's store, its index there."""


class PartFamily(NamedTuple):
    """The names of a kind of part: the events of the part and of its text, and the fields."""

    part: str
    text: str
    place: str
    type: str
    field: str
    extra: Json


_TEXT = PartFamily(
    "response.content_part",
    "response.output_text",
    "content_index",
    "output_text",
    "text",
    {"logprobs": []},
)
_FAMILIES = {
    "text": _TEXT,
    "file": _TEXT,
    "refusal": PartFamily(
        "response.content_part", "response.refusal", "content_index", "refusal", "refusal", {}
    ),
    "summary": PartFamily(
        "response.reasoning_summary_part",
        "response.reasoning_summary_text",
        "summary_index",
        "summary_text",
        "text",
        {},
    ),
    "reasoning_text": PartFamily(
        "response.content_part",
        "response.reasoning_text",
        "content_index",
        "reasoning_text",
        "text",
        {},
    ),
}
_ARGUMENTS = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
    "mcp_call": ("response.mcp_call_arguments", "arguments"),
    "code_interpreter_call": ("response.code_interpreter_call_code", "code"),
}
_ENDS = (ev.OutputItemDone, *ev.TERMINAL)
_json = msgspec.json.Encoder().encode


class OutputEvents:
    """Encodes what the events of a task change in the items of its response."""

    __slots__ = (
        "_cited",
        "_counts",
        "_has_arguments",
        "_held",
        "_index",
        "_loose",
        "_places",
        "_sources",
        "heads",
    )

    def __init__(self, sources: Sources) -> None:
        """Before the first item."""
        self._sources = sources
        self._index: dict[EntryKey, int] = {}
        self._held: set[EntryKey] = set()
        self._places: dict[PartKey, tuple[PartFamily, Json]] = {}
        self._counts: dict[tuple[int, str], int] = {}
        self._cited: dict[PartKey, int] = {}
        self._loose: dict[EntryKey, list[tuple[PartKey, TextNode]]] = {}
        self._has_arguments = False
        self.heads: dict[PartKey, bytes] = {}
        """The frames of deltas up to their text: the deltas of a part differ only in that."""

    def __len__(self) -> int:
        return len(self._index)

    @property
    def begun(self) -> Collection[EntryKey]:
        """The entries that were announced."""
        return self._index.keys()

    def before(self, root: TaskNode | None, event: Any) -> None:
        """Remember what the fold of this event will hide; None if it is of another task."""
        self._loose = {} if root is None else self._left_open(root, event)
        self._has_arguments = root is not None and _are_arguments_sent(root, event)

    def changed(self, root: TaskNode, event: Any) -> ResponseEvents:
        """What an event of the task has changed."""
        if self._held:
            yield from self._released(root)
        encode = self._ENCODE.get(type(event))
        if encode is not None:
            yield from encode(self, root, event)

    def ended(self, root: TaskNode) -> ResponseEvents:
        """The ends of the items that the end of the task has closed."""
        for key in self._loose:
            if shown.is_closed(root, key):
                yield from self._close(root, key)

    def replayed(self, root: TaskNode, key: EntryKey, *, is_closed: bool) -> ResponseEvents:
        """An entry so far, with a single delta for each text."""
        yield from self._item_begun(root, key)
        node = root.items[key[0]]
        if key[1] != ITEM:
            yield from self._partial(root, key)
        elif isinstance(node.item, ToolCall):
            yield from self._arguments(root, key)
        else:
            for place, part in _parts(node):
                yield from self._part_begun(root, place, part)
                if place in self._places and not part.is_open:
                    yield from self._part_done(root, place, part)
        if is_closed:
            yield from self._close(root, key)

    def message(self, item: Json) -> ResponseEvents:
        """A message behind all items, with a single text."""
        index, [part] = len(self._index), item["content"]
        begun = {**item, "status": "in_progress", "content": []}
        yield "response.output_item.added", {"output_index": index, "item": begun}
        where = {"item_id": item["id"], "output_index": index, "content_index": 0}
        yield "response.content_part.added", {**where, "part": {**part, "text": ""}}
        text = {**where, "logprobs": []}
        yield "response.output_text.delta", {**text, "delta": part["text"]}
        yield "response.output_text.done", {**text, "text": part["text"]}
        yield "response.content_part.done", {**where, "part": part}
        yield "response.output_item.done", {"output_index": index, "item": item}

    def hold(self, root: TaskNode) -> None:
        """Hold back the calls that have not begun, after a replay."""
        self._held = {(index, ITEM) for index, node in root.items.items() if node.begun_at is None}

    def _left_open(
        self, root: TaskNode, event: Any
    ) -> dict[EntryKey, list[tuple[PartKey, TextNode]]]:
        """The entries that an event will close, with their open texts."""
        if not isinstance(event, _ENDS):
            return {}
        if isinstance(event, ev.OutputItemDone):
            keys = [key for key in ((event.output_index, ITEM),) if key in self._index]
        else:
            keys = list(self._index)
        return {
            key: [
                (place, part)
                for place, part in _parts(root.items[key[0]])
                if key[1] == ITEM and part.is_open and place in self._places
            ]
            for key in keys
            if not shown.is_closed(root, key)
        }

    # --- items ---------------------------------------------------------------------------------

    def _where(self, root: TaskNode, key: EntryKey) -> Json:
        """The fields that all events of an entry share."""
        node = root.items[key[0]]
        ident = node.item.id if key[1] == ITEM else shown.image_id(node, key[1])
        return {"item_id": ident, "output_index": self._index[key]}

    def _item_begun(self, root: TaskNode, key: EntryKey) -> ResponseEvents:
        """Give an entry the next `output_index`, and announce it."""
        self._index[key] = index = len(self._index)
        item, where = shown.begun(root, key), self._where(root, key)
        kind = item["type"]
        yield "response.output_item.added", {"output_index": index, "item": item}
        if kind in _ARGUMENTS:
            self.heads[key[0], "arguments", 0] = _head(_ARGUMENTS[kind][0], where)
        if kind in ("mcp_call", "code_interpreter_call"):
            yield f"response.{kind}.in_progress", where
        elif kind == "image_generation_call":
            yield "response.image_generation_call.in_progress", where
            yield "response.image_generation_call.generating", where

    def _close(self, root: TaskNode, key: EntryKey) -> ResponseEvents:
        """End an entry, and before it the parts that were still open."""
        for place, part in self._loose.get(key, ()):
            yield from self._part_done(root, place, part)
        item, where = shown.item_json(self._sources, root, key), self._where(root, key)
        if item["type"] == "mcp_call":
            end = "completed" if item["status"] == "completed" else "failed"
            yield f"response.mcp_call.{end}", where
        elif item["type"] == "code_interpreter_call" and item["status"] == "completed":
            yield "response.code_interpreter_call.completed", where
        elif item["type"] == "image_generation_call":
            yield "response.image_generation_call.completed", where
        fields = {"output_index": where["output_index"], "item": item}
        yield "response.output_item.done", fields

    def _item_added(self, root: TaskNode, event: ev.OutputItemAdded) -> ResponseEvents:
        key = (event.output_index, ITEM)
        if not shown.is_entry(event.item):
            return
        if root.items[event.output_index].begun_at is None:
            self._held.add(key)
        else:
            yield from self._item_begun(root, key)

    def _released(self, root: TaskNode) -> ResponseEvents:
        """Announce the calls that were held back and begin with this event."""
        for key in [key for key in self._held if root.items[key[0]].begun_at is not None]:
            self._held.remove(key)
            yield from self._item_begun(root, key)
            yield from self._arguments(root, key)

    def _item_done(self, root: TaskNode, event: ev.OutputItemDone) -> ResponseEvents:
        node = root.items[event.output_index]
        if isinstance(node.item, ToolResult):
            # A server's call ends with its result.
            call = root.calls.get(node.item.call_id)
            if call is None or is_client(call.item):
                return
            node = call
        key = (node.output_index, ITEM)
        if key in self._index and shown.is_closed(root, key):
            yield from self._close(root, key)

    def _arguments_done(self, root: TaskNode, event: ev.ArgumentsDone) -> ResponseEvents:
        key = (event.output_index, ITEM)
        if key in self._index:
            yield from self._arguments(root, key)

    def _arguments(self, root: TaskNode, key: EntryKey) -> ResponseEvents:
        """The end of a call's arguments; if they were not streamed, a delta comes first."""
        item, where = shown.item_json(self._sources, root, key), self._where(root, key)
        name, field = _ARGUMENTS[item["type"]]
        part = root.items[key[0]].arguments
        assert part is not None
        if item[field] and not self._has_arguments:
            yield f"{name}.delta", {**where, "delta": item[field]}
        if not part.is_open:
            yield f"{name}.done", {**where, field: item[field]}
            if item["type"] == "code_interpreter_call":
                yield "response.code_interpreter_call.interpreting", where

    # --- texts ---------------------------------------------------------------------------------

    def _part_begun(self, root: TaskNode, place: PartKey, part: Part) -> ResponseEvents:
        """Give a part its index in its item, and send its content so far."""
        key, node = (place[0], ITEM), root.items[place[0]]
        raw_first = part.kind == "reasoning_text" and is_raw_first(node)
        family = _FAMILIES.get("summary" if raw_first else part.kind)
        if family is None or key not in self._index:
            return
        rank = self._counts.get((place[0], family.place), 0)
        self._counts[place[0], family.place] = rank + 1
        where = {**self._where(root, key), family.place: rank}
        self._places[place] = family, where
        self.heads[place] = _head(family.text, {**where, **family.extra})
        empty: Json = {"type": family.type, family.field: ""}
        if family is _TEXT:
            empty |= {"annotations": [], **family.extra}
        yield f"{family.part}.added", {**where, "part": empty}
        text = file_link(part) if isinstance(part, WholeNode) else part.text  # type: ignore[union-attr]
        if text:
            yield f"{family.text}.delta", {**where, **family.extra, "delta": text}
        self._cited[place] = 0
        for annotation in part.annotations if isinstance(part, TextNode) else ():
            yield from self._cite(root, place, part, annotation)

    def _part_done(self, root: TaskNode, place: PartKey, part: Part) -> ResponseEvents:
        family, where = self._places[place]
        if isinstance(root.items[place[0]].item, Reasoning):
            whole = {"type": family.type, family.field: part.text}  # type: ignore[union-attr]
        else:
            whole = shown.content_json(self._sources, root, part)
        yield f"{family.text}.done", {**where, **family.extra, family.field: whole[family.field]}
        yield f"{family.part}.done", {**where, "part": whole}

    def _cite(self, root: TaskNode, place: PartKey, part: Part, annotation: Any) -> ResponseEvents:
        citation = shown.citation_json(self._sources, root, annotation, part.at)
        if citation is not None:
            index = self._cited[place]
            self._cited[place] = index + 1
            fields = {"annotation_index": index, "annotation": citation}
            yield "response.output_text.annotation.added", {**self._places[place][1], **fields}

    def _text_added(self, root: TaskNode, event: Any) -> ResponseEvents:
        yield from self._part_begun(root, *_part_of(root, event))

    def _text_done(self, root: TaskNode, event: Any) -> ResponseEvents:
        place, part = _part_of(root, event)
        if place not in self._places:
            yield from self._part_begun(root, place, part)
        if place in self._places:
            yield from self._part_done(root, place, part)

    def _annotation_added(self, root: TaskNode, event: ev.AnnotationAdded) -> ResponseEvents:
        place, part = _part_of(root, event)
        if place in self._places:
            yield from self._cite(root, place, part, event.annotation)

    # --- images --------------------------------------------------------------------------------

    def _image_added(self, root: TaskNode, event: ev.ImageAdded) -> ResponseEvents:
        if not shown.is_code_result(root, root.items[event.output_index]):
            yield from self._item_begun(root, (event.output_index, event.block_index))

    def _image_delta(self, root: TaskNode, event: ev.ImageDelta) -> ResponseEvents:
        if not shown.is_code_result(root, root.items[event.output_index]):
            yield from self._partial(root, (event.output_index, event.block_index))

    def _partial(self, root: TaskNode, key: EntryKey) -> ResponseEvents:
        part = root.items[key[0]].parts[key[1]]
        assert isinstance(part, ImageNode)
        payload = inline_image(part.image)
        if payload is not None and part.partial_image_index is not None:
            fields = {
                "partial_image_index": part.partial_image_index,
                "partial_image_b64": payload,
                "output_format": shown.image_format(part.image),
            }
            name = "response.image_generation_call.partial_image"
            yield name, {**self._where(root, key), **fields}

    def _image_done(self, root: TaskNode, event: ev.ImageDone) -> ResponseEvents:
        if shown.is_code_result(root, root.items[event.output_index]):
            return
        key = (event.output_index, event.block_index)
        if key not in self._index:
            yield from self._item_begun(root, key)
        yield from self._close(root, key)

    _ENCODE: ClassVar[dict[type[Any], Callable[[Any, TaskNode, Any], ResponseEvents]]] = {
        ev.OutputItemAdded: _item_added,
        ev.OutputItemDone: _item_done,
        ev.ArgumentsDone: _arguments_done,
        ev.SummaryItemAdded: _text_added,
        ev.SummaryItemDone: _text_done,
        ev.ReasoningTextAdded: _text_added,
        ev.ReasoningTextDone: _text_done,
        ev.TextAdded: _text_added,
        ev.TextDone: _text_done,
        ev.AnnotationAdded: _annotation_added,
        ev.RefusalAdded: _text_added,
        ev.RefusalDone: _text_done,
        ev.FileDone: _text_done,
        ev.ImageAdded: _image_added,
        ev.ImageDelta: _image_delta,
        ev.ImageDone: _image_done,
    }


def _are_arguments_sent(root: TaskNode, event: Any) -> bool:
    """Whether the arguments that an event repeats have been streamed."""
    if not isinstance(event, ev.ArgumentsDone):
        return False
    node = root.items.get(event.output_index)
    return node is not None and node.arguments is not None and bool(node.arguments.text)


def _parts(node: ItemNode) -> list[tuple[PartKey, Any]]:
    """The parts of an item, in order of arrival."""
    found: list[tuple[PartKey, Any]] = [
        ((node.output_index, store, index), part)
        for store in ("parts", "texts")
        for index, part in getattr(node, store).items()
    ]
    return sorted(found, key=lambda entry: entry[1].at)


def _part_of(root: TaskNode, event: Any) -> tuple[PartKey, Part]:
    """The part that an event changes."""
    _, _, store, index_of = PARTS[event.__class__]
    index = index_of(event)
    part: Part = getattr(root.items[event.output_index], store)[index]
    return (event.output_index, store, index), part


def _head(name: str, fields: Json) -> bytes:
    """A delta's frame up to its text."""
    data = _json({"type": f"{name}.delta", **fields})
    return b'event: %b.delta\ndata: %b,"delta":' % (name.encode(), data[:-1])
