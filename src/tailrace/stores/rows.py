"""Rows of the table `batches`: consecutive events of one run and one epoch, with checksums.

A flush writes one row per run, because a row costs the same with one event or a hundred. Events and
private parts are JSON lines. Rows that are joined later hold frames of the native stream instead
(`tailrace.core.log_lines`). Large joined rows, and all rows of an ended run, are also compressed
with zstd. Events repeat the same names, so they shrink to a twentieth. Unpacking costs less than
reading the pages that are saved. The row of a short run is made dense before (see
`tailrace.stores.dense_rows`).
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import zstandard

from tailrace.core.errors import StorageError
from tailrace.core.log_lines import LogLines, joined_frames
from tailrace.ports import Trimmed
from tailrace.stores import dense_rows

EVENTS_AT_ONCE = 10_000
"""Most events that `state_source` returns."""

JOINED_BYTES = 192 * 1024
"""Size of joined rows: few rows for a replay, little to skip for a cursor inside a row."""

SNAPSHOT_EVENTS = 4096
"""Of the snapshots within so many events only the last is kept when rows are joined. The others
together may be larger than the log, and so few events are folded quickly."""

ZSTD_LEVEL = 1
"""Higher levels take up to ten times as long, and save nothing on events."""

PACKED_BYTES = 64 * 1024
"""A joined row of this size is compressed while its run goes on. Smaller rows are joined again."""

LONE_BYTES = 4096
"""A row without neighbours to join is compressed from this size on: a page of the database."""

DENSE_BYTES = JOINED_BYTES // 2
"""The frames of an ended run are made dense below this size. Compressed, they are a few pages or
less, and the unused part of the last page counts for much. Reading a dense row takes twice as long,
so the rows of a long run are not dense."""

DENSE_FROM = "dense rows"
"""A database that an older version has used has this name in the table `used` for a day after its
migration. Meanwhile no dense rows are written: older processes may still run, and cannot read them.
A newly made database does not have it."""


_of_thread = threading.local()


class Row(NamedTuple):
    """A row, columns in this order. `private` is null if no event has a private part.

    `unpacked` is the size of `public` before both parts were compressed; null if they are not. The
    checksums are those of the stored bytes.
    """

    run_id: str
    first_seq: int
    last_seq: int
    epoch: int
    public: bytes
    private: bytes | None
    public_checksum: int
    private_checksum: int | None
    unpacked: int | None = None

    def verify(self) -> None:
        """Raise `StorageError` if a checksum is wrong."""
        verify(self.run_id, self.first_seq, self.public, self.public_checksum)
        if self.private is not None:
            verify(self.run_id, self.first_seq, self.private, self.private_checksum)

    def lines(self) -> LogLines:
        """The public JSON of all events."""
        return lines_of(self.first_seq, self.last_seq, self.epoch, self.public, self.unpacked)

    def publics(self) -> list[bytes]:
        """The public JSON of each event."""
        return self.lines().publics()

    def privates(self) -> list[bytes]:
        """The private part of each event."""
        if self.private is None:
            return [b""] * (self.last_seq - self.first_seq + 1)
        return plain(self.private, self.unpacked).split(b"\n")


as_row: Callable[[Any], Row] = partial(tuple.__new__, Row)
"""Values as a row: `Row._make` without a call of Python, for what is done for every event."""


def verify(run_id: str, first_seq: int, stored: bytes, checksum: int | None) -> None:
    """Raise `StorageError` if the checksum of a row's part is wrong."""
    if zlib.crc32(stored) != checksum:
        raise StorageError(
            f"The log of run {run_id} is damaged at event {first_seq}: the checksum is wrong."
            " Restore the database from a backup."
        )


def plain(part: bytes, unpacked: int | None) -> bytes:
    """A row's part as it was before it was compressed; not for the public part of a dense row."""
    return part if unpacked is None else _decompressor().decompress(part)


def lines_of(
    first_seq: int, last_seq: int, epoch: int, public: bytes, unpacked: int | None
) -> LogLines:
    """The events of a row in any form."""
    if unpacked is not None and public.startswith(dense_rows.MARK):
        raw = plain(public[len(dense_rows.MARK) :], unpacked)
        return LogLines(first_seq, last_seq, epoch, dense_rows.unpack(raw, first_seq, epoch))
    return LogLines(first_seq, last_seq, epoch, plain(public, unpacked))


def _decompressor() -> zstandard.ZstdDecompressor:
    """The decompressor of this thread. A new decompressor takes as long as 16 KiB of frames."""
    found: zstandard.ZstdDecompressor | None = getattr(_of_thread, "decompressor", None)
    if found is None:
        found = _of_thread.decompressor = zstandard.ZstdDecompressor()
    return found


def lines_in(
    run_id: str,
    after: int,
    first_seq: int,
    last_seq: int,
    epoch: int,
    public: bytes,
    checksum: int,
    unpacked: int | None,
) -> LogLines:
    """The events after `after` of a row, from some of its columns."""
    verify(run_id, first_seq, public, checksum)
    return lines_of(first_seq, last_seq, epoch, public, unpacked).after(after)


def trimmed(run_id: str, up_to: int) -> Trimmed:
    """The error for a reader whose events retention deleted."""
    return Trimmed(
        f"The events of run {run_id} up to {up_to} are deleted. Read its final state instead."
    )


