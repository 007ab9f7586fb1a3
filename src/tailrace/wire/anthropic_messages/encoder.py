"""Encodes a run as the events of a message: one block after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from tailrace.core import events as ev
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, Reasoning
from tailrace.core.parts import DELTAS
from tailrace.core.state import ItemNode, TaskNode
from tailrace.wire.anthropic_messages import envelope as message
from tailrace.wire.anthropic_messages.blocks import (
    BlockDeltas,
    ContentBlock,
    StreamedBlock,
    blocks_of,
    part_block,
)
from tailrace.wire.anthropic_messages.envelope import event_frame
from tailrace.wire.base import Frame
from tailrace.wire.encoder import AnswerEncoder
from tailrace.wire.projection import PART_EVENTS, structured_text, taken_back, taken_over_by

_json = msgspec.json.Encoder().encode

_ITEMS = (ev.OutputItemAdded, ev.OutputItemDone)


class MessagesEncoder(AnswerEncoder[Frame]):
    """Encodes the events of a run.

    A queue holds the blocks that are not closed. The first of them is being sent if `_head` is set.
    """

    __slots__ = ("_cited", "_head", "_in_deltas", "_index", "_live", "_queue")

    def __init__(self, state: State, *, joined: bool = False, in_deltas: bool = False) -> None:
        """Ready for the event after `state`, which it takes over; call `opening` next.

        A client that has `joined` at this state has not seen superseded items. `in_deltas` is where
        it reads the input of a call that the server executes (`MessagesFormat`).
        """
        super().__init__(state)
        self._in_deltas = in_deltas
        self._queue: deque[ContentBlock] = deque()
        self._index = 0
        self._head: bytes | None = None
        self._live: BlockDeltas | None = None
        self._cited = 0
        root = state.root
        self._over = root is not None and not joined and self._has_shown_lost(root)

    def opening(self) -> list[Frame]:
        """The frames that bring an empty client to the state.

        Call it once, before the first event: the encoder also learns from it what was sent.
        """
        frames = self._begin()
        root = self._state.root
        if root is None or self._over:
            return frames
        blocks = [block for node in root.output() for block in blocks_of(root, node)]
        self._queue.extend(sorted(blocks, key=lambda block: block.at))
        return frames + self._sendable(root)

    def encode(self, recorded: Recorded) -> list[Frame]:
        """The frames of the next event; none after the frame that ends the stream."""
        event: Any = recorded.event
        if self._over:
            return []
        index_of = DELTAS.get(event.__class__)
        if index_of is None:
            return self._fold(event)
        if not self._state.absorb(event):
            return self._begin()
        if event.task_id != self._task_id:
            return []
        if self._live == (event.output_index, event.__class__, index_of(event)):
            # Most events are deltas, and the deltas of a block differ only in their text.
            return [b"%b%b}}\n\n" % (self._head, _json(event.delta))]  # type: ignore[str-format]
        return [] if self._head is not None else self._advance()

    def close(self, reason: str) -> list[Frame]:
        """An error, because a plain end looks like success; a run that waits is paused."""
        root = self._state.root
        if self._over:
            return []
        if root is None or root.status != "input_required":
            return [message.failed(ErrorInfo(code="cut", message=reason))]
        paused = message.paused(self._state, [block.node for block in self._queue])
        if self._head is None:
            return paused
        if not isinstance(self._queue[0], StreamedBlock):
            return [message.failed(message.CUT_CALL)]
        return [*self._end_of_block(), *paused]

    def _started(self, root: TaskNode) -> list[Frame]:
        return [message.started(self._state)]

    def _is_shown(self, root: TaskNode, node: ItemNode) -> bool:
        return any(block.is_ready() for block in blocks_of(root, node))

    def _interrupted(self, event: Any) -> list[Frame]:
        return [message.failed(taken_back(event, "ask for it again"))]

    def _answered(self, root: TaskNode, event: Any) -> list[Frame]:
        self._queue.extend(self._new_blocks(root, event))
        return self._sendable(root)

    def _new_blocks(self, root: TaskNode, event: Any) -> Iterable[ContentBlock]:
        """The blocks that this event adds."""
        kind = event.__class__
        if kind in _ITEMS:
            found = blocks_of(root, root.items[event.output_index])
        elif kind in PART_EVENTS:
            place = PART_EVENTS[kind]
            node = root.items[event.output_index]
            found = part_block(node, place.store, place.index_of(event))
        else:
            return ()
        return [block for block in found if block.at == self._state.position]

    def _sendable(self, root: TaskNode) -> list[Frame]:
        """The frames that can be sent by now, with the end of the run if it has ended."""
        frames = self._advance()
        if root.ended:
            self._over = True
            # Everything else is closed: a block that is left is a client's call that was cut.
            if self._queue and root.status != "failed":
                return [*frames, message.failed(message.CUT_CALL)]
            text = structured_text(root, root.output())
            if text is not None:
                block = {"type": "text", "text": ""}
                frames.append(
                    event_frame("content_block_start", index=self._index, content_block=block)
                )
                frames.append(self._delta(type="text_delta", text=text))
                frames.append(event_frame("content_block_stop", index=self._index))
            frames += message.ended(self._state)
        return frames

    # --- blocks --------------------------------------------------------------------------------

    def _advance(self) -> list[Frame]:
        """Send the first block so far; once it is closed, the next."""
        frames: list[Frame] = []
        while self._queue:
            block = self._queue[0]
            if self._head is None and block.is_ready() and not block.node.superseded:
                frames += self._start(block)
            if self._head is not None:
                frames += self._citations(block)
            if not block.is_closed():
                break
            if self._head is not None:
                frames += self._stop()
            self._queue.popleft()
        return frames

    def _start(self, block: ContentBlock) -> list[Frame]:
        start, delta = block.start(), block.delta()
        if self._in_deltas and start["type"] == "mcp_tool_use":
            delta = ("input_json_delta", "partial_json", _json(start["input"]).decode())
            start["input"] = {}
        root = self._state.root
        assert root is not None
        agent = taken_over_by(root, block.node.output_index)
        by = {} if agent is None else {"model": agent}
        frames = [event_frame("content_block_start", index=self._index, content_block=start, **by)]
        self._head, self._live, self._cited = b"", block.live(), 0
        if delta is not None:
            kind, field, text = delta
            head = {"type": "content_block_delta", "index": self._index}
            piece = _json({**head, "delta": {"type": kind, field: ""}})
            # Up to the text: `""}}` goes.
            self._head = b"event: content_block_delta\ndata: " + piece[:-4]
            frames.append(b"%b%b}}\n\n" % (self._head, _json(text)))
        return frames

    def _citations(self, block: ContentBlock) -> list[Frame]:
        """The citations of a text that were added since the last call."""
        part = block.part if isinstance(block, StreamedBlock) else None
        if part is None:
            return []
        root = self._state.root
        assert root is not None
        new, self._cited = part.annotations[self._cited :], len(part.annotations)
        found = (message.citation(self._sources, root, added, part.at) for added in new)
        return [self._delta(type="citations_delta", citation=cited) for cited in found if cited]

    def _stop(self) -> list[Frame]:
        frames = self._end_of_block()
        self._index += 1
        self._head = self._live = None
        return frames

    def _end_of_block(self) -> list[Frame]:
        stop = event_frame("content_block_stop", index=self._index)
        node = self._queue[0].node
        if not isinstance(node.item, Reasoning):
            return [stop]
        # The AI SDK keeps only signed thinking for the next turn.
        return [self._delta(type="signature_delta", signature=node.id), stop]

    def _delta(self, **delta: Any) -> Frame:
        return event_frame("content_block_delta", index=self._index, delta=delta)
