"""Repair a list of messages or items from another source, so that the provider accepts it.

Only the provider knows whether an id needs reasoning that is missing. So such an id is replaced,
which is always allowed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from typing import Any, Literal

from tailrace.core.values import Json
from tailrace.history.entries import NO_RESULT
from tailrace.history.openai_responses.calls import (
    APPROVAL,
    OUTPUTS,
    UNANSWERED,
    has_form,
    is_acknowledged,
)
from tailrace.history.options import NO_MESSAGE, Api, check_api, tool_name
from tailrace.history.sanitize_messages import mend_anthropic, mend_chat
from tailrace.history.sanitize_parts import as_text, responses_parts, short
from tailrace.history.sdk_objects import as_json

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REPLACED = re.compile(r"[a-z]+_x[0-9a-f]{40}")
_ROLES = ("user", "assistant", "system", "developer")
_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "reasoning": "rs",
}
_NAMED = {"function_call": "arguments", "custom_tool_call": "input"}
"""The calls of our own tools, and the field of their arguments."""
_ASKED = {APPROVAL: "id", "mcp_approval_response": "approval_request_id"}
"""An approval request and its answer, and the field with the id of the request."""
_NEEDED = {
    "computer_call": ("id", "call_id"),
    "shell_call": ("call_id", "action"),
    "local_shell_call": ("id", "call_id", "action"),
    "apply_patch_call": ("call_id", "operation"),
    "mcp_call": ("id", "arguments", "name", "server_label"),
    APPROVAL: ("id", "arguments", "name", "server_label"),
    "mcp_approval_response": ("approve",),
    "item_reference": ("id",),
}
"""The required fields of items of the provider's tools."""
_LONGEST = 64
"""The limit of the length of a `call_id`."""
_BARE = ("tool_search_output", "program_output")
"""Outputs of unknown form."""
_MAY_LACK = (*_BARE, "apply_patch_call_output")
"""Outputs that may come without `output`."""


def sanitize(
    items: Iterable[Any] | str,
    api: Api = "openai_responses",
    *,
    reasoning: Literal["keep", "drop"] = "keep",
    store: bool = True,
    known_calls: Collection[str] = (),
) -> list[Any]:
    """The list in a form that the provider accepts; idempotent.

    Its entries are dicts, or objects of the official SDKs (`response.output` as it came), which
    become dicts; a string is a message of the user. A valid list is unchanged. An empty list gets a
    placeholder message. `TypeError`: it is not a list, or an entry is not JSON.

    Each call gets exactly one result: open calls are closed with an error, or removed where the
    result has a form of its own. Open approval requests are denied. Duplicate results and results
    without a call are removed. Reasoning stays if it is readable and its item follows it: sealed,
    or (with `store`) in the last user turn; `drop` removes all of it. `known_calls` are the ids of
    calls and requests that the provider knows through `previous_response_id`. Code of Anthropic
    that waits for results of our tools stays: the request must name its `container`.
    """
    check_api(api)
    given = as_json(items)
    keep = reasoning == "keep"
    if api == "anthropic_messages":
        return mend_anthropic(given, keep_thinking=keep)
    if api == "openai_chat":
        return mend_chat(given, keep_reasoning=keep)
    cleaned = _with_results(_readable(given), known_calls)
    cleaned = _paired(cleaned, keep=keep, store=store)
    # Calls may be removed with their reasoning: then their results are removed, too.
    mended = _with_answers(_with_results(cleaned, known_calls), known_calls)
    return mended or [{"role": "user", "content": NO_MESSAGE}]


def _kind(item: Json) -> str:
    kind = item.get("type")
    return kind if isinstance(kind, str) else "message"


def _is_model(item: Json) -> bool:
    """Whether the model made the item."""
    if _kind(item) == "message":
        return item.get("role") == "assistant"
    return not _kind(item).endswith(("_output", "_response"))


def _readable(items: list[Any]) -> list[Json]:
    """The valid items, each once, with valid ids."""
    found: list[Json] = []
    seen: dict[str, Json] = {}
    for given in items:
        item = _formed(given) if isinstance(given, dict) else None
        if item is None:
            continue
        kind, ident = _kind(item), item.get("id")
        if isinstance(ident, str) and ident in seen:
            if kind != "message" or item == seen[ident]:
                continue
            item = _without_id(item)
        elif isinstance(ident, str):
            seen[ident] = item
        found.append(item)
    return found


