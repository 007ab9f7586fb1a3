"""A conversation as a client of chat completions holds it, and the run that its calls name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailrace.core.event_sink import runs_of_item
from tailrace.core.fold import State
from tailrace.core.values import Json
from tailrace.history.inputs import InputCall, InputItem, read_input
from tailrace.wire.openai_chat.object import completion


def messages(chain: Sequence[State]) -> list[Json]:
    """The messages of a chain of runs: the input of each run, then its answer."""
    found: list[Json] = []
    for state in chain:
        given = state.root.facts.get("input") if state.root is not None else None
        members = given if isinstance(given, list) else [given]
        found += [one if isinstance(one, dict) else _asked(one) for one in members]
        found += [choice["message"] for choice in completion(state).get("choices", ())]
    return found


def _asked(content: object) -> Json:
    return {"role": "user", "content": content}


def read(message: Json) -> Iterator[InputItem]:
    """What a model reads of a message."""
    return read_input([message])


def runs_of(message: Json) -> list[str]:
    """The ids that the run may have whose calls a message of the assistant makes."""
    calls = [one.call_id for one in read(message) if isinstance(one, InputCall)]
    return [run_id for call_id in calls[:1] for run_id in runs_of_item(call_id)]
