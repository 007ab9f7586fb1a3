"""OpenAI's rules for calls, their outputs and their approvals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tailrace.core.values import Json
from tailrace.testing.provider_rules.openai_errors import (
    RequestError,
    image_error,
    missing,
    mistaken,
)

OUTPUT_OF = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
    "program": "program_output",
}
"""What each call waits for; without a `call_id` it was the provider that ran it."""


def kind_of(item: Json) -> str:
    """The type of an item; a message may omit it."""
    return str(item.get("type", "message"))


# --- forms ---------------------------------------------------------------------------------------


def form_errors(place: str, kind: str, item: Json) -> Iterator[RequestError]:
    """Errors in an output with a special form."""
    output = item.get("output")
    if kind == "shell_call_output":
        if not isinstance(output, list):
            yield mistaken(f"{place}.output", "an array", output)
            return
        for index, part in enumerate(output):
            for name in ("stdout", "stderr", "outcome"):
                if not isinstance(part, dict) or part.get(name) is None:
                    yield missing(f"{place}.output[{index}].{name}")
    elif kind == "apply_patch_call_output":
        if item["status"] not in ("completed", "failed"):
            reason = "Supported values are: 'completed' and 'failed'."
            yield RequestError(f"Invalid value: '{item['status']}'. {reason}", f"{place}.status")
    elif kind == "local_shell_call_output":
        if not isinstance(output, str):
            yield mistaken(f"{place}.output", "a string", output)
    elif kind == "computer_call_output":
        screen = output if isinstance(output, dict) else {}
        if screen.get("type") != "computer_screenshot":
            reason = "Supported values are: 'computer_screenshot'."
            yield RequestError(
                f"Invalid value: '{screen.get('type')}'. {reason}", f"{place}.output"
            )
        elif screen.get("file_id") is None:
            if screen.get("image_url") is None:
                yield missing(f"{place}.output.image_url")
            elif error := image_error(f"{place}.output.image_url", screen["image_url"]):
                yield error


# --- pairs ---------------------------------------------------------------------------------------


def pair_errors(items: list[Json], before: Any) -> Iterator[RequestError]:
    """Calls without output and outputs without call; `before` is what the provider stored."""
    yield from _calls(items, before)
    yield from _programs(items, before)
    yield from _approvals(items, before)


def _calls(items: list[Json], before: Any) -> Iterator[RequestError]:
    """Each call has one output: of our tools, and of provider tools run outside it."""
    waiting: dict[str, Json] = {}
    for item in before:
        if _is_call(item):
            waiting[item["call_id"]] = item
        elif _is_output(item):
            waiting.pop(_answered(item), None)
    seen: set[str] = set(waiting)
    called = {_caller(item) for item in [*before, *items]}
    for item in items:
        kind = kind_of(item)
        if _is_call(item):
            call_id = item["call_id"]
            if call_id in seen:
                yield RequestError(f"Duplicate function call found with call_id {call_id}.")
            seen.add(call_id)
            waiting[call_id] = item
        elif _is_output(item):
            call = waiting.pop(_answered(item), {"type": ""})
            if kind != OUTPUT_OF.get(kind_of(call)):
                words = kind.removesuffix("_output").replace("_", " ")
                reason = f"No tool call found for {words} output with call_id {_answered(item)}."
                yield RequestError(reason)
            else:
                yield from _unchecked(call, item)
    for call_id, call in waiting.items():
        # A program goes on when the calls that it made are answered.
        if kind_of(call) != "program" or call_id not in called:
            words = kind_of(call).replace("_", " ")
            yield RequestError(f"No tool output found for {words} {call_id}.")


def _is_call(item: Json) -> bool:
    return kind_of(item) in OUTPUT_OF and isinstance(item.get("call_id"), str)


def _is_output(item: Json) -> bool:
    return kind_of(item) in OUTPUT_OF.values() and isinstance(_answered(item), str)


def _answered(item: Json) -> Any:
    """The call that an output answers; for the local shell this may be its `id`."""
    is_local = kind_of(item) == "local_shell_call_output"
    return item.get("call_id", item.get("id") if is_local else None)


def _unchecked(call: Json, output: Json) -> Iterator[RequestError]:
    """A computer call goes on only after its safety checks are acknowledged."""
    pending = {check["id"] for check in call.get("pending_safety_checks") or ()}
    known = {check["id"] for check in output.get("acknowledged_safety_checks") or ()}
    if pending - known:
        reason = "The following safety checks have not been acknowledged: "
        yield RequestError(reason + ", ".join(sorted(pending - known)))


def _caller(item: Json) -> Any:
    caller = item.get("caller") or {}
    return caller.get("caller_id") if caller.get("type") == "program" else None


def _programs(items: list[Json], before: Any) -> Iterator[RequestError]:
    """An item called by a program must follow that program."""
    known = {None, *(item.get("call_id") for item in before if kind_of(item) == "program")}
    for item in items:
        if kind_of(item) == "program":
            known.add(item.get("call_id"))
        elif _caller(item) not in known:
            yield RequestError(f"No program found with call_id {_caller(item)}.")


def _approvals(items: list[Json], before: Any) -> Iterator[RequestError]:
    """Each approval request has one answer, and each answer has a request."""
    waiting = [item["id"] for item in before if kind_of(item) == "mcp_approval_request"]
    asked = set(waiting)
    for item in items:
        kind, ident = kind_of(item), item.get("approval_request_id")
        if kind == "mcp_approval_request":
            asked.add(item["id"])
            waiting.append(item["id"])
        elif kind == "mcp_approval_response" and ident in waiting:
            waiting.remove(ident)
        elif kind == "mcp_approval_response" or (ident is not None and ident not in asked):
            yield RequestError(f"No approval request found with id {ident}.")
    if waiting:
        reason = "The following MCP approval requests do not have an approval: "
        yield RequestError(reason + ", ".join(waiting))