def _formed(item: Json) -> Json | None:
    """An item in the form of its type, or None."""
    kind, ident = _kind(item), item.get("id")
    if kind == "local_shell_call_output" and "call_id" not in item:
        item = {**item, "call_id": ident}  # by OpenAI's types, its id is the call's
    if "id" in item:
        fits = isinstance(ident, str) and _ID.fullmatch(ident)
        if not fits or not str(ident).startswith(_PREFIXES.get(kind, "")):
            item = _without_id(item)
    call_id = item.get("call_id")
    if isinstance(call_id, str) and len(call_id) > _LONGEST:
        item = {**item, "call_id": short(call_id, _LONGEST)}
    if kind == "message":
        return _message_in_parts(item)
    if kind == "reasoning" and not isinstance(item.get("summary"), list):
        item = {**item, "summary": []}
    elif kind in _NAMED:
        item = _with_arguments(item)
    elif kind in (f"{tool}_output" for tool in _NAMED):
        item = _with_output(item)
    elif kind in OUTPUTS.values() and kind not in _BARE and not has_form(kind, item):
        return None
    if kind in _ASKED and not isinstance(item.get(_ASKED[kind]), str):
        return None
    if kind.endswith("_output") and not isinstance(call_id, str):
        return None
    return None if any(item.get(name) is None for name in _NEEDED.get(kind, ())) else item


def _message_in_parts(item: Json) -> Json | None:
    """A message with content, in parts that its role may have."""
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES or not isinstance(content, str | list):
        return None
    parts = content if isinstance(content, str) else responses_parts(role, content)
    if not parts:
        return None
    return item if parts == content else {**item, "content": parts}


def _with_output(item: Json) -> Json:
    """The output of a function: a string, or parts."""
    output = item.get("output")
    if output is None or isinstance(output, str):
        return item
    if isinstance(output, list):
        parts: Any = responses_parts("user", output)
        mended = parts if parts or not output else as_text(output)
    else:
        mended = as_text(output)
    return item if mended == output else {**item, "output": mended}


def _without_id(item: Json) -> Json:
    return {name: value for name, value in item.items() if name != "id"}


def _is_call(item: Json) -> bool:
    """Whether the item needs an output."""
    waits = _kind(item).endswith("_call") or _kind(item) in OUTPUTS
    if not waits or not isinstance(item.get("call_id"), str):
        return False
    return _kind(item) not in _NAMED or isinstance(item.get("name"), str)


def _with_results(items: list[Json], known: Collection[str]) -> list[Json]:
    """Each call with its output after it, and no output without a call."""
    calls: dict[str, int] = {}
    outputs: dict[tuple[str, str], int] = {}
    for index, item in enumerate(items):
        if _is_call(item):
            calls.setdefault(item["call_id"], index)
        elif _kind(item).endswith("_output") and (
            item.get("output") is not None or _kind(item) in _MAY_LACK
        ):
            outputs.setdefault((_kind(item), item["call_id"]), index)
    # A program has its output when its calls have theirs.
    running = {_caller(item) for item in items if _is_call(item)}
    # The id of a call that came by reference is unknown here.
    hidden = any(_kind(item) == "item_reference" for item in items)
    found: list[Json] = []
    late: list[Json] = []  # outputs that are moved or added after their answer
    for index, item in enumerate(items):
        kind, call_id = _kind(item), item.get("call_id")
        if not _is_model(item):
            found += late
            late = []
        if kind.endswith("_output"):
            call = calls.get(str(call_id))
            answers = call is not None and call < index and _answers(items[call], item)
            expected = answers if call is not None else hidden or call_id in known
            if expected and outputs.get((kind, str(call_id))) == index:
                found.append(item)
        elif _is_call(item):
            call_id = item["call_id"]
            place = outputs.get((_output_of(item), call_id))
            if place is not None and not is_acknowledged(item, items[place]):
                continue
            waits = place is None and (kind in _NAMED or call_id in running)
            if calls[call_id] != index or (place is None and not waits):
                continue
            found.append(item)
            if place is None and kind in _NAMED:
                late.append({"type": f"{kind}_output", "call_id": call_id, "output": NO_RESULT})
            elif place is not None and place < index:
                late.append(items[place])
        elif kind not in _NAMED:
            found.append(item)
    return found + late


