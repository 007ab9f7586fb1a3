"""Chat completions: what nearly every server of models speaks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import urlsplit

from tailrace.core.history import history
from tailrace.core.items import Usage
from tailrace.models.openai import CONNECT_SECONDS, open_client, taken_out
from tailrace.models.prices import Prices, list_price
from tailrace.models.transport import streamed
from tailrace.ports import Request

Json = dict[str, Any]


class ChatModel:
    """A model behind chat completions."""

    api: Final = "openai_chat"

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        prices: Prices | None = None,
        connect: float = CONNECT_SECONDS,
    ) -> None:
        self._name = name
        self._prices = prices or list_price("openai", base_url)
        self._client, self._key = open_client(api_key, base_url, connect)
        self._is_openai = urlsplit(str(self._client.base_url)).hostname == "api.openai.com"

    @property
    def name(self) -> str:
        """The model's name at its provider."""
        return self._name

    def stream(self, request: Request) -> AsyncIterator[list[str]]:
        """The answer's chunks, raw."""
        import openai

        body = request_body(self._name, request, is_openai=self._is_openai)
        create = self._client.chat.completions.with_streaming_response.create
        named = {key: body.pop(key) for key in ("model", "messages", "stream")}
        return streamed(openai, lambda: create(**named, extra_body=body), self._key)

    def cost(self, usage: Usage) -> float | None:
        """By the price list."""
        return self._prices(self._name, usage)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def request_body(model: str, request: Request, *, is_openai: bool = False) -> Json:
    """The body of `POST /v1/chat/completions`."""
    if request.input is not None:
        messages = request.input
    else:
        messages = history(
            request.chain,
            "openai_chat",
            request.history,
            task_id=request.task_id,
            model=model,
            load=request.load,
        ).items
    if request.instructions is not None:
        messages = [{"role": "system", "content": request.instructions}, *messages]
    body: Json = {
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    **({"strict": True} if tool.strict else {}),
                },
            }
            for tool in request.tools
        ]
        body["tool_choice"] = _choice(request.tool_choice)
        body["parallel_tool_calls"] = request.parallel_calls
    if request.output is not None:
        output = request.output
        form = {"name": output.name, "schema": output.schema, "strict": output.strict}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    body["reasoning_effort"] = request.effort
    # OpenAI's newer models refuse the old name, and few other servers know the new one.
    limit = "max_completion_tokens" if is_openai else "max_tokens"
    body[limit] = request.max_output_tokens
    body["temperature"] = request.temperature
    return taken_out(body, request.options)


def _choice(choice: str | None) -> str | Json | None:
    if choice in (None, "auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}
