"""Rows of a log, as JSON lines and as frames: the same events, from every place."""

from __future__ import annotations

import pytest

from tailrace.core import sse
from tailrace.core.json_pieces import PIECE_BYTES
from tailrace.core.log_lines import (
    LogLines,
    framed,
    joined_frames,
    lines_place,
    merged,
    template,
)

EVENTS = [b'{"n":%d,"text":"id: 3-%d\\\\ndata: {}\\\\n\\\\n"}' % (n, n) for n in range(1020, 1031)]
FIRST, LAST, EPOCH = 1020, 1030, 3


def as_lines(events: list[bytes] = EVENTS, first: int = FIRST) -> LogLines:
    return LogLines(first, first + len(events) - 1, EPOCH, b"\n".join(events))


def as_frames(events: list[bytes] = EVENTS, first: int = FIRST) -> LogLines:
    return LogLines(
        first, first + len(events) - 1, EPOCH, framed(lines_place(EPOCH), first, events)
    )


def test_frames_are_what_the_stream_sends() -> None:
    frame = template(lines_place(EPOCH))
    expected = b"".join(frame % (n, one) for n, one in enumerate(EVENTS, FIRST))
    assert as_frames().raw == expected
    found = sse.SseParser().feed(as_frames().raw)
    assert [(one.id, one.data.encode()) for one in found] == [
        (f"{EPOCH}-{n}", one) for n, one in enumerate(EVENTS, FIRST)
    ]


@pytest.mark.parametrize("cut", range(1, len(EVENTS)))
def test_rows_of_either_kind_are_joined(cut: int) -> None:
    head, tail = EVENTS[:cut], EVENTS[cut:]
    for first in (as_lines, as_frames):
        for second in (as_lines, as_frames):
            rows = [first(head), second(tail, FIRST + cut)]
            assert joined_frames(rows) == as_frames().raw
    one_by_one = [as_lines([one], FIRST + n) for n, one in enumerate(EVENTS)]
    assert joined_frames(one_by_one) == as_frames().raw
    later = LogLines(LAST + 1, LAST + 1, EPOCH + 1, b"{}")
    assert joined_frames([*one_by_one, later]).endswith(b"id: 4-1031\ndata: {}\n\n")


@pytest.mark.parametrize("make", [as_lines, as_frames])
def test_the_events_come_back_from_any_place(make: type) -> None:
    whole: LogLines = make()
    assert whole.framed is (make is as_frames)
    assert whole.publics() == EVENTS
    assert (whole.first_public(), whole.last_public()) == (EVENTS[0], EVENTS[-1])
    for seq in range(FIRST - 3, LAST):
        rest = whole.after(seq)
        first = max(seq + 1, FIRST)
        assert (rest.first_seq, rest.last_seq, rest.epoch) == (first, LAST, EPOCH)
        assert rest.publics() == EVENTS[first - FIRST :]
        assert (rest.first_public(), rest.last_public()) == (EVENTS[first - FIRST], EVENTS[-1])
        assert rest == make(EVENTS[first - FIRST :], first)


@pytest.mark.parametrize("make", [as_lines, as_frames])
def test_one_event_alone(make: type) -> None:
    one: LogLines = make(EVENTS[:1])
    assert one.publics() == [one.first_public()] == [one.last_public()] == EVENTS[:1]
    assert one.after(FIRST - 1) is one


def test_rows_of_lines_are_merged_up_to_a_piece() -> None:
    row = b'"%b"' % (b"x" * (PIECE_BYTES // 2 - 2))
    rows = [LogLines(number, number, 7, row) for number in range(1, 6)]
    found = list(merged(rows))
    assert [(one.first_seq, one.last_seq) for one in found] == [(1, 2), (3, 4), (5, 5)]
    assert b"\n".join(one.raw for one in found) == b"\n".join([row] * 5)
    assert len(list(merged(rows[:4]))) == 2
