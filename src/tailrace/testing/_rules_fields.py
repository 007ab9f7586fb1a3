"""The providers' rules for the fields around the conversation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tailrace.testing._rules_calls import Refusal

_SHARED = {
    "metadata",
    "model",
    "parallel_tool_calls",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
}
RESPONSES = _SHARED | {
    "background",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "previous_response_id",
    "prompt",
    "reasoning",
    "text",
    "truncation",
}
CHAT = _SHARED | {
    "frequency_penalty",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "n",
    "presence_penalty",
    "reasoning_effort",
    "response_format",
    "seed",
    "stop",
}
MESSAGES = {
    "container",
    "max_tokens",
    "messages",
    "metadata",
    "model",
    "output_config",
    "service_tier",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
}


def responses_errors(request: Mapping[str, Any]) -> Iterator[Refusal]:
    """OpenAI's for `POST /v1/responses`."""
    yield from _fields(request, RESPONSES)
    for index, tool in enumerate(request.get("tools") or ()):
        if tool.get("type") == "function" and not tool.get("name"):
            yield _missing(f"tools[{index}].name")


def chat_errors(request: Mapping[str, Any]) -> Iterator[Refusal]:
    """OpenAI's for `POST /v1/chat/completions`."""
    yield from _fields(request, CHAT)
    for index, tool in enumerate(request.get("tools") or ()):
        if not (tool.get("function") or {}).get("name"):
            yield _missing(f"tools[{index}].function")


def _fields(request: Mapping[str, Any], known: set[str]) -> Iterator[Refusal]:
    if not request.get("model"):
        yield Refusal("you must provide a model parameter", None)
    for name in request:
        if name not in known:
            yield Refusal(f"Unknown parameter: '{name}'.", name, "unknown_parameter")
    if not request.get("tools"):
        for name in ("tool_choice", "parallel_tool_calls"):
            if request.get(name) is not None:
                said = f"'{name}' is only allowed when 'tools' are specified."
                yield Refusal(f"Invalid value for '{name}': {said}", name)


def _missing(place: str) -> Refusal:
    said = f"Missing required parameter: '{place}'."
    return Refusal(said, place, "missing_required_parameter")


def messages_errors(request: Mapping[str, Any]) -> Iterator[str]:
    """Anthropic's for `POST /v1/messages`."""
    for name in ("model", "max_tokens", "messages"):
        if request.get(name) is None:
            yield f"{name}: Field required"
    for name in request:
        if name not in MESSAGES:
            yield f"{name}: Extra inputs are not permitted"
    thinking = request.get("thinking") or {}
    if thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens", 0)
        if budget < 1024:
            yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        if budget >= request.get("max_tokens", 0):
            yield "`max_tokens` must be greater than `thinking.budget_tokens`."
        if (request.get("tool_choice") or {}).get("type") in ("any", "tool"):
            yield "Thinking may not be enabled when tool_choice forces tool use."
        if request.get("temperature") not in (None, 1):
            yield "`temperature` may only be set to 1 when thinking is enabled."
