"""A state into bytes and back."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from benchmarks import traffic
from benchmarks.harness import Contender, Pace, Table, Target, at_most, measure, short
from tailrace.core import snapshot
from tailrace.core.fold import State
from tailrace.core.run_object import client_view

SIZES = (400, 4_000, 20_000)
CHARACTERS = 80_000
"""The weight of the state, however many events made it."""


@lru_cache(4)
def _events(count: int) -> list[Any]:
    return list(traffic.long_run(count, CHARACTERS))


def _state(events: list[Any]) -> State:
    state = State()
    for event in events:
        state.absorb(event)
    return state


def _object(count: int) -> Any:
    return client_view(_state(_events(count)))


def _saved(count: int) -> bytes:
    return snapshot.save(_state(_events(count)))


def _joined(count: int) -> State:
    state = _state(_events(count))
    snapshot.save(state)
    return state


def _looked_at(state: State) -> None:
    snapshot.save(state)


def _encode(value: Any) -> None:
    msgspec.json.encode(value)


def _decode(raw: bytes) -> None:
    msgspec.json.decode(raw)


def _restore(raw: bytes) -> None:
    snapshot.restore(raw)


def run(pace: Pace) -> tuple[list[Table], list[Target]]:
    """Saving, and restoring."""
    shown: dict[str, Any] = {
        "unit": "snapshot",
        "per": lambda _: 1.0,
        "column": lambda size: f"{short(size)} events",
    }
    weight = f"{CHARACTERS // 1000}k characters in 120 items"
    save = measure(
        "snapshot: save",
        [
            Contender("limit", _object, _encode),
            Contender("tailrace, the first time", _events, _looked_at, _state),
            Contender("tailrace, again", _joined, _looked_at),
        ],
        SIZES,
        pace,
        remark=(
            f"A state of {weight}, made of few or many events. The limit encodes the final object, "
            "which is there already; the first time, we also join the pieces of every text."
        ),
        **shown,
    )
    restore = measure(
        "snapshot: restore",
        [
            Contender("limit", _saved, _decode),
            Contender("tailrace", _saved, _restore),
        ],
        SIZES,
        pace,
        remark=(
            "The same state back from its bytes. The limit decodes the JSON into lists and dicts, "
            "which cannot be folded further."
        ),
        **shown,
    )
    grown = save.growth("tailrace, again")
    targets: list[Target] = []
    if grown is not None:
        targets.append(at_most("snapshot: save, whatever the number of events", 1.5, grown[2]))
    return [save, restore], targets
