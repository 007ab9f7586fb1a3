"""Items of earlier responses that an `input` has: by their ids, or whole.

A client that sends all items of a response, after the input of that response, continues it. The AI
SDK names most items by their ids; others send them whole. The model then reads what it reads with
`previous_response_id`. Any other reference stands for the item as the client knows it, and any
other item for itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from tailrace.core.fold import State
from tailrace.core.state import TaskNode
from tailrace.core.tool_arguments import are_same
from tailrace.core.values import Json, dict_of, dicts_of, list_of, text_or_none
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
_SPOKEN = ("message", *_CALLS)
"""The items that every client has to send back."""


class NamedItems:
    """The items of the runs whose items an input has."""

    def __init__(self) -> None:
        self.items: dict[str, Json] = {}
        self.runs: dict[str, tuple[str, State]] = {}
        """The run of each item, by the item's id and the id of a client's call."""

    def add(self, run_id: str, state: State, ident: str | None = None) -> None:
        """Add the items of a run's output, and the item of its input that has this id."""
        asked = input_items(state) if ident is not None else ()
        self.items |= {item["id"]: item for item in asked if item["id"] == ident}
        for item in output_items(state):
            self.items[item["id"]] = item
            for name in (item["id"], *([item["call_id"]] if item["type"] in _CALLS else ())):
                self.runs[name] = (run_id, state)


class Continued(NamedTuple):
    """The run that an input continues, and the items that follow it."""

    run_id: str | None
    rest: list[Any]


def references(given: Any) -> dict[int, str]:
    """The ids of the item references in an `input`, by their places."""
    named = {at: item.get("id") for at, item in enumerate(list_of(given)) if _is_reference(item)}
    return {at: ident for at, ident in named.items() if isinstance(ident, str)}


def returned(given: Any) -> list[str]:
    """The ids by which the whole items of an `input` may be found in the log."""
    items = (item for item in dicts_of(given) if not _is_reference(item))
    return [name for name in map(_name, items) if name is not None]


def _name(item: Any) -> str | None:
    """The id of an item. Clients leave out the ids of calls, but not those of their outputs."""
    found = dict_of(item)
    if found.get("role", "assistant") != "assistant" or found.get("type") in OUTPUTS:
        return None
    return text_or_none(found.get("call_id") if found.get("type") in _CALLS else found.get("id"))


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
    """The last run whose items an input has all, with the whole conversation before them.

    `items` is the input with items in place of references.
    """
    pairs = [pair for pair in zip(given, items, strict=True) if not is_own_approval(pair[1])]
    given, items = [one for one, _ in pairs], [one for _, one in pairs]
    last, start = None, 0
    for place, item in enumerate(given):
        found = named.runs.get(_name(item) or "")
        if place < start or found is None:
            continue
        run_id, state = found
        output = {one["id"]: one for one in output_items(state) if one["type"] != APPROVAL_REQUEST}
        seen = set[str]()
        begin = end = place
        while begin > start and _takes(output, seen, given[begin - 1], items[begin - 1]):
            begin -= 1  # items without an id, before a call
        while end < len(given) and (
            _takes(output, seen, given[end], items[end]) or _is_received(state, items[end])
        ):
            end += 1
        if not _has_all(output, seen) or not _goes_on(state.root, last, items[start:begin]):
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


def has_only_outputs(state: State, given: Any) -> bool:
    """Whether an `input` ends with outputs of the calls of a run, after nothing that is new."""
    assert state.root is not None
    outputs = list_of(given)[answers_start(given) :]
    calls = [str(item.get("call_id")) for item in outputs]
    return state.root.calls.keys() >= set(calls) and new_item(state, given) is None


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


def _takes(output: Mapping[str, Json], seen: set[str], given: Any, item: Any) -> bool:
    """Whether an item is of an output, by reference or unchanged. It is then among the seen."""
    ident = dict_of(item).get("id")
    if isinstance(ident, str) and ident in output:
        found = [ident] if _is_reference(given) or _is_made(item, output[ident]) else []
    else:  # of equal items without ids, the next
        order = (*(one for one in output if one not in seen), *seen)
        found = [one for one in order if _is_made(dict_of(item), output[one])][:1]
    seen.update(found)
    return bool(found)


def _is_made(item: Json, made: Json) -> bool:
    """Whether an item of a client is this item of an output: a model would read the same."""
    kind = item.get("type", "message")
    if kind == "message" and item.get("role") != "assistant":
        return False
    if kind == "message" and made["type"] == "reasoning":
        # pydantic-ai sends each text of a reasoning as a message.
        thoughts = [f"<think>\n{part['text']}\n</think>" for part in made["summary"]]
        return item.get("content") in thoughts
    if kind != made["type"]:
        return False
    if kind in _CALLS:
        is_same = all(item.get(name) == made.get(name) for name in ("call_id", "name", "input"))
        return is_same and are_same(item.get("arguments"), made.get("arguments"))
    if item.get("id") not in (None, made["id"]):
        return False
    if kind == "mcp_call" and "id" in item and item.get("output") is item.get("error") is None:
        return True  # as the response that asks for its approval has it
    for name in ("summary", "result"):  # which the model does not read from a client
        if item.get(name) and made.get(name) and item[name] != made[name]:
            return False
    return list(read_input([{**item, "id": made["id"]}])) == list(read_input([made]))


def _has_all(output: Mapping[str, Json], seen: set[str]) -> bool:
    """Whether a client has sent all of an output.

    A client that sends calls back may leave out whole kinds of the server's items, as pydantic-ai
    does.
    """
    kinds = {output[ident]["type"] for ident in seen}
    missing = {item["type"] for ident, item in output.items() if ident not in seen}
    return not missing or (not kinds.isdisjoint(_CALLS) and not missing & {*kinds, *_SPOKEN})


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
