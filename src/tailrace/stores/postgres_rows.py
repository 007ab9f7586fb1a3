"""Rows of PostgreSQL's `batches`: events one per line, with checksums.

What one flush wrote of one run is one row; the events stand one per line, as their JSON has no line
break.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

from tailrace.core.errors import StorageError
from tailrace.core.events import Lines

PACKED_BYTES = 256 * 1024
"""How large a row of an ended run gets: few rows to read, and none that is slow to send."""


class Row(NamedTuple):
    """What a row of `batches` holds of its events: one line each. Without private parts, null."""

    public: bytes
    private: bytes | None
    public_checksum: int
    private_checksum: int | None


def row_of(run_id: str, first_seq: int, publics: list[bytes], privates: list[bytes]) -> Row:
    """Consecutive events as one row; `StorageError` for what could not be read back as it is."""
    lines = len(publics) - 1
    public = b"\n".join(publics)
    private = b"\n".join(privates) if any(privates) else None
    # Events are JSON on one line. One that is not would shift the numbers of all that follow.
    if (
        lines < 0
        or len(privates) != len(publics)
        or public.count(b"\n") != lines
        or (private is not None and private.count(b"\n") != lines)
    ):
        raise StorageError(
            f"What run {run_id} shall hold at {first_seq} is not one line of JSON for each event"
            " and private part; encode them with encode_event and encode_private."
        )
    return Row(
        public,
        private,
        zlib.crc32(public),
        None if private is None else zlib.crc32(private),
    )


def lines_in(run_id: str, after: int, rows: list[Any]) -> list[Lines]:
    """The events in some rows, after a number."""
    found: list[Lines] = []
    for first_seq, epoch, public, checksum in rows:
        verify(run_id, first_seq, public, checksum)
        skipped = max(0, after + 1 - first_seq)
        found.append(Lines(first_seq + skipped, epoch, public.split(b"\n")[skipped:]))
    return found


def private_lines(private: bytes | None, count: int) -> list[bytes]:
    """The private parts of a row of so many events."""
    return [b""] * count if private is None else private.split(b"\n")


def packs(rows: list[Any]) -> list[tuple[int, int]]:
    """Which neighbours to join: the first numbers of the first and the last row of each pack."""
    found: list[list[int]] = []
    epoch = room = 0
    for row in rows:
        room -= row["size"]
        if found and row["epoch"] == epoch and room >= 0:
            found[-1].append(row["first_seq"])
        else:
            found.append([row["first_seq"]])
            epoch, room = row["epoch"], PACKED_BYTES - row["size"]
    return [(pack[0], pack[-1]) for pack in found if len(pack) > 1]


def verify(run_id: str, first_seq: int, stored: bytes, checksum: int) -> None:
    """Raise `StorageError` when a part of a row is not what was written."""
    if zlib.crc32(stored) != checksum:
        raise StorageError(
            f"The log of run {run_id} is damaged at event {first_seq}: its checksum does not fit."
            " Restore the database from a backup."
        )