def _answers(call: Json, output: Json) -> bool:
    return _output_of(call) == _kind(output) and is_acknowledged(call, output)


def _output_of(call: Json) -> str:
    return OUTPUTS.get(_kind(call), f"{_kind(call)}_output")


def _caller(item: Json) -> Any:
    """The program that made a call."""
    caller = item.get("caller")
    is_program = isinstance(caller, dict) and caller.get("type") == "program"
    return caller.get("caller_id") if is_program and isinstance(caller, dict) else None


def _with_answers(items: list[Json], known: Collection[str]) -> list[Json]:
    """Each approval request with its answer, and no reference to a missing request."""
    answers: dict[Any, Json] = {}
    for item in items:
        if _kind(item) == "mcp_approval_response":
            answers.setdefault(item["approval_request_id"], item)
    there: set[Any] = {*known, None}
    due: set[Any] = set(known)
    found: list[Json] = []
    late: list[Json] = []  # answers to requests of the answer that is continued
    for item in items:
        kind = _kind(item)
        if not _is_model(item):
            found += late
            late = []
        if kind == "mcp_approval_response":
            if item["approval_request_id"] in due:
                due.remove(item["approval_request_id"])
                found.append(item)
            continue
        if kind == APPROVAL:
            ident = item["id"]
            there.add(ident)
            denied = {"type": "mcp_approval_response", "approval_request_id": ident}
            late.append(answers.get(ident, {**denied, "approve": False, "reason": UNANSWERED}))
        elif kind == "program":
            there.add(item.get("call_id"))
        strange = {"approval_request_id": item.get("approval_request_id"), "caller": _caller(item)}
        gone = [name for name, ident in strange.items() if ident not in there]
        found.append({name: value for name, value in item.items() if name not in gone})
    return found + late


def _with_arguments(call: Json) -> Json:
    field, name = _NAMED[_kind(call)], call.get("name")
    changed: Json = {}
    if not isinstance(call.get(field), str):
        changed[field] = "{}" if call.get(field) is None else as_text(call[field])
    if isinstance(name, str) and tool_name(name) != name:
        changed["name"] = tool_name(name)
    return {**call, **changed} if changed else call


def _paired(items: list[Json], *, keep: bool, store: bool) -> list[Json]:
    """Reasoning with its item under its own id, or neither."""
    turn = max((index for index, item in enumerate(items) if item.get("role") == "user"), default=0)
    kept: set[int] = set()
    for index in range(len(items) - 2, -1, -1):
        item, follower = items[index], items[index + 1]
        if (
            keep
            and _is_reasoning(item)
            and "id" in item
            and (isinstance(item.get("encrypted_content"), str) or (store and index >= turn))
            and ("id" in follower and _is_model(follower))
            and (not _is_reasoning(follower) or index + 1 in kept)
        ):
            kept.add(index)
    found: list[Json] = []
    thought: bool | None = None  # whether the reasoning before was kept; None without reasoning
    for index, item in enumerate(items):
        if _is_reasoning(item):
            thought = index in kept
            if thought:
                found.append(item)
        elif not _is_model(item):
            thought = None
            found.append(item)
        elif _kind(item) in _PREFIXES:
            found.append(item if thought else _renamed(item))
        elif thought is not False:
            found.append(item)
    return found


def _is_reasoning(item: Json) -> bool:
    reference = _kind(item) == "item_reference" and str(item.get("id")).startswith("rs")
    return reference or _kind(item) == "reasoning"


def _renamed(item: Json) -> Json:
    ident = item.get("id")
    if ident is None or _REPLACED.fullmatch(ident):
        return item
    digest = hashlib.sha256(ident.encode()).hexdigest()[:40]
    return {**item, "id": f"{_PREFIXES[_kind(item)]}_x{digest}"}
