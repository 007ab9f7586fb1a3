"""A run whose agent changes, in the formats that have no word for it."""

from __future__ import annotations

import pytest

from tailrace.core import events as ev
from tailrace.core.fold import State
from tailrace.testing.wire_kit import as_recorded
from tailrace.wire.formats import FORMATS
from tests.traces import TRACES

SILENT = ("openai-responses", "openai-chat", "anthropic-messages")


@pytest.mark.parametrize("name", SILENT)
def test_the_agent_that_takes_over_is_not_shown_and_the_model_of_the_answer_stays(
    name: str,
) -> None:
    [trace] = [trace for trace in TRACES if trace.name == "handoff"]
    events = [event for event, _ in trace.events]
    state, encoder = State(), FORMATS[name].at(State())
    sent = b""
    for one in as_recorded(events):
        frames = encoder.encode(one)
        if isinstance(one.event, ev.AgentSwitched):
            assert frames == []
        sent += b"".join(frames)
        state.absorb(one.event)
    replayed = b"".join(FORMATS[name].open(state)[1])
    for whole in (sent, replayed):
        assert b"You get your money back." in whole
        assert b'"refunds"' not in whole
        assert b'"model":"triage"' in whole
