"""Encodes a run as the frames of a Responses stream: its numbers, its beginning and its ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import msgspec

from tailrace.core import events as ev
from tailrace.core import sse
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, RawItem
from tailrace.core.parts import DELTAS, PARTS
from tailrace.core.state import ItemNode, Part, TaskNode, TextNode
from tailrace.core.values import Json
from tailrace.wire.base import DONE_FRAME, Frame, frame_pieces
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
from tailrace.wire.openai_responses.object import (
    TOO_LONG,
    begun_response,
    empty_answer,
    failed_response,
    is_withheld,
    response_object,
    structured_answer,
)
from tailrace.wire.openai_responses.output import OutputEvents, ResponseEvent, ResponseEvents
from tailrace.wire.openai_responses.segments import (
    approval_items,
    entries,
    has_begun,
    is_left_open,
    is_segment_paused,
    is_within,
    speakers,
)
from tailrace.wire.projection import (
    Handoffs,
    Sources,
    taken_back,
)

_DELTAS = {kind: (PARTS[kind].store, index_of) for kind, index_of in DELTAS.items()}

_LAST = ("response.completed", "response.incomplete", "response.failed")
_json = msgspec.json.Encoder().encode


class ResponsesEncoder(AnswerEncoder[ResponseEvent]):
    """Encodes the events of a run.

    It folds the events, because the last frame of an item repeats the whole item.
    """

    __slots__ = (
        "_base",
        "_begun_at",
        "_epoch",
        "_heads",
        "_mode",
        "_numbering",
        "_offset",
        "_output",
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
        self._output = OutputEvents(self._sources)
        self._heads = self._output.heads
        if root is None or not has_begun(state, segment):
            return
        if any(_is_long(node) for node in root.items.values()):
            self._use(WIDE)
        sent = self._begin() if segment else [*self._begin(), *self._replayed(root)]
        if is_segment_paused(state, segment):
            sent += self._paused()
        if replay is not None:
            replay += sent
        self._over = is_segment_paused(state, segment) or (
            not joined and self._has_shown_lost(root)
        )

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
            if root is not None and not self.over and is_segment_paused(self._state, self._segment):
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

        After an error before any item, the AI SDK repeats the request, which would be another run.
        It does not if the error has the code of a status that it never retries.
        """
        root = self._state.root
        if self._over or root is None or root.ended:
            return []
        options = root.facts.get("options")
        if isinstance(options, dict) and options.get("background") is True:
            return []
        begun = has_begun(self._state, self._segment)
        has_output = begun and entries(self._state, root, self._segment)
        code = "server_error" if has_output else "424"
        about = {"code": code, "message": reason, "param": None}
        place = self._state.sequence_number + self._offset
        number = self._numbering.last(self._mode, place)
        event = {"type": "error", **about, "sequence_number": number}
        return [sse.frame(_json(event), event="error")]

    def number(self, sent: list[ResponseEvent], mode: int, seq: int, epoch: int = 1) -> list[Frame]:
        """The frames of an event, or of `open`, with their numbers."""
        events = self.numbered(sent, mode, seq, epoch)
        frames = [sse.frame(_json(event), event=event["type"]) for event in events]
        return [*frames, DONE_FRAME] if _is_whole(sent) else frames

    def number_in_pieces(
        self, sent: list[ResponseEvent], mode: int, seq: int, epoch: int
    ) -> Iterator[bytes]:
        """The bytes of `number`. Frames that repeat a long text share the bytes of the text."""
        known: dict[bytes, bytes] = {}
        for event in self.numbered(sent, mode, seq, epoch):
            yield from frame_pieces(event, known, event=event["type"])
        if _is_whole(sent):
            yield DONE_FRAME

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
        self._output.before(self._shown_task(event), event)

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

    def _interrupted(self, event: Any) -> list[ResponseEvent]:
        error = taken_back(event, "retrieve the response to get all of it")
        return [("response.failed", {"response": self._failed(error)})]

    def _failed(self, error: ErrorInfo) -> Json:
        return failed_response(self._state, error, self._segment)

    def _answered(self, root: TaskNode, event: Any) -> list[ResponseEvent]:
        if self._begun_at == self._state.position:
            return []
        self._note_length(root, event)
        sent = list(self._output.changed(root, event))
        encode = self._ENCODE.get(type(event))
        return [*sent, *encode(self, root, event)] if encode is not None else sent

    # --- the response --------------------------------------------------------------------------

    def _in_progress(self, root: TaskNode, _event: Any) -> ResponseEvents:
        """The response as it goes on. `model` is the agent that speaks now."""
        yield self._goes_on(root.speaker)

    def _goes_on(self, agent: str | None = None) -> ResponseEvent:
        response = begun_response(self._state, self._segment, agent)
        return "response.in_progress", {"response": response}

    def _ended(self, root: TaskNode, _event: Any) -> ResponseEvents:
        yield from self._output.ended(root)
        for item in empty_answer(self._state, root, self._segment):
            begun = {**item, "status": "in_progress"}
            yield "response.output_item.added", {"output_index": 0, "item": begun}
            yield "response.output_item.done", {"output_index": 0, "item": item}
        for item in structured_answer(self._state, root, self._segment):
            yield from self._output.message(item)
        response = response_object(self._state, self._segment)
        name = "completed" if response["status"] == "completed" else "incomplete"
        if response["error"] is not None:
            name = "failed"
        yield f"response.{name}", {"response": response}

    def _paused(self) -> ResponseEvents:
        """The end of a response whose run asks for approvals. Unfinished items have no end here."""
        for index, item in enumerate(approval_items(self._state, self._segment), len(self._output)):
            yield "response.output_item.added", {"output_index": index, "item": item}
            yield "response.output_item.done", {"output_index": index, "item": item}
        response = response_object(self._state, self._segment, self._output.begun)
        yield "response.completed", {"response": response}

    def _replayed(self, root: TaskNode) -> ResponseEvents:
        """Everything after `response.created`, with a single delta for each text."""
        if root.status != "queued":
            yield self._goes_on()
        handoffs = Handoffs(speakers(self._state, root, self._segment).switches)
        for key in entries(self._state, root, self._segment):
            for agent in handoffs.before(key[0]):
                yield self._goes_on(agent)
            is_open = is_left_open(self._state, self._segment, key)
            if is_open and is_withheld(self._state, root, self._segment, key):
                continue
            is_closed = shown.is_closed(root, key) and not is_open
            yield from self._output.replayed(root, key, is_closed=is_closed)
        for agent in handoffs.rest():
            yield self._goes_on(agent)
        self._output.hold(root)
        if root.ended and not is_segment_paused(self._state, self._segment):
            yield from self._ended(root, None)

    _ENCODE: ClassVar[dict[type[Any], Callable[[Any, TaskNode, Any], ResponseEvents]]] = {
        ev.TaskInProgress: _in_progress,
        ev.AgentSwitched: _in_progress,
        **dict.fromkeys(ev.TERMINAL, _ended),
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
