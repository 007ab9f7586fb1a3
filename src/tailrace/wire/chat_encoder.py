"""Events to the chunks of a chat completion; `wire.openai_chat` says what they promise."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import msgspec

from tailrace.core import events as ev
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, Message, Reasoning, ToolCall
from tailrace.core.state import ImageNode, ItemNode, TaskNode, TextNode
from tailrace.wire.base import Frame
from tailrace.wire.chat_calls import CallLane
from tailrace.wire.chat_chunks import Chunks, failure
from tailrace.wire.chat_texts import Place, TextLane, has_text, parts_of
from tailrace.wire.openai_items import Sources, is_client, is_cut, result_of
from tailrace.wire.openai_object import INCOMPLETE_CALL
from tailrace.wire.parts import DELTAS, PARTS

INTERRUPTED = ErrorInfo(
    code="interrupted",
    message="The answer was begun again after a fault; follow the run again to get all of it.",
)
_FINISH_REASONS = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "length": "length",
    "content_filter": "content_filter",
}
_PARTS = {
    kind: place
    for kind, place in PARTS.items()
    if kind not in (ev.ImageAdded, ev.ImageDelta, ev.ImageDone, ev.DataDone)
}
"""What brings or ends a part of a text lane: its index, and the list that it is in."""
_ITEMS = (ev.OutputItemAdded, ev.OutputItemDone, ev.ArgumentsDone)

Lane = TextLane | CallLane


class ChatEncoder:
    """The chunks of one run, event by event; it folds along."""

    __slots__ = (
        "_calls",
        "_chunks",
        "_images",
        "_is_over",
        "_live",
        "_messages",
        "_sources",
        "_state",
        "_task_id",
        "_thoughts",
    )

    _chunks: Chunks
    _messages: TextLane
    _thoughts: TextLane
    _calls: CallLane

    def __init__(self, state: State, joins: list[Frame] | None = None) -> None:
        """Ready for the event after `state`, which it takes over.

        `joins` takes the frames that bring an empty client there. Without it the client has been
        told everything, also what was superseded since.
        """
        self._state = state
        self._sources = Sources(state)
        self._images: set[tuple[int, int]] = set()
        self._live: dict[Place, Lane] = {}
        self._task_id: str | None = None
        self._is_over = False
        frames = self._beginning()
        root = state.root
        if root is None:
            return
        for node in sorted(root.items.values(), key=attrgetter("at")):
            if node.superseded:
                self._is_over = self._is_over or (joins is None and _is_told(node))
            elif joins is None or not is_client(node.item) or result_of(root, node) is None:
                frames += self._item(node)  # a call that was answered is nobody's to carry out
        self._find_live()
        if root.ended:
            frames += self._ending(root)
        if joins is not None:
            joins += frames

    def encode(self, recorded: Recorded) -> list[Frame]:
        """The chunks of the next event; none after the end."""
        event: Any = recorded.event
        if self._is_over:
            return []
        kind = event.__class__
        index_of = DELTAS.get(kind)
        if index_of is None:
            return self._encode_other(event, kind)
        if not self._state.absorb(event) or event.task_id != self._task_id:
            return self._beginning()
        lane = self._live.get((kind, event.output_index, index_of(event)))
        return lane.grow(event.delta) if lane is not None else []

    @property
    def over(self) -> bool:
        """Whether the frame that ends the stream was encoded."""
        return self._is_over

    def close(self, reason: str) -> list[Frame]:
        """An error, since a stream that merely stops looks like success to some.

        But a run that waits for people has not failed: what it said is cut there.
        """
        if self._is_over:
            return []
        root = self._state.root
        if root is not None and root.status == "input_required":
            return self._chunks.finish(self._state, "length", "input_required")
        return failure(ErrorInfo(code="interrupted", message=reason))

    def _encode_other(self, event: Any, kind: type[Any]) -> list[Frame]:
        told = self._told_by(event, kind)
        takes_back = kind is ev.TaskAttempt and self._takes_back(event)
        fitted = self._state.absorb(event)
        frames = self._beginning()
        if not fitted:
            return frames
        self._sources.note_event(event)
        root = self._state.root
        if root is None or event.task_id != root.task_id:
            return frames
        if takes_back or (told is not None and not told[0].so_far().startswith(told[1])):
            self._is_over = True
            return frames + failure(INTERRUPTED)
        frames += self._tell(root, event, kind)
        self._find_live()
        return frames

    def _tell(self, root: TaskNode, event: Any, kind: type[Any]) -> list[Frame]:
        if kind in ev.TERMINAL:
            return self._ending(root)
        if kind is ev.TaskAttempt:
            return self._advance()
        if kind in _ITEMS:
            return self._item(root.items[event.output_index])
        if kind is ev.ImageDone:
            return self._image(root.items[event.output_index], event.block_index)
        part = _PARTS.get(kind)
        if part is None:
            return []
        index_of, store = part
        node = root.items[event.output_index]
        lane = self._lane(node)
        if lane is None or parts_of(node) is not getattr(node, store):
            return []
        assert isinstance(lane, TextLane)
        return lane.part(node, index_of(event))

    def _beginning(self) -> list[Frame]:
        root = self._state.root
        if root is None or self._task_id is not None:
            return []
        self._task_id = root.task_id
        self._chunks = Chunks(root)
        self._messages = TextLane(self._chunks, self._cite)
        self._thoughts = TextLane(self._chunks, self._cite)
        self._calls = CallLane(self._chunks)
        return [self._chunks.begin()]

    # --- what was told -------------------------------------------------------------------------

    def _takes_back(self, event: ev.TaskAttempt) -> bool:
        """Whether the event unmakes what may have been told."""
        root = self._state.root
        if root is None or event.task_id != root.task_id:
            return False
        named = (root.item_ids.get(item_id) for item_id in event.superseded)
        return any(node is not None and not node.superseded and _is_told(node) for node in named)

    def _told_by(self, event: Any, kind: type[Any]) -> tuple[Lane, str] | None:
        """The text so far that an event repeats as it is in the end. Only strangers change it."""
        if event.task_id != self._task_id:
            return None
        if kind in _PARTS:
            index_of, _ = _PARTS[kind]
            places = [(event.output_index, index_of(event))]
        elif kind in _ITEMS:
            places = None
        else:
            return None
        for place, lane in self._live.items():
            if place[1] == event.output_index and (places is None or place[1:] in places):
                return lane, lane.so_far()
        return None

    # --- items ---------------------------------------------------------------------------------

    def _lane(self, node: ItemNode) -> Lane | None:
        if isinstance(node.item, Message):
            return self._messages
        if isinstance(node.item, Reasoning):
            return self._thoughts
        return self._calls if is_client(node.item) else None

    def _item(self, node: ItemNode) -> list[Frame]:
        lane = self._lane(node)
        frames = lane.item(node) if lane is not None else []
        for index in sorted(node.parts):
            frames += self._image(node, index)
        return frames

    def _image(self, node: ItemNode, index: int) -> list[Frame]:
        """A picture of a message, once; not before it is done."""
        part, place = node.parts[index], (node.output_index, index)
        if not isinstance(node.item, Message) or not isinstance(part, ImageNode):
            return []
        url = part.image.image_url.url
        if part.is_open or not url or place in self._images:
            return []
        self._images.add(place)
        return [self._chunks.image(url)]

    def _cite(self, part: TextNode) -> list[Frame]:
        root = self._state.root
        assert root is not None
        found = [self._sources.citation(root, one, part.at) for one in part.annotations]
        cited = [one for one in found if one is not None and one["type"] == "url_citation"]
        return [self._chunks.cite(cited, self._chunks.length - part.length())] if cited else []

    def _advance(self) -> list[Frame]:
        return [*self._thoughts.advance(), *self._messages.advance(), *self._calls.advance()]

    def _find_live(self) -> None:
        """Take note of the parts whose deltas are told as they come."""
        lanes: tuple[Lane, ...] = (self._thoughts, self._messages, self._calls)
        self._live = {place: lane for lane in lanes if (place := lane.place) is not None}

    # --- the end -------------------------------------------------------------------------------

    def _ending(self, root: TaskNode) -> list[Frame]:
        self._is_over = True
        frames = self._advance()
        for node in root.output():
            for index in sorted(node.parts):
                frames += self._image(node, index)
        if root.status == "failed":
            assert root.error is not None
            return frames + failure(root.error)
        if root.status == "cancelled":
            return frames + self._chunks.finish(self._state, "length", "cancelled")
        if root.status == "incomplete":
            reason = _FINISH_REASONS.get(root.reason or "")
            native = root.reason if reason is None else None
            return frames + self._chunks.finish(self._state, reason or "length", native)
        output = root.output()
        if any(is_cut(node) for node in output):
            return frames + failure(INCOMPLETE_CALL)
        if root.structured_output is not None and not self._chunks.has_spoken:
            text = msgspec.json.encode(root.structured_output["value"]).decode()
            frames.append(self._chunks.say("content", root, text))
        waits = any(is_client(node.item) and result_of(root, node) is None for node in output)
        return frames + self._chunks.finish(self._state, "tool_calls" if waits else "stop")


def _is_told(node: ItemNode) -> bool:
    """Whether taking an item back makes a message wrong that it was told in."""
    if isinstance(node.item, ToolCall):
        is_whole = not node.is_open and node.item.status == "completed"
        has_arguments = node.arguments is not None and node.arguments.length() > 0
        return is_client(node.item) and (is_whole or has_arguments)
    return has_text(node)
