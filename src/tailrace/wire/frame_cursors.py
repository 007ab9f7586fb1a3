"""Cursors of single frames, for formats in which an event may become several frames.

A frame's id is `epoch-seq` after the last frame of an event, and `epoch-seq.k` after its k-th
frame. After the k-th frame of `open`, at the state after that event, it is `epoch-seq.ok`. `epoch`
belongs to the writer of the event. In a thread's stream `ordinal:` stands before it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, Protocol, Self, TypeVar

from tailrace.core import sse
from tailrace.core.errors import InvalidCursor
from tailrace.core.events import Recorded
from tailrace.core.fold import State
from tailrace.core.log_lines import lines_place
from tailrace.wire.base import (
    RETRY_MS,
    Cursor,
    DefaultFormat,
    Encoder,
    Frame,
    event_cursor,
    invalid_cursor,
    whole_number,
)

OPENING = 1 << 32
"""Added to the number of a frame of `open`, so that it differs from a frame inside an event."""


class FrameCursorEncoder(Encoder, Protocol):
    """An encoder of a format with these cursors."""

    def opening(self, epoch: int) -> list[Frame]:
        """The frames that bring an empty client to the state.

        `epoch` belongs to the writer of the state's last event.
        """

    def opening_in_pieces(self, epoch: int) -> Iterator[bytes]:
        """The bytes of `opening`. Frames that repeat a long text share the bytes of the text."""

    def gap(self, reason: str, thread_id: str) -> Frame:
        """The frame for events that the log no longer has.

        It has no id where the state follows: a client that is cut before the state must not resume
        behind it.
        """


E = TypeVar("E", bound=FrameCursorEncoder)


def frame_ids(
    ids: bytes, epoch: int, seq: int, count: int, *, opening: bool = False
) -> Iterator[str]:
    """The ids of the frames of an event, or of `open` after it; every id begins with `ids`."""
    last = (ids + lines_place(epoch) + b"%d" % seq).decode()
    inside = ".o" if opening else "."
    for k in range(1, count):
        yield f"{last}{inside}{k}"
    yield last


class FrameCursorFormat(DefaultFormat, ABC, Generic[E]):
    """A format whose frames have these cursors, for a run or for the runs of a thread."""

    name: str
    shows_attempts = True

    def __init__(self, ordinal: int | None = None) -> None:
        """The format of a run, or of the run with this number in its thread."""
        self._ids = b""
        if ordinal is not None:
            self._ids = b"%d:" % ordinal
            self.name = f"{self.name} in thread"

    def preamble(self, retry_ms: int = RETRY_MS) -> bytes:
        """How long clients wait before they reconnect; a thread's stream has sent it."""
        return b"" if self._ids else sse.retry(retry_ms)

    @abstractmethod
    def at(self, state: State) -> E:
        """An encoder for a client that has seen everything so far."""

    def open(self, state: State, epoch: int = 1) -> tuple[E, list[Frame]]:
        """A replay in few frames."""
        encoder = self.at(state)
        return encoder, encoder.opening(epoch)

    def open_in_pieces(self, state: State, epoch: int = 1) -> tuple[E, Iterator[bytes]]:
        """As `open`. Frames that repeat a long text share the bytes of the text."""
        encoder = self.at(state)
        return encoder, encoder.opening_in_pieces(epoch)

    def gap(self, state: State, epoch: int, reason: str, thread_id: str = "") -> Frame:
        """The frame for a client whose cursor points before `state`."""
        return self.at(state).gap(reason, thread_id)

    def in_thread(self, ordinal: int) -> Self:
        """The same frames with a thread's cursors."""
        return self.__class__(ordinal)

    def resume(self, before: State, recorded: Recorded, cursor: Cursor) -> tuple[E, list[Frame]]:
        """Continue inside an event, or inside the frames of `open` after it."""
        encoder = self.at(before)
        frames = encoder.encode(recorded)
        seen = cursor.sub or 0
        if seen > OPENING:
            frames, seen = encoder.opening(recorded.epoch), seen - OPENING
        if seen >= len(frames):  # the id of the last frame has no `.k`
            raise InvalidCursor(
                f"The cursor names frame {seen} of event {cursor.seq}, which has {len(frames)} "
                "frames; send the last id that you received."
            )
        return encoder, frames[seen:]

    def cursor(self, text: str) -> Cursor:
        """`epoch-seq`, `epoch-seq.k` or `epoch-seq.ok`; `0` is the start."""
        event, dot, inside = text.partition(".")
        cursor = event_cursor(event, text)
        if not dot:
            return cursor
        offset = OPENING if inside.startswith("o") else 0
        sub = whole_number(inside.removeprefix("o"), text)
        if not 0 < sub < OPENING or cursor.seq == 0:
            raise invalid_cursor(text)
        return cursor._replace(sub=sub + offset)
