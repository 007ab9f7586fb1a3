"""A model for openai-agents that needs no network; apart, as its base class loads the package."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agents import Model, ModelResponse
from agents.items import TResponseStreamEvent
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from benchmarks.servers.limits import model


class Talker(Model):
    """Says so many deltas, yielding to the loop after each, then the whole response."""

    def __init__(self, count: int, rate: float) -> None:
        self._count = count
        self._rate = rate

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        """Not used: every request streams."""
        raise NotImplementedError

    async def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[TResponseStreamEvent]:
        """The deltas of one message."""
        pieces: list[str] = []
        async for delta in model(self._count, self._rate):
            pieces.append(delta)
            # Not `construct`, as the SDK does: it takes longer than all the rest of the way.
            yield ResponseTextDeltaEvent(
                type="response.output_text.delta",
                item_id="msg_1",
                output_index=0,
                content_index=0,
                delta=delta,
                logprobs=[],
                sequence_number=len(pieces),
            )
        yield ResponseCompletedEvent(
            type="response.completed",
            response=_response("".join(pieces)),
            sequence_number=len(pieces),
        )


def _response(text: str) -> Response:
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    message = ResponseOutputMessage(
        id="msg_1", type="message", role="assistant", status="completed", content=[part]
    )
    return Response(
        id="resp_1",
        object="response",
        created_at=0,
        model="talker",
        output=[message],
        parallel_tool_calls=False,
        tool_choice="auto",
        tools=[],
    )
