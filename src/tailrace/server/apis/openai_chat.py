"""OpenAI's chat completions: one POST is one run, and `messages` are all that it knows.

Except for the run whose calls come back: the new run continues it. So its model keeps the reasoning
and the results of the server's tools, which this API does not show.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp

from tailrace.core.errors import CallerError
from tailrace.core.values import Json
from tailrace.server import request_fields
from tailrace.server.apis.base import OneWayApi
from tailrace.server.openapi import client_schemas
from tailrace.server.openapi.document import STREAM, operation
from tailrace.server.request_body import read_json
from tailrace.wire import openai_chat

_LIMITS = ("max_tokens", "max_completion_tokens")

_REPLACED = {"functions": "tools", "function_call": "tool_choice"}
"""Fields that OpenAI has replaced, and their new names."""


class CompletionsApi(OneWayApi):
    """`/v1/chat/completions`."""

    def routes(self) -> list[Route]:
        """The route of OpenAI's clients."""
        return [Route("/v1/chat/completions", self.complete, methods=["POST"])]

    @operation(
        body=client_schemas.COMPLETION_REQUEST,
        answers={200: {"application/json": client_schemas.COMPLETION, **STREAM}},
        errors=(422, 423, 424),
    )
    async def complete(self, request: Request) -> ASGIApp:
        """Start a run of the agent that `model` names, and answer with it."""
        body = await read_json(request)
        model = self.agent(body)
        messages = request_fields.completion_messages(body)
        stream = request_fields.optional(body, "stream", bool)
        asked = request_fields.optional(body, "stream_options", dict) or {}
        if request_fields.optional(body, "n", int) not in (None, 1):
            raise request_fields.wrong("n", body["n"], "1: a run has one answer")
        continued, given = await self._continued(messages)
        run = await self.started(
            request.headers.get("idempotency-key"),
            model,
            given,
            options=options(body),
            metadata=request_fields.response_metadata(body),
            forget=request_fields.optional(body, "store", bool) is False,
            **continued,
        )
        run_id = run.run_id
        if not stream:
            return await self.answer(request, run_id, openai_chat.completion)
        with_usage = asked.get("include_usage") is True
        wire = openai_chat.FORMAT if with_usage else openai_chat.WITHOUT_USAGE
        return self.only_stream(wire, run_id)

    async def _continued(self, messages: list[Json]) -> tuple[Json, list[Json]]:
        """Where a run continues the run whose calls come back, and the messages after it."""
        for place, message in reversed(list(enumerate(messages))):
            for run_id in openai_chat.runs_of(message):
                if await self.runs.exists(run_id):
                    return await self.agreed(
                        openai_chat, messages, run_id, openai_chat.read, written=[place]
                    )
        return {"previous_run_id": None}, messages


def options(body: dict[str, Any]) -> dict[str, Any]:
    """The options of a request, under the names of the Responses API."""
    for name, new in _REPLACED.items():
        if body.get(name) is not None:
            raise CallerError(f"`{name}` is not supported; send `{new}`.", param=name)
    named = dict(body)
    names = {"reasoning.effort": "reasoning_effort", "text.format": "response_format"}
    for name in _LIMITS:
        if (limit := request_fields.optional(body, name, int)) is not None:
            if limit < 1:  # checked here, because the second replaces the first
                raise request_fields.wrong(name, limit, "at least 1")
            named["max_output_tokens"], names["max_output_tokens"] = limit, name
    if (effort := request_fields.optional(body, "reasoning_effort", str)) is not None:
        named["reasoning"] = {"effort": effort}
    if (shape := request_fields.optional(body, "response_format", dict)) is not None:
        named["text"] = {"format": _flat(shape)}
    named["tools"] = [_flat(declared_tool) for declared_tool in request_fields.request_tools(body)]
    if isinstance(body.get("tool_choice"), dict):
        named["tool_choice"] = _flat(body["tool_choice"])
    return request_fields.renamed_options(named, names)


def _flat(value: dict[str, Any]) -> dict[str, Any]:
    """`{"type": "function", "function": {…}}` as the Responses API writes it: on one level."""
    inner = value.get(str(value.get("type")))
    return {"type": value["type"], **inner} if isinstance(inner, dict) else value
