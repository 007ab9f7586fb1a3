"""Items of earlier responses that an `input` names by their ids.

A client that names all items of a response, after the input of that response, continues it: the
AI SDK does so by default. Its model then reads what it reads with `previous_response_id`. Any other
reference stands for the item as the client knows it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from tailrace.core.fold import State
from tailrace.core.state import TaskNode
from tailrace.core.values import Json, dict_of, list_of
from tailrace.history.inputs import read_input
from tailrace.wire.openai_responses.items import APPROVAL_REQUEST
from tailrace.wire.openai_responses.object import input_items, output_items, response_object
from tailrace.wire.openai_responses.segments import (
    APPROVAL_RESPONSE,
    OUTPUTS,
    answers_start,
    is_own_approval,
    pause_of,
)

BY_ITEMS: Json = {"previous_response_id": None}
"""The options of a run that continues another by its items: its request named no response."""

_CALLS = ("function_call", "custom_tool_call")


class NamedItems:
    """The items of the runs whose items an input names."""

    def __init__(self) -> None:
        self.items: dict[str, Json] = {}
        self.runs: dict[str, tuple[str, State]] = {}
        """The run of each item."""

    def add(self, run_id: str, state: State, ident: str | None = None) -> None:
        """Add the items of a run's output, and the item of its input that has this id."""
        asked = input_items(state) if ident is not None else ()
        self.items |= {item["id"]: item for item in asked if item["id"] == ident}
        for item in output_items(state):
            self.items[item["id"]] = item
            self.runs[item["id"]] = (run_id, state)


class Continued(NamedTuple):
    """The run that an input continues, and the items that follow it."""

    run_id: str | None
    rest: list[Any]


def references(given: Any) -> dict[int, str]:
    """The ids of the item references in an `input`, by their places."""
    named = {at: item.get("id") for at, item in enumerate(list_of(given)) if _is_reference(item)}
    return {at: ident for at, ident in named.items() if isinstance(ident, str)}


def resolved(given: Any, items: Mapping[str, Json]) -> Any:
    """An `input` with items in place of their references."""
    if not isinstance(given, list):
        return given
    return [items.get(item.get("id"), item) if _is_reference(item) else item for item in given]


def _is_reference(item: Any) -> bool:
    """Whether an item is a reference. Its type is optional: then it has only an id."""
    if not isinstance(item, dict):
        return False
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and item.keys() - {"type"} == {"id"})


def continued(given: list[Any], items: list[Any], named: NamedItems) -> Continued:
    """The last run whose items an input names all, with the whole conversation before them.

    `items` is the input with items in place of references.
    """
    pairs = [pair for pair in zip(given, items, strict=True) if not is_own_approval(pair[1])]
    given, items = [one for one, _ in pairs], [one for _, one in pairs]
    last, start = None, 0
    for place, item in enumerate(given):
        if place < start or not _is_reference(item) or item.get("id") not in named.runs:
            continue
        run_id, state = named.runs[item["id"]]
        output = {one["id"]: one for one in output_items(state) if one["type"] != APPROVAL_REQUEST}
        end, seen = place, set[str]()
        while end < len(given):
            ident = _id_in(output, given[end], items[end])
            if ident is not None:
                seen.add(ident)
            elif not _is_received(state, items[end]):
                break
            end += 1
        if seen != output.keys() or not _goes_on(state.root, last, items[start:place]):
            break
        last, start = run_id, end
    # Something new has to follow: a run without input would be another answer to the same.
    return Continued(last, items[start:]) if items[start:] else Continued(None, items)


def ids_of_asking(state: State, approval: str) -> set[str]:
    """The ids of the response that asks for an approval: of its items, and of its calls."""
    pause = pause_of(state, approval)
    items = response_object(state, pause)["output"] if pause is not None else ()
    return {ident for item in items for ident in (item["id"], item.get("call_id", item["id"]))}


def new_item(state: State, given: Any, asking: Collection[str] = ()) -> int | None:
    """The place of an item before the answers that the run does not have; None without one."""
    root, items, start = state.root, list_of(given), answers_start(given, asking)
    assert root is not None
    output = {item["id"] for item in output_items(state)}
    known = [index for index, item in enumerate(items[:start]) if _is_known(root, output, item)]
    first = known[-1] + 1 if known else 0
    if not known and list(read_input(items[:start]))[-1:] == _asked(root)[-1:]:
        return None
    return first if first < start else None


def _asked(root: TaskNode) -> list[Any]:
    return list(read_input(root.facts.get("input")))


def _is_known(root: TaskNode, output: set[str], item: Any) -> bool:
    """Whether an item is of the run's output, or answers it."""
    found = dict_of(item)
    if found.get("type") in _CALLS and found.get("call_id") in root.calls:
        return True
    return found.get("id") in output or found.get("type") == APPROVAL_RESPONSE


def named_run(state: State) -> str | None:
    """The run that the request of a run continued by naming its items."""
    facts = state.root.facts if state.root is not None else {}
    options = facts.get("options")
    is_named = isinstance(options, dict) and BY_ITEMS.items() <= options.items()
    return facts.get("previous_run_id") if is_named else None


def _id_in(output: Mapping[str, Json], given: Any, item: Any) -> str | None:
    """The id of the output that an item is: by reference, or a call as it was made.

    The AI SDK sends calls of its own functions whole.
    """
    if _is_reference(given):
        return item["id"] if item.get("id") in output else None
    for ident, made in output.items():
        if made["type"] in _CALLS and isinstance(item, dict) and item.get("type") == made["type"]:
            fields = ("call_id", "name", "arguments", "input")
            if all(item.get(name) == made.get(name) for name in fields):
                return ident
    return None


def _is_received(state: State, item: Any) -> bool:
    """Whether an item is the output of a call that the run itself has got."""
    assert state.root is not None
    found = dict_of(item)
    return found.get("type") in OUTPUTS and str(found.get("call_id")) in state.root.call_results


def _goes_on(root: TaskNode | None, previous: str | None, given: list[Any]) -> bool:
    """Whether a run has ended, and continued this run with this input."""
    if root is None or not root.ended:
        return False
    facts, options = root.facts, root.facts.get("options")
    if isinstance(options, dict) and options.get("store") is False:
        return False
    if facts.get("previous_run_id") != previous or facts.get("previous_seq") is not None:
        return False
    return list(read_input(facts.get("input"))) == list(read_input(given))
