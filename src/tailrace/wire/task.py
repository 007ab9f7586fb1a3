"""The native format: the log's own bytes, framed. PROTOCOL.md, section 9."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tailrace.core import sse
from tailrace.core.errors import InvalidCursor
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.lines import Lines, framed, place, template
from tailrace.core.snapshot import save_pieces
from tailrace.wire.base import RETRY_MS, Cursor, Frame, whole_number


class TaskEncoder:
    """Frames events as they are; all it remembers is the epoch, which seldom changes."""

    __slots__ = ("_epoch", "_frame", "_ordinal")

    def __init__(self, ordinal: int | None = None) -> None:
        """For a run by itself, or for the run of this number in its thread."""
        self._epoch = -1
        self._frame = b""
        self._ordinal = ordinal

    def encode(self, recorded: Recorded) -> list[Frame]:
        """One event, one frame, whose id is the cursor after it.

        The log's JSON is always one line, so framing it takes no look at it.
        """
        if recorded.epoch != self._epoch:
            self._epoch = recorded.epoch
            self._frame = template(_place(self._ordinal, self._epoch))
        return [self._frame % (recorded.event.sequence_number, recorded.public)]

    def close(self, reason: str) -> list[Frame]:
        """Nothing: whoever is cut asks again with its cursor."""
        return []


class TaskFormat:
    """`task`: what our own clients read."""

    name = "task"
    headers: dict[str, str] = {}
    resumable = True
    stateful = False
    shows_attempts = True
    heartbeat: Frame = sse.comment("ping")
    _ordinal: int | None = None

    def preamble(self, retry_ms: int = RETRY_MS) -> bytes:
        """How long clients wait before they connect again."""
        return sse.retry(retry_ms)

    def at(self, state: State) -> TaskEncoder:
        """Any encoder will do: the format has no memory."""
        return TaskEncoder(self._ordinal)

    def open(self, state: State, epoch: int = 1) -> tuple[TaskEncoder, list[Frame]]:
        """One snapshot frame holds it all."""
        return self.at(state), [b"".join(self.opening(state, epoch))]

    def opening(self, state: State, epoch: int = 1) -> Iterator[bytes]:
        """The frame of `open` in pieces, which are encoded when they are asked for."""
        frame = self._frame(state, epoch, {"type": "task.snapshot"}, {"state": None})
        head, _, end = frame.rpartition(b"null")
        yield head
        yield from save_pieces(state)
        yield end

    def frames(self, lines: Lines) -> bytes:
        """Frames of many events; what the log keeps as frames is sent as it is."""
        if self._ordinal is None and lines.framed:
            return lines.raw
        return framed(_place(self._ordinal, lines.epoch), lines.first_seq, lines.publics())

    def gap(self, state: State, epoch: int, reason: str) -> Frame:
        """What a client is told whose cursor the log cannot serve.

        It is no cursor where a snapshot follows: who is cut in between needs that snapshot.
        """
        frame = self._frame(state, epoch, {"type": "task.gap"}, {"reason": reason})
        return frame if state.root is None else frame.partition(b"\n")[2]

    def in_thread(self, ordinal: int) -> TaskInThread:
        """The same events with a thread's cursors."""
        return TaskInThread(ordinal)

    def cursor(self, text: str) -> Cursor:
        """`epoch-seq`, or `0` for the start."""
        if text == "0":
            return Cursor(0)
        epoch, dash, seq = text.partition("-")
        if not dash:
            raise InvalidCursor(f"{text[:40]!r} is no cursor; send the last id that you received.")
        return Cursor(whole_number(seq), epoch=whole_number(epoch))

    def _frame(
        self, state: State, epoch: int, head: dict[str, object], tail: dict[str, object]
    ) -> Frame:
        root = state.root
        number = state.sequence_number
        body = {
            **head,
            "task_id": root.task_id if root is not None else "",
            "sequence_number": number,
            **tail,
        }
        data = msgspec.json.encode(body)
        return template(_place(self._ordinal, epoch)) % (number, data)


class TaskInThread(TaskFormat):
    """The run of one number in its thread: ids are `ordinal:seq`."""

    name = "task in thread"

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal

    def preamble(self, retry_ms: int = RETRY_MS) -> bytes:
        """Nothing: the thread's stream has sent it."""
        return b""

    def cursor(self, text: str) -> Cursor:
        """`seq`; a thread's cursor has no epoch."""
        return Cursor(whole_number(text))


def _place(ordinal: int | None, epoch: int) -> bytes:
    """What stands before the number in an id."""
    return place(epoch) if ordinal is None else b"%d:" % ordinal


FORMAT = TaskFormat()
