"""Runs in the Responses format: as streams that a strict reader takes, and as objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.testing.wire_kit import as_recorded, check_wire, encoded
from tailrace.wire.openai_responses import FORMAT, response_object
from tailrace.wire.openai_responses.cursors import offset
from tests.effort import SOAK
from tests.wire import openai_scripts as scripts
from tests.wire.frames import events_of
from tests.wire.openai_checker import Reader, check_response
from tests.wire.openai_scripts import Script

SCRIPTS = [
    scripts.everything(),
    scripts.client_call().add(ev.TaskCompleted),
    scripts.client_call("incomplete").add(ev.TaskIncomplete, reason="max_output_tokens"),
    scripts.failed(),
    scripts.superseded(),
    scripts.cancelled(),
]
BRIEF = 30
"""Events of a run that the kit tries also in `make test`."""


def flat(frames: list[list[bytes]]) -> list[bytes]:
    return [frame for each in frames for frame in each]


def folded(events: Sequence[ev.AnyEvent]) -> State:
    state = State()
    for event in events:
        state.absorb(event)
    return state


def events_shown(script: Script) -> list[dict[str, Any]]:
    """The events of a run's stream, once the checker has read them and the kit has tried it.

    The kit tries every place of a run: a long run only in `make soak`.
    """
    brief = SOAK or len(script.events) <= BRIEF
    frames = flat((check_wire if brief else encoded)(FORMAT, script.events))
    Reader().read(frames)
    return events_of(frames)


def output(script: Script) -> list[dict[str, Any]]:
    body = response_object(script.state)
    check_response(body)
    return body["output"]  # type: ignore[no-any-return]


def finished(response: dict[str, Any]) -> dict[str, Any]:
    """A response without unfinished calls: only a stream that began them has them."""
    output = [item for item in response["output"] if not _is_left(item)]
    return {**response, "output": output}


def _is_left(item: dict[str, Any]) -> bool:
    return bool(item["type"] == "mcp_call" and item["status"] == "incomplete")


def joins_anywhere(events: Sequence[ev.AnyEvent], segment: int) -> None:
    """A client that joins a response after any event ends with the same object."""
    wire, recorded = FORMAT.after(segment), as_recorded(events)
    states = [folded(events[:count]) for count in range(len(events) + 1)]
    paused = [count for count, one in enumerate(states) if len(one.pauses) > segment]
    state = State()
    for place, one in enumerate(recorded):
        state.absorb(one.event)
        encoder, frames = wire.open(state)
        reader = Reader().read(frames)
        assert reader.last < (offset(events[0].task_id) + place + 2) << 12
        for later in recorded[place + 1 :]:
            reader.read(encoder.encode(later))
        assert reader.final is not None
        if reader.final["error"] is None or reader.final["error"]["type"] != "stream_cut":
            # What is superseded after the end of a response is left out for those who join then.
            seen = max(place + 1, [*paused, len(events)][0])
            assert finished(reader.final) == finished(response_object(states[seen], segment))
