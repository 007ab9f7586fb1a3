"""Anthropic's Messages API: one POST is one run, and `messages` are all that it knows.

Except in a `thread` that continues: its run knows the run that wrote `previous_message_id`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tailrace.core.errors import NotFound
from tailrace.core.state import TaskNode
from tailrace.core.values import Json, dict_of, list_of
from tailrace.server import request_fields
from tailrace.server.access.guard import json_response
from tailrace.server.apis.base import OneWayApi
from tailrace.server.openapi import client_schemas
from tailrace.server.openapi.document import OBJECT, STREAM, operation
from tailrace.server.request_body import read_json
from tailrace.wire import anthropic_messages

ROLES = ("user", "assistant", "system")

MEDIA_TOKENS = 1500
"""The estimate for an image or a document, whatever its size."""

_BYTES_PER_TOKEN = 4
_NAMES = {
    "max_output_tokens": "max_tokens",
    "reasoning.effort": "output_config.effort",
    "text.format": "output_config.format",
    "user": "metadata.user_id",
}
"""Our names of options, and Anthropic's."""

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class ThreadNotFound(NotFound):
    """The message that a request continues is not stored, or belongs to another owner."""

    code = "thread_not_found"


class MessagesApi(OneWayApi):
    """`/v1/messages`."""

    def routes(self) -> list[Route]:
        """The routes of Anthropic's clients."""
        return [
            Route("/v1/messages", self.create_message, methods=["POST"]),
            Route("/v1/messages/count_tokens", self.count_tokens, methods=["POST"]),
        ]

    @operation(
        body=client_schemas.MESSAGE_REQUEST,
        answers={200: {"application/json": client_schemas.MESSAGE, **STREAM}},
        errors=(422, 423, 424),
    )
    async def create_message(self, request: Request) -> ASGIApp:
        """Start a run of the agent that `model` names, and answer with it."""
        body = await read_json(request)
        model = self.agent(body)
        stream = request_fields.optional(body, "stream", bool)
        previous = await self._continued(body)
        given = request_messages(body, () if previous is None else previous.calls)
        named = options(body)
        if previous is not None and body.get("tools") is None:
            named["tools"] = list_of(dict_of(previous.facts.get("options")).get("tools"))
        before = None if previous is None else previous.task_id
        key = request.headers.get("idempotency-key")
        run = await self.started(key, model, given, previous_run_id=before, options=named)
        run_id = run.run_id
        if stream:
            is_theirs = request.headers.get("user-agent", "").startswith("pydantic-ai")
            wire = anthropic_messages.IN_DELTAS if is_theirs else anthropic_messages.FORMAT
            return self.only_stream(wire, run_id)
        return await self.answer(request, run_id, anthropic_messages.message_object)

    async def _continued(self, body: Json) -> TaskNode | None:
        """The root of the run that a `thread` continues; None for any other request."""
        thread = request_fields.optional(body, "thread", dict) or {}
        kind = thread.get("type")
        if thread and kind not in ("create", "continue"):
            raise request_fields.wrong("thread.type", kind, "create or continue")
        if kind != "continue":
            return None
        name = "previous_message_id"
        message_id = request_fields.text(thread, name, "send the id of the last message")
        run_id = message_id.removeprefix("msg_")
        if await self.runs.find(run_id) is None:
            advice = "Send the whole conversation in `messages`."
            raise ThreadNotFound(f"Message {message_id[:80]} is not stored here. {advice}")
        return (await self.runs.look(run_id)).state.root

    @operation(body=client_schemas.COUNT_REQUEST, answers={200: OBJECT})
    async def count_tokens(self, request: Request) -> Response:
        """Estimate the tokens of a request without a model call.

        The agent's own instructions and tools do not count.
        """
        body = await read_json(request)
        self.agent(body)
        counted = [request_messages(body), [_function(function) for function in _functions(body)]]
        return json_response({"input_tokens": estimated_tokens(counted)})


def request_messages(body: Json, known: Collection[str] = ()) -> list[Json]:
    """The messages of a request, after its `system` prompt. `known` are calls before them."""
    messages = request_fields.checked_messages(body, ROLES, known)
    system = body.get("system")
    if system is None:
        return messages
    is_list = isinstance(system, list) and all(isinstance(block, dict) for block in system)
    if not is_list and not isinstance(system, str):
        raise request_fields.wrong("system", system, "a string or a list of text blocks")
    return [{"role": "system", "content": system}, *messages]


def options(body: Json) -> Json:
    """The options of a request, under the names of the Responses API."""
    named: Json = {name: body.get(name) for name in ("temperature", "top_p")}
    named["max_output_tokens"] = request_fields.optional(body, "max_tokens", int)
    named["tools"] = [_function(function) for function in _functions(body)]
    choice = request_fields.optional(body, "tool_choice", dict) or {}
    if choice and choice.get("type") not in (*_CHOICES, "tool"):
        kinds = "auto, any, none or tool"
        raise request_fields.wrong("tool_choice.type", choice.get("type"), kinds)
    named["tool_choice"] = _CHOICES.get(str(choice.get("type")))
    if choice.get("type") == "tool":
        named["tool_choice"] = {"type": "function", "name": choice.get("name")}
    if choice.get("disable_parallel_tool_use") is True:
        named["parallel_tool_calls"] = False
    about = request_fields.optional(body, "output_config", dict) or {}
    effort = request_fields.optional(about, "effort", str, "output_config")
    if effort is not None:
        named["reasoning"] = {"effort": effort}
    if about.get("format") is not None:
        named["text"] = {"format": about["format"]}
    named["user"] = (request_fields.optional(body, "metadata", dict) or {}).get("user_id")
    return request_fields.renamed_options(named, _NAMES)


def _functions(body: Json) -> list[Json]:
    """The tools that the client executes. Anthropic's own tools have another type."""
    tools = request_fields.request_tools(body)
    return [tool for tool in tools if tool.get("type") in (None, "custom")]


def _function(tool: Json) -> Json:
    return {
        "type": "function",
        "name": tool.get("name"),
        "description": tool.get("description") or "",
        "parameters": tool.get("input_schema"),
    }


def estimated_tokens(value: Any) -> int:
    """About how many tokens a value has: a token for each 4 bytes, a fixed number for media."""
    media = 0

    def without_media(value: Any) -> Any:
        nonlocal media
        if isinstance(value, list):
            return [without_media(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        if value.get("type") in ("image", "document", "input_image", "input_file"):
            media += 1
            return {}
        return {name: without_media(entry) for name, entry in value.items()}

    size = len(msgspec.json.encode(without_media(value)))
    return math.ceil(size / _BYTES_PER_TOKEN) + media * MEDIA_TOKENS
