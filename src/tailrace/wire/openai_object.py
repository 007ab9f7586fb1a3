"""A run as OpenAI's `response` object, which the frames that end a stream carry too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo
from tailrace.core.state import TaskNode
from tailrace.wire.openai_items import ITEM, Json, Sources, is_cut, item_json, keys
from tailrace.wire.usage import usage_of_run

INTERRUPTED = ErrorInfo(
    code="interrupted",
    message="The answer was begun again after a fault; retrieve the response to get all of it.",
)
TOO_LONG = ErrorInfo(
    code="too_long",
    message="The response is too long to be streamed; retrieve it without `stream`.",
)
INCOMPLETE_CALL = ErrorInfo(
    code="incomplete_function_call", message="The response ended inside a function call."
)
_ERROR_CODES = frozenset(
    (
        *("server_error", "rate_limit_exceeded", "invalid_prompt", "vector_store_timeout"),
        *("invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url"),
        *("image_too_large", "image_too_small", "image_parse_error", "invalid_image_mode"),
        *("image_content_policy_violation", "image_file_too_large", "empty_image_file"),
        *("unsupported_image_media_type", "failed_to_download_image", "image_file_not_found"),
    )
)
"""`ResponseError.code` of OpenAI's API; strict clients refuse any other value."""

_CODES = {"rate_limited": "rate_limit_exceeded", "request_refused": "invalid_prompt"}
"""Our codes that have a name there."""

_INCOMPLETE_REASONS = frozenset(("max_output_tokens", "content_filter"))
"""`incomplete_details.reason` of OpenAI's API, as every client version knows it."""

ECHOED: dict[str, tuple[type, ...]] = {
    "background": (bool,),
    "instructions": (str,),
    "max_output_tokens": (int,),
    "max_tool_calls": (int,),
    "parallel_tool_calls": (bool,),
    "reasoning": (dict,),
    "service_tier": (str,),
    "store": (bool,),
    "temperature": (int, float),
    "text": (dict,),
    "tool_choice": (str, dict),
    "tools": (list,),
    "top_p": (int, float),
    "truncation": (str,),
    "user": (str,),
}
"""What a request said and every response repeats, from the task's public `options`."""

_TIERS = ("auto", "default", "flex", "scale", "priority")
_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)


def response_id(run_id: str) -> str:
    """The run's name there; the SDKs want nothing of it, people expect the prefix."""
    return run_id if run_id.startswith("resp_") else f"resp_{run_id}"


def response_object(state: State) -> Json:
    """The run as a `response`: the body of `GET /responses/{id}`, and of the frame that ends it."""
    root = state.root
    if root is None:
        return {}
    sources = Sources(state)
    shown = begun_response(state)
    shown["status"] = "in_progress" if root.status in (None, "input_required") else root.status
    shown["output"] = [
        item_json(sources, root, key)
        for key in keys(root)
        if key[1] != ITEM or not is_cut(root.items[key[0]])
    ]
    tier = (usage_of_run(state) or {}).get("service_tier")
    if tier in _TIERS:  # clients refuse other words
        shown["service_tier"] = tier  # the provider's word, not what the request asked for
    if root.ended:
        shown["usage"] = usage_json(state)
        _end(shown, root)
    return shown


def references(given: Any) -> list[str]:
    """The ids of the items that an `input` names instead of repeating them."""
    items = given if isinstance(given, list) else []
    named = [item.get("id") for item in items if _is_reference(item)]
    return [ident for ident in named if isinstance(ident, str)]


def resolved(given: Any, items: Mapping[str, Json]) -> Any:
    """An `input` with the items themselves in place of their references."""
    if not isinstance(given, list):
        return given
    return [items.get(one.get("id"), one) if _is_reference(one) else one for one in given]


def _is_reference(item: Any) -> bool:
    """OpenAI lets a client leave the type out: then there is the id alone."""
    if not isinstance(item, dict):
        return False
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and item.keys() - {"type"} == {"id"})


def failed_response(state: State, error: ErrorInfo) -> Json:
    """The response of a stream that has to end before its run does."""
    return {
        **response_object(state),
        "status": "failed",
        "error": error_json(error),
        "usage": usage_json(state),
    }


def _end(shown: Json, root: TaskNode) -> None:
    if root.status in ("incomplete", "cancelled"):
        shown["incomplete_details"] = incomplete_details(root.reason)
    if root.error is not None:
        shown["error"] = error_json(root.error)
    elif any(is_cut(node) and not node.superseded for node in root.items.values()):
        # Decision 15: nobody may take a call that was cut for one that was made.
        shown["error"] = error_json(INCOMPLETE_CALL)
        if root.status != "cancelled":
            shown["status"] = "failed"


def error_json(error: ErrorInfo) -> Json:
    """A response's `error`: `code` is from OpenAI's list, `type` is our own code."""
    code = _CODES.get(error.code, error.code)
    known = code if code in _ERROR_CODES else "server_error"
    return {"type": error.code, "code": known, "message": error.message, "param": error.param}


def incomplete_details(reason: str | None) -> Json:
    """Why a response stopped early, from OpenAI's list; the AI SDK reads null as a normal stop."""
    return {"reason": reason if reason in _INCOMPLETE_REASONS else "max_output_tokens"}


def begun_response(state: State) -> Json:
    """The response as it is before its first item."""
    root = state.root
    assert root is not None
    facts = root.facts
    previous, metadata = facts.get("previous_run_id"), facts.get("metadata")
    plain = isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())
    shown: Json = {
        "id": response_id(root.task_id),
        "object": "response",
        "created_at": int(facts.get("created_at", 0)),
        "status": "queued" if root.status == "queued" else "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": metadata if plain else {},
        "model": facts.get("agent") or facts.get("model") or "",
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": response_id(previous) if previous else None,
        "store": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }
    options = facts.get("options")
    if isinstance(options, dict):
        shown.update(echoed(options))
    return shown


def echoed(request: Mapping[str, Any]) -> Json:
    """What every response repeats of its request: the public `options` of its run."""
    return {name: request[name] for name in ECHOED if _is_echo(name, request.get(name))}


def _is_echo(name: str, value: Any) -> bool:
    # `True` is an `int` to Python, and no temperature.
    kinds = ECHOED[name]
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def usage_json(state: State) -> Json:
    """What the whole run used, sub-agents included: it is one response there."""
    used = usage_of_run(state) or {}
    count = {name: used.get(name, 0) for name in _COUNTS}
    return {
        "input_tokens": count["input_tokens"],
        "input_tokens_details": {
            "cached_tokens": count["cached_input_tokens"],
            "cache_write_tokens": count["cache_write_tokens"],
        },
        "output_tokens": count["output_tokens"],
        "output_tokens_details": {"reasoning_tokens": count["reasoning_tokens"]},
        "total_tokens": count["input_tokens"] + count["output_tokens"],
    }
