"""OpenAI's rules for the body of `POST /v1/responses`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tailrace.core.values import Json, dict_of
from tailrace.testing.provider_rules.openai_errors import (
    RequestError,
    image_error,
    missing,
    mistaken,
    too_long,
)
from tailrace.testing.provider_rules.openai_responses.calls import (
    OUTPUT_OF,
    form_errors,
    kind_of,
    pair_errors,
)

if TYPE_CHECKING:
    from tailrace.testing.provider_rules import Issued


_ID = re.compile(r"[A-Za-z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "reasoning": "rs",
}
_PARTS = {
    "user": ("input_text", "input_image", "input_file", "input_audio"),
    "system": ("input_text", "input_image", "input_file"),
    "developer": ("input_text", "input_image", "input_file"),
    "assistant": ("output_text", "refusal"),
}
_CALLS = ("function_call", "custom_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_TEXTS = ("call_id", "name", "arguments", "role")
_FIELDS = {
    "function_call": ("call_id", "name", "arguments"),
    "custom_tool_call": ("call_id", "name", "input"),
    "function_call_output": ("call_id", "output"),
    "custom_tool_call_output": ("call_id", "output"),
    "computer_call": ("id", "call_id"),
    "computer_call_output": ("call_id", "output"),
    "shell_call": ("call_id", "action"),
    "shell_call_output": ("call_id", "output"),
    "local_shell_call": ("id", "call_id", "action"),
    "local_shell_call_output": ("id", "output"),
    "apply_patch_call": ("call_id", "operation"),
    "apply_patch_call_output": ("call_id", "status"),
    "mcp_approval_request": ("id", "arguments", "name", "server_label"),
    "mcp_approval_response": ("approval_request_id", "approve"),
    "mcp_call": ("id", "arguments", "name", "server_label"),
    "reasoning": ("summary",),
    "message": ("role", "content"),
    "item_reference": ("id",),
}


def errors(request: Mapping[str, Any], issued: Issued) -> Iterator[RequestError]:
    """All errors, in the order in which OpenAI checks."""
    previous = request.get("previous_response_id")
    if previous is not None and previous not in issued.responses:
        reason = f"Previous response with id '{previous}' not found."
        yield RequestError(reason, "previous_response_id", "previous_response_not_found")
        return
    items = request.get("input")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if items is not None and not isinstance(items, list):
        yield mistaken("input", "one of a string or an array", items)
        return
    if not items:
        yield RequestError(
            "Missing required parameter: 'input'.", "input", "missing_required_parameter"
        )
        return
    for index, item in enumerate(items):
        yield from _shape(index, item, issued)
    before = issued.responses.get(str(previous), ())
    yield from _duplicates(items, before)
    yield from _reasoning(items, issued, stored=request.get("store") is not False)
    yield from pair_errors(items, before)


def _invalid(param: str, reason: str) -> RequestError:
    return RequestError(f"Invalid '{param}': {reason}", param, "invalid_value")


def _shape(index: int, item: Any, issued: Issued) -> Iterator[RequestError]:
    place = f"input[{index}]"
    if not isinstance(item, dict):
        yield mistaken(place, "an object", item)
        return
    kind = kind_of(item)
    if kind not in _FIELDS:
        if item not in issued.raw_items:
            yield RequestError(f"Invalid value: '{kind}'.", place, "invalid_value")
        return
    for name in _FIELDS[kind]:
        if item.get(name) is None:
            yield missing(f"{place}.{name}")
            return
        if name in _TEXTS and not isinstance(item[name], str):
            yield mistaken(f"{place}.{name}", "a string", item[name])
            return
    yield from _ids(place, kind, item)
    if kind == "message":
        yield from _message(place, item)
    elif kind in _CALLS and not isinstance(item[_FIELDS[kind][2]], str):
        yield mistaken(f"{place}.{_FIELDS[kind][2]}", "a string", item[_FIELDS[kind][2]])
    elif kind in _CALLS and not _NAME.fullmatch(item["name"]):
        yield _invalid(
            f"{place}.name",
            "string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.",
        )
    elif kind in _OUTPUTS and not isinstance(item["output"], str | list):
        yield mistaken(f"{place}.output", "one of a string or an array", item["output"])
    elif kind in _OUTPUTS and isinstance(item["output"], list):
        yield from _parts(f"{place}.output", item["output"], _PARTS["user"])
    else:
        yield from form_errors(place, kind, item)


def _ids(place: str, kind: str, item: Json) -> Iterator[RequestError]:
    ident, prefix = item.get("id"), _PREFIXES.get(kind, "")
    if ident is not None:
        if not isinstance(ident, str) or not _ID.fullmatch(ident):
            reason = (
                f"'{ident}'. Expected an ID that contains letters, numbers, underscores, or "
                "dashes, but this value contained additional characters."
            )
            yield _invalid(f"{place}.id", reason)
        elif not ident.startswith(prefix):
            yield _invalid(f"{place}.id", f"'{ident}'. Expected an ID that begins with '{prefix}'.")
        elif len(ident) > 64:
            yield too_long(f"{place}.id", ident, 64)
    call_id = item.get("call_id")
    if isinstance(call_id, str) and len(call_id) > 64:
        yield too_long(f"{place}.call_id", call_id, 64)


def _message(place: str, item: Json) -> Iterator[RequestError]:
    role = item["role"]
    if role not in _PARTS:
        reason = "Supported values are: 'assistant', 'system', 'developer', and 'user'."
        yield RequestError(f"Invalid value: '{role}'. {reason}", f"{place}.role", "invalid_value")
    elif isinstance(item["content"], list):
        yield from _parts(f"{place}.content", item["content"], _PARTS[role])
    elif not isinstance(item["content"], str):
        yield mistaken(f"{place}.content", "one of a string or an array", item["content"])


def _parts(place: str, parts: list[Any], allowed: tuple[str, ...]) -> Iterator[RequestError]:
    for index, part in enumerate(parts):
        kind = dict_of(part).get("type")
        here = f"{place}[{index}]"
        if kind not in allowed:
            quoted = [f"'{name}'" for name in allowed]
            listed = f"{', '.join(quoted[:-1])} and {quoted[-1]}"
            reason = f"Invalid value: '{kind}'. Supported values are: {listed}."
            yield RequestError(reason, here, "invalid_value")
        elif kind.endswith("_text") and not isinstance(part.get("text"), str):
            yield missing(f"{here}.text")
        elif kind == "input_image" and part.get("file_id") is None:
            if error := image_error(f"{here}.image_url", part.get("image_url")):
                yield error
        elif kind == "input_file" and not any(
            part.get(name) for name in ("file_url", "file_data", "file_id")
        ):
            yield RequestError(f"Missing required parameter: '{here}.file_id'.", here)


def _duplicates(items: list[Json], before: Any) -> Iterator[RequestError]:
    seen = {item.get("id") for item in before}
    for item in items:
        ident = item.get("id")
        if ident is None:
            continue
        if ident in seen:
            yield RequestError(
                f"Duplicate item found with id {ident}. Remove duplicate items from your input "
                "and try again."
            )
        seen.add(ident)


def _is_reasoning(item: Json, issued: Issued) -> bool:
    if kind_of(item) == "item_reference":
        known = issued.items.get(item["id"])
        return known is not None and known.kind == "reasoning"
    return kind_of(item) == "reasoning"


def _reasoning(items: list[Json], issued: Issued, *, stored: bool) -> Iterator[RequestError]:
    turn = max((index for index, item in enumerate(items) if item.get("role") == "user"), default=0)
    for index, item in enumerate(items):
        if _is_reasoning(item, issued):
            yield from _found(item, issued, stored=stored, current=index >= turn)
        elif kind_of(item) == "item_reference" and not _is_stored(item["id"], issued):
            yield _not_found(item["id"], stored=stored)
    present: set[str] = set()
    for index, item in enumerate(items):
        ident = item.get("id")
        if _is_reasoning(item, issued):
            follower = items[index + 1] if index + 1 < len(items) else {}
            if not _follows(item, follower, issued):
                yield RequestError(
                    f"Item '{ident}' of type 'reasoning' was provided without its required "
                    "following item."
                )
            present.add(str(ident))
            continue
        known = issued.items.get(str(ident))
        if known is not None and known.reasoning is not None and known.reasoning not in present:
            yield RequestError(
                f"Item '{ident}' of type '{known.kind}' was provided without its required "
                f"'reasoning' item: '{known.reasoning}'."
            )


def _is_stored(ident: str, issued: Issued) -> bool:
    known = issued.items.get(ident)
    return known is not None and known.stored


def _not_found(ident: Any, *, stored: bool) -> RequestError:
    reason = f"Item with id '{ident}' not found."
    if not stored:
        reason += (
            " Items are not persisted when `store` is set to false. Try again with `store` set "
            "to true, or remove this item from your input."
        )
    return RequestError(reason, status=404)


def _found(item: Json, issued: Issued, *, stored: bool, current: bool) -> Iterator[RequestError]:
    """Whether the provider can read this reasoning: sealed, or stored for one turn."""
    ident, sealed = item.get("id"), item.get("encrypted_content")
    if sealed is not None:
        if sealed not in issued.sealed or (ident is not None and issued.sealed[sealed] != ident):
            yield RequestError(
                f"The encrypted content for item {ident} could not be verified. Reason: Encrypted "
                "content could not be decrypted or parsed.",
                None,
                "invalid_encrypted_content",
            )
    elif not stored or not current or not _is_stored(str(ident), issued):
        yield _not_found(ident, stored=stored)


def _follows(item: Json, follower: Json, issued: Issued) -> bool:
    if item.get("id") is None:
        return kind_of(follower) in (*OUTPUT_OF, "reasoning") or follower.get("role") == "assistant"
    known = issued.items.get(str(follower.get("id")))
    return known is not None and known.reasoning == item["id"]
