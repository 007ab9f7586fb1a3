"""OpenAI's Responses API, at OpenAI or at any server that has it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final

from tailrace.core.values import Json
from tailrace.models.sdk import SdkModel, noted_history, with_options
from tailrace.ports import Request, ToolSpec
from tailrace.ports.model import TOOL_CHOICES

_WITHOUT_REASONING = re.compile(r"(ft:)?(gpt-3|gpt-4|chatgpt-4|gpt-5-chat)")
"""Models that do not reason. They refuse a request for sealed reasoning."""

MIN_OUTPUT_TOKENS = 16
"""The least `max_output_tokens` that the API takes."""


class OpenAIModel(SdkModel):
    """A model behind the Responses API."""

    api: Final = "openai_responses"
    provider = "openai"
    client = "AsyncOpenAI"

    def stream(self, request: Request) -> AsyncIterator[list[str]]:
        """The answer's events, not decoded."""
        body = request_body(self.name, request, host=self.host)
        create = self._client.responses.with_streaming_response.create
        return self._ask(create, body, "model", "input", "stream")


def request_body(model: str, request: Request, *, host: str | None = None) -> Json:
    """The body of `POST /v1/responses`."""
    store = request.history != "encrypted" if request.store is None else request.store
    body: Json = {"model": model, "stream": True, "store": store}
    if request.input is not None:
        body["input"] = request.input
    else:
        body |= noted_history(request, "openai_responses", model, host, store=store).request()
    if not store and not _WITHOUT_REASONING.match(model):
        # The provider stores no reasoning, so it must send it sealed, for the next request.
        body["include"] = ["reasoning.encrypted_content"]
    body["instructions"] = request.instructions
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = _choice(request.tool_choice)
        body["parallel_tool_calls"] = request.parallel_calls
    if request.output is not None:
        output = request.output
        form = {"name": output.name, "schema": output.schema, "strict": output.strict}
        body["text"] = {"format": {"type": "json_schema", **form}}
    reasoning = {"effort": request.effort, "summary": request.summary}
    body["reasoning"] = {key: value for key, value in reasoning.items() if value} or None
    limit = request.max_output_tokens
    body["max_output_tokens"] = None if limit is None else max(limit, MIN_OUTPUT_TOKENS)
    body["temperature"] = request.temperature
    body["top_p"] = request.top_p
    return with_options(body, request.options)


def _tool(tool: ToolSpec | Json) -> Json:
    if isinstance(tool, dict):
        return tool
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
    }


def _choice(choice: str | None) -> str | Json | None:
    if choice in (None, *TOOL_CHOICES):
        return choice
    return {"type": "function", "name": choice}
