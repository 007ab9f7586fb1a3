"""Decides where in the log a client's cursor stands, and whether the log can go on there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tailrace.core.errors import InvalidCursor
from tailrace.ports import EventLog, Trimmed
from tailrace.runtime.runs import Runs
from tailrace.wire.base import (
    START,
    Cursor,
    Encoder,
    Format,
    Frame,
    InsideEvents,
    ReportsGaps,
    in_run,
)


class ResumePoint(NamedTuple):
    """A cursor, checked against the log."""

    cursor: Cursor
    gap: str | None = None
    """Why the log cannot go on after the cursor (PROTOCOL.md, section 9); None if it can."""
    is_end: bool = False
    """Whether the run has ended there, so that nothing follows."""
    inside: tuple[Encoder, list[Frame]] | None = None
    """For a cursor inside an event: an encoder for the next event, and the event's other frames."""


@contextmanager
def naming(param: str) -> Iterator[None]:
    """Let the error of a cursor name the header or the parameter that it came in."""
    try:
        yield
    except InvalidCursor as error:
        error.param = param
        raise


async def resume_point(
    runs: Runs, wire: Format, run_id: str, cursor: Cursor | None
) -> ResumePoint | None:
    """Check a cursor once; None is the start of the run.

    Raises `InvalidCursor` if the log cannot go on there and the format cannot show a gap.
    """
    if cursor is None or cursor == START:
        return None
    cursor = in_run(wire, cursor, run_id)
    try:
        point = await _find(runs, wire, run_id, cursor)
    except Trimmed:
        point = ResumePoint(cursor, "trimmed")
    if point.gap is not None and not isinstance(wire, ReportsGaps):
        raise InvalidCursor(
            f"The run cannot be resumed after this cursor ({point.gap});"
            " start again without a cursor."
        )
    return point


async def _find(runs: Runs, wire: Format, run_id: str, cursor: Cursor) -> ResumePoint:
    info = await runs.info(run_id)
    if cursor.seq == 0:
        return ResumePoint(cursor, "unknown")
    if cursor.epoch is not None and cursor.epoch > info.epoch:
        return ResumePoint(cursor, "epoch")
    if cursor.seq > info.last_seq:
        return ResumePoint(cursor, "beyond_end")
    next_seq = cursor.seq + 1 if cursor.sub is None else cursor.seq
    if next_seq <= info.trimmed_to:
        return ResumePoint(cursor, "trimmed")
    if cursor.epoch is not None:
        # The cursor may be of another run. Or a power cut took its event, and a later writer
        # stored another event with the same number.
        epoch = await _epoch_at(runs.store, run_id, cursor.seq)
        if epoch is None:
            epoch = info.epoch  # retention took the run's last event, which its last writer wrote
        if epoch != cursor.epoch:
            return ResumePoint(cursor, "epoch")
    if cursor.sub is None or not isinstance(wire, InsideEvents):
        is_end = info.ended_at is not None and cursor.seq == info.last_seq
        return ResumePoint(cursor, is_end=is_end)
    before = await runs.reader.state(run_id, cursor.seq - 1)
    event = (await runs.store.read(run_id, cursor.seq - 1, limit=1))[0]
    try:
        return ResumePoint(cursor, inside=wire.resume(before, event, cursor))
    except InvalidCursor:
        return ResumePoint(cursor, "unknown")


async def _epoch_at(log: EventLog, run_id: str, seq: int) -> int | None:
    """The epoch of the writer of event `seq`; None if the log no longer has the event."""
    try:
        found = await log.read_lines(run_id, seq - 1, 1)
    except Trimmed:
        return None
    return found[0].epoch if found and found[0].first_seq == seq else None
