"""Random legal runs as chat completions."""

from __future__ import annotations

from hypothesis import given

from tailrace.core.fold import State
from tailrace.testing.strategies import WrittenRun, legal_runs
from tailrace.testing.wire_kit import as_recorded
from tailrace.wire.openai_chat import FORMAT
from tests.wire.chat_checker import ChatReader
from tests.wire.chat_runs import check, frames_of, joined


@given(run=legal_runs(max_events=60))
def test_every_run_is_a_stream_that_the_strict_reader_takes(run: WrittenRun) -> None:
    events = [event for event, _ in run]
    check(events, ChatReader().read(frames_of(events)))


@given(run=legal_runs(max_events=40))
def test_a_reader_that_joins_anywhere_ends_with_the_same_message(run: WrittenRun) -> None:
    events = [event for event, _ in run]
    for place in range(1, len(events) + 1):
        check(events, joined(events, place))


@given(run=legal_runs(max_events=30))
def test_a_stream_that_is_closed_anywhere_has_an_end(run: WrittenRun) -> None:
    recorded = as_recorded([event for event, _ in run])
    for place in range(len(recorded) + 1):
        encoder = FORMAT.at(State())
        frames = [frame for one in recorded[:place] for frame in encoder.encode(one)]
        end = encoder.close("The server stops.")
        assert ChatReader().read(frames + end).is_done
        assert encoder.close("The server stops.") == end, "readers share an encoder"
