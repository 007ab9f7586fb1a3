"""OpenAI's calls that are answered in forms of their own.

A shell, a patch, a computer's screen: each call of them waits for an output of its own type, and a
request to use somebody's MCP server waits for an approval. One without its answer is refused, and
so is one that is answered in another's form.
"""

from __future__ import annotations

from typing import Any

from tailrace.core.history.entries import Called, Conversation, Entry, Kept
from tailrace.core.history.pieces import Json, Load, joined, picture, shown

APPROVAL = "mcp_approval_request"
"""The item, and the kind of its call, by which the provider asks whether it may."""

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
"""From an item that waits to the item that it waits for."""

UNANSWERED = "Nobody answered."
"""Why a request that is over was not granted."""


def approval_of(entry: Called, request_id: str) -> Json:
    """What somebody answered to a request; nobody's silence is a no, because it needs an answer."""
    approved, reason = entry.answer or (False, UNANSWERED)
    answer: Json = {
        "type": "mcp_approval_response",
        "approval_request_id": request_id,
        "approve": approved,
    }
    return {**answer, "reason": reason} if reason else answer


def output_of(entry: Called, call_id: str, load: Load) -> Json | None:
    """What such a call gave, in its own form; None where it cannot be told in it."""
    kind = OUTPUTS[CALLS[entry.kind]]
    result = entry.outcome()
    given = result.raw
    if isinstance(given, dict) and given.get("type") == kind and _is_sound(kind, given, entry):
        return {**given, **_named(kind, call_id)}
    text = joined(result.pieces)
    if kind == "shell_call_output":
        said = {"stdout": "", "stderr": text} if result.failed else {"stdout": text, "stderr": ""}
        ended = {"type": "exit", "exit_code": int(result.failed)}
        return {"type": kind, "call_id": call_id, "output": [{**said, "outcome": ended}]}
    if kind == "local_shell_call_output":
        return {"type": kind, **_named(kind, call_id), "output": text}
    if kind == "apply_patch_call_output":
        status = "failed" if result.failed else "completed"
        return {"type": kind, "call_id": call_id, "status": status, "output": text}
    urls = [url for piece in result.pieces if (url := shown(piece, load))]
    raw = entry.raw if isinstance(entry.raw, dict) else {}
    if not urls or not is_acknowledged(raw, {}):
        return None
    screen = {"type": "computer_screenshot", "image_url": urls[-1]}
    return {"type": kind, "call_id": call_id, "output": screen}


def _named(kind: str, call_id: str) -> Json:
    """Which call an output is of. That of the local shell has it as its `id`, by OpenAI's types."""
    own = {"id": call_id} if kind == "local_shell_call_output" else {}
    return {**own, "call_id": call_id}


def _ids(checks: Any) -> set[Any]:
    listed = checks if isinstance(checks, list) else []
    return {str(check.get("id")) for check in listed if isinstance(check, dict)}


def _is_sound(kind: str, given: Json, entry: Called) -> bool:
    """Whether an output that a tool or a client wrote in the provider's form can go back."""
    raw = entry.raw if isinstance(entry.raw, dict) else {}
    return has_form(kind, given) and is_acknowledged(raw, given)


def has_form(kind: str, given: Json) -> bool:
    """Whether an output of a shell, a patch or a computer has the form that is demanded of it."""
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
    screen = output if isinstance(output, dict) else {}
    shown = screen.get("file_id") or picture(str(screen.get("image_url"))) is not None
    return screen.get("type") == "computer_screenshot" and bool(shown)


def is_acknowledged(call: Json, output: Json) -> bool:
    """Whether nothing is left unsafe. Nobody's approval is made up: what was not given is not."""
    pending = _ids(call.get("pending_safety_checks"))
    return pending <= _ids(output.get("acknowledged_safety_checks"))


def caller_of(entry: Called) -> str | None:
    """The program of the model's that made a call."""
    caller = entry.raw.get("caller") if isinstance(entry.raw, dict) else None
    if not isinstance(caller, dict) or caller.get("type") != "program":
        return None
    ident = caller.get("caller_id")
    return ident if isinstance(ident, str) else None


Pair = tuple[Entry, Entry]


def pairs(talk: Conversation) -> tuple[list[Pair], set[Entry]]:
    """The provider's raw items that are calls with their outputs, and those that lack the other.

    Whatever has a `call_id` is one of the two: an output by its name, anything else a call. What
    the provider runs itself has none. Only a program may lack its output, while the calls that it
    made are being answered.
    """
    found: list[Pair] = []
    halves: set[Entry] = set()
    calls: dict[str, Entry] = {}
    running = _running(talk.entries)
    for entry in talk.entries:
        raw = entry.raw if isinstance(entry, Kept) and isinstance(entry.raw, dict) else {}
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
    """The programs that made a call of the model's last answer, if nothing was said after it."""
    last = entries[-1].step if entries else 0
    return {caller_of(one) for one in entries if one.step == last and isinstance(one, Called)}
