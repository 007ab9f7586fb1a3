"""The segments of a run: a response ends where the run asks for approvals, the next goes on.

A client answers with `mcp_approval_response` items, and gets what follows as a response of its own.
Its id is the run's with the number of the response: `resp_run_7`, `resp_run_7~2`, `resp_run_7~3`.
The request of a call stands for the call, which is held back until people have decided. Other calls
that were unfinished at the pause are left out there, unless its stream has begun them. Other items,
and those calls, are incomplete. All are whole in the response after it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec

from tailrace.core.approval_pauses import ITEM, Pause
from tailrace.core.errors import CallerError
from tailrace.core.fold import State
from tailrace.core.items import InputRequest, ToolCall
from tailrace.core.state import ItemNode, TaskNode
from tailrace.core.values import Json, dict_of, dicts_of, json_text, list_of, text_or_none
from tailrace.wire.openai_responses.items import (
    APPROVAL,
    APPROVAL_REQUEST,
    EntryKey,
    approval_id,
    arguments_json,
    keys,
)
from tailrace.wire.projection import model_name, server_name

APPROVAL_RESPONSE = "mcp_approval_response"

OUTPUTS = ("function_call_output", "custom_tool_call_output")
"""The items with the output of a client's function."""

_NUMBERED = re.compile(r"(.+)~([1-9][0-9]{0,6})", re.DOTALL)


# --- ids -----------------------------------------------------------------------------------------


def response_id(run_id: str, segment: int | None = None) -> str:
    """The id of a run's response. The SDKs take any id; people expect the prefix."""
    named = run_id if run_id.startswith("resp_") else f"resp_{run_id}"
    return f"{named}~{segment + 1}" if segment else named


def segment_of(named: str) -> tuple[str, int] | None:
    """The run and the segment that a numbered response names; None without a number."""
    found = _NUMBERED.fullmatch(named)
    return (found[1], int(found[2]) - 1) if found is not None and found[2] != "1" else None


def runs_of_approval(ident: str) -> list[str]:
    """The ids that the run of a request may have: run ids may contain the separator, too."""
    if not ident.startswith(APPROVAL):
        return []
    pieces = ident.removeprefix(APPROVAL).split("~")
    return ["~".join(pieces[:count]) for count in range(1, len(pieces))]


# --- what belongs to a segment -------------------------------------------------------------------


def has_begun(state: State, segment: int | None) -> bool:
    """Whether the pause before a segment is over."""
    return not segment or (
        len(state.pauses) >= segment and state.pauses[segment - 1].until is not None
    )


def is_segment_paused(state: State, segment: int | None) -> bool:
    """Whether a segment has ended with requests for approvals. The whole run (None) never does."""
    return segment is not None and len(state.pauses) > segment


def end_of(state: State, segment: int) -> int | None:
    """The number of the last event of a segment, if its run has gone on after the pause."""
    if len(state.pauses) <= segment or state.pauses[segment].until is None:
        return None
    return state.pauses[segment].at


def is_within(state: State, segment: int | None, node: ItemNode) -> bool:
    """Whether an item was not finished, and not superseded, before this segment began."""
    if not segment:
        return True
    pause = state.pauses[segment - 1]
    return node.output_index not in pause.lost and pause.is_followed_by(node)


def entries(state: State, root: TaskNode, segment: int | None) -> list[EntryKey]:
    """The entries of a response, in order of arrival."""
    paused = _pause_after(state, segment)
    found = keys(root, paused.superseded if paused is not None else None)
    if segment:
        before = state.pauses[segment - 1]
        found = [key for key in found if _at(root, key) > before.at or key in before.open]
    if paused is not None:
        found = [key for key in found if _at(root, key) <= paused.at]
    return found


def _pause_after(state: State, segment: int | None) -> Pause | None:
    """The pause that a segment has ended with."""
    return (
        state.pauses[segment] if segment is not None and is_segment_paused(state, segment) else None
    )


