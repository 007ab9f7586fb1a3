"""Random legal runs in the Responses format."""

from __future__ import annotations

import json

from hypothesis import given

from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.testing.strategies import WrittenRun, legal_runs
from tailrace.testing.wire_kit import as_recorded, check_wire, encoded
from tailrace.wire.openai_responses import (
    FORMAT,
    response_id,
    response_object,
)
from tests.wire.openai_checker import Reader, check_response
from tests.wire.responses_runs import flat, folded, joins_anywhere


@given(legal_runs())
def test_every_run_is_a_stream_that_the_strict_reader_takes(run: WrittenRun) -> None:
    events = [event for event, _ in run]
    state = folded(events)
    for segment in range(len(state.pauses) + 1):
        reader = Reader().read(flat(encoded(FORMAT.after(segment), events)))
        assert reader.final is not None
        assert state.root is not None
        assert reader.final["id"] == response_id(state.root.task_id, segment)
        check_response(response_object(state, segment))


@given(legal_runs(max_events=40, complete=False))
def test_a_stream_can_be_gone_on_with_after_every_event(run: WrittenRun) -> None:
    events = [event for event, _ in run]
    for segment in range(len(folded(events).pauses) + 1):
        check_wire(FORMAT.after(segment), events)


@given(legal_runs(max_events=25))
def test_a_client_that_joins_anywhere_ends_with_the_same_response(run: WrittenRun) -> None:
    events = [event for event, _ in run]
    for segment in range(len(folded(events).pauses) + 1):
        joins_anywhere(events, segment)


@given(legal_runs(max_events=40))
def test_nothing_private_is_in_any_frame(run: WrittenRun) -> None:
    state, recorded = State(), as_recorded([event for event, _ in run])
    for one in recorded:
        state.absorb(one.event, ev.Private(encrypted_content="canary", provider={"id": "canary"}))
    _, frames = FORMAT.open(state)
    assert b"canary" not in b"".join(frames)
    assert "canary" not in json.dumps(response_object(state))
