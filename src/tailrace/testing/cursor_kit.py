"""Checks of cursors: each names one place of a stream, and resuming there gives exactly the rest.

    check_cursors(FORMAT, events)

raises `AssertionError` that names the cursor. `check_wire` calls it for every format with cursors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from tailrace.core.codec import encode_event
from tailrace.core.errors import InvalidCursor
from tailrace.core.events import AnyEvent, Recorded
from tailrace.core.fold import State
from tailrace.core.sse import SseEvent, SseParser
from tailrace.core.values import dict_of
from tailrace.wire.base import Cursor, Encoder, Format, Frame, InsideEvents, in_run

T = TypeVar("T")


def cursor_of(frame: Frame) -> str | None:
    """The cursor that a frame carries: its id, or the `sequence_number` of its JSON."""
    for event in SseParser().feed(frame):
        return cursor_of_event(event)
    return _number_in(frame)


def cursor_of_event(event: SseEvent) -> str | None:
    """The cursor of a server-sent event."""
    if event.id:
        return event.id.rpartition(":")[2]  # a thread's cursor names the run before the colon
    return _number_in(event.data)


def _number_in(data: bytes | str) -> str | None:
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return None
    number = dict_of(value).get("sequence_number")
    return None if number is None else str(number)


def check_cursors(
    wire: Format,
    events: Sequence[AnyEvent],
    *,
    cursor_of: Callable[[Frame], str | None] = cursor_of,
    places: Sequence[int] | None = None,
    every: bool = False,
) -> None:
    """Prove that each cursor names one place: it rises, and a resume gives exactly the rest.

    The streams are the whole stream and those that begin with `open` after the events `places`.
    Since a resume sees only the cursor, two places with different rests cannot share a cursor.
    Without `every`, samples are taken, some of them around powers of two: numbers overflow there.
    """
    log = _Log(events)
    ends = range(1, len(events) + 1)
    if places is None:
        places = ends if every else _samples(ends, 3)
    for place in (0, *places):
        state = log.state(place)
        encoder, opening = wire.open(state) if place else (wire.at(state), [])
        stream = [*opening, *log.encoded(encoder, place)]
        where = f"{wire.name}: opened after event {place}"
        found = [(index, text) for index, frame in enumerate(stream) if (text := cursor_of(frame))]
        _check_rising(wire, [text for _, text in found], where)
        for index, text in found if every else _samples(found, 6):
            resumed = f"{where}: resumed at cursor {text}, frame {index + 1} of {len(stream)}"
            try:
                rest = _resumed(wire, log, in_run(wire, wire.cursor(text), log.run_id))
            except InvalidCursor as error:
                raise AssertionError(f"{resumed}: refused: {error}") from error
            expected = stream[index + 1 :]
            assert rest == expected, (
                f"{resumed}: {len(rest)} frames follow instead of {len(expected)}, or others"
            )


def _resumed(wire: Format, log: _Log, cursor: Cursor) -> list[Frame]:
    """The frames sent to a client that resumes with this cursor."""
    if cursor.sub is None or not isinstance(wire, InsideEvents):
        return log.encoded(wire.at(log.state(cursor.seq)), cursor.seq)
    event = log.recorded[cursor.seq - 1]
    encoder, rest = wire.resume(log.state(cursor.seq - 1), event, cursor)
    return [*rest, *log.encoded(encoder, cursor.seq)]


class _Log:
    """A run whose state can be read after any event."""

    def __init__(self, events: Sequence[AnyEvent]) -> None:
        self.recorded = [Recorded(event, encode_event(event)) for event in events]
        self._state, self._count = State(), 0
        self.run_id = events[0].task_id if events else ""

    def state(self, count: int) -> State:
        """The state after so many events, until the next call; going forward is cheap."""
        if count < self._count:
            self._state, self._count = State(), 0
        for recorded in self.recorded[self._count : count]:
            self._state.absorb(recorded.event)
        self._count = count
        return self._state

    def encoded(self, encoder: Encoder, after: int) -> list[Frame]:
        return [frame for recorded in self.recorded[after:] for frame in encoder.encode(recorded)]


def _check_rising(wire: Format, cursors: Sequence[str], where: str) -> None:
    """Cursors rise as places; numbers also rise as numbers, since clients compare them."""
    orders: list[Callable[[str], object]] = [lambda text: _rank(wire.cursor(text))]
    if all(text.isdigit() for text in cursors):
        orders.append(int)
    for order in orders:
        ranks: list[Any] = [order(text) for text in cursors]
        for rank, other, text in zip(ranks, ranks[1:], cursors[1:], strict=False):
            assert rank < other, f"{where}: cursor {text} does not rise"


def _rank(cursor: Cursor) -> tuple[int, float]:
    return cursor.seq, float("inf") if cursor.sub is None else cursor.sub


def _samples(found: Sequence[T], count: int) -> list[T]:
    """Some elements of a list: both ends, some between, and those around powers of two."""
    last = len(found) - 1
    places = {last * step // count for step in range(count + 1)} if found else set()
    if last > 1000:
        places |= {2**power - near for power in range(10, 20) for near in (0, 1)}
    return [found[place] for place in sorted(places) if place <= last]
