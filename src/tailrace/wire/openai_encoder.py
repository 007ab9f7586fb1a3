"""Events to the frames of a Responses stream; `wire.openai_responses` says what they promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import msgspec

from tailrace.core import events as ev
from tailrace.core import sse
from tailrace.core.fold import State
from tailrace.core.items import Message, RawItem, Reasoning, ToolCall, ToolResult
from tailrace.core.snapshot import fork
from tailrace.core.state import ImageNode, ItemNode, Part, TaskNode, TextNode, WholeNode
from tailrace.wire import openai_items as shown
from tailrace.wire.base import Frame
from tailrace.wire.openai_items import ITEM, Json, Key
from tailrace.wire.openai_numbers import (
    JOINED,
    MANY_ANNOTATIONS,
    MANY_PARTS,
    NARROW,
    WHOLE,
    WIDE,
    Numbering,
)
from tailrace.wire.openai_object import (
    INTERRUPTED,
    TOO_LONG,
    begun_response,
    failed_response,
    response_object,
)

Told = tuple[str, Json]
"""The type and the fields of one frame, before it has its number."""

Place = tuple[int, str, int]
"""A part of one of the root's items: the item's index, the name of its list, its index there."""


class Lane(NamedTuple):
    """How one kind of text is told: the events of the part, those of its text, the names."""

    part: str
    text: str
    place: str
    type: str
    field: str
    extra: Json


_TEXT = Lane(
    "response.content_part",
    "response.output_text",
    "content_index",
    "output_text",
    "text",
    {"logprobs": []},
)
_LANES = {
    "text": _TEXT,
    "file": _TEXT,
    "refusal": Lane(
        "response.content_part", "response.refusal", "content_index", "refusal", "refusal", {}
    ),
    "summary": Lane(
        "response.reasoning_summary_part",
        "response.reasoning_summary_text",
        "summary_index",
        "summary_text",
        "text",
        {},
    ),
    "reasoning_text": Lane(
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
_DELTAS: dict[type[Any], tuple[str, str]] = {
    ev.TextDelta: ("blocks", "block_index"),
    ev.RefusalDelta: ("blocks", "block_index"),
    ev.SummaryTextDelta: ("summary", "summary_index"),
    ev.ReasoningTextDelta: ("texts", "text_index"),
    ev.ArgumentsDelta: ("arguments", "output_index"),
}
_ENDS = (ev.OutputItemDone, *ev.TERMINAL)
_json = msgspec.json.Encoder().encode


class ResponsesEncoder:
    """The frames of one run, event by event.

    It folds along: an item's last frame repeats it whole, and its place in the one list of the
    response is its place among all that has arrived.
    """

    __slots__ = (
        "_base",
        "_cited",
        "_counts",
        "_heads",
        "_index",
        "_loose",
        "_mode",
        "_numbering",
        "_over",
        "_places",
        "_said",
        "_sources",
        "_state",
        "_task_id",
    )

    def __init__(
        self,
        state: State,
        *,
        joined: bool = False,
        numbering: Numbering = NARROW,
        told: list[Told] | None = None,
    ) -> None:
        """Ready for the event after `state`; `told` takes what brings an empty client there."""
        self._state = state = fork(state)
        self._mode = JOINED if joined else WHOLE
        self._use(numbering)
        self._sources = shown.Sources(state)
        self._index: dict[Key, int] = {}
        self._places: dict[Place, tuple[Lane, Json]] = {}
        self._counts: dict[tuple[int, str], int] = {}
        self._heads: dict[Place, bytes] = {}
        self._cited: dict[Place, int] = {}
        self._loose: dict[Key, list[tuple[Place, TextNode]]] = {}
        self._said = False
        self._task_id: str | None = None
        self._over = False
        root = state.root
        if root is None:
            return
        self._task_id = root.task_id
        if any(_is_long(node) for node in root.items.values()):
            self._use(WIDE)
        for one in self._retell(root):
            if told is not None:
                told.append(one)
        self._over = not joined and any(
            node.superseded and _is_told(node) for node in root.items.values()
        )

    def encode(self, recorded: ev.Recorded) -> list[Frame]:
        """The frames of the next event; none after the frame that ends the response."""
        event = recorded.event
        if self._over:
            return []
        kind = _DELTAS.get(event.__class__)
        if kind is None:
            told = list(self._tell(event))
            return self.number(told, self._mode, event.sequence_number) if told else []
        # Nearly all events are deltas, and those of one part differ in nothing but the text.
        if not self._state.absorb(event) or event.task_id != self._task_id:
            return []
        place = (event.output_index, kind[0], getattr(event, kind[1]))  # type: ignore[union-attr]
        head = self._heads.get(place)
        if head is None:
            return []
        number = event.sequence_number << self._numbering.shift | self._base
        return [b'%b%b,"sequence_number":%d}\n\n' % (head, _json(event.delta), number)]  # type: ignore[union-attr]

    @property
    def over(self) -> bool:
        """Whether the frame that ends the stream was encoded."""
        return self._over

    def close(self, reason: str) -> list[Frame]:
        """Nothing: whoever is cut retrieves the rest by its cursor, and the run did not end."""
        return []

    def number(self, told: list[Told], mode: int, seq: int) -> list[Frame]:
        """Frames with their numbers, from the first that belongs to this event, or to `open`."""
        if len(told) > self._numbering.room(mode):
            self._use(WIDE)
        room = self._numbering.room(mode)
        if len(told) > room:
            self._over = True
            told[room - 1 :] = [
                ("response.failed", {"response": failed_response(self._state, TOO_LONG)})
            ]
        return [
            sse.frame(_json({"type": name, **fields, "sequence_number": number}), event=name)
            for number, (name, fields) in enumerate(told, self._numbering.first(mode, seq))
        ]

    def _use(self, numbering: Numbering) -> None:
        self._numbering = numbering
        self._base = numbering.first(self._mode)

    def _note_length(self, root: TaskNode, event: Any) -> None:
        """Use wide numbers from the event on that makes an item long."""
        node = root.items.get(getattr(event, "output_index", -1))
        if node is None or event.task_id != self._task_id:
            return
        if isinstance(event, ev.OutputItemAdded | ev.OutputItemDone):
            is_long = _is_long(node)
        else:
            is_long = _has_many_parts(node) or _is_cited_often(
                node.parts.get(getattr(event, "block_index", -1))
            )
        if is_long:
            self._use(WIDE)

    def _tell(self, event: ev.AnyEvent) -> Iterator[Told]:
        """Fold an event that is no delta, and say what happened."""
        state = self._state
        self._loose = self._left_open(event)
        self._said = self._has_said(event)
        if not state.absorb(event):
            return
        root = state.root
        if root is not None and self._task_id is None:
            self._task_id = root.task_id
            yield "response.created", {"response": begun_response(state)}
        self._sources.note_event(event)
        if root is not None:
            self._note_length(root, event)
        tell = self._TELL.get(type(event))
        if tell is not None and root is not None and event.task_id == self._task_id:
            yield from tell(self, root, event)

    def _left_open(self, event: Any) -> dict[Key, list[tuple[Place, TextNode]]]:
        """What an event that ends an item, or the task, finds unfinished, with its open texts."""
        if event.task_id != self._task_id or not isinstance(event, _ENDS):
            return {}
        root = self._state.root
        assert root is not None
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

    def _has_said(self, event: Any) -> bool:
        """Whether the arguments that an event repeats have been streamed; they may come whole."""
        if event.task_id != self._task_id or not isinstance(event, ev.ArgumentsDone):
            return False
        node = self._state.tasks[event.task_id].items.get(event.output_index)
        return node is not None and node.arguments is not None and bool(node.arguments.text)

    # --- items ---------------------------------------------------------------------------------

    def _where(self, root: TaskNode, key: Key) -> Json:
        """The fields that all events of an item share."""
        node = root.items[key[0]]
        ident = node.item.id if key[1] == ITEM else shown.image_id(node, key[1])
        return {"item_id": ident, "output_index": self._index[key]}

    def _begin(self, root: TaskNode, key: Key) -> Iterator[Told]:
        """Give an item the next `output_index`, and say that it is there."""
        self._index[key] = index = len(self._index)
        item, where = shown.begun(root, key), self._where(root, key)
        kind = item["type"]
        yield "response.output_item.added", {"output_index": index, "item": item}
        if kind in _ARGUMENTS:
            self._heads[key[0], "arguments", key[0]] = _head(_ARGUMENTS[kind][0], where)
        if kind in ("mcp_call", "code_interpreter_call"):
            yield f"response.{kind}.in_progress", where
        elif kind == "image_generation_call":
            yield "response.image_generation_call.in_progress", where
            yield "response.image_generation_call.generating", where

    def _close(self, root: TaskNode, key: Key) -> Iterator[Told]:
        """Say that an item is done, and first those of its parts that still streamed."""
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

    def _item_added(self, root: TaskNode, event: ev.OutputItemAdded) -> Iterator[Told]:
        if isinstance(event.item, Reasoning | Message | ToolCall):
            yield from self._begin(root, (event.output_index, ITEM))

    def _item_done(self, root: TaskNode, event: ev.OutputItemDone) -> Iterator[Told]:
        node = root.items[event.output_index]
        if isinstance(node.item, ToolResult):
            # A server's call is done when its result is.
            call = root.calls.get(node.item.call_id)
            if call is None or shown.is_client(call.item):
                return
            node = call
        key = (node.output_index, ITEM)
        if key in self._index and shown.is_closed(root, key):
            yield from self._close(root, key)

    def _arguments_done(self, root: TaskNode, event: ev.ArgumentsDone) -> Iterator[Told]:
        yield from self._arguments(root, (event.output_index, ITEM))

    def _arguments(self, root: TaskNode, key: Key) -> Iterator[Told]:
        """The end of a call's arguments; those that nobody has been told yet come as one delta."""
        item, where = shown.item_json(self._sources, root, key), self._where(root, key)
        name, field = _ARGUMENTS[item["type"]]
        part = root.items[key[0]].arguments
        assert part is not None
        if item[field] and not self._said:
            yield f"{name}.delta", {**where, "delta": item[field]}
        if not part.is_open:
            yield f"{name}.done", {**where, field: item[field]}
            if item["type"] == "code_interpreter_call":
                yield "response.code_interpreter_call.interpreting", where

    # --- texts ---------------------------------------------------------------------------------

    def _part_begun(self, root: TaskNode, place: Place, part: Part) -> Iterator[Told]:
        """Give a part its index among those of its item, and say what it has so far."""
        key, node = (place[0], ITEM), root.items[place[0]]
        raw_first = part.kind == "reasoning_text" and shown.is_raw_first(node)
        lane = _LANES.get("summary" if raw_first else part.kind)
        if lane is None or key not in self._index:
            return
        rank = self._counts.get((place[0], lane.place), 0)
        self._counts[place[0], lane.place] = rank + 1
        where = {**self._where(root, key), lane.place: rank}
        self._places[place] = lane, where
        self._heads[place] = _head(lane.text, {**where, **lane.extra})
        empty: Json = {"type": lane.type, lane.field: ""}
        if lane is _TEXT:
            empty |= {"annotations": [], **lane.extra}
        yield f"{lane.part}.added", {**where, "part": empty}
        text = shown.file_link(part) if isinstance(part, WholeNode) else part.text  # type: ignore[union-attr]
        if text:
            yield f"{lane.text}.delta", {**where, **lane.extra, "delta": text}
        self._cited[place] = 0
        for annotation in part.annotations if isinstance(part, TextNode) else ():
            yield from self._cite(root, place, part, annotation)

    def _part_done(self, root: TaskNode, place: Place, part: Part) -> Iterator[Told]:
        lane, where = self._places[place]
        if isinstance(root.items[place[0]].item, Reasoning):
            whole = {"type": lane.type, lane.field: part.text}  # type: ignore[union-attr]
        else:
            whole = shown.content_json(self._sources, root, part)
        yield f"{lane.text}.done", {**where, **lane.extra, lane.field: whole[lane.field]}
        yield f"{lane.part}.done", {**where, "part": whole}

    def _cite(self, root: TaskNode, place: Place, part: Part, annotation: Any) -> Iterator[Told]:
        citation = self._sources.citation(root, annotation, part.at)
        if citation is not None:
            index = self._cited[place]
            self._cited[place] = index + 1
            fields = {"annotation_index": index, "annotation": citation}
            yield "response.output_text.annotation.added", {**self._places[place][1], **fields}

    def _text_added(self, root: TaskNode, event: Any) -> Iterator[Told]:
        yield from self._part_begun(root, *_part_of(root, event))

    def _text_done(self, root: TaskNode, event: Any) -> Iterator[Told]:
        place, part = _part_of(root, event)
        if place not in self._places:
            yield from self._part_begun(root, place, part)
        if place in self._places:
            yield from self._part_done(root, place, part)

    def _annotation_added(self, root: TaskNode, event: ev.AnnotationAdded) -> Iterator[Told]:
        place, part = _part_of(root, event)
        if place in self._places:
            yield from self._cite(root, place, part, event.annotation)

    # --- images --------------------------------------------------------------------------------

    def _image_added(self, root: TaskNode, event: ev.ImageAdded) -> Iterator[Told]:
        if not shown.is_code_result(root, root.items[event.output_index]):
            yield from self._begin(root, (event.output_index, event.block_index))

    def _image_delta(self, root: TaskNode, event: ev.ImageDelta) -> Iterator[Told]:
        if not shown.is_code_result(root, root.items[event.output_index]):
            yield from self._partial(root, (event.output_index, event.block_index))

    def _partial(self, root: TaskNode, key: Key) -> Iterator[Told]:
        part = root.items[key[0]].parts[key[1]]
        assert isinstance(part, ImageNode)
        payload = shown.inline(part.image)
        if payload is not None and part.partial_image_index is not None:
            fields = {
                "partial_image_index": part.partial_image_index,
                "partial_image_b64": payload,
                "output_format": shown.image_format(part.image),
            }
            name = "response.image_generation_call.partial_image"
            yield name, {**self._where(root, key), **fields}

    def _image_done(self, root: TaskNode, event: ev.ImageDone) -> Iterator[Told]:
        if shown.is_code_result(root, root.items[event.output_index]):
            return
        key = (event.output_index, event.block_index)
        if key not in self._index:
            yield from self._begin(root, key)
        yield from self._close(root, key)

    # --- the response --------------------------------------------------------------------------

    def _in_progress(self, _root: TaskNode, _event: Any) -> Iterator[Told]:
        yield "response.in_progress", {"response": begun_response(self._state)}

    def _attempt(self, root: TaskNode, event: ev.TaskAttempt) -> Iterator[Told]:
        lost = [root.item_ids[ident] for ident in event.superseded if ident in root.item_ids]
        if any(_is_told(node) for node in lost):
            self._over = True
            yield "response.failed", {"response": failed_response(self._state, INTERRUPTED)}

    def _ended(self, root: TaskNode, _event: Any) -> Iterator[Told]:
        for key in self._loose:
            if shown.is_closed(root, key):
                yield from self._close(root, key)
        response = response_object(self._state)
        name = "completed" if response["status"] == "completed" else "incomplete"
        if response["error"] is not None:
            name = "failed"
        yield f"response.{name}", {"response": response}

    def _retell(self, root: TaskNode) -> Iterator[Told]:
        """Everything so far, each text at once."""
        yield "response.created", {"response": begun_response(self._state)}
        if root.status != "queued":
            yield from self._in_progress(root, None)
        for key in shown.keys(root):
            yield from self._begin(root, key)
            if key[1] != ITEM:
                yield from self._partial(root, key)
            elif isinstance(root.items[key[0]].item, ToolCall):
                yield from self._arguments(root, key)
            else:
                yield from self._retell_parts(root, root.items[key[0]])
            if shown.is_closed(root, key):
                yield from self._close(root, key)
        if root.ended:
            yield from self._ended(root, None)

    def _retell_parts(self, root: TaskNode, node: ItemNode) -> Iterator[Told]:
        for place, part in _parts(node):
            yield from self._part_begun(root, place, part)
            if place in self._places and not part.is_open:
                yield from self._part_done(root, place, part)

    _TELL: ClassVar[dict[type[Any], Callable[[Any, TaskNode, Any], Iterator[Told]]]] = {
        ev.TaskInProgress: _in_progress,
        ev.TaskAttempt: _attempt,
        **dict.fromkeys(ev.TERMINAL, _ended),
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


def _is_told(node: ItemNode) -> bool:
    """Whether taking an item back makes a stream wrong that went past it."""
    return not isinstance(node.item, RawItem)


def _has_many_parts(node: ItemNode) -> bool:
    return len(node.parts) + len(node.texts) > MANY_PARTS


def _is_cited_often(part: Part | None) -> bool:
    return isinstance(part, TextNode) and len(part.annotations) > MANY_ANNOTATIONS


def _is_long(node: ItemNode) -> bool:
    """Whether one event about this item may have more frames than narrow numbers have room for."""
    return _has_many_parts(node) or any(map(_is_cited_often, node.parts.values()))


def _parts(node: ItemNode) -> list[tuple[Place, Any]]:
    """The parts of an item, in order of arrival."""
    first = "summary" if isinstance(node.item, Reasoning) else "blocks"
    found: list[tuple[Place, Any]] = [
        *(((node.output_index, first, index), part) for index, part in node.parts.items()),
        *(((node.output_index, "texts", index), part) for index, part in node.texts.items()),
    ]
    return sorted(found, key=lambda entry: entry[1].at)


def _part_of(root: TaskNode, event: Any) -> tuple[Place, Part]:
    """The part that an event is about."""
    node = root.items[event.output_index]
    if isinstance(event, ev.SummaryItemAdded | ev.SummaryItemDone):
        index = event.summary_index
        return (event.output_index, "summary", index), node.parts[index]
    if isinstance(event, ev.ReasoningTextAdded | ev.ReasoningTextDone):
        return (event.output_index, "texts", event.text_index), node.texts[event.text_index]
    index = event.block_index
    return (event.output_index, "blocks", index), node.parts[index]


def _head(name: str, fields: Json) -> bytes:
    """A delta's frame up to the text: nothing else differs between the deltas of a part."""
    data = _json({"type": f"{name}.delta", **fields})
    return b'event: %b.delta\ndata: %b,"delta":' % (name.encode(), data[:-1])
