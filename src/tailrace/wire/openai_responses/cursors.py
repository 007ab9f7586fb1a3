"""The `sequence_number` of a Responses frame: a cursor without server state.

    narrow            offset + seq << 12 | mode << 10 | spread + k
    wide    1 << 52 | offset + seq << 24 | mode << 22 | spread + k

`k` counts the frames of an event, or of `open`. `offset` differs from run to run, `spread` from
epoch to epoch. A number of another run is refused, because its `seq` is nearly always out of
range. So is a number of another epoch, because of its `k`. `mode` is how the client connected:

    WHOLE    the stream from its first event on
    JOINED   the stream after `open`, which left out items that were superseded by then
    OPENING  the frames of `open` itself, at the state after event `seq`

`OPENING` also uses the next mode's numbers, so it has twice the room. Each number belongs to a
single frame, because `k` never exceeds its room: frames that do not fit get wide numbers. Wide
numbers are greater than all narrow numbers, so a stream that has sent a wide number stays wide.
The last number of an event, and of `WHOLE`, belongs to no frame: it is the place after all of
them, in any epoch.
Narrow numbers exist for .NET clients, which read a 32-bit integer: 260,000 events always fit.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

WHOLE, JOINED, OPENING = 0, 1, 2

SPREADS = 512


def offset(run_id: str) -> int:
    """What is added to the seqs of a run, 18 bits. The run's epochs depend on the other bits."""
    return zlib.crc32(run_id.encode()) >> 14


def spread(epoch: int) -> int:
    """Where the numbers of an epoch's frames begin; those of the next epoch begin 61 later."""
    return (epoch - 1) * 61 % SPREADS


class Numbering(NamedTuple):
    """The layout of a number."""

    flag: int
    shift: int

    def first(self, mode: int, epoch: int, seq: int = 0) -> int:
        """The number of the first frame of an event, or of an `open` after it."""
        return self.flag | seq << self.shift | mode << self.shift - 2 | spread(epoch)

    def last(self, mode: int, seq: int) -> int:
        """The number after all frames of an event, for an error that ends the stream there.

        It keeps the mode `WHOLE`, so that a resumed stream has the numbers of a replay.
        """
        return self.flag | seq << self.shift | (_whole(self) if mode == WHOLE else _mask(self))

    def room(self, mode: int) -> int:
        """How many frames have numbers, from `first` on."""
        return (1 << self.shift - (1 if mode == OPENING else 2)) - SPREADS


NARROW = Numbering(0, 12)
WIDE = Numbering(1 << 52, 24)

MANY_PARTS, MANY_ANNOTATIONS = 200, 450
"""An item with more parts or annotations makes its stream wide.

An event may close all parts of an item, with two frames each, or add a text with all annotations,
with a frame each. Up to these bounds the frames fit into the narrow room.
"""


class FramePlace(NamedTuple):
    """The content of a cursor's `sub`: the numbering, the mode, the last frame received.

    `k` is negative, or beyond the event's frames, if the cursor is of another epoch.
    """

    numbering: Numbering
    mode: int
    k: int
    is_last: bool = False
    """Whether it is after all frames of its event (`Numbering.last`)."""


def split(number: int) -> tuple[int, int]:
    """Split a number into its event, with the run's offset, and a `sub`, which `place_of` reads."""
    numbering = WIDE if number & WIDE.flag else NARROW
    return (number & ~WIDE.flag) >> numbering.shift, number & (WIDE.flag | _mask(numbering))


def place_of(sub: int, epoch: int) -> FramePlace:
    """Read the `sub` of a number, of a frame of this epoch."""
    numbering = WIDE if sub & WIDE.flag else NARROW
    low = sub & _mask(numbering)
    mode = min(low >> numbering.shift - 2, OPENING)
    k = low - (mode << numbering.shift - 2) - spread(epoch)
    return FramePlace(numbering, mode, k, low in (_whole(numbering), _mask(numbering)))


def _whole(numbering: Numbering) -> int:
    return (1 << numbering.shift - 2) - 1


def _mask(numbering: Numbering) -> int:
    return (1 << numbering.shift) - 1