def is_left_open(state: State, segment: int | None, key: EntryKey) -> bool:
    """Whether an entry was unfinished at the end of its response."""
    paused = _pause_after(state, segment)
    return paused is not None and key in paused.open


def _at(root: TaskNode, key: EntryKey) -> int:
    node = root.items[key[0]]
    at = node.begun_at if key[1] == ITEM else node.parts[key[1]].at
    assert at is not None
    return at


class Speakers(NamedTuple):
    """Who speaks in a segment: an agent from its begin on, then those that take over."""

    first: str
    switches: list[Json]

    @property
    def last(self) -> str:
        """The agent that speaks at the end of the segment, or now."""
        return self.switches[-1]["agent"] if self.switches else self.first


def speakers(state: State, root: TaskNode, segment: int | None) -> Speakers:
    """Who speaks in a segment."""
    found = root.switches
    if segment is not None and is_segment_paused(state, segment):
        found = found[: _switches_before(root, state.pauses[segment])]
    before = _switches_before(root, state.pauses[segment - 1]) if segment else 0
    first = found[before - 1]["agent"] if before else model_name(root)
    return Speakers(first, found[before:])


def _switches_before(root: TaskNode, pause: Pause) -> int:
    """How many switches came before a pause."""
    count = max((n for n, node in root.items.items() if node.at <= pause.at), default=-1) + 1
    return sum(switch["output_index"] <= count for switch in root.switches)


# --- requests and answers ------------------------------------------------------------------------


def approval_items(state: State, segment: int | None) -> list[Json]:
    """The requests at the end of a segment, as items."""
    if segment is None or not is_segment_paused(state, segment):
        return []
    return [_approval_item(state, *asked) for asked in state.pauses[segment].asked]


def _approval_item(state: State, task_id: str, request: InputRequest) -> Json:
    root = state.root
    assert root is not None
    node = state.tasks[task_id].calls.get(request.call_id or "")
    label, name = "tailrace", "approval"
    arguments = json_text({"message": request.message or ""})
    if node is not None:
        assert isinstance(node.item, ToolCall)
        label, name, arguments = server_name(node.item), node.item.name, arguments_json(node)
    return {
        "type": APPROVAL_REQUEST,
        "id": approval_id(root.task_id, request.id),
        "server_label": label,
        "name": name,
        "arguments": arguments,
    }


def answer_items(state: State, segment: int) -> list[Json]:
    """The input of a segment after a pause: the answers, if there are any."""
    root = state.root
    assert root is not None
    found: list[Json] = []
    for task_id, request in state.pauses[segment - 1].asked:
        answer = state.tasks[task_id].answers.get(request.id)
        if answer is not None:
            found.append(
                {
                    "type": APPROVAL_RESPONSE,
                    "id": f"mcpa_{root.task_id}~{request.id}",
                    "approval_request_id": approval_id(root.task_id, request.id),
                    "approve": answer.get("approved") is True,
                    "reason": answer.get("reason"),
                }
            )
    return found


class ApprovalResponse(msgspec.Struct):
    """An `mcp_approval_response` item of an `input`."""

    approval_request_id: str
    approve: bool
    reason: str | None = None
    param: str = ""
    """The place of the item in the request."""


def answers_start(given: Any, asking: Collection[str] = ()) -> int:
    """Where the answers at the end of an `input` begin: to approvals, and outputs of functions.

    `asking` has the ids of the items of the response that asks, and of its calls. The AI SDK puts
    each request before its answer, so these items may stand between the answers.
    """
    items = list_of(given)
    start = place = len(items)
    alone = True
    while place:
        item = items[place - 1]
        is_answer = _is_answer(item) or _kind(item) in OUTPUTS
        if not (alone and is_answer) and not _is_of(item, asking):
            break
        alone = alone and is_answer
        place -= 1
        start = place if is_answer else start
    return start


def _is_of(item: Any, ids: Collection[str]) -> bool:
    """Whether an item has one of these ids, or answers an item that has it."""
    names = map(dict_of(item).get, ("id", "call_id", "approval_request_id"))
    return any(isinstance(name, str) and name in ids for name in names)


