"""OpenAI's calls whose outputs have a form of their own.

A call of a shell, a patch or a computer needs an output of its own type. A request to use an MCP
server needs an approval. OpenAI refuses calls without an output, or with an output of another type.
"""

from __future__ import annotations

from typing import Any

from tailrace.core.values import Json, dict_of, dicts_of, text_or_none
from tailrace.history.content import Load, joined, picture, shown
from tailrace.history.entries import CallEntry, Conversation, Entry, ProviderItemEntry

APPROVAL = "mcp_approval_request"
"""The item of an approval request, and the kind of its call."""

CALLS = {
    "shell": "shell_call",
    "local_shell": "local_shell_call",
    "apply_patch": "apply_patch_call",
    "computer": "computer_call",
}
"""From the kind of such a call to the provider's item."""

OUTPUTS = {
    **{kind: f"{kind}_output" for kind in CALLS.values()},
    "tool_search_call": "tool_search_output",
    "program": "program_output",
}
"""From a call item to its output item."""

UNANSWERED = "The request was not answered."
"""The reason in an answer to a request without an answer."""


def approval_of(entry: CallEntry, request_id: str) -> Json:
    """The answer to a request. Unanswered requests are denied."""
    approved, reason = entry.answer or (False, UNANSWERED)
    answer: Json = {
        "type": "mcp_approval_response",
        "approval_request_id": request_id,
        "approve": approved,
    }
    return {**answer, "reason": reason} if reason else answer


def output_of(entry: CallEntry, call_id: str, load: Load) -> Json | None:
    """The output of such a call in its own form; None if that is not possible."""
    kind = OUTPUTS[CALLS[entry.kind]]
    result = entry.outcome()
    given = result.raw
    if isinstance(given, dict) and given.get("type") == kind and _is_sound(kind, given, entry):
        return {**given, **_named(kind, call_id)}
    text = joined(result.pieces)
    if kind == "shell_call_output":
        out = {"stdout": "", "stderr": text} if result.failed else {"stdout": text, "stderr": ""}
        ended = {"type": "exit", "exit_code": int(result.failed)}
        return {"type": kind, "call_id": call_id, "output": [{**out, "outcome": ended}]}
    if kind == "local_shell_call_output":
        return {"type": kind, **_named(kind, call_id), "output": text}
    if kind == "apply_patch_call_output":
        status = "failed" if result.failed else "completed"
        return {"type": kind, "call_id": call_id, "status": status, "output": text}
    urls = [url for piece in result.pieces if (url := shown(piece, load))]
    if not urls or not is_acknowledged(dict_of(entry.raw), {}):
        return None
    screen = {"type": "computer_screenshot", "image_url": urls[-1]}
    return {"type": kind, "call_id": call_id, "output": screen}


def _named(kind: str, call_id: str) -> Json:
    """The ids of an output. In OpenAI's types the local shell has the call id as `id`."""
    own = {"id": call_id} if kind == "local_shell_call_output" else {}
    return {**own, "call_id": call_id}


def _ids(checks: Any) -> set[Any]:
    return {str(check.get("id")) for check in dicts_of(checks)}


def _is_sound(kind: str, given: Json, entry: CallEntry) -> bool:
    """Whether an output that is already in the provider's form is valid."""
    return has_form(kind, given) and is_acknowledged(dict_of(entry.raw), given)


def has_form(kind: str, given: Json) -> bool:
    """Whether an output of a shell, a patch or a computer has the required form."""
    output = given.get("output")
    if kind == "shell_call_output":
        wanted = {"stdout", "stderr", "outcome"}
        return isinstance(output, list) and all(
            isinstance(part, dict) and wanted <= part.keys() for part in output
        )
    if kind == "apply_patch_call_output":
        return given.get("status") in ("completed", "failed")
    if kind == "local_shell_call_output":
        return isinstance(output, str)
    screen = dict_of(output)
    shown = screen.get("file_id") or picture(str(screen.get("image_url"))) is not None
    return screen.get("type") == "computer_screenshot" and bool(shown)


def is_acknowledged(call: Json, output: Json) -> bool:
    """Whether all safety checks are acknowledged. Acknowledgements are never invented."""
    pending = _ids(call.get("pending_safety_checks"))
    return pending <= _ids(output.get("acknowledged_safety_checks"))


def caller_of(entry: CallEntry) -> str | None:
    """The model's program that made a call."""
    caller = dict_of(entry.raw).get("caller")
    if not isinstance(caller, dict) or caller.get("type") != "program":
        return None
    return text_or_none(caller.get("caller_id"))


Pair = tuple[Entry, Entry]


def pairs(conversation: Conversation) -> tuple[list[Pair], set[Entry]]:
    """The pairs of raw calls and outputs, and the items that lack the other half.

    An item with a `call_id` is an output by its type, else a call. Items of the provider's tools
    have no `call_id`. Only a program may lack its output, while its calls are answered.
    """
    found: list[Pair] = []
    halves: set[Entry] = set()
    calls: dict[str, Entry] = {}
    running = _running(conversation.entries)
    for entry in conversation.entries:
        raw = (
            entry.raw
            if isinstance(entry, ProviderItemEntry) and isinstance(entry.raw, dict)
            else {}
        )
        kind, call_id = raw.get("type"), raw.get("call_id")
        if not isinstance(kind, str) or not isinstance(call_id, str) or not call_id:
            continue
        if not kind.endswith("_output"):
            calls[call_id] = entry
            if kind != "program" or call_id not in running:
                halves.add(entry)
            continue
        call = calls.pop(call_id, None)
        if call is not None and OUTPUTS.get(waits := call.raw["type"], f"{waits}_output") == kind:
            halves.discard(call)
            found.append((call, entry))
        else:
            halves.add(entry)
    return found, halves


def _running(entries: list[Entry]) -> set[str | None]:
    """The programs that made a call of the last answer, if no message follows it."""
    last = entries[-1].step if entries else 0
    return {
        caller_of(entry) for entry in entries if entry.step == last and isinstance(entry, CallEntry)
    }
