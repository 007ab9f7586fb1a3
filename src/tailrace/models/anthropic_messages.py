"""Anthropic's Messages API, at Anthropic or any server that speaks it."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from typing import Any, Final

from tailrace.core.values import Json, json_text
from tailrace.models.sdk import SdkModel, noted_history, with_options
from tailrace.models.transport import key_for
from tailrace.ports import Request, ToolSpec

BUDGETS = {
    "minimal": 1024,
    "low": 4096,
    "medium": 10_000,
    "high": 16_000,
    "xhigh": 20_000,
    "max": 23_000,
}
"""Tokens for thinking, by effort. Anthropic takes at least 1024. With `DEFAULT_MAX_TOKENS` they
stay below 32,000, the output limit of the smallest thinking model."""

DEFAULT_MAX_TOKENS = 8192
"""The output limit of a request that has no limit: Anthropic demands one."""

_BY_BUDGET = re.compile(
    r"claude-(?:instant|[1-4]\b|(?:opus|sonnet|haiku)-4(?:[-.@](?:[0-5]|20[0-9]{6})\b|$))"
)
"""Models up to 4.5, which take a thinking budget. Later models take an effort instead."""

_THINKS_IF_ASKED = re.compile(r"claude-(?:opus|sonnet|haiku)-4\b")
"""Later models that think only on request."""

_WITHOUT_XHIGH = re.compile(r"claude-(?:(?:opus|sonnet)-4[-.]6|mythos-preview)\b")
"""Later models that know every effort but `xhigh`."""


class AnthropicModel(SdkModel):
    """A model behind the Messages API."""

    api: Final = "anthropic_messages"

    provider = "anthropic"
    client = "AsyncAnthropic"

    def _key(
        self, variable: str, given: str | None, url: str | None
    ) -> tuple[str | None, list[str]]:
        # With a token there is no key; the SDK finds the token itself.
        token = os.environ.get("ANTHROPIC_AUTH_TOKEN") if given is None else None
        key = None if token else key_for(variable, given, url)
        found = (token, key, os.environ.get(variable))  # the SDK reads the variable too
        return key, [*filter(None, found)]

    def stream(self, request: Request) -> AsyncIterator[list[str]]:
        """The answer's events, not decoded."""
        body = request_body(self.name, request, host=self.host)
        create = self._client.messages.with_streaming_response.create
        return self._ask(create, body, "model", "messages", "max_tokens", "stream")


def request_body(model: str, request: Request, *, host: str | None = None) -> Json:
    """The body of `POST /v1/messages`."""
    system = [] if request.instructions is None else [_text(request.instructions)]
    can_think, container = True, None
    if request.input is not None:
        messages = request.input
    else:
        sent = noted_history(request, "anthropic_messages", model, host)
        messages, can_think, container = sent.items, sent.can_think, sent.container
        system += [_text(text) for text in sent.system]
    limit = request.max_output_tokens or DEFAULT_MAX_TOKENS
    body: Json = {"model": model, "messages": messages, "stream": True, "max_tokens": limit}
    body["system"] = system or None
    body["container"] = container
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = _choice(request)
    config: Json = {}
    if request.output is not None:
        form = _form(request.output.schema)
        if form is not None:
            config["format"] = {"type": "json_schema", "schema": form}
        else:
            schema = json_text(request.output.schema)
            body["system"] = [*system, _text(f"Answer with JSON of this schema only: {schema}")]
    # Thinking excludes a forced tool, a temperature and `top_p`. The caller's demands win.
    forced = request.tools and request.tool_choice not in (None, "auto", "none")
    if "claude" in model and not _BY_BUDGET.search(model):
        _adapt(body, config, request, forced=bool(forced))
    elif request.effort in BUDGETS and can_think and not forced:
        budget = BUDGETS[request.effort]
        body["thinking"] = {"type": "enabled", "budget_tokens": budget}
        body["max_tokens"] = limit + budget  # thinking counts as output
    body["output_config"] = config or None
    if "thinking" not in body:
        body["temperature"] = request.temperature
        body["top_p"] = request.top_p
    return with_options(body, request.options)


def _form(schema: Json) -> Json | None:
    """The schema as Anthropic takes it; None if Anthropic has no words for it.

    Every object is closed, and constraints on values move into descriptions.
    """
    from anthropic import transform_schema

    if _has_open_object(schema):  # closed, it would allow no field at all
        return None
    try:
        return transform_schema(schema)
    except (ValueError, AssertionError):  # a schema without a type, or with several
        return None


def _has_open_object(node: Any) -> bool:
    if isinstance(node, list):
        return any(_has_open_object(below) for below in node)
    if not isinstance(node, dict):
        return False
    if node.get("type") == "object" and node.get("additionalProperties", "properties" not in node):
        return True
    return any(_has_open_object(below) for below in node.values())


def _adapt(body: Json, config: Json, request: Request, *, forced: bool) -> None:
    """Configure the thinking of a model that decides itself how much it thinks.

    Thinking is hidden unless its display is requested. The latest models cannot turn it off: they
    get the least effort instead.
    """
    model, effort = body["model"], request.effort
    if effort == "none":
        config |= {} if _THINKS_IF_ASKED.search(model) else {"effort": "low"}
    elif not forced and (effort is not None or request.summary is not None):
        body["thinking"] = {"type": "adaptive", "display": "summarized"}
    if effort in BUDGETS:
        known = {"minimal": "low"}
        if _WITHOUT_XHIGH.search(model):
            known["xhigh"] = "high"
        config["effort"] = known.get(effort, effort)
        body["max_tokens"] += BUDGETS[effort]


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _tool(tool: ToolSpec | Json) -> Json:
    if isinstance(tool, dict):
        return tool
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.parameters,
        **({"strict": True} if tool.strict else {}),
        **({"allowed_callers": list(tool.allowed_callers)} if tool.allowed_callers else {}),
    }


def _choice(request: Request) -> Json | None:
    choice, parallel = request.tool_choice, request.parallel_calls
    kinds = {None: "auto", "auto": "auto", "none": "none", "required": "any"}
    found: Json = {"type": kinds[choice]} if choice in kinds else {"type": "tool", "name": choice}
    if parallel is not None and choice != "none":
        found["disable_parallel_tool_use"] = not parallel
    return found if choice is not None or parallel is not None else None
