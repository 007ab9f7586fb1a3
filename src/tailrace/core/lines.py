"""Events in a row as a log keeps them: public JSON that nobody has looked into.

What a flush wrote are JSON lines. Rows that a store joins later are kept as the frames of the
native stream (PROTOCOL.md, section 9): whoever replays a run mostly passes them on as they are, and
splitting and framing them again would cost more than sending them. The first byte tells which.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain, islice, repeat

import msgspec

_END = b"\n\n"
_BLOCK = 1024


class Lines(msgspec.Struct, frozen=True, gc=False):
    """Events in a row, all of one epoch, for readers that only frame them."""

    first_seq: int
    last_seq: int
    epoch: int
    raw: bytes

    @property
    def framed(self) -> bool:
        """Whether `raw` can be sent as it is."""
        return self.raw.startswith(b"id: ")

    def publics(self) -> list[bytes]:
        """The events one by one."""
        if not self.framed:
            return self.raw.split(b"\n")
        # An event is one line, so only frames end in an empty one.
        frames = self.raw.split(_END)
        frames.pop()
        return [frame[frame.index(b"\n") + 7 :] for frame in frames]

    def last_public(self) -> bytes:
        """The last one of them."""
        if not self.framed:
            return self.raw[self.raw.rfind(b"\n") + 1 :]
        return self.raw[self.raw.rindex(b"\n", 0, -2) + 7 : -2]

    def after(self, seq: int) -> Lines:
        """Those with higher numbers, of which there must be one."""
        if seq < self.first_seq:
            return self
        if self.framed:
            mark = _END + _head(place(self.epoch)) % (seq + 1)
            raw = self.raw[self.raw.index(mark) + len(_END) :]
        else:
            raw = b"\n".join(self.raw.split(b"\n")[seq + 1 - self.first_seq :])
        return Lines(seq + 1, self.last_seq, self.epoch, raw)


def place(epoch: int) -> bytes:
    """What stands before the number in an event's id."""
    return b"%d-" % epoch


def template(where: bytes) -> bytes:
    """The frame of an event at some place, to be filled with its number and its JSON."""
    return _head(where) + b"%b" + _END


def _head(where: bytes) -> bytes:
    return b"id: %b%%d\ndata: " % where


def framed(where: bytes, first_seq: int, publics: list[bytes]) -> bytes:
    """The frames of events in a row, without a look at any."""
    blocks = range(first_seq // _BLOCK, (first_seq + len(publics)) // _BLOCK + 1)
    numbers = chain.from_iterable(map(_numbers, blocks))
    wanted = islice(numbers, first_seq % _BLOCK, None)
    begin = repeat(b"id: %b" % where)
    return b"".join(chain.from_iterable(zip(begin, wanted, publics, repeat(_END))))


@lru_cache(64)
def _numbers(block: int) -> list[bytes]:
    """What follows the place in a block of frames: the same for every run and reader, so kept."""
    return [b"%d\ndata: " % number for number in range(block * _BLOCK, (block + 1) * _BLOCK)]
