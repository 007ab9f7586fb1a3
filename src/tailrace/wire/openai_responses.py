"""OpenAI's Responses stream: the root task as one response that grows.

Every frame has a `sequence_number` that is a cursor without any state; `wire.openai_numbers` says
what is in it. No two frames of a run share a number unless the same frames follow both.

No frame has an `id:` line: once openai-python has seen one, it takes the blank line after a comment
for an event. Without them a comment is a safe heartbeat; a `keepalive` event would need a number.

What this vocabulary cannot say ends the stream with `response.failed` instead of a wrong answer:
an item that was told and then superseded, a client's call that was cut. A cancelled run ends with
`response.incomplete`, its status `cancelled`: there is no event of that name, and the AI SDK sends
the whole request again after a `response.failed` without output.
"""

from __future__ import annotations

from tailrace.core import sse
from tailrace.core.errors import InvalidCursor
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.snapshot import fork
from tailrace.wire.base import RETRY_MS, START, Cursor, Frame, whole_number
from tailrace.wire.openai_encoder import ResponsesEncoder, Told
from tailrace.wire.openai_items import own_id
from tailrace.wire.openai_numbers import JOINED, OPENING, place_of, split
from tailrace.wire.openai_object import (
    ECHOED,
    echoed,
    references,
    resolved,
    response_id,
    response_object,
)

__all__ = [
    "ECHOED",
    "FORMAT",
    "ResponsesEncoder",
    "ResponsesFormat",
    "echoed",
    "own_id",
    "references",
    "resolved",
    "response_id",
    "response_object",
]


class ResponsesFormat:
    """`openai-responses`: what the OpenAI SDKs and the Vercel AI SDK read."""

    name = "openai-responses"
    headers: dict[str, str] = {}
    resumable = True
    stateful = True
    shows_attempts = False
    heartbeat: Frame = sse.comment("ping")

    def preamble(self, retry_ms: int = RETRY_MS) -> bytes:
        """Nothing: its clients do not connect again by themselves."""
        return b""

    def at(self, state: State) -> ResponsesEncoder:
        """An encoder for a reader that has been told everything up to this state."""
        return ResponsesEncoder(state)

    def open(self, state: State) -> tuple[ResponsesEncoder, list[Frame]]:
        """One delta for each text, and what was superseded left out."""
        told: list[Told] = []
        encoder = ResponsesEncoder(state, joined=True, told=told)
        return encoder, encoder.number(told, OPENING, state.sequence_number)

    def resume(
        self, before: State, recorded: Recorded, cursor: Cursor
    ) -> tuple[ResponsesEncoder, list[Frame]]:
        """Go on inside an event: `before` is the state that event `cursor.seq` came upon.

        The encoder is for the event after it; the frames are what is left of its own.
        """
        place = place_of(cursor.sub or 0)
        if place.mode == OPENING:
            state = fork(before)
            state.absorb(recorded.event)
            encoder, frames = self.open(state)
        else:
            joined = place.mode == JOINED
            encoder = ResponsesEncoder(before, joined=joined, numbering=place.numbering)
            frames = encoder.encode(recorded)
        if place.k >= len(frames):
            raise InvalidCursor(
                f"Event {cursor.seq} has {len(frames)} frames; send the last number."
            )
        return encoder, frames[place.k + 1 :]

    def cursor(self, text: str) -> Cursor:
        """A `sequence_number`, as `starting_after` has it; 0 is the start."""
        number = whole_number(text)
        if number == 0:
            return START
        seq, sub = split(number)
        return Cursor(seq, sub=sub)


FORMAT = ResponsesFormat()
