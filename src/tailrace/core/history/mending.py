"""Mending a list of messages or items that somebody else kept, so that the provider accepts it.

What a list shows by itself is mended; it does not show everything. Whether an id needs a reasoning
that is not there, only the provider knows: so such an id is replaced, which is always allowed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from typing import Any, Literal

from tailrace.core.history.entries import INTERRUPTED
from tailrace.core.history.mending_messages import mend_anthropic, mend_chat
from tailrace.core.history.openai_calls import APPROVAL, OUTPUTS, UNANSWERED
from tailrace.core.history.pieces import Json
from tailrace.core.history.rules import Api

_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_REPLACED = re.compile(r"[a-z]+_x[0-9a-f]{40}")
_ROLES = ("user", "assistant", "system", "developer")
_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "reasoning": "rs",
}
_NAMED = {"function_call": "arguments", "custom_tool_call": "input"}
"""The calls of our own tools, and the field that holds what they are called with."""
_ASKED = {APPROVAL: "id", "mcp_approval_response": "approval_request_id"}
"""A request for an approval and its answer, and the field that holds the request's id."""
_BARE = ("apply_patch_call_output", "tool_search_output", "program_output")
"""Outputs that may come without `output`."""


def sanitize(
    items: Iterable[Any],
    api: Api = "openai_responses",
    *,
    reasoning: Literal["keep", "drop"] = "keep",
    store: bool = True,
    known_calls: Collection[str] = (),
) -> list[Any]:
    """The list without what the provider would refuse it for; idempotent.

    Each call gets exactly one result: open ones are closed with an error, or taken out where only
    their own tool could say what came of them; requests for an approval are denied; results of no
    call are taken out, duplicates too. Reasoning stays if it can still be read and what it led to
    follows it: sealed, or (with `store`) in the last user turn; `drop` takes all of it out.
    `known_calls` are the ids of calls and requests that the provider knows through
    `previous_response_id`.
    """
    if api == "anthropic_messages":
        return mend_anthropic(list(items), keep_thinking=reasoning == "keep")
    if api == "openai_chat":
        return mend_chat(list(items))
    cleaned = _with_results(_readable(items), known_calls)
    cleaned = _paired(cleaned, keep=reasoning == "keep", store=store)
    # Calls may have gone with their reasoning: then their results go too.
    return _with_answers(_with_results(cleaned, known_calls), known_calls)


def _kind(item: Json) -> str:
    kind = item.get("type")
    return kind if isinstance(kind, str) else "message"


def _is_model(item: Json) -> bool:
    """Whether the model made it."""
    if _kind(item) == "message":
        return item.get("role") == "assistant"
    return not _kind(item).endswith(("_output", "_response"))


def _readable(items: Iterable[Any]) -> list[Json]:
    """The items that are items, each once, with ids that are ids."""
    found: list[Json] = []
    seen: dict[str, Json] = {}
    for item in items:
        if not isinstance(item, dict):
            continue
        kind, ident = _kind(item), item.get("id")
        if kind == "message" and (item.get("role") not in _ROLES or not _says(item)):
            continue
        if kind == "local_shell_call_output" and "call_id" not in item:
            item = {**item, "call_id": ident}  # by OpenAI's types, its id is the call's
        if kind.endswith("_output") and not isinstance(item.get("call_id"), str):
            continue
        if kind in _ASKED and not isinstance(item.get(_ASKED[kind]), str):
            continue
        if kind == "reasoning" and not isinstance(item.get("summary"), list):
            item = {**item, "summary": []}
        prefix = _PREFIXES.get(kind, "")
        if "id" in item and (
            not isinstance(ident, str) or not _ID.fullmatch(ident) or not ident.startswith(prefix)
        ):
            item = _without_id(item)
        elif isinstance(ident, str) and ident in seen:
            if kind != "message" or item == seen[ident]:
                continue
            item = _without_id(item)
        elif isinstance(ident, str):
            seen[ident] = item
        found.append(item)
    return found


def _says(item: Json) -> bool:
    content = item.get("content")
    return bool(content) if isinstance(content, str | list) else False


def _without_id(item: Json) -> Json:
    return {name: value for name, value in item.items() if name != "id"}


def _is_call(item: Json) -> bool:
    """Whether it waits for an output."""
    waits = _kind(item).endswith("_call") or _kind(item) in OUTPUTS
    if not waits or not isinstance(item.get("call_id"), str):
        return False
    return _kind(item) not in _NAMED or isinstance(item.get("name"), str)


def _with_results(items: list[Json], known: Collection[str]) -> list[Json]:
    """Every call with one output behind it, every output with one call before it."""
    calls: dict[str, int] = {}
    outputs: dict[tuple[str, str], int] = {}
    for index, item in enumerate(items):
        if _is_call(item):
            calls.setdefault(item["call_id"], index)
        elif _kind(item).endswith("_output") and ("output" in item or _kind(item) in _BARE):
            outputs.setdefault((_kind(item), item["call_id"]), index)
    # A program has its output when the calls that it made have theirs.
    running = {_caller(item) for item in items if _is_call(item)}
    # A call that came by reference has an id that nobody can see.
    hidden = any(_kind(item) == "item_reference" for item in items)
    found: list[Json] = []
    late: list[Json] = []  # outputs that are moved, or made, behind their answer
    for index, item in enumerate(items):
        kind, call_id = _kind(item), item.get("call_id")
        if not _is_model(item):
            found += late
            late = []
        if kind.endswith("_output"):
            call = calls.get(str(call_id))
            answers = call is not None and call < index and _output_of(items[call]) == kind
            expected = answers if call is not None else hidden or call_id in known
            if expected and outputs.get((kind, str(call_id))) == index:
                found.append(item)
        elif _is_call(item):
            call_id = item["call_id"]
            place = outputs.get((_output_of(item), call_id))
            waits = place is None and (kind in _NAMED or call_id in running)
            if calls[call_id] != index or (place is None and not waits):
                continue
            found.append(_with_arguments(item))
            if place is None and kind in _NAMED:
                late.append({"type": f"{kind}_output", "call_id": call_id, "output": INTERRUPTED})
            elif place is not None and place < index:
                late.append(items[place])
        elif kind not in _NAMED:
            found.append(item)
    return found + late


def _output_of(call: Json) -> str:
    return OUTPUTS.get(_kind(call), f"{_kind(call)}_output")


def _caller(item: Json) -> Any:
    """The program that made a call."""
    caller = item.get("caller")
    is_program = isinstance(caller, dict) and caller.get("type") == "program"
    return caller.get("caller_id") if is_program and isinstance(caller, dict) else None


def _with_answers(items: list[Json], known: Collection[str]) -> list[Json]:
    """Every request for an approval with one answer, and nothing that speaks of one not there."""
    answers: dict[Any, Json] = {}
    for item in items:
        if _kind(item) == "mcp_approval_response":
            answers.setdefault(item["approval_request_id"], item)
    there: set[Any] = {*known, None}
    due: set[Any] = set(known)
    found: list[Json] = []
    late: list[Json] = []  # answers to what was asked in the answer that goes on
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
        found.append({name: one for name, one in item.items() if name not in gone})
    return found + late


def _with_arguments(call: Json) -> Json:
    name = _NAMED.get(_kind(call))
    if name is None or isinstance(call.get(name), str):
        return call
    return {**call, name: "{}"}


def _paired(items: list[Json], *, keep: bool, store: bool) -> list[Json]:
    """Reasoning with what it led to, and what it led to under its own id, or neither."""
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
    thought: bool | None = None  # whether the reasoning before was kept; None if there was none
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
