"""What a page sends back in a UI message: its run, approvals, and results of calls."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from tailrace.core.errors import CallerError
from tailrace.core.fold import State
from tailrace.core.state import ENDED
from tailrace.core.values import dict_of, text_or_none
from tailrace.history.inputs import InputItem, read_input
from tailrace.wire.vercel_ui.object import waiting_call


def run_of(message: Any) -> str | None:
    """The run that wrote a UI message of the assistant; the last run, if several wrote it."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return None
    metadata = message.get("metadata")
    named = dict_of(metadata).get("task_id")
    # Pages may drop metadata. A message has the id of its first run (`UiMessage.start`).
    found = named if isinstance(named, str) else message.get("id")
    return text_or_none(found)


def is_cut(message: Any) -> bool:
    """Whether a page did not receive an answer of ours to the end of its run."""
    metadata = dict_of(message).get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("task_id"), str):
        return False
    return metadata.get("status") not in ENDED


def read(message: Any) -> Iterator[InputItem]:
    """What a model would read of a UI message."""
    return read_input([message])


class _Approval(msgspec.Struct):
    """What `addToolApprovalResponse` writes into a call."""

    id: str
    approved: bool
    reason: str | None = None


def answers_of(message: Any) -> list[dict[str, Any]]:
    """The answers to requests that a page added to a UI message of the assistant."""
    parts = message.get("parts") or ()
    found = [part.get("approval") for part in parts if part.get("state") == "approval-responded"]
    try:
        approvals = msgspec.convert(found, list[_Approval])
    except msgspec.ValidationError as error:
        raise CallerError(
            f"An `approval` in `messages` is wrong: {error}. Correct it.", param="messages"
        ) from error
    return [
        {"request_id": approval.id, "approved": approval.approved}
        | ({} if approval.reason is None else {"reason": approval.reason})
        for approval in approvals
    ]


def without_outputs(message: Any, calls: Collection[str | None]) -> Any:
    """A UI message without the outputs of these calls, as it was before the page added them."""
    parts = [
        {
            **{name: part[name] for name in part if name not in ("output", "errorText")},
            "state": "input-available",
        }
        if text_or_none(part.get("toolCallId")) in calls
        else part
        for part in message.get("parts") or ()
    ]
    return {**message, "parts": parts}


def results_of(message: Any, state: State) -> list[dict[str, Any]] | None:
    """The results of client's calls that a page sends to the run which waits for them.

    Results that the run has already are left out. None if the run waits for no result of the page,
    because it ended with its calls: the next run takes the results.
    """
    root = state.root
    assert root is not None
    asked = {
        request.call_id: request.id
        for request in root.requests
        if waiting_call(root, request) is not None
    }
    found: list[dict[str, Any]] = []
    is_sent_again = False
    for part in message.get("parts") or ():
        call_id, how = text_or_none(part.get("toolCallId")), part.get("state")
        if how not in ("output-available", "output-error") or part.get("providerExecuted"):
            continue
        if call_id not in asked:
            is_sent_again |= call_id in root.call_results
        elif how == "output-available":
            found.append({"request_id": asked[call_id], "value": part.get("output")})
        else:
            reason = text_or_none(part.get("errorText"))
            found.append({"request_id": asked[call_id], "approved": False, "reason": reason})
    return found if found or is_sent_again else None
