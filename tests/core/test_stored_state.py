"""A saved state as stores hold it: compressed, or as older versions left it."""

from __future__ import annotations

import pytest

from tailrace.core.fold import State
from tailrace.core.snapshot import packed, restored, save, unpacked_size
from tests.traces import TRACES, Trace


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_a_stored_state_comes_back(trace: Trace) -> None:
    state = State()
    for event, private in trace.events:
        state.absorb(event, private)
    saved = save(state, private=True)
    stored = packed(saved)
    assert save(restored(stored), private=True) == saved
    assert unpacked_size(stored) == len(saved)


def test_a_state_that_an_older_version_stored_is_read() -> None:
    saved = save(State())
    assert save(restored(saved)) == saved
    assert unpacked_size(saved) == len(saved)


def test_a_damaged_state_is_folded_from_the_start() -> None:
    stored = packed(b"x" * 1_000)
    for damaged in (stored, stored[:-3], stored[:4]):
        assert restored(damaged).sequence_number == 0
    assert unpacked_size(stored[:4]) == 0
    assert restored(None).sequence_number == 0
