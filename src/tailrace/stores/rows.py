"""Rows of a store's `batches`: consecutive events of one run and one epoch, with checksums.

What one flush wrote of one run is one row, because a row costs the same whether it holds one event
or a hundred. Its events and their private parts stand one per line: their JSON has no line break.
Rows that are joined later hold the frames of the native stream instead (`tailrace.core.lines`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from tailrace.core.errors import StorageError
from tailrace.core.lines import Lines, framed, place
from tailrace.core.pieces import PIECE_BYTES
from tailrace.ports import Trimmed

READ_BYTES = PIECE_BYTES
"""How much one read brings at most (and one row): a stalled reader holds that much."""

EVENTS_AT_ONCE = 10_000
"""How many events of a run one look at its state brings at most."""

PACKED_BYTES = 256 * 1024
"""How large joined rows get: few rows to replay a run, little to skip for a cursor in one."""


class Row(NamedTuple):
    """A row, with the columns in this order. Without private parts, `private` is null."""

    run_id: str
    first_seq: int
    last_seq: int
    epoch: int
    public: bytes
    private: bytes | None
    public_checksum: int
    private_checksum: int | None

    def verify(self) -> None:
        """Raise `StorageError` when the bytes are not those that were written."""
        verify(self.run_id, self.first_seq, self.public, self.public_checksum)
        if self.private is not None:
            verify(self.run_id, self.first_seq, self.private, self.private_checksum)

    def publics(self) -> list[bytes]:
        """The events one by one."""
        return Lines(self.first_seq, self.last_seq, self.epoch, self.public).publics()

    def privates(self) -> list[bytes]:
        """The private parts, one for each event."""
        if self.private is None:
            return [b""] * (self.last_seq - self.first_seq + 1)
        return self.private.split(b"\n")


def verify(run_id: str, first_seq: int, stored: bytes, checksum: int | None) -> None:
    """Raise `StorageError` when a part of a row is not what was written."""
    if zlib.crc32(stored) != checksum:
        raise StorageError(
            f"The log of run {run_id} is damaged at event {first_seq}: its checksum does not fit."
            " Restore the database from a backup."
        )


def lines_in(run_id: str, after: int, *columns: Any) -> Lines:
    """The events after a number in a row that holds some, of which it has read these columns:
    first and last number, epoch, public part and its checksum."""
    lines = Lines(*columns[:-1])
    verify(run_id, lines.first_seq, lines.raw, columns[-1])
    return lines.after(after)


def trimmed(run_id: str, up_to: int) -> Trimmed:
    """What a reader is told who comes too late."""
    return Trimmed(
        f"The events of run {run_id} up to {up_to} are no longer kept; read its final state"
        " instead."
    )


def row_of(
    run_id: str, first_seq: int, epoch: int, publics: list[bytes], privates: list[bytes]
) -> Row:
    """A batch as a row; `StorageError` for what could not be read back as it is."""
    row = _row(run_id, first_seq, epoch, b"\n".join(publics), privates)
    # An event that is not one line would shift the numbers of all that follow.
    breaks = len(publics) - 1
    if (
        breaks < 0
        or len(privates) != len(publics)
        or row.public.count(b"\n") != breaks
        or (row.private is not None and row.private.count(b"\n") != breaks)
    ):
        raise StorageError(
            f"What run {run_id} shall hold at {first_seq} is not one line of JSON for each event"
            " and private part; encode them with encode_event and encode_private."
        )
    return row


def joined(rows: list[Row]) -> Row:
    """Neighbours as one row; damage must not get a new checksum that fits."""
    for row in rows:
        row.verify()
    first = rows[0]
    publics = [line for row in rows for line in row.publics()]
    privates = [line for row in rows for line in row.privates()]
    frames = framed(place(first.epoch), first.first_seq, publics)
    return _row(first.run_id, first.first_seq, first.epoch, frames, privates)


def _row(run_id: str, first_seq: int, epoch: int, public: bytes, privates: list[bytes]) -> Row:
    private = b"\n".join(privates) if any(privates) else None
    return Row(
        run_id,
        first_seq,
        first_seq + len(privates) - 1,
        epoch,
        public,
        private,
        zlib.crc32(public),
        zlib.crc32(private) if private is not None else None,
    )


def packs(sizes: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Which neighbours to join: the first numbers of the first and the last row of each pack.

    Of each row, in order, its first number, its epoch and its size.
    """
    found: list[list[int]] = []
    known = room = 0
    for first_seq, epoch, size in sizes:
        room -= size
        if found and epoch == known and room >= 0:
            found[-1].append(first_seq)
        else:
            found.append([first_seq])
            known, room = epoch, PACKED_BYTES - size
    return [(pack[0], pack[-1]) for pack in found if len(pack) > 1]
