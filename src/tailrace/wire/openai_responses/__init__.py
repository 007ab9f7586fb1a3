"""OpenAI's Responses stream: the root task as a response.

Every frame has a `sequence_number` that is a cursor without server state (`cursors.py`). Two frames
of a run share a number only if the same frames follow both.

No frame has an `id:` line: once openai-python has seen an id, it takes the blank line after a
comment for an event. Without ids a comment is a safe heartbeat; a `keepalive` event would need a
number.

The last frame is `[DONE]`, without a number.

The stream ends with `response.failed` where the format cannot express what happened. That is an
item that was sent and then superseded, or a client's call that was cut. A cancelled run ends with
`response.incomplete` and the status `cancelled`. There is no event of that name, and the AI SDK
repeats the request after a `response.failed` without output.

In the Responses API a response also ends, as `completed`, where its run asks for approvals. The
next response shows what follows the answers: `ResponsesFormat.after` is its format
(`segments.py`). Elsewhere the whole run is one response.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tailrace.core.errors import InvalidCursor
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.state_copy import copy_state
from tailrace.wire.base import DONE_FRAME, START, Cursor, DefaultFormat, Frame, whole_number
from tailrace.wire.openai_responses.cursors import JOINED, OPENING, offset, place_of, split
from tailrace.wire.openai_responses.encoder import ResponsesEncoder
from tailrace.wire.openai_responses.items import own_id
from tailrace.wire.openai_responses.object import (
    ECHOED,
    calls_of,
    compaction_object,
    compaction_run,
    echoed,
    input_items,
    is_compaction,
    linked_images,
    output_items,
    outputs_of,
    response_object,
    run_items,
)
from tailrace.wire.openai_responses.output import ResponseEvent
from tailrace.wire.openai_responses.outputs import answers_with_outputs
from tailrace.wire.openai_responses.references import (
    BY_ITEMS,
    NamedItems,
    continued,
    has_only_outputs,
    ids_of_asking,
    named_run,
    new_item,
    references,
    resolved,
    returned,
)
from tailrace.wire.openai_responses.requests import RequestsEncoder, requests_object
from tailrace.wire.openai_responses.segments import (
    ApprovalResponse,
    answered_inside,
    approvals_of,
    asked_approvals,
    asks_itself,
    end_of,
    is_segment_paused,
    last_answered,
    last_output,
    open_approvals,
    open_pause,
    pause_of,
    response_id,
    runs_of_approval,
    segment_of,
    without_approvals,
)

__all__ = [
    "BY_ITEMS",
    "DONE_FRAME",
    "ECHOED",
    "FORMAT",
    "ApprovalResponse",
    "NamedItems",
    "RequestsFormat",
    "ResponsesEncoder",
    "ResponsesFormat",
    "answered_inside",
    "answers_with_outputs",
    "approvals_of",
    "asked_approvals",
    "asks_itself",
    "calls_of",
    "compaction_object",
    "compaction_run",
    "continued",
    "echoed",
    "end_of",
    "has_only_outputs",
    "ids_of_asking",
    "input_items",
    "is_compaction",
    "is_segment_paused",
    "last_answered",
    "last_output",
    "linked_images",
    "named_run",
    "new_item",
    "open_approvals",
    "open_pause",
    "output_items",
    "outputs_of",
    "own_id",
    "pause_of",
    "references",
    "requests_object",
    "resolved",
    "response_id",
    "response_object",
    "returned",
    "run_items",
    "runs_of_approval",
    "segment_of",
    "without_approvals",
]


class ResponsesFormat(DefaultFormat):
    """`openai-responses`: for the OpenAI SDKs and the Vercel AI SDK."""

    name = "openai-responses"

    def __init__(self, segment: int | None = None) -> None:
        """The format of the response after this many pauses; None: the whole run is a response."""
        self._segment = segment
        if segment is not None:  # streams are shared by the name of their format
            self.name = f"{self.name}~{segment + 1}"

    def after(self, pauses: int) -> ResponsesFormat:
        """The format of the response after this many pauses."""
        return ResponsesFormat(pauses)

    def at(self, state: State) -> ResponsesEncoder:
        """An encoder for a client that has seen everything up to this state."""
        return ResponsesEncoder(copy_state(state), segment=self._segment)

    def open(self, state: State, epoch: int = 1) -> tuple[ResponsesEncoder, list[Frame]]:
        """A replay with a single delta for each text, without superseded items."""
        encoder, replay = self._replay(state)
        return encoder, encoder.number(replay, OPENING, state.sequence_number, epoch)

    def open_in_pieces(
        self, state: State, epoch: int = 1
    ) -> tuple[ResponsesEncoder, Iterator[bytes]]:
        """As `open`. Several frames repeat the same text, whose bytes they share."""
        encoder, replay = self._replay(state)
        return encoder, encoder.number_in_pieces(replay, OPENING, state.sequence_number, epoch)

    def _replay(self, state: State) -> tuple[ResponsesEncoder, list[ResponseEvent]]:
        replay: list[ResponseEvent] = []
        encoder = ResponsesEncoder(
            copy_state(state), segment=self._segment, joined=True, replay=replay
        )
        return encoder, replay

    def resume(
        self, before: State, recorded: Recorded, cursor: Cursor
    ) -> tuple[ResponsesEncoder, list[Frame]]:
        """Continue inside event `cursor.seq`; `before` is the state before it."""
        place = place_of(cursor.sub or 0, recorded.epoch)
        if place.mode == OPENING:
            state = copy_state(before)
            state.absorb(recorded.event)
            encoder, frames = self.open(state, recorded.epoch)
        else:
            joined = place.mode == JOINED
            encoder = ResponsesEncoder(
                copy_state(before), segment=self._segment, joined=joined, numbering=place.numbering
            )
            frames = encoder.encode(recorded)
        count = len(frames) - frames.count(DONE_FRAME)
        if not 0 <= place.k < count and not place.is_last:
            raise InvalidCursor(
                f"Event {cursor.seq} has {count} frames; send the last number you received."
            )
        return encoder, frames[place.k + 1 :]

    def cursor(self, text: str) -> Cursor:
        """Read a `sequence_number`, as in `starting_after`; 0 is the start."""
        number = whole_number(text)
        if number == 0:
            return START
        seq, sub = split(number)
        return Cursor(seq, sub=sub)

    def in_run(self, cursor: Cursor, run_id: str) -> Cursor:
        """A cursor without the run's offset; seq 0 if it can only be another run's."""
        return cursor._replace(seq=max(0, cursor.seq - offset(run_id)))

    def messages(self, chain: Sequence[State]) -> list[dict[str, Any]]:
        """The conversation as input items: the input of each run, then its output."""
        items: dict[str, dict[str, Any]] = {}
        for state in chain:
            # A client may send an item of an earlier run again: its first place counts.
            for item in run_items(state):
                items.setdefault(item["id"], item)
        return list(items.values())


class RequestsFormat(ResponsesFormat):
    """The requests for approvals at the end of a response, once more and alone."""

    def __init__(self, segment: int) -> None:
        """The format of the response after this many pauses."""
        super().__init__(segment)
        self.name += "~requests"
        self._number = segment

    def at(self, state: State) -> RequestsEncoder:
        """An encoder for a client that has seen nothing of the requests."""
        return RequestsEncoder(copy_state(state), segment=self._number)

    def open(self, state: State, epoch: int = 1) -> tuple[ResponsesEncoder, list[Frame]]:
        """The requests, if the run has made them."""
        encoder = self.at(state)
        return encoder, encoder.requests(state.sequence_number, epoch)

    def open_in_pieces(
        self, state: State, epoch: int = 1
    ) -> tuple[ResponsesEncoder, Iterator[bytes]]:
        """As `open`."""
        encoder, frames = self.open(state, epoch)
        return encoder, iter(frames)


FORMAT = ResponsesFormat()