def last_answered(given: Any) -> str | None:
    """The approval that the last answer in an `input` is for."""
    found = [item.get("approval_request_id") for item in dicts_of(given) if _is_answer(item)]
    return found[-1] if found and isinstance(found[-1], str) else None


def last_output(given: Any) -> str | None:
    """The call whose output an `input` ends with."""
    items = list_of(given)
    if not items or _kind(items[-1]) not in OUTPUTS:
        return None
    return text_or_none(items[-1].get("call_id"))


def approvals_of(given: Any, asking: Collection[str] = ()) -> list[ApprovalResponse]:
    """The answers to approvals at the end of an `input`; earlier answers are history."""
    found: list[ApprovalResponse] = []
    for index, item in list(enumerate(list_of(given)))[answers_start(given, asking) :]:
        if not _is_answer(item):
            continue
        param = f"input[{index}]"
        try:
            found.append(msgspec.convert({**item, "param": param}, ApprovalResponse))
        except msgspec.ValidationError as error:
            message = f"An `mcp_approval_response` is wrong: {error}."
            raise CallerError(message, param=param) from error
    return found


def asks_itself(given: Any, answers: list[ApprovalResponse]) -> bool:
    """Whether an `input` has the requests that it answers, and no run of ours made them.

    Then both are history of another API.
    """
    asked = {item.get("id") for item in dicts_of(given) if item.get("type") == APPROVAL_REQUEST}
    return all(
        answer.approval_request_id in asked and not runs_of_approval(answer.approval_request_id)
        for answer in answers
    )


def answered_inside(given: Any, asking: Collection[str] = ()) -> list[str]:
    """The approvals that an `input` answers, if other items are behind all of its answers."""
    if any(map(_is_answer, list_of(given)[answers_start(given, asking) :])):
        return []
    return [str(item.get("approval_request_id")) for item in dicts_of(given) if _is_answer(item)]


def without_approvals(given: Any) -> Any:
    """An `input` without our requests for approvals and their answers: the log has them."""
    if not isinstance(given, list):
        return given
    return [item for item in given if not is_own_approval(item)]


def is_own_approval(item: Any) -> bool:
    """Whether an item is a request of ours for an approval, or the answer to such a request."""
    kind = dict_of(item).get("type")
    if kind not in (APPROVAL_REQUEST, APPROVAL_RESPONSE):
        return False
    ident = item.get("id" if kind == APPROVAL_REQUEST else "approval_request_id")
    return isinstance(ident, str) and bool(runs_of_approval(ident))


def _is_answer(item: Any) -> bool:
    return bool(_kind(item) == APPROVAL_RESPONSE)


def _kind(item: Any) -> Any:
    return dict_of(item).get("type")


def open_pause(state: State) -> int | None:
    """The pause in which a run waits for approvals now."""
    is_open = bool(state.pauses) and state.pauses[-1].until is None
    return len(state.pauses) - 1 if is_open else None


def pause_of(state: State, ident: str) -> int | None:
    """The newest pause with this request; None if the run never made the request."""
    root = state.root
    assert root is not None
    for index, pause in reversed(list(enumerate(state.pauses))):
        if ident in [approval_id(root.task_id, request.id) for _, request in pause.asked]:
            return index
    return None


def asked_approvals(state: State, segment: int) -> dict[str, str]:
    """The requests at the end of a segment: their ids, as items and here."""
    root = state.root
    assert root is not None
    asked = state.pauses[segment].asked
    return {approval_id(root.task_id, request.id): request.id for _, request in asked}


def open_approvals(state: State, segment: int) -> set[str]:
    """The requests at the end of a segment that wait for an answer: their ids as items.

    A task that has ended waits for nothing.
    """
    root = state.root
    assert root is not None
    return {
        approval_id(root.task_id, request.id)
        for task_id, request in state.pauses[segment].asked
        if request in state.tasks[task_id].requests
    }
