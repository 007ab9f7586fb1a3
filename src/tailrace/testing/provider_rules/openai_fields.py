"""OpenAI's rules for the fields around the conversation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tailrace.core.values import Json, dict_of
from tailrace.testing.provider_rules.openai_errors import RequestError, kind_name, missing, mistaken

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_TIERS = ("auto", "default", "flex", "scale", "priority", "fast")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_SHARED: dict[str, str] = {
    "metadata": "an object",
    "model": "a string",
    "moderation": "an object",
    "parallel_tool_calls": "a boolean",
    "prompt_cache_key": "a string",
    "prompt_cache_options": "an object",
    "prompt_cache_retention": "a string",
    "safety_identifier": "a string",
    "service_tier": "a string",
    "store": "a boolean",
    "stream": "a boolean",
    "stream_options": "an object",
    "temperature": "a decimal",
    "tools": "an array",
    "top_logprobs": "an integer",
    "top_p": "a decimal",
    "user": "a string",
}
RESPONSES: dict[str, str | None] = {
    **_SHARED,
    "access_programs": "an object",
    "background": "a boolean",
    "context_management": "an array",
    "conversation": None,
    "image": "an object",
    "include": "an array",
    "input": None,  # the conversation has rules of its own
    "instructions": "a string",
    "max_output_tokens": "an integer",
    "max_tool_calls": "an integer",
    "previous_response_id": "a string",
    "prompt": "an object",
    "reasoning": "an object",
    "text": "an object",
    "tool_choice": None,
    "truncation": "a string",
}
"""The fields of `POST /v1/responses`, and what each of them is."""

CHAT: dict[str, str | None] = {
    **_SHARED,
    "audio": "an object",
    "frequency_penalty": "a decimal",
    "function_call": None,
    "functions": "an array",
    "logit_bias": "an object",
    "logprobs": "a boolean",
    "max_completion_tokens": "an integer",
    "max_tokens": "an integer",
    "messages": None,
    "modalities": "an array",
    "n": "an integer",
    "prediction": "an object",
    "presence_penalty": "a decimal",
    "reasoning_effort": "a string",
    "response_format": "an object",
    "seed": "an integer",
    "stop": None,
    "tool_choice": None,
    "verbosity": "a string",
    "web_search_options": "an object",
}
"""The fields of `POST /v1/chat/completions`, and what each of them is."""

_RANGES: dict[str, tuple[int, int | None]] = {
    "frequency_penalty": (-2, 2),
    "max_completion_tokens": (1, None),
    "max_output_tokens": (16, None),
    "max_tokens": (1, None),
    "max_tool_calls": (1, None),
    "n": (1, 128),
    "presence_penalty": (-2, 2),
    "temperature": (0, 2),
    "top_logprobs": (0, 20),
    "top_p": (0, 1),
}
_VALUES: dict[str, tuple[str, ...]] = {
    "prompt_cache_retention": ("in_memory", "24h"),
    "reasoning_effort": EFFORTS,
    "service_tier": _TIERS,
    "truncation": ("auto", "disabled"),
    "verbosity": ("low", "medium", "high"),
}
_INCLUDES = (
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
)
_TOOLS = (
    "apply_patch",
    "code_interpreter",
    "computer",
    "computer_use_preview",
    "custom",
    "file_search",
    "function",
    "image_generation",
    "local_shell",
    "mcp",
    "namespace",
    "programmatic_tool_calling",
    "shell",
    "tool_search",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
)
_CHOICES = ("none", "auto", "required")


def responses_errors(request: Mapping[str, Any]) -> Iterator[RequestError]:
    """Errors in the fields of `POST /v1/responses`."""
    yield from _fields(request, RESPONSES)
    for index, name in enumerate(request.get("include") or ()):
        yield from _among(f"include[{index}]", name, _INCLUDES)
    reasoning = request.get("reasoning") or {}
    yield from _among("reasoning.effort", reasoning.get("effort"), EFFORTS)
    yield from _among("reasoning.summary", reasoning.get("summary"), _SUMMARIES)
    text = request.get("text") or {}
    yield from _among("text.verbosity", text.get("verbosity"), _VALUES["verbosity"])
    form = text.get("format") or {}
    yield from _format("text.format", "text.format", form, form)
    names: list[str] = []
    for index, tool in enumerate(request.get("tools") or ()):
        place = f"tools[{index}]"
        if not isinstance(tool, dict):
            yield mistaken(place, "an object", tool)
        elif tool.get("type") is None:
            yield missing(f"{place}.type")
        elif tool["type"] == "function":
            yield from _function(place, tool, names)
        else:
            yield from _among(f"{place}.type", tool["type"], _TOOLS)
    choice = request.get("tool_choice")
    if choice is not None and choice not in ("auto", "none") and not request.get("tools"):
        chosen = choice if isinstance(choice, str) else choice.get("type")
        reason = f"Tool choice '{chosen}' must be specified with 'tools' parameter."
        yield RequestError(reason, "tool_choice")
    yield from _choice(choice, names, choice if isinstance(choice, dict) else {})


_SUMMARIES = ("auto", "concise", "detailed")


def chat_errors(request: Mapping[str, Any]) -> Iterator[RequestError]:
    """Errors in the fields of `POST /v1/chat/completions`."""
    yield from _fields(request, CHAT)
    if request.get("stream_options") is not None and not request.get("stream"):
        reason = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        yield RequestError(reason, "stream_options")
    form = request.get("response_format") or {}
    inner = form.get("json_schema")
    if form.get("type") == "json_schema" and not isinstance(inner, dict):
        yield missing("response_format.json_schema")
    yield from _format("response_format", "response_format.json_schema", form, inner or {})
    names: list[str] = []
    for index, tool in enumerate(request.get("tools") or ()):
        place = f"tools[{index}]"
        if not isinstance(tool, dict):
            yield mistaken(place, "an object", tool)
        elif tool.get("type") not in ("function", "custom"):
            yield from _among(f"{place}.type", str(tool.get("type")), ("function", "custom"))
        elif tool["type"] == "function" and not isinstance(tool.get("function"), dict):
            yield missing(f"{place}.function")
        elif tool["type"] == "function":
            yield from _function(f"{place}.function", tool["function"], names)
    if not request.get("tools"):
        for name in ("tool_choice", "parallel_tool_calls"):
            if request.get(name) is not None:
                reason = f"'{name}' is only allowed when 'tools' are specified."
                yield RequestError(f"Invalid value for '{name}': {reason}", name)
    choice = request.get("tool_choice")
    yield from _choice(choice, names, dict_of(choice).get("function"))


# --- what they share ---------------------------------------------------------------------------


def _fields(request: Mapping[str, Any], known: Mapping[str, str | None]) -> Iterator[RequestError]:
    if not request.get("model"):
        yield RequestError("you must provide a model parameter", None)
    for name, value in request.items():
        if name not in known:
            yield RequestError(f"Unknown parameter: '{name}'.", name, "unknown_parameter")
        elif value is not None:
            wanted = known[name]
            kind = kind_name(value)
            if wanted is not None and kind != wanted and (wanted, kind) != _WHOLE_DECIMAL:
                yield mistaken(name, wanted, value)
                return  # nothing else can be checked
            yield from _within(name, value)
            if name in _VALUES:
                yield from _among(name, value, _VALUES[name])


_WHOLE_DECIMAL = ("a decimal", "an integer")


def _within(name: str, value: Any) -> Iterator[RequestError]:
    if name not in _RANGES:
        return
    least, most = _RANGES[name]
    kind = "integer" if _SHARED.get(name, CHAT.get(name)) != "a decimal" else "decimal"
    if value < least:
        reason = (
            f"{kind} below minimum value. Expected a value >= {least}, but got {value} instead."
        )
        yield RequestError(f"Invalid '{name}': {reason}", name, f"{kind}_below_min_value")
    elif most is not None and value > most:
        reason = f"{kind} above maximum value. Expected a value <= {most}, but got {value} instead."
        yield RequestError(f"Invalid '{name}': {reason}", name, f"{kind}_above_max_value")


def _among(place: str, value: Any, values: tuple[str, ...]) -> Iterator[RequestError]:
    if value is not None and value not in values:
        quoted = [f"'{value}'" for value in values]
        listed = f"{', '.join(quoted[:-1])}{',' if len(quoted) > 2 else ''} and {quoted[-1]}"
        reason = f"Invalid value: '{value}'. Supported values are: {listed}."
        yield RequestError(reason, place, "invalid_value")


def _function(place: str, tool: Json, names: list[str]) -> Iterator[RequestError]:
    name, schema = tool.get("name"), tool.get("parameters")
    if not name:
        yield missing(f"{place}.name")
        return
    if not isinstance(name, str):
        yield mistaken(f"{place}.name", "a string", name)
        return
    names.append(name)
    yield from _named(f"{place}.name", name)
    if schema is None:
        return
    kind = dict_of(schema).get("type")
    if kind != "object":
        reason = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'."
        yield _no_schema("function", name, reason, f"{place}.parameters")
    elif tool.get("strict"):
        for reason in _not_strict(schema):
            yield _no_schema("function", name, reason, f"{place}.parameters")


def _named(place: str, name: str) -> Iterator[RequestError]:
    if not _NAME.fullmatch(name):
        reason = (
            f"Invalid '{place}': string does not match pattern. Expected a string that matches "
            "the pattern '^[a-zA-Z0-9_-]+$'."
        )
        yield RequestError(reason, place, "invalid_value")


def _no_schema(of: str, name: str, reason: str, place: str) -> RequestError:
    code = "invalid_function_parameters" if of == "function" else "invalid_json_schema"
    return RequestError(f"Invalid schema for {of} '{name}': {reason}", place, code)


def _not_strict(schema: Json, context: tuple[str, ...] = ()) -> Iterator[str]:
    """Places where a strict schema is not strict."""
    here = f"In context=({', '.join(repr(step) for step in context)})"
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            yield f"{here}, 'additionalProperties' is required to be supplied and to be false."
        inner = schema.get("properties") or {}
        for name in inner:
            if name not in (schema.get("required") or ()):
                yield (
                    f"{here}, 'required' is required to be supplied and to be an array including "
                    f"every key in properties. Missing '{name}'."
                )
        for name, value in inner.items():
            yield from _not_strict(value, (*context, "properties", name))
    elif isinstance(schema.get("items"), dict):
        yield from _not_strict(schema["items"], (*context, "items"))


def _format(place: str, inner_place: str, form: Json, inner: Json) -> Iterator[RequestError]:
    """Errors in the response format; chat completions nest its schema."""
    yield from _among(f"{place}.type", form.get("type"), ("json_object", "json_schema", "text"))
    if form.get("type") != "json_schema":
        return
    for name in ("name", "schema"):
        if inner.get(name) is None:
            yield missing(f"{inner_place}.{name}")
            return
    yield from _named(f"{inner_place}.name", inner["name"])
    if inner["schema"].get("type") != "object":
        kind = inner["schema"].get("type")
        reason = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'."
        yield _no_schema("response_format", inner["name"], reason, f"{inner_place}.schema")
    elif inner.get("strict"):
        for reason in _not_strict(inner["schema"]):
            yield _no_schema("response_format", inner["name"], reason, f"{inner_place}.schema")


def _choice(choice: Any, names: list[str], function: Any) -> Iterator[RequestError]:
    if isinstance(choice, str):
        yield from _among("tool_choice", choice, _CHOICES)
    elif choice is not None and choice.get("type") == "function":
        name = (function or {}).get("name")
        if name not in names:
            yield RequestError(
                f"Tool choice '{name}' not found in 'tools' parameter.", "tool_choice"
            )
