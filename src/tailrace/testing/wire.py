"""The kit that every wire format passes: live, resume, replay and late join are one mechanism.

    check_wire(FORMAT, events)

raises `AssertionError` that says at which event a format breaks its promise (`tailrace.wire.base`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.core.codec import encode_event
from tailrace.core.errors import IllegalEvent
from tailrace.core.events import AnyEvent, Recorded
from tailrace.core.fold import State
from tailrace.core.lines import Lines, framed
from tailrace.core.lines import place as lines_place
from tailrace.core.snapshot import fork, saved
from tailrace.core.sse import Parser
from tailrace.wire.base import Format, Frame, FramesLines


def encoded(wire: Format, events: Sequence[AnyEvent]) -> list[list[Frame]]:
    """What a format makes of a whole run: the frames of each event."""
    encoder = wire.at(State())
    return [encoder.encode(one) for one in as_recorded(events)]


def is_log(events: Sequence[AnyEvent]) -> bool:
    """Whether a log of ours can hold these events: numbered, and legal one after the other."""
    state = State()
    try:
        for event in events:
            state.apply(event)
    except IllegalEvent:
        return False
    return True


def as_recorded(events: Sequence[AnyEvent]) -> list[Recorded]:
    """Events as a log would give them back."""
    return [Recorded(event, encode_event(event)) for event in events]


def check_wire(wire: Format, events: Sequence[AnyEvent]) -> list[list[Frame]]:
    """Prove `encode(all)[n:] == at(fold(first n)).encode(rest)` at every n; the frames of all.

    Also: the state that is handed in is left alone, every frame is one server-sent event (or a
    comment), and `open` can be asked for at every place.
    """
    whole = encoded(wire, events)
    recorded = as_recorded(events)
    _check_lines(wire, whole, recorded)
    state = State()
    for place in range(len(recorded) + 1):
        before = fork(state)
        encoder = wire.at(state)
        for at, one in enumerate(recorded[place:], place):
            frames = encoder.encode(one)
            assert frames == whole[at], (
                f"{wire.name}: resumed after event {place}, event {at + 1} is encoded as\n"
                f"{frames}\ninstead of\n{whole[at]}\n{one.public!r}"
            )
        _, opening = wire.open(state)
        _check_frames(wire, opening, f"open after event {place}")
        assert _same(before, state), f"{wire.name} changed the state that it was given"
        if place < len(recorded):
            _check_frames(wire, whole[place], f"event {place + 1}")
            state.absorb(recorded[place].event)
    return whole


def _check_lines(wire: Format, whole: list[list[Frame]], recorded: list[Recorded]) -> None:
    """A format that frames history undecoded must frame it as it frames what is new."""
    if isinstance(wire, FramesLines):
        for place in range(len(recorded)):
            first, last, epoch = place + 1, len(recorded), recorded[0].epoch
            publics = [one.public for one in recorded[place:]]
            joined = b"".join(frame for frames in whole[place:] for frame in frames)
            for raw in (b"\n".join(publics), framed(lines_place(epoch), first, publics)):
                lines = Lines(first, last, epoch, raw)
                assert wire.frames(lines) == joined, f"{wire.name}: history after event {place}"


def _same(one: State, other: State) -> bool:
    return saved(one) == saved(other)


def _check_frames(wire: Format, frames: Sequence[Frame], where: str) -> None:
    for frame in frames:
        assert frame.endswith(b"\n\n"), f"{wire.name}: {where}: a frame without an end: {frame!r}"
        found = Parser().feed(frame)
        assert len(found) <= 1, f"{wire.name}: {where}: one frame, several events: {frame!r}"