def row_of(
    run_id: str, first_seq: int, epoch: int, publics: list[bytes], privates: list[bytes]
) -> Row:
    """A batch as a row; `StorageError` if an event is not one line."""
    public = b"\n".join(publics)
    private = b"\n".join(privates) if any(privates) else None
    # An event that is not one line would shift the numbers of all that follow.
    breaks = len(publics) - 1
    if (
        breaks < 0
        or len(privates) != len(publics)
        or public.count(b"\n") != breaks
        or (private is not None and private.count(b"\n") != breaks)
    ):
        raise StorageError(
            f"The batch of run {run_id} at event {first_seq} is not one line of JSON for each event"
            " and private part. Encode them with encode_event and encode_private."
        )
    checksum = zlib.crc32(private) if private is not None else None
    last_seq = first_seq + breaks
    return as_row(
        (run_id, first_seq, last_seq, epoch, public, private, zlib.crc32(public), checksum, None)
    )


def joined(rows: list[Row], *, ended: bool, make_dense: bool = False) -> Row:
    """Adjacent rows as one, compressed if it is large or the run has ended.

    If the run has ended, `make_dense` lets a short row be dense. Verifies the rows: damaged bytes
    must not get a valid checksum.
    """
    _verify(rows)
    first = rows[0]
    lines = [row.lines() for row in rows]
    frames = joined_frames(lines)
    private = _lines([line for row in rows for line in row.privates()])
    place = (first.run_id, first.first_seq, rows[-1].last_seq, first.epoch)
    whole = _row(*place, frames, private)
    if ended and make_dense and len(frames) < DENSE_BYTES:
        publics = [public for some in lines for public in some.publics()]
        return _packed(whole, dense_rows.pack(first.first_seq, publics))
    return _packed(whole) if ended or len(frames) >= PACKED_BYTES else whole


def gathered(rows: list[Row], *, verified: bool = False) -> Row:
    """Adjacent rows of JSON lines as one row: of such lines if it is small, else as `joined`."""
    if sum([len(row.public) for row in rows]) >= PACKED_BYTES:
        return joined(rows, ended=False)
    if not verified:
        _verify(rows)
    first = rows[0]
    public = b"\n".join([row.public for row in rows])
    private = None
    if any(row.private is not None for row in rows):
        private = _lines([line for row in rows for line in row.privates()])
    return _row(first.run_id, first.first_seq, rows[-1].last_seq, first.epoch, public, private)


def _verify(rows: list[Row]) -> None:
    """Check the bytes of rows, and that no event is missing between them."""
    crc32, expected = zlib.crc32, rows[0].first_seq
    for row in rows:  # mostly one event each, so every step counts
        _, first_seq, last_seq, _, public, private, checksum, _, _ = row
        if crc32(public) != checksum or private is not None:
            row.verify()
        if first_seq != expected:
            raise StorageError(
                f"Run {row.run_id}: event {first_seq} does not follow {expected - 1}, so their rows"
                " are not joined."
            )
        expected = last_seq + 1


def _packed(row: Row, short: bytes | None = None) -> Row:
    """A row, compressed; `short` are its events in the dense form."""
    if short is None:
        public = zstandard.compress(row.public, ZSTD_LEVEL)
    else:
        public = dense_rows.MARK + zstandard.compress(short, ZSTD_LEVEL)
    private = zstandard.compress(row.private, ZSTD_LEVEL) if row.private is not None else None
    return row._replace(
        public=public,
        private=private,
        public_checksum=zlib.crc32(public),
        private_checksum=zlib.crc32(private) if private is not None else None,
        unpacked=len(row.public),
    )


def _row(
    run_id: str, first_seq: int, last_seq: int, epoch: int, public: bytes, private: bytes | None
) -> Row:
    checksum = zlib.crc32(private) if private is not None else None
    return Row(run_id, first_seq, last_seq, epoch, public, private, zlib.crc32(public), checksum)


def _lines(privates: list[bytes]) -> bytes | None:
    """Private parts as lines; None if no event has a private part."""
    return b"\n".join(privates) if any(privates) else None


def packs(
    sizes: Iterable[tuple[int, int, int, int | None]], *, ended: bool
) -> list[tuple[int, int]]:
    """Which adjacent rows to join: (first_seq of the first row, first_seq of the last row).

    `sizes` has (first_seq, last_seq, epoch, bytes) of each row, in order; the bytes are None for a
    compressed row, which stays as it is. Rows with a hole between them are not joined: the events
    there may be in another table still. If the run has ended, a large row is taken alone as well.
    """
    found: list[list[int]] = []
    large: set[int] = set()
    known, room = (-1, -1), 0
    for first_seq, last_seq, epoch, size in sizes:
        if size is None:
            known = (-1, -1)
            continue
        if size >= LONE_BYTES:
            large.add(first_seq)
        room -= size
        if (epoch, first_seq) == known and room >= 0:
            found[-1].append(first_seq)
        else:
            found.append([first_seq])
            room = JOINED_BYTES - size
        known = (epoch, last_seq + 1)
    return [(pack[0], pack[-1]) for pack in found if len(pack) > 1 or (ended and pack[0] in large)]
