"""Consecutive events as a store holds them: public JSON, not decoded.

A flush writes JSON lines. Rows that a store joins later hold frames of the native stream
(PROTOCOL.md, section 9), which a replay sends unchanged. Splitting and framing would cost more than
sending. The first bytes tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, groupby, islice, repeat

import msgspec

from tailrace.core.json_pieces import PIECE_BYTES

READ_BYTES = 768 * 1024
"""Most bytes of one read of the log, plus one row: a stalled reader holds that much memory."""

_END = b"\n\n"
_BLOCK = 1024


class LogLines(msgspec.Struct, frozen=True, gc=False):
    """Consecutive events of one epoch, for readers that only frame them."""

    first_seq: int
    last_seq: int
    epoch: int
    raw: bytes

    @property
    def framed(self) -> bool:
        """Whether `raw` holds frames."""
        return self.raw.startswith(b"id: ")

    def publics(self) -> list[bytes]:
        """The public JSON of each event."""
        if not self.framed:
            return self.raw.split(b"\n")
        # An event is one line, so only frames end with an empty line.
        frames = self.raw.split(_END)
        frames.pop()
        return [frame[frame.index(b"\n") + 7 :] for frame in frames]

    def first_public(self) -> bytes:
        """The public JSON of the first event, without splitting the others."""
        start = self.raw.index(b"\n") + 7 if self.framed else 0
        end = self.raw.find(b"\n", start)
        return self.raw[start:] if end < 0 else self.raw[start:end]

    def last_public(self) -> bytes:
        """The public JSON of the last event."""
        if not self.framed:
            return self.raw[self.raw.rfind(b"\n") + 1 :]
        return self.raw[self.raw.rindex(b"\n", 0, -2) + 7 : -2]

    def after(self, seq: int) -> LogLines:
        """The events after `seq`; there must be an event after it."""
        if seq < self.first_seq:
            return self
        if self.framed:
            mark = _END + _head(lines_place(self.epoch)) % (seq + 1)
            raw = self.raw[self.raw.index(mark) + len(_END) :]
        else:
            raw = b"\n".join(self.raw.split(b"\n")[seq + 1 - self.first_seq :])
        return LogLines(seq + 1, self.last_seq, self.epoch, raw)


def lines_place(epoch: int) -> bytes:
    """The prefix of an event's id, before its seq."""
    return b"%d-" % epoch


def template(where: bytes) -> bytes:
    """The template of a frame, to fill with the seq and the JSON."""
    return _head(where) + b"%b" + _END


def _head(where: bytes) -> bytes:
    return b"id: %b%%d\ndata: " % where


def framed(where: bytes, first_seq: int, publics: list[bytes]) -> bytes:
    """The frames of consecutive events, which are not decoded."""
    blocks = range(first_seq // _BLOCK, (first_seq + len(publics)) // _BLOCK + 1)
    numbers = chain.from_iterable(map(_numbers, blocks))
    wanted = islice(numbers, first_seq % _BLOCK, None)
    begin = repeat(b"id: %b" % where)
    return b"".join(chain.from_iterable(zip(begin, wanted, publics, repeat(_END))))


def merged(rows: Iterable[LogLines]) -> Iterator[LogLines]:
    """The same events in fewer rows: adjacent JSON lines of one epoch are one row.

    Framing them together costs less, because where the numbers begin is found once. A row is made
    up to `PIECE_BYTES` so, plus one row.
    """
    for (_, are_frames), some in groupby(rows, lambda lines: (lines.epoch, lines.framed)):
        if are_frames:
            yield from some
            continue
        found: list[LogLines] = []
        size = 0
        for lines in some:
            found.append(lines)
            size += len(lines.raw)
            if size >= PIECE_BYTES:
                yield _as_one(found)
                found, size = [], 0
        if found:
            yield _as_one(found)


def _as_one(rows: list[LogLines]) -> LogLines:
    raw = b"\n".join([lines.raw for lines in rows])
    return LogLines(rows[0].first_seq, rows[-1].last_seq, rows[0].epoch, raw)


def joined_frames(rows: Iterable[LogLines]) -> bytes:
    """The frames of adjacent rows. Frames are taken as they are."""
    parts = [
        lines.raw
        if lines.framed
        else framed(lines_place(lines.epoch), lines.first_seq, lines.publics())
        for lines in merged(rows)
    ]
    return b"".join(parts)


@lru_cache(64)
def _numbers(block: int) -> list[bytes]:
    """The seqs of a block of frames. They are the same for every run, so they are cached."""
    return [b"%d\ndata: " % number for number in range(block * _BLOCK, (block + 1) * _BLOCK)]
