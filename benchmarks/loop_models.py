"""The models of openai-agents and LangGraph; apart, as their base classes load the packages."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from agents import Model, ModelResponse
from agents.items import TResponseStreamEvent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from benchmarks.loop_story import CALL_ID, asks, deltas, has_result, name_of


class Agents(Model):
    """Calls the tool, then says its deltas, as openai-agents reads them."""

    def __init__(self, count: int, depth: int, level: int) -> None:
        self._sizes = (count, depth, level)

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        """Every run here streams."""
        raise NotImplementedError

    async def stream_response(
        self,
        system_instructions: Any,  # noqa: ARG002
        input: Any,
        *_: Any,
        **__: Any,
    ) -> AsyncIterator[TResponseStreamEvent]:
        """One turn."""
        level = self._sizes[2]
        if isinstance(input, str) or all(
            one.get("type") != "function_call_output" for one in input
        ):
            arguments = json.dumps(asks(level, "input"))
            call = ResponseFunctionToolCall(
                id="fc_1",
                type="function_call",
                call_id=CALL_ID,
                name=name_of(level),
                arguments=arguments,
            )
            yield _completed(call)
            return
        pieces: list[str] = []
        async for delta in deltas(*self._sizes):
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
        part = ResponseOutputText(type="output_text", text="".join(pieces), annotations=[])
        yield _completed(
            ResponseOutputMessage(
                id="msg_1", type="message", role="assistant", status="completed", content=[part]
            )
        )


def _completed(item: Any) -> ResponseCompletedEvent:
    response = Response(
        id="resp_1",
        object="response",
        created_at=0,
        model="talker",
        output=[item],
        parallel_tool_calls=False,
        tool_choice="auto",
        tools=[],
    )
    return ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)


class Chat(BaseChatModel):
    """The same as a chat model of LangChain."""

    count: int
    depth: int
    level: int

    @property
    def _llm_type(self) -> str:
        return "talker"

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _astream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        if not has_result([message.type for message in messages]):
            call: Any = {
                "name": name_of(self.level),
                "args": json.dumps(asks(self.level)),
                "id": CALL_ID,
                "index": 0,
                "type": "tool_call_chunk",
            }
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))
            return
        async for delta in deltas(self.count, self.depth, self.level):
            yield ChatGenerationChunk(message=AIMessageChunk(content=delta))
