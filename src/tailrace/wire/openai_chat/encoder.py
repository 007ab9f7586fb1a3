"""Encodes events as the chunks of a chat completion."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from tailrace.core import events as ev
from tailrace.core.errors import StreamCut
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.items import (
    ErrorInfo,
    Message,
    Reasoning,
    ReferenceToBlock,
    ToolCall,
    UrlCitation,
)
from tailrace.core.parts import DELTAS
from tailrace.core.state import ImageNode, ItemNode, TaskNode, TextNode
from tailrace.core.values import Json, json_text
from tailrace.wire.base import Frame
from tailrace.wire.encoder import AnswerEncoder
from tailrace.wire.openai_chat.calls import OrderedCalls
from tailrace.wire.openai_chat.chunks import ChatChunks, failure
from tailrace.wire.openai_chat.texts import DeltaPlace, OrderedTexts, has_text
from tailrace.wire.projection import (
    INCOMPLETE_CALL,
    PART_EVENTS,
    Handoffs,
    awaits_client,
    is_client,
    is_complete,
    is_cut,
    limit_of,
    result_of,
    shown_parts,
    taken_back,
)

_PARTS = {kind: place for kind, place in PART_EVENTS.items() if place.kind not in ("image", "data")}
"""The events that add or end a part of a text lane."""
_ITEMS = (ev.OutputItemAdded, ev.OutputItemDone, ev.ArgumentsDone)

InOrder = OrderedTexts | OrderedCalls


class ChatEncoder(AnswerEncoder[Frame]):
    """Encodes the events of a run."""

    __slots__ = (
        "_before_end",
        "_calls",
        "_chunks",
        "_images",
        "_live",
        "_messages",
        "_shows_usage",
        "_thoughts",
    )

    _chunks: ChatChunks
    _messages: OrderedTexts
    _thoughts: OrderedTexts
    _calls: OrderedCalls

    def __init__(
        self, state: State, replay: list[Frame] | None = None, *, usage: bool = True
    ) -> None:
        """Ready for the event after `state`, which it takes over.

        `replay` receives the frames that bring an empty client there. Without it the client has
        seen everything, including items that were superseded since.
        """
        super().__init__(state)
        self._shows_usage = usage
        self._images: set[tuple[int, int]] = set()
        self._live: dict[DeltaPlace, InOrder] = {}
        self._before_end: tuple[InOrder, str] | None = None
        frames = self._begin()
        root = state.root
        if root is None:
            return
        handoffs = Handoffs(root.switches)
        for node in sorted(root.output(), key=attrgetter("at")):
            frames += map(self._chunks.switch, handoffs.before(node.output_index))
            # A replay leaves out the client's calls that have a result: they are not to be run.
            if replay is None or not is_client(node.item) or result_of(root, node) is None:
                frames += self._item(node)
        frames += map(self._chunks.switch, handoffs.rest())
        self._over = replay is None and self._has_shown_lost(root)
        self._find_live()
        if root.ended:
            frames += self._ending(root)
        if replay is not None:
            replay += frames

    def encode(self, recorded: Recorded) -> list[Frame]:
        """The chunks of the next event; none after the end."""
        event: Any = recorded.event
        if self._over:
            return []
        kind = event.__class__
        index_of = DELTAS.get(kind)
        if index_of is None:
            return self._fold(event)
        if not self._state.absorb(event) or event.task_id != self._task_id:
            return self._begin()
        lane = self._live.get((kind, event.output_index, index_of(event)))
        return lane.grow(event.delta) if lane is not None else []

    def close(self, reason: str) -> list[Frame]:
        """An error, because some clients take a stream that just stops for success.

        Failed runs have other codes: this run goes on, perhaps when people have answered. A
        `finish_reason` would be a mistake: SDKs take `length` for the limit of a model.
        """
        if self._over:
            return []
        root = self._state.root
        waits = root is not None and root.status == "input_required"
        code = "input_required" if waits else StreamCut.code
        return failure(ErrorInfo(code=code, message=reason))

    def _before(self, event: Any) -> None:
        super()._before(event)
        self._before_end = self._sent_so_far(event)

    def _started(self, root: TaskNode) -> list[Frame]:
        self._chunks = ChatChunks(root, usage=self._shows_usage)
        self._messages = OrderedTexts(self._chunks, self._cite)
        self._thoughts = OrderedTexts(self._chunks, self._cite)
        self._calls = OrderedCalls(self._chunks)
        return [self._chunks.begin()]

    def _answered(self, root: TaskNode, event: Any) -> list[Frame]:
        if self._before_end is not None:
            lane, sent = self._before_end
            if not lane.so_far().startswith(sent):
                self._over = True
                return self._interrupted(event)
        frames = self._frames(root, event, event.__class__)
        self._find_live()
        return frames

    def _frames(self, root: TaskNode, event: Any, kind: type[Any]) -> list[Frame]:
        if kind in ev.TERMINAL:
            return self._ending(root)
        if kind is ev.AgentSwitched:
            return [self._chunks.switch(event.agent)]
        if kind is ev.TaskAttempt:
            return self._advance()
        if kind in _ITEMS:
            return self._item(root.items[event.output_index])
        if kind is ev.ImageDone:
            return self._image(root.items[event.output_index], event.block_index)
        place = _PARTS.get(kind)
        if place is None:
            return []
        node = root.items[event.output_index]
        lane = self._lane(node)
        if lane is None or shown_parts(node) is not getattr(node, place.store):
            return []
        assert isinstance(lane, OrderedTexts)
        return lane.part(node, place.index_of(event))

    # --- what was sent -------------------------------------------------------------------------

    def _sent_so_far(self, event: Any) -> tuple[InOrder, str] | None:
        """The growing text that an event repeats at its end. Only foreign logs change it there."""
        kind = event.__class__
        if event.task_id != self._task_id or (kind not in _PARTS and kind not in _ITEMS):
            return None
        index = _PARTS[kind].index_of(event) if kind in _PARTS else None
        for (_, output_index, part_index), lane in self._live.items():
            if output_index == event.output_index and index in (None, part_index):
                return lane, lane.so_far()
        return None

    def _is_shown(self, root: TaskNode, node: ItemNode) -> bool:
        if isinstance(node.item, ToolCall):
            has_arguments = node.arguments is not None and node.arguments.length() > 0
            return is_client(node.item) and (is_complete(node) or has_arguments)
        return has_text(node)

    def _interrupted(self, event: Any) -> list[Frame]:
        return failure(taken_back(event, "follow the run again to get all of it"))

    # --- items ---------------------------------------------------------------------------------

    def _lane(self, node: ItemNode) -> InOrder | None:
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
        """An image of a message, once, when it is done."""
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
        start = self._chunks.length - part.length()
        cited: list[Json] = []
        for annotation in part.annotations:
            link = self._sources.link(root, annotation, part.at)
            if link is not None:
                assert isinstance(annotation, ReferenceToBlock | UrlCitation)
                cited.append(
                    {
                        "url": link[0],
                        "title": link[1],
                        "start_index": annotation.start_index + start,
                        "end_index": annotation.end_index + start,
                    }
                )
        return [self._chunks.citations(cited)] if cited else []

    def _advance(self) -> list[Frame]:
        return [*self._thoughts.advance(), *self._messages.advance(), *self._calls.advance()]

    def _find_live(self) -> None:
        """Find the parts whose deltas are sent as they arrive."""
        lanes: tuple[InOrder, ...] = (self._thoughts, self._messages, self._calls)
        self._live = {place: lane for lane in lanes if (place := lane.place) is not None}

    # --- the end -------------------------------------------------------------------------------

    def _ending(self, root: TaskNode) -> list[Frame]:
        self._over = True
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
            reason = limit_of(root.reason)
            native = root.reason if reason is None else None
            return frames + self._chunks.finish(self._state, reason or "length", native)
        if any(is_cut(node) for node in root.output()):
            return frames + failure(INCOMPLETE_CALL)
        if root.structured_output is not None and not self._chunks.has_answer:
            text = json_text(root.structured_output["value"])
            frames.append(self._chunks.text("content", root, text))
        reason = "tool_calls" if awaits_client(root) else "stop"
        return frames + self._chunks.finish(self._state, reason)
