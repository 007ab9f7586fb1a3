"""Anthropic's rules for the fields around the conversation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tailrace.core.values import Json

MESSAGES: dict[str, str | None] = {
    "cache_control": "dictionary",
    "container": None,
    "context_management": "dictionary",
    "diagnostics": "dictionary",
    "inference_geo": "string",
    "max_tokens": "integer",
    "mcp_servers": "list",
    "messages": "list",
    "metadata": "dictionary",
    "model": "string",
    "output_config": "dictionary",
    "service_tier": "string",
    "speed": "string",
    "stop_sequences": "list",
    "stream": "boolean",
    "system": None,
    "temperature": "number",
    "thinking": "dictionary",
    "tool_choice": "dictionary",
    "tools": "list",
    "top_k": "integer",
    "top_p": "number",
}
"""The fields of `POST /v1/messages`, and what each of them is."""

_KINDS: dict[str, type | tuple[type, ...]] = {
    "boolean": bool,
    "dictionary": dict,
    "integer": int,
    "list": list,
    "number": (int, float),
    "string": str,
}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_ADAPTIVE = re.compile(r"claude-(?:[a-z]+-[5-9]|opus-4-[78])\b")
"""Models that have no budget to think with, and whose sampling cannot be set."""
_ALWAYS = re.compile(r"claude-(?:fable|mythos|[a-z]+-5[-.]5)\b")
"""Models whose thinking cannot be turned off."""
_WITHOUT_XHIGH = re.compile(r"claude-(?:(?:opus|sonnet)-4[-.]6|mythos-preview)\b")


def messages_errors(request: Mapping[str, Any]) -> Iterator[str]:
    """Errors in the fields of `POST /v1/messages`."""
    for name in ("model", "max_tokens", "messages"):
        if request.get(name) is None:
            yield f"{name}: Field required"
    for name, value in request.items():
        if name not in MESSAGES:
            yield f"{name}: Extra inputs are not permitted"
        elif value is not None and not _is_a(value, MESSAGES[name]):
            yield f"{name}: Input should be a valid {MESSAGES[name]}"
            return  # nothing else can be checked
    yield from _numbers(request)
    if request.get("system") is not None and not isinstance(request["system"], str | list):
        yield "system: Input should be a valid string"
    yield from _output(request.get("output_config") or {}, str(request.get("model")))
    names: list[str] = []
    for index, tool in enumerate(request.get("tools") or ()):
        yield from _tool(f"tools.{index}", tool, names)
    if len(set(names)) < len(names):
        yield "tools: Tool names must be unique."
    yield from _choice(request, names)
    yield from _thinking(request)


def _is_a(value: Any, kind: str | None) -> bool:
    if kind is None:
        return True
    return isinstance(value, _KINDS[kind]) and isinstance(value, bool) == (kind == "boolean")


def _numbers(request: Mapping[str, Any]) -> Iterator[str]:
    for name, least in (("max_tokens", 1), ("top_k", 0)):
        if request.get(name) is not None and request[name] < least:
            yield f"{name}: Input should be greater than or equal to {least}"
    for name in ("temperature", "top_p"):
        if request.get(name) is None:
            continue
        if not 0 <= request[name] <= 1:
            yield f"{name}: range: 0..1"
        elif _ADAPTIVE.search(str(request.get("model"))):
            yield f"`{name}` is deprecated for this model."


_BOUNDS = ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf")


def _output(config: Json, model: str) -> Iterator[str]:
    effort, form = config.get("effort"), config.get("format")
    if effort is not None and effort not in _EFFORTS:
        quoted = [f"'{effort}'" for effort in _EFFORTS]
        listed = f"{', '.join(quoted[:-1])} or {quoted[-1]}"
        yield f"output_config.effort: Input should be {listed}"
    if effort == "xhigh" and _WITHOUT_XHIGH.search(model):
        yield (
            "This model does not support effort level 'xhigh'. Supported levels: high, low, max, "
            "medium."
        )
    if form is None:
        return
    if form.get("type") != "json_schema":
        yield "output_config.format.type: Input should be 'json_schema'"
    elif not isinstance(form.get("schema"), dict):
        yield "output_config.format.schema: Field required"
    else:
        yield from _not_strict("output_config.format.schema", form["schema"])


def _not_strict(place: str, schema: Any) -> Iterator[str]:
    """What a strict schema may not have, at any depth."""
    if isinstance(schema, list):
        for below in schema:
            yield from _not_strict(place, below)
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    if kind == "object" and schema.get("additionalProperties") is not False:
        yield f"{place}: For 'object' type, 'additionalProperties' must be explicitly set to false"
    bounds = [bound for bound in _BOUNDS if bound in schema]
    if kind in ("integer", "number") and bounds:
        yield f"{place}: For '{kind}' type, properties {', '.join(bounds)} are not supported"
    for below in schema.values():
        yield from _not_strict(place, below)


def _tool(place: str, tool: Any, names: list[str]) -> Iterator[str]:
    if not isinstance(tool, dict):
        yield f"{place}: Input should be a valid dictionary or object to extract fields from"
        return
    if isinstance(tool.get("name"), str):
        names.append(tool["name"])
    if tool.get("type") not in (None, "custom"):
        return  # a tool of Anthropic's own
    for name in ("name", "input_schema"):
        if tool.get(name) is None:
            yield f"{place}.custom.{name}: Field required"
            return
    if not _NAME.fullmatch(str(tool["name"])):
        pattern = "^[a-zA-Z0-9_-]{1,128}$"
        yield f"{place}.custom.name: String should match pattern '{pattern}'"
    schema = tool["input_schema"]
    if not isinstance(schema, dict):
        yield f"{place}.custom.input_schema: Input should be a valid dictionary"
    elif schema.get("type") is None:
        yield f"{place}.custom.input_schema.type: Field required"
    elif schema["type"] != "object":
        yield f"{place}.custom.input_schema.type: Input should be 'object'"
    elif tool.get("strict"):
        yield from _not_strict(f"{place}.custom.input_schema", schema)


def _choice(request: Mapping[str, Any], names: list[str]) -> Iterator[str]:
    choice = request.get("tool_choice")
    if choice is None:
        return
    yield from _tagged("tool_choice", choice, ("auto", "any", "tool", "none"))
    if not request.get("tools"):
        yield "tool_choice may only be specified while providing tools."
    elif choice.get("type") == "tool" and choice.get("name") not in names:
        yield f"Tool '{choice.get('name')}' not found in provided tools"


def _tagged(place: str, value: Json, tags: tuple[str, ...]) -> Iterator[str]:
    if value.get("type") not in tags:
        listed = ", ".join(f"'{tag}'" for tag in tags)
        yield (
            f"{place}: Input tag '{value.get('type')}' found using 'type' does not match any of "
            f"the expected tags: {listed}"
        )


def _thinking(request: Mapping[str, Any]) -> Iterator[str]:
    thinking = request.get("thinking")
    if thinking is None:
        return
    tags = ("adaptive", "between_tools", "disabled", "enabled")
    yield from _tagged("thinking", thinking, tags)
    kind = thinking.get("type")
    if kind in ("adaptive", "enabled") and request.get("temperature") not in (None, 1):
        yield "`temperature` may only be set to 1 when thinking is enabled."
    is_forced = (request.get("tool_choice") or {}).get("type") in ("any", "tool")
    if kind in ("adaptive", "enabled") and is_forced:
        yield "Thinking may not be enabled when tool_choice forces tool use."
    if (refusing := {"disabled": _ALWAYS, "enabled": _ADAPTIVE}.get(kind)) and refusing.search(
        str(request.get("model"))
    ):
        yield (
            f'"thinking.type.{kind}" is not supported for this model. Use '
            '"thinking.type.adaptive" and "output_config.effort" to control thinking behavior.'
        )
    if kind != "enabled":
        return
    budget = thinking.get("budget_tokens")
    if not _is_a(budget, "integer"):
        yield "thinking.enabled.budget_tokens: Field required"
        return
    if budget < 1024:
        yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
    if budget >= request.get("max_tokens", 0):
        yield "`max_tokens` must be greater than `thinking.budget_tokens`."
