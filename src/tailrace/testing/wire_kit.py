"""Tests that every wire format passes: live, resume, replay and late join agree.

    check_wire(FORMAT, events)

raises `AssertionError` that says at which event a format breaks its promise (`tailrace.wire.base`).
Frames are server-sent events, unless the format's `content-type` is one of `LINE_TYPES`: then each
frame is one line of JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from tailrace.core.codec import encode_event
from tailrace.core.errors import IllegalEvent, InvalidCursor
from tailrace.core.events import AnyEvent, Recorded
from tailrace.core.fold import State
from tailrace.core.log_lines import LogLines, framed, lines_place
from tailrace.core.snapshot import saved
from tailrace.core.sse import SseParser
from tailrace.core.state_copy import copy_state
from tailrace.testing.cursor_kit import check_cursors, cursor_of
from tailrace.wire.base import (
    MAX_CURSOR,
    Cursor,
    Encoder,
    Format,
    Frame,
    ReportsGaps,
    frames_lines,
    in_run,
    is_over,
    opens_in_pieces,
)

LINE_TYPES = ("application/x-ndjson", "application/jsonl", "application/json-lines")
"""Content types whose frames are lines of JSON."""

_NO_CURSORS = ("", "-1", "+1", "1_0", "٣", "../", f"{MAX_CURSOR + 1}", "x" * 10_000)


def encoded(wire: Format, events: Sequence[AnyEvent]) -> list[list[Frame]]:
    """Encode a whole run: the frames of each event."""
    encoder = wire.at(State())
    return [encoder.encode(recorded) for recorded in as_recorded(events)]


def is_log(events: Sequence[AnyEvent]) -> bool:
    """Whether a log can hold these events: numbered, and each legal after the last."""
    state = State()
    try:
        for event in events:
            state.apply(event)
    except IllegalEvent:
        return False
    return True


def as_recorded(events: Sequence[AnyEvent]) -> list[Recorded]:
    """Events as a log returns them."""
    return [Recorded(event, encode_event(event)) for event in events]


def check_wire(wire: Format, events: Sequence[AnyEvent]) -> list[list[Frame]]:
    """Prove `encode(all)[n:] == at(fold(first n)).encode(rest)` at every n; the frames of all.

    Also:

    * The state that is passed in is not changed.
    * Every frame is well formed.
    * `open` brings a new client to what others were shown.
    * `close` and `gap` work at every place.
    * `cursor` reads the `id:` of the frames, and refuses garbage.
    * A resume at a cursor gives exactly the rest (`tailrace.testing.cursor_kit`).
    """
    whole = encoded(wire, events)
    recorded = as_recorded(events)
    _check_lines(wire, whole, recorded)
    _check_cursors(wire, whole, events[0].task_id if events else "")
    _check_frames(wire, [wire.heartbeat], "the heartbeat")
    _check_frames(wire, [first] if (first := wire.preamble()) else [], "the preamble")
    along = wire.at(State())
    state = State()
    shown = False
    for place in range(len(recorded) + 1):
        before = copy_state(state)
        encoder = wire.at(state)
        assert is_over(encoder) == is_over(along), (
            f"{wire.name}: a resume after event {place} does not know whether the stream is over"
        )
        for at, event in enumerate(recorded[place:], place):
            frames = encoder.encode(event)
            assert frames == whole[at], (
                f"{wire.name}: resumed after event {place}, event {at + 1} is encoded as\n"
                f"{frames}\ninstead of\n{whole[at]}\n{event.public!r}"
            )
        opener, opening = wire.open(state)
        _check_frames(wire, opening, f"open after event {place}")
        if opens_in_pieces(wire):
            assert b"".join(wire.open_in_pieces(state)[1]) == b"".join(opening), (
                f"{wire.name}: opening after event {place} differs from open"
            )
        assert opening or not shown, (
            f"{wire.name}: open after event {place} gives a new client nothing, "
            "though others were sent frames"
        )
        for closed in (opener, wire.at(state)):
            _check_close(wire, closed, f"close after event {place}")
        if isinstance(wire, ReportsGaps):
            for reason in ("beyond_end", "epoch", "trimmed"):
                _check_frames(wire, [wire.gap(state, 1, reason)], f"gap after event {place}")
        assert _same(before, state), f"{wire.name} changed the state that it was given"
        if place < len(recorded):
            _check_frames(wire, whole[place], f"event {place + 1}")
            shown = shown or bool(whole[place])
            state.absorb(recorded[place].event)
            along.encode(recorded[place])
    if wire.resumable:
        check_cursors(wire, events)
    return whole


def _check_close(wire: Format, encoder: Encoder, where: str) -> None:
    """Readers share an encoder, so closing one stream must leave it as it is."""
    frames = encoder.close("enough")
    _check_frames(wire, frames, where)
    assert encoder.close("enough") == frames, f"{wire.name}: {where} changes the encoder"


def _check_cursors(wire: Format, whole: list[list[Frame]], run_id: str) -> None:
    """Every cursor that was sent is accepted, and nothing else is."""
    for garbage in _NO_CURSORS:
        assert _refused(wire.cursor, garbage), (
            f"{wire.name}: {garbage[:40]!r} is accepted as a cursor"
        )
    if not wire.resumable:
        assert _refused(wire.cursor, "1"), f"{wire.name} cannot resume, but accepts cursors"
        return
    assert not _refused(wire.cursor, "0"), f"{wire.name} refuses '0', the start of a run"
    for place, frames in enumerate(whole, 1):
        for frame in frames:
            if text := cursor_of(frame):
                seq = in_run(wire, wire.cursor(text), run_id).seq
                assert seq == place, f"{wire.name}: event {place} has the cursor of event {seq}"


def _refused(cursor: Callable[[str], Cursor], text: str) -> bool:
    try:
        cursor(text)
    except InvalidCursor:
        return True
    return False


def _check_lines(wire: Format, whole: list[list[Frame]], recorded: list[Recorded]) -> None:
    """A format that sends the log's own bytes frames history as it frames new events."""
    if frames_lines(wire):
        for place in range(len(recorded)):
            first, last, epoch = place + 1, len(recorded), recorded[0].epoch
            publics = [event.public for event in recorded[place:]]
            joined = b"".join(frame for frames in whole[place:] for frame in frames)
            for raw in (b"\n".join(publics), framed(lines_place(epoch), first, publics)):
                lines = LogLines(first, last, epoch, raw)
                assert wire.frames(lines) == joined, f"{wire.name}: history after event {place}"


def _same(state: State, other: State) -> bool:
    return saved(state) == saved(other)


def _is_lines(wire: Format) -> bool:
    return wire.headers.get("content-type", "").partition(";")[0].strip() in LINE_TYPES


def _check_frames(wire: Format, frames: Sequence[Frame], where: str) -> None:
    if _is_lines(wire):
        _check_json_lines(wire, frames, where)
        return
    for frame in frames:
        assert frame.endswith(b"\n\n"), f"{wire.name}: {where}: a frame without an end: {frame!r}"
        found = SseParser().feed(frame)
        assert len(found) <= 1, f"{wire.name}: {where}: a frame with several events: {frame!r}"


def _check_json_lines(wire: Format, frames: Sequence[Frame], where: str) -> None:
    for frame in frames:
        assert frame.endswith(b"\n"), f"{wire.name}: {where}: a line without an end: {frame!r}"
        assert frame.count(b"\n") == 1, f"{wire.name}: {where}: a frame of several lines: {frame!r}"
        if frame != b"\n":  # an empty line is a heartbeat
            try:
                msgspec.json.decode(frame)
            except msgspec.DecodeError as error:
                raise AssertionError(f"{wire.name}: {where}: {error}: {frame!r}") from error
