"""The numbers of a Responses stream: each is a cursor."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from tailrace.core import events as ev
from tailrace.core.errors import InvalidCursor
from tailrace.core.fold import State
from tailrace.core.state_copy import copy_state
from tailrace.testing.wire_kit import as_recorded, check_wire, encoded
from tailrace.wire.base import Cursor
from tailrace.wire.openai_responses import (
    DONE_FRAME,
    FORMAT,
    response_object,
)
from tailrace.wire.openai_responses.cursors import offset
from tests.effort import CUTS, sample
from tests.wire import openai_scripts as scripts
from tests.wire.frames import events_of
from tests.wire.openai_scripts import RUN, Script
from tests.wire.responses_runs import SCRIPTS, flat, folded


def place_of_number(number: int) -> Cursor:
    return FORMAT.in_run(FORMAT.cursor(str(number)), RUN)


def gone_on(script: Script, frame: bytes) -> bytes:
    cursor = place_of_number(events_of([frame])[0]["sequence_number"])
    recorded = as_recorded(script.events)
    before = folded(script.events[: cursor.seq - 1])
    encoder, left = FORMAT.resume(before, recorded[cursor.seq - 1], cursor)
    return b"".join([*left, *flat([encoder.encode(one) for one in recorded[cursor.seq :]])])


def test_a_cursor_is_a_number_that_needs_no_state() -> None:
    assert FORMAT.cursor("0") == Cursor(0)
    assert place_of_number(offset(RUN) + 7 << 12 | 3) == Cursor(7, 3)
    assert place_of_number(7 << 12 | 3).seq == 0, "a number before the run's first"
    with pytest.raises(InvalidCursor):
        FORMAT.cursor("run_7")


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_cursor_inside_an_event_goes_on_with_the_very_next_frame(script: Script) -> None:
    whole = flat(encoded(FORMAT, script.events))
    assert whole[-1] == DONE_FRAME
    for place, frame in enumerate(whole[:-1]):
        assert frame + gone_on(script, frame) == b"".join(whole[place:])


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_cursor_of_a_joined_stream_goes_on_with_the_very_next_frame(script: Script) -> None:
    recorded = as_recorded(script.events)
    for place in sample(range(1, len(recorded) + 1), CUTS):
        encoder, frames = FORMAT.open(folded(script.events[:place]))
        whole = frames + flat([encoder.encode(one) for one in recorded[place:]])
        for index in {0, len(frames) - 1, len(frames), len(whole) - 2} & set(range(len(whole))):
            if whole[index] != DONE_FRAME:
                assert whole[index] + gone_on(script, whole[index]) == b"".join(whole[index:])


def test_the_last_frame_has_no_number_to_go_on_from() -> None:
    script = scripts.failed()
    *_, last, _ = flat(encoded(FORMAT, script.events))
    number = events_of([last])[0]["sequence_number"]
    frame = b'event: x\ndata: {"type":"x","sequence_number":%d}\n\n'
    assert gone_on(script, frame % number) == DONE_FRAME
    with pytest.raises(InvalidCursor):
        gone_on(script, frame % (number + 1))


@pytest.mark.parametrize("joined", [False, True])
def test_a_stream_that_is_closed_ends_with_an_error_whose_number_is_a_cursor(joined: bool) -> None:
    log = [ev.Recorded(one, b"", epoch=7) for one in scripts.everything().events]
    state, before = State(), State()
    for place, one in enumerate(log[:-1], 1):
        before = copy_state(state)
        state.absorb(one.event)
        encoder = FORMAT.open(state)[0] if joined else FORMAT.at(state)
        [event] = events_of(encoder.close("The server stops."))
        assert (event["type"], event["message"]) == ("error", "The server stops.")
        # Without any item, the AI SDK would send the request again after another code.
        has_items = bool(response_object(state)["output"])
        assert event["code"] == ("server_error" if has_items else "424")
        cursor = place_of_number(event["sequence_number"])
        assert cursor.seq == place
        resumed, rest = FORMAT.resume(before, one, cursor)
        assert rest == []
        shown = [events_of(one.encode(log[place])) for one in (resumed, encoder)]
        assert shown[0] == [{**one, "sequence_number": ANY} for one in shown[1]]


def test_an_item_with_many_parts_makes_the_numbers_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.wire.openai_responses.encoder.MANY_PARTS", 0)
    events = events_of(flat(check_wire(FORMAT, scripts.everything().events)))
    numbers = [event["sequence_number"] for event in events]
    assert numbers == sorted(set(numbers))
    assert numbers[0] < 1 << 52 < numbers[-1]


def test_many_parts_before_a_pause_make_the_numbers_after_it_wide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tailrace.wire.openai_responses.encoder.MANY_PARTS", 0)
    [event, *_] = events_of(flat(check_wire(FORMAT.after(1), scripts.approved_twice().events)))
    assert event["sequence_number"] > 1 << 52
