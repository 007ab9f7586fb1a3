"""Decides where in the log a client's cursor stands, and whether the log can go on there.

A run's cursor is its format's own. A thread's cursor is `ordinal:` and the cursor of that run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tailrace.core.errors import InvalidCursor, UnknownCursor
from tailrace.core.fold import State
from tailrace.ports import EventLog, RunInfo, Trimmed
from tailrace.runtime.runs.all_runs import Runs
from tailrace.wire.base import (
    MAX_CURSOR,
    START,
    Cursor,
    Encoder,
    Format,
    Frame,
    InsideEvents,
    ReportsGaps,
    ThreadFormat,
    in_run,
    invalid_cursor,
    whole_number,
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


def after_state(state: State, encoder: Encoder, frames: list[Frame]) -> ResumePoint:
    """The point after a state that was just read from the log, and frames to send first."""
    return ResumePoint(Cursor(state.sequence_number), inside=(encoder, frames))


@contextmanager
def naming(param: str, text: str | None = None, pattern: str | None = None) -> Iterator[None]:
    """Let the error of a cursor name the header or the parameter that it came in.

    A refused text that fits the pattern of cursors is a cursor of another stream.
    """
    try:
        yield
    except InvalidCursor as error:
        is_cursor = pattern is not None and re.fullmatch(pattern, text or "")
        kind = UnknownCursor if is_cursor else InvalidCursor
        raise kind(str(error), param=param) from error


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


class ThreadCursor(NamedTuple):
    """The run's number in the thread, and the cursor inside that run."""

    ordinal: int
    cursor: Cursor


def read_thread_cursor(wire: ThreadFormat, text: str) -> ThreadCursor | None:
    """Read a client's cursor; None is the start. `0:0` is the id of a gap before the first run."""
    if text in ("0", "0:0"):
        return None
    ordinal, colon, rest = text.partition(":")
    if not colon or ordinal == "0":
        raise invalid_cursor(text)
    number = whole_number(ordinal)
    return ThreadCursor(number, wire.in_thread(number).cursor(rest))


async def thread_point(
    runs: Runs, wire: ThreadFormat, thread_id: str, cursor: ThreadCursor, newest: RunInfo | None
) -> tuple[ThreadCursor | None, bytes]:
    """Where in the thread to begin, and a gap frame to send before it.

    A client whose cursor names a run that never existed continues at the newest run.
    """
    if newest is not None and cursor.ordinal <= newest.ordinal:
        return cursor, b""
    last = await runs.last_ordinal(thread_id)
    if cursor.ordinal <= last:  # a run that was deleted
        return cursor, b""
    if newest is None:
        return None, wire.in_thread(last).gap(State(), 0, "beyond_end", thread_id)
    # This cursor is beyond the run's end, so the run's stream sends a gap and its state.
    return ThreadCursor(newest.ordinal, Cursor(MAX_CURSOR)), b""
