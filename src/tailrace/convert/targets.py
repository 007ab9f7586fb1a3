"""Events to the bytes of a target."""

from __future__ import annotations

from typing import Protocol

import msgspec

from tailrace.convert.sources import SourceOutput, SourceState, silently_done
from tailrace.core import events as ev
from tailrace.core.codec import encode_event
from tailrace.core.errors import StreamCut, StreamError
from tailrace.core.fold import State
from tailrace.core.items import ErrorInfo
from tailrace.core.run_object import client_view
from tailrace.wire import task
from tailrace.wire.base import Encoder, Format, Frame, FramesLines, ReportsGaps, opened


class Target(Protocol):
    """Writes a stream."""

    def write(self, readable: SourceOutput) -> bytes:
        """The bytes of an event; raises `StreamTooLarge` if a frame is too large."""
        ...

    def end(self, state: State, error: StreamError | None) -> bytes:
        """The bytes that end the stream if the run did not end it."""
        ...


class WireTarget:
    """Writes a wire format."""

    def __init__(self, wire: Format) -> None:
        self._wire = wire
        self._encoder: Encoder = wire.at(State())
        self._before = wire.preamble()
        # Checked once: the check costs more than an event.
        self._shows_lines = isinstance(wire, FramesLines)
        self._has_begun = False
        self._last = 0

    def write(self, readable: SourceOutput) -> bytes:
        """The event's frames."""
        if isinstance(readable, SourceState):
            frames = self._open(readable)
            self._last = readable.state.sequence_number
        else:
            frames = self._encode(readable)
            self._last = readable.event.sequence_number
        self._has_begun = True
        return self._joined(frames)

    def end(self, state: State, error: StreamError | None) -> bytes:
        """The format's own end, or the end of the run in formats that can be resumed.

        A converter cannot be resumed. But a format that shows the log's own bytes is not given
        events that the log does not have.
        """
        root = state.root
        if root is not None and root.ended:
            return self._joined([])
        if error is None and (tasks := silently_done(state)):
            return self._joined([] if self._shows_lines else self._complete(tasks))
        wire = self._wire
        if root is None or not wire.resumable or self._shows_lines:
            return self._joined(self._encoder.close(str(error or "The run waits for an answer.")))
        last: ev.Event
        number = self._last + 1
        if error is None or isinstance(error, StreamCut):
            reason = "cut" if error is not None else "input_required"
            last = ev.TaskIncomplete(task_id=root.task_id, sequence_number=number, reason=reason)
        else:
            info = ErrorInfo(code=error.code, message=str(error))
            last = ev.TaskFailed(task_id=root.task_id, sequence_number=number, error=info)
        # Readers close open items with it (PROTOCOL.md, section 4, rule 7).
        return self._joined(self._encode(ev.Recorded(last, b"")))

    def _complete(self, tasks: list[str]) -> list[Frame]:
        """The ends of tasks without lifecycle events."""
        frames: list[Frame] = []
        for number, task_id in enumerate(tasks, self._last + 1):
            end = ev.TaskCompleted(task_id=task_id, sequence_number=number)
            frames += self._encode(ev.Recorded(end, b""))
        return frames

    def _encode(self, recorded: ev.Recorded) -> list[Frame]:
        if not recorded.public and self._shows_lines:
            recorded = ev.Recorded(recorded.event, encode_event(recorded.event), recorded.epoch)
        return self._encoder.encode(recorded)

    def _open(self, start: SourceState) -> list[Frame]:
        wire, state = self._wire, start.state
        frames: list[Frame] = []
        if isinstance(wire, ReportsGaps):
            if start.gap is not None:
                frames.append(wire.gap(state, start.epoch, start.gap))
        elif self._has_begun:
            raise StreamCut(
                f"A part of the run is missing, and format {wire.name!r} cannot show a gap; "
                "convert a stream that begins with the first event."
            )
        self._encoder, opening_frames = opened(wire, state, start.epoch)
        return frames + opening_frames

    def _joined(self, frames: list[Frame]) -> bytes:
        before, self._before = self._before, b""
        return before + b"".join(frames)


class LinesTarget(WireTarget):
    """`jsonl`: the native format without frames, a JSON object per line."""

    def __init__(self) -> None:
        super().__init__(task.FORMAT)

    def _joined(self, frames: list[Frame]) -> bytes:
        return b"".join(frame.partition(b"data: ")[2][:-1] for frame in frames)


class ObjectTarget:
    """`json`: the final object, as clients may see it."""

    def write(self, readable: SourceOutput) -> bytes:  # noqa: ARG002  # the state is shown
        """No bytes: the object comes at the end."""
        return b""

    def end(self, state: State, error: StreamError | None) -> bytes:  # noqa: ARG002
        """The object so far."""
        return msgspec.json.format(msgspec.json.encode(client_view(state)), indent=2) + b"\n"
