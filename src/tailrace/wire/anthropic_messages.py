"""Anthropic's Messages stream: the root task as one message.

Which of our items becomes which block is said in `anthropic_blocks`. A stream has one message, and
one block at a time: the SDKs append a block when it starts, whatever its index, and Anthropic never
has two open. So blocks are told in order of arrival, each to its end before the next begins; one
that streams meanwhile waits, and is then told at once as far as it is. What was told follows from
the folded state alone, and indexes count what was told.

What this vocabulary cannot say ends the stream with `error` instead of a wrong answer: a text or a
client's call that was told and then superseded, a client's call that was cut, and an answer that
broke off. Other ends:

    completed      `end_turn`; `tool_use` if calls are the client's to carry out; `refusal`
    incomplete     its reason where Anthropic has a name for it, else `max_tokens`
    cancelled      `max_tokens`: what there is stands, and nothing is asked for again
    failed         `error`
    waiting        none yet: the stream stays open. Who has to end it there (`close`) says
                   `tool_use` if the client's own calls are waited for, else `pause_turn`

There is no cursor: whoever was cut asks for a replay. A `ping` keeps a silent stream alive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from tailrace.core import events as ev
from tailrace.core.errors import InvalidCursor
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo, Reasoning
from tailrace.core.snapshot import fork
from tailrace.core.state import ItemNode, TaskNode
from tailrace.core.transitions import DELTAS
from tailrace.wire import anthropic_message as message
from tailrace.wire.anthropic_blocks import Block, Live, TextBlock, blocks_of, part_block
from tailrace.wire.anthropic_message import frame
from tailrace.wire.base import RETRY_MS, Cursor, Frame
from tailrace.wire.openai_items import Sources
from tailrace.wire.parts import PARTS

_json = msgspec.json.Encoder().encode

_ITEMS = (ev.OutputItemAdded, ev.OutputItemDone)
_PARTS = {kind: place for kind, place in PARTS.items() if kind not in (ev.ImageDelta, ev.DataDone)}
"""The events that may bring a new part: its index, and the list that it is in."""


class MessagesEncoder:
    """The frames of one run, event by event.

    It folds along, and keeps the blocks that are not over in a queue. The first of them is the one
    that is being told, if `_head` is there.
    """

    __slots__ = (
        "_cited",
        "_head",
        "_index",
        "_live",
        "_over",
        "_queue",
        "_sources",
        "_state",
        "_task_id",
    )

    def __init__(self, state: State, *, joined: bool = False) -> None:
        """Ready for the event after `state`, which it takes over; see `opening`.

        Who has `joined` was never told what is superseded by now.
        """
        self._state = state
        self._sources = Sources(state)
        self._queue: deque[Block] = deque()
        self._index = 0
        self._head: bytes | None = None
        self._live: Live | None = None
        self._cited = 0
        self._task_id: str | None = None
        root = state.root
        self._over = (
            root is not None
            and not joined
            and any(node.superseded and _is_shown(root, node) for node in root.items.values())
        )

    def opening(self) -> list[Frame]:
        """What brings an empty client to the state, each text at once.

        To be asked once, before the first event: it is also how the encoder learns what was told.
        """
        frames = self._beginning()
        root = self._state.root
        if root is None or self._over:
            return frames
        blocks = [block for node in root.output() for block in blocks_of(root, node)]
        self._queue.extend(sorted(blocks, key=lambda block: block.at))
        return frames + self._told(root)

    def encode(self, recorded: Recorded) -> list[Frame]:
        """The frames of the next event; none after the frame that ends the stream."""
        event: Any = recorded.event
        if self._over:
            return []
        index_of = DELTAS.get(event.__class__)
        if index_of is None:
            return self._encode_other(event)
        if not self._state.absorb(event):
            return self._beginning()
        if event.task_id != self._task_id:
            return []
        if self._live == (event.output_index, event.__class__, index_of(event)):
            # Nearly all events are deltas, and those of one block differ in nothing but the text.
            return [b"%b%b}}\n\n" % (self._head, _json(event.delta))]  # type: ignore[str-format]
        return [] if self._head is not None else self._advance()

    @property
    def over(self) -> bool:
        """Whether the frame that ends the stream was encoded."""
        return self._over

    def close(self, reason: str) -> list[Frame]:
        """An error, since an end without one looks like success; a run that waits is paused.

        It changes nothing: others may go on with this encoder.
        """
        root = self._state.root
        if self._over:
            return []
        if root is None or root.status != "input_required":
            return [message.failed(ErrorInfo(code="cut", message=reason))]
        paused = message.paused(self._state, [block.node for block in self._queue])
        if self._head is None:
            return paused
        if not isinstance(self._queue[0], TextBlock):
            return [message.failed(message.CUT_CALL)]
        return [*self._end_of_block(), *paused]

    def _encode_other(self, event: Any) -> list[Frame]:
        fitted = self._state.absorb(event)
        frames = self._beginning()
        root = self._state.root
        if not fitted or root is None:
            return frames
        self._note_source(event)
        if event.task_id != self._task_id:
            return frames
        if isinstance(event, ev.TaskAttempt):
            named = (root.item_ids.get(ident) for ident in event.superseded)
            if any(node is not None and _is_shown(root, node) for node in named):
                self._over = True
                return [*frames, message.failed(message.INTERRUPTED)]
        self._queue.extend(self._new_blocks(root, event))
        return frames + self._told(root)

    def _beginning(self) -> list[Frame]:
        root = self._state.root
        if root is None or self._task_id is not None:
            return []
        self._task_id = root.task_id
        return [message.started(self._state)]

    def _note_source(self, event: Any) -> None:
        number = getattr(getattr(event, "item", None), "id", None)
        if isinstance(number, int):
            node = self._state.tasks[event.task_id].items[event.output_index]
            self._sources.note(event.task_id, number, node, event.block_index)

    def _new_blocks(self, root: TaskNode, event: Any) -> Iterable[Block]:
        """The blocks whose first sign is this event."""
        kind = event.__class__
        if kind in _ITEMS:
            found = blocks_of(root, root.items[event.output_index])
        elif kind in _PARTS:
            index_of, list_ = _PARTS[kind]
            found = part_block(root.items[event.output_index], list_, index_of(event))
        else:
            return ()
        return [block for block in found if block.at == self._state.position]

    def _told(self, root: TaskNode) -> list[Frame]:
        """What can be told by now, up to the end of the run."""
        frames = self._advance()
        if root.ended:
            self._over = True
            # All else is closed: what is left is a call of the client's that was cut.
            if self._queue and root.status != "failed":
                return [*frames, message.failed(message.CUT_CALL)]
            frames += message.ended(self._state)
        return frames

    # --- blocks --------------------------------------------------------------------------------

    def _advance(self) -> list[Frame]:
        """Tell the first block as far as it is; once it is over, the next."""
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

    def _start(self, block: Block) -> list[Frame]:
        frames = [frame("content_block_start", index=self._index, content_block=block.start())]
        delta = block.delta()
        self._head, self._live, self._cited = b"", block.live(), 0
        if delta is not None:
            kind, field, text = delta
            head = {"type": "content_block_delta", "index": self._index}
            piece = _json({**head, "delta": {"type": kind, field: ""}})
            # Up to the text: `""}}` goes.
            self._head = b"event: content_block_delta\ndata: " + piece[:-4]
            frames.append(b"%b%b}}\n\n" % (self._head, _json(text)))
        return frames

    def _citations(self, block: Block) -> list[Frame]:
        """Those of a text that came since the last look."""
        part = block.part if isinstance(block, TextBlock) else None
        if part is None:
            return []
        root = self._state.root
        assert root is not None
        new, self._cited = part.annotations[self._cited :], len(part.annotations)
        found = (message.citation(self._sources, root, one, part.at) for one in new)
        return [self._delta(type="citations_delta", citation=one) for one in found if one]

    def _stop(self) -> list[Frame]:
        frames = self._end_of_block()
        self._index += 1
        self._head = self._live = None
        return frames

    def _end_of_block(self) -> list[Frame]:
        stop = frame("content_block_stop", index=self._index)
        if not isinstance(self._queue[0].node.item, Reasoning):
            return [stop]
        # The AI SDK keeps no thinking for the next turn that was not signed, if by nobody.
        return [self._delta(type="signature_delta", signature=""), stop]

    def _delta(self, **delta: Any) -> Frame:
        return frame("content_block_delta", index=self._index, delta=delta)


def _is_shown(root: TaskNode, node: ItemNode) -> bool:
    """Whether taking an item back makes a stream wrong that went past it."""
    return any(block.is_ready() for block in blocks_of(root, node))


class MessagesFormat:
    """`anthropic-messages`: what Anthropic's SDKs read."""

    name = "anthropic-messages"
    headers: dict[str, str] = {}
    resumable = False
    stateful = True
    shows_attempts = False
    heartbeat: Frame = frame("ping")

    def preamble(self, retry_ms: int = RETRY_MS) -> bytes:
        """Nothing: its clients do not connect again by themselves."""
        return b""

    def at(self, state: State) -> MessagesEncoder:
        """An encoder for a client that has seen everything so far."""
        encoder = MessagesEncoder(fork(state))
        encoder.opening()
        return encoder

    def open(self, state: State) -> tuple[MessagesEncoder, list[Frame]]:
        """A replay in few frames, and what was superseded left out."""
        encoder = MessagesEncoder(fork(state), joined=True)
        return encoder, encoder.opening()

    def cursor(self, text: str) -> Cursor:
        """The client has none: it asks for a replay."""
        raise InvalidCursor("This format has no cursor; ask again without one for a replay.")


FORMAT = MessagesFormat()
