"""Encodes events as the frames of a Responses stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import msgspec

from tailrace.core import events as ev
from tailrace.core import sse
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, RawItem, Reasoning, ToolCall, ToolResult
from tailrace.core.parts import DELTAS, PARTS
from tailrace.core.state import ImageNode, ItemNode, Part, TaskNode, TextNode, WholeNode
from tailrace.core.values import Json
from tailrace.wire.base import DONE, Frame, frame_pieces
from tailrace.wire.encoder import AnswerEncoder
from tailrace.wire.openai_responses import items as shown
from tailrace.wire.openai_responses.cursors import (
    JOINED,
    MANY_ANNOTATIONS,
    MANY_PARTS,
    NARROW,
    WHOLE,
    WIDE,
    Numbering,
    offset,
)
from tailrace.wire.openai_responses.items import ITEM, EntryKey
from tailrace.wire.openai_responses.object import (
    INTERRUPTED,
    TOO_LONG,
    begun_response,
    failed_response,
    response_object,
)
from tailrace.wire.openai_responses.segments import (
    approval_items,
    entries,
    has_begun,
    is_left_open,
    is_paused,
    is_within,
    speakers,
)
from tailrace.wire.projection import (
    Handoffs,
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
_DELTAS = {kind: (PARTS[kind].store, index_of) for kind, index_of in DELTAS.items()}
"""The last frame of a stream. It has no number: a client that has the frame before has all."""

_LAST = ("response.completed", "response.incomplete", "response.failed")
_ENDS = (ev.OutputItemDone, *ev.TERMINAL)
_json = msgspec.json.Encoder().encode


class ResponsesEncoder(AnswerEncoder[ResponseEvent]):
    """Encodes the events of a run.

    It folds the events, because the last frame of an item repeats the whole item. The
    `output_index` of an entry counts all entries that have arrived before it. A call that
    people may be asked for arrives when it begins.
    """

    __slots__ = (
        "_base",
        "_begun_at",
        "_cited",
        "_counts",
        "_epoch",
        "_has_arguments",
        "_heads",
        "_held",
        "_index",
        "_loose",
        "_mode",
        "_numbering",
        "_offset",
        "_places",
        "_segment",
    )

    def __init__(
        self,
        state: State,
        *,
        segment: int | None = None,
        joined: bool = False,
        numbering: Numbering = NARROW,
        replay: list[ResponseEvent] | None = None,
        sources: Sources | None = None,
    ) -> None:
        """Ready for the event after `state`, which it takes over.

        `segment` is the number of pauses before the response that it encodes. `replay` receives the
        events of a replay. `sources` finds blocks outside of the state.
        """
        super().__init__(state, sources)
        self._segment = segment
        self._begun_at = -1
        self._mode = JOINED if joined else WHOLE
        self._epoch = 1
        root = self._state.root
        self._offset = 0 if root is None else offset(root.task_id)
        self._use(numbering)
        self._index: dict[EntryKey, int] = {}
        self._held: set[EntryKey] = set()
        self._places: dict[PartKey, tuple[PartFamily, Json]] = {}
        self._counts: dict[tuple[int, str], int] = {}
        self._heads: dict[PartKey, bytes] = {}
        self._cited: dict[PartKey, int] = {}
        self._loose: dict[EntryKey, list[tuple[PartKey, TextNode]]] = {}
        self._has_arguments = False
        if root is None or not has_begun(state, segment):
            return
        if any(_is_long(node) for node in root.items.values()):
            self._use(WIDE)
        sent = self._begin() if segment else [*self._begin(), *self._replayed(root)]
        if is_paused(state, segment):
            sent += self._paused()
        if replay is not None:
            replay += sent
        self._over = is_paused(state, segment) or (not joined and self._has_shown_lost(root))

    def encode(self, recorded: ev.Recorded) -> list[Frame]:
        """The frames of the next event; none after the frame that ends the response."""
        event = recorded.event
        if self._over:
            return []
        if recorded.epoch != self._epoch:
            self._epoch = recorded.epoch
            self._use(self._numbering)
        part = _DELTAS.get(event.__class__)
        if part is None:
            sent = self._fold(event)
            root = self._state.root
            if root is not None and not self.over and is_paused(self._state, self._segment):
                self._over = True
                sent += self._paused()
            seq = event.sequence_number
            return self.number(sent, self._mode, seq, self._epoch) if sent else []
        # Most events are deltas, and the deltas of a part differ only in their text.
        if not self._state.absorb(event) or event.task_id != self._task_id:
            return []
        place = (event.output_index, part[0], part[1](event))  # type: ignore[union-attr]
        head = self._heads.get(place)
        if head is None:
            return []
        number = (event.sequence_number << self._numbering.shift) + self._base
        return [b'%b%b,"sequence_number":%d}\n\n' % (head, _json(event.delta), number)]  # type: ignore[union-attr]

    def close(self, reason: str) -> list[Frame]:
        """An error, because a plain end looks like success to most clients.

        The run has not ended: its number is a cursor, after which the client retrieves the rest.
        Clients of a response in the background retrieve it by themselves, if there is no error.
        """
        root = self._state.root
        if self._over or root is None or root.ended:
            return []
        options = root.facts.get("options")
        if isinstance(options, dict) and options.get("background") is True:
            return []
        about = {"code": "server_error", "message": reason, "param": None}
        place = self._state.sequence_number + self._offset
        number = self._numbering.last(self._mode, place)
        event = {"type": "error", **about, "sequence_number": number}
        return [sse.frame(_json(event), event="error")]

    def number(self, sent: list[ResponseEvent], mode: int, seq: int, epoch: int = 1) -> list[Frame]:
        """The frames of an event, or of `open`, with their numbers."""
        events = self.numbered(sent, mode, seq, epoch)
        frames = [sse.frame(_json(event), event=event["type"]) for event in events]
        return [*frames, DONE] if _is_whole(sent) else frames

    def number_in_pieces(
        self, sent: list[ResponseEvent], mode: int, seq: int, epoch: int
    ) -> Iterator[bytes]:
        """The bytes of `number`. Frames that repeat a long text share the bytes of the text."""
        known: dict[bytes, bytes] = {}
        for event in self.numbered(sent, mode, seq, epoch):
            yield from frame_pieces(event, known, event=event["type"])
        if _is_whole(sent):
            yield DONE

    def numbered(
        self, sent: list[ResponseEvent], mode: int, seq: int, epoch: int = 1
    ) -> list[Json]:
        """Events with their type and number. If there are too many, the last is a failure."""
        if len(sent) > self._numbering.room(mode):
            self._use(WIDE)
        room = self._numbering.room(mode)
        if len(sent) > room:
            self._over = True
            sent[room - 1 :] = [("response.failed", {"response": self._failed(TOO_LONG)})]
        first = self._numbering.first(mode, epoch, seq + self._offset)
        return [
            {"type": name, **fields, "sequence_number": number}
            for number, (name, fields) in enumerate(sent, first)
        ]

    def _use(self, numbering: Numbering) -> None:
        self._numbering = numbering
        self._base = numbering.first(self._mode, self._epoch, self._offset)

    def _note_length(self, root: TaskNode, event: Any) -> None:
        """Use wide numbers once an item is long."""
        node = root.items.get(getattr(event, "output_index", -1))
        if node is None:
            return
        if isinstance(event, ev.OutputItemAdded | ev.OutputItemDone):
            is_long = _is_long(node)
        else:
            is_long = _has_many_parts(node) or _is_cited_often(
                node.parts.get(getattr(event, "block_index", -1))
            )
        if is_long:
            self._use(WIDE)

    def _before(self, event: Any) -> None:
        super()._before(event)
        self._loose = self._left_open(event)
        self._has_arguments = self._are_arguments_sent(event)

    def _begin(self) -> list[ResponseEvent]:
        return super()._begin() if has_begun(self._state, self._segment) else []

    def _started(self, root: TaskNode) -> list[ResponseEvent]:
        self._offset = offset(root.task_id)
        self._use(self._numbering)
        created = ("response.created", {"response": begun_response(self._state, self._segment)})
        if not self._segment:
            return [created]
        # The event that ends a pause has no frames of its own: the state has what it changed.
        self._begun_at = self._state.position
        if any(_is_long(node) for node in root.items.values()):
            self._use(WIDE)
        return [created, *self._replayed(root)]

    def _is_shown(self, root: TaskNode, node: ItemNode) -> bool:
        if isinstance(node.item, RawItem) or node.begun_at is None:
            return False
        return is_within(self._state, self._segment, node)

    def _interrupted(self) -> list[ResponseEvent]:
        return [("response.failed", {"response": self._failed(INTERRUPTED)})]

    def _failed(self, error: ErrorInfo) -> Json:
        return failed_response(self._state, error, self._segment)

    def _answered(self, root: TaskNode, event: Any) -> list[ResponseEvent]:
        if self._begun_at == self._state.position:
            return []
        self._note_length(root, event)
        sent = list(self._released(root)) if self._held else []
        encode = self._ENCODE.get(type(event))
        return [*sent, *encode(self, root, event)] if encode is not None else sent

    def _left_open(self, event: Any) -> dict[EntryKey, list[tuple[PartKey, TextNode]]]:
        """The entries that an event will close, with their open texts."""
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

    def _are_arguments_sent(self, event: Any) -> bool:
        """Whether the arguments that an event repeats have been streamed."""
        if event.task_id != self._task_id or not isinstance(event, ev.ArgumentsDone):
            return False
        node = self._state.tasks[event.task_id].items.get(event.output_index)
        return node is not None and node.arguments is not None and bool(node.arguments.text)

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
            self._heads[key[0], "arguments", 0] = _head(_ARGUMENTS[kind][0], where)
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
        self._heads[place] = _head(family.text, {**where, **family.extra})
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

    # --- the response --------------------------------------------------------------------------

    def _in_progress(self, root: TaskNode, _event: Any) -> ResponseEvents:
        """The response as it goes on. `model` is the agent that speaks now."""
        yield self._goes_on(root.speaker)

    def _goes_on(self, agent: str | None = None) -> ResponseEvent:
        response = begun_response(self._state, self._segment, agent)
        return "response.in_progress", {"response": response}

    def _ended(self, root: TaskNode, _event: Any) -> ResponseEvents:
        for key in self._loose:
            if shown.is_closed(root, key):
                yield from self._close(root, key)
        response = response_object(self._state, self._segment)
        name = "completed" if response["status"] == "completed" else "incomplete"
        if response["error"] is not None:
            name = "failed"
        yield f"response.{name}", {"response": response}

    def _paused(self) -> ResponseEvents:
        """The end of a response whose run asks for approvals. Unfinished items have no end here."""
        for index, item in enumerate(approval_items(self._state, self._segment), len(self._index)):
            yield "response.output_item.added", {"output_index": index, "item": item}
            yield "response.output_item.done", {"output_index": index, "item": item}
        response = response_object(self._state, self._segment)
        yield "response.completed", {"response": response}

    def _replayed(self, root: TaskNode) -> ResponseEvents:
        """Everything after `response.created`, with a single delta for each text."""
        if root.status != "queued":
            yield self._goes_on()
        handoffs = Handoffs(speakers(self._state, root, self._segment).switches)
        for key in entries(self._state, root, self._segment):
            for agent in handoffs.before(key[0]):
                yield self._goes_on(agent)
            yield from self._item_begun(root, key)
            if key[1] != ITEM:
                yield from self._partial(root, key)
            elif isinstance(root.items[key[0]].item, ToolCall):
                yield from self._arguments(root, key)
            else:
                yield from self._replayed_parts(root, root.items[key[0]])
            if shown.is_closed(root, key) and not is_left_open(self._state, self._segment, key):
                yield from self._close(root, key)
        for agent in handoffs.rest():
            yield self._goes_on(agent)
        self._held = {(index, ITEM) for index, node in root.items.items() if node.begun_at is None}
        if root.ended and not is_paused(self._state, self._segment):
            yield from self._ended(root, None)

    def _replayed_parts(self, root: TaskNode, node: ItemNode) -> ResponseEvents:
        for place, part in _parts(node):
            yield from self._part_begun(root, place, part)
            if place in self._places and not part.is_open:
                yield from self._part_done(root, place, part)

    _ENCODE: ClassVar[dict[type[Any], Callable[[Any, TaskNode, Any], ResponseEvents]]] = {
        ev.TaskInProgress: _in_progress,
        ev.AgentSwitched: _in_progress,
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


def _is_whole(sent: list[ResponseEvent]) -> bool:
    return bool(sent) and sent[-1][0] in _LAST


def _has_many_parts(node: ItemNode) -> bool:
    return len(node.parts) + len(node.texts) > MANY_PARTS


def _is_cited_often(part: Part | None) -> bool:
    return isinstance(part, TextNode) and len(part.annotations) > MANY_ANNOTATIONS


def _is_long(node: ItemNode) -> bool:
    """Whether an event of this item may have more frames than narrow numbers."""
    return _has_many_parts(node) or any(map(_is_cited_often, node.parts.values()))


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
