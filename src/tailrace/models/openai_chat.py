"""Chat completions, the API that nearly every model server has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from tailrace.core.values import Json
from tailrace.models.sdk import SdkModel, noted_history, with_options
from tailrace.ports import Request, ToolSpec
from tailrace.ports.model import TOOL_CHOICES

OPENAI = "api.openai.com"


class ChatModel(SdkModel):
    """A model behind chat completions."""

    api: Final = "openai_chat"
    provider = "openai"
    client = "AsyncOpenAI"

    def stream(self, request: Request) -> AsyncIterator[list[str]]:
        """The answer's chunks, not decoded."""
        body = request_body(self.name, request, host=self.host)
        create = self._client.chat.completions.with_streaming_response.create
        return self._ask(create, body, "model", "messages", "stream")


def request_body(model: str, request: Request, *, host: str | None = None) -> Json:
    """The body of `POST /v1/chat/completions`."""
    if request.input is not None:
        messages = request.input
    else:
        messages = noted_history(request, "openai_chat", model, host).items
    if request.instructions is not None:
        messages = [{"role": "system", "content": request.instructions}, *messages]
    body: Json = {"model": model, "messages": messages, "stream": True}
    if request.options.get("stream", True):  # OpenAI refuses it without streaming
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = _choice(request.tool_choice)
        body["parallel_tool_calls"] = request.parallel_calls
    if request.output is not None:
        output = request.output
        form = {"name": output.name, "schema": output.schema, "strict": output.strict}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    body["reasoning_effort"] = request.effort
    # OpenAI's newer models refuse the old name, and few other servers know the new name.
    limit = "max_completion_tokens" if host == OPENAI else "max_tokens"
    body[limit] = request.max_output_tokens
    if host == OPENAI:
        body["store"] = request.store
    body["temperature"] = request.temperature
    body["top_p"] = request.top_p
    return with_options(body, request.options)


def _tool(tool: ToolSpec | Json) -> Json:
    if isinstance(tool, dict):
        return tool
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            **({"strict": True} if tool.strict else {}),
        },
    }


def _choice(choice: str | None) -> str | Json | None:
    if choice in (None, *TOOL_CHOICES):
        return choice
    return {"type": "function", "function": {"name": choice}}
