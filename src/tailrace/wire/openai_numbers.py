"""The `sequence_number` of a Responses frame: a cursor that needs no memory on the server.

    narrow            seq << 12 | mode << 10 | k
    wide    1 << 52 | seq << 24 | mode << 22 | k

`k` counts the frames of one event, or of one `open`. `mode` says how the reader came in:

    WHOLE    the stream from its first event on
    JOINED   the stream after `open`: it never showed what was superseded by then
    OPENING  the frames of `open` itself, at the state after event `seq`

`OPENING` owns the mode above it too, so that it has twice the room. A number belongs to one frame
only, because `k` never leaves its room: frames that do not fit get wide numbers. These are greater
than any narrow number, so a stream that has sent a wide number stays wide. Narrow numbers exist
because .NET clients read a 32-bit integer; they fit there for 500,000 events.
"""

from __future__ import annotations

from typing import NamedTuple

WHOLE, JOINED, OPENING = 0, 1, 2


class Numbering(NamedTuple):
    """Where the fields of a number stand."""

    flag: int
    shift: int

    def first(self, mode: int, seq: int = 0) -> int:
        """The number of the first frame of an event, or of an `open` after it."""
        return self.flag | seq << self.shift | mode << self.shift - 2

    def room(self, mode: int) -> int:
        """How many frames may follow each other from `first` on."""
        return 1 << self.shift - (1 if mode == OPENING else 2)


NARROW = Numbering(0, 12)
WIDE = Numbering(1 << 52, 24)

MANY_PARTS, MANY_ANNOTATIONS = 400, 900
"""Above these an item makes a stream wide: an event may then close or cite that many at once.

An event sends two frames for each part that it closes, and a frame for each annotation of a text
that comes whole. Up to these bounds, that and an item's own frames fit into the narrow room.
"""


class Place(NamedTuple):
    """What a cursor's `sub` says: the numbering, how the reader came in, the last frame it has."""

    numbering: Numbering
    mode: int
    k: int


def split(number: int) -> tuple[int, int]:
    """The event that a number belongs to, and the rest of it, which `place_of` reads."""
    numbering = WIDE if number & WIDE.flag else NARROW
    return (number & ~WIDE.flag) >> numbering.shift, number & (WIDE.flag | _mask(numbering))


def place_of(sub: int) -> Place:
    """Read what `split` left of a number."""
    numbering = WIDE if sub & WIDE.flag else NARROW
    low = sub & _mask(numbering)
    mode = min(low >> numbering.shift - 2, OPENING)
    return Place(numbering, mode, low - (mode << numbering.shift - 2))


def _mask(numbering: Numbering) -> int:
    return (1 << numbering.shift) - 1
