"""The requests for approvals that a response ends with, once more and alone.

A client may send the outputs of its functions before people have answered. The run takes them, and
the client gets the requests again. The calls would make it run its functions twice.
"""

from __future__ import annotations

from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.values import Json
from tailrace.wire.base import Frame
from tailrace.wire.openai_responses.cursors import WHOLE, offset
from tailrace.wire.openai_responses.encoder import ResponsesEncoder
from tailrace.wire.openai_responses.object import begun_response, no_usage, response_object
from tailrace.wire.openai_responses.output import ResponseEvent
from tailrace.wire.openai_responses.segments import approval_items, is_segment_paused


def requests_object(state: State, segment: int) -> Json:
    """A response that asks for approvals, with its requests alone."""
    output = approval_items(state, segment)
    return {**response_object(state, segment), "output": output, "usage": no_usage()}


class RequestsEncoder(ResponsesEncoder):
    """Encodes the requests at the end of a response, when its run has made them."""

    __slots__ = ()

    def __init__(self, state: State, *, segment: int) -> None:
        """Ready for the event after `state`, which it takes over."""
        super().__init__(State(), segment=segment)
        self._state = state

    def encode(self, recorded: Recorded) -> list[Frame]:
        """All frames at the event with the requests, and none at any other."""
        self._state.absorb(recorded.event)
        return self.requests(recorded.event.sequence_number, recorded.epoch)

    def requests(self, seq: int, epoch: int) -> list[Frame]:
        """The frames, if the run has made the requests and they were not sent."""
        state, segment = self._state, self._segment
        root = state.root
        if self._over or not is_segment_paused(state, segment):
            return []
        assert root is not None
        assert segment is not None
        self._over = True
        self._offset = offset(root.task_id)
        begun = {"response": begun_response(state, segment)}
        sent: list[ResponseEvent] = [
            *(("response.created", begun), ("response.in_progress", begun))
        ]
        for index, item in enumerate(approval_items(state, segment)):
            place = {"output_index": index, "item": item}
            sent += (("response.output_item.added", place), ("response.output_item.done", place))
        sent.append(("response.completed", {"response": requests_object(state, segment)}))
        return self.number(sent, WHOLE, seq, epoch)
