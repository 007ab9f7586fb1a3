"""The native format: the log's own bytes, framed. PROTOCOL.md, section 9."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tailrace.core import sse
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.log_lines import LogLines, framed, lines_place, template
from tailrace.core.snapshot import save_pieces
from tailrace.wire.base import (
    RETRY_MS,
    Cursor,
    DefaultFormat,
    Frame,
    event_cursor,
)


class TaskGap(msgspec.Struct, kw_only=True, tag_field="type", tag="task.gap"):
    """The log does not have the events before this place; a snapshot may follow.

    It is a frame of the stream, not an event of the log.
    """

    task_id: str
    sequence_number: int
    reason: str


class TaskSnapshot(msgspec.Struct, kw_only=True, tag_field="type", tag="task.snapshot"):
    """The state after an event (PROTOCOL.md, section 6), which replaces the client's."""

    task_id: str
    sequence_number: int
    state: dict[str, Any]


class TaskEncoder:
    """Frames events as they are. It keeps the epoch, which seldom changes."""

    __slots__ = ("_epoch", "_frame", "_ordinal")

    def __init__(self, ordinal: int | None = None) -> None:
        """For a run, or for the run with this number in its thread."""
        self._epoch = -1
        self._frame = b""
        self._ordinal = ordinal

    def encode(self, recorded: Recorded) -> list[Frame]:
        """The frame of an event; its id is the cursor after the event.

        The log's JSON is always a single line, so it is framed unread.
        """
        if recorded.epoch != self._epoch:
            self._epoch = recorded.epoch
            self._frame = template(_place(self._ordinal, self._epoch))
        return [self._frame % (recorded.event.sequence_number, recorded.public)]

    def close(self, reason: str) -> list[Frame]:
        """Nothing: the client reconnects with its cursor."""
        return []


class TaskFormat(DefaultFormat):
    """`task`: for Tailrace's own clients."""

    name = "task"
    stateful = False
    shows_attempts = True
    _ordinal: int | None = None

    def preamble(self, retry_ms: int = RETRY_MS) -> bytes:
        """How long clients wait before they reconnect."""
        return sse.retry(retry_ms)

    def at(self, state: State) -> TaskEncoder:
        """An encoder; the state does not matter."""
        return TaskEncoder(self._ordinal)

    def open(self, state: State, epoch: int = 1) -> tuple[TaskEncoder, list[Frame]]:
        """A single frame with a snapshot of the state."""
        return self.at(state), [b"".join(self._opening(state, epoch))]

    def open_in_pieces(self, state: State, epoch: int = 1) -> tuple[TaskEncoder, Iterator[bytes]]:
        """The frame of `open` in pieces, each encoded when it is needed."""
        return self.at(state), self._opening(state, epoch)

    def _opening(self, state: State, epoch: int) -> Iterator[bytes]:
        head, end = self._around_state(_task_id(state), state.sequence_number, epoch)
        yield head
        yield from save_pieces(state)
        yield end

    def open_saved(self, run_id: str, seq: int, epoch: int, saved: list[bytes]) -> list[bytes]:
        """The frame of `open`, with a state as the store has it."""
        head, end = self._around_state(run_id, seq, epoch)
        return [head, *saved, end]

    def _around_state(self, task_id: str, seq: int, epoch: int) -> tuple[bytes, bytes]:
        frame = self._frame(epoch, TaskSnapshot(task_id=task_id, sequence_number=seq, state={}))
        head, _, end = frame.rpartition(b"{}")
        return head, end

    def frames(self, lines: LogLines) -> bytes:
        """The frames of many events. Frames that the log stores are sent unchanged.

        Events are not decoded, which would take longer than the rest of a replay. A malformed event
        is sent as it is stored.
        """
        if self._ordinal is None and lines.framed:
            return lines.raw
        return framed(_place(self._ordinal, lines.epoch), lines.first_seq, lines.publics())

    def gap(self, state: State, epoch: int, reason: str, thread_id: str = "") -> Frame:
        """`task.gap`, without an id where a snapshot follows.

        A client that is cut before the snapshot must not resume behind it.
        """
        number = state.sequence_number
        gap = TaskGap(task_id=_task_id(state), sequence_number=number, reason=reason)
        frame = self._frame(epoch, gap)
        data = frame.partition(b"\n")[2]
        return data if state.root is not None else b"id: %b0\n%b" % (_run(self._ordinal), data)

    def in_thread(self, ordinal: int) -> TaskInThread:
        """The same events with a thread's cursors."""
        return TaskInThread(ordinal)

    def cursor(self, text: str) -> Cursor:
        """`epoch-seq`, or `0` for the start."""
        return event_cursor(text)

    def _frame(self, epoch: int, body: TaskGap | TaskSnapshot) -> Frame:
        data = msgspec.json.encode(body)
        return template(_place(self._ordinal, epoch)) % (body.sequence_number, data)


class TaskInThread(TaskFormat):
    """A run of a thread: ids are `ordinal:epoch-seq`."""

    name = "task in thread"

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal

    def preamble(self, retry_ms: int = RETRY_MS) -> bytes:
        """Nothing: the thread's stream has sent it."""
        return b""


def _task_id(state: State) -> str:
    return state.root.task_id if state.root is not None else ""


def _place(ordinal: int | None, epoch: int) -> bytes:
    """The part of an id before the event's number."""
    return _run(ordinal) + lines_place(epoch)


def _run(ordinal: int | None) -> bytes:
    """The part of an id that names the run in its thread."""
    return b"" if ordinal is None else b"%d:" % ordinal


FORMAT = TaskFormat()
