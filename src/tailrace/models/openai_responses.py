"""OpenAI's Responses API, at OpenAI or at any server that has it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from tailrace.models.prices import Prices, list_price
from tailrace.models.sdk import CONNECT_SECONDS, Json, SdkModel, conversation, with_options
from tailrace.models.transport import address, key_for, missing_sdk
from tailrace.ports import Request, ToolSpec


def open_client(
    api_key: str | None, base_url: str | None, connect: float
) -> tuple[Any, str | None, list[str]]:
    """The SDK's client without retries, its base URL, and the secrets to hide."""
    try:
        import httpx2
        import openai
    except ImportError:
        raise missing_sdk("openai") from None
    place = address("OPENAI_BASE_URL", base_url)
    key = key_for("OPENAI_API_KEY", api_key, place.url)
    client = openai.AsyncOpenAI(
        api_key=key,
        base_url=place.url,
        default_headers=place.headers,
        timeout=httpx2.Timeout(None, connect=connect),
        max_retries=0,
    )
    return client, place.url, [key, *place.secrets]


class OpenAIModel(SdkModel):
    """A model behind the Responses API."""

    api: Final = "openai_responses"

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        prices: Prices | None = None,
        connect: float = CONNECT_SECONDS,
    ) -> None:
        client, url, secrets = open_client(api_key, base_url, connect)
        super().__init__(name, prices or list_price("openai", url), client, secrets)

    def stream(self, request: Request) -> AsyncIterator[list[str]]:
        """The answer's events, not decoded."""
        import openai

        body = request_body(self.name, request, host=self.host)
        create = self._client.responses.with_streaming_response.create
        return self._ask(openai, create, body, "model", "input", "stream")


def request_body(model: str, request: Request, *, host: str | None = None) -> Json:
    """The body of `POST /v1/responses`."""
    store = request.history != "encrypted" if request.store is None else request.store
    body: Json = {"model": model, "stream": True, "store": store}
    if request.input is not None:
        body["input"] = request.input
    else:
        body |= conversation(request, "openai_responses", model, host, store=store).request()
    if not store:
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
    body["max_output_tokens"] = request.max_output_tokens
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
    if choice in (None, "auto", "none", "required"):
        return choice
    return {"type": "function", "name": choice}
